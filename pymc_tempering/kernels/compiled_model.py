"""From a PyMC model and a choice of kernels to its compiled path with these kernels."""

from collections.abc import Callable

import pymc as pm

from pymc_tempering.exceptions import GradientError, ModelError, UndrawableError
from pymc_tempering.kernels.assign import KernelChoice, assign_kernels
from pymc_tempering.kernels.contract import Compound
from pymc_tempering.model.check import check_model
from pymc_tempering.model.exactly import no_search_for_garbage
from pymc_tempering.model.layout import model_layout
from pymc_tempering.model.terms import Terms, find_terms
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.prior import Prior


def compile_for(
    kernel: Compound,
    model: pm.Model,
    terms: Terms,
    report: Callable[[str], None] = lambda line: None,
    *,
    check: bool = True,
    check_for: float | None = None,
) -> Prior:
    """Compile what some kernels need of a model; see `compile_model`."""
    names, values = kernel.gradient_names, kernel.wants_values
    return compile_model(
        model, report, check=check, gradient=names, values=values, terms=terms, check_for=check_for
    )  # fmt: skip


@no_search_for_garbage()
def compile_with_kernels(
    model: pm.Model,
    choice: KernelChoice,
    target_accept: float,
    report: Callable[[str], None] = lambda line: None,
    *,
    terms: Terms | None = None,
    check_for: float | None = None,
    carried: bool = False,
    reversal: bool = False,
) -> tuple[Prior, Compound]:
    """Compile a model with the kernels that the user chose, or with the defaults for it.

    A prior without random draws gets a wide law as reference, see `Terms`. A kernel that keeps a
    momentum (`carries`) is refused unless `carried`, and one whose reversal in time is not known
    if the caller needs the `reversal`. The check of the model takes `check_for` seconds at most.

    Raises
    ------
    ModelError, DiscreteVariableError, ImproperPriorError, LikelihoodError, KernelError
        The model cannot be tempered, or not with these kernels; see their messages.
    """
    check_model(model)
    layout = model_layout(model)
    terms = find_terms(model) if terms is None else terms
    kernel = assign_kernels(model, layout, choice, target_accept)
    if kernel.carries and not carried:
        raise ModelError(
            f"The kernel {kernel.name!r} keeps its momentum from one transition to the next, where "
            "this method needs transitions that remember nothing; it is for annealed importance "
            'sampling. Use "hmc" here.'
        )
    if reversal:
        kernel.reversed()  # raises where it is not known, before any work
    while True:
        if kernel.prior_only and not terms.normalized_prior:
            raise ModelError(
                f"The kernel {kernel.name!r} only knows prior times tempered likelihood; it "
                "cannot be used where the prior must be normalized too (tempered=, or a prior "
                "without random draws)."
            )
        try:
            return compile_for(kernel, model, terms, report, check_for=check_for), kernel
        except GradientError:
            without = assign_kernels(model, layout, choice, target_accept, gradient=False)
            if without.uses_gradient or not kernel.uses_gradient:
                raise  # it is the user's own choice
            kernel = without
            report("The density has no gradient: slice sampling in place of HMC")
        except UndrawableError as error:
            terms = find_terms(model, terms.tempered, (*terms.wide, *error.names))
            report(f"A wide law stands in for the prior of {', '.join(error.names)}")
