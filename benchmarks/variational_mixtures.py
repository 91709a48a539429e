"""Variational tempering on mixtures, zero-inflated counts and regressions with outliers.

All parameters are free. The same iterations, optimizer and starts (draws from the prior) for every
method; final ELBO at T = 1. One compiled step serves all fits of a model.
"""

import argparse
import json
import logging
import os
import re
import warnings
from dataclasses import replace
from pathlib import Path
from time import process_time

import numpy as np
import pymc as pm
import pytensor
from common import RESULTS, Row, markdown, save
from pymc.pytensorf import reseed_rngs
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.tensor.random.type import RandomGeneratorType
from variational_mixtures_models import MODELS
from variational_mixtures_picture import draw_elbo, draw_temperatures

import pymc_tempering as pmt
from pymc_tempering.model.density_graphs import freeze_shared
from pymc_tempering.references.prior import forward_graph
from pymc_tempering.variational.assess import UntemperedModel
from pymc_tempering.variational.fit_loop import FitState
from pymc_tempering.variational.fit_start import first_approximation
from pymc_tempering.variational.methods import METHODS, FitPlan, Request
from pymc_tempering.variational.objective import compile_step, global_likelihood
from pymc_tempering.variational.one_fit import run_fit
from pymc_tempering.variational.session import Session

FITS = {"pm.fit": "advi", "annealed": "annealed", "VT": "variational_tempering"}
"""The method of `pmt.fit` by the name in the table; "advi" takes the steps of `pm.fit`."""

PAPER = "VT, paper's form"

LARGEST, START = 20.0, 100.0
"""Largest temperature of VT's grid, and where the schedule starts."""

GRID = 16
"""Temperatures of VT, evenly spaced in log T."""

RATE, LAST_RATE, SLOWS = 0.03, 0.003, 0.6
"""Learning rate of adam, what it falls to, and from which share of the iterations on."""

DRAWS = 320
"""Particles for log C(T)."""

NO_TARGET = UntemperedModel(lambda x: x, 0.0, "not needed here")
"""The final ELBO is the mean of those of the last iterations here."""


def request_of(method: str, n: int) -> Request:
    """Arguments of a fit."""
    grid = np.geomspace(1.0, LARGEST, GRID)
    return Request(
        n=n,
        method=FITS.get(method, "variational_tempering"),
        temperatures=np.array([1.0, START]) if method == "annealed" else grid,
        schedule="exponential" if method == "annealed" else lambda share: START ** (1.0 - share),
        tA=None,
        max_n=n,
        normalizer="global",
        normalizer_draws=DRAWS,
        inverse_temperature_prior=None,
        update_every=10,
        damping=0.9,
        first_temperatures="uniform" if method == PAPER else "annealed",
        obj_n_mc=1,
    )


class Fits:
    """The fits of one model, by one compiled step."""

    def __init__(self, model: pm.Model, n: int) -> None:
        self.model, self.n = model, n
        self.rate = pytensor.shared(RATE)
        self.approx = first_approximation(model, "meanfield", None, None, 1)
        self.likelihood = global_likelihood(self.approx)
        self.step = compile_step(
            self.approx,
            self.likelihood,
            obj_n_mc=1,
            obj_optimizer=pm.adam(learning_rate=self.rate),
        )
        moving = self.step.moving
        self.generators = [v for v in moving if isinstance(v.type, RandomGeneratorType)]
        self.first = [(v, v.get_value()) for v in moving if v not in self.generators]
        self.log_c: tuple[np.ndarray, np.ndarray] | None = None
        self.plans: dict[str, FitPlan] = {}

    def starts(self, repeats: int) -> list[np.ndarray]:
        """Draws from the prior, in the unconstrained space."""
        names = [self.model.rvs_to_values[rv].name for rv in self.model.free_RVs]
        drawn = pm.draw(freeze_shared(forward_graph(self.model)), draws=repeats, random_seed=1,
                        mode="FAST_COMPILE")  # fmt: skip
        by_name = dict(zip(names, drawn, strict=True))
        order = list(self.approx.groups[0].ordering)
        return [
            np.concatenate([np.ravel(by_name[name][i]) for name in order]) for i in range(repeats)
        ]

    def fit(self, method: str, start: np.ndarray, seed: int) -> Session:
        """Begin anew at a start, and run all stages."""
        for shared, value in self.first:
            shared.set_value(value)
        self.rate.set_value(np.asarray(RATE))
        location: SharedVariable = self.approx.groups[0].shared_params["mu"]
        location.set_value(start.astype(location.dtype))
        reseed_rngs(self.generators, seed)
        request = request_of(method, self.n)
        if self.log_c is not None:
            request = replace(request, log_c=self.log_c)
        if method not in self.plans:  # a plan builds the graph of the log-likelihood anew
            plan = METHODS[request.method](request, self.approx)
            self.plans[method] = replace(plan, likelihood=self.likelihood)
        plan = self.plans[method]
        run = FitState(self.approx, self.step, self.likelihood)
        session = Session(method, run, plan, NO_TARGET, np.random.default_rng(seed))
        run_fit(session, request, [self.slow_down])
        return session

    def slow_down(self, approx: object, losses: np.ndarray, i: int) -> None:
        """Lower the learning rate geometrically at the end."""
        late = max(i / self.n - SLOWS, 0.0) / (1.0 - SLOWS)
        self.rate.set_value(np.asarray(RATE * (LAST_RATE / RATE) ** late))


def final_elbo(session: Session) -> float:
    """Mean ELBO of the last tenth of the iterations, at T = 1; -inf for a fit that broke off."""
    run = session.run
    return float(run.elbo[int(0.9 * run.n) : run.n].mean()) if run.stopped == "" else -np.inf


class Told(logging.Handler):
    """Notes the messages that say beforehand how long log C(T) takes."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.seconds = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Read the seconds from a message."""
        if found := re.search(r"about (\d+) s of CPU time", record.getMessage()):
            self.seconds += float(found[1])


def partition_of(model: pm.Model) -> dict:
    """Log C(T) with its error, its CPU seconds, and those that a message told beforehand."""
    log, told, began = logging.getLogger("pymc.tempering"), Told(), process_time()
    log.setLevel(logging.INFO)
    log.addHandler(told)
    grid = np.geomspace(1.0, LARGEST, GRID)
    found = pmt.log_partition(model, grid, draws=DRAWS, random_seed=1)
    log.removeHandler(told)
    return {
        "log_c": found.log_c.tolist(),
        "mcse": found.mcse.tolist(),
        "C(T) s": process_time() - began,
        "told s": told.seconds,
    }


def run_model(name: str, methods: tuple[str, ...], repeats: int, n: int) -> dict:
    """Fit a model by every method from every start; all that tables and pictures need."""
    began = process_time()
    model = MODELS[name]()
    found = partition_of(model)
    fits = Fits(model, n)
    fits.log_c = (np.array(found["log_c"]), np.array(found["mcse"]))
    found |= {
        "elbo": {},
        "E[1/T]": {},
        "q": {},
        "history": {},
        "compiled s": process_time() - began,
    }
    print(name, {key: found[key] for key in ("C(T) s", "told s", "compiled s")}, flush=True)
    starts = fits.starts(repeats)
    for method in methods:
        ends = []
        for seed, start in enumerate(starts):
            session = fits.fit(method, start, seed)
            run, end = session.run, max(session.n_tempered - 1, 0)
            ends.append((final_elbo(session), float(run.inverse_temperature[end])))
            if seed == 0:
                found["history"][method] = run.elbo[:n].reshape(200, -1).mean(axis=1).tolist()
                if method not in ("pm.fit", "annealed"):
                    found["q"][method] = [q.round(5).tolist() for q in run.q[:-1]]
        found["elbo"][method], found["E[1/T]"][method] = map(list, zip(*ends, strict=True))
        print(method, np.sort(found["elbo"][method]).round(1).tolist(), flush=True)
    if final_elbo(fits.fit("pm.fit", starts[0], 0)) != found["elbo"]["pm.fit"][0]:
        raise RuntimeError("a fit depends on those before it")
    return {**found, "all s": process_time() - began}


def rows_of(name: str, found: dict) -> list[Row]:
    """One row a method."""
    elbo = {method: np.array(values) for method, values in found["elbo"].items()}
    best = max(elbo["annealed"].max(), elbo["VT"].max())
    plain = elbo["pm.fit"]
    return [
        {
            "model": name,
            "method": method,
            "n": len(values),
            "median": float(np.median(values)),
            "gain": float(np.median(values) - np.median(plain)),
            "higher": int((values > plain + 1.0).sum()),
            "lower": int((values < plain - 1.0).sum()),
            "within_1": float(np.mean(values > best - 1.0)),
            "E[1/T]": float(np.median(found["E[1/T]"][method])),
            "C(T) s": found["C(T) s"],
            "told s": found["told s"],
            "mcse": max(found["mcse"]),
        }
        for method, values in elbo.items()
    ]


def report(found: dict[str, dict], options: argparse.Namespace, minutes: float) -> None:
    """Write the table and the pictures."""
    settings = {
        "iterations": f"{options.n}, half of them tempered at most; adam, rate {RATE}, lowered to "
        f"{LAST_RATE} over the last {1.0 - SLOWS:.0%}",
        "temperatures": f"from {START:g} on, evenly in log T; VT: a grid of {GRID} to {LARGEST:g}",
        "starts": "draws from the prior, the same for every method",
        "median, gain": "final ELBO at T = 1 (nats; mean over the last tenth of the iterations), "
        "and less that of pm.fit",
        "higher, lower": "starts that end more than 1 nat above, below pm.fit's",
        "within_1": "share of starts within 1 nat of the best of annealed and VT",
        "E[1/T]": "median at the end of the tempered stage",
        "C(T) s": "CPU seconds of log C(T), compilation included",
        "told s": "CPU seconds that messages told beforehand",
        "mcse": "largest standard error of log C(T) (nats)",
        "CPU minutes": f"{minutes:.1f}",
    }
    rows = [row for name in found for row in rows_of(name, found[name])]
    save("variational_mixtures", rows, options.out, "VT on mixtures, and the like", settings)
    draw_elbo(found, options.out / "variational_mixtures.png")
    draw_temperatures(found, options.out / "variational_mixtures_temperatures.png", LARGEST)


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--repeats", type=int, default=20)
    args.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    args.add_argument("--n", type=int, default=2400, help="iterations of every fit")
    args.add_argument("--out", type=Path, default=RESULTS)
    args.add_argument(
        "--keep", type=Path, help="folder of finished models, which are not run again"
    )
    args.add_argument("--paper", action="store_true", help="the paper's form of VT, too")
    options = args.parse_args()
    methods = (*FITS, PAPER) if options.paper else tuple(FITS)
    warnings.simplefilter("ignore", pmt.TemperingWarning)  # judged by the final ELBO here
    logging.getLogger("pymc").setLevel(logging.ERROR)
    found: dict[str, dict] = {}
    minutes = 0.0
    for name in options.models:
        kept = options.keep and options.keep / f"{name}.json"
        if kept and kept.exists():
            found[name] = json.loads(kept.read_text())
        else:
            began = sum(os.times()[:4])
            try:
                found[name] = run_model(name, methods, options.repeats, options.n)
            except pmt.NormalizerError as error:
                print(name, error, flush=True)
                continue
            found[name]["minutes"] = (sum(os.times()[:4]) - began) / 60
            if kept:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(found[name]))
        minutes += found[name]["minutes"]
        print(markdown(rows_of(name, found[name])), flush=True)
        report(found, options, minutes)


if __name__ == "__main__":
    main()
