"""The No-U-Turn sampler with multinomial choice of the state, built without recursion."""

import numpy as np

from pymc_tempering.arguments import check_whole
from pymc_tempering.kernels.contract import Block, Kernel, tell
from pymc_tempering.kernels.hmc import (
    MAX_ENERGY_ERROR,
    keep_state,
    leapfrog_step,
    put_back,
    set_force,
)
from pymc_tempering.model.compiled import LOG_RATIO, LOG_REFERENCE
from pymc_tempering.model.copying import copy_numbers, copy_row
from pymc_tempering.model.jit import njit

STEP, MAX_TREEDEPTH, SCALE = 0, 1, 2
"""Layout of the tuning numbers; the standard deviations start at `SCALE`."""


LIMIT_TREEDEPTH = 20
"""A million leapfrog steps: a posterior that needs more has another problem."""

# Rows of scratch space. A state on the trajectory is position, momentum and force, all scaled by
# the standard deviations and of the block alone; a state that may be chosen is position and both
# gradients, the latter of all coordinates.
MOMENTUM, FORCE, SUM, FIRST = 0, 1, 2, 3  # of the subtree in the making
TREE_SUM = 4
END = 5  # position, momentum, force; of the left end, then of the right one
CHOSEN, CANDIDATE = 11, 14  # position and gradients; of the tree, of the subtree
STACK = 17  # momenta of a checkpoint: first, last, and their sum; one checkpoint a level

GROWN, TURNED, BROKEN = 0, 1, 2
"""What became of a subtree."""


@njit(error_model="numpy")
def _turns(n, sum_a, first_a, last_a, sum_b, first_b, last_b):  # type: ignore[no-untyped-def]
    """Whether part a of a trajectory and part b after it, put together, turn back on themselves.

    The criterion of Betancourt (2017, appendix A.4.2) is applied to the whole, and to each part
    together with the neighboring state of the other part. The whole alone would not do: it does
    not seem to turn if it is a multiple of a period. The direction of time does not matter.
    """
    whole_first = whole_last = a_first = a_last = b_first = b_last = 0.0
    for i in range(n):
        whole = sum_a[i] + sum_b[i]
        whole_first += whole * first_a[i]
        whole_last += whole * last_b[i]
        a = sum_a[i] + first_b[i]
        a_first += a * first_a[i]
        a_last += a * first_b[i]
        b = last_a[i] + sum_b[i]
        b_first += b * last_a[i]
        b_last += b * last_b[i]
    return not (
        whole_first > 0.0
        and whole_last > 0.0
        and a_first > 0.0
        and a_last > 0.0
        and b_first > 0.0
        and b_last > 0.0
    )


@njit(error_model="numpy")
def _grow(density, point, beta, block, params, scratch, rng, energy, step, depth):  # type: ignore[no-untyped-def]
    """Follow the trajectory for `2**depth` leapfrog steps from the point; choose one state.

    Returns what became of the subtree, leapfrog steps, the sum of their acceptance
    probabilities, the log of the subtree's weight, and the values of the candidate. All
    subtrees of this one are checked for turns, as soon as their last state is there: a
    checkpoint of level l stands for `2**l` states, and two of a level are merged (the
    iterative form of Phan, Pradhan & Jankowiak 2019, appendix A).
    """
    n = block.size
    momentum, force, total = scratch[MOMENTUM], scratch[FORCE], scratch[SUM]
    scales = params[SCALE : SCALE + n]
    accepted, log_weight = 0.0, -np.inf
    log_reference = log_ratio = np.nan
    for leaf in range(1 << depth):
        error = leapfrog_step(density, point, beta, block, scales, momentum, force, step) - energy
        if not -np.inf < error < MAX_ENERGY_ERROR:  # NaN and an infinite density too
            return BROKEN, leaf + 1, accepted, log_weight, log_reference, log_ratio
        accepted += min(1.0, np.exp(-error))
        larger = max(log_weight, -error)
        log_weight = larger + np.log1p(np.exp(min(log_weight, -error) - larger))
        if rng.random() < np.exp(-error - log_weight):
            keep_state(point, block, scratch, CANDIDATE)
            log_reference, log_ratio = point.values[LOG_REFERENCE], point.values[LOG_RATIO]
        if leaf == 0:
            copy_numbers(scratch[FIRST], momentum[:n])
        copy_numbers(total, momentum[:n])
        first, level = MOMENTUM, 0
        while (leaf >> level) & 1:
            row = STACK + 3 * level
            if _turns(
                n, scratch[row + 2], scratch[row], scratch[row + 1], total, scratch[first], momentum
            ):
                return TURNED, leaf + 1, accepted, log_weight, log_reference, log_ratio
            for i in range(n):
                total[i] += scratch[row + 2, i]
            first = row
            level += 1
        if level < depth:
            row = STACK + 3 * level
            copy_numbers(scratch[row], scratch[first, :n])
            copy_numbers(scratch[row + 1], momentum[:n])
            copy_numbers(scratch[row + 2], total[:n])
    return GROWN, 1 << depth, accepted, log_weight, log_reference, log_ratio


@njit(error_model="numpy")
def nuts_transition(density, point, beta, block, params, scratch, rng, info):  # type: ignore[no-untyped-def]
    """Double a trajectory to either side until it turns, and move to one of its states.

    States have the weights `exp(-energy)`. Within a subtree the choice is multinomial, between
    the tree and a subtree that is added it is biased to the latter (Betancourt 2017, appendix
    A.3.2). No state is taken from a subtree that turned or diverged within itself, because the
    same tree could not have been built from there.
    """
    n = block.size
    momentum, force, tree_sum = scratch[MOMENTUM], scratch[FORCE], scratch[TREE_SUM]
    keep_state(point, block, scratch, CHOSEN)
    log_reference, log_ratio = point.values[LOG_REFERENCE], point.values[LOG_RATIO]
    kinetic = 0.0
    set_force(point, beta, block, params[SCALE : SCALE + n], force)
    for i in range(n):
        momentum[i] = rng.standard_normal()
        kinetic += momentum[i] * momentum[i]
        for end in (END, END + 3):
            scratch[end, i] = point.x[block[i]]
            scratch[end + 1, i] = momentum[i]
            scratch[end + 2, i] = force[i]
        tree_sum[i] = momentum[i]
    energy = 0.5 * kinetic - (log_reference + beta * log_ratio)
    log_weight, accepted, taken, outcome = 0.0, 0.0, 0, GROWN
    for depth in range(int(params[MAX_TREEDEPTH])):
        forward = rng.random() < 0.5
        near, far = (END + 3, END) if forward else (END, END + 3)
        for i in range(n):
            point.x[block[i]] = scratch[near, i]
            momentum[i] = scratch[near + 1, i]
            force[i] = scratch[near + 2, i]
        step = params[STEP] if forward else -params[STEP]
        outcome, steps, chances, log_new, new_reference, new_ratio = _grow(
            density, point, beta, block, params, scratch, rng, energy, step, depth
        )
        taken += steps
        accepted += chances
        if outcome != GROWN:
            break
        if rng.random() < np.exp(min(0.0, log_new - log_weight)):
            log_reference, log_ratio = new_reference, new_ratio
            for row in range(3):
                copy_row(scratch, CHOSEN + row, scratch, CANDIDATE + row)
        if _turns(
            n, tree_sum, scratch[far + 1], scratch[near + 1],
            scratch[SUM], scratch[FIRST], momentum,
        ):  # fmt: skip
            break
        larger = max(log_weight, log_new)
        log_weight = larger + np.log1p(np.exp(min(log_weight, log_new) - larger))
        for i in range(n):
            tree_sum[i] += scratch[SUM, i]
            scratch[near, i] = point.x[block[i]]
            scratch[near + 1, i] = momentum[i]
            scratch[near + 2, i] = force[i]
    tell(info, accepted / taken, taken, 1.0 if outcome == BROKEN else 0.0)
    put_back(point, block, scratch, CHOSEN, log_reference, log_ratio)


def NUTS(target_accept: float = 0.8, max_treedepth: int = 10) -> Kernel:
    """No-U-Turn sampler on real variables, with a diagonal metric.

    The multinomial form of Betancourt (2017) with checks between neighboring subtrees. Its
    trajectories end where they turn back, so there is no length to choose. They are longer than
    those that serve the ladder best (see `HMC`). Use it for posteriors whose scales differ so
    much, or change so much from place to place, that no single length fits.

    Parameters
    ----------
    target_accept : float, default 0.8
        Mean acceptance probability over the states of a trajectory that the step size of each
        rung is tuned for.
    max_treedepth : int, default 10
        Largest number of doublings: at most `2**max_treedepth - 1` leapfrog steps.

    Returns
    -------
    Kernel

    Raises
    ------
    ValueError
        An argument out of its range.

    References
    ----------
    .. [1] M. D. Hoffman, A. Gelman: The No-U-Turn sampler. Journal of Machine Learning Research
       15, 2014.
    .. [2] M. Betancourt: A conceptual introduction to Hamiltonian Monte Carlo. arXiv:1701.02434,
       2017.
    .. [3] D. Phan, N. Pradhan, M. Jankowiak: Composable effects for flexible and accelerated
       probabilistic programming in NumPyro. arXiv:1912.11554, 2019.

    Examples
    --------
    >>> from pymc_tempering.kernels import NUTS
    >>> NUTS(max_treedepth=8).name
    'nuts'
    """
    check_whole(1, max_treedepth=max_treedepth)
    if max_treedepth > LIMIT_TREEDEPTH:
        raise ValueError(f"max_treedepth must be at most {LIMIT_TREEDEPTH}, not {max_treedepth!r}.")

    def pack(step_size: float, scale: np.ndarray, block: Block) -> np.ndarray:
        return np.concatenate([[step_size, max_treedepth], scale])

    return Kernel(
        name="nuts",
        transition=nuts_transition,
        n_scratch=STACK + 3 * (max_treedepth - 1),
        pack=pack,
        target_accept=target_accept,
        uses_gradient=True,
        rebuild=(NUTS, (target_accept, max_treedepth)),
    )
