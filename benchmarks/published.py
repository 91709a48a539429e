"""Models of published comparisons, with their evidence: radiata pine and Pima Indians, two each.

The data are read from the folder in `$PMT_DATA`, or `../shared/data` beside the repository. Where
they are missing data of the same kind are simulated; the evidence of the regressions is in closed
form for those too, that of the logistic ones is not known then.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pymc as pm
from scipy.special import gammaln

DATA = Path(os.environ.get("PMT_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))

SOURCES = {
    "radiata": "Friel & Wyse (2012); evidence in closed form",
    "pima": "Friel & Wyse (2012); evidence by importance sampling, 200,000 draws",
}
PIMA_COLUMNS = {"pima1": (1, 2, 5, 6), "pima2": (1, 2, 5, 6, 7)}
PIMA_EVIDENCE = {"pima1": (-257.2325, 0.0009), "pima2": (-259.8566, 0.0010)}


@dataclass(frozen=True)
class Published:
    """A model with its evidence.

    Attributes
    ----------
    log_evidence, mcse : float
        Nats; NaN where it is not known (simulated data), an error of zero in closed form.
    simulated : bool
        Whether the data are simulated, since the published ones were not found.
    """

    name: str
    model: pm.Model
    log_evidence: float
    mcse: float
    simulated: bool
    source: str


def radiata_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Strength, density and resin-adjusted density of 42 trees, and whether they are simulated."""
    path = DATA / "radiata_pine.csv"
    if path.exists():
        table = np.loadtxt(path)
        return table[:, 1], table[:, 2], table[:, 3], False
    rng = np.random.default_rng(1)
    density = rng.normal(28.0, 5.0, 42)
    adjusted = 0.9 * density + rng.normal(0.0, 1.5, 42)
    strength = 3000.0 + 185.0 * (adjusted - adjusted.mean()) + rng.normal(0.0, 300.0, 42)
    return strength, density, adjusted, True


def radiata(which: str) -> Published:
    """Regress strength on one of the two densities, with a joint normal-gamma prior.

    y = a + b (x - mean of x) + noise of precision tau, tau ~ Gamma(3, rate 2 * 300^2),
    a ~ N(3000, 1 / (0.06 tau)), b ~ N(185, 1 / (6 tau)).
    """
    y, density, adjusted, simulated = radiata_data()
    x = density if which == "radiata1" else adjusted
    x = x - x.mean()
    shape, rate = 3.0, 2.0 * 300.0**2
    mean, precision = np.array([3000.0, 185.0]), np.array([0.06, 6.0])
    with pm.Model() as model:
        tau = pm.Gamma("tau", shape, rate)
        a = pm.Normal("a", mean[0], tau=precision[0] * tau)
        b = pm.Normal("b", mean[1], tau=precision[1] * tau)
        pm.Normal("y", a + b * x, tau=tau, observed=y)
    # Conjugate: the posterior precision of (a, b) is tau times P + X'X.
    X = np.column_stack([np.ones(y.size), x])
    total = np.diag(precision) + X.T @ X
    center = np.linalg.solve(total, precision * mean + X.T @ y)
    new_rate = rate + 0.5 * (y @ y + precision @ mean**2 - center @ total @ center)
    new_shape = shape + 0.5 * y.size
    log_z = 0.5 * (
        np.log(precision).sum() - np.linalg.slogdet(total)[1] - y.size * np.log(2 * np.pi)
    )
    log_z += (
        gammaln(new_shape) - gammaln(shape) + shape * np.log(rate) - new_shape * np.log(new_rate)
    )
    return Published(which, model, float(log_z), 0.0, simulated, SOURCES["radiata"])


def pima_data() -> tuple[np.ndarray, bool]:
    """Response and seven covariates, shape (532, 8), and whether they are simulated."""
    path = DATA / "pima_indian.csv"
    if path.exists():
        return np.loadtxt(path), False
    rng = np.random.default_rng(2)
    X = rng.normal(size=(532, 7))
    odds = -1.0 + X @ np.array([0.4, 1.1, 0.0, 0.0, 0.6, 0.4, 0.3])
    y = rng.random(532) < 1.0 / (1.0 + np.exp(-odds))
    return np.column_stack([y, X]), True


def pima(which: str) -> Published:
    """Logistic regression on an intercept and four or five covariates, coefficients N(0, 10^2)."""
    table, simulated = pima_data()
    columns = list(PIMA_COLUMNS[which])
    X = np.column_stack([np.ones(len(table)), table[:, columns]])
    with pm.Model() as model:
        coef = pm.Normal("coef", 0.0, 10.0, shape=X.shape[1])
        pm.Bernoulli("y", logit_p=X @ coef, observed=table[:, 0].astype(int))
    log_evidence, mcse = (np.nan, np.nan) if simulated else PIMA_EVIDENCE[which]
    return Published(which, model, log_evidence, mcse, simulated, SOURCES["pima"])


PUBLISHED: dict[str, Callable[[], Published]] = {
    **{name: partial(radiata, name) for name in ("radiata1", "radiata2")},
    **{name: partial(pima, name) for name in ("pima1", "pima2")},
}
"""Every model by name, built anew at each call."""
