"""Two modes of unequal widths: is the narrow one found?

The prior is Normal(m, 5^2 I), and the likelihood a mixture of two Gaussians whose centers lie
symmetrically about m on an oblique line: a broad one of sd 1, and a narrow one that is `ratio`
times narrower and holds `share` of the evidence. A method that misses the needle states the
evidence of the rest, too low by -log(1 - share), and nothing that it has seen can tell. In three
rows the centers have stated places: on a diagonal of a box with a uniform prior, or on an axis.

Every run is written to a file beside the table as soon as it is there, and the table after each
row. A benchmark that was cut short goes on where it was; `--restart` forgets what there is.
"""

import logging
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pytensor
from scipy.special import logit, ndtri
from threadpoolctl import threadpool_limits

from benchmarks.common import MODELS, Row, parser, run_and_keep, run_once, save, system
from benchmarks.compare.peers import Stopwatch, seeds_of, smc_and_draws
from benchmarks.fresh_runs import RunsFile
from benchmarks.models.needles_placed import Placed
from benchmarks.private import (
    Outcome,
    compile_constrain,
    model_layout,
    search_module as search,
    send_scouts,
)
from pymc_tempering import testsystems
from pymc_tempering.testsystems import TestSystem

FAR = 4.0
"""Stated errors that a run may be off by."""
LONGEST = 120.0
"""CPU seconds after which a run of dynesty is given up."""


@dataclass(frozen=True)
class Needle:
    """A row: dimensions, distance of the modes, ratio of their sds, the narrow one's share."""

    dim: int
    apart: float
    ratio: float
    share: float = 0.5
    prior: ClassVar[str] = "normal"

    @property
    def scales(self) -> np.ndarray:
        """Standard deviations of the two likelihoods, the broad one first."""
        return np.array([1.0, 1.0 / self.ratio])

    def build(self) -> TestSystem:
        """Build the model, with its exact evidence."""
        return testsystems.gaussian_mixture(
            self.dim,
            weights=(1.0 - self.share, self.share),
            scale=tuple(self.scales),
            positions=(-0.5 * self.apart, 0.5 * self.apart),
        )


ROWS: dict[str, Needle | Placed] = {
    "2d_3": Needle(2, 10.0, 3.0),
    "2d_10": Needle(2, 10.0, 10.0),
    "2d_30": Needle(2, 10.0, 30.0),
    "2d_100": Needle(2, 10.0, 100.0),
    "3d_10": Needle(3, 10.0, 10.0),
    "5d_5": Needle(5, 10.0, 5.0),
    "10d_3": Needle(10, 8.0, 3.0),
    "2d_30_share10": Needle(2, 10.0, 30.0, 0.1),
    "2d_30_share90": Needle(2, 10.0, 30.0, 0.9),
    "3d_30": Needle(3, 10.0, 30.0),
    "4d_16_box": Placed((-2.0,) * 4, (2.0,) * 4, (0.8, 0.05), half_width=5.0),
    "8d_4_box": Placed((-2.0,) * 8, (2.0,) * 8, (0.8, 0.2), half_width=5.0),
    "20d_2": Needle(20, 8.0, 2.0),
    "50d_1.2": Needle(50, 8.0, 1.2),
    "50d_1.5": Needle(50, 8.0, 1.5),
    "100d_1.2": Needle(100, 8.0, 1.2),
    "5d_5_axis": Placed((4.0, *(0.0,) * 4), (-4.0, *(0.0,) * 4), (1.0, 0.2), share=0.4),
}
MODELS.update({name: needle.build for name, needle in ROWS.items()})

NOTES = {
    "prior": "normal with sd 5; or uniform on [-5, 5] in each coordinate, and the likelihood a "
    "mixture of normals truncated to it, with sds .8 and .8 / ratio",
    "tempering": "pmt.sample() and pmt.log_marginal_likelihood() by default: 4 chains",
    "smc": "pm.sample_smc(chains=4) by default: 2000 draws; log of the mean over chains of Z; the "
    "stated error is that of this mean from the scatter of the four",
    "found": "runs with more than a quarter of the needle's share among their draws (weighted, for "
    "dynesty); a draw is the needle's if that is nearer in sds than the broad mode",
    "near": "runs of tempering of which a state lay within sqrt(dim) sds of the needle: draws of "
    "the fit and the run, ends of the looks of the last round, scouts that ended outside of the "
    "known regions, and particles of both annealed passes",
    "bias, RMSE, stated": "nats; `stated` is the mean of the finite stated errors",
    "cpu, wall": "seconds on one core, median, compiling not counted",
    "late": f"runs of dynesty that were given up after {LONGEST:.0f} CPU seconds: found nothing",
    "warned": "any warning, or a verdict of tempering that is not ok",
    "off": f"runs off by more than {FAR:.0f} stated errors without a warning",
}


@dataclass(frozen=True)
class Search:
    """What one run of a method said and found.

    Attributes
    ----------
    log_z, error : float
        The answer and its stated error, nats.
    share : float
        The needle's, among the draws.
    near : bool, optional
        Whether a state lay near the needle, where that is known.
    """

    log_z: float
    error: float
    cpu: float
    wall: float
    warned: bool
    share: float
    near: bool | None = None


type Searches = dict[tuple[str, str, int], Search]


def constrained(name: str, x: np.ndarray) -> np.ndarray:
    """Points of a row's variable, shape (n, d), from those of its unconstrained value."""
    model = system(name).model
    return compile_constrain(model, model_layout(model))(x)["x"]


def distances(name: str, x: np.ndarray) -> np.ndarray:
    """Distances of points (..., d) from the broad and the narrow mode (..., 2), in their sds."""
    centers = np.asarray(system(name).mode_centers)
    return np.linalg.norm(x[..., None, :] - centers, axis=-1) / ROWS[name].scales


def share_of_needle(name: str, draws: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Share of draws (n, d) that are the needle's."""
    broad, narrow = distances(name, draws).T
    return float(np.average(narrow < broad, weights=weights))


def states_seen(outcome: Outcome) -> Iterator[np.ndarray]:
    """States (n, d), unconstrained, that a call of `pmt.sample` has kept, but those of scouts."""
    chosen = outcome.chosen
    yield chosen.warmup.annealed.particles
    if chosen.fit is not None:
        yield chosen.fit.draws.xs
    if chosen.last is not None:
        yield chosen.last.looks.ends.xs
    if chosen.passes is not None:
        yield chosen.passes.particles
    yield from (run.record.x[: run.state.n_draws] for run in outcome.runs)


def tempering(name: str, seed: int) -> Search:
    """Run tempering by default."""
    scouts: list[np.ndarray] = []

    def sending(*args: Any) -> Any:
        ends = send_scouts(*args)
        scouts.append(ends.xs)
        return ends

    with patch.object(search, "send_scouts", sending):
        run, outcome = run_and_keep(name, seed)
    draws = np.concatenate([each.record.x[: each.state.n_draws] for each in outcome.runs])
    draws = constrained(name, draws)
    seen = constrained(name, np.concatenate([*scouts, *states_seen(outcome)]))
    near = bool((distances(name, seen)[:, 1] < np.sqrt(ROWS[name].dim)).any())
    warned = bool(run.warnings) or run.verdict != "ok"
    share = share_of_needle(name, draws)
    return Search(run.log_z, run.mcse, run.cpu, run.seconds, warned, share, near)


def smc(name: str, seed: int) -> Search:
    """Run `pm.sample_smc` with four chains."""
    answer, idata = smc_and_draws(name, seed)
    draws = idata["posterior"]["x"].values.reshape(-1, ROWS[name].dim)
    return Search(
        answer.log_z, answer.error, answer.cpu, answer.wall, answer.warned,
        share_of_needle(name, draws),
    )  # fmt: skip


FROM_CUBE: dict[str, Callable[..., np.ndarray]] = {
    "normal": lambda u, mean, sd: mean + sd * ndtri(u),
    "uniform": lambda u, lower, upper: logit(u),  # of the place between the bounds
}
"""Prior transforms of nested sampling, to the unconstrained value, by the law of the prior."""


@cache
def _likelihood_and_prior(
    name: str,
) -> tuple[Callable[[np.ndarray], Any], Callable[[np.ndarray], np.ndarray]]:
    """Compiled log likelihood of a row's unconstrained value, and the transform to it."""
    model = system(name).model
    x = model["x"]
    likelihood = pytensor.function([model.rvs_to_values[x]], model.datalogp, trust_input=True)
    first, second = (each.eval() for each in x.owner.op.dist_params(x.owner))
    transform = FROM_CUBE[ROWS[name].prior]
    return likelihood, lambda u: transform(u, first, second)


class TooLate(Exception):
    """A run has used up its CPU seconds."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `TooLate` when so many CPU seconds have passed, wherever the main thread is."""

    def stop(*_: Any) -> None:
        raise TooLate

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def nested(name: str, seed: int) -> Search:
    """Run dynesty's nested sampling by default, with PyMC's compiled likelihood."""
    import dynesty

    likelihood, from_cube = _likelihood_and_prior(name)
    watch = Stopwatch()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sampler = dynesty.NestedSampler(
            lambda x: float(likelihood(x)), from_cube, ROWS[name].dim,
            rstate=np.random.default_rng(seed),
        )  # fmt: skip
        try:
            with at_most(LONGEST):
                sampler.run_nested(print_progress=False)
        except TooLate:
            return Search(np.nan, np.inf, *watch.read(), True, 0.0)
        results = sampler.results
    cpu, wall = watch.read()
    draws = constrained(name, results.samples)
    share = share_of_needle(name, draws, results.importance_weights())
    log_z, error = float(results.logz[-1]), float(results.logzerr[-1])
    return Search(log_z, error, cpu, wall, bool(caught), share)


METHODS: dict[str, Callable[[str, int], Search]] = {
    "tempering": tempering,
    "smc": smc,
    "dynesty": nested,
}
"""Every method by name: (row, seed) to a `Search`."""

COMPILE: dict[str, Callable[[str, int], Any]] = {
    "tempering": lambda name, seed: run_once(name, seed, draws=50),
    "smc": smc,
    "dynesty": lambda name, seed: _likelihood_and_prior(name),
}
"""What is to be done once before the seconds of a method count."""


def summarize(name: str, method: str, found: Sequence[Search]) -> Row:
    """Count the runs that found the needle, and compare what they stated with what was true."""
    needle = ROWS[name]
    error = np.array([search.log_z for search in found]) - system(name).log_evidence
    stated = np.array([search.error for search in found])
    warned = np.array([search.warned for search in found])
    near = [search.near for search in found if search.near is not None]
    finite, back = stated[np.isfinite(stated)], np.isfinite(error)
    return {
        "prior": needle.prior,
        "dim": needle.dim,
        "apart": needle.apart,
        "ratio": needle.ratio,
        "share": needle.share,
        "method": method,
        "n": len(found),
        "found": sum(search.share > needle.share / 4 for search in found),
        "near": sum(near) if near else "",
        "bias": float(error[back].mean()),
        "RMSE": float(np.sqrt(np.mean(error[back] ** 2))),
        "stated": float(finite.mean()) if finite.size else float("inf"),
        "cpu": float(np.median([search.cpu for search in found])),
        "wall": float(np.median([search.wall for search in found])),
        "warned": int(warned.sum()),
        "late": int(np.sum(~back)),
        "off": int(np.sum((np.abs(error) > FAR * stated) & ~warned)),
    }


def table(searches: Searches) -> list[Row]:
    """Summarize every row and method that has runs."""
    return [
        summarize(name, method, found)
        for name in ROWS
        for method in METHODS
        if (found := [s for key, s in searches.items() if key[:2] == (name, method)])
    ]


def installed(methods: Sequence[str]) -> list[str]:
    """Leave out dynesty where it is missing, and say so."""
    if "dynesty" not in methods or find_spec("dynesty"):
        return list(methods)
    print("dynesty is not installed: its runs are left out. The extra [bench] has it.", flush=True)
    return [method for method in methods if method != "dynesty"]


def run_missing(
    name: str, methods: Sequence[str], seeds: range, searches: Searches, file: RunsFile
) -> None:
    """Add the runs of a row that are not there yet, and write each to the file."""
    missing = [
        (method, seed)
        for seed in seeds  # interleaved, so that a busy machine slows all alike
        for method in methods
        if (name, method, seed) not in searches
    ]
    for method in dict.fromkeys(method for method, _ in missing):
        COMPILE[method](name, seeds.start)
    for method, seed in missing:
        search = METHODS[method](name, seed)
        searches[name, method, seed] = search
        file.add(search, name, method, seed)


def main() -> None:
    arguments = parser(__doc__, 100)
    arguments.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    arguments.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    arguments.add_argument("--restart", action="store_true", help="forget earlier runs")
    args = arguments.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    methods = installed(args.methods)
    if not methods:
        return
    file = RunsFile(args.out / "needles_runs.csv", Search, ("row", "method", "seed"))
    if args.restart:
        file.path.unlink(missing_ok=True)
    searches: Searches = file.by_key()
    seeds = range(args.seed, args.seed + args.repeats)
    for name in args.rows:
        with threadpool_limits(1):  # one core each
            run_missing(name, methods, seeds, searches, file)
        settings = {"seeds": f"{seeds_of(searches)}; runs: {file.path.name}", **NOTES}
        if find_spec("dynesty"):
            settings["dynesty"] = f"NestedSampler of {version('dynesty')} by default"
        save("needles", table(searches), args.out, "Is the narrow mode found?", settings)


if __name__ == "__main__":
    main()
