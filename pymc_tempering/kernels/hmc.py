"""Hamiltonian Monte Carlo with random trajectory length, and a diagonal or a dense metric."""

from functools import partial
from typing import Literal

import numpy as np

from pymc_tempering.arguments import check_choice, check_whole
from pymc_tempering.kernels.contract import ACCEPTANCE, DIVERGED, N_EVALUATIONS, Block, Kernel
from pymc_tempering.kernels.leapfrog import MAX_ENERGY_ERROR, leapfrog_step, set_force
from pymc_tempering.model.compiled import KERNEL_SIGNATURE, LOG_RATIO, LOG_REFERENCE
from pymc_tempering.model.copying import copy_numbers
from pymc_tempering.model.jit import njit

STEP, PATH_LENGTH, MAX_STEPS, METRIC = 0, 1, 2, 3
"""Layout of the tuning numbers; the metric starts at `METRIC`."""

METRICS: dict[str, bool | None] = {"auto": None, "diag": False, "dense": True}
"""Whether the metric is dense, by the name that `HMC` takes."""

LENGTHS = (1.2, 0.6)
"""Mean trajectory lengths that the warm-up chooses from, the usual one first."""


@njit(KERNEL_SIGNATURE, error_model="numpy")
def hmc_transition(density, point, beta, block, params, scratch, rng, info):  # type: ignore[no-untyped-def]
    """Move the point along a leapfrog trajectory and accept by Metropolis.

    Position and momentum are in units of the metric of the rung. The trajectory
    length is uniform on (0.5, 1.5) times `PATH_LENGTH`, so that no frequency of the target
    resonates with it.
    """
    n = block.size
    metric = params[METRIC:]
    start_x, start_g0, start_g1, momentum, force = (
        scratch[0], scratch[1], scratch[2], scratch[3], scratch[4],
    )  # fmt: skip
    log_reference, log_ratio = point.values[LOG_REFERENCE], point.values[LOG_RATIO]
    # All gradients are put back after a rejection, those of other blocks too.
    copy_numbers(start_g0, point.grads[LOG_REFERENCE])
    copy_numbers(start_g1, point.grads[LOG_RATIO])
    step = params[STEP] * (0.9 + 0.2 * rng.random())
    n_steps = int(params[PATH_LENGTH] * (0.5 + rng.random()) / step) + 1
    n_steps = min(n_steps, int(params[MAX_STEPS]))
    kinetic = 0.0
    for i in range(n):
        start_x[i] = point.x[block[i]]
        momentum[i] = rng.standard_normal()
        kinetic += momentum[i] * momentum[i]
    energy = 0.5 * kinetic - (log_reference + beta * log_ratio)
    set_force(point, beta, block, metric, force)
    error = np.inf
    taken = 0
    for _ in range(n_steps):
        error = leapfrog_step(density, point, beta, block, metric, momentum, force, step) - energy
        taken += 1
        if not -np.inf < error < MAX_ENERGY_ERROR:  # NaN too
            break
    info[N_EVALUATIONS] = taken
    sound = -np.inf < error < MAX_ENERGY_ERROR  # an infinite density is no number either
    info[DIVERGED] = 0.0 if sound else 1.0
    info[ACCEPTANCE] = min(1.0, np.exp(-error)) if sound else 0.0
    if rng.random() >= info[ACCEPTANCE]:
        point.values[LOG_REFERENCE] = log_reference
        point.values[LOG_RATIO] = log_ratio
        copy_numbers(point.grads[LOG_REFERENCE], start_g0)
        copy_numbers(point.grads[LOG_RATIO], start_g1)
        for i in range(n):
            point.x[block[i]] = start_x[i]


def _pack(
    step_size: float,
    metric: np.ndarray,
    block: Block,
    path_length: float = LENGTHS[0],
    *,
    max_steps: int,
) -> np.ndarray:
    return np.concatenate([[step_size, path_length, max_steps], metric.ravel()])


def HMC(
    target_accept: float = 0.8,
    path_length: float | Literal["auto"] = "auto",
    max_steps: int = 256,
    metric: Literal["auto", "diag", "dense"] = "auto",
) -> Kernel:
    """Hamiltonian Monte Carlo on real variables.

    Parameters
    ----------
    target_accept : float, default 0.8
        Acceptance probability that the step size of each rung is tuned for.
    path_length : float or "auto", default "auto"
        Mean trajectory length, in units of the rung's own standard deviations. By default the
        warm-up chooses at each rung between 1.2, somewhat less than a quarter of a period of a
        Gaussian, and half of it. It takes the one that changes `log_ratio` more for each gradient,
        which gives a smaller error of log Z for the same work (docs/kernels.md).
    max_steps : int, default 256
        Largest number of leapfrog steps in one transition.
    metric : {"auto", "diag", "dense"}, default "auto"
        Standard deviations alone, or a full covariance, which follows correlations. By default it
        is dense for at most 30 variables, and on the path from a fitted reference for up to 200
        where that shows strong correlation.

    Returns
    -------
    Kernel

    Raises
    ------
    ValueError
        An argument out of its range.

    Examples
    --------
    >>> from pymc_tempering import HMC
    >>> HMC(target_accept=0.9).name
    'hmc'
    """
    check_whole(1, max_steps=max_steps)
    check_choice("metric", metric, METRICS)
    sound = path_length == "auto" if isinstance(path_length, str) else path_length > 0
    if not sound:
        raise ValueError(f'path_length must be positive or "auto", not {path_length!r}.')
    options = target_accept, path_length, max_steps
    pack = partial(_pack, max_steps=max_steps)
    if not isinstance(path_length, str):
        pack = partial(pack, path_length=path_length)
    return Kernel(
        name="hmc",
        transition=hmc_transition,
        n_scratch=5,
        pack=pack,
        target_accept=target_accept,
        uses_gradient=True,
        lengths=LENGTHS if path_length == "auto" else (),
        reversal="self",
        dense=METRICS[metric],
        dense_form=partial(HMC, *options, "dense") if metric == "auto" else None,
        rebuild=(HMC, (*options, metric)),
    )
