"""Work sent to an executor: pools of processes, Dask, and all else with the same interface."""
