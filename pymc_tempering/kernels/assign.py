"""Which kernel moves which variable: the user's choice, and defaults for the rest."""

from collections.abc import Callable, Mapping

import pymc as pm
from pymc.step_methods.compound import BlockedStep

from pymc_tempering.arguments import check_choice
from pymc_tempering.exceptions import DiscreteVariableError, ModelError
from pymc_tempering.kernels import (
    BINARY,
    BOUNDED,
    CONTINUOUS,
    HMC,
    INTEGER,
    JOINT,
    NUTS,
    Compound,
    DiscreteLangevin,
    Gibbs,
    Kernel,
    RandomWalkMetropolis,
    Slice,
    StepKernel,
)
from pymc_tempering.kernels.variables import Variable, block_of, free_variables
from pymc_tempering.model.layout import Layout

KERNELS: dict[str, Callable[..., Kernel]] = {
    "hmc": HMC,
    "nuts": NUTS,
    "slice": Slice,
    "metropolis": RandomWalkMetropolis,
    "gibbs": Gibbs,
    "langevin": DiscreteLangevin,
}
"""Kernels that can be chosen by name; a new one is one file and one line here."""

OneKernel = str | Kernel | type[BlockedStep]
KernelChoice = OneKernel | Mapping[str, OneKernel] | None
"""What `kernel=` takes: a kernel or its name for all variables that it can move, or a mapping
from the names of variables to such; step method classes of PyMC are kernels too."""


def find_kernel(choice: OneKernel, target_accept: float) -> Kernel:
    """Kernel of a name, tuned for `target_accept` where it has gradients; or the kernel itself.

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
    kernel = KERNELS[choice]
    return kernel(target_accept) if choice in ("hmc", "nuts") else kernel()


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
    choice : str, Kernel or mapping, optional
        Of the user; what it leaves open gets the default of its kind: HMC for real variables
        (slice sampling without gradients), Gibbs for binary ones and integers in known bounds,
        slice sampling for other integers.
    target_accept : float, default 0.8
        For kernels with gradients that are chosen by name or by default.
    gradient : bool, default True
        Whether the density has gradients.

    Returns
    -------
    Compound

    Raises
    ------
    DiscreteVariableError
        No kernel covers a variable.
    ModelError
        A kernel is given variables that it cannot move, or that the model does not have.
    """
    variables = free_variables(model, layout)
    chosen: dict[str, Kernel] = {}
    if isinstance(choice, Mapping):
        known = {variable.name: variable for variable in variables}
        for name, item in choice.items():
            if name not in known:
                raise ModelError(
                    f"kernel names {name!r}, which is not a free variable of the model; it has "
                    f"{', '.join(map(repr, known))}."
                )
            chosen[name] = _checked(find_kernel(item, target_accept), known[name])
    elif choice is not None:
        kernel = find_kernel(choice, target_accept)
        chosen = {v.name: kernel for v in variables if v.kind in kernel.kinds}
        if not chosen:
            _checked(kernel, variables[0])
    shared = {
        CONTINUOUS: HMC(target_accept) if gradient else Slice(),
        BINARY: (gibbs := Gibbs()),
        BOUNDED: gibbs,
        INTEGER: Slice(),
    }
    if not gradient:
        shared[INTEGER] = shared[CONTINUOUS]
    groups: dict[int, tuple[Kernel, list[Variable]]] = {}
    for variable in variables:
        if variable.name not in chosen and variable.kind == JOINT:
            raise DiscreteVariableError(
                f"No kernel covers {variable.name!r}: its elements are discrete and cannot move "
                "one at a time. Marginalize it, or pass a kernel of your own for it, "
                f"kernel={{{variable.name!r}: ...}}."
            )
        kernel = chosen.get(variable.name) or shared[variable.kind]
        groups.setdefault(id(kernel), (kernel, []))[1].append(variable)
    ordered = sorted(groups.values(), key=lambda group: not group[0].uses_gradient)
    blocks = tuple(block_of(group) for _, group in ordered)
    kernels = tuple(
        kernel if kernel.bind is None else kernel.bind(model, layout, block)
        for (kernel, _), block in zip(ordered, blocks, strict=True)
    )
    return Compound(kernels, blocks)


def _checked(kernel: Kernel, variable: Variable) -> Kernel:
    if variable.kind not in kernel.kinds:
        raise ModelError(
            f"The kernel {kernel.name!r} cannot move {variable.name!r}, which is "
            f"{variable.kind}: it moves {' and '.join(sorted(kernel.kinds))} variables."
        )
    return kernel
