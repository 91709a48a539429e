"""The path of densities from a normalized reference to the target of a PyMC model.

`log pi_beta(x) = log_reference(x) + beta * log_ratio(x)` over the unconstrained, raveled
free variables of the model. With the prior as reference, `log_ratio` is the log-likelihood
plus the potentials.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import applys_between
from pytensor.scan.op import Scan

from pymc_tempering.arguments import listed
from pymc_tempering.exceptions import DiscreteVariableError, GradientError, ModelError
from pymc_tempering.model.check import check_model
from pymc_tempering.model.compiled import Density
from pymc_tempering.model.density import draws_at_random, make_density, open_graph
from pymc_tempering.model.density_graphs import gradients, is_random, raveled_graphs
from pymc_tempering.model.exactly import is_foreign
from pymc_tempering.model.far_priors import reaches_far
from pymc_tempering.model.index_checks import check_indices
from pymc_tempering.model.layout import Layout, circular_indices, is_discrete, model_layout
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.origin import origin_of
from pymc_tempering.model.refusals import terms_named
from pymc_tempering.model.shared_exponentials import with_shared_exponentials
from pymc_tempering.model.terms import Terms, find_terms

FEW = 16
"""Pieces of a gradient that are written one by one; more are joined in the graph."""


PER_NODE = 16
"""What an operation costs beside its elements, in elements."""

PER_SPECIAL, SPECIAL = 16, "pytensor.scalar.math"
"""What an element of a special function costs, and the module of these: gamma and error functions,
sigmoids and the like."""

CHEAP_WORK = 10_000
"""Elements of a value up to which it is cheap: some ten thousandths of a second."""

FOREIGN = 1_000_000
"""Elements that an operation counts for which is neither PyTensor's nor PyMC's: a user's own,
which may run in Python."""


@dataclass(frozen=True)
class Path:
    """A compiled model: log_reference, log_ratio and their gradients in one function.

    Attributes
    ----------
    model : pymc.Model
    layout : Layout
    density : Density
        Compiled `density(x, values, grads)`; writes into `values` (2,) and `grads` (2, d).
    circular : array of int
        Raveled indices that live on a circle and are wrapped to [-pi, pi).
    terms : Terms
        Which terms are tempered, and which priors are replaced by a wide law.
    has_gradient : bool
        Whether the density gives gradients with respect to at least some variables.
    work : int
        Elements that one value of the density computes, counted in its graph.
    """

    model: pm.Model
    layout: Layout
    density: Density
    circular: np.ndarray
    terms: Terms
    has_gradient: bool
    work: int

    @property
    def dim(self) -> int:
        """Number of unconstrained dimensions."""
        return self.layout.dim

    @property
    def dear(self) -> bool:
        """Whether a value takes so long that runs do with few of them."""
        return self.work > CHEAP_WORK

    @property
    def n_white(self) -> int:
        """Number of its last coordinates that are standard normal, or nearly so."""
        origin = origin_of(self.model)
        return 0 if origin is None else origin.n_white

    @property
    def fittable(self) -> bool:
        """Whether a mixture of t's can approximate the posterior.

        All are real then, none on a circle, and not all are white already.
        """
        real = self.circular.size == 0 and not any(self.layout.discrete)
        return real and self.n_white < self.dim


def compile_path(
    model: pm.Model,
    *,
    gradient: Collection[str] | None = None,
    values: bool = False,
    terms: Terms | None = None,
) -> Path:
    """Compile the path from the prior of a PyMC model to its posterior.

    Parameters
    ----------
    model : pymc.Model
    terms : Terms, optional
        By default all observed terms and potentials are tempered.
    gradient : collection of str, optional
        Value variables that a kernel needs gradients of; by default all, which must be
        continuous.
    values : bool, default False
        Whether some kernel evaluates the density without its gradients.

    Returns
    -------
    Path

    Raises
    ------
    ModelError
        The model has no free variables or no data, an ordered prior is not i.i.d., or a term draws
        random numbers.
    GradientError
        The density has no gradient.
    DiscreteVariableError
        `gradient` is None and the model has discrete variables.
    """
    check_model(model)
    check_indices(model)
    layout = model_layout(model)
    if gradient is None:
        gradient = layout.names
        discrete = [rv.name for rv in model.free_RVs if is_discrete(rv)]
        if discrete:
            raise DiscreteVariableError(
                f"Discrete free variables have no gradients: {', '.join(discrete)}. Marginalize "
                "them (pm.Mixture, or pmx.marginalize of pymc-extras), or sample with kernels "
                "that can move them."
            )
    terms = find_terms(model) if terms is None else terms
    moved = frozenset(gradient)
    with terms_named(model):
        density, work = remembered(
            model,
            ("density", terms, moved, values),
            lambda: _compile_density(model, layout, terms, moved, values),
        )
    return Path(model, layout, density, circular_indices(model, layout), terms, bool(moved), work)


def prior_alone(path: Path) -> Path:
    """Compile the same path without its log ratio; return it as it is if that has no gradient."""
    model, layout, terms = path.model, path.layout, path.terms
    real = zip(layout.names, layout.discrete, strict=True)
    moved = frozenset(name for name, discrete in real if not discrete)
    try:
        density, work = remembered(
            model,
            ("prior alone", terms, moved),
            lambda: _compile_density(model, layout, terms, moved, False, alone=True),
        )
    except GradientError:
        return path
    return replace(path, density=density, has_gradient=bool(moved), work=work)


def _compile_density(
    model: pm.Model,
    layout: Layout,
    terms: Terms,
    moved: Collection[str],
    values: bool,
    *,
    alone: bool = False,
) -> tuple[Density, int]:
    """Compile the density of a path, with gradients of `moved` variables and maybe without.

    And count the work of one value. The log ratio may be left out, for the reference alone.
    """
    pieces, outputs = raveled_graphs(model, layout, terms, moved, far=reaches_far(model))
    if alone:
        outputs[1] = pt.zeros(())
    work = work_of(outputs)
    if work > CHEAP_WORK:
        outputs = with_shared_exponentials(outputs)
    x = pt.vector("x", shape=(layout.dim,), dtype="float64")
    places = dict(zip(pieces, [x[part] for part in layout.slices], strict=True))
    graphs, slices = {}, layout.slices
    with model:  # so that PyMC honors model.check_bounds
        if values or not moved:
            graphs["alone"] = open_graph([x], graph_replace(outputs, places, strict=False))
        if moved:
            along = [p for p, name in zip(pieces, layout.names, strict=True) if name in moved]
            found = iter(gradients(outputs, along))
            rows = [[next(found) if p in along else pt.zeros_like(p) for p in pieces] for _ in "12"]
            if len(pieces) > FEW:
                rows, slices = [[pt.concatenate(row)] for row in rows], (slice(0, layout.dim),)
            every = [*outputs, *rows[0], *rows[1]]
            graphs["full"] = open_graph([x], graph_replace(every, places, strict=False))
    if any(map(draws_at_random, graphs.values())):
        raise ModelError(_draws_inside(model))
    return make_density(graphs, slices), work


def _draws_inside(model: pm.Model) -> str:
    """Say which terms of a density draw random numbers."""
    terms = [*model.basic_RVs, *model.potentials]
    graphs = model.logp(vars=terms, sum=False)
    names = [term.name for term, graph in zip(terms, graphs, strict=True) if is_random(graph)]
    return (
        f"The log density of {listed(names) or 'the model'} draws random numbers, so that it is no "
        "function of the unknowns. Write it without `.dist(...)` of random variables; if it has "
        "none, this is a fault of pymc_tempering: please report the model."
    )


def work_of(outputs: Sequence[Variable]) -> int:
    """Count the work of a density. Special functions count more, but where all are cheap."""
    work = graph_work(outputs)
    return work if work > CHEAP_WORK else graph_work(outputs, 1)


def graph_work(outputs: Sequence[Variable], per_special: int = PER_SPECIAL) -> int:
    """Count the elements that a graph computes, and some for each of its operations.

    The work is never told by a clock, so that equal seeds give equal runs.
    """
    return sum(_node_work(node, per_special) for node in applys_between([], outputs))


def _node_work(node: Apply, per_special: int) -> int:
    """Elements of one operation; a loop is as many times its inside as it has steps."""
    if isinstance(own := getattr(node.op, "work", None), int):
        return own
    if is_foreign(node.op):
        return FOREIGN
    if (inner := getattr(node.op, "inner_outputs", None)) is not None:
        sizes = map(_size, [*node.inputs, *node.outputs]) if isinstance(node.op, Scan) else ()
        return max(sizes, default=1) * graph_work(inner, per_special)
    is_special = type(getattr(node.op, "scalar_op", None)).__module__ == SPECIAL
    each = per_special if is_special else 1
    known = [each * _size(out) for out in node.outputs]
    # An unknown length is taken to be that of the largest input.
    unknown = any(None in getattr(out.type, "shape", ()) for out in node.outputs)
    return PER_NODE + sum(known) + (max(map(_size, node.inputs), default=1) if unknown else 0)


def _size(variable: Variable) -> int:
    """Elements of a variable; unknown lengths count 1."""
    shape = getattr(variable.type, "shape", ())
    return prod(1 if length is None else length for length in shape)
