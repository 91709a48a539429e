"""The density of a field in two stages: what depends on the others alone, and all else.

The first stage, such as the covariance of a Gaussian process and its factor, is computed once for
each state of the others. The second takes many values of the field at once.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import toposort

from pymc_tempering.model.density_graphs import gradients, raveled_graphs
from pymc_tempering.model.exactly import compile_exactly, exactly, one_thread_at_a_time
from pymc_tempering.model.far_priors import reaches_far
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.path import Path, graph_work

MOSTLY = 0.5
"""Share of a density's work from which on what does not depend on the field is computed apart."""

KEPT_BYTES = 200_000_000
"""Memory for first stages that were computed last."""

type Evaluate = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""``evaluate(state, xs)``: log density, shape (k,), and its gradient along a field, at values xs of
the field, shape (k, n), all others being those of a raveled state, shape (d,)."""


type Places = dict[Variable, slice]
"""Where unconstrained variables lie in a raveled vector."""


def _pieces(path: Path, inside: np.ndarray) -> tuple[Variable, Places, Places]:
    """Log density of a path, and where its variables, raveled, are in the field and the state."""
    layout, model = path.layout, path.model
    every, outputs = raveled_graphs(
        model, layout, path.terms, frozenset(layout.names), far=reaches_far(model)
    )
    field, others, start = {}, {}, 0
    for piece, part in zip(every, layout.slices, strict=True):
        if np.isin(part.start, inside):
            field[piece] = slice(start, start := start + part.stop - part.start)
        else:
            others[piece] = part
    return outputs[0] + outputs[1], field, others


def _edge(outputs: Sequence[Variable], field: Places) -> list[Variable]:
    """Find what is computed without the field, and enters what is not; not its views, but it."""
    within, found = set(field), dict[Variable, None]()
    for node in toposort(outputs):
        if not within.isdisjoint(node.inputs):
            within.update(node.outputs)
            found |= dict.fromkeys(v for v in node.inputs if not isinstance(v, Constant))
    apart = [v for v in [*found, *outputs] if v not in within]
    return list(dict.fromkeys(map(_viewed, apart)))


def _viewed(variable: Variable) -> Variable:
    """Return that which a variable is a view of."""
    while (node := variable.owner) and node.op.view_map and len(node.inputs) == 1:
        [variable] = node.inputs
    return variable


def is_staged(path: Path, inside: np.ndarray) -> bool:
    """Whether most of a dear density does not depend on a field."""

    def share() -> float:
        value, field, _ = _pieces(path, inside)
        return graph_work(_edge([value], field)) / path.work

    key = "share apart", inside.tobytes()
    return path.dear and remembered(path.model, key, share) > MOSTLY


def staged(path: Path, inside: np.ndarray) -> Evaluate:
    """Compile the log density in two stages, with its gradient along a field."""
    key = "staged", inside.tobytes()
    return remembered(path.model, key, lambda: _staged(path, inside))


def _staged(path: Path, inside: np.ndarray) -> Evaluate:
    value, field, places = _pieces(path, inside)
    x, xs = pt.vector("x", shape=(path.dim,)), pt.matrix("xs", shape=(None, inside.size))
    with path.model, exactly():
        outputs = [value, *gradients([value], list(field))]
        edge = _edge(outputs, field)
        kept = [v.type() for v in edge]
        graph = graph_replace(outputs, dict(zip(edge, kept, strict=True)), strict=False)
        values, *slopes = vectorize_graph(graph, {v: xs[:, part] for v, part in field.items()})
        each = [pt.broadcast_to(slope, (*xs.shape[:1], slope.shape[-1])) for slope in slopes]
        second = [values, pt.concatenate(each, axis=1)]
        first = graph_replace(edge, {v: x[part] for v, part in places.items()}, strict=False)
        options = {"mode": "NUMBA", "on_unused_input": "ignore"}
        prepare = compile_exactly([x], first, **options)
        finish = compile_exactly([*kept, xs], second, **options)
    known = OrderedDict[bytes, list[np.ndarray]]()

    def evaluate(state: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        key = np.delete(state, inside).tobytes()
        stage = known.pop(key, None)
        if stage is None:
            stage = prepare(state)
            size = sum(np.asarray(each).nbytes for each in stage)
            while known and (len(known) + 1) * size > KEPT_BYTES:
                known.popitem(last=False)
        known[key] = stage
        values, slopes = finish(*stage, at)
        return values, slopes

    return one_thread_at_a_time(evaluate)
