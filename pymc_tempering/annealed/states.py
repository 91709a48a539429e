"""Posterior draws and constrained values as unconstrained states of particles."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering.exceptions import DataMismatchError
from pymc_tempering.model.exactly import compile_alone
from pymc_tempering.model.layout import Layout
from pymc_tempering.model.path import Path
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.model.unconstrain import unconstrained_draws, unconstrained_graphs


@dataclass(frozen=True)
class PosteriorStates:
    """Posterior draws as starting states.

    Attributes
    ----------
    xs : array, shape (n, d)
        Unconstrained.
    chain : array of int, shape (n,)
        Chain that each comes from; draws of a chain stand in their order.
    """

    xs: np.ndarray
    chain: np.ndarray


def compile_unconstrain(
    model: pm.Model, layout: Layout
) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """Compile the map from constrained values of all free variables to the raveled vector."""
    given, outputs = unconstrained_graphs(model, model.free_RVs)
    function = compile_alone(
        list(given.values()), outputs, mode=python_mode(), on_unused_input="ignore"
    )

    def unconstrain(values: Mapping[str, np.ndarray]) -> np.ndarray:
        arguments = [np.asarray(values[rv.name], dtype=rv.type.dtype) for rv in model.free_RVs]
        by_name = dict(zip((model.rvs_to_values[rv].name for rv in model.free_RVs),
                           function(*arguments), strict=True))  # fmt: skip
        return layout.ravel(by_name)

    return unconstrain


def variable_shapes(model: pm.Model) -> dict[str, tuple[int, ...]]:
    """Constrained shapes of the free variables."""
    shapes = model.eval_rv_shapes()
    return {rv.name: tuple(int(n) for n in shapes[rv.name]) for rv in model.free_RVs}


def check_values(model: pm.Model, shapes: Mapping[str, tuple[int, ...]], source: str) -> None:
    """Refuse values whose names and shapes are not among those of a model's free variables.

    Parameters
    ----------
    model : pymc.Model
    shapes : mapping of str to tuple of int
        Shapes of the values, by name.
    source : str
        What the values are, for the message.
    """
    expected = variable_shapes(model)
    unknown = [name for name in shapes if name not in expected]
    if unknown:
        raise DataMismatchError(
            f"{source} names {', '.join(map(repr, unknown))}, which the model does not have among "
            f"its free variables: {', '.join(expected)}."
        )
    for name in shapes:
        if tuple(shapes[name]) != expected[name]:
            raise DataMismatchError(
                f"{source} has {name!r} with shape {tuple(shapes[name])}, the model has "
                f"{expected[name]}: pass the model that it was drawn from."
            )


def posterior_states(idata: xr.DataTree, path: Path, n: int) -> PosteriorStates:
    """Take n posterior draws at equal distances over all chains, unconstrained.

    All draws are taken where there are fewer than n.

    Raises
    ------
    DataMismatchError
        The posterior is not one of this model; see :func:`unconstrained_draws`.
    """
    draws = unconstrained_draws(idata, path.model, path.layout)
    n_chains, n_draws = draws.shape[:2]
    total = n_chains * n_draws
    index = np.unique(np.linspace(0, total - 1, min(n, total)).astype(int))
    return PosteriorStates(draws.reshape(total, -1)[index], index // n_draws)
