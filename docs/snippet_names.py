"""The names that the blocks of a page take for granted, page by page; see ``snippets.py``."""

from collections.abc import Callable
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr
from scipy.special import expit

import pymc_tempering as pmt

BASE = {"az": az, "np": np, "pm": pm, "pmt": pmt, "xr": xr}
QUIET: dict[str, Any] = {"quiet": True, "random_seed": 1}
Y = np.array([0.4, 1.1, -0.3, 0.8, 1.6, 0.2])


def effect(width: float = 1.0) -> pm.Model:
    """Return a model of a mean and its noise."""
    with pm.Model() as model:
        delta = pm.Normal("delta", 0, width)
        sigma = pm.LogNormal("sigma", 0, 0.5)
        pm.Normal("y", delta, sigma, observed=Y)
    return model


def opened(model: pm.Model) -> dict[str, Any]:
    """Return a model that the page's blocks find on the context stack."""
    model.__enter__()
    return {"model": model}


def with_run(**kwargs: Any) -> dict[str, Any]:
    """Return a model and a run of it."""
    model = effect()
    return {"model": model, "idata": pmt.sample(model=model, **QUIET, **kwargs)}


def two_runs() -> dict[str, Any]:
    """Return runs of two models."""
    return with_run() | {
        "idata_a": pmt.sample(model=effect(), **QUIET),
        "idata_b": pmt.sample(model=effect(3.0), **QUIET),
    }


def any_run() -> dict[str, Any]:
    """Return a run of each kind, and a table of them."""
    runs = two_runs()
    model_b = effect(3.0)
    evidence = pmt.log_marginal_likelihood(runs["idata_a"])
    return runs | {
        "model_b": model_b,
        "idata_b": pm.sample(model=model_b, random_seed=1, progressbar=False),
        "idata_c": pm.sample_smc(model=effect(2.0), random_seed=1, progressbar=False),
        "evidence": evidence,
        "table": pmt.compare({"a": evidence, "b": runs["idata_b"]}),
    }


def estimators() -> dict[str, Any]:
    """Return runs on one ladder, and a density whose parameters change."""
    betas = np.array([0.0, 0.3, 1.0])
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x", 0, 2), 1, observed=1.5)
    kwargs: dict[str, Any] = {"model": model, "betas": betas, "reference": "prior", "quiet": True}
    a = pmt.sample(500, random_seed=1, keep="states", **kwargs)
    return {
        "idata": a,
        "a": a,
        "b": pmt.sample(500, random_seed=2, **kwargs),
        "betas": betas,
        "log_z": np.zeros(3),
        "steps": 5,
        "sweeps": 2,
        "rng": np.random.default_rng(1),
        "x": np.zeros(50),
        "log_ratio": lambda x: -0.5 * x**2,
        "move": lambda x, beta: np.random.default_rng(1).normal(size=x.shape) / np.sqrt(1 + beta),
    }


def block_gibbs() -> dict[str, Any]:
    """Return an RBM with explicit hidden units."""
    rng = np.random.default_rng(1)
    weights, a, c = 0.3 * rng.normal(size=(8, 5)), 0.1 * rng.normal(size=8), rng.normal(size=5)
    with pm.Model() as model:
        v = pm.Bernoulli("v", 0.5, shape=8)
        h = pm.Bernoulli("h", 0.5, shape=5)
        pm.Potential("energy", v @ weights @ h + a @ v + c @ h)
    return opened(model) | {"expit": expit, "weights": weights, "a": a, "c": c}


def arrays() -> dict[str, Any]:
    """Return the parameters of a small RBM, and data."""
    rng = np.random.default_rng(1)
    data = (rng.random((4, 8)) < 0.3).astype(float)
    weights = 0.3 * rng.normal(size=(8, 5))
    return {"data": data, "expit": expit, "weights": weights, "a": np.zeros(8), "b": np.zeros(5)}


def conjugate() -> dict[str, Any]:
    """Return counts of words."""
    rng = np.random.default_rng(1)
    return {"counts": rng.poisson(0.5, (300, 80)), "held_out": rng.poisson(0.5, (20, 80))}


def products() -> pm.Model:
    """Return a model that knows only the product of two probabilities."""
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1, shape=2)
        pm.Binomial("y", n=100, p=p[0] * p[1], observed=30)
    return model


def theta_and_n() -> pm.Model:
    """Return a model with two variables, each moved in its own way."""
    with pm.Model() as model:
        theta = pm.Normal("theta")
        pm.Normal("y", theta, pm.HalfNormal("n", 2), observed=Y)
    return model


NAMES: dict[str, Callable[[], dict[str, Any]]] = {
    "docs/explanation/annealed.md": with_run,
    "docs/explanation/bridge.md": lambda: {"model": effect()},
    "docs/explanation/conjugate.md": conjugate,
    "docs/explanation/cross_check.md": lambda: {"model": effect()},
    "docs/explanation/estimators.md": estimators,
    "docs/explanation/kernels.md": lambda: opened(theta_and_n()),
    "docs/explanation/weights.md": lambda: opened(effect()),
    "docs/howto/any_run.md": any_run,
    "docs/howto/arrays.md": arrays,
    "docs/howto/kernel.md": block_gibbs,
    "docs/howto/precision.md": lambda: opened(products()),
    "docs/howto/prior_sensitivity.md": lambda: {"y": Y, "null": with_run()["idata"]},
    "docs/howto/report.md": two_runs,
    "docs/howto/variational.md": lambda: {"model": effect(), "other": pmt.fit(500, model=effect())},
}


def names(page: str) -> dict[str, Any]:
    """Return what the blocks of a page may use; a page that is not named has to bring all of it."""
    return BASE | NAMES[page]() if page in NAMES else {}
