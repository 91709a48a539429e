"""The fits of `variational_mixtures.py` and `variational_family.py`: one compiled step for a model.

The same iterations, optimizer and starts for every method. The final ELBO is that of the parameters
averaged over the last tenth of the iterations, by the same quasi-random draws for all fits.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from time import process_time

import numpy as np
import pymc as pm
import pytensor
from pymc.variational.opvi import Approximation
from scipy.special import ndtri
from scipy.stats import qmc

import pymc_tempering as pmt
from pymc_tempering.model.density_graphs import freeze_shared
from pymc_tempering.references.prior import forward_graph
from pymc_tempering.variational.assess import UntemperedModel, compile_target
from pymc_tempering.variational.fit_step import Values, compile_step, global_likelihood
from pymc_tempering.variational.fitting import first_approximation
from pymc_tempering.variational.methods import TRIALS, FitOptions, FitPlan, plan_fit
from pymc_tempering.variational.stages import FitRun, moved_to, run_fit, run_trials

PLAIN, SEVERAL, ANNEALED, VT = "pm.fit", "pm.fit, 8 starts", "annealed", "VT"
ANNEALED_TRIALS, VT_ALONE, PAPER = "annealed, 8 trials", "VT, no trials", "VT, paper's form"

LARGEST, START = 20.0, 30.0
"""Largest temperature of VT's grid, and where the schedule starts."""

GRID = 16
"""Temperatures of VT, evenly spaced in log T."""

RATE, LAST_RATE, SLOWS = 0.03, 0.003, 0.6
"""Learning rate of adam, what it falls to, and from which share of the iterations on."""

AVERAGED = 0.9
"""Share of the iterations from which on the parameters are averaged."""

POINTS = 2048
"""Quasi-random draws for a final ELBO."""

NO_TARGET = UntemperedModel(lambda x: x, 0.0, "not needed here")
"""The report of a fit is not made here."""


def grid_of(largest: float) -> np.ndarray:
    """Temperatures of VT."""
    return np.geomspace(1.0, largest, GRID)


def request_of(method: str, n: int, largest: float = LARGEST) -> FitOptions:
    """Arguments of a fit."""
    plain = {PLAIN: "advi", SEVERAL: "advi"}
    name = plain.get(method, "annealed" if method.startswith(ANNEALED) else "variational_tempering")
    return FitOptions(
        n=n,
        method=name,
        temperatures=np.array([1.0, START]) if name == "annealed" else grid_of(largest),
        schedule="exponential" if name == "annealed" else lambda share: START ** (1.0 - share),
        tA=None,
        max_n=n,
        normalizer="global",
        normalizer_draws=320,
        inverse_temperature_prior=None,
        update_every=10,
        damping=0.9,
        first_temperatures="uniform" if method == PAPER else "annealed",
        obj_n_mc=1,
        restarts=1,
        trials={VT_ALONE: 0, ANNEALED_TRIALS: TRIALS}.get(method),
        log_c=None,
        approx="meanfield",
        start_sigma=None,
        obj_optimizer=pm.adagrad_window,
        total_grad_norm_constraint=None,
        backend=None,
        compile_kwargs=None,
    )


def normal_points(dim: int) -> np.ndarray:
    """Quasi-random draws of a standard normal, shape (n, dim), each with its mirror image."""
    uniform = qmc.Sobol(dim, seed=1).random(POINTS // 2)
    half = ndtri(np.clip(uniform, 1e-12, 1.0 - 1e-12))
    return np.vstack([half, -half])


class Fits:
    """The fits of one model, by one compiled step."""

    def __init__(self, model: pm.Model, n: int, largest: float = LARGEST) -> None:
        self.model, self.n, self.largest = model, n, largest
        self.rate = pytensor.shared(RATE)
        self.approx = first_approximation(model, random_seed=1)
        self.step = compile_step(
            self.approx,
            global_likelihood(self.approx),
            obj_n_mc=1,
            obj_optimizer=pm.adam(learning_rate=self.rate),
        )
        self.first, _ = self.step.start(self.approx)
        self.log_c: tuple[np.ndarray, np.ndarray] | None = None
        self.plans: dict[str, FitPlan] = {}
        self.log_joint = compile_target(self.approx).log_joint
        self.points = normal_points(self.first_location().size)
        self.late: list[dict[str, np.ndarray]] = []

    def first_location(self) -> np.ndarray:
        """Mean of the approximation now."""
        return np.asarray(self.approx.groups[0].shared_params["mu"].get_value())

    def starts(self, repeats: int, seed: int = 1) -> list[list[np.ndarray]]:
        """Draws from the prior (unconstrained space), for each repeat as many as VT has trials."""
        several = [self.draws(repeats, 10 * seed + place) for place in range(TRIALS)]
        return [list(starts) for starts in zip(*several, strict=True)]

    def draws(self, repeats: int, seed: int) -> list[np.ndarray]:
        """Draws from the prior, in the unconstrained space."""
        names = [self.model.rvs_to_values[rv].name for rv in self.model.free_RVs]
        drawn = pm.draw(freeze_shared(forward_graph(self.model)), draws=repeats, random_seed=seed,
                        mode="FAST_COMPILE")  # fmt: skip
        by_name = dict(zip(names, drawn, strict=True))
        order = list(self.approx.groups[0].ordering)
        return [
            np.concatenate([np.ravel(by_name[name][i]) for name in order]) for i in range(repeats)
        ]

    def start(self, place: np.ndarray) -> Values:
        """Values at the beginning of a fit from a place."""
        return moved_to(place, self.first, self.step)

    def plan(self, options: FitOptions) -> FitPlan:
        """Plan a fit."""
        if self.log_c is not None:
            options = replace(options, log_c=self.log_c)
        return plan_fit(options, self.model)

    def fit(
        self, method: str, starts: Sequence[np.ndarray], seed: int, options: FitOptions
    ) -> FitRun:
        """Run all stages from the first start; the others are those of the trials."""
        self.rate.set_value(np.asarray(RATE))
        self.late = []
        if method not in self.plans:  # that of VT computes log C(T)
            self.plans[method] = self.plan(options)
        seeds = np.random.SeedSequence(seed).spawn(len(self.step.generators))
        run = FitRun(
            approx=self.approx,
            step=self.step,
            plan=self.plans[method],
            target=NO_TARGET,
            values=self.start(starts[0]),
            generators=[np.random.Generator(np.random.PCG64(own)) for own in seeds],
            rng=np.random.default_rng(seed),
            others=starts[1:],
            callbacks=[self.slow_down],
        )
        if method == SEVERAL:
            run_trials(run, [self.start(x) for x in starts], self.n // 2)
        run_fit(run)
        return run

    def slow_down(self, approx: Approximation, losses: np.ndarray, i: int) -> None:
        """Lower the learning rate geometrically at the end, and note the last parameters."""
        late = max(i / self.n - SLOWS, 0.0) / (1.0 - SLOWS)
        self.rate.set_value(np.asarray(RATE * (LAST_RATE / RATE) ** late))
        if i > AVERAGED * self.n:
            params = approx.groups[0].shared_params
            self.late.append({name: np.array(p.get_value()) for name, p in params.items()})

    def final_elbo(self, run: FitRun) -> float:
        """ELBO of the averaged parameters at T = 1; -inf for a fit that broke off."""
        if run.stopped:
            return -np.inf
        mean, rho = (np.mean([late[name] for late in self.late], axis=0) for name in ("mu", "rho"))
        sd = np.logaddexp(0.0, rho)
        values = [self.log_joint(mean + sd * z) for z in self.points]
        entropy = np.log(sd).sum() + 0.5 * mean.size * (1.0 + np.log(2.0 * np.pi))
        return float(np.mean(values) + entropy)


class Told(logging.Handler):
    """Notes the messages that say beforehand how long log C(T) takes."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.seconds = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Read the seconds from a message."""
        if found := re.search(r"about (\d+) s of CPU time", record.getMessage()):
            self.seconds += float(found[1])


def partition_of(model: pm.Model, draws: int, largest: float = LARGEST) -> dict:
    """Log C(T) with its error, its CPU seconds, and those that a message told beforehand."""
    log, told, began = logging.getLogger("pymc.tempering"), Told(), process_time()
    log.setLevel(logging.INFO)
    log.addHandler(told)
    try:
        found = pmt.variational.log_partition(model, grid_of(largest), draws=draws, random_seed=1)
    finally:
        log.removeHandler(told)
    return {
        "log_c": found.log_c.tolist(),
        "mcse": found.mcse.tolist(),
        "C(T) s": process_time() - began,
        "told s": told.seconds,
    }
