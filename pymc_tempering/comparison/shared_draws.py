"""Draws of several models: which variables they share, which draws are picked, and their union."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from pymc_tempering.core.cycles import FloatArray

GROUPS = ("posterior", "posterior_predictive", "predictions", "log_likelihood")
"""Groups that are averaged where all models have them; the first must be there."""


@dataclass(frozen=True)
class Picked:
    """What one chain of the result is made of.

    Attributes
    ----------
    model : ndarray of int, shape (draw,)
        Which model each draw is of.
    draw : ndarray of int, shape (draw,)
        Its place among that model's draws, all chains in a row.
    """

    model: np.ndarray
    draw: np.ndarray


def shared_groups(
    named: Mapping[str, xr.DataTree], var_names: Sequence[str] | None
) -> dict[str, list[xr.Dataset]]:
    """Variables that all models have, by group, with their draws in the order (chain, draw, ...).

    Raises
    ------
    ValueError
        There are none, a model lacks one that was asked for, or dimensions, sizes, coordinates or
        numbers of draws differ.
    """
    if lacking := [name for name, tree in named.items() if "posterior" not in tree.children]:
        raise ValueError(f"models {lacking} have no group 'posterior', whose draws are averaged.")
    found = {}
    for group in GROUPS:
        if not all(group in tree.children for tree in named.values()):
            continue
        sets = {name: tree[group].to_dataset() for name, tree in named.items()}
        _check_draws(group, named, sets)
        chosen = var_names if group == "posterior" else None
        names = _names(group, sets, chosen)
        if names:
            for name in names:
                _check_alike(group, name, sets)
            found[group] = [one[names].transpose("chain", "draw", ...) for one in sets.values()]
    return found


def _names(
    group: str, sets: Mapping[str, xr.Dataset], var_names: Sequence[str] | None
) -> list[str]:
    """Names of the variables of a group that are averaged."""
    if var_names is not None:
        wanted = [var_names] if isinstance(var_names, str) else list(var_names)
        lacks = {m: [n for n in wanted if n not in one.data_vars] for m, one in sets.items()}
        lacks = {model: names for model, names in lacks.items() if names}
        if lacks or not wanted:
            raise ValueError(f"var_names must be variables of all models; these lack: {lacks}.")
        return wanted
    first, *others = sets.values()
    names = [str(n) for n in first.data_vars if all(n in one.data_vars for one in others)]
    if not names and group == "posterior":
        held = {model: sorted(map(str, one.data_vars)) for model, one in sets.items()}
        raise ValueError(f"the models have no variable in common: {held}.")
    return names


def _check_draws(
    group: str, named: Mapping[str, xr.DataTree], sets: Mapping[str, xr.Dataset]
) -> None:
    """Raise an error unless the draws of a group are those of the posterior."""
    for model, one in sets.items():
        posterior = named[model]["posterior"].to_dataset()
        sizes = [{d: data.sizes.get(d, 0) for d in ("chain", "draw")} for data in (posterior, one)]
        if not all(sizes[0].values()):
            raise ValueError(
                f"the posterior of model {model!r} has no draws along 'chain' and 'draw'."
            )
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"{group} of model {model!r} has {sizes[1]} and its posterior {sizes[0]}, so they "
                "are not of the same draws: draw it for all of them, or drop the group."
            )


def _check_alike(group: str, name: str, sets: Mapping[str, xr.Dataset]) -> None:
    """Raise an error if a variable is not shaped and labeled alike in all models."""
    (first_model, first), *others = sets.items()
    one = first[name]
    advice = "Rename it, or choose other variables by var_names"
    if group != "posterior":
        advice = "Give it the same dims and coords in all models, or drop the group"
    for model, dataset in others:
        other = dataset[name]
        sizes = [
            {d: n for d, n in a.sizes.items() if d not in ("chain", "draw")} for a in (one, other)
        ]
        if list(sizes[0].items()) != list(sizes[1].items()):
            raise ValueError(
                f"{name!r} of {group} has the dimensions {sizes[0]} in model {first_model!r} and "
                f"{sizes[1]} in model {model!r}. {advice}."
            )
        for dim in sizes[0]:
            if dim in one.coords and dim in other.coords and not one[dim].equals(other[dim]):
                raise ValueError(
                    f"{name!r} of {group} has other coordinates along {dim!r} in model "
                    f"{model!r} than in model {first_model!r}. {advice}."
                )


def pick_draws(
    posteriors: Sequence[xr.Dataset],
    probability: FloatArray,
    draws: int | None,
    rng: np.random.Generator,
) -> list[Picked]:
    """Pick draws of models by systematic resampling, for each chain of the result.

    With one uniform number, model i gets floor or ceil of its share of all draws, and its expected
    number is its share. They are dealt to the chains in turn. A chain takes those of a model evenly
    spaced from a stretch of that model's draws: from one chain, where all models have as many.
    """
    sizes = np.array([[one.sizes["chain"], one.sizes["draw"]] for one in posteriors])
    totals, n_chains = sizes.prod(axis=1), int(sizes[:, 0].min())
    length = draws or max(int(totals.min()) // n_chains, 1)
    edges = np.floor(np.cumsum(probability) * n_chains * length + rng.random())
    edges[-1] = n_chains * length
    label = np.searchsorted(edges, np.arange(n_chains * length), side="right")
    result = []
    for chain in range(n_chains):
        of_chain = label[chain::n_chains]
        place = np.empty(length, dtype=int)
        model = rng.permutation(of_chain)
        for i in np.unique(model):
            start, stop = chain * totals[i] / n_chains, (chain + 1) * totals[i] / n_chains
            count = int(np.sum(model == i))
            spaced = start + (np.arange(count) + rng.random()) * (stop - start) / count
            place[model == i] = np.minimum(spaced.astype(int), totals[i] - 1)
        result.append(Picked(model, place))
    return result


def join_group(
    names: Sequence[str], sets: Sequence[xr.Dataset], picked: Sequence[Picked]
) -> xr.Dataset:
    """Join the picked draws of a group, with the coordinate `model` of each."""
    model = np.stack([part.model for part in picked])
    draw = np.stack([part.draw for part in picked])
    coords = {"chain": np.arange(model.shape[0]), "draw": np.arange(model.shape[1])}
    variables = {}
    for name in sets[0].data_vars:
        arrays = [one[name] for one in sets]
        flat = [np.asarray(a.values).reshape(-1, *a.shape[2:]) for a in arrays]
        joined = np.empty((*model.shape, *arrays[0].shape[2:]), np.result_type(*flat))
        for i, rows in enumerate(flat):
            joined[model == i] = rows[draw[model == i]]
        variables[name] = (arrays[0].dims, joined)
    labels = {d: c for d, c in sets[0].coords.items() if not {"chain", "draw"} & set(c.dims)}
    result = xr.Dataset(variables, coords | {str(d): c.variable for d, c in labels.items()})
    return result.assign_coords(model=(("chain", "draw"), np.array(names)[model]))
