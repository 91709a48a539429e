"""Kernels without gradients for real variables and integers: slice sampling, random walks."""

import numpy as np

from pymc_tempering.arguments import check_whole
from pymc_tempering.kernels.contract import Block, Kernel, log_density_at, tell
from pymc_tempering.model.compiled import LOG_RATIO, LOG_REFERENCE
from pymc_tempering.model.jit import njit

MAX_OUT = 50
"""Largest number of steps that an interval grows by, on both sides together."""

MAX_SHRINK = 200
"""Proposals after which the state stays where it is."""

LINES, WIDTHS = 0, 1
"""Layout of the tuning numbers: lines of a transition (0: along the axes); then widths, lower
and upper bounds, and whether the coordinate is whole, each of length b."""


@njit(error_model="numpy")
def _along(density, point, beta, block, direction, start, rng):  # type: ignore[no-untyped-def]
    """Update real coordinates along a direction, whose length is the width of an interval.

    By stepping out and shrinkage (Neal 2003); `start` is scratch. Returns evaluations.
    """
    n = block.size
    for i in range(n):
        start[i] = point.x[block[i]]
    log_reference, log_ratio = point.values[LOG_REFERENCE], point.values[LOG_RATIO]
    floor = log_reference + beta * log_ratio + np.log(1.0 - rng.random())
    low = -rng.random()
    high = low + 1.0
    to_left = int(rng.random() * MAX_OUT)
    to_right = MAX_OUT - 1 - to_left
    taken = 0
    while to_left > 0:
        for i in range(n):
            point.x[block[i]] = start[i] + low * direction[i]
        taken += 1
        if not log_density_at(density, point, beta) > floor:
            break
        low -= 1.0
        to_left -= 1
    while to_right > 0:
        for i in range(n):
            point.x[block[i]] = start[i] + high * direction[i]
        taken += 1
        if not log_density_at(density, point, beta) > floor:
            break
        high += 1.0
        to_right -= 1
    for _ in range(MAX_SHRINK):
        new = low + rng.random() * (high - low)
        for i in range(n):
            point.x[block[i]] = start[i] + new * direction[i]
        taken += 1
        if log_density_at(density, point, beta) > floor:
            return taken
        if new < 0.0:
            low = new
        else:
            high = new
    for i in range(n):
        point.x[block[i]] = start[i]
    point.values[LOG_REFERENCE] = log_reference
    point.values[LOG_RATIO] = log_ratio
    return taken


@njit(error_model="numpy")
def _along_integers(density, point, beta, j, width, lower, upper, rng):  # type: ignore[no-untyped-def]
    """Update an integer coordinate; the interval is made of cells of `width` integers.

    Cells are half open, so that each integer lies in exactly one of them. Whether the interval goes
    on over a boundary is asked of the first integer above it, from both sides: so the same interval
    is equally likely from each of its integers, also where the slice has gaps.
    """
    x0, ref0, ratio0 = point.x[j], point.values[LOG_REFERENCE], point.values[LOG_RATIO]
    floor = ref0 + beta * ratio0 + np.log(1.0 - rng.random())
    width = max(1.0, np.rint(width))
    low = x0 - np.floor(rng.random() * width)
    high = low + width  # the first integer beyond
    to_left = int(rng.random() * MAX_OUT)
    to_right = MAX_OUT - 1 - to_left
    taken = 0
    while to_left > 0 and low > lower:
        point.x[j] = low
        taken += 1
        if not log_density_at(density, point, beta) > floor:
            break
        low -= width
        to_left -= 1
    while to_right > 0 and high <= upper:
        point.x[j] = high
        taken += 1
        if not log_density_at(density, point, beta) > floor:
            break
        high += width
        to_right -= 1
    low, high = max(low, lower), min(high, upper + 1.0)
    for _ in range(MAX_SHRINK):
        new = low + np.floor(rng.random() * (high - low))
        if new == x0:
            break
        point.x[j] = new
        taken += 1
        if log_density_at(density, point, beta) > floor:
            return taken
        if new < x0:
            low = new + 1.0
        else:
            high = new
    point.x[j] = x0
    point.values[LOG_REFERENCE] = ref0
    point.values[LOG_RATIO] = ratio0
    return taken


@njit(error_model="numpy")
def _draw_direction(direction, widths, rng):  # type: ignore[no-untyped-def]
    """Draw a random direction, uniform on the ellipsoid of the widths (hit and run)."""
    norm = 0.0
    for i in range(widths.size):
        direction[i] = rng.standard_normal()
        norm += direction[i] ** 2
    for i in range(widths.size):
        direction[i] *= widths[i] / np.sqrt(norm)


@njit(error_model="numpy")
def slice_transition(density, point, beta, block, params, scratch, rng, info):  # type: ignore[no-untyped-def]
    """Update each coordinate once, or all of them along random lines."""
    n = block.size
    widths = params[WIDTHS : WIDTHS + n]
    lower, upper = params[WIDTHS + n : WIDTHS + 2 * n], params[WIDTHS + 2 * n : WIDTHS + 3 * n]
    whole = params[WIDTHS + 3 * n : WIDTHS + 4 * n]
    taken = 0
    for _ in range(int(params[LINES])):
        _draw_direction(scratch[0], widths, rng)
        taken += _along(density, point, beta, block, scratch[0], scratch[1], rng)
    for i in range(n if params[LINES] == 0.0 else 0):
        if whole[i] > 0.0:
            taken += _along_integers(
                density, point, beta, block[i], widths[i], lower[i], upper[i], rng
            )
        else:
            one = slice(i, i + 1)
            taken += _along(density, point, beta, block[one], widths[one], scratch[0], rng)
    tell(info, 1.0, taken, 0.0)


def Slice(width: float = 2.5, lines: int = 0) -> Kernel:
    """Slice sampling by stepping out and shrinkage (Neal 2003); needs no gradients.

    Parameters
    ----------
    width : float, default 2.5
        First interval, in standard deviations of the rung's own distribution.
    lines : int, default 0
        0: each coordinate is updated in turn. Otherwise all real coordinates move together,
        along this many random directions (hit and run), which is cheaper in many dimensions.

    Returns
    -------
    Kernel

    Raises
    ------
    ValueError
        An argument out of its range.

    Examples
    --------
    >>> from pymc_tempering.kernels import Slice
    >>> Slice(lines=5).name
    'slice'
    """
    check_whole(0, lines=lines)
    if not width > 0:
        raise ValueError(f"width must be positive, not {width!r}.")

    def pack(step_size: float, scale: np.ndarray, block: Block) -> np.ndarray:
        widths = width * scale * (np.sqrt(block.size) if lines else 1.0)
        return np.concatenate([[lines], widths, block.lower, block.upper, block.whole])

    kinds = {"continuous"} if lines else {"continuous", "binary", "bounded", "integer"}
    return Kernel(
        name="slice",
        transition=slice_transition,
        n_scratch=2,
        pack=pack,
        rebuild=(Slice, (width, lines)),
        reversal="block",
        kinds=frozenset(kinds),
    )


N_STEPS, WHOLE = 0, 1
"""Layout of the tuning numbers: proposals of a transition; which coordinates are whole, lower and
upper bounds, each of length b; the lower triangle of the proposals' Cholesky factor by rows."""


@njit(error_model="numpy")
def metropolis_transition(density, point, beta, block, params, scratch, rng, info):  # type: ignore[no-untyped-def]
    """Propose a few normal steps, rounded for integers, each accepted by Metropolis."""
    n = block.size
    start, noise = scratch[0], scratch[1]
    n_steps = int(params[N_STEPS])
    whole = params[WHOLE : WHOLE + n]
    lower, upper = params[WHOLE + n : WHOLE + 2 * n], params[WHOLE + 2 * n : WHOLE + 3 * n]
    accepted, taken = 0.0, 0
    for _ in range(n_steps):
        log_reference, log_ratio = point.values[LOG_REFERENCE], point.values[LOG_RATIO]
        at = WHOLE + 3 * n
        inside = True
        for i in range(n):
            start[i] = point.x[block[i]]
            noise[i] = rng.standard_normal()
        for i in range(n):
            push = 0.0
            for k in range(i + 1):
                push += params[at + k] * noise[k]
            at += i + 1
            new = start[i] + (np.rint(push) if whole[i] > 0.0 else push)
            inside = inside and lower[i] <= new <= upper[i]
            point.x[block[i]] = new
        chance = 0.0
        if inside:  # beyond the bounds the density may still be finite
            taken += 1
            level = log_density_at(density, point, beta)
            chance = min(1.0, np.exp(level - (log_reference + beta * log_ratio)))
        accepted += chance
        if not rng.random() < chance:
            point.values[LOG_REFERENCE] = log_reference
            point.values[LOG_RATIO] = log_ratio
            for i in range(n):
                point.x[block[i]] = start[i]
    tell(info, accepted / n_steps, taken, 0.0)


def RandomWalkMetropolis(target_accept: float = 0.3, n_steps: int | None = None) -> Kernel:
    """Random-walk Metropolis with the covariance of each rung; needs no gradients.

    Proposals are normal with the covariance of the rung's own distribution, as the warm-up saw
    it, times a factor that is tuned for the acceptance; integers are rounded.

    Parameters
    ----------
    target_accept : float, default 0.3
        Acceptance probability that the steps of each rung are tuned for.
    n_steps : int, optional
        Proposals of one transition; by default as many as there are coordinates, and 5 at least.

    Returns
    -------
    Kernel

    Raises
    ------
    ValueError
        An argument out of its range.

    Examples
    --------
    >>> from pymc_tempering.kernels import RandomWalkMetropolis
    >>> RandomWalkMetropolis(n_steps=20).target_accept
    0.3
    """
    if n_steps is not None:
        check_whole(1, n_steps=n_steps)

    def pack(step_size: float, cholesky: np.ndarray, block: Block) -> np.ndarray:
        steps = max(5, block.size) if n_steps is None else n_steps
        factor = 2.38 * step_size * cholesky[np.tril_indices(block.size)]
        return np.concatenate([[steps], block.whole, block.lower, block.upper, factor])

    return Kernel(
        name="metropolis",
        transition=metropolis_transition,
        n_scratch=2,
        pack=pack,
        rebuild=(RandomWalkMetropolis, (target_accept, n_steps)),
        reversal="self",
        kinds=frozenset({"continuous", "binary", "bounded", "integer"}),
        target_accept=target_accept,
        dense=True,
    )
