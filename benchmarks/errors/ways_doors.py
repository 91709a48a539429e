"""What each front door of the package says of a model, in few draws."""

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm

import pymc_tempering as pmt
from benchmarks.models.ways_kinds import Kind
from benchmarks.models.ways_writer import Way
from pymc_tempering.evidence import Evidence

QUIET: dict[str, Any] = {"random_seed": 1, "quiet": True, "progressbar": False}
SMALL: dict[str, Any] = {"draws": 200, "chains": 2, "cores": 1, **QUIET}


@cache
def built(way: Way, kind: Kind) -> pm.Model:
    """Write the model of a cell, once in a process."""
    return kind.build(way)


@cache
def _drawn(way: Way, kind: Kind) -> Any:
    return pmt.sample(model=built(way, kind), **SMALL)


def _sample(way: Way, kind: Kind) -> Any:
    run = pmt.sample(model=built(way, kind), cores=1, **QUIET)
    return pmt.log_marginal_likelihood(run)


def _by_step(way: Way, kind: Kind) -> Any:
    with built(way, kind):
        run = pm.sample(
            200, tune=0, chains=2, cores=1, step=pmt.SimulatedTempering(), progressbar=False,
            random_seed=1, compute_convergence_checks=False,
        )  # fmt: skip
    return pmt.log_marginal_likelihood(run)


def _bridge(way: Way, kind: Kind) -> Any:
    return pmt.bridge_sampling(_drawn(way, kind), built(way, kind), random_seed=1)


def _importance(way: Way, kind: Kind) -> Any:
    return pmt.importance_sampling(_drawn(way, kind), built(way, kind), random_seed=1)


def _smc(way: Way, kind: Kind) -> Any:
    return pmt.smc(built(way, kind), **QUIET)


def _ais(way: Way, kind: Kind) -> Any:
    return pmt.ais(built(way, kind), **QUIET)


def _thermodynamic_integration(way: Way, kind: Kind) -> Any:
    return pmt.thermodynamic_integration(built(way, kind), **QUIET)


def _cross_check(way: Way, kind: Kind) -> Any:
    model, run = built(way, kind), _drawn(way, kind)
    check = pmt.cross_check(run, model, methods=["bridge_sampling", "ais"], **QUIET)
    return check.table.iloc[0].log_z


def _fit(way: Way, kind: Kind) -> None:
    pmt.fit(2000, model=built(way, kind), random_seed=1, progressbar=False)


def _compare(way: Way, kind: Kind) -> None:
    run = _drawn(way, kind)
    pmt.compare({"a": run, "b": run})
    pmt.bayes_factor(run, run)


def _extend(way: Way, kind: Kind) -> Any:
    run = pmt.extend(
        _drawn(way, kind), draws=100, model=built(way, kind), quiet=True, progressbar=False
    )
    return pmt.log_marginal_likelihood(run)


def _resume(way: Way, kind: Kind) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        pmt.sample(model=built(way, kind), checkpoint=path, **SMALL)
        run = pmt.resume(path, model=built(way, kind), quiet=True, progressbar=False)
    return pmt.log_marginal_likelihood(run)


def _sample_many(way: Way, kind: Kind) -> Any:
    table = pmt.sample_many({"a": built(way, kind)}, draws=200, chains=2, **QUIET)
    row = table.iloc[0]
    if row.verdict == "failed":
        raise pmt.TemperingError(str(row.message))
    return row.log_z


def _calibrate(way: Way, kind: Kind) -> None:
    models = {name: built(way, kind) for name in "ab"}
    pmt.calibrate(models, 1, draws=100, chains=2, **QUIET)


def _prior_sensitivity(way: Way, kind: Kind) -> None:
    name = _a_real(built(way, kind)).name
    scale = {name: [0.5, 1.0, 2.0]}
    pmt.prior_sensitivity(_drawn(way, kind), built(way, kind), scale, rerun=False, **QUIET)


def _a_real(model: pm.Model) -> Any:
    """First free variable on the real line, or else of real numbers."""
    real = [rv for rv in model.free_RVs if rv.dtype.startswith("float")]
    return next((rv for rv in real if model.rvs_to_transforms[rv] is None), real[0])


def _savage_dickey(way: Way, kind: Kind) -> None:
    model = built(way, kind)
    pmt.savage_dickey(_drawn(way, kind), model, null={_a_real(model).name: 1.0}, **QUIET)


def _compile(way: Way, kind: Kind) -> Any:
    run = pmt.sample(model=pmt.compile(built(way, kind)), **SMALL)
    return pmt.log_marginal_likelihood(run)


DOORS: dict[str, Callable[[Way, Kind], Any]] = {
    "sample": _sample, "pm.sample(step=...)": _by_step, "bridge_sampling": _bridge,
    "importance_sampling": _importance, "smc": _smc, "ais": _ais,
    "thermodynamic_integration": _thermodynamic_integration, "cross_check": _cross_check,
    "fit": _fit, "compare": _compare, "extend": _extend, "resume": _resume,
    "sample_many": _sample_many, "calibrate": _calibrate, "prior_sensitivity": _prior_sensitivity,
    "savage_dickey": _savage_dickey, "compile": _compile,
}  # fmt: skip
"""By name; what they return is an `Evidence`, or log Z, or nothing."""


def answer(door: str, way: Way, kind: Kind) -> tuple[float, float, str]:
    """Return log Z, its error and the verdict of a front door; NaN and "" where it has none."""
    found = DOORS[door](way, kind)
    if isinstance(found, Evidence):
        return found.log_z, found.mcse, found.verdict
    return float(np.nan if found is None else found), float("nan"), ""
