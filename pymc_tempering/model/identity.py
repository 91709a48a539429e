"""Which model and data something was made with, as text that is the same in every process.

`model/content_hash.py` gives one hash of a whole model; here each variable, datum and term has its
own, so that what differs can be named. What an operation holds beside its name and simple
properties (a function of the user, say) is not seen; who needs more compares densities at some
states too.
"""

from collections.abc import Iterable

import pymc as pm
from pymc.logprob.transforms import Transform
from pytensor.graph.basic import Variable

from pymc_tempering.model.content_hash import LastingWalk, hash_of
from pymc_tempering.model.layout import model_layout

DIGITS = 16


def identity_of(model: pm.Model) -> dict[str, dict[str, str]]:
    """Return what tells a model from others: its variables, data, and the graph of each term.

    Returns
    -------
    dict
        `variables`, `data` and `terms`, each a dict from names to texts.
    """
    layout = model_layout(model)
    variables = {
        name: f"{dtype} of shape {shape}"
        for name, shape, dtype in zip(layout.names, layout.shapes, layout.dtypes, strict=True)
    }
    observed = {rv.name: model.rvs_to_values[rv] for rv in model.observed_RVs}
    held = {variable.name: variable for variable in model.data_vars}
    data = {name: _hash_of(value) for name, value in (observed | held).items()}
    transforms = model.rvs_to_transforms
    terms = {rv.name: _hash_of(rv, transforms.get(rv)) for rv in model.basic_RVs}
    terms |= {term.name: _hash_of(term) for term in model.potentials}
    return {"variables": variables, "data": data, "terms": terms}


def differences(stored: dict[str, dict[str, str]], now: dict[str, dict[str, str]]) -> str:
    """Say in which variables, data or terms two models differ; empty if in none."""
    for kind, what in (("variables", "free variables"), ("data", "data"), ("terms", "terms")):
        old, new = stored[kind], now[kind]
        if set(old) != set(new):
            return f"its {what} were {_listed(old)}, and those here are {_listed(new)}"
        changed = [name for name in old if old[name] != new[name]]
        if changed and kind == "variables":
            name = changed[0]
            return f"{name!r} was {old[name]}, and is {new[name]} here"
        if changed:
            return f"the {what} {_listed(changed)} are others here"
    return ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def _hash_of(variable: Variable, transform: Transform | None = None) -> str:
    """Hash of the graph of a variable, with its transform."""
    walk = LastingWalk([], [])
    walk.entries.append(walk.content(transform))
    walk.graphs([variable])
    return hash_of(walk.entries)[:DIGITS]
