"""What the tests share: models with known answers, exact draws, repeated runs.

- `boltzmann_machine`: a machine whose units are all free, with its log Z and exact draws.
- `compiled_systems`: test systems of the package, each compiled once for all test files.
- `conjugate_models`: data and models for `variational.conjugate`, and their ELBO by Monte Carlo.
- `exact_posteriors`: exact posterior draws of the test systems, as arrays and as DataTrees.
- `foreign_imports`: what a Python file imports from other libraries.
- `gaussian_path`: a path in closed form without PyMC, kernels with planted bugs, tests of draws.
- `integration_points`: points and weights that integrate the density of a PyMC model.
- `model_kinds`: one small model of each kind that users have, with its log evidence.
- `repeated_runs`: many tempering runs of toys with exact draws, and bugs to plant in them.
- `small_models`: models for the tests of paths, transforms and front doors.
- `variational_models`: models for the tests of variational fits, with closed forms.
"""
