"""The likelihood terms of a model and their tempered normalizers."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.variational.minibatch_rv import MinibatchRandomVariable, get_scaling
from pytensor.graph.basic import Variable

from pymc_tempering.exceptions import ModelError, NormalizerError
from pymc_tempering.variational.normalizers.branches import compact_normalizer
from pymc_tempering.variational.normalizers.dispatch import WITHOUT_NORMALIZER
from pymc_tempering.variational.normalizers.tempered_normalizer import (
    as_temperature,
    check_random,
    log_tempered_normalizer,
)


def check_temperatures(temperatures: Sequence[float] | np.ndarray) -> np.ndarray:
    """Temperatures as an increasing array, shape (M,), none below 1.

    Parameters
    ----------
    temperatures : sequence of float

    Raises
    ------
    ValueError
        If they are none, not one-dimensional, not finite, below 1, or not increasing.
    """
    values = np.asarray(temperatures, dtype=float)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(
            f"temperatures must be a list of one or more numbers, not {temperatures!r}."
        )
    if not np.isfinite(values).all() or (values < 1.0).any():
        bad = values[~(np.isfinite(values) & (values >= 1.0))][0]
        raise ValueError(f"temperatures must be finite and at least 1; {bad:g} is not.")
    if (np.diff(values) <= 0).any():
        at = int(np.argmax(np.diff(values) <= 0))
        raise ValueError(
            f"temperatures must increase: {values[at]:g} is followed by {values[at + 1]:g}."
        )
    return values


def likelihood_terms(model: pm.Model) -> list[Variable]:
    """Observed random variables of a model, with what `total_size` wraps around them.

    Raises
    ------
    NormalizerError
        If there is a potential, which is no density and has no normalizer.
    ModelError
        If nothing is observed.
    """
    if model.potentials:
        names = ", ".join(repr(potential.name) for potential in model.potentials)
        raise NormalizerError(
            f"The potential {names} belongs to the likelihood and is no density of data, so it "
            "has no tempered normalizer. Write it as an observed variable (pm.CustomDist); of the "
            f"fits, {WITHOUT_NORMALIZER}."
        )
    if not model.observed_RVs:
        raise ModelError(
            "The model has no observed data, so there is nothing to temper. Pass `observed=`."
        )
    return list(model.observed_RVs)


def scale_of(rv: Variable, shape: tuple[Any, ...]) -> Any:
    """Factor by which `total_size` multiplies the log-likelihood of a variable."""
    if not isinstance(rv.owner.op, MinibatchRandomVariable):
        return 1.0
    sizes = pt.stack(shape) if shape else pt.as_tensor(np.array([], dtype="int64"))
    return get_scaling(rv.owner.inputs[1:], sizes)


def sum_over(compact: Variable, shape: tuple[Any, ...]) -> Variable:
    """Sum of what broadcasts to a shape, without the broadcasting."""
    count = pt.prod(pt.stack(shape)) if shape else pt.constant(1)
    return pt.mean(compact) * count


def term_totals(model: pm.Model, temperature: Variable) -> Iterator[tuple[Variable, Variable]]:
    """Each likelihood term with its log normalizer, summed over data and scaled by total_size."""
    for rv in likelihood_terms(model):
        bare = check_random(rv)
        compact = compact_normalizer(bare, temperature)
        value = model.rvs_to_values[rv]  # its shape, not that of a new draw
        full = tuple(
            value.shape[axis] if size is None else pt.constant(size, dtype="int64")
            for axis, size in enumerate(rv.type.shape)
        )
        batch = full[: rv.type.ndim - bare.owner.op.ndim_supp]
        yield rv, sum_over(compact, batch) * scale_of(rv, full)


def log_normalizers(model: pm.Model, T: Any) -> dict[str, Variable]:
    """Log normalizer of each element of each likelihood term, by the name of the variable.

    Parameters
    ----------
    model : pymc.Model
    T : float, TensorVariable or mapping
        One temperature for all, or one (which may be an array) by the name of the variable.

    Returns
    -------
    dict of TensorVariable
        In nats, in terms of the model's random variables: pass them to
        `model.replace_rvs_by_values`. `total_size` plays no part.
    """
    return {
        rv.name: log_tempered_normalizer(rv, T[rv.name] if isinstance(T, dict) else T)
        for rv in likelihood_terms(model)
    }


def local_log_normalizer(model: pm.Model, T: Any) -> Variable:
    """Sum of the log normalizers of all data, scaled by `total_size`: that of the local form.

    The likelihood to the power 1 / T, less this, is a normalized density of the data; it needs no
    C(T), but a free scale and T are hard to tell apart in it.

    Parameters
    ----------
    model : pymc.Model
    T : float or TensorVariable
        One temperature for all data.

    Returns
    -------
    TensorVariable
        Scalar, in nats, in terms of the model's random variables: pass it to
        `model.replace_rvs_by_values`.

    Raises
    ------
    NormalizerError
        If there is a potential, or a term without a normalizer.
    """
    temperature = as_temperature(T)
    if temperature.type.ndim > 0:
        raise ValueError("T must be one temperature; log_normalizers takes one by datum.")
    total = pt.constant(0.0)
    for _, value in term_totals(model, temperature):
        total = total + value
    return total
