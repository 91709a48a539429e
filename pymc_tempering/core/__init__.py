"""The base of all other folders: ladders, statistics of cycles as arrays, populations, threads."""
