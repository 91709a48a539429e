"""Which terms of a model belong to the path's reference, and which to its log ratio."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_tempering.arguments import listed
from pymc_tempering.exceptions import DiscreteVariableError, ModelError
from pymc_tempering.model.car import is_car, known_car, log_density_of
from pymc_tempering.model.check import improper_priors
from pymc_tempering.model.imputed import imputed_parts
from pymc_tempering.model.layout import is_discrete
from pymc_tempering.model.ordered_priors import unknown_orders

WIDE_SCALE, WIDE_DOF = 5.0, 2.0
"""Scale and degrees of freedom of the t law that replaces a prior without random draws, in the
unconstrained space. It is wide enough for variables of a sensible scale, and its tails are heavy
enough to be no restriction."""


@dataclass(frozen=True)
class Terms:
    """Which terms of a model's log density are in log_reference, and which in log_ratio.

    Attributes
    ----------
    names : tuple of str
        Likelihood terms and potentials in log_ratio.
    untempered : tuple of str
        Those among them that the user counts to the prior.
    wide : tuple of str
        Free variables whose prior cannot be drawn from, or has an unknown constant. Their
        reference is a wide t law, and the ratio of their prior to this law is a part of log_ratio.
    """

    names: tuple[str, ...]
    untempered: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()

    @property
    def normalized_prior(self) -> bool:
        """Whether the prior integrates to 1, so that its constant need not be estimated."""
        return not self.untempered and not self.wide

    @property
    def tempered(self) -> tuple[str, ...]:
        """Names of the terms that beta acts on."""
        return tuple(name for name in self.names if name not in self.untempered)

    def prior_alone(self) -> "Terms":
        """Terms of a path that ends at the prior, which gives the prior's constant."""
        return replace(self, names=self.untempered, untempered=())


def find_terms(
    model: pm.Model, tempered: Sequence[str] | None = None, wide: Sequence[str] = ()
) -> Terms:
    """Sort the terms of a model by what the user wants tempered.

    Parameters
    ----------
    model : pymc.Model
    tempered : sequence of str, optional
        Names of the likelihood terms and potentials that beta acts on; by default all.
    wide : sequence of str, optional
        Free variables whose prior is known to have no random draws.

    Returns
    -------
    Terms

    Raises
    ------
    ModelError
        `tempered` has an unknown name, or is empty.
    DiscreteVariableError
        A discrete variable has no prior that can be drawn from.
    """
    names = tuple(term.name for term in [*model.observed_RVs, *model.potentials])
    unknown = [rv.name for rv in model.free_RVs if is_car(rv) and known_car(rv) is None]
    wide = (*wide, *unknown)
    wide = (*wide, *unknown_orders(model))
    if tempered is not None:
        # The terms that are not tempered may make a flat prior proper, so it is allowed here.
        wide = (*wide, *improper_priors(model.free_RVs))
    wide = tuple(dict.fromkeys(wide))
    discrete = [rv.name for rv in model.free_RVs if rv.name in wide and is_discrete(rv)]
    if discrete:
        raise DiscreteVariableError(
            f"The priors of {listed(discrete)} cannot be drawn from, and no other "
            "law can stand in for a discrete one. Give the distribution a `random` function."
        )
    if tempered is None:
        return Terms(names, (), wide)
    tempered = [tempered] if isinstance(tempered, str) else list(tempered)
    if unknown := [name for name in tempered if name not in names]:
        raise ModelError(
            f"tempered names {listed(unknown)}, not among the observed variables and "
            f"potentials of the model: {listed(names)}."
        )
    if not tempered:
        raise ModelError("tempered is empty: name the likelihood terms that beta shall act on.")
    untempered = tuple(name for name in names if name not in tempered)
    return Terms(names, untempered, wide)


def reference_and_ratio(model: pm.Model, terms: Terms) -> tuple[Variable, Variable]:
    """Graphs of log_reference, without its constants, and log_ratio, of the value variables."""
    imputed = imputed_parts(model)
    drawn = [rv for rv in model.free_RVs if rv.name not in {*terms.wide, *imputed}]
    wide = [rv for rv in model.free_RVs if rv.name in terms.wide]
    likelihood = [t for t in [*model.observed_RVs, *model.potentials] if t.name in terms.names]
    zero = pt.constant(0.0)
    reference, ratio = (log_density_of(model, some) for some in (drawn, likelihood))
    if wide:
        covers = [pm.logp(wide_law(()), model.rvs_to_values[rv]).sum() for rv in wide]
        reference = reference + pt.add(zero, *covers)
        ratio = ratio + model.logp(vars=wide) - pt.add(zero, *covers)
    for part in imputed.values():
        [log_q] = model.replace_rvs_by_values([part.log_q])
        reference = reference + log_q
        if part.observed in terms.names:
            ratio = ratio - log_q
    return reference, ratio


def wide_law(shape: tuple[int, ...]) -> Variable:
    """Random variable with the wide t law."""
    return pm.StudentT.dist(WIDE_DOF, mu=0.0, sigma=WIDE_SCALE, shape=shape)
