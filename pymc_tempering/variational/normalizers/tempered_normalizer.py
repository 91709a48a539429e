"""The front door to the tempered normalizer of one random variable."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.censored import CensoredRV
from pymc.distributions.mixture import MixtureRV
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Variable

from pymc_tempering.exceptions import NormalizerError
from pymc_tempering.variational.normalizers import censored, closed, closed_discrete, multivariate
from pymc_tempering.variational.normalizers import mixture_sums as mixtures
from pymc_tempering.variational.normalizers.branches import branch_of, compact_normalizer
from pymc_tempering.variational.normalizers.dispatch import (
    WITHOUT_NORMALIZER,
    label_of,
    largest_temperature,
)
from pymc_tempering.variational.normalizers.panels import log_normalizer_by_quadrature
from pymc_tempering.variational.normalizers.summation import log_normalizer_by_sum, poisson

REGISTERED = (closed, closed_discrete, multivariate, mixtures, censored)
"""Modules that register their formulas when they are imported."""


def without_total_size(rv: Variable) -> Variable:
    """Random variable below the `total_size` that PyMC wraps around it."""
    while rv.owner is not None and isinstance(rv.owner.op, MinibatchRandomVariable):
        rv = rv.owner.inputs[0]
    return rv


def check_random(rv: Variable) -> Variable:
    """Return the random variable without `total_size`; raise an error if it is not one."""
    if not isinstance(rv, Variable):
        raise TypeError(f"rv must be a random variable of PyMC, not {type(rv).__name__}.")
    rv = without_total_size(rv)
    if rv.owner is None or getattr(rv.owner.op, "ndim_supp", None) is None:
        raise NormalizerError(
            f"{rv.name or rv!r} is not a random variable with a density of its own, so it has no "
            f"tempered normalizer. Of the fits, {WITHOUT_NORMALIZER}."
        )
    return rv


def as_temperature(T: Any) -> Variable:
    """Temperature as a float tensor; constants have to be positive and finite."""
    if not isinstance(T, Variable):
        values = np.asarray(T, dtype=float)
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise ValueError(f"The temperature T must be positive and finite, not {T!r}.")
        T = values
    return pt.as_tensor_variable(T).astype("float64")


def normalizer_method(rv: Variable) -> str:
    """Return "closed form", "sum" or "quadrature": how the normalizer of a variable is found.

    Parameters
    ----------
    rv : TensorVariable
    """
    branch = branch_of(check_random(rv))
    if branch in (log_normalizer_by_sum, poisson):
        return "sum"
    return "quadrature" if branch is log_normalizer_by_quadrature else "closed form"


def is_slow_to_compile(rv: Variable) -> bool:
    """Whether a variable's normalizer is an integral, with a large graph."""
    op = rv.owner.op
    if isinstance(op, MixtureRV | CensoredRV) and np.dtype(rv.dtype).kind == "f":
        return True
    return branch_of(rv) is log_normalizer_by_quadrature


def batch_shape(rv: Variable) -> tuple[Variable, ...]:
    """Shape of the variable without the axes of one draw, from the graph alone."""
    ndim_batch = rv.type.ndim - rv.owner.op.ndim_supp
    static = rv.type.shape[:ndim_batch]
    if all(size is not None for size in static):
        return tuple(pt.constant(size, dtype="int64") for size in static)
    return tuple(rv.shape[axis] for axis in range(ndim_batch))


def log_tempered_normalizer(rv: Variable, T: Any) -> Variable:
    r"""Log of the integral of a density to the power 1 / T, as a PyTensor graph.

    .. math:: \log c(\theta, T) = \log \int p(x \mid \theta)^{1/T} \, dx

    A sum takes the place of the integral for discrete variables. It is what variational tempering
    needs of a likelihood: C(T) of equation (3) of Mandt et al. (2016) is the prior average of its
    product over the data (equation 13), and p(x)^(1 / T) / c(T) is a density again.

    Closed forms where they are known, sums over a window that follows the parameters for other
    discrete distributions, quadrature for other univariate densities, each checked when it is
    evaluated; see the page *Tempered normalizers*.

    Parameters
    ----------
    rv : TensorVariable
        A random variable of PyMC, observed or not, or one made with `.dist()`. The density is that
        of the constrained space, and `total_size` plays no part.
    T : float, array or TensorVariable
        Temperature, above 0; an array broadcasts against the batch shape of `rv`.

    Returns
    -------
    TensorVariable
        Shape: the batch shape of `rv` (its shape without the axes of one draw), in nats. It is 0 at
        T = 1, +inf where the tails are too heavy (StudentT from T = nu + 1 on, InverseGamma and
        Pareto from T = alpha + 1 on, Cauchy from T = 2 on), and differentiable in the parameters
        of `rv` and in `T`. Its evaluation raises a `NormalizerError` where a sum gets too long or a
        quadrature fails its own checks.

    Raises
    ------
    NormalizerError
        No normalizer is known for this distribution.
    ValueError
        A temperature that is not positive and finite.

    Examples
    --------
    >>> rv = pm.Normal.dist(0.0, 2.0)
    >>> log_c = pmt.variational.log_tempered_normalizer(rv, 4.0)
    >>> # (2 pi sigma^2)^((1 - 1 / T) / 2) sqrt(T)
    >>> float(log_c.eval().round(3))
    1.902
    """
    rv = check_random(rv)
    temperature = as_temperature(T)
    shape = batch_shape(rv)
    if temperature.type.ndim > len(shape):
        raise ValueError(
            f"T has {temperature.type.ndim} dimensions and {label_of(rv)} has {len(shape)} batch "
            "dimensions: T must broadcast against the elements of the variable."
        )
    result = compact_normalizer(rv, temperature)
    if len(shape) == 0:
        return result
    return pt.broadcast_to(result, shape)


def temperature_limit(rv: Variable) -> Variable:
    """Temperature from which on the normalizer of a variable is infinite, compact; often +inf.

    Parameters
    ----------
    rv : TensorVariable
    """
    rv = check_random(rv)
    return pt.as_tensor_variable(largest_temperature(rv.owner.op, rv))
