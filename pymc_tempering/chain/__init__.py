"""Chains of simulated tempering, from the compiled loop to threads."""
