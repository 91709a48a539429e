"""Normalized distributions at beta = 0: the prior, or a mixture fitted to draws."""
