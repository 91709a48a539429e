"""Which terms of a model belong to the path's reference, and which to its log ratio."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.multivariate import CARRV
from pytensor.graph.basic import Variable

from pymc_tempering.exceptions import DiscreteVariableError, ModelError
from pymc_tempering.model.check import improper_priors
from pymc_tempering.model.layout import is_discrete

WIDE_SCALE, WIDE_DOF = 5.0, 2.0
"""Of the t law that stands in for a prior that cannot be drawn from, on the unconstrained line:
wide enough to cover what has a sensible scale, with tails that decide nothing."""


@dataclass(frozen=True)
class Split:
    """How a model's log density is split between log_reference and log_ratio.

    Attributes
    ----------
    terms : tuple of str
        Likelihood terms and potentials in log_ratio.
    untempered : tuple of str
        Those among them that the user counts to the prior.
    wide : tuple of str
        Free variables whose prior cannot be drawn from: a wide t law is their reference, and
        their prior's density over that law's a part of log_ratio.
    """

    terms: tuple[str, ...]
    untempered: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()

    @property
    def normalized_prior(self) -> bool:
        """Whether the prior's normalizing constant is 1, so that log Z is all there is to find."""
        return not self.untempered and not self.wide

    @property
    def tempered(self) -> tuple[str, ...]:
        """Terms that the user calls the likelihood."""
        return tuple(name for name in self.terms if name not in self.untempered)

    def prior_alone(self) -> "Split":
        """Split whose target is the prior that this one leaves unnormalized."""
        return replace(self, terms=self.untempered, untempered=())


def split_model(
    model: pm.Model, tempered: Sequence[str] | None = None, wide: Sequence[str] = ()
) -> Split:
    """Split a model by what the user wants tempered.

    Raises
    ------
    ModelError
        There is no such term, or none is left to temper.
    DiscreteVariableError
        A discrete variable has no prior that can be drawn from.
    """
    terms = tuple(term.name for term in [*model.observed_RVs, *model.potentials])
    # PyMC's CAR lacks a constant in its density, and its draws have another covariance.
    wide = (*wide, *(rv.name for rv in model.free_RVs if isinstance(rv.owner.op, CARRV)))
    if tempered is not None:
        # What a user multiplies a flat prior with is his prior.
        wide = (*wide, *improper_priors(model.free_RVs))
    wide = tuple(dict.fromkeys(wide))
    discrete = [rv.name for rv in model.free_RVs if rv.name in wide and is_discrete(rv)]
    if discrete:
        raise DiscreteVariableError(
            f"The priors of {', '.join(map(repr, discrete))} cannot be drawn from, and no other "
            "law can stand in for a discrete one. Give the distribution a `random` function."
        )
    if tempered is None:
        return Split(terms, (), wide)
    tempered = [tempered] if isinstance(tempered, str) else list(tempered)
    if unknown := [name for name in tempered if name not in terms]:
        raise ModelError(
            f"tempered names {', '.join(map(repr, unknown))}, not among the observed variables and "
            f"potentials of the model: {', '.join(map(repr, terms))}."
        )
    if not tempered:
        raise ModelError("tempered is empty: name the likelihood terms that beta shall act on.")
    untempered = tuple(name for name in terms if name not in tempered)
    return Split(terms, untempered, wide)


def split_log_density(model: pm.Model, split: Split) -> tuple[Variable, Variable]:
    """Graphs of log_reference, less its constants, and log_ratio in terms of value variables."""
    drawn = [rv for rv in model.free_RVs if rv.name not in split.wide]
    wide = [rv for rv in model.free_RVs if rv.name in split.wide]
    terms = [t for t in [*model.observed_RVs, *model.potentials] if t.name in split.terms]
    zero = pt.constant(0.0)
    reference = model.logp(vars=drawn) if drawn else zero
    ratio = model.logp(vars=terms) if terms else zero
    if wide:
        covers = [log_wide(model.rvs_to_values[rv]).sum() for rv in wide]
        reference = reference + pt.add(zero, *covers)
        ratio = ratio + model.logp(vars=wide) - pt.add(zero, *covers)
    return reference, ratio


def log_wide(value: Variable) -> Variable:
    """Log density of the wide t law at each element of an unconstrained value."""
    return pm.logp(wide_law(()), value)


def wide_law(shape: tuple[int, ...]) -> Variable:
    """Random variable with the wide t law."""
    return pm.StudentT.dist(WIDE_DOF, mu=0.0, sigma=WIDE_SCALE, shape=shape)
