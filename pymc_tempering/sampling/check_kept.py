"""Whether a plan and chains that were read fit each other and the compiled model.

Compiled loops check no index, and a file may have been edited since it was written. So all that a
loop takes from it as an index or a size is compared here, before any loop runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pymc_tempering.chain.chains import ChainRun, ChainState
from pymc_tempering.chain.loop import (
    AWAITS_TOUR,
    DIRECTION,
    LADDER_MOVES,
    LOWEST,
    N_COUNTERS,
    N_DRAWS,
    N_ITERATIONS,
    N_TRACE,
    REF_USED,
    RUNG,
    SCALAR_STATS,
    Chain,
    Record,
)
from pymc_tempering.chain.plan import Plan, Tuning
from pymc_tempering.core.cycles import RUNG_STATS
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.kernels import Compound
from pymc_tempering.model.compiled import Mixing, Point
from pymc_tempering.references.mixture import FullScales, LowRankScales, Mixture
from pymc_tempering.references.prior import Prior
from pymc_tempering.references.warp import FunnelWarp
from pymc_tempering.sampling.choose_plan import ChosenPlan
from pymc_tempering.sampling.evaluated import Evaluated
from pymc_tempering.sampling.regions import Peak
from pymc_tempering.storage.plain_values import field_names
from pymc_tempering.warmup.annealed_pass import AnnealedPass

SHAPES: Mapping[type, Mapping[str, str]] = {
    Ladder: dict.fromkeys(("betas", "log_z", "log_weights"), "K"),
    Tuning: {"betas": "T", "step_sizes": "TB", "scales": "Td", "lengths": "TB"},
    AnnealedPass: {"betas": "S", "log_z": "S", "states": "znd"},
    Evaluated: {"xs": "nd", "log_prior": "n", "log_likelihood": "n"},
    Peak: {"mean": "d", "cholesky": "dd"},
    Mixture: {"weights": "J", "means": "Jt", "dofs": "J"},
    FullScales: {"cholesky": "Jtt"},
    LowRankScales: {"sds": "Jt", "loadings": "Jtr"},
    FunnelWarp: dict.fromkeys(field_names(FunnelWarp), "W")
    | {"regressors": "WR", "prior_mean": "Wm", "likelihood_mean": "Wm"},
    ChainState: {"references": "Fd"},
    Chain: {"counters": "I", "per_rung": "PK", "scalars": "C", "accept": "BK"},
    Point: {"x": "d", "values": "2", "grads": "2d"},
    Record: {"x": "Nd", "per_rung": "NPK", "scalars": "NC"},
}
"""Arrays of what is read, and a letter for each of their sizes. A letter is one number within a
value and in what it holds."""

NAMED = {
    "d": "coordinates", "B": "kernels", "K": "rungs", "P": "statistics of a rung",
    "C": "statistics of a cycle", "I": "counters",
}  # fmt: skip
"""Letters that stand for known numbers."""

EXACT = (Ladder, Chain, Point, ChainState)
"""Loops take the arrays of these as they are: of whole numbers, or of doubles, in order."""

COMPILED = (Prior, Compound, Mixing)
"""These come from the compiled model, and not from a file."""

INDICES = ("counters", "index", "scale", "regressors")
"""Arrays of whole numbers."""


def check_plan(chosen: ChosenPlan, kernel: Compound, dim: int) -> None:
    """Raise a ValueError unless a plan is one of these kernels and so many coordinates.

    The message names what does not fit.
    """
    for place, value, sizes in _inside(chosen, {"d": dim, "B": kernel.n_blocks}, "plan"):
        match value:
            case Plan():
                _check_ladder(value, place)
            case Tuning():
                _check_covariances(value, kernel, place)
            case AnnealedPass():
                rows = value.tuning.betas.size
                _must(rows == value.betas.size or not value.states.size, f"{place}.tuning")
            case Mixture():
                n, last = len(value.weights), value.stretched
                fits = 0 <= last < n - value.hull or last == value.hull == 0
                _must(n > 0 and fits, f"{place}.stretched")
                _must(value.dim + value.n_white == dim, f"{place}.n_white")
            case FunnelWarp():
                for name in ("index", "scale", "regressors"):
                    _check_range(getattr(value, name), 0, sizes["t"] - 1, f"{place}.{name}")
                _must(sizes["m"] == sizes["R"] + 1, f"{place}.regressors")


def check_pieces(plan: Plan, pieces: Sequence[ChainRun]) -> None:
    """Raise a ValueError unless pieces of a chain are some of a chain of this plan."""
    n_rungs, top = plan.ladder.n_rungs, plan.ladder.n_rungs - 1
    known = {
        "d": plan.reference.path.dim, "B": plan.kernel.n_blocks, "K": n_rungs,
        "P": len(RUNG_STATS), "C": len(SCALAR_STATS), "I": N_COUNTERS,
    }  # fmt: skip
    n_streams = len(plan.reference.spawn(np.random.default_rng(0)))
    for piece in pieces:
        for _ in _inside(piece, known, "chain"):
            pass
        state, record = piece.state, piece.record
        counters, n_references = state.chain.counters, len(state.references)
        for name, at, least, most in (
            ("rung", RUNG, 0, top),
            ("direction", DIRECTION, -1, 1),
            ("tour", AWAITS_TOUR, 0, 1),
            ("reference draws used", REF_USED, 0, n_references),
            ("draws", N_DRAWS, 0, len(record.x)),
            ("iterations in the trace", N_TRACE, 0, 0),
            ("iterations", N_ITERATIONS, 0, np.iinfo(np.int64).max),
        ):
            _check_range(counters[at], least, most, f"chain.state.chain.counters ({name})")
        for scalars in (state.chain.scalars, record.scalars):
            _check_range(scalars[..., LOWEST], 0, top, "chain.scalars (lowest rung)")
        for _, rung, x in piece.trace:
            _check_range(rung, 0, top, "chain.trace (rung)")
            _must(x.shape[1:] == (known["d"],), "chain.trace (states)")
        for _, _, x in piece.hot.parts if piece.hot else ():
            _must(x.shape[1:] == (known["d"],), "chain.hot (states)")
        generators = [state.rng, *state.reference_rngs]
        fits = all(isinstance(each, np.random.Generator) for each in generators)
        _must(fits and len(generators) == 1 + n_streams, "chain.state.reference_rngs")


def _inside(
    value: Any, sizes: Mapping[str, int], place: str
) -> Iterator[tuple[str, Any, dict[str, int]]]:
    """Check the shapes of a value and of all that it holds, and yield each, what it holds first.

    Each comes with its place, and with the sizes of its arrays.
    """
    if type(value) in (list, tuple):
        for i, item in enumerate(value):
            yield from _inside(item, sizes, f"{place}.{i}")
        return
    if not type(value).__module__.startswith("pymc_tempering.") or isinstance(value, COMPILED):
        return
    own, shapes = dict(sizes), SHAPES.get(type(value), {})
    for name, letters in shapes.items():
        array = getattr(value, name)
        exact = type(value) in EXACT
        if not _has_shape(array, letters, own) or not _has_kind(array, name in INDICES, exact):
            words = ", ".join(f"{NAMED[s]}: {own[s]}" for s in letters if s in NAMED and s in own)
            found = getattr(array, "shape", type(array).__name__)
            raise ValueError(
                f"{place}.{name} has another form than its run needs ({found}"
                f"{f'; {words}' if words else ''})."
            )
    for name in field_names(type(value)):
        if name not in shapes:
            yield from _inside(getattr(value, name), own, f"{place}.{name}")
    yield place, value, own


def _has_shape(array: Any, letters: str, sizes: dict[str, int]) -> bool:
    """Whether an array has the shape; letters without a number get that of the array."""
    if not isinstance(array, np.ndarray) or array.ndim != len(letters):
        return False
    wanted = [
        int(letter) if letter.isdigit() else sizes.setdefault(letter, n)
        for letter, n in zip(letters, array.shape, strict=True)
    ]
    return list(array.shape) == wanted


def _has_kind(array: np.ndarray, whole: bool, exact: bool) -> bool:
    """Whether an array has numbers of the kind that is needed."""
    if exact:
        dtype = np.dtype(np.int64 if whole else np.float64)
        return array.dtype == dtype and array.flags.c_contiguous
    return array.dtype.kind in ("iu" if whole else "biuf")


def _check_ladder(plan: Plan, place: str) -> None:
    """Compare a ladder, which must be one, with the rows of the tuning and the way of moving."""
    ladder, rows = plan.ladder, plan.tuning.betas.size
    Ladder(ladder.betas, ladder.log_z, ladder.log_weights)
    _must(rows == ladder.n_rungs, f"{place}.tuning")
    _must(plan.ladder_move in LADDER_MOVES, f"{place}.ladder_move")


def _check_covariances(tuning: Tuning, kernel: Compound, place: str) -> None:
    """Compare covariances with the blocks of the kernels."""
    rows, covs = tuning.betas.size, tuning.covs
    _must(len(covs) == kernel.n_blocks, f"{place}.covs")
    for cov, block in zip(covs, kernel.blocks, strict=True):
        fits = cov is None or cov.shape == (rows, block.size, block.size)
        _must(fits, f"{place}.covs")


def _check_range(values: Any, least: int, most: int, what: str) -> None:
    """Raise a ValueError unless all numbers lie between two others."""
    outside = ~((values >= least) & (values <= most))  # NaN too
    if np.any(outside):
        found = np.asarray(values)[outside].flat[0]
        raise ValueError(f"{what} is {found}, and has to be from {least} to {most}.")


def _must(fits: bool, what: str) -> None:
    if not fits:
        raise ValueError(f"{what} does not fit the rest of its run.")
