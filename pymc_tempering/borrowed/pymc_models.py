"""Private parts of PyMC and PyTensor that say what a model's variables are; see `borrowed`."""

from typing import Any

from pymc.distributions.mixture import _BaseMixtureRV as AnyMixtureRV
from pymc.distributions.mixture import _HurdleRV as HurdleRV
from pymc.distributions.transforms import _default_transform as default_transform
from pymc.logprob.abstract import _logprob as log_density_of_op

__all__ = (
    "AnyMixtureRV",
    "HurdleRV",
    "default_transform",
    "infer_shape",
    "log_density_of_op",
    "print_name_of",
)


def infer_shape(op: Any, size: Any, params: Any) -> Any:
    """Return the shape of a random variable by its parameters, without a draw."""
    return op._infer_shape(size, params)


def print_name_of(op: Any) -> str | None:
    """Return the name of a distribution as PyMC prints it, if it has one."""
    names = getattr(op, "_print_name", None)
    return names[0] if names else None
