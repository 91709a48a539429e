"""Evidence from posterior draws of any sampler: bridge sampling and importance sampling."""
