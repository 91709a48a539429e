"""Tempering beside its peers on models with exact evidence: error, stated error, seconds.

One core each, in one process, one method after the other. `cpu` is the computation of an answer
in CPU seconds of the process, its threads included, without compiling and without building the
container of draws: for tempering, all legs from warm-up to evidence; for `pm.sample_smc`, its
reweighting, resampling, moves and evaluations, while its forward draws, which compile, are left
out in its favor; for NUTS, nutpie with its tuning, and the bridge. `wall` is the same by the
clock. `total` is the whole call as a user waits for it, compiling with warm disk caches and the
container included.

Every answer is written to a file beside the table as soon as it is there, and the table after
each model. A run that was cut short goes on where it was; `--restart` forgets what there is.
"""

import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from time import perf_counter, process_time
from typing import Any

import numpy as np
import nutpie
import pymc as pm
from pymc.smc.kernels import IMH
from threadpoolctl import threadpool_limits

import pymc_tempering as pmt
from benchmarks.common import LEGS, Row, parser, prior, run_once, save, system
from benchmarks.compare.nuts_bridge import bridge
from benchmarks.fresh_runs import RunsFile

DEFAULT_MODELS = (
    "regression", "hierarchical", "mixture", "twenty_modes", "gaussian100", "logistic", "schools",
    "shells",
)  # fmt: skip
FAR = 4.0
"""Stated errors that a run may be off by."""

NOTES = {
    "tempering": "pmt.sample() and pmt.log_marginal_likelihood() by default: 4 chains",
    "prior": "the same with reference='prior'",
    "smc": "pm.sample_smc(chains=4) by default: 2000 draws; log of the mean over chains of Z; the "
    "stated error is that of this mean from the scatter of the four",
    "nuts_bridge": "nutpie, 4 chains, 1000 draws; normal fitted to one half of the draws, bridge "
    "with the other; it warns when PyMC would: R-hat > 1.01",
    "cost": "RMSE^2 x cpu; `relative` is that of the method in this row over that of tempering "
    "(above 1: tempering is ahead), with its 95 % interval over resampled runs",
    "far": f"runs off by more than {FAR:.0f} stated errors without a warning",
    "evaluations": "mean number of density evaluations of tempering, initial iterations left out; "
    "`other`: those of all legs but the run; `n_looks`: looks of a run at least",
    "legs": f"{', '.join(LEGS)}: mean share of the density evaluations of tempering, initial "
    "iterations left out",
}


@dataclass(frozen=True)
class Answer:
    """What one call of a method said; nats, seconds, and evaluations of the legs."""

    log_z: float
    error: float
    cpu: float
    wall: float
    total: float
    warned: bool
    prior_warmup: int = 0
    fit: int = 0
    looks: int = 0
    scouts: int = 0
    reference_draws: int = 0
    run: int = 0
    n_looks: int = 0


class Stopwatch:
    """CPU seconds of the process and wall seconds since its start."""

    def __init__(self) -> None:
        self.started = process_time(), perf_counter()

    def read(self) -> tuple[float, float]:
        return process_time() - self.started[0], perf_counter() - self.started[1]


def tempering(name: str, seed: int, reference: str = "auto") -> Answer:
    """Run `pmt.sample` on one core, by default but for the reference.

    Once as users do, which gives `total`, and once without compiling, which gives the same
    numbers (`common.check_same_as_sample`) and `cpu`.
    """
    watch = Stopwatch()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        idata = pmt.sample(
            model=system(name).model, reference=reference, cores=1, random_seed=seed, quiet=True,
            progressbar=False,
        )  # fmt: skip
        evidence = pmt.log_marginal_likelihood(idata)
    total = watch.read()[1]
    warned = any(issubclass(w.category, pmt.TemperingWarning) for w in caught)
    again = run_once(name, seed, reference=reference)
    if again.log_z != evidence.log_z:
        raise RuntimeError(f"{name}, seed {seed}: {again.log_z} is not {evidence.log_z}")
    check = evidence.check
    return Answer(
        evidence.log_z, evidence.mcse, again.cpu, again.seconds, total, warned, **again.work,
        n_looks=0 if check is None else check.n_looks,
    )  # fmt: skip


class TimedIMH(IMH):
    """The default kernel of `pm.sample_smc`, which counts the seconds of its own work."""

    cpu, wall = 0.0, 0.0

    def _count(self, work: Callable[[], Any], sign: float = 1.0) -> Any:
        watch = Stopwatch()
        result = work()
        cpu, wall = watch.read()
        TimedIMH.cpu += sign * cpu
        TimedIMH.wall += sign * wall
        return result

    def initialize_population(self) -> dict[str, np.ndarray]:
        return self._count(super().initialize_population, -1.0)  # it compiles

    def _initialize_kernel(self) -> None:
        self._count(super()._initialize_kernel)

    def update_beta_and_weights(self) -> None:
        self._count(super().update_beta_and_weights)

    def step(self) -> Any:
        return self._count(super().step)


def smc_and_draws(name: str, seed: int) -> tuple[Answer, Any]:
    """Run `pm.sample_smc` with four chains; also what it returned."""
    TimedIMH.cpu = TimedIMH.wall = 0.0
    watch = Stopwatch()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        idata = pm.sample_smc(
            kernel=TimedIMH, chains=4, cores=1, model=system(name).model, random_seed=seed,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    total = watch.read()[1]
    stages = np.atleast_1d(idata["sample_stats"]["log_marginal_likelihood"].values)
    by_chain = np.array([float(np.ravel(chain)[-1]) for chain in stages])
    z = np.exp(by_chain - by_chain.max())
    error = float(z.std(ddof=1) / z.mean() / np.sqrt(z.size))
    warned = any(w.category is UserWarning for w in caught)
    log_z = float(by_chain.max() + np.log(z.mean()))
    return Answer(log_z, error, TimedIMH.cpu, TimedIMH.wall, total, warned), idata


def smc(name: str, seed: int) -> Answer:
    """Run `pm.sample_smc` with four chains."""
    return smc_and_draws(name, seed)[0]


@cache
def _nutpie_model(name: str) -> tuple[Any, float]:
    watch = Stopwatch()
    compiled = nutpie.compile_pymc_model(system(name).model)
    return compiled, watch.read()[1]


def nuts_bridge(name: str, seed: int) -> Answer:
    """Run nutpie's NUTS and bridge sampling."""
    compiled, seconds_compiling = _nutpie_model(name)
    path = prior(name).path
    watch = Stopwatch()
    idata = nutpie.sample(
        compiled, draws=1000, chains=4, cores=1, seed=seed, progress_bar=False,
        save_warmup=False, store_unconstrained=True,
    )  # fmt: skip
    draws = idata["sample_stats"]["unconstrained_draw"].values
    answer = bridge(draws, path.density, np.random.default_rng(seed))
    cpu, wall = watch.read()
    halves = np.concatenate([draws[:, :500], draws[:, 500:]])
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    rhat = np.sqrt(1.0 + halves.mean(axis=1).var(axis=0, ddof=1) / within)
    warned = bool(rhat.max() > 1.01)
    return Answer(answer.log_z, answer.error, cpu, wall, wall + seconds_compiling, warned)


METHODS: dict[str, Callable[[str, int], Answer]] = {
    "tempering": tempering,
    "prior": partial(tempering, reference="prior"),
    "smc": smc,
    "nuts_bridge": nuts_bridge,
}
"""Every method by name: (model, seed) to an `Answer`."""

type Answers = dict[tuple[str, str, int], Answer]


def summarize(name: str, method: str, answers: Sequence[Answer]) -> Row:
    """Compare what the answers stated with what was true."""
    error = np.array([answer.log_z for answer in answers]) - system(name).log_evidence
    stated = np.array([answer.error for answer in answers])
    warned = np.array([answer.warned for answer in answers])
    finite = np.isfinite(stated)
    rmse = float(np.sqrt(np.mean(error**2)))
    medians = {
        clock: float(np.median([getattr(answer, clock) for answer in answers]))
        for clock in ("cpu", "wall", "total")
    }
    work = np.array([[getattr(answer, leg) for leg in LEGS] for answer in answers], dtype=float)
    share = (work / np.maximum(work.sum(axis=1, keepdims=True), 1)).mean(axis=0)
    return {
        "model": name,
        "dim": system(name).dim,
        "method": method,
        "n": len(answers),
        "bias": float(error.mean()),
        "RMSE": rmse,
        "stated": float(stated[finite].mean()) if finite.any() else float("inf"),
        **medians,
        "cost": rmse**2 * medians["cpu"],
        "warned": int(warned.sum()),
        "far": int(np.sum((np.abs(error) > FAR * stated) & ~warned)),
        "evaluations": int(work.sum(axis=1).mean()),
        "other": int((work.sum(axis=1) - work[:, -1]).mean()),
        "n_looks": min(answer.n_looks for answer in answers),
        **{leg: f"{part:.0%}" if part else "" for leg, part in zip(LEGS, share, strict=True)},
    }


def table(answers: Answers) -> list[Row]:
    """Summarize every model and method that has answers; tempering comes first in each model."""
    rows: list[Row] = []
    for name in dict.fromkeys(model for model, _, _ in answers):
        by_method = {
            method: found
            for method in METHODS
            if (found := [a for key, a in answers.items() if key[:2] == (name, method)])
        }
        of_model = [summarize(name, method, found) for method, found in by_method.items()]
        first, *_ = by_method.values()
        for row, found in zip(of_model, by_method.values(), strict=True):
            row["relative"] = float(row["cost"]) / float(of_model[0]["cost"])
            low, high = interval(name, found, first)
            row["95 %"] = "" if found is first else f"{low:.3g} to {high:.3g}"
        rows += of_model
    return rows


def interval(
    name: str, ours: Sequence[Answer], first: Sequence[Answer], resamples: int = 4000
) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the cost of a method over that of the first one."""
    rng, exact = np.random.default_rng(0), system(name).log_evidence

    def costs(answers: Sequence[Answer]) -> np.ndarray:
        square = np.array([(answer.log_z - exact) ** 2 for answer in answers])
        cpu = np.array([answer.cpu for answer in answers])
        drawn = rng.integers(square.size, size=(resamples, square.size))
        return np.asarray(square[drawn].mean(axis=1) * np.median(cpu[drawn], axis=1))

    low, high = np.quantile(costs(ours) / costs(first), [0.025, 0.975])
    return float(low), float(high)


def seeds_of(answers: Answers) -> str:
    """Seeds that the answers have: the usual ones, then models and methods that have others."""
    found: dict[str, dict[str, list[str]]] = {}
    for name, method in dict.fromkeys(key[:2] for key in answers):
        seeds = sorted(key[2] for key in answers if key[:2] == (name, method))
        span = f"{seeds[0]} to {seeds[-1]}"
        if len(seeds) <= seeds[-1] - seeds[0]:
            span += f" ({len(seeds)} of them)"
        found.setdefault(span, {}).setdefault(name, []).append(method)
    usual = max(found, key=lambda span: sum(map(len, found[span].values())))
    others = [
        f"{span}, of {' and '.join(methods)} on {name}"
        for span, models in found.items()
        if span != usual
        for name, methods in models.items()
    ]
    return "; ".join([f"{usual}, of each model", *others])


def main() -> None:
    arguments = parser(__doc__, 30, DEFAULT_MODELS)
    arguments.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    arguments.add_argument("--restart", action="store_true", help="forget earlier answers")
    arguments.add_argument("--suffix", default="", help="of the files' names, as in peers_120")
    args = arguments.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    stem = f"peers{args.suffix}" if args.suffix else "peers"
    file = RunsFile(args.out / f"{stem}_runs.csv", Answer, ("model", "method", "seed"))
    if args.restart:
        file.path.unlink(missing_ok=True)
    answers: Answers = file.by_key()
    seeds = range(args.seed, args.seed + args.repeats)
    for name in args.models:
        missing = [
            (method, seed)
            for seed in seeds  # interleaved, so that a busy machine slows all alike
            for method in args.methods
            if (name, method, seed) not in answers
        ]
        with threadpool_limits(1):  # one core each
            for method in dict.fromkeys(method for method, _ in missing):
                METHODS[method](name, args.seed)  # compile, and fill the disk caches
            for method, seed in missing:
                answer = METHODS[method](name, seed)
                answers[name, method, seed] = answer
                file.add(answer, name, method, seed)
        settings = {
            "seeds": f"{seeds_of(answers)}; answers: {file.path.name}",
            **NOTES,
        }
        save(stem, table(answers), args.out, "Tempering and its peers", settings)


if __name__ == "__main__":
    main()
