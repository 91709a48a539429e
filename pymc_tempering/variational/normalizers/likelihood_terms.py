"""The likelihood terms of a model, their normalizers, and groups of those that share variables."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.data import MinibatchOp
from pymc.pytensorf import join_nonshared_inputs
from pymc.variational.minibatch_rv import MinibatchRandomVariable, get_scaling
from pytensor import config
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, apply_ancestors
from pytensor.tensor.random.op import RandomVariable

from pymc_tempering.arguments import listed
from pymc_tempering.exceptions import DiscreteVariableError, ModelError, NormalizerError
from pymc_tempering.model.check import check_proper
from pymc_tempering.model.compiled import NO_MIXTURE, Density
from pymc_tempering.model.density import make_density, open_graph
from pymc_tempering.model.density_graphs import freeze_shared, stabilize
from pymc_tempering.model.exactly import ALONE, one_thread_at_a_time
from pymc_tempering.model.layout import unconstrained_shapes
from pymc_tempering.model.python_mode import compile_alone, python_mode
from pymc_tempering.references.compiled_mixture import evaluate_rows
from pymc_tempering.references.prior import forward_graph
from pymc_tempering.variational.normalizers.dispatch import WITHOUT_NORMALIZER
from pymc_tempering.variational.normalizers.tempered_normalizer import (
    as_temperature,
    check_random,
    compact_normalizer,
    log_tempered_normalizer,
    temperature_limit,
)


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
        names = listed(potential.name for potential in model.potentials)
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
    return sum((value for _, value in term_totals(model, temperature)), pt.constant(0.0))


@dataclass(frozen=True)
class FixedNormalizer:
    """Normalizer of a term that depends on no free variable, as a function of T."""

    term: str
    value: Callable[[float], float]
    limit: float


@dataclass(frozen=True)
class NormalizerGroup:
    """Normalizers that share free variables, as functions of their unconstrained values.

    Attributes
    ----------
    terms, variables : tuple of str
        Names of likelihood terms and of free variables (hyperparameters included).
    sizes : tuple of int
        Number of unconstrained elements of each variable.
    density : Density
        Compiled `density(x, values, grads)` of x = (unconstrained values, T): log prior and the
        sum of log normalizers, with gradients.
    sample : callable
        `sample(n, seed)`: unconstrained prior draws, shape (n, d).
    """

    terms: tuple[str, ...]
    variables: tuple[str, ...]
    sizes: tuple[int, ...]
    density: Density
    sample: Callable[[int, int], np.ndarray]

    @property
    def dim(self) -> int:
        """Number of unconstrained dimensions."""
        return sum(self.sizes)

    def evaluate(
        self, x: np.ndarray, temperature: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Log prior and log normalizers (n,) at points (n, d), and their sum's gradient (n, d)."""
        full = np.column_stack([x, np.full(len(x), temperature)])
        values, grads = np.empty((len(x), 2)), np.zeros((len(x), 2, x.shape[1] + 1))
        evaluate_rows(self.density, np.ascontiguousarray(full), values, grads, NO_MIXTURE)
        return values[:, 0], values[:, 1], grads.sum(axis=1)[:, :-1]

    def label(self) -> str:
        """Names of its terms and of what they depend on, for messages."""
        return f"{listed(self.terms)} (which depends on {listed(self.variables)})"


def whole_data(graph: Variable) -> Variable:
    """Graph with every pm.Minibatch replaced by the data that it takes its batches from."""
    replaced = {
        batch: data
        for node in apply_ancestors([graph])
        if isinstance(node.op, MinibatchOp)
        for batch, data in zip(node.outputs[:-1], node.inputs[:-1], strict=True)  # then a generator
    }
    return clone_replace([graph], replaced, rebuild_strict=False)[0] if replaced else graph


def parameters_needed(model: pm.Model, graph: Variable, name: str) -> frozenset[Variable]:
    """Free variables that a normalizer depends on, hyperparameters included."""
    above = set(ancestors([graph]))
    observed = [rv.name for rv in model.observed_RVs if rv in above]
    if observed:
        raise NormalizerError(
            f"The normalizer of {name!r} depends on observed data ({', '.join(observed)}), over "
            "which C(T) integrates too: it has no closed form here. Of the fits, "
            f"{WITHOUT_NORMALIZER}."
        )
    known = set(model.basic_RVs)
    unknown = [v for v in above - known if v.owner and isinstance(v.owner.op, RandomVariable)]
    if unknown:
        raise NormalizerError(
            f"The normalizer of {name!r} depends on random variables that are not in the model "
            f"({', '.join(str(v) for v in unknown)}): it has no fixed value. Of the fits, "
            f"{WITHOUT_NORMALIZER}."
        )
    return frozenset(rv for rv in model.free_RVs if rv in above)


def check_free(needed: list[Variable]) -> None:
    """Raise an error for free variables that cannot be averaged over."""
    discrete = [rv.name for rv in needed if rv.dtype not in pm.vartypes.continuous_types]
    if discrete:
        raise DiscreteVariableError(
            f"The normalizers depend on discrete free variables: {', '.join(discrete)}. "
            "Marginalize them (pm.Mixture, or pmx.marginalize of pymc-extras)."
        )
    check_proper(needed, "The average of the normalizers over it")


@config.change_flags(traceback__limit=0)  # a third of the time of a large graph
def build_groups(model: pm.Model) -> tuple[list[FixedNormalizer], list[NormalizerGroup]]:
    """Split the likelihood terms of a model by the free variables that they depend on."""
    temperature = pt.dscalar("temperature")
    constants: list[FixedNormalizer] = []
    pieces: list[tuple[list[Variable], set[Variable], list[Variable]]] = []
    for rv, total in term_totals(model, temperature):
        needed = parameters_needed(model, total, rv.name)
        if not needed:
            constants.append(_compile_constant(rv, total, temperature))
            continue
        merged = ([rv], set(needed), [total])
        for piece in [piece for piece in pieces if piece[1] & needed]:
            pieces.remove(piece)
            merged = (piece[0] + merged[0], piece[1] | merged[1], piece[2] + merged[2])
        pieces.append(merged)
    return constants, [_compile_group(model, temperature, *piece) for piece in pieces]


def _compile_constant(rv: Variable, total: Variable, temperature: Variable) -> FixedNormalizer:
    """Compile the normalizer of a term without free variables."""
    graphs = [whole_data(total), whole_data(pt.min(temperature_limit(rv)))]
    both = compile_alone([temperature], freeze_shared(graphs))
    value = one_thread_at_a_time(lambda T: float(both(T)[0]))
    return FixedNormalizer(rv.name, value, float(both(1.0)[1]))


def _compile_group(
    model: pm.Model,
    temperature: Variable,
    terms: list[Variable],
    needed: set[Variable],
    totals: list[Variable],
) -> NormalizerGroup:
    """Compile log prior and log normalizers of one group."""
    free = [rv for rv in model.free_RVs if rv in needed]
    check_free(free)
    names = [model.rvs_to_values[rv].name for rv in free]
    by_name = dict(
        zip((v.name for v in model.value_vars), unconstrained_shapes(model), strict=True)
    )
    shapes = {name: by_name[name] for name in names}
    drawn = dict(zip(model.free_RVs, forward_graph(model), strict=True))
    unconstrained = freeze_shared([drawn[rv] for rv in free])

    def sample(n: int, seed: int) -> np.ndarray:
        with ALONE:
            draws = pm.draw(unconstrained, draws=n, random_seed=seed, mode=python_mode())
        return np.column_stack([np.reshape(draw, (n, -1)) for draw in draws]).astype(float)

    return NormalizerGroup(
        terms=tuple(rv.name for rv in terms),
        variables=tuple(rv.name for rv in free),
        sizes=tuple(int(np.prod(shape)) for shape in shapes.values()),
        density=_compile_density(model, temperature, free, shapes, totals),
        sample=sample,
    )


def _compile_density(
    model: pm.Model,
    temperature: Variable,
    free: list[Variable],
    shapes: dict[str, tuple[int, ...]],
    totals: list[Variable],
) -> Density:
    """Compile log prior and summed log normalizers, of (unconstrained values, T) in one vector."""
    dim = int(sum(np.prod(shape) for shape in shapes.values()))
    log_prior = model.logp(vars=free)
    log_c = model.replace_rvs_by_values([sum(totals[1:], start=totals[0])])[0]
    outputs, x = join_nonshared_inputs(
        {name: np.zeros(shape) for name, shape in shapes.items()},
        freeze_shared([log_prior, whole_data(log_c)]),
        [model.rvs_to_values[rv] for rv in free],
    )
    full = pt.dvector("x_and_temperature")
    outputs = clone_replace(outputs, {x: full[:dim].astype(x.dtype), temperature: full[dim]})
    outputs = stabilize(outputs)
    grads = [pytensor.grad(out, full, disconnected_inputs="ignore") for out in outputs]
    with model:  # so that PyMC honors model.check_bounds
        graph = open_graph([full], [out.astype("float64") for out in [*outputs, *grads]])
    return make_density({"full": graph}, [slice(0, dim + 1)])
