"""Draws put one after the other into PyMC's own trace, as `pm.sample` does it."""

import numpy as np
from pymc.backends.ndarray import NDArray
from pytensor import config


def recorded_draws(model, layout, x, *, chain=0, stats=None, dtypes=None, variables=None):
    """Trace of unconstrained draws (n, dim), with the statistics of each as a dictionary.

    It is compiled without fast math, as all of the package is, so that it has the same bits.
    """
    point = layout.unravel(np.zeros(layout.dim))
    with config.change_flags(numba__fastmath=False):
        trace = NDArray(model=model, vars=variables, test_point=point)
    trace.setup(len(x), chain, None if dtypes is None else [dtypes])
    for i, draw in enumerate(x):
        point = {
            name: draw[part].reshape(shape).astype(dtype)
            for name, part, shape, dtype in zip(
                layout.names, layout.slices, layout.shapes, layout.dtypes, strict=True
            )
        }
        trace.record(point, None if stats is None else [stats[i]], in_warmup=False)
    return trace
