"""Tempered normalizers of the likelihood, which variational tempering needs."""
