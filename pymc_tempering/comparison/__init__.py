"""The evidence of whatever a user has, comparison of models by it, and averages over them."""
