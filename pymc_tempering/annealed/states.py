"""Unconstrained states rebuilt from constrained draws, through the model's own transforms."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pymc as pm
import xarray as xr
from pymc.pytensorf import compile as pymc_compile
from pytensor.graph.replace import graph_replace

from pymc_tempering.exceptions import DataMismatchError
from pymc_tempering.layout import Layout
from pymc_tempering.path import Path, freeze_shared


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
    """Compile the map from constrained values of all free variables to the raveled vector.

    A transform may depend on other variables (the bounds of an interval), which take their
    constrained values then.
    """
    given = {rv: rv.type(name=rv.name) for rv in model.free_RVs}
    known = given | {rv: model.rvs_to_values[rv].astype(rv.type.dtype) for rv in model.observed_RVs}
    outputs = []
    for rv in model.free_RVs:
        transform = model.rvs_to_transforms[rv]
        value = given[rv]
        if transform is not None:
            inputs = rv.owner.inputs
            value = transform.forward(rv, *inputs)
        outputs.append(value)
    outputs = graph_replace(freeze_shared(outputs), known, strict=False)
    function = pymc_compile(
        list(given.values()), outputs, mode="FAST_COMPILE", on_unused_input="ignore"
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


def check_values(
    model: pm.Model, shapes: Mapping[str, tuple[int, ...]], source: str, *, every: bool = True
) -> None:
    """Refuse values whose names and shapes do not fit a model's free variables.

    Parameters
    ----------
    model : pymc.Model
    shapes : mapping of str to tuple of int
        Shapes of the values, by name.
    source : str
        What the values are, for the message.
    every : bool, default True
        Ask for every free variable, and ignore other names; otherwise refuse other names.
    """
    expected = variable_shapes(model)
    lacking = [name for name in expected if name not in shapes] if every else []
    if lacking:
        raise DataMismatchError(
            f"{source} lacks the free variable{'s' if len(lacking) > 1 else ''} "
            f"{', '.join(map(repr, lacking))} of the model: pass the model that it was drawn from."
        )
    unknown = [] if every else [name for name in shapes if name not in expected]
    if unknown:
        raise DataMismatchError(
            f"{source} names {', '.join(map(repr, unknown))}, which the model does not have among "
            f"its free variables: {', '.join(expected)}."
        )
    for name in (name for name in expected if name in shapes):
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
        There is no posterior; names or shapes do not fit the model; a draw has no finite
        unconstrained value.
    """
    if not isinstance(idata, xr.DataTree) or "posterior" not in idata.children:
        raise DataMismatchError("idata has no group 'posterior': pass what pm.sample returned.")
    posterior = idata["posterior"].to_dataset()
    if not {"chain", "draw"} <= set(posterior.dims):
        raise DataMismatchError("The posterior lacks the dimension 'chain' or 'draw'.")
    posterior = posterior.transpose("chain", "draw", ...)
    names = [rv.name for rv in path.model.free_RVs]
    shapes = {str(name): values.shape[2:] for name, values in posterior.data_vars.items()}
    check_values(path.model, shapes, "The posterior")
    n_chains, n_draws = posterior.sizes["chain"], posterior.sizes["draw"]
    total = n_chains * n_draws
    index = np.unique(np.linspace(0, total - 1, min(n, total)).astype(int))
    values = {name: posterior[name].values.reshape(total, *shapes[name]) for name in names}
    unconstrain = compile_unconstrain(path.model, path.layout)
    xs = np.array([unconstrain({name: values[name][i] for name in names}) for i in index])
    if (bad := ~np.isfinite(xs)).any():
        worst = path.layout.label(int(bad.mean(axis=0).argmax()))
        raise DataMismatchError(
            f"{bad.any(axis=1).mean():.1%} of the posterior draws have no finite unconstrained "
            f"value (worst: {worst}): they are missing, or on the edge of their support."
        )
    return PosteriorStates(xs, index // n_draws)
