"""A density over arrays of states, and what is checked before work starts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from pymc_tempering.core.weighting import effective_number, log_mean_error
from pymc_tempering.exceptions import ArgumentError, KernelError, LikelihoodError, ModelError

N_CHECK = 2000
"""Draws with which a reference's normalization is checked, as many for a fit before."""

MIN_CHECK_ESS = 100.0
"""Effective number of weights below which the check of a normalization says nothing."""

MAX_CHECK_Z, MIN_FAULT = 5.0, 0.01
"""Standard errors, and nats, by which log of the integral may differ from 0."""

MAX_VALUES = 50
"""Different values of a coordinate up to which it is taken for discrete, if these are whole."""


def normalization_fault(
    draw: Callable[[int, np.random.Generator], np.ndarray],
    log_density: Callable[[np.ndarray], np.ndarray],
    rng: np.random.Generator,
) -> str:
    """Say that a reference is not normalized, or not the law of its draws; empty if neither shows.

    For any normalized u, E[u(x) / p(x)] = 1 over draws x of p. As u serves the product of the
    draws' own marginals, from other draws. Where that is far from p its weights are uneven, and
    nothing can be said.
    """
    fit, held = draw(N_CHECK, rng), draw(N_CHECK, rng)
    values = np.asarray(log_density(held), dtype=float)
    if values.shape != (N_CHECK,) or not np.isfinite(values).all():
        return (
            f"log_reference must be {N_CHECK} finite numbers at {N_CHECK} draws of the reference, "
            f"and has shape {values.shape}."
        )
    log_w = _product_law(fit.reshape(N_CHECK, -1), held.reshape(N_CHECK, -1)) - values
    if effective_number(log_w) < MIN_CHECK_ESS:
        return ""
    off = float(logsumexp(log_w) - np.log(N_CHECK))
    if abs(off) <= max(MIN_FAULT, MAX_CHECK_Z * log_mean_error(log_w)):
        return ""
    return (
        f"The reference is not normalized, or reference_draw draws from another law: by its draws "
        f"the integral of exp(log_reference) is {np.exp(-off):.3g} in place of 1. log Z would be "
        "off by the logarithm of that."
    )


def _product_law(fit: np.ndarray, held: np.ndarray) -> np.ndarray:
    """Log density at ``held`` of the product of the marginals of ``fit``; both are (n, d)."""
    total = np.zeros(len(held))
    for own, other in zip(fit.T, held.T, strict=True):
        known, counts = np.unique(own, return_counts=True)
        if len(known) <= MAX_VALUES and np.array_equal(known, np.rint(known)):
            place = np.minimum(np.searchsorted(known, other), len(known) - 1)
            share = np.where(known[place] == other, counts[place] / len(own), 0.0)
            with np.errstate(divide="ignore"):
                total += np.log(share)
        else:
            mean, sd = own.mean(), own.std()
            total -= 0.5 * ((other - mean) / sd) ** 2 + np.log(sd) + 0.5 * np.log(2 * np.pi)
    return total


type States = np.ndarray
"""States of n chains, shape (n, ...): the first axis counts the chains."""

type Move = Callable[[States, np.ndarray, np.random.Generator], Any]
"""``move(states, beta, rng)`` returns new states, or these and their log_ratio."""

N_PROBES = 64
"""States at which a density is tried before work starts."""

RELATIVE = {2: 3e-2, 4: 2e-3, 8: 1e-6}
"""Differences of log_ratio that rounding may make, by the bytes of its numbers."""


@dataclass(frozen=True, eq=False)
class ArrayDensity:
    """A density over arrays, and a normalized reference, for tempering many chains in lockstep.

    The path is p_1(x) exp(beta log_ratio(x)), with p_1 the reference and log_ratio = log f - log
    p_1, so that log Z at beta = 1 is that of f. Each function takes all chains at once.

    Parameters
    ----------
    reference_draw : callable
        ``reference_draw(n, rng)`` returns n independent draws of p_1, shape (n, ...), in an array
        of its own each time.
    log_ratio : callable
        ``log_ratio(states)`` returns log f - log p_1 of each state in nats, shape (n,); minus
        infinity where f is zero.
    move : callable
        ``move(states, beta, rng)`` returns new states, of a transition that leaves p_1^(1 - beta)
        f^beta invariant; ``beta``, shape (n,), is above 0 and of the type of the states if these
        are floats. It must not change its input. It may return ``(states, log_ratio)`` where the
        latter is known on the way, and then log_ratio is not called again.
    reverse_move : callable, optional
        The reversal of ``move`` in time, which RAISE needs.
    reversible : bool, default False
        Whether ``move`` is its own reversal: it satisfies detailed balance. A sweep through
        several blocks does not, although each of its steps does.
    log_reference : callable, optional
        ``log_reference(states)``, log p_1 in nats, shape (n,): by it the reference's normalization
        is checked.

    Raises
    ------
    ArgumentError
        One of the functions is none, or there are two reversals.

    Notes
    -----
    What the functions return is tried on a few states before each run: shapes, types, NaN, inputs
    that change, a ``log_ratio`` that mixes states, a reference that is not normalized.

    References
    ----------
    Carlson et al. (2016), Partition functions from Rao-Blackwellized tempered sampling, ICML;
    equations (2) and (3).

    Examples
    --------
    A path from N(0, 1) to the density exp(-x^2 / 2 - a x^2), whose integral relative to that of
    the reference is (1 + 2 a)^(-1/2).

    >>> a = 4.0
    >>> def draw(n, rng):
    ...     return rng.standard_normal((n, 1))
    >>> def log_ratio(x):
    ...     return -a * x[:, 0] ** 2
    >>> def move(x, beta, rng):
    ...     return rng.standard_normal(x.shape) / np.sqrt(1 + 2 * a * beta[:, None])
    >>> density = pmt.arrays.ArrayDensity(draw, log_ratio, move, reversible=True)
    >>> run = pmt.arrays.temper(density, 400, chains=50, random_seed=1)
    >>> evidence = run.evidence()
    >>> bool(abs(evidence.log_z - -0.5 * np.log(1 + 2 * a)) < 4 * evidence.mcse)
    True
    """

    reference_draw: Callable[[int, np.random.Generator], States]
    log_ratio: Callable[[States], np.ndarray]
    move: Move
    reverse_move: Move | None = None
    reversible: bool = False
    log_reference: Callable[[States], np.ndarray] | None = None

    def __post_init__(self) -> None:
        optional = ("reverse_move", "log_reference")
        for name in ("reference_draw", "log_ratio", "move", *optional):
            value = getattr(self, name)
            if not (callable(value) or (name in optional and value is None)):
                raise ArgumentError(f"{name} must be a function, not {type(value).__name__}.")
        if self.reversible and self.reverse_move is not None:
            raise ArgumentError(
                "reversible=True says that move is its own reversal, and reverse_move is given "
                "beside: give one of the two."
            )

    def reversal(self, what: str) -> Move:
        """Return the reversal of the move; ``what`` names who needs it, for the error."""
        if self.reversible:
            return self.move
        if self.reverse_move is None:
            raise KernelError(
                f"{what} runs moves backward in time, and this density has no reverse_move: give "
                "one, or reversible=True if move satisfies detailed balance (a sweep through "
                "several blocks does not)."
            )
        return self.reverse_move


def check_density(density: ArrayDensity, rng: np.random.Generator, *, down: bool = False) -> None:
    """Try a density on a few states, before any work starts.

    Parameters
    ----------
    density : ArrayDensity
    rng : numpy.random.Generator
    down : bool, default False
        Whether its reversal is needed, and tried as well.

    Raises
    ------
    KernelError
        A move returns another shape or type or NaN, changes its input, or does not know its
        log_ratio.
    LikelihoodError
        log_ratio is NaN or plus infinity, of another shape, or mixes states.
    ModelError
        The reference's draws are not n finite states, or its density is not normalized.
    """
    if not isinstance(density, ArrayDensity):
        raise ArgumentError(f"expected an ArrayDensity, not {type(density).__name__}.")
    states = _check_draws(density, rng)
    _check_log_ratio(density, states)
    moves = {"move": density.move}
    if down and not density.reversible:
        moves["reverse_move"] = density.reversal("This estimate")
    for name, move in moves.items():
        for beta in (0.05, 1.0):
            _check_move(name, move, beta, density, states, rng)
    if density.log_reference is not None:
        fault = normalization_fault(density.reference_draw, density.log_reference, rng)
        if fault:
            raise ModelError(fault)


def check_starts(
    states: object, density: ArrayDensity, rng: np.random.Generator
) -> tuple[States, np.ndarray]:
    """Return a user's states and their log_ratio; an error where they are none of the density."""
    probe, given = density.reference_draw(2, rng), np.asarray(states)
    if given.ndim == 0 or given.shape[1:] != probe.shape[1:]:
        raise ArgumentError(
            f"states have shape {given.shape}, and those of the reference have (n, "
            f"{', '.join(map(str, probe.shape[1:]))})."
        )
    given = given.astype(probe.dtype)
    ratio = checked_ratio(density.log_ratio(given), len(given), "the states given")
    if np.any(ratio == -np.inf):
        raise LikelihoodError(
            f"{np.mean(ratio == -np.inf):.1%} of the states given have density zero: they are no "
            "draws from this density."
        )
    return given, ratio


def checked_ratio(values: object, n: int, where: str) -> np.ndarray:
    """Return log_ratio (n,) as floats; an error for another shape, NaN and plus infinity."""
    array = np.asarray(values)
    if array.shape != (n,) or array.dtype.kind != "f":
        raise LikelihoodError(
            f"log_ratio must be {n} floats of shape ({n},) at {n} states, one number a state, and "
            f"is {array.dtype} of shape {array.shape} at {where}."
        )
    array = array.astype(np.float64)
    bad = np.flatnonzero(~(array < np.inf))
    if bad.size:
        raise LikelihoodError(
            f"log_ratio is {array[bad[0]]} at {where} (state {bad[0]} of {n}): it has to be a "
            "number, or minus infinity where the density is zero."
        )
    return array


def as_beta(beta: float | np.ndarray, states: States) -> np.ndarray:
    """Return inverse temperatures (n,) in the type of the states, if these are floats."""
    kind = states.dtype if states.dtype.kind == "f" else float
    return np.broadcast_to(beta, len(states)).astype(kind)


def move_states(
    density: ArrayDensity,
    move: Move,
    states: States,
    beta: float | np.ndarray,
    rng: np.random.Generator,
) -> tuple[States, np.ndarray]:
    """Move states at their inverse temperatures (n,); return them with their log_ratio (n,)."""
    found = move(states, as_beta(beta, states), rng)
    new, ratio = found if isinstance(found, tuple) else (found, density.log_ratio(found))
    return new, checked_ratio(ratio, len(states), "moved states")


def _check_draws(density: ArrayDensity, rng: np.random.Generator) -> States:
    first = density.reference_draw(N_PROBES, rng)
    if not isinstance(first, np.ndarray) or first.dtype.kind not in "biuf":
        raise ModelError(
            "reference_draw must return a NumPy array of numbers, not "
            f"{getattr(first, 'dtype', type(first).__name__)}."
        )
    if first.ndim < 1 or len(first) != N_PROBES:
        raise ModelError(
            f"reference_draw({N_PROBES}, rng) must return {N_PROBES} states along the first axis, "
            f"and returned shape {first.shape}."
        )
    if not np.isfinite(first).all():
        raise ModelError("reference_draw returned NaN or infinite numbers.")
    kept = first.copy()
    other = density.reference_draw(N_PROBES // 2, rng)
    if other.shape != (N_PROBES // 2, *first.shape[1:]) or other.dtype != first.dtype:
        raise ModelError(
            f"reference_draw gives {first.dtype} of shape {first.shape} for {N_PROBES} states and "
            f"{other.dtype} of shape {other.shape} for {N_PROBES // 2}."
        )
    if np.shares_memory(first, other) or not np.array_equal(kept, first):
        raise ModelError(
            "reference_draw returns the same memory twice: draws have to be fresh each time, in an "
            "array of their own."
        )
    return first


def _check_log_ratio(density: ArrayDensity, states: States) -> None:
    before = states.copy()
    ratio = checked_ratio(density.log_ratio(states), len(states), "draws of the reference")
    if not np.array_equal(before, states):
        raise LikelihoodError("log_ratio changes the states that it is given: work on a copy.")
    if not np.any(ratio > -np.inf):
        raise LikelihoodError(
            f"log_ratio is minus infinity at all of {len(states)} draws of the reference: the path "
            "cannot be entered. Use a reference nearer to the density."
        )
    turned = checked_ratio(density.log_ratio(states[::-1].copy()), len(states), "states turned")
    if not _near(turned[::-1], ratio, density.log_ratio(states)):
        raise LikelihoodError(
            "log_ratio of a state changes with the order of the states: it mixes chains; look for "
            "a sum or a product over the first axis."
        )


def _check_move(
    name: str,
    move: Move,
    beta: float,
    density: ArrayDensity,
    states: States,
    rng: np.random.Generator,
) -> None:
    alive = states[density.log_ratio(states) > -np.inf]
    before = alive.copy()
    found = move(alive, as_beta(beta, alive), rng)
    new = found[0] if isinstance(found, tuple) else found
    if not np.array_equal(before, alive) or np.shares_memory(new, alive):
        raise KernelError(f"{name} changes the states that it is given: return a new array.")
    shape, kind = getattr(new, "shape", None), getattr(new, "dtype", type(new).__name__)
    if shape != alive.shape or kind != alive.dtype:
        raise KernelError(
            f"{name} returns {kind} of shape {shape} for states of {alive.dtype} and shape "
            f"{alive.shape}: both have to stay."
        )
    if not np.isfinite(new).all():
        raise KernelError(f"{name} returns NaN or infinite numbers at beta = {beta:g}.")
    own = density.log_ratio(new)
    ratio = checked_ratio(own, len(alive), f"states that {name} returned")
    if isinstance(found, tuple):
        told = checked_ratio(found[1], len(alive), f"what {name} returned")
        if not _near(told, ratio, own):
            worst = int(np.nanargmax(np.abs(told - ratio)))
            raise KernelError(
                f"{name} returns log_ratio {told[worst]:.6g} for a state at which log_ratio is "
                f"{ratio[worst]:.6g}: it has to be that of the state that it returns."
            )


def _near(a: np.ndarray, b: np.ndarray, raw: np.ndarray) -> bool:
    """Whether two log ratios differ by rounding alone; ``raw`` has the type they came in."""
    size = RELATIVE[min(max(np.asarray(raw).dtype.itemsize, 2), 8)]
    alive = b > -np.inf
    scale = 1.0 + np.abs(b[alive]).max(initial=0.0)
    same = np.array_equal(alive, a > -np.inf)
    return same and bool(np.all(np.abs(a[alive] - b[alive]) <= size * scale))
