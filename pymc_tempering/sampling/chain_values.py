"""Chains as plain values: where each stands with its generators, and the rows it has written."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_tempering.chain.chains import ChainRun, HotStates
from pymc_tempering.chain.plan import Plan
from pymc_tempering.chain.record import N_DRAWS, N_TRACE, Chain
from pymc_tempering.chain.state import ChainState, new_record
from pymc_tempering.core.cycles import RUNG_STATS
from pymc_tempering.model.compiled import Point
from pymc_tempering.storage.plain_values import Codec

type Arrays = dict[str, np.ndarray]

POINT, CYCLE = ("x", "values", "grads"), ("counters", "per_rung", "scalars", "accept")
"""Arrays of a chain's point, and of the cycle that it is in."""

ROWS = ("x", "per_rung", "scalars")
"""Arrays of a record that have a row for each draw."""

TRACE, HOT = ("log_ratio", "rung", "states"), ("iteration", "probability", "hot_x")
"""Arrays of the flat trace, and of the states kept beside it, by iteration."""

GENERATORS = Codec()


def stored_chains(runs: Sequence[ChainRun]) -> tuple[dict[str, Any], Arrays]:
    """Where chains stand: JSON with their generators, and arrays (chain, ...)."""
    chains = [run.state.chain for run in runs]
    arrays = {
        **{name: np.array([getattr(c.point, name) for c in chains]) for name in POINT},
        **{name: np.array([getattr(c, name) for c in chains]) for name in CYCLE},
        "references": np.concatenate([run.state.references for run in runs]),
    }
    arrays["counters"][:, N_TRACE] = 0  # a place in the buffer of a chunk, where none is open now
    each = [
        {
            "generator": run.state.rng,
            "reference_generators": list(run.state.reference_rngs),
            "n_references": len(run.state.references),
            "n_draws_ever": run.state.n_draws_ever,
            "stuck": run.stuck,
            "hot": None if run.hot is None else {"rng": run.hot.rng, "n_seen": run.hot.n_seen},
        }
        for run in runs
    ]
    plain, _ = GENERATORS.to_plain(each)
    return plain, arrays


def restored_chains(plan: Plan, plain: Any, arrays: Arrays, keep_trace: bool) -> list[ChainRun]:
    """Chains that stand where those of `stored_chains` stood, with records of no rows."""
    n_rungs, dim = plan.ladder.n_rungs, plan.reference.path.dim
    each = GENERATORS.from_plain(plain, {})
    ends = np.cumsum([one["n_references"] for one in each])
    runs = []
    for i, (one, end) in enumerate(zip(each, ends, strict=True)):
        x, values, grads = (arrays[name][i].copy() for name in POINT)
        point = Point(x, values, grads, plan.reference.mixture.copy())
        chain = Chain(point, *(arrays[name][i].copy() for name in CYCLE))
        references = np.ascontiguousarray(arrays["references"][end - one["n_references"] : end])
        state = ChainState(
            chain, references, one["generator"], one["reference_generators"], one["n_draws_ever"]
        )
        run = ChainRun(state, new_record(0, n_rungs, dim), keep_trace, stuck=one["stuck"])
        if one["hot"] is not None:
            run.hot = HotStates(one["hot"]["rng"], n_seen=one["hot"]["n_seen"])
        runs.append(run)
    return runs


def written_so_far(runs: Sequence[ChainRun]) -> list[list[int]]:
    """Draws, pieces of the trace and pieces of kept states of each chain."""
    return [[r.state.n_draws, len(r.trace), len(r.hot.parts) if r.hot else 0] for r in runs]


def stored_rows(runs: Sequence[ChainRun], since: Sequence[Sequence[int]]) -> tuple[Any, Arrays]:
    """Rows that chains have written since `written_so_far`: JSON with counts, and arrays."""
    dim, n_rungs = runs[0].record.x.shape[1], runs[0].record.per_rung.shape[2]
    parts: dict[str, list[np.ndarray]] = {name: [] for name in (*ROWS, *TRACE, *HOT)}
    counts: dict[str, list[int]] = {"draws": [], "trace": [], "states": [], "hot": []}
    for run, (draw, piece, hot) in zip(runs, since, strict=True):
        for name in ROWS:
            parts[name].append(getattr(run.record, name)[draw : run.state.n_draws])
        counts["draws"].append(run.state.n_draws - draw)
        for name, column in zip(TRACE, zip(*run.trace[piece:], strict=True), strict=False):
            parts[name] += column
        for name, column in zip(HOT, zip(*_hot(run)[hot:], strict=True), strict=False):
            parts[name] += column
        counts["trace"].append(sum(len(one[0]) for one in run.trace[piece:]))
        counts["states"].append(sum(len(one[2]) for one in run.trace[piece:]))
        counts["hot"].append(sum(len(one[0]) for one in _hot(run)[hot:]))
    empty = {
        "x": np.empty((0, dim)), "per_rung": np.empty((0, len(RUNG_STATS), n_rungs)),
        "scalars": runs[0].record.scalars[:0], "log_ratio": np.empty(0),
        "rung": np.empty(0, dtype=np.int32), "states": np.empty((0, dim)),
        "iteration": np.empty(0, dtype=np.int64), "probability": np.empty(0),
        "hot_x": np.empty((0, dim)),
    }  # fmt: skip
    arrays = {name: np.concatenate([empty[name], *parts[name]]) for name in parts}
    return counts, {name: values for name, values in arrays.items() if len(values)}


def add_rows(runs: Sequence[ChainRun], total: int, stored: Sequence[tuple[Any, Arrays]]) -> None:
    """Give restored chains the rows of `stored_rows`, in order, and space for `total` draws."""
    for i, run in enumerate(runs):
        _, _, n_rungs = run.record.per_rung.shape
        record, done = new_record(total, n_rungs, run.record.x.shape[1]), 0
        for counts, arrays in stored:
            n, at = _place(counts["draws"], i)
            for name in ROWS if n else ():
                getattr(record, name)[done : done + n] = arrays[name][at]
            done += n
            if counts["trace"][i]:
                run.trace.append(_piece(counts, arrays, i, run.record.x.shape[1]))
            if run.hot is not None and counts["hot"][i]:
                _, at = _place(counts["hot"], i)
                iteration, probability, x = (arrays[name][at] for name in HOT)
                run.hot.parts.append((iteration, probability, x))
        if done != run.state.n_draws:
            raise ValueError(f"Chain {i} has {run.state.n_draws} draws, and {done} are stored.")
        run.record = record


def at_the_start(runs: Sequence[ChainRun], n_draws: Sequence[int]) -> None:
    """Let chains count their draws anew, from so many that their records begin with."""
    for run, n in zip(runs, n_draws, strict=True):
        run.state.chain.counters[N_DRAWS] = n
        run.state.chain.counters[N_TRACE] = 0


def _piece(
    counts: Any, arrays: Arrays, i: int, dim: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Piece of the trace of one chain."""
    _, at = _place(counts["trace"], i)
    n, where = _place(counts["states"], i)
    states = arrays["states"][where] if n else np.empty((0, dim))
    return arrays["log_ratio"][at], arrays["rung"][at], states


def _hot(run: ChainRun) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    return [] if run.hot is None else run.hot.parts


def _place(counts: Sequence[int], i: int) -> tuple[int, slice]:
    """Rows of chain i among those of all chains, one behind the other."""
    begin = sum(counts[:i])
    return counts[i], slice(begin, begin + counts[i])
