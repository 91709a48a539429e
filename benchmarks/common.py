"""What the benchmarks share: models with exact evidence, runs after one compilation, tables."""

import argparse
import csv
import multiprocessing
import os
import platform
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from time import perf_counter, process_time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytensor
from pytensor.graph.replace import vectorize_graph

from benchmarks import private
from benchmarks.fresh_runs import RESULTS
from pymc_tempering import testsystems
from pymc_tempering.kernels import HMC
from pymc_tempering.testsystems import TestSystem

LEGS = ("prior_warmup", "fit", "looks", "scouts", "reference_draws", "run")
"""Parts of a run from a fitted reference, in their order; `work` of a run has those it had."""

PACKAGES = ("pymc-tempering", "pymc", "pytensor", "numba", "numpy")


def noisy_regression() -> TestSystem:
    """Regression with ten coefficients and unknown noise: 11 parameters, a cheap density."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 10))
    y = X @ rng.normal(size=10) + 0.7 * rng.normal(size=50)
    return testsystems.normal_inverse_gamma_regression(X, y, prior_scale=2.0)


MODELS: dict[str, Callable[[], TestSystem]] = {
    "gaussian": testsystems.gaussian,
    "regression": testsystems.conjugate_regression,
    "noisy_regression": noisy_regression,
    "binomial": testsystems.unidentifiable_binomial,
    "hierarchical": testsystems.hierarchical_normal,
    "schools": testsystems.eight_schools,
    "logistic": testsystems.logistic_regression,
    "mixture": testsystems.gaussian_mixture,
    "shells": testsystems.gaussian_shells,
    "twenty_modes": testsystems.twenty_modes,
    "gaussian100": testsystems.gaussian_posterior,
    **{
        f"intercepts{groups}{suffix}": partial(
            testsystems.varying_intercepts, groups, rows, centered=not suffix
        )
        for suffix in ("", "_raw")
        for groups, rows in ((3, 50), (5, 50), (20, 100))
    },
    "funnel": testsystems.funnel,
    "scale_mixture": testsystems.scale_mixture,
}
"""Models with an exact evidence, by the name that `--models` takes."""


@cache
def system(name: str) -> TestSystem:
    """Build a model of `MODELS` once a process."""
    return MODELS[name]()


@cache
def prior(name: str) -> private.Prior:
    """Compile a model of `MODELS` once a process."""
    return private.compile_model(system(name).model)


TAIL = 0.99
"""Probability below the tail in which a run's draws are counted."""


@cache
def tail_start(name: str) -> float:
    """Exact quantile `TAIL` of the posterior of a model's statistic; nan if it has none."""
    cdf = system(name).cdf(1.0)
    if cdf is None:
        return float("nan")
    lower, upper = -1.0, 1.0
    while cdf(lower) > TAIL:
        lower *= 2.0
    while cdf(upper) < TAIL:
        upper *= 2.0
    for _ in range(100):
        middle = 0.5 * (lower + upper)
        lower, upper = (middle, upper) if cdf(middle) < TAIL else (lower, middle)
    return 0.5 * (lower + upper)


@cache
def statistic_of(name: str) -> Callable[[np.ndarray], np.ndarray] | None:
    """Compile the statistic of a model as a function of unconstrained draws, shape (n, dim)."""
    statistic, model = system(name).statistic, system(name).model
    if statistic is None:
        return None
    layout = prior(name).path.layout
    batched = [v.type.clone(shape=(None, *v.type.shape))() for v in model.value_vars]
    by_name = {v.name: v for v in model.unobserved_value_vars}
    names = [rv.name for rv in model.free_RVs]
    graphs = vectorize_graph(
        [by_name[each] for each in names],
        replace=dict(zip(model.value_vars, batched, strict=True)),
    )
    constrain = pytensor.function(batched, graphs, mode="FAST_COMPILE")

    def of(x: np.ndarray) -> np.ndarray:
        pieces = [
            x[:, part].reshape(-1, *shape)
            for part, shape in zip(layout.slices, layout.shapes, strict=True)
        ]
        return statistic(dict(zip(names, constrain(*pieces), strict=True)))

    return of


@dataclass(frozen=True)
class Run:
    """What one run from warm-up to evidence said; log Z and mcse in nats.

    Attributes
    ----------
    fitted : bool
        Whether the answer comes from a fitted reference; if not, "auto" fell back on the prior.
    work : dict
        Density evaluations of each leg; those of the initial iterations are in none.
    seconds, cpu : float
        Wall seconds, and CPU seconds of the process.
    tail : float
        Share of the draws whose statistic is above its exact quantile `TAIL`; nan without one.
    details : dict
        Further numbers of the estimate.
    """

    seed: int
    method: str
    log_z: float
    mcse: float
    verdict: str
    n_tours: int
    ess: float
    fitted: bool
    work: dict[str, int]
    warnings: tuple[str, ...]
    seconds: float
    cpu: float
    tail: float
    details: dict[str, float]

    @property
    def prior_work(self) -> float:
        """Share of the evaluations that was not the main run's."""
        return 1.0 - self.work["run"] / sum(self.work.values())


def run_tempering(
    name: str,
    seed: int,
    draws: int | None,
    chains: int,
    reference: str,
    cores: int = 1,
    target_mcse: float | None = None,
) -> private.Outcome:
    """Do what `pmt.sample(draws, chains=chains, random_seed=seed)` does once it has compiled."""
    options = private.Options(reference=reference)
    rng = np.random.default_rng(seed)
    compiled = prior(name)
    kernel = private.on_all(HMC(), compiled.path.dim)
    job = private.Job(compiled, kernel, options, rng, cores)
    chosen = private.choose_plan(job)
    no_progress: Any = nullcontext(SimpleNamespace(update=lambda: None))
    first, goal = private.goal_of(draws, target_mcse=target_mcse)
    call = private.Call(first, chains=chains, goal=goal)
    return private.run_rounds(job, call, chosen, lambda *_: no_progress)


def run_and_keep(
    name: str,
    seed: int,
    draws: int | None = None,
    chains: int = 4,
    reference: str = "auto",
    target_mcse: float | None = None,
) -> tuple[Run, private.Outcome]:
    """Run from warm-up to evidence on one core; also what it was made of."""
    prior(name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        started = perf_counter(), process_time()
        outcome = run_tempering(name, seed, draws, chains, reference, target_mcse=target_mcse)
        evidence = private.estimate(outcome.chosen, outcome.runs, outcome.reference)
        seconds, cpu = perf_counter() - started[0], process_time() - started[1]
    said = [str(w.message) for w in caught] + [run.stuck for run in outcome.runs if run.stuck]
    statistic = statistic_of(name)
    tail = float("nan")
    if statistic is not None:
        x = np.concatenate([run.record.x[: run.state.n_draws] for run in outcome.runs])
        tail = float(np.mean(statistic(x) > tail_start(name)))
    own = sum(
        run.record.scalars[: run.state.n_draws, private.N_STEPS].sum() for run in outcome.runs
    )
    run = Run(
        seed, evidence.method, evidence.log_z, evidence.mcse, evidence.verdict,
        evidence.n_tours, evidence.ess,
        outcome.chosen.fitted is not None, outcome.work | {"run": int(own)},
        (*said, *evidence.warnings), seconds, cpu, tail, evidence.details,
    )  # fmt: skip
    return run, outcome


def run_once(name: str, seed: int, **settings: Any) -> Run:
    """Run from warm-up to evidence on one core, as `run_and_keep` does."""
    return run_and_keep(name, seed, **settings)[0]


def check_same_as_sample(name: str, seed: int, reference: str) -> None:
    """Assure that `run_once` gives the very numbers of `pmt.sample` and its evidence.

    Raises
    ------
    RuntimeError
        The benchmarks would measure something that users do not get.
    """
    import pymc_tempering as pmt

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        idata = pmt.sample(
            100, model=system(name).model, random_seed=seed, reference=reference, cores=1,
            quiet=True, progressbar=False,
        )  # fmt: skip
        theirs = pmt.log_marginal_likelihood(idata)
    ours = run_once(name, seed, draws=100, reference=reference)
    if (ours.log_z, ours.mcse) != (theirs.log_z, theirs.mcse):
        raise RuntimeError(f"{name}: {ours} is not what pmt.sample gives: {theirs!r}")


def _chunk(name: str, seeds: Sequence[int], settings: dict[str, Any]) -> list[Run]:
    return [run_once(name, seed, **settings) for seed in seeds]


def worker_pool(workers: int) -> ProcessPoolExecutor:
    """Fresh processes of one thread each."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


def run_many(
    pool: ProcessPoolExecutor, name: str, seeds: Sequence[int], **settings: Any
) -> Iterator[Run]:
    """Run a model once for each seed on the workers of a pool, in any order."""
    n_chunks = max(1, min(len(seeds), 20))
    chunks = [list(seeds[i::n_chunks]) for i in range(n_chunks)]
    futures = [pool.submit(_chunk, name, chunk, settings) for chunk in chunks]
    for future in as_completed(futures):
        yield from future.result()


def machine() -> dict[str, str]:
    """Machine and versions, for the head of every table."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines()
                 if line.startswith("model name")]  # fmt: skip
        model = names[0] if names else model
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return {
        "machine": f"{model}, {os.cpu_count()} cores, {platform.system()}",
        "versions": f"Python {platform.python_version()}, {versions}",
    }


type Row = dict[str, str | int | float]


def read_table(path: Path) -> list[dict[str, str]]:
    """Read a results file in CSV, its lines of settings left out."""
    with path.open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def earlier_rows(path: Path, column: str, without: Sequence[str]) -> list[Row]:
    """Read the rows of an earlier table in CSV, less those with some values in a column."""
    rows = [row for row in read_table(path) if row[column] not in without]
    return [{name: _number(text) for name, text in row.items()} for row in rows]


def _number(text: str) -> str | int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _cell(value: str | int | float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def markdown(rows: Sequence[Row]) -> str:
    """Format rows of the same columns as a Markdown table."""
    names = list(rows[0])
    lines = [names, *([_cell(row[name]) for name in names] for row in rows)]
    cells = [[text.replace("|", r"\|") for text in line] for line in lines]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    padded = [
        [text.ljust(width) for text, width in zip(line, widths, strict=True)] for line in cells
    ]
    lines = [f"| {' | '.join(line)} |" for line in padded]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]])


def save(name: str, rows: Sequence[Row], out: Path, title: str, settings: dict[str, str]) -> None:
    """Print a table and write it to `out` as Markdown and CSV, with machine, versions, settings."""
    head = {key: " ".join(str(text).split()) for key, text in (machine() | settings).items()}
    table = markdown(rows)
    print(f"\n{table}\n", flush=True)
    out.mkdir(parents=True, exist_ok=True)
    lines = [f"# {title}", "", table, "", *(f"- {key}: {value}" for key, value in head.items())]
    (out / f"{name}.md").write_text("\n".join(lines) + "\n")
    with (out / f"{name}.csv").open("w", newline="") as file:
        file.writelines(f"# {key}: {value}\n" for key, value in head.items())
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def parser(
    purpose: str | None, repeats: int, models: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """Command line that the benchmarks have in common; `models` are the default ones."""
    result = argparse.ArgumentParser(description=purpose)
    result.add_argument("--repeats", type=int, default=repeats)
    if models:
        result.add_argument("--models", nargs="+", choices=list(MODELS), default=list(models))
    result.add_argument("--reference", choices=private.REFERENCES, default="auto")
    result.add_argument("--seed", type=int, default=1, help="first of the consecutive seeds")
    result.add_argument("--out", type=Path, default=RESULTS, help="folder of the tables")
    return result
