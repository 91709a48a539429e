"""The front doors `sample` and `SimulatedTempering`, and the plan of their runs."""
