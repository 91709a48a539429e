"""Latent fields: models whose many unknowns are nearly normal, given a few others."""
