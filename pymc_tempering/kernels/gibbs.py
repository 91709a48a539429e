"""Gibbs sampling of discrete variables in known bounds, one coordinate after the other."""

import numpy as np

from pymc_tempering.kernels.contract import (
    ACCEPTANCE,
    BINARY,
    BOUNDED,
    DIVERGED,
    N_EVALUATIONS,
    Block,
    Kernel,
    log_density_at,
)
from pymc_tempering.model.compiled import KERNEL_SIGNATURE, LOG_RATIO, LOG_REFERENCE
from pymc_tempering.model.copying import copy_numbers
from pymc_tempering.model.jit import njit

MOST, LOWER = 0, 1
"""Layout of the tuning numbers: the largest number of values of a coordinate; then lower bounds and
numbers of values, each of length b."""


@njit(KERNEL_SIGNATURE, error_model="numpy")
def gibbs_transition(density, point, beta, block, params, scratch, rng, info):  # type: ignore[no-untyped-def]
    """Draw each coordinate from its full conditional, with all others as they are."""
    n = block.size
    most = int(params[MOST])
    values = np.empty((most, 2))
    log_p = np.empty(most)
    evaluations = 0
    for i in range(n):
        j = block[i]
        lower, n_values = params[LOWER + i], int(params[LOWER + n + i])
        current = int(point.x[j] - lower)
        copy_numbers(values[current], point.values)
        log_p[current] = point.values[LOG_REFERENCE] + beta * point.values[LOG_RATIO]
        if not -np.inf < log_p[current] < np.inf:  # zero likelihood, or not a number
            log_p[current] = -np.inf
        largest = log_p[current]
        for v in range(n_values):
            if v != current:
                point.x[j] = lower + v
                log_p[v] = log_density_at(density, point, beta)
                evaluations += 1
                copy_numbers(values[v], point.values)
                largest = max(largest, log_p[v])
        chosen = current
        if largest > -np.inf:
            total = 0.0
            for v in range(n_values):
                log_p[v] = np.exp(log_p[v] - largest)
                total += log_p[v]
            u = rng.random() * total
            for v in range(n_values):
                if log_p[v] > 0.0:
                    chosen = v
                    u -= log_p[v]
                    if u < 0.0:
                        break
        point.x[j] = lower + chosen
        copy_numbers(point.values, values[chosen])
    info[ACCEPTANCE] = 1.0
    info[N_EVALUATIONS] = evaluations
    info[DIVERGED] = 0.0


def _pack(step_size: float, metric: np.ndarray, block: Block) -> np.ndarray:
    n_values = block.upper - block.lower + 1.0
    return np.concatenate([[n_values.max()], block.lower, n_values])


def Gibbs() -> Kernel:
    """Gibbs sampling of binary and categorical variables and of integers in known bounds.

    Each coordinate in turn is drawn from its full conditional under the tempered density, which
    takes one evaluation for each value that it does not have at present.

    Returns
    -------
    Kernel

    Examples
    --------
    >>> from pymc_tempering import Gibbs
    >>> sorted(Gibbs().kinds)
    ['binary', 'bounded']
    """
    return Kernel(
        name="gibbs",
        transition=gibbs_transition,
        n_scratch=0,
        pack=_pack,
        rebuild=(Gibbs, ()),
        reversal="block",
        kinds=frozenset({BINARY, BOUNDED}),
    )
