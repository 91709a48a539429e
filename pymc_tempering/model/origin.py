"""The model that a user gave, where a run has one from which some variables are summed out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pymc as pm

from pymc_tempering.core.findings import Finding
from pymc_tempering.exceptions import ModelError
from pymc_tempering.model.memory import remembered


@dataclass(frozen=True, eq=False)
class Origin:
    """What a model without some variables was made of.

    Attributes
    ----------
    model : pymc.Model
        A copy of the whole model.
    whole : callable
        Of raveled draws of the model without them, shape (n, d), it returns those of the whole
        model, shape (n, D): the variables that were summed out are drawn given the others. A row
        has the same draws whenever it is asked for.
    check : callable
        Of raveled draws, shape (n, d), it returns findings about sums that are not exact there.
    n_white : int
        Number of its last coordinates that are standard normal, or nearly so.
    log_change : callable
        Log density of the whole model, without `leaves`, at what `whole` returns, less that of the
        model without them, at raveled draws, shape (n,), nats.
    leaves : tuple of str
        Variables that were taken out and that nothing observed depends on.
    log_volume : callable, optional
        Log density of the whole model less that of the model without them, at raveled draws, where
        that is a change of variables: shape (n,), nats.
    kernels : dict of str to Kernel
        Kernels of variables, by name, where they are others than by default.
    ends : dict of str to int
        How far counts had to be summed at least, by name.
    """

    model: pm.Model
    whole: Callable[[np.ndarray], np.ndarray]
    check: Callable[[np.ndarray], list[Finding]]
    log_change: Callable[[np.ndarray], np.ndarray]
    leaves: tuple[str, ...] = ()
    n_white: int = 0
    log_volume: Callable[[np.ndarray], np.ndarray] | None = None
    kernels: dict[str, Any] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)


def origin_of(model: pm.Model) -> Origin | None:
    """Return what a model was made of by summing out; None if it was not."""
    return getattr(model, "summed_from", None)


def whole_model(model: pm.Model) -> pm.Model:
    """Return the model with all variables that the user named."""
    origin = origin_of(model)
    return model if origin is None else origin.model


class ShortSumError(Exception):
    """A sum over a count ends too early; it is longer when the model is rewritten again."""


MOST_TIMES = 5
"""How often a model is rewritten with longer sums."""


def with_longer_sums[T](work: Callable[[], T]) -> T:
    """Return what `work` returns, which is done again after a sum was found to end too early.

    Raises
    ------
    ModelError
        That does not help.
    """
    for _ in range(MOST_TIMES):
        try:
            return work()
        except ShortSumError as error:
            last = error
    raise ModelError(str(last))


def check_ends(findings: Sequence[Finding]) -> None:
    """Raise a `ShortSumError` if a sum was found to end too early."""
    for finding in findings:
        if finding.code == "sum_too_short":
            raise ShortSumError(f"{finding}.")


ENDS = "ends of sums"
"""Under which they are kept beside a model."""


def known_ends(model: pm.Model) -> dict[str, int]:
    """How far counts of a model have to be summed at least, by name, as checks have found."""
    return remembered(model, ENDS, dict[str, int])


def set_ends(model: pm.Model, ends: Mapping[str, int]) -> None:
    """Have sums go as far as in a run that was stored."""
    known = known_ends(model)
    known.clear()
    known.update(ends)
