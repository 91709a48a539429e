"""Runs that are killed at random moments, and gone on with in another process: are they the same?

Each run is a process of its own, which is killed (SIGKILL) at a random moment, once its first
checkpoint is there ("after") or while it is not ("before"). Another process resumes it. The claims:
after the first checkpoint the draws, statistics and traces are, bit by bit, those of a run that
nothing ended and that had no checkpoint; before it, the error says that nothing was stored. A
second table has what a checkpoint costs, a third (`--memory`, which is measured alone) what a run
holds in memory, and how that grows with its draws.
"""

import hashlib
import multiprocessing
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

import pymc_tempering as pmt
from benchmarks.common import Row, parser, save
from benchmarks.private import finish_module as finish

GROUPS = ("posterior", "sample_stats", "tempering_trace")
EVERY = 0.05
"""Seconds between checkpoints."""

CASES: dict[str, dict[str, Any]] = {
    "prior, 8,000 draws": {"draws": 8_000, "reference": "prior"},
    "fitted, 8,000 draws": {"draws": 8_000, "reference": "auto"},
    "prior, target_mcse": {"draws": 500, "reference": "prior", "target_mcse": 0.009},
    "fitted, target_mcse": {"draws": 500, "reference": "auto", "target_mcse": 0.0035},
}
"""Arguments of `pmt.sample`; a target takes several rounds of doubling length."""


def make_model() -> pm.Model:
    """Mean and spread of three numbers."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        spread = pm.HalfNormal("spread", 1.0)
        pm.Normal("y", mu, spread, observed=[1.0, 2.5, 0.3])
    return model


def digest(idata: xr.DataTree) -> str:
    """Hash of all draws, statistics and traces."""
    total = hashlib.sha256()
    for group in GROUPS:
        data = idata[group].to_dataset()
        for name in sorted(map(str, data.data_vars)):
            total.update(f"{group} {name} {data[name].shape}".encode())
            total.update(np.ascontiguousarray(data[name].values).tobytes())
    return total.hexdigest()


def forked(work: Callable[..., Any], *args: Any) -> tuple[multiprocessing.Process, Connection]:
    """Start work in a process of its own, which has the compiled model from this one."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def run() -> None:
        try:
            there.send(work(*args))
        except pmt.exceptions.CheckpointError as error:
            there.send(f"error: {error}")

    process = context.Process(target=run)
    process.start()
    there.close()
    return process, here  # type: ignore[return-value]


def outcome(process: multiprocessing.Process, pipe: Connection) -> Any:
    """What a process sent, or None where it was killed first."""
    try:
        found = pipe.recv()
    except EOFError:
        found = None
    process.join()
    pipe.close()
    return found


def recorded(
    model: pm.Model, seed: int, path: Path | None, kwargs: dict[str, Any]
) -> tuple[str, float]:
    """Digest of a run, and its seconds."""
    begun = time.perf_counter()
    idata = pmt.sample(
        model=model, random_seed=seed, quiet=True, cores=2, checkpoint=path,
        checkpoint_every=EVERY, **kwargs,
    )  # fmt: skip
    return digest(idata), time.perf_counter() - begun


def resumed(model: pm.Model, path: Path) -> str:
    """Digest of a run that is gone on with."""
    return digest(pmt.resume(path, model=model, quiet=True, cores=1))


def has_head(path: Path) -> bool:
    """Whether a checkpoint is there."""
    return (path / "head-1.json").exists()


def first_checkpoint(process: multiprocessing.Process, path: Path) -> float:
    """Seconds until the first checkpoint; 0 where the process ended without."""
    begun = time.perf_counter()
    while process.is_alive() and not has_head(path):
        time.sleep(0.001)
    return time.perf_counter() - begun if has_head(path) else 0.0


def one_kill(
    model: pm.Model, seed: int, kwargs: dict[str, Any], rng: np.random.Generator,
    times: tuple[float, float], *, before: bool,
) -> tuple[str, int] | None:  # fmt: skip
    """Kill a run at a random moment and go on with it; None where it had ended by then.

    Returns
    -------
    str
        Digest of what it came to, or the error.
    int
        Checkpoints that had been written.
    """
    until_first, rest = times
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.zarr")
        process, pipe = forked(recorded, model, seed, path, kwargs)
        if before:
            time.sleep(rng.uniform(0.0, until_first))
        else:
            first_checkpoint(process, path)
            time.sleep(rng.uniform(0.0, rest))
        late = has_head(path) if before else not process.is_alive()
        process.kill()
        killed = outcome(process, pipe) is None
        # It may have come to its first checkpoint, or its end, just then.
        if late or not killed or (before and (has_head(path) or not path.exists())):
            return None
        states = [int(p.name.split("-")[0]) for p in path.glob("*-chains.npz")]
        return outcome(*forked(resumed, model, path)), max(states, default=0)


def measure(
    name: str, model: pm.Model, n: tuple[int, int], seed: int, rng: np.random.Generator
) -> tuple[Row, Row]:
    """Kill a case often, after its first checkpoint and before."""
    kwargs = CASES[name]
    whole, plain_seconds = outcome(*forked(recorded, model, seed, None, kwargs))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.zarr")
        begun = time.perf_counter()
        process, pipe = forked(recorded, model, seed, path, kwargs)
        until_first = first_checkpoint(process, path)
        with_checkpoint, seconds = outcome(process, pipe)
        rest = time.perf_counter() - begun - until_first
        parts = max(int(p.name.split("-")[0]) for p in path.glob("*-chains.npz"))
        size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    same, said, other, written = 0, 0, [], []
    while len(written) < n[0]:
        found = one_kill(model, seed, kwargs, rng, (until_first, rest), before=False)
        if found is not None:
            same += found[0] == whole
            written.append(found[1])
            other += [found[0]] * (found[0] != whole)
    tries = 0
    while tries < n[1]:
        found = one_kill(model, seed, kwargs, rng, (until_first, rest), before=True)
        if found is not None:
            tries += 1
            said += "nothing was stored" in found[0]
    for fault in other:
        print(name, fault[:300], flush=True)
    row: Row = {
        "run": name, "killed after": n[0], "identical": same, "killed before": n[1],
        "said": said, "with a checkpoint the same": "yes" if with_checkpoint == whole else "no",
    }  # fmt: skip
    cost: Row = {
        "run": name, "seconds": plain_seconds, "with checkpoints": seconds,
        "parts": parts, "bytes": size,
    }  # fmt: skip
    return row, cost


def peaks(model: pm.Model, draws: int, kwargs: dict[str, Any]) -> tuple[float, float, int, int]:
    """Peak bytes while the chains run, and of the whole call; iterations; bytes of the DataTree."""
    build, in_run = finish.build_datatree, []

    def building(*args: Any, **options: Any) -> xr.DataTree:
        in_run.append(tracemalloc.get_traced_memory()[1])
        return build(*args, **options)

    finish.build_datatree = building
    with tempfile.TemporaryDirectory() as folder:
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        idata = pmt.sample(
            draws, model=model, reference="prior", random_seed=1, quiet=True, cores=2,
            checkpoint=Path(folder, "run.zarr"), checkpoint_every=1.0, **kwargs,
        )  # fmt: skip
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    iterations = int(idata["sample_stats"]["tempering_steps"].sum())
    return in_run[0] - before, most - before, iterations, idata.nbytes


def memory(model: pm.Model, draws: int) -> list[Row]:
    """Peaks with so many draws a chain, and with four times as many."""
    rows: list[Row] = []
    for keep in ("log_ratio", None):
        kwargs = {"keep": keep, "compute_convergence_checks": False}
        found = [outcome(*forked(peaks, model, n, kwargs)) for n in (draws, 4 * draws)]
        for n, (in_run, most, iterations, size) in zip((draws, 4 * draws), found, strict=True):
            rows.append({
                "keep": str(keep), "draws": 4 * n, "iterations a draw": iterations / (4 * n),
                "MB, chains": in_run / 1e6, "MB, whole call": most / 1e6,
                "MB of the DataTree": size / 1e6,
            })  # fmt: skip
        growth = [(found[1][i] - found[0][i]) / (12 * draws) for i in (0, 1, 3)]
        rows.append({
            "keep": str(keep), "draws": "bytes a draw", "iterations a draw": "",
            "MB, chains": growth[0], "MB, whole call": growth[1], "MB of the DataTree": growth[2],
        })  # fmt: skip
    return rows


def main() -> None:
    arguments = parser(__doc__, 25)
    arguments.add_argument("--memory", type=int, default=0, help="draws a chain; nothing else runs")
    arguments.add_argument("--before", type=int, default=3, help="kills before, of each case")
    args = arguments.parse_args()
    warnings.simplefilter("ignore")
    model, rng = make_model(), np.random.default_rng(args.seed)
    for reference in ("prior", "auto"):  # compiled here, once for all processes
        pmt.sample(100, model=model, reference=reference, quiet=True, random_seed=args.seed)
    if args.memory:
        said = {
            "runs": "4 chains, a model of two parameters, from the prior, a checkpoint a second",
            "peaks": "of what Python and NumPy hold, by tracemalloc, above that before the call",
        }
        rows = memory(model, args.memory)
        save("restart_memory", rows, args.out, "What a run holds in memory", said)
        return
    settings = {
        "seeds": f"{args.seed}, of all runs and of the moments",
        "runs": f"4 chains, a model of two parameters, a checkpoint every {EVERY} s",
    }
    killed = {
        "killed": "by SIGKILL, at a uniform moment after or before the first checkpoint; runs that "
        "were over by then are not counted",
        "identical": "draws, statistics and traces, bit by bit, of a run without a checkpoint",
        "said": "the error says that nothing was stored",
    }
    parts = {"parts": "number of the last part that was written; about one each time"}
    rows, costs = [], []
    for name in CASES:
        row, cost = measure(name, model, (args.repeats, args.before), args.seed, rng)
        rows.append(row)
        costs.append(cost)
        save("restart", rows, args.out, "Killed runs, resumed", settings | killed)
        save("restart_cost", costs, args.out, "What checkpoints cost", settings | parts)


if __name__ == "__main__":
    main()
