"""Long runs for the log evidence of models that have no formula: two methods for each of them."""

import json
from typing import Any

import numpy as np
import nutpie
import pymc as pm
import xarray as xr
from scipy.special import logsumexp
from scipy.stats import multivariate_t
from sklearn.mixture import GaussianMixture

import pymc_tempering as pmt
from benchmarks.models.real_models_list import all_models
from benchmarks.private import find_target

CHAINS, TUNE, DRAWS, DEAR_DRAWS = 4, 1000, 3000, 1000
"""Of each of the long NUTS runs, and where the density is dear."""
SETS, DEAR_SETS = 4, 3
"""Long NUTS runs, each with a bridge of its own."""
POINTS, DEAR_POINTS = 200_000, 50_000
"""Draws of importance sampling."""
DOF, WIDER = 6.0, 1.3
"""Degrees of freedom of its t's, and what their scale matrices are multiplied with."""
PARTICLES, ISLANDS = 500, 20
"""Of sequential Monte Carlo; islands are independent."""

type Found = dict[str, Any]


def nuts(model: pm.Model, seed: int, dear: bool) -> xr.DataTree:
    """Draw by nutpie on one core."""
    draws = DEAR_DRAWS if dear else DRAWS
    return nutpie.sample(
        nutpie.compile_pymc_model(model), draws=draws, tune=TUNE, chains=CHAINS, cores=1, seed=seed,
        progress_bar=False,
    )  # fmt: skip


def joined(values: np.ndarray, errors: np.ndarray) -> tuple[float, float]:
    """Mean of independent estimates, with the larger of their stated error and their scatter."""
    n = len(values)
    scatter = values.std(ddof=1) / np.sqrt(n)
    return float(values.mean()), float(max(np.sqrt(np.mean(errors**2) / n), scatter))


def long_bridge(name: str, seed: int) -> Found:
    """Bridge sampling on several long NUTS runs; of two proposals the one of the smaller error."""
    entry = all_models()[name]
    model = entry.build()
    parts: dict[str, list[tuple[float, float]]] = {"t": [], "warp": []}
    messages: set[str] = set()
    for i in range(100, 100 + (DEAR_SETS if entry.dear else SETS)):  # apart from the table's seeds
        idata = nuts(model, seed + i, entry.dear)
        for proposal, found in parts.items():
            evidence = pmt.bridge_sampling(
                idata, model, proposal=proposal, cores=1, random_seed=seed + i
            )
            found.append((evidence.log_z, evidence.mcse))
            messages |= set(evidence.warnings)
    answers = {proposal: joined(*np.array(found).T) for proposal, found in parts.items()}
    best = min(answers, key=lambda proposal: answers[proposal][1])
    log_z, error = answers[best]
    return {"log_z": log_z, "mcse": error, "warnings": sorted(messages), "seconds": answers}


def importance(name: str, seed: int) -> Found:
    """Importance sampling from a mixture of three t's that is fitted to NUTS draws."""
    entry = all_models()[name]
    model = entry.build()
    n_points = DEAR_POINTS if entry.dear else POINTS
    target, states = find_target(nuts(model, seed + 200, entry.dear), model, 1)
    fit = GaussianMixture(3, random_state=seed).fit(states.reshape(-1, states.shape[-1]))
    rng = np.random.default_rng(seed)
    laws = [
        multivariate_t(mean, WIDER * covariance, df=DOF, seed=rng)
        for mean, covariance in zip(fit.means_, fit.covariances_, strict=True)
    ]
    counts = rng.multinomial(n_points, fit.weights_)
    x = np.concatenate([law.rvs(n).reshape(n, -1) for law, n in zip(laws, counts, strict=True)])
    parts = [np.log(w) + law.logpdf(x) for w, law in zip(fit.weights_, laws, strict=True)]
    log_p = target.log_density(x)
    log_w = np.where(np.isnan(log_p), -np.inf, log_p) - logsumexp(parts, axis=0)
    log_z = float(logsumexp(log_w) - np.log(n_points))
    w = np.exp(log_w - log_z)
    effective = float(w.sum() ** 2 / (w**2).sum())
    return {
        "log_z": log_z,
        "mcse": float(w.std() / np.sqrt(n_points)),
        "warnings": [],
        "ess": effective,
    }


def annealed_smc(name: str, seed: int) -> Found:
    """Sequential Monte Carlo of this package along the path from the prior: no fit, no ladder."""
    evidence = pmt.smc(
        all_models()[name].build(), n_particles=PARTICLES, islands=ISLANDS, cores=1,
        random_seed=seed, progressbar=False,
    )  # fmt: skip
    return {
        "log_z": evidence.log_z,
        "mcse": evidence.mcse,
        "warnings": list(evidence.warnings),
        "ess": evidence.ess,
    }


def pymc_smc(name: str, seed: int) -> Found:
    """Run `pm.sample_smc` with many particles and slow steps; density and moves are PyMC's own."""
    with all_models()[name].build():
        idata = pm.sample_smc(
            2000, kernel=pm.smc.MH, chains=8, cores=1, random_seed=seed, progressbar=False,
            compute_convergence_checks=False, threshold=0.8,
        )  # fmt: skip
    stages = np.atleast_1d(idata["sample_stats"]["log_marginal_likelihood"].values)
    log_zs = np.array([_last(chain) for chain in stages])
    w = np.exp(log_zs - log_zs.max())
    error = w.std(ddof=1) / w.mean() / np.sqrt(w.size)
    return {
        "log_z": float(logsumexp(log_zs) - np.log(log_zs.size)),
        "mcse": float(error),
        "warnings": [],
        "seconds": json.loads(json.dumps([float(z) for z in log_zs])),
    }


def _last(stages: Any) -> float:
    """Last finite value of a chain's stages."""
    values = np.asarray(stages, dtype=float).ravel()
    return float(values[np.isfinite(values)][-1])


def exact(name: str, seed: int) -> Found:
    """Conjugacy, a sum or quadrature."""
    formula = all_models()[name].exact
    assert formula is not None
    log_z, error = formula()
    return {"log_z": float(log_z), "mcse": error, "warnings": []}


TRUTHS = {
    "exact": exact,
    "importance": importance,
    "long_bridge": long_bridge,
    "annealed_smc": annealed_smc,
    "pymc_smc": pymc_smc,
}
"""Methods by name: (model, seed) to log Z and its error."""

LOW_DIM = 12
"""Dimensions up to which importance sampling is tried."""


def truths_of(name: str) -> tuple[str, ...]:
    """Say which two methods, or which formula, tell the truth of a model."""
    entry = all_models()[name]
    if entry.exact is not None:
        return ("exact",)
    if entry.several:
        return ("annealed_smc", "pymc_smc")
    return ("importance" if entry.dim <= LOW_DIM else "annealed_smc", "long_bridge")
