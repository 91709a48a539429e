"""Compile a PyMC model into its path and its prior, and check both at draws from the prior."""

from collections.abc import Callable, Collection

import pymc as pm

from pymc_tempering.core.deadline import deadline_in
from pymc_tempering.model.path import compile_path
from pymc_tempering.model.terms import Terms
from pymc_tempering.references.prior import Prior, compile_prior
from pymc_tempering.references.prior_checks import check_reference


def compile_model(
    model: pm.Model,
    report: Callable[[str], None] = lambda line: None,
    *,
    check: bool = True,
    gradient: Collection[str] | None = None,
    values: bool = False,
    terms: Terms | None = None,
    check_for: float | None = None,
) -> Prior:
    """Compile the path of a model and its prior, and check both at draws from the prior.

    Parameters
    ----------
    model : pymc.Model
    report : callable, optional
        Called with a line of progress.
    check : bool, default True
        Whether to check.
    gradient : collection of str, optional
        Value variables that gradients are needed of; by default all, which must be continuous.
    values : bool, default False
        Whether some kernel evaluates the density without its gradients.
    terms : Terms, optional
        Which terms of the model are tempered; by default all.
    check_for : float, optional
        Seconds that the check takes at most.

    Raises
    ------
    ModelError, DiscreteVariableError, ImproperPriorError, LikelihoodError
        The model cannot be tempered; see their messages.
    """
    report("Preparing the model")
    prior = compile_prior(compile_path(model, gradient=gradient, values=values, terms=terms))
    if check:
        report("Checking the model at draws from the prior")
        prior = check_reference(prior, deadline_in(check_for))
    return prior
