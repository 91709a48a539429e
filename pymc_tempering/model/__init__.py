"""A PyMC model as a compiled path of densities."""
