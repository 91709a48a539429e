"""Made-up runs and results that pictures are drawn of: fixed, small, and without a compiler."""

from dataclasses import fields, replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import xarray as xr

from pymc_tempering.core.cycles import FreshLooks
from pymc_tempering.crosscheck.judge import Entry
from pymc_tempering.crosscheck.result import assemble
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.calibration import Calibration
from pymc_tempering.evidence.datatree import convert
from pymc_tempering.evidence.estimators import OWN, POSTERIOR, RUN
from pymc_tempering.evidence.prior_curves import PriorSensitivity, SensitivityCurve
from pymc_tempering.variational import TemperedFit
from support.look_checks import stats_of
from support.synthetic import GaussianToy, gaussian_run

NARROW = GaussianToy(2.0, 0.02)
"""A likelihood far narrower than the prior: a ladder over decades."""


def prior_run(chains=4, draws=200, rungs=12):
    """A long ladder from the prior, over decades of beta."""
    betas = np.concatenate([[0.0], np.geomspace(2e-4, 1.0, rungs - 1)])
    return gaussian_run(
        draws, chains, toy=NARROW, betas=betas, rho=0.3, ladder_move="nonreversible", random_seed=3
    )


def fitted_run(chains=4, draws=200, strange=2, arrived=60):
    """Three rungs, looks from the prior, and the report of three rounds."""
    idata = convert(gaussian_run(draws, chains, betas=[0.0, 0.3, 1.0], random_seed=5))
    rng = np.random.default_rng(7)
    ratio = idata["tempering_trace"]["log_ratio"].values
    cold = ratio[idata["tempering_trace"]["rung"].values == 2]
    ends = rng.choice(cold, 60) - rng.exponential(0.3, 60)
    ends[:strange] = cold.max() + np.array([9.0, 12.0])[:strange]
    ends[-3:] = -np.inf
    weight = np.where(np.isfinite(ends), rng.normal(-2.6, 0.4, 60), -np.inf)
    looks = {
        "log_ratio": ("look", ends),
        "log_weight": ("look", weight),
        "arrived": ("look", np.arange(60) < arrived),
    }
    idata["tempering_check"] = xr.DataTree(xr.Dataset(looks))
    draws_of_x = idata["posterior"]["x"].values.ravel()
    x = rng.choice(draws_of_x, 60)
    x[:strange] = draws_of_x.max() + np.array([1.0, 1.5])[:strange]
    idata["tempering_looks"] = xr.DataTree(xr.Dataset({"x": ("look", x)}))
    stats = idata["sample_stats"].to_dataset()
    told = stats_of(FreshLooks(-2.75, 0.06, 60.0, 60.0, 0.0, 50.0))
    like = stats["tempering_steps"]
    checks = {name: xr.full_like(like, value, dtype=float) for name, value in told.items()}
    idata["sample_stats"].dataset = stats.assign(checks)
    at = np.array([draws // 4, draws // 2, draws]) * chains
    rounds = {
        "round_draws": ("round", at),
        "round_log_z": ("round", [-2.68, -2.65, -2.64]),
        "round_mcse": ("round", [0.08, 0.05, 0.035]),
    }
    tempering = idata["tempering"].to_dataset()
    idata["tempering"].dataset = tempering.assign(rounds)
    return idata


def estimates():
    """A cross-check with every kind of row: bounds, no error, no value, far ones, a cross."""
    rows = [
        ("rts", -5.0, 0.05, RUN, ""),
        ("ti_riemann", -4.8, 0.06, RUN, "above"),
        ("bridge", -5.43, 0.004, POSTERIOR, ""),
        ("importance", -5.2, np.inf, POSTERIOR, ""),
        ("ais", -5.05, 0.03, OWN, "below"),
        ("elbo", -31.5, 0.4, OWN, "below"),
        ("upper", 12.0, 20.0, OWN, "above"),
        ("smc", -np.inf, np.inf, OWN, ""),
    ]
    entries = [
        Entry(name, Evidence(z, e, name, "ok", bias_direction=side), draws)
        for name, z, e, draws, side in rows
    ]
    return assemble(entries)


def models():
    """Evidence of five models, one without an error and one far behind."""
    values = {"linear": (-10.0, 0.08), "cubic": (-10.4, 0.3), "spline": (-12.2, 0.1),
              "robust": (-14.5, 1.2), "null": (-61.0, 0.1)}  # fmt: skip
    return {name: Evidence(z, e, "rts", "ok") for name, (z, e) in values.items()}


def subsets():
    """Evidences of all subsets of four terms, of which one has no say."""
    found, steps = {}, {"age": 2.5, "bmi": 0.8, "sex": 0.0, "size": -1.5}
    for k in range(5):
        for terms in combinations(steps, k):
            log_z = -20.0 + sum(steps[term] for term in terms)
            found[" + ".join(terms) or "1"] = Evidence(log_z, 0.2, "rts", "ok")
    return found


def sensitivity(against=(-11.0, 0.3), **changes):
    """Two curves of nine values each, the last two from fresh runs."""
    n = 9
    values = {
        "name": "b",
        "kind": "scale",
        "values": np.geomspace(5.0, 0.2, n),  # in no order that the axis has
        "default": np.array(1.0),
        "log_z": -10.0 - np.linspace(-1.0, 1.5, n) ** 2,
        "mcse": np.linspace(0.05, 0.2, n),
        "log_bf": -(np.linspace(-1.0, 1.5, n) ** 2),
        "log_bf_mcse": np.linspace(0.04, 0.3, n),
        "ess": np.full(n, 900.0),
        "khat": np.linspace(0.1, 0.9, n),
        "khat_limit": 0.7,
        "source": ("reweighted",) * 7 + ("rerun",) * 2,
    }
    curve = SensitivityCurve(**(values | changes))
    return PriorSensitivity(-10.0, 0.05, "ok", (curve, replace(curve, name="c")), against)


def calibration():
    """Two models whose probabilities are right, and ranks of which one is shifted."""
    rng = np.random.default_rng(4)
    generated = rng.integers(2, size=200)
    y = rng.normal(0.0, np.where(generated, 3.0, 1.0), (2, 200)).T
    log_z = np.column_stack([-0.5 * (y**2).sum(1), -2 * np.log(3.0) - (y**2).sum(1) / 18.0])
    ranks = {f"b: {name}": rng.random(90) for name in "xyz"} | {"b: shifted": rng.beta(2, 1, 90)}
    return Calibration(("a", "b"), np.array([0.5, 0.5]), generated, log_z, ranks)


def fits():
    """Two made-up fits, one tempered at first and one not, with the report that pictures read."""
    rng, n = np.random.default_rng(2), 4000
    at = np.arange(n)
    made = {}
    for name, end, inverse in (
        ("tempered", -20.0, np.clip(0.2 + at / 2000, 0.0, 1.0)),
        ("advi", -24.0, np.ones(n)),
    ):
        known = {f.name: None for f in fields(TemperedFit)} | {
            "elbo_history": end - 30.0 * np.exp(-at / 500) + rng.normal(0.0, 1.5, n),
            "inverse_temperature": inverse,
            "method": name,
            "n_tempered": int(np.sum(inverse < 1.0)),
        }
        made[name] = SimpleNamespace(tempering=TemperedFit(**known))
    return made
