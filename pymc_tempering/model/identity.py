"""Which model and data something was made with, as text that is the same in every process.

`model/fingerprint.py` compares objects, and so tells two processes nothing. Here names, shapes,
data and the operations of the graphs are put into words and digests. What an operation holds
beside its name and simple properties (a function of the user, say) is not seen; who needs more
compares densities at some states too.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import toposort
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_tempering.model.fingerprint import SIMPLE, digest
from pymc_tempering.model.layout import model_layout


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
    data = {name: _digest_of(_graph([value], data=True)) for name, value in observed.items()}
    data |= {name: _digest_of(_graph([value], data=True)) for name, value in held.items()}
    terms = {rv.name: _digest_of(_term(model, rv)) for rv in [*model.free_RVs, *model.observed_RVs]}
    terms |= {term.name: _digest_of(_graph([term])) for term in model.potentials}
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


def _term(model: pm.Model, rv: Variable) -> list[Any]:
    """Operations of a variable, with its transform."""
    transform = model.rvs_to_transforms.get(rv)
    inside = {} if transform is None else vars(transform)
    return [type(transform).__name__, _simple(inside), _graph([rv])]


def _graph(outputs: list[Variable], *, data: bool = False) -> list[Any]:
    """Operations of graphs in words, one entry a node; numbers of shared data only where asked."""
    entries: list[Any] = []
    numbers: dict[Variable, Any] = {}
    for count, node in enumerate(toposort(outputs)):
        op = node.op
        props = {name: getattr(op, name, None) for name in getattr(op, "__props__", None) or ()}
        inner = _graph(list(op.inner_outputs)) if isinstance(op, HasInnerGraph) else ""
        inputs = [numbers.get(v) or _leaf(v, data) for v in node.inputs]
        entries.append((type(op).__name__, _simple(props), inner, inputs))
        numbers |= {v: (count, place) for place, v in enumerate(node.outputs)}
    return [*entries, [numbers.get(v) or _leaf(v, data) for v in outputs]]


def _leaf(variable: Variable, data: bool) -> Any:
    """Return words for a variable without an owner."""
    if isinstance(variable.type, RandomGeneratorType):
        return "generator"
    if isinstance(variable, Constant):
        return ("constant", _content(variable.data))
    if isinstance(variable, SharedVariable) and data:
        return ("shared", _content(variable.get_value(borrow=True)))
    return ("input", variable.name, str(variable.type))


def _content(value: Any) -> Any:
    if isinstance(value, np.ma.MaskedArray):
        return (digest(np.asarray(value.filled(0))), digest(np.ma.getmaskarray(value)))
    return digest(value) if isinstance(value, np.ndarray) else _simple({"value": value})


def _simple(values: dict[str, Any]) -> Any:
    """Put simple values into words, by name; of others only the class."""
    return sorted((name, _word(value)) for name, value in values.items())


def _word(value: Any) -> str:
    if value is None or isinstance(value, SIMPLE):
        return repr(value)
    if isinstance(value, np.ndarray):
        return repr(digest(value))
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_word, value))}]"
    return type(value).__name__


def _digest_of(entries: Any) -> str:
    return sha256(repr(entries).encode()).hexdigest()[:16]
