"""Which kernel moves which variable, by choice or by default; and a model compiled for them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pymc as pm
from pymc.distributions.multivariate import DirichletMultinomialRV
from pymc.step_methods.compound import BlockedStep
from pytensor.graph.basic import Variable as GraphVariable
from pytensor.tensor.random.basic import MultinomialRV

from pymc_tempering.arguments import check_choice, listed
from pymc_tempering.exceptions import (
    DiscreteVariableError,
    GradientError,
    ModelError,
    UndrawableError,
)
from pymc_tempering.kernels.contract import Block, Compound, Kernel
from pymc_tempering.kernels.custom import StepKernel
from pymc_tempering.kernels.discrete import DiscreteLangevin, Gibbs, Transfer
from pymc_tempering.kernels.gradient_free import RandomWalkMetropolis, Slice
from pymc_tempering.kernels.hmc import HMC
from pymc_tempering.kernels.nuts import NUTS
from pymc_tempering.model.check import check_model
from pymc_tempering.model.exactly import no_search_for_garbage
from pymc_tempering.model.layout import Layout, is_binary, is_discrete, model_layout
from pymc_tempering.model.origin import origin_of
from pymc_tempering.model.ranges import known_range
from pymc_tempering.model.terms import Terms, find_terms
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.prior import Prior

MAX_VALUES = 256
"""Integers with more values than this count as unbounded: to enumerate them takes too long."""


@dataclass(frozen=True)
class NamedKernel:
    """A kernel that users can choose by name, as in `kernel="slice"`.

    Attributes
    ----------
    factory : callable
        Makes the kernel; all its arguments have defaults.
    takes_target_accept : bool
        Whether it gets the `target_accept` of `sample` and `SimulatedTempering`; the other kernels
        keep a target of their own.
    default_for : tuple of str
        Kinds of variables that get it by default. Where two rows name the same kind, the first
        is taken; but not if it needs gradients and there are none.
    """

    factory: Callable[..., Kernel]
    takes_target_accept: bool = False
    default_for: tuple[str, ...] = ()

    def make(self, target_accept: float) -> Kernel:
        """Make the kernel, for this target where it takes one."""
        return self.factory(target_accept) if self.takes_target_accept else self.factory()


KERNELS = {
    "hmc": NamedKernel(HMC, takes_target_accept=True, default_for=("continuous",)),
    "nuts": NamedKernel(NUTS, takes_target_accept=True),
    "slice": NamedKernel(Slice, default_for=("continuous", "integer")),
    "metropolis": NamedKernel(RandomWalkMetropolis),
    "gibbs": NamedKernel(Gibbs, default_for=("binary", "bounded")),
    "langevin": NamedKernel(DiscreteLangevin),
    "transfer": NamedKernel(Transfer, default_for=("fixed sum",)),
}
"""All kernels that can be chosen by name; a new one is its own code and one row here."""


def default_kernels(
    target_accept: float, *, gradient: bool, dear: bool = False
) -> dict[str, Kernel]:
    """Make the default kernel of each kind of variable; one object where kinds share it.

    Without gradients a dear density gets proposals for all real variables at once.
    """
    kernels: dict[str, Kernel] = {}
    for row in KERNELS.values():
        missing = [kind for kind in row.default_for if kind not in kernels]
        if missing:
            kernel = row.make(target_accept)
            if gradient or not kernel.uses_gradient:
                kernels |= dict.fromkeys(missing, kernel)
    if dear and not gradient:
        kernels["continuous"] = KERNELS["metropolis"].make(target_accept)
    return kernels


@dataclass(frozen=True, eq=False)
class Variable:
    """A free variable of a model.

    Attributes
    ----------
    name : str
        Of the random variable; that of its value variable is in the block.
    kind : str
        "continuous", "binary", "bounded", "integer", "fixed sum" or "joint".
    block : Block
        Its elements.
    """

    name: str
    kind: str
    block: Block


def free_variables(model: pm.Model, layout: Layout) -> list[Variable]:
    """Free variables of a model in the order of its raveled vector."""
    variables = []
    for rv, name, part, shape in zip(
        model.free_RVs, layout.names, layout.slices, layout.shapes, strict=True
    ):
        kind, *bounds = _kind_and_bounds(rv)
        lower, upper = (np.broadcast_to(np.asarray(b, float), shape).ravel() for b in bounds)
        whole = np.full(lower.size, kind != "continuous")
        block = Block(np.arange(part.start, part.stop), lower, upper, whole, (name,))
        variables.append(Variable(rv.name, kind, block))
    return variables


def block_of(variables: list[Variable]) -> Block:
    """Block of all elements of some variables."""
    blocks = [variable.block for variable in variables]
    arrays = {
        field: np.concatenate([getattr(block, field) for block in blocks])
        for field in ("indices", "lower", "upper", "whole")
    }
    return Block(**arrays, names=tuple(name for block in blocks for name in block.names))


def _kind_and_bounds(
    rv: GraphVariable,
) -> tuple[str, np.ndarray | float, np.ndarray | float]:
    """Kind of a random variable, and the bounds that its elements cannot leave."""
    if not is_discrete(rv):
        return "continuous", -np.inf, np.inf
    op = rv.owner.op
    if isinstance(op, MultinomialRV | DirichletMultinomialRV):
        return "fixed sum", 0.0, np.inf
    if getattr(op, "ndim_supp", 0) > 0:
        return "joint", -np.inf, np.inf
    if is_binary(rv):
        return "binary", 0.0, 1.0
    known = known_range(rv)
    if known is None or np.max(known[1] - known[0]) >= MAX_VALUES:
        return "integer", -np.inf, np.inf
    return "bounded", *known


OneKernel = str | Kernel | type[BlockedStep]
KernelChoice = OneKernel | Mapping[str, OneKernel] | None
"""What `kernel=` takes: a kernel, its name or a step method class of PyMC for all variables that it
can move, or a mapping from the names of variables to these."""


def find_kernel(choice: OneKernel, target_accept: float) -> Kernel:
    """Find the kernel that a user means.

    Parameters
    ----------
    choice : str, Kernel or step method class
    target_accept : float
        For kernels chosen by name, as far as their row in the registry says that they take it.

    Returns
    -------
    Kernel

    Raises
    ------
    ValueError
        There is no kernel of this name.
    """
    if isinstance(choice, Kernel):
        return choice
    if isinstance(choice, type) and issubclass(choice, BlockedStep):
        return StepKernel(choice)
    more = ", a Kernel, a step method class of PyMC, or a mapping from variables to these"
    check_choice("kernel", choice, KERNELS, more)
    assert isinstance(choice, str)
    return KERNELS[choice].make(target_accept)


def assign_kernels(
    model: pm.Model,
    layout: Layout,
    choice: KernelChoice = None,
    target_accept: float = 0.8,
    *,
    gradient: bool = True,
    dear: bool = False,
) -> Compound:
    """Give each free variable of a model a kernel.

    Parameters
    ----------
    model : pymc.Model
    layout : Layout
    choice : str, Kernel, step method class or mapping, optional
        The user's choice. Variables that it leaves open get the default of their kind, see
        `KERNELS`.
    target_accept : float, default 0.8
        For kernels that are chosen by name or by default, as far as they take it.
    gradient : bool, default True
        Whether the density has gradients.
    dear : bool, default False
        Whether a value of it is dear.

    Returns
    -------
    Compound

    Raises
    ------
    DiscreteVariableError
        No kernel can move a variable.
    ModelError
        A kernel is given variables that it cannot move, or that the model does not have.
    """
    variables, origin = free_variables(model, layout), origin_of(model)
    if choice is None and origin is not None:
        choice = origin.kernels
    chosen = _chosen_kernels(variables, choice, target_accept)
    defaults = default_kernels(target_accept, gradient=gradient, dear=dear)
    groups: dict[int, tuple[Kernel, list[Variable]]] = {}
    for variable in variables:
        if variable.name not in chosen and variable.kind == "joint":
            raise DiscreteVariableError(
                f"No kernel covers {variable.name!r}: its elements are discrete and cannot move "
                "one at a time. Marginalize it, or pass a kernel of your own for it, "
                f"kernel={{{variable.name!r}: ...}}."
            )
        kernel = chosen.get(variable.name) or defaults[variable.kind]
        groups.setdefault(id(kernel), (kernel, []))[1].append(variable)
    # Kernels with gradients come first, so that gradients are brought up to date once a cycle.
    ordered = sorted(groups.values(), key=lambda group: not group[0].uses_gradient)
    blocks = tuple(block_of(group) for _, group in ordered)
    kernels = tuple(
        kernel if kernel.bind is None else kernel.bind(model, layout, block)
        for (kernel, _), block in zip(ordered, blocks, strict=True)
    )
    return Compound(kernels, blocks)


def _chosen_kernels(
    variables: list[Variable], choice: KernelChoice, target_accept: float
) -> dict[str, Kernel]:
    """Kernels of the user's choice, by the name of the variable."""
    if choice is None:
        return {}
    if not isinstance(choice, Mapping):
        kernel = find_kernel(choice, target_accept)
        chosen = {v.name: kernel for v in variables if v.kind in kernel.kinds}
        if not chosen:
            _checked(kernel, variables[0])
        return chosen
    chosen = {}
    known = {variable.name: variable for variable in variables}
    for name, item in choice.items():
        if name not in known:
            raise ModelError(
                f"kernel names {name!r}, which is not a free variable of the model; it has "
                f"{listed(known)}."
            )
        chosen[name] = _checked(find_kernel(item, target_accept), known[name])
    return chosen


def _checked(kernel: Kernel, variable: Variable) -> Kernel:
    """Return the kernel; raise an error if it cannot move the variable."""
    if variable.kind not in kernel.kinds:
        raise ModelError(
            f"The kernel {kernel.name!r} cannot move {variable.name!r}, which is "
            f"{variable.kind}: it moves {' and '.join(sorted(kernel.kinds))} variables."
        )
    return kernel


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
    kernel, fallen = assign_kernels(model, layout, choice, target_accept), False
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
            prior = compile_model(model, report, terms=terms, check_for=check_for, **kernel.needs)
            if fallen and prior.path.dear:
                kernel = assign_kernels(
                    model, layout, choice, target_accept, gradient=False, dear=True
                )
            return prior, kernel
        except GradientError:
            without = assign_kernels(model, layout, choice, target_accept, gradient=False)
            if without.uses_gradient or not kernel.uses_gradient:
                raise  # it is the user's own choice
            kernel, fallen = without, True
            report("The density has no gradient: other kernels in place of HMC")
        except UndrawableError as error:
            terms = find_terms(model, terms.tempered, (*terms.wide, *error.names))
            report(f"A wide law stands in for the prior of {', '.join(error.names)}")
