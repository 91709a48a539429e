"""Dispatch on the op of a random variable, as PyMC's logprob does, and what all branches share.

A branch takes (op, rv, temperature) and returns log of the integral of p(x | theta)^(1 / T) dx,
in nats, with as few elements as the parameters have: nothing here is broadcast to the size of
the variable, so that a likelihood of N data with one scale costs one number.
"""

from collections.abc import Callable
from functools import singledispatch
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise

from pymc_tempering.borrowed.pymc_models import print_name_of
from pymc_tempering.exceptions import NormalizerError

WITHOUT_NORMALIZER = 'method="annealed" needs no normalizer'


def label_of(rv: Variable) -> str:
    """Name of a variable and of its distribution, for messages."""
    op = rv.owner.op if rv.owner is not None else None
    kind = print_name_of(op) or getattr(op, "name", None) or type(op).__name__
    return f"{rv.name!r} ({kind})" if rv.name else str(kind)


def no_normalizer(rv: Variable, why: str) -> NormalizerError:
    """Error for a variable without a normalizer, with the reason."""
    return NormalizerError(
        f"No tempered normalizer is known for {label_of(rv)}: {why}. Of the fits, "
        f"{WITHOUT_NORMALIZER}."
    )


@singledispatch
def log_normalizer(op: Op, rv: Variable, temperature: Variable) -> Variable:
    """Log of the integral (sum) of p(x)^(1 / T); `NormalizerError` where none is known."""
    raise no_normalizer(
        rv,
        "it is neither univariate nor has it a closed form here; with fixed parameters "
        "pymc_tempering.variational.monte_carlo_normalizer may give a number",
    )


@singledispatch
def largest_temperature(op: Op, rv: Variable) -> Variable:
    """Temperature from which on the normalizer is infinite; infinity where it never is."""
    return pt.constant(np.inf)


def params_of(rv: Variable) -> tuple[Variable, ...]:
    """Distribution parameters of a random variable, as floats."""
    params = rv.owner.op.dist_params(rv.owner)
    return tuple(p.astype("float64") for p in params)


def finite_below(limit: Variable, temperature: Variable, formula: Callable) -> Variable:
    """`formula(T)` below `limit`, +inf from there on, with a gradient that is never NaN."""
    below = pt.lt(temperature, limit)
    return pt.switch(below, formula(pt.switch(below, temperature, 1.0)), np.inf)


def register_closed(op_type: type[Op], conditions: Callable, message: str) -> Callable:
    """Register a closed form, a function of (T, *parameters), for a type of op.

    `conditions(*parameters)` are those that PyMC's own density checks; `message` says them.
    """

    def decorate(formula: Callable) -> Callable:
        def branch(op: Op, rv: Variable, temperature: Variable) -> Variable:
            params = params_of(rv)
            return check_parameters(
                formula(temperature, *params), *conditions(*params), msg=message
            )

        log_normalizer.register(op_type, branch)
        return formula

    return decorate


def register_limit(op_type: type[Op]) -> Callable:
    """Register the largest temperature, a function of the parameters, for a type of op."""

    def decorate(limit: Callable) -> Callable:
        largest_temperature.register(op_type, lambda op, rv: limit(*params_of(rv)))
        return limit

    return decorate


def require(value: Variable, condition: Variable, message: str) -> Variable:
    """Value whose evaluation raises a `NormalizerError` where a condition is false."""
    return CheckAndRaise(NormalizerError, message)(value, pt.all(condition))


def is_unbounded(bound: Any) -> bool:
    """Whether a bound is None or an infinite constant."""
    data = getattr(bound, "data", bound)
    return bound is None or (isinstance(data, np.ndarray | float) and bool(np.isinf(data).all()))
