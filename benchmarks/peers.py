"""Tempering beside its peers on models with exact evidence: error, stated error, seconds.

One core each. `seconds` is the computation of an answer without compiling and without building
the container of draws: for tempering, warm-up + chains + evidence; for `pm.sample_smc`, its
reweighting, resampling, moves and evaluations, while its forward draws, which compile, are left
out in its favor; for NUTS, nutpie with its tuning, and the bridge. `total` is the whole call as a
user waits for it, compiling with warm disk caches and the container included.
"""

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from time import perf_counter
from typing import Any

import numpy as np
import nutpie
import pymc as pm
from common import Row, parser, prior, run_once, save, system
from nuts_bridge import bridge
from pymc.smc.kernels import IMH

import pymc_tempering as pmt

DEFAULT_MODELS = (
    "mixture", "hierarchical", "gaussian100", "regression", "twenty_modes", "logistic", "schools",
    "shells",
)  # fmt: skip
FAR = 4.0
"""Stated errors that a run may be off by."""

NOTES = {
    "tempering": "pmt.sample() and pmt.log_marginal_likelihood() by default: 4 chains, 1000 draws",
    "prior": "the same with reference='prior'",
    "smc": "pm.sample_smc(chains=4) by default: 2000 draws; log of the mean over chains of Z; the "
    "stated error is that of this mean from the scatter of the four",
    "nuts_bridge": "nutpie, 4 chains, 1000 draws; normal fitted to one half of the draws, bridge "
    "with the other; it warns when PyMC would: R-hat > 1.01",
    "cost": "RMSE^2 x seconds; `relative` is that of the method in this row over that of tempering "
    "(above 1: tempering is ahead)",
    "far": f"runs off by more than {FAR:.0f} stated errors without a warning",
}


@dataclass(frozen=True)
class Answer:
    """What one call of a method said; nats and seconds."""

    log_z: float
    error: float
    seconds: float
    total: float
    warned: bool


def tempering(name: str, seed: int, reference: str = "auto") -> Answer:
    """Run `pmt.sample` on one core, by default but for the reference.

    Once as users do, which gives `total`, and once without compiling, which gives the same
    numbers (`common.check_same_as_sample`) and `seconds`.
    """
    started = perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        idata = pmt.sample(
            model=system(name).model, reference=reference, cores=1, random_seed=seed, quiet=True,
            progressbar=False,
        )  # fmt: skip
        evidence = pmt.log_marginal_likelihood(idata)
    total = perf_counter() - started
    warned = any(issubclass(w.category, pmt.TemperingWarning) for w in caught)
    again = run_once(name, seed, reference=reference)
    if again.log_z != evidence.log_z:
        raise RuntimeError(f"{name}, seed {seed}: {again.log_z} is not {evidence.log_z}")
    return Answer(evidence.log_z, evidence.mcse, again.seconds, total, warned)


class TimedIMH(IMH):
    """The default kernel of `pm.sample_smc`, which counts the seconds of its own work."""

    seconds = 0.0

    def _count(self, work: Callable[[], Any]) -> Any:
        started = perf_counter()
        result = work()
        TimedIMH.seconds += perf_counter() - started
        return result

    def initialize_population(self) -> dict[str, np.ndarray]:
        started = perf_counter()
        result = super().initialize_population()
        TimedIMH.seconds -= perf_counter() - started  # it compiles
        return result

    def _initialize_kernel(self) -> None:
        self._count(super()._initialize_kernel)

    def update_beta_and_weights(self) -> None:
        self._count(super().update_beta_and_weights)

    def step(self) -> Any:
        return self._count(super().step)


def smc(name: str, seed: int) -> Answer:
    """Run `pm.sample_smc` with four chains."""
    TimedIMH.seconds = 0.0
    started = perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        idata = pm.sample_smc(
            kernel=TimedIMH, chains=4, cores=1, model=system(name).model, random_seed=seed,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    total = perf_counter() - started
    stages = np.atleast_1d(idata["sample_stats"]["log_marginal_likelihood"].values)
    by_chain = np.array([float(np.ravel(chain)[-1]) for chain in stages])
    z = np.exp(by_chain - by_chain.max())
    error = float(z.std(ddof=1) / z.mean() / np.sqrt(z.size))
    warned = any(w.category is UserWarning for w in caught)
    log_z = float(by_chain.max() + np.log(z.mean()))
    return Answer(log_z, error, TimedIMH.seconds, total, warned)


@cache
def _nutpie_model(name: str) -> tuple[Any, float]:
    started = perf_counter()
    compiled = nutpie.compile_pymc_model(system(name).model)
    return compiled, perf_counter() - started


def nuts_bridge(name: str, seed: int) -> Answer:
    """Run nutpie's NUTS and bridge sampling."""
    compiled, seconds_compiling = _nutpie_model(name)
    path = prior(name).path
    started = perf_counter()
    idata = nutpie.sample(
        compiled, draws=1000, chains=4, cores=1, seed=seed, progress_bar=False,
        save_warmup=False, store_unconstrained=True,
    )  # fmt: skip
    draws = idata["sample_stats"]["unconstrained_draw"].values
    answer = bridge(draws, path.density, np.random.default_rng(seed))
    seconds = perf_counter() - started
    halves = np.concatenate([draws[:, :500], draws[:, 500:]])
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    rhat = np.sqrt(1.0 + halves.mean(axis=1).var(axis=0, ddof=1) / within)
    total = seconds + seconds_compiling
    return Answer(answer.log_z, answer.error, seconds, total, bool(rhat.max() > 1.01))


METHODS: dict[str, Callable[[str, int], Answer]] = {
    "tempering": tempering,
    "prior": partial(tempering, reference="prior"),
    "smc": smc,
    "nuts_bridge": nuts_bridge,
}
"""Every method by name: (model, seed) to an `Answer`."""


def summarize(name: str, method: str, answers: list[Answer]) -> Row:
    """Compare what the answers stated with what was true."""
    error = np.array([answer.log_z for answer in answers]) - system(name).log_evidence
    stated = np.array([answer.error for answer in answers])
    warned = np.array([answer.warned for answer in answers])
    finite = np.isfinite(stated)
    rmse = float(np.sqrt(np.mean(error**2)))
    seconds = float(np.median([answer.seconds for answer in answers]))
    return {
        "model": name,
        "dim": system(name).dim,
        "method": method,
        "n": len(answers),
        "bias": float(error.mean()),
        "RMSE": rmse,
        "stated": float(stated[finite].mean()) if finite.any() else float("inf"),
        "seconds": seconds,
        "total": float(np.median([answer.total for answer in answers])),
        "cost": rmse**2 * seconds,
        "warned": int(warned.sum()),
        "far": int(np.sum((np.abs(error) > FAR * stated) & ~warned)),
    }


def main() -> None:
    arguments = parser(__doc__, 20, DEFAULT_MODELS)
    arguments.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    args = arguments.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    rows: list[Row] = []
    for name in args.models:
        answers: dict[str, list[Answer]] = {method: [] for method in args.methods}
        for method in args.methods:  # compile, and fill the disk caches
            METHODS[method](name, args.seed)
        for i in range(args.repeats):  # interleaved, so that a busy machine slows all alike
            for method in args.methods:
                answers[method].append(METHODS[method](name, args.seed + i))
        of_model = [summarize(name, method, answers[method]) for method in args.methods]
        for row in of_model:
            row["relative"] = float(row["cost"]) / float(of_model[0]["cost"])
            print(" ".join(f"{k}={v:.3g}" if isinstance(v, float) else str(v)
                           for k, v in row.items()), flush=True)  # fmt: skip
        rows += of_model
    settings = {"seeds": f"{args.seed} to {args.seed + args.repeats - 1}, of each model", **NOTES}
    save("peers", rows, args.out, "Tempering and its peers", settings)


if __name__ == "__main__":
    main()
