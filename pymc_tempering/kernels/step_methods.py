"""Step methods of PyMC as kernels, on the tempered density of a model."""

from collections.abc import Iterator
from functools import partial
from threading import Lock
from typing import Any, Literal

import numpy as np
import pymc as pm
import pytensor
from pymc.step_methods.compound import BlockedStep
from pymc.step_methods.metropolis import (
    DEMetropolis,
    DEMetropolisZ,
    Metropolis,
    NormalProposal,
)
from pytensor.compile import Function
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pymc_tempering.arguments import check_choice
from pymc_tempering.exceptions import KernelError
from pymc_tempering.kernels.contract import Block, Kernel
from pymc_tempering.kernels.custom import ALL_KINDS, python_transition, unbound
from pymc_tempering.model.layout import Layout

TARGET_ACCEPT = 0.3
"""Acceptance that step methods with a `scaling` are tuned for, rung by rung."""

STEP, SCALE = 0, 1
"""Layout of the tuning numbers; the standard deviations start at `SCALE`."""

SLICE_WIDTH = 2.5
"""First interval of `pm.Slice`, in standard deviations of the rung."""


class TemperedModel(pm.Model):
    """A model whose `logp` tempers the likelihood by a shared inverse temperature."""

    _inverse_temperature: SharedVariable

    def logp(
        self, vars: Any = None, jacobian: bool = True, sum: bool = True
    ) -> Variable | list[Variable]:
        """Log prior plus beta times log likelihood; single terms as they are."""
        if vars is not None or not sum or not jacobian:
            return super().logp(vars=vars, jacobian=jacobian, sum=sum)
        return self.varlogp + self._inverse_temperature * self.datalogp


def temper_model(model: pm.Model) -> TemperedModel:
    """Copy a model with a tempered `logp`; everything else is shared with the original."""
    tempered = object.__new__(TemperedModel)
    tempered.__dict__.update(model.__dict__)
    tempered._inverse_temperature = pytensor.shared(1.0, name="inverse_temperature")
    return tempered


def StepKernel(
    step_class: type[BlockedStep], *, reversal: Literal["self"] | None = None, **kwargs: Any
) -> Kernel:
    """Make a kernel of a step method of PyMC.

    The step method gets the tempered density in place of the model's own. Its own tuning is
    off; where it has a `scaling` (`pm.Metropolis`, `pm.DEMetropolisZ`), that is tuned for each
    rung, and widths and standard deviations of its proposals are those of the rung. It runs in
    Python, some hundred times slower than the compiled kernels. It only knows the path from the
    prior, so the prior is the reference.

    Parameters
    ----------
    step_class : type
        A step method class, as `pm.BinaryGibbsMetropolis`.
    reversal : "self", optional
        States that the step method is reversible, as one Metropolis step for all variables is.
        Reverse annealing and linked importance sampling need that; sampling does not.
    **kwargs
        Further arguments of its constructor.

    Returns
    -------
    Kernel

    Raises
    ------
    KernelError
        When sampling starts: the step method cannot be built for its variables, or ignores beta.

    Examples
    --------
    >>> import pymc as pm, pymc_tempering as pmt
    >>> kernel = pmt.kernels.StepKernel(pm.Metropolis, scaling=2.0)
    >>> kernel.name
    'Metropolis'
    """
    if not (isinstance(step_class, type) and issubclass(step_class, BlockedStep)):
        raise KernelError(f"StepKernel needs a step method class of PyMC, not {step_class!r}.")
    check_choice("reversal", reversal or "self", ["self"], ", or None")
    return Kernel(
        name=step_class.__name__,
        transition=unbound,
        n_scratch=0,
        pack=_pack,
        rebuild=(partial(StepKernel, reversal=reversal, **kwargs), (step_class,)),
        kinds=ALL_KINDS,
        target_accept=TARGET_ACCEPT,
        prior_only=True,
        keeps_state=True,
        bind=partial(_bind, step_class, reversal, kwargs),
    )


def _pack(step_size: float, scale: np.ndarray, block: Block) -> np.ndarray:
    return np.concatenate([[step_size], scale])


def _bind(
    step_class: type[BlockedStep],
    reversal: Literal["self"] | None,
    kwargs: dict[str, Any],
    model: pm.Model,
    layout: Layout,
    block: Block,
) -> Kernel:
    """Build the step method for the variables of a block."""
    name = step_class.__name__
    tempered = temper_model(model)
    values = [value for value in model.value_vars if value.name in block.names]
    if issubclass(step_class, DEMetropolis | DEMetropolisZ):  # it looks at all variables
        kwargs = {"S": np.ones(block.size)} | kwargs
    try:
        step = step_class(vars=values, model=tempered, **kwargs)
    except Exception as error:
        raise KernelError(
            f"The step method {name} cannot be built for {', '.join(block.names)}: {error}"
        ) from error
    methods = list(getattr(step, "methods", [step]))
    _prepare_methods(methods, name, block, tempered, reversal)
    scaled = any(hasattr(method, "scaling") for method in methods)
    own_proposals = {"S", "proposal_dist"} & set(kwargs)
    offsets = dict(zip(block.names, _offsets(layout, block), strict=True))
    lock = Lock()  # step methods keep state, and chains run in threads

    def move(x: np.ndarray, beta: float, params: np.ndarray, rng: np.random.Generator) -> float:
        with lock:
            tempered._inverse_temperature.set_value(beta)
            scales = params[SCALE:]
            for method in methods:
                scale = np.concatenate([scales[offsets[value.name]] for value in method.vars])
                method.rng = rng
                _tune(method, params[STEP], scale, bool(own_proposals))
            try:
                point, stats = step.step(layout.unravel(x))
            except Exception as error:
                raise KernelError(
                    f"The step method {name} of {', '.join(block.names)} failed: {error}"
                ) from error
            x[:] = layout.ravel(point)
        accepts = [s["accept"] for s in stats if "accept" in s]
        return float(np.mean(np.minimum(1.0, accepts))) if accepts else 1.0

    return Kernel(
        name=name,
        transition=python_transition(move, name),
        n_scratch=0,
        pack=_pack,
        rebuild=(_bind, (step_class, reversal, kwargs, model, layout, block)),
        kinds=ALL_KINDS,
        reversal=reversal,
        target_accept=TARGET_ACCEPT if scaled else None,
        prior_only=True,
        keeps_state=True,
    )


def _prepare_methods(
    methods: list[Any],
    name: str,
    block: Block,
    tempered: TemperedModel,
    reversal: Literal["self"] | None,
) -> None:
    """Check what a step method is made of, and switch its own tuning off.

    Raises
    ------
    KernelError
        It ignores beta, or is said to be its own reversal and cannot be.
    """
    if reversal == "self" and len(methods) > 1:
        raise KernelError(
            f"The step method {name} of {', '.join(block.names)} moves its variables one after the "
            "other, so that it is not its own reversal (reversal='self'). Give each variable a "
            "StepKernel of its own."
        )
    for method in methods:
        if not _depends_on(method, tempered._inverse_temperature):
            names = ", ".join(value.name for value in method.vars)
            raise KernelError(
                f"The step method {name} of {names} ignores beta: no function that it compiled "
                "depends on the tempered density. A step method must take its density from "
                "the `logp` of the model that its constructor gets."
            )
        if hasattr(method, "stop_tuning"):
            method.stop_tuning()
        method.tune = False


def _tune(method: Any, step: float, scale: np.ndarray, own_proposals: bool) -> None:
    """Give a step method the tuning of a rung."""
    if hasattr(method, "scaling"):
        method.scaling = np.atleast_1d(step)
    if isinstance(method, Metropolis) and not own_proposals:
        method.proposal_dist = NormalProposal(2.38 * scale)
    if isinstance(method, pm.Slice):
        method.w = SLICE_WIDTH * scale


def _offsets(layout: Layout, block: Block) -> list[slice]:
    """Where each variable of a block lies among the coordinates of the block."""
    sizes = {
        name: part.stop - part.start for name, part in zip(layout.names, layout.slices, strict=True)
    }
    ends = np.cumsum([sizes[name] for name in block.names])
    return [
        slice(int(end) - sizes[name], int(end)) for name, end in zip(block.names, ends, strict=True)
    ]


def _depends_on(method: Any, shared: SharedVariable) -> bool:
    """Whether some function that a step method compiled depends on a shared variable."""
    return any(shared in function.get_shared() for function in _functions(method, depth=3))


def _functions(thing: Any, depth: int) -> Iterator[Function]:
    """Compiled functions among the attributes and items of an object."""
    if isinstance(thing, Function):
        yield thing
    elif depth > 0:
        if isinstance(thing, list | tuple):
            items = list(thing)
        else:
            names = [*getattr(thing, "__dict__", {}), *getattr(type(thing), "__slots__", ())]
            items = [getattr(thing, name, None) for name in names if name != "model"]
        for item in items:
            yield from _functions(item, depth - 1)
