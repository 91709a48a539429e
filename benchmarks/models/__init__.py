"""What is run: models, by files that scripts share."""
