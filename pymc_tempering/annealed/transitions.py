"""Which kernels move the particles of an annealing method, compiled with the model."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pymc as pm

from pymc_tempering.core.cycles import SENTENCE
from pymc_tempering.exceptions import ModelError, PriorDrawsError
from pymc_tempering.kernels import CONTINUOUS, HMC, Compound, Kernel
from pymc_tempering.kernels.assign import KernelChoice, assign_kernels
from pymc_tempering.kernels.compiled_model import compile_with_kernels
from pymc_tempering.kernels.persistent import Persistent
from pymc_tempering.kernels.variables import free_variables
from pymc_tempering.model.check import find_model
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.model.layout import model_layout
from pymc_tempering.references.prior import Prior

SINGLE_STEPS: dict[str, Callable[[], Kernel]] = {
    "leapfrog": partial(HMC, max_steps=1),
    "persistent": Persistent,
}
"""Transitions of one leapfrog step, for schedules of many rungs: with a fresh momentum, and with
one that goes along from rung to rung."""

TARGET_ACCEPT = 0.8
"""Acceptance that kernels with gradients are tuned for, where they do not say otherwise."""


@dataclass(frozen=True, eq=False)
class Movers:
    """A compiled model and the kernels that move its particles.

    Attributes
    ----------
    reference : Prior
    kernel : Compound
        Of the particles that count.
    mixing : Compound
        Of the particles that learn the path; the same unless `kernel` makes single steps, which
        would not mix by themselves.
    """

    reference: Prior
    kernel: Compound
    mixing: Compound

    @property
    def cheap(self) -> bool:
        """Whether a transition is a single step, so that a schedule can have many rungs."""
        return self.kernel is not self.mixing


def compile_movers(
    model: pm.Model | CompiledModel | None,
    transition: KernelChoice,
    report: Callable[[str], None],
    *,
    reversal: bool = False,
    carried: bool = True,
) -> Movers:
    """Compile a model with the kernels of an annealing method, and check it at prior draws.

    Parameters
    ----------
    model : pymc.Model or CompiledModel, optional
        By default the model on the context stack.
    transition : str, Kernel, mapping or None
        As `kernel` of `pmt.sample`, or a name in `SINGLE_STEPS`.
    report : callable
        Called with a line of progress.
    reversal : bool, default False
        Whether the method needs the kernels' reversal in time.
    carried : bool, default True
        Whether a kernel may keep a momentum from one transition to the next.

    Raises
    ------
    KernelError
        The method needs a reversal, and a kernel does not say what its reversal is.
    ModelError, DiscreteVariableError, ImproperPriorError, LikelihoodError, PriorDrawsError
        The model has no such path; see their messages.
    """
    model = find_model(model)
    single = isinstance(transition, str) and transition in SINGLE_STEPS
    choice = SINGLE_STEPS[str(transition)]() if single else transition
    reference, kernel = compile_with_kernels(
        model, choice, TARGET_ACCEPT, report, carried=carried, reversal=reversal
    )
    if not reference.path.terms.normalized_prior:
        raise ModelError(
            f"The priors of {', '.join(reference.path.terms.wide)} have no random draws that fit "
            "their densities, so annealing would start from another prior than the model's. "
            "pmt.sample finds the missing constant in a run of its own."
        )
    if not np.isfinite(reference.prior_constant[1]):
        raise PriorDrawsError(SENTENCE)
    mixing = assign_kernels(model, reference.path.layout) if single else kernel
    return Movers(reference, kernel, mixing)


def check_continuous(model: pm.Model, method: str) -> None:
    """Refuse a model without real variables, which have no momentum."""
    kinds = {variable.kind for variable in free_variables(model, model_layout(model))}
    if CONTINUOUS not in kinds:
        raise ModelError(
            f"{method} keeps the momentum of real variables, and this model has none: all its free "
            "variables are discrete. Use pmt.ais, whose kernels move them."
        )
