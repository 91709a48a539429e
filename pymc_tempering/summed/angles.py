"""Angles as real numbers: each circle is cut where the posterior has least.

A mixture of t's cannot be fitted on a circle, and a mode that lies across the place where a circle
is closed looks like two. So a circle is cut opposite to the modes that climbs from the prior find,
and what is left is an interval with a logit transform.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.initial_point import make_initial_point_fn
from pymc.logprob.transforms import Transform
from pytensor.graph.basic import Variable
from pytensor.xtensor import as_xtensor
from pytensor.xtensor.type import XTensorType
from scipy.optimize import minimize
from scipy.special import expit

from pymc_tempering.model.layout import is_circular, is_discrete, model_layout
from pymc_tempering.model.python_mode import python_mode

N_STARTS, N_CLIMBS, N_STEPS = 40, 6, 60
"""Draws of the prior, climbs from the best of them, and steps of each."""

NEAR = 10.0
"""Log density below the best within which the end of a climb counts as a mode (nats)."""

N_PLACES = 64
"""Places at which a circle may be cut."""


class CutTransform(Transform):
    """From angles in [-pi, pi) to real numbers, by the logit of the way from a cut.

    Parameters
    ----------
    place : array
        Angle of the cut, for each element.
    """

    name = "cut"
    ndim_supp = 0

    def __init__(self, place: np.ndarray) -> None:
        self.place = place

    def backward(self, value: Variable, *inputs: Variable) -> Variable:
        """Angles of real numbers."""
        angle = self.place + 2 * np.pi * pt.sigmoid(_plain(value))
        return _as(value, angle - 2 * np.pi * pt.floor((angle + np.pi) / (2 * np.pi)))

    def forward(self, value: Variable, *inputs: Variable) -> Variable:
        """Real numbers of angles."""
        turns = (_plain(value) - self.place) / (2 * np.pi)
        way = turns - pt.floor(turns)
        return _as(value, pt.log(way) - pt.log1p(-way))

    def log_jac_det(self, value: Variable, *inputs: Variable) -> Variable:
        """Log of the derivative of `backward`."""
        real = _plain(value)
        return _as(value, np.log(2 * np.pi) - pt.softplus(real) - pt.softplus(-real))


def _plain(value: Variable) -> Variable:
    """Return a variable without names of dimensions."""
    return value.values if isinstance(value.type, XTensorType) else value


def _as(value: Variable, result: Variable) -> Variable:
    """Give a result the names of dimensions that a value has."""
    named = isinstance(value.type, XTensorType)
    return as_xtensor(result, dims=value.type.dims) if named else result


def angle_of(value: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Angles in [-pi, pi) of real numbers, as :class:`CutTransform` has them."""
    angle = place + 2 * np.pi * expit(value)
    return angle - 2 * np.pi * np.floor((angle + np.pi) / (2 * np.pi))


def log_slope(value: np.ndarray) -> np.ndarray:
    """Log of the derivative of :func:`angle_of`."""
    return np.log(2 * np.pi) - np.logaddexp(0.0, value) - np.logaddexp(0.0, -value)


def circular(model: pm.Model) -> list[Variable]:
    """Free variables on a circle."""
    return [rv for rv in model.free_RVs if is_circular(model, rv)]


def cut_angles(model: pm.Model) -> dict[str, np.ndarray]:
    """Cut the circles of a model, which is changed, and return the cuts by variable."""
    angles = circular(model)
    if not angles:
        return {}
    modes = find_modes(model)
    cuts = {rv.name: emptiest(modes[model.rvs_to_values[rv].name]) for rv in angles}
    for rv in angles:
        transform = CutTransform(cuts[rv.name])
        model.values_to_rvs.pop(model.rvs_to_values[rv])
        value = rv.type(name=f"{rv.name}_{transform.name}__")
        model.rvs_to_values[rv], model.values_to_rvs[value] = value, rv
        model.rvs_to_transforms[rv] = transform
    return cuts


def find_modes(model: pm.Model) -> dict[str, np.ndarray]:
    """Climb from the prior; returns where, by value variable, shape (number of modes, ...)."""
    start = make_initial_point_fn(model=model, default_strategy="prior")
    layout = model_layout(model)
    real = [rv for rv in model.free_RVs if not is_discrete(rv)]
    with np.errstate(all="ignore"):
        log_p = model.compile_logp(mode=python_mode())
        slope = model.compile_dlogp(vars=real, mode=python_mode())
        moved = ~layout.whole_numbers

        def cost(x: np.ndarray, whole: np.ndarray) -> tuple[float, np.ndarray]:
            point = layout.unravel(np.where(moved, _spread(x, moved), whole))
            value, grad = float(log_p(point)), np.asarray(slope(point))
            if not (np.isfinite(value) and np.isfinite(grad).all()):
                return 1e100, np.zeros(x.size)
            return -value, -grad

        starts = [layout.ravel(start(seed)) for seed in range(N_STARTS)]
        starts.sort(key=lambda x: cost(x[moved], x)[0])
        ends = []
        for x in starts[:N_CLIMBS]:
            found = minimize(
                cost, x[moved], args=(x,), jac=True, method="L-BFGS-B", options={"maxiter": N_STEPS}
            )
            ends.append((found.fun, np.where(moved, _spread(found.x, moved), x)))
    best = min(value for value, _ in ends)
    return layout.unravel(np.array([x for value, x in ends if value <= best + NEAR]))


def _spread(x: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Put numbers where a mask is true."""
    whole = np.zeros(moved.size)
    whole[moved] = x
    return whole


def emptiest(angles: np.ndarray) -> np.ndarray:
    """Angles far from all modes, for each element of modes of shape (n, ...)."""
    places = np.linspace(-np.pi, np.pi, N_PLACES, endpoint=False)
    places = places.reshape(-1, *[1] * angles.ndim)
    distance = np.abs(np.angle(np.exp(1j * (angles - places)))).min(axis=1)
    return places.ravel()[distance.argmax(axis=0)]
