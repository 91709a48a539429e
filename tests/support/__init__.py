"""What the tests share: models, exact draws, repeated runs."""
