"""Gradients along a field at many of its values at once, all else being equal.

What does not depend on the field, such as the covariance of a Gaussian process, is computed once.
"""

from collections.abc import Callable

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.replace import vectorize_graph

from pymc_tempering.model.density_graphs import gradients, raveled_graphs
from pymc_tempering.model.exactly import compile_exactly, exactly, one_thread_at_a_time
from pymc_tempering.model.far_priors import reaches_far
from pymc_tempering.model.path import Path

type Batched = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""``slopes(state, xs)``: gradients, shape (k, n), at values xs of a field, shape (k, n), all others
being those of a raveled state, shape (d,)."""


def batched_slopes(path: Path, inside: np.ndarray) -> Batched:
    """Compile the gradients of the log density along the coordinates of a field."""
    layout, model = path.layout, path.model
    parts = layout.slices
    of_field = [bool(np.isin(part.start, inside)) for part in parts]
    pieces, outputs = raveled_graphs(
        model, layout, path.terms, frozenset(layout.names), far=reaches_far(model)
    )
    field = [piece for piece, is_inside in zip(pieces, of_field, strict=True) if is_inside]
    x, xs = pt.vector("x", shape=(layout.dim,)), pt.matrix("xs", shape=(None, inside.size))
    with model, exactly():
        slopes = gradients([outputs[0] + outputs[1]], field)
        places, start = {}, 0
        for piece, part, is_inside in zip(pieces, parts, of_field, strict=True):
            size = part.stop - part.start
            places[piece] = xs[:, start : start + size] if is_inside else x[part]
            start += size if is_inside else 0
        many = vectorize_graph(slopes, places)
        rows = pt.concatenate(
            [pt.broadcast_to(each, (xs.shape[0], each.shape[-1])) for each in many], axis=1
        )
        function = compile_exactly([x, xs], rows, mode="NUMBA", on_unused_input="ignore")
    return one_thread_at_a_time(function)
