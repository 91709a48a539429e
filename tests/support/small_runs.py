"""The smallest model with data to exchange, its exact evidence, and all front doors on it."""

import numpy as np
import pymc as pm
from scipy import stats

import pymc_tempering as pmt
from pymc_tempering.storage.plain_values import unpack

SHORT = {"draws": 60, "chains": 2, "reference": "prior", "random_seed": 3, "progressbar": False}
"""Arguments of `sample_many` for runs of a tenth of a second."""

DATASETS = {"near": {"y": [0.5, 1.0]}, "far": {"y": [3.0, 4.5]}, "apart": {"y": [-2.0, 2.0]}}


def mean_of_two(y=(0.5, 1.0)):
    """The mean of a normal, of two data."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        pm.Normal("y", mu, 1.0, observed=list(y))
    return model


def exact_log_z(y):
    """Log evidence of `mean_of_two`."""
    return float(stats.multivariate_normal(np.zeros(2), np.eye(2) + 4.0).logpdf(y))


def numbers_of(result):
    """All numbers of a result that are not times, as arrays by name."""
    if hasattr(result, "columns"):
        kept = [c for c in ("log_z", "mcse", "verdict", "ess", "message") if c in result]
        return {"names": result.index.values} | {c: result[c].values for c in kept}
    if hasattr(result, "children"):
        groups = [g for g in result.children if g not in ("tempering", "observed_data")]
        kept = {f"{g}/{k}": v.values for g in groups for k, v in result[g].data_vars.items()}
        parts = {name: kept.pop(name) for name in [*kept] if name.startswith("tempering_plan/")}
        for name, part in parts.items():
            words, arrays = unpack(part.tobytes())  # the words hold times
            assert words
            kept |= {f"{name}/{k}": values for k, values in arrays.items()}
        return kept
    if hasattr(result, "table"):
        kept = {c: result.table[c].values for c in ("log_z", "mcse", "n_evaluations")}
        return kept | {"methods": result.table.index.values, "looks": str(result.draws)}
    if hasattr(result, "restarts"):
        return {
            f"{i} {name}": value
            for i, fit in enumerate(result.restarts)
            for name, value in {
                "loss": fit.hist,
                "elbo": fit.tempering.elbo,
                "log_z": fit.tempering.evidence.log_z,
                **{k: p.get_value() for k, p in fit.groups[0].shared_params.items()},
            }.items()
        }
    return {"log_z": result.log_z, "mcse": result.mcse, "curve": result.log_z_curve}


def same_numbers(one, other):
    """Whether two results are the same to the bit, times left out."""
    one, other = numbers_of(one), numbers_of(other)
    return one.keys() == other.keys() and all(
        np.array_equal(a, other[k], equal_nan=np.asarray(a).dtype.kind == "f")
        for k, a in one.items()
    )


def front_doors(model, idata):
    """Functions of an executor, by name, that call each front door which takes one."""
    few = {"n_particles": 70, "betas": 6, "random_seed": 3, "progressbar": False}
    return {
        "sample_many": lambda executor: pmt.sample_many(
            model, DATASETS, executor=executor, **SHORT
        ),
        "sample": lambda executor: pmt.sample(
            60, model=model, keep="states", chains=3, random_seed=3, quiet=True, executor=executor
        ),
        "ais": lambda executor: pmt.ais(model, executor=executor, **few),
        "hais": lambda executor: pmt.annealed.hais(model, executor=executor, **few),
        "reverse_ais": lambda executor: pmt.reverse_ais(idata, model, executor=executor, **few),
        "sandwich": lambda executor: pmt.sandwich(idata, model, executor=executor, **few).upper,
        "smc": lambda executor: pmt.smc(
            model, n_particles=50, islands=10, random_seed=3, progressbar=False, executor=executor
        ),
        "thermodynamic_integration": lambda executor: pmt.thermodynamic_integration(
            model, draws=50, chains=2, betas=4, random_seed=3, progressbar=False, executor=executor
        ),
        "raise_": lambda executor: pmt.annealed.raise_(
            {"mu": 0.5}, model, executor=executor, **few
        ),
        "cross_check": lambda executor: pmt.cross_check(
            idata,
            model,
            ["bridge_sampling", "smc", "ais", "reverse_ais"],
            random_seed=3,
            executor=executor,
            progressbar=False,
        ),
        "fit": lambda executor: pmt.fit(
            60, model=model, restarts=3, random_seed=3, progressbar=False, executor=executor
        ),
    }
