"""A model in which a latent field is white: standard normal where it is normal given the others.

The others, which are few, keep their names and priors. One normal variable stands in for the field,
and a potential for all that depends on it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import grad_undefined
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import graph_replace

from pymc_tempering.core.deadline import deadline_in
from pymc_tempering.core.findings import Finding
from pymc_tempering.fields.conditional import Field
from pymc_tempering.fields.find import find_field
from pymc_tempering.kernels.gradient_free import RandomWalkMetropolis
from pymc_tempering.model.car import log_density_of
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.new_data import copy_of
from pymc_tempering.model.origin import Origin, origin_of
from pymc_tempering.references.compile import check_reference
from pymc_tempering.references.prior import compile_prior
from pymc_tempering.summed.sum_out import remove, without_sums

WORTH_WORK = 1_500_000
"""Elements that a law of a field may take for chains. Above, the usual way is faster: 69 in place
of 106 CPU s for a lattice of 961 places, 36 to 89 in place of 97 to 196 for crossed effects of 200
that are not centered. Those of dense fields are mostly products of matrices, and take less each."""

N_PROPOSALS = 2
"""Proposals for the others, each of which takes a new map, in a transition."""


def sampled_model(
    model: pm.Model,
    choice: Any = None,
    tempered: Sequence[str] | None = None,
    reference: str = "auto",
    report: Callable[[str], None] = lambda line: None,
    check_for: float | None = None,
) -> pm.Model:
    """Return the model that chains run on, in a call with such arguments.

    Discrete variables are summed out where they can be. A field is whitened where the user has no
    kernels of their own, tempers all, and does not ask for the prior as reference. Then the prior
    of the whole model is checked here, for so many seconds at most, as that of any other model is
    when it is compiled.

    Raises
    ------
    ImproperPriorError, LikelihoodError, PriorDrawsError
        The model cannot be tempered; see their messages.
    """
    model = without_sums(model, choice, tempered)
    if choice is not None or tempered is not None or reference == "prior":
        return model
    field = find_field(model, report)
    if field is None or (field.work > WORTH_WORK and not (field.dense or field.is_staged)):
        return model
    report("Checking the model at draws from the prior")
    check_reference(compile_prior(field.path), deadline_in(check_for))
    return remembered(model, "white", lambda: with_white_field(model, field))


class WhiteDensity(Op):
    """Log density of others and a whitened field, and its gradient along the field."""

    __props__ = ("field",)

    def __init__(self, field: Field) -> None:
        self.field = field

    @property
    def work(self) -> int:
        """Elements that it computes, as `model.path.graph_work` counts them."""
        return self.field.work

    def make_node(self, others: Variable, u: Variable) -> Apply:
        """Apply it to two vectors."""
        inputs = [pt.as_tensor(others), pt.as_tensor(u)]
        return Apply(self, inputs, [pt.dscalar(), pt.dvector()])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Evaluate both."""
        value, slope = self.field.white(np.asarray(inputs[0]), np.asarray(inputs[1]))
        outputs[0][0], outputs[1][0] = np.asarray(value), slope

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """Gradient along the field alone."""
        along = cotangents[0] * self(*inputs)[1]
        return [grad_undefined(self, 0, inputs[0], "it is not computed"), along]


def with_white_field(model: pm.Model, field: Field) -> pm.Model:
    """Write the model in which the field is white."""
    copy = copy_of(model)
    pairs = zip(model.free_RVs, field.path.layout.slices, strict=True)
    kept = {rv.name for rv, part in pairs if part.start not in field.inside}
    gone = [rv for rv in copy.basic_RVs if rv.name not in kept]
    name = ", ".join(rv.name for rv in copy.free_RVs if rv.name not in kept)
    remove(copy, [*copy.deterministics, *copy.potentials, *gone])
    with copy:
        values = {rv: copy.rvs_to_values[rv] for rv in copy.free_RVs}
        forward = {value: _unconstrained(copy, rv) for rv, value in values.items()}
        raveled = [v.ravel() for v in forward.values()]
        joined = pt.concatenate(raveled) if raveled else pt.zeros(0)
        prior = graph_replace(log_density_of(copy, copy.free_RVs), forward, strict=False)
        u = pm.Normal(name, shape=field.inside.size)
        density = WhiteDensity(field)(joined, u)[0]
        normal = -0.5 * pt.sum(u**2) - 0.5 * field.inside.size * np.log(2.0 * np.pi)
        pm.Potential(f"density of {name}", density - prior - normal)
    before = origin_of(model)
    whole = Unwhitened(field, before)
    copy.summed_from = Origin(
        model if before is None else before.model, whole, whole.check,
        whole.log_change, leaves=() if before is None else before.leaves,
        n_white=field.inside.size, log_volume=whole.log_volume,
        kernels=dict.fromkeys(kept, RandomWalkMetropolis(n_steps=N_PROPOSALS)),
        ends={} if before is None else before.ends,
    )  # fmt: skip
    return copy


@dataclass(frozen=True, eq=False)
class Unwhitened:
    """States of a whole model, of those of one with a white field.

    Attributes
    ----------
    field : Field
    before : Origin or None
        What the model with the field was made of itself.
    """

    field: Field
    before: Origin | None

    def __call__(self, xs: np.ndarray) -> np.ndarray:
        """Return raveled states, shape (n, D), of those with a white field, shape (n, d)."""
        states = self._states(xs)
        return states if self.before is None else self.before.whole(states)

    def _states(self, xs: np.ndarray) -> np.ndarray:
        """States of the model with the field as it was, shape (n, d)."""
        m = self.field.others.size
        return np.reshape([self.field.inverse(x[:m], x[m:]) for x in xs], xs.shape)

    def log_volume(self, xs: np.ndarray) -> np.ndarray:
        """Log density of the whole model less that of the one with a white field, shape (n,)."""
        m = self.field.others.size
        return np.array([self.field.given(x[:m]).root.log_det for x in xs])

    def log_change(self, xs: np.ndarray) -> np.ndarray:
        """Log density of what the user wrote less that of the one with a white field, (n,)."""
        change = self.log_volume(xs)
        return change if self.before is None else change + self.before.log_change(self._states(xs))

    def check(self, xs: np.ndarray) -> list[Finding]:
        """Check what the model was made of at some states."""
        return [] if self.before is None else self.before.check(self._states(xs))


def _unconstrained(model: pm.Model, rv: Variable) -> Variable:
    """Graph of the unconstrained value of a free variable."""
    transform = model.rvs_to_transforms[rv]
    return rv if transform is None else transform.forward(rv, *rv.owner.inputs)
