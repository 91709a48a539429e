"""Discrete variables that are summed out of a model, and drawn afterwards."""
