"""What every folder stands on: ladders, draws' statistics as arrays, populations, threads."""
