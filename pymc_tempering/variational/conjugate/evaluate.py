"""The ELBO of all data, local steps converged."""

from typing import Any

import numpy as np

from pymc_tempering.variational.conjugate.protocol import ConjugateModel, Globals

ROWS = 1024
MAX_STEPS = 100
TOL = 1e-7


def elbo(
    model: ConjugateModel,
    lam: Globals,
    data: Any,
    *,
    inv_temp: float = 1.0,
    cores: int = 1,
    state: np.ndarray | None = None,
) -> float:
    """Return the ELBO of checked data at one temperature, local steps converged, in nats.

    The local steps start from `state`, local parameters of all data, or afresh.
    """
    total = model.global_elbo(lam, data)
    for first in range(0, model.n_data(data), ROWS):
        rows = np.arange(first, min(first + ROWS, model.n_data(data)))
        part = model.take(data, rows)
        current = model.start_local(part) if state is None else state[rows]
        inv_temps, old, new = np.full(len(rows), inv_temp), -np.inf, 0.0
        for _ in range(MAX_STEPS):
            local = model.local_step(lam, part, inv_temps, current, cores)
            current, new = local.state, float((inv_temp * local.log_joint + local.rest).sum())
            if abs(new - old) <= TOL * abs(new):
                break
            old = new
        total += new
    return total
