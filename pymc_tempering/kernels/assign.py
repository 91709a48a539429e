"""Which kernel moves which variable: the user's choice, and defaults for the rest."""

from collections.abc import Mapping

import pymc as pm
from pymc.step_methods.compound import BlockedStep

from pymc_tempering.arguments import check_choice
from pymc_tempering.exceptions import DiscreteVariableError, ModelError
from pymc_tempering.kernels.compound import Compound
from pymc_tempering.kernels.contract import JOINT, Kernel
from pymc_tempering.kernels.kernel_registry import KERNELS, default_kernels
from pymc_tempering.kernels.step_methods import StepKernel
from pymc_tempering.kernels.variables import Variable, block_of, free_variables
from pymc_tempering.model.layout import Layout

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
) -> Compound:
    """Give each free variable of a model a kernel.

    Parameters
    ----------
    model : pymc.Model
    layout : Layout
    choice : str, Kernel, step method class or mapping, optional
        The user's choice. Variables that it leaves open get the default of their kind, see
        `kernel_registry`.
    target_accept : float, default 0.8
        For kernels that are chosen by name or by default, as far as they take it.
    gradient : bool, default True
        Whether the density has gradients.

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
    variables = free_variables(model, layout)
    chosen = _chosen_kernels(variables, choice, target_accept)
    defaults = default_kernels(target_accept, gradient=gradient)
    groups: dict[int, tuple[Kernel, list[Variable]]] = {}
    for variable in variables:
        if variable.name not in chosen and variable.kind == JOINT:
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
                f"{', '.join(map(repr, known))}."
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
