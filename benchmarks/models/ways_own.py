"""Ways with models of their own: `pymc.dims` and Bambi."""

from functools import partial
from typing import Any

import bambi as bmb
import numpy as np
import pandas as pd
import pymc as pm
import pymc.dims as pmd
import pytensor.xtensor as ptx
from scipy.special import logsumexp
from scipy.stats import bernoulli, halfnorm, multivariate_normal, norm, poisson

from benchmarks.models import ways_kinds as kinds
from benchmarks.models.ways_kinds_second import SPARSE, WAVE, truth_angle, truth_spikes
from benchmarks.models.ways_writer import Way


class Own(kinds.Kind):
    """A kind of one spelling: `write` is given its data and returns the model."""

    def build(self, way: Way) -> pm.Model:
        """Write it."""
        return self.write(way.values(self.y))


def _rows(y: np.ndarray, **more: int) -> pm.Model:
    return pm.Model(coords={"row": range(len(y))} | {d: range(n) for d, n in more.items()})


def _seen(mean: Any, y: np.ndarray) -> None:
    pmd.Normal("y", mean, 1, observed=pmd.Data("y data", y, dims="row"))


def _normal(y: np.ndarray) -> pm.Model:
    with _rows(y) as model:
        mu = pmd.Normal("mu", 0, 2)
        _seen(mu, y)
    return model


def _groups(y: np.ndarray) -> pm.Model:
    with _rows(y) as model:
        spread = pmd.HalfNormal("spread", 2)
        _seen(pmd.Normal("effect", 0, spread, dims="row"), y)
    return model


def _labels(y: np.ndarray) -> pm.Model:
    with _rows(y, k=2) as model:
        mu = pmd.Normal("mu", 0, 2, dims="k")
        share = ptx.as_xtensor(np.array([0.4, 0.6]), dims=("k",))
        z = pmd.Categorical("z", share, core_dims="k", dims="row")
        _seen(mu.isel(k=z), y)
    return model


def _counts(y: np.ndarray) -> pm.Model:
    with _rows(y) as model:
        rate = pmd.Gamma("rate", 2, 1)
        _seen(pmd.Poisson("n", rate, dims="row"), y)
    return model


def _near(n: int) -> np.ndarray:
    return np.exp(-np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / 2)


def _field(y: np.ndarray) -> pm.Model:
    near = ptx.as_xtensor(_near(len(y)), dims=("row", "col"))
    mean = ptx.as_xtensor(np.zeros(len(y)), dims=("row",))
    with _rows(y, col=len(y)) as model:
        height = pmd.HalfNormal("height", 2)
        _seen(pmd.MvNormal("f", mean, height**2 * near, core_dims=("row", "col"), dims="row"), y)
    return model


def truth_field(y: np.ndarray) -> float:
    """Quadrature over the height of the field."""

    def at(height: float) -> float:
        cov = height**2 * _near(len(y)) + np.eye(len(y))
        return float(halfnorm.logpdf(height, 0, 2) + multivariate_normal.logpdf(y, 0 * y, cov))

    return kinds.log_integral(at, 0.0, 24.0)


def _angle(y: np.ndarray) -> pm.Model:
    turn = ptx.as_xtensor(np.pi / 3 * np.arange(len(y)), dims=("row",))
    with _rows(y) as model:
        phase = pmd.VonMises("phase", 1, 0.5)
        height = pmd.Normal("height", 1, 2)
        _seen(height * ptx.math.cos(turn - phase), y)
    return model


def _spikes(y: np.ndarray) -> pm.Model:
    with _rows(y) as model:
        share = pmd.Beta("share", 1, 2)
        there = pmd.Bernoulli("there", share, dims="row")
        _seen(there * pmd.Normal("slope", 0, 3, dims="row"), y)
    return model


X = np.array([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0])
GROUPS = np.array(["a", "b", "c", "a", "b", "c"])
HITS = np.array([0.0, 1.0, 0.0, 1.0, 1.0, 1.0])


def _prior(kind: str, *args: float, **more: Any) -> bmb.Prior:
    return bmb.Prior(kind, **dict(zip(("mu", "sigma"), args, strict=False)), **more)


def _bambi(formula: str, y: np.ndarray, priors: dict[str, Any], **more: Any) -> pm.Model:
    n = len(y)
    table = pd.DataFrame({"y": y, "x": X[:n], "g": GROUPS[:n]})
    model = bmb.Model(formula, table, priors=priors, **more)
    model.build()
    return model.backend.model


LINE = {"Intercept": _prior("Normal", 0, 2), "x": _prior("Normal", 0, 1)}
WIDTH = _prior("HalfNormal", sigma=2)


def _regression(y: np.ndarray) -> pm.Model:
    return _bambi("y ~ x", y, LINE | {"sigma": WIDTH}, center_predictors=False)


def truth_regression(y: np.ndarray) -> float:
    """Quadrature over the scale."""
    x = X[: len(y)]

    def at(sigma: float) -> float:
        cov = sigma**2 * np.eye(len(y)) + 4 + np.outer(x, x)
        return float(halfnorm.logpdf(sigma, 0, 2) + multivariate_normal.logpdf(y, 0 * y, cov))

    return kinds.log_integral(at, 1e-4, 24.0)


def _centered(y: np.ndarray) -> pm.Model:
    return _bambi("y ~ x", y, LINE | {"sigma": 1})


def truth_centered(y: np.ndarray) -> float:
    """Closed form; the intercept is at the mean of the predictor."""
    x = X[: len(y)] - X[: len(y)].mean()
    return float(multivariate_normal.logpdf(y, 0 * y, np.eye(len(y)) + 4 + np.outer(x, x)))


def _effects(y: np.ndarray, noncentered: bool = True) -> pm.Model:
    priors = {"Intercept": LINE["Intercept"], "1|g": _prior("Normal", 0, WIDTH), "sigma": 1}
    return _bambi("y ~ 1 + (1|g)", y, priors, noncentered=noncentered)


def truth_effects(y: np.ndarray) -> float:
    """Quadrature over the spread of the groups."""
    same = (GROUPS[:, None] == GROUPS[None, :])[: len(y), : len(y)]

    def at(spread: float) -> float:
        cov = np.eye(len(y)) + 4 + spread**2 * same
        return float(halfnorm.logpdf(spread, 0, 2) + multivariate_normal.logpdf(y, 0 * y, cov))

    return kinds.log_integral(at, 0.0, 24.0)


def _poisson(y: np.ndarray) -> pm.Model:
    return _bambi("y ~ x", y.astype(int), LINE, family="poisson", center_predictors=False)


def _logistic(y: np.ndarray) -> pm.Model:
    return _bambi("y ~ x", y.astype(int), LINE, family="bernoulli", center_predictors=False)


def _on_a_grid(y: np.ndarray, law: Any, mean: Any) -> float:
    """Log of an integral over intercept and slope, each a sum over a grid of 10 sd of the prior."""
    a, b = np.linspace(-20, 20, 801)[:, None], np.linspace(-10, 10, 801)[None, :]
    terms = norm.logpdf(a, 0, 2) + norm.logpdf(b)
    for value, x in zip(y, X[: len(y)], strict=True):
        terms = terms + law.logpmf(value, mean(a + b * x))
    return float(logsumexp(terms) + np.log(0.05 * 0.025))


def truth_poisson(y: np.ndarray) -> float:
    """Sum over a grid."""
    return _on_a_grid(y, poisson, np.exp)


def truth_logistic(y: np.ndarray) -> float:
    """Sum over a grid."""
    return _on_a_grid(y, bernoulli, lambda line: 1 / (1 + np.exp(-line)))


_as_they_are = partial(_effects, noncentered=False)
DIMS, BAMBI = Way("pymc.dims"), Way("Bambi")

OWN: list[tuple[Way, kinds.Kind]] = [
    (DIMS, Own("continuous", kinds.Y, _normal, kinds.truth_normal, {})),
    (DIMS, Own("hierarchical", kinds.Y, _groups, kinds.truth_groups, {})),
    (DIMS, Own("labels", kinds.Y, _labels, kinds.truth_labels, {})),
    (DIMS, Own("counts", kinds.COUNTS, _counts, kinds.truth_counts, {})),
    (DIMS, Own("fields", kinds.Y, _field, truth_field, {})),
    (DIMS, Own("angles", WAVE, _angle, truth_angle, {})),
    (DIMS, Own("spike and slab", SPARSE, _spikes, truth_spikes, {})),
    (BAMBI, Own("regression", kinds.Y, _regression, truth_regression, {})),
    (BAMBI, Own("regression, centered", kinds.Y, _centered, truth_centered, {})),
    (BAMBI, Own("group effects", kinds.Y, _effects, truth_effects, {})),
    (BAMBI, Own("group effects as they are", kinds.Y, _as_they_are, truth_effects, {})),
    (BAMBI, Own("counts by a line", kinds.COUNTS, _poisson, truth_poisson, {})),
    (BAMBI, Own("hits by a line", HITS, _logistic, truth_logistic, {})),
]
