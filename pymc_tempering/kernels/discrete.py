"""Kernels for discrete variables: Gibbs sampling, Langevin flips, and transfers between cells."""

import numpy as np
import pymc as pm

from pymc_tempering.arguments import check_whole
from pymc_tempering.kernels.contract import Block, Kernel, log_density_at, tell
from pymc_tempering.kernels.hmc import keep_state, put_back
from pymc_tempering.model.compiled import LOG_RATIO, LOG_REFERENCE
from pymc_tempering.model.copying import copy_numbers
from pymc_tempering.model.jit import njit
from pymc_tempering.model.layout import Layout
from pymc_tempering.references.compiled_mixture import evaluate

MOST, LOWER = 0, 1
"""Layout of the tuning numbers: the largest number of values of a coordinate; then lower bounds and
numbers of values, each of length b."""


@njit(error_model="numpy")
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
    tell(info, 1.0, evaluations, 0.0)


def Gibbs() -> Kernel:
    """Gibbs sampling of binary and categorical variables and of integers in known bounds.

    Each coordinate in turn is drawn from its full conditional under the tempered density, which
    takes one evaluation for each value that it does not have at present.

    Returns
    -------
    Kernel

    Examples
    --------
    >>> from pymc_tempering.kernels import Gibbs
    >>> sorted(Gibbs().kinds)
    ['binary', 'bounded']
    """

    def pack(step_size: float, metric: np.ndarray, block: Block) -> np.ndarray:
        n_values = block.upper - block.lower + 1.0
        return np.concatenate([[n_values.max()], block.lower, n_values])

    return Kernel(
        name="gibbs",
        transition=gibbs_transition,
        n_scratch=0,
        pack=pack,
        rebuild=(Gibbs, ()),
        reversal="block",
        kinds=frozenset({"binary", "bounded"}),
    )


STEP, N_STEPS = 0, 1
"""Layout of the tuning numbers."""

START, FLIPPED = 0, 3
"""Rows of the scratch space: the state to go back to, which takes three; which coordinates flip."""


@njit(error_model="numpy")
def _propose(point, beta, block, step, draws, rng, flipped):  # type: ignore[no-untyped-def]
    """Log probability of the flips in `flipped`; with `draws` they are drawn first.

    A coordinate flips with log odds of half the change of the log density to first order,
    less 1 / (2 step): Zhang, Liu & Liu (2022), eq. (4), for binary variables.
    """
    total = 0.0
    for i in range(block.size):
        j = block[i]
        slope = point.grads[LOG_REFERENCE, j] + beta * point.grads[LOG_RATIO, j]
        odds = 0.5 * (1.0 - 2.0 * point.x[j]) * slope - 0.5 / step
        if odds != odds:  # the gradient is NaN: propose as if it were zero
            odds = -0.5 / step
        stay = 1.0 / (1.0 + np.exp(odds))
        if draws:
            flipped[i] = 1.0 if rng.random() >= stay else 0.0
        # log of 1 / (1 + exp(-odds)) or of 1 / (1 + exp(odds)), without overflow
        signed = odds if flipped[i] > 0.0 else -odds
        total -= np.log1p(np.exp(-abs(signed))) + max(-signed, 0.0)
    return total


@njit(error_model="numpy")
def langevin_transition(density, point, beta, block, params, scratch, rng, info):  # type: ignore[no-untyped-def]
    """Flip random sets of coordinates, each by its own odds, accepted by Metropolis."""
    n_steps, flipped = int(params[N_STEPS]), scratch[FLIPPED]
    accepted = 0.0
    for _ in range(n_steps):
        log_reference, log_ratio = point.values[LOG_REFERENCE], point.values[LOG_RATIO]
        keep_state(point, block, scratch, START)
        forth = _propose(point, beta, block, params[STEP], 1, rng, flipped)
        for i in range(block.size):
            if flipped[i] > 0.0:
                point.x[block[i]] = 1.0 - point.x[block[i]]
        evaluate(density, point)
        new = point.values[LOG_REFERENCE] + beta * point.values[LOG_RATIO]
        chance = 0.0
        if -np.inf < new < np.inf:
            back = _propose(point, beta, block, params[STEP], 0, rng, flipped)
            chance = min(1.0, np.exp(new - (log_reference + beta * log_ratio) + back - forth))
        accepted += chance
        if not rng.random() < chance:
            put_back(point, block, scratch, START, log_reference, log_ratio)
    tell(info, accepted / n_steps, n_steps, 0.0)


def DiscreteLangevin(target_accept: float = 0.57, n_steps: int = 5) -> Kernel:
    """Discrete Langevin proposals for binary variables, corrected by Metropolis.

    The gradient of the log density, with the variables taken for real numbers, says to first
    order what each flip would change; all coordinates are flipped or not at once, by these odds
    (Zhang, Liu & Liu 2022). One gradient moves many coordinates, where Gibbs sampling needs an
    evaluation for each of them. The density must make sense between 0 and 1: an energy does, an
    index into an array does not.

    Parameters
    ----------
    target_accept : float, default 0.57
        Acceptance probability that the step size of each rung is tuned for.
    n_steps : int, default 5
        Proposals of one transition, each of one gradient.

    Returns
    -------
    Kernel

    Raises
    ------
    ValueError
        An argument out of its range.

    Examples
    --------
    >>> from pymc_tempering.kernels import DiscreteLangevin
    >>> DiscreteLangevin().uses_gradient
    True
    """
    check_whole(1, n_steps=n_steps)
    return Kernel(
        name="langevin",
        transition=langevin_transition,
        n_scratch=4,
        pack=lambda step_size, scale, block: np.array([step_size, n_steps]),
        rebuild=(DiscreteLangevin, (target_accept, n_steps)),
        reversal="self",
        kinds=frozenset({"binary"}),
        target_accept=target_accept,
        uses_gradient=True,
    )


FIRST = 0
"""Layout of the tuning numbers: where the vector of each coordinate begins in the block, then how
many cells it has, each of length b."""

PROPOSALS = 2
"""Proposals of a transition for each cell."""


@njit(error_model="numpy")
def transfer_transition(density, point, beta, block, params, scratch, rng, info):  # type: ignore[no-untyped-def]
    """Move units from one cell to another of its vector, a few times, each accepted by Metropolis.

    The cells and the number of units are drawn without a look at what the cells hold, so that the
    way back is as likely. That number is of all scales up to the sum of the vector.
    """
    n = block.size
    accepted, taken = 0.0, 0
    for _ in range(PROPOSALS * n):
        i = int(rng.random() * n)
        first, length = int(params[FIRST + i]), int(params[FIRST + n + i])
        if length < 2:
            continue
        k = first + int(rng.random() * (length - 1))
        k += k >= i  # any other cell
        total = 0.0
        for j in range(first, first + length):
            total += point.x[block[j]]
        scales = 1.0 + np.floor(np.log2(max(total, 1.0)))
        units = 1.0 + np.floor(rng.random() * 2.0 ** np.floor(rng.random() * scales))
        if point.x[block[i]] < units:
            continue
        log_reference, log_ratio = point.values[LOG_REFERENCE], point.values[LOG_RATIO]
        point.x[block[i]] -= units
        point.x[block[k]] += units
        taken += 1
        level = log_density_at(density, point, beta)
        chance = min(1.0, np.exp(level - (log_reference + beta * log_ratio)))
        accepted += chance
        if not rng.random() < chance:
            point.x[block[i]] += units
            point.x[block[k]] -= units
            point.values[LOG_REFERENCE] = log_reference
            point.values[LOG_RATIO] = log_ratio
    tell(info, accepted / (PROPOSALS * n), taken, 0.0)


def Transfer(lengths: tuple[int, ...] | None = None) -> Kernel:
    """Transfer of units between cells of vectors with a fixed sum, as of a multinomial law.

    Parameters
    ----------
    lengths : tuple of int, optional
        Cells of each vector; by default those that the model says, and one vector where there is
        no model.

    Returns
    -------
    Kernel
    """

    def pack(step_size: float, scale: np.ndarray, block: Block) -> np.ndarray:
        n = np.array(lengths or (block.size,))
        return np.concatenate([np.repeat(np.cumsum(n) - n, n), np.repeat(n, n)]).astype(float)

    return Kernel(
        name="transfer",
        transition=transfer_transition,
        n_scratch=0,
        pack=pack,
        rebuild=(Transfer, (lengths,)),
        reversal="self",
        kinds=frozenset({"fixed sum"}),
        bind=_bind_transfer if lengths is None else None,
    )


def _bind_transfer(model: pm.Model, layout: Layout, block: Block) -> Kernel:
    """Give the kernel the vectors of its variables, which lie along their last axes."""
    shapes = dict(zip(layout.names, layout.shapes, strict=True))
    own = [shapes[name] for name in block.names]
    return Transfer(
        tuple(shape[-1] for shape in own for _ in range(int(np.prod(shape[:-1], dtype=int))))
    )
