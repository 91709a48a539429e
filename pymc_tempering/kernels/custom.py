"""Kernels in Python: a function of the user's own from state to state, or a PyMC step method."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pickle import PicklingError
from threading import Lock
from typing import Any, Literal, NoReturn

import numba
import numpy as np
import pymc as pm
import pytensor
from numba import types
from pymc.step_methods.compound import BlockedStep
from pymc.step_methods.metropolis import DEMetropolis, DEMetropolisZ, Metropolis, NormalProposal
from pytensor.compile import Function
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pymc_tempering.arguments import check_choice, listed
from pymc_tempering.exceptions import KernelError
from pymc_tempering.kernels.contract import KINDS, Block, Kernel, log_density_at, tell
from pymc_tempering.model.compiled import KERNEL_SIGNATURE, RNG, VECTOR
from pymc_tempering.model.layout import Layout

State = Mapping[str, np.ndarray]
Move = Callable[[dict[str, np.ndarray], float, np.random.Generator], State]
TARGET_ACCEPT = 0.3
"""Acceptance that step methods with a `scaling` are tuned for, rung by rung."""

STEP, SCALE = 0, 1
"""Layout of the tuning numbers; the standard deviations start at `SCALE`."""

SLICE_WIDTH = 2.5
"""First interval of `pm.Slice`, in standard deviations of the rung."""


@dataclass(frozen=True)
class _ByAddress:
    """A function that Numba calls as the object that it is, as with all that cannot be pickled.

    Numba before 0.67 takes no other error than this one as a sign of that.
    """

    function: Callable[..., float]

    def __call__(self, *args: Any) -> float:
        return self.function(*args)

    def __reduce__(self) -> NoReturn:
        raise PicklingError("it is called by its address")


def python_transition(
    move: Callable[[np.ndarray, float, np.ndarray, Any], float], name: str
) -> Callable:
    """Compile a kernel around a Python function that changes a raveled state in place.

    Parameters
    ----------
    move : callable
        `move(x, beta, params, rng)` returns the acceptance probability. It holds the lock of the
        interpreter while it runs.
    name : str
        For the message if it moves to a state of density zero.
    """
    lost = (
        f"The kernel {name!r} returned a state whose density is zero or not a number; it does "
        "not leave the tempered density invariant."
    )

    @numba.njit(types.float64(VECTOR, types.float64, VECTOR, RNG))
    def call(x, beta, params, rng):  # type: ignore[no-untyped-def]
        with numba.objmode(acceptance="float64"):
            acceptance = move(x, beta, params, rng)
        return acceptance

    @numba.njit(KERNEL_SIGNATURE, nogil=True, error_model="numpy")
    def transition(density, point, beta, block, params, scratch, rng, info):  # type: ignore[no-untyped-def]
        acceptance = call(point.x, beta, params, rng)
        if log_density_at(density, point, beta) == -np.inf:
            raise KernelError(lost)
        tell(info, acceptance, 1.0, 0.0)

    return transition


def _pack(step_size: float, scale: np.ndarray, block: Block) -> np.ndarray:
    return np.concatenate([[step_size], scale])


def CustomKernel(
    move: Move,
    *,
    name: str | None = None,
    kinds: Collection[str] | None = None,
    reversal: Move | Literal["self"] | None = None,
) -> Kernel:
    """Make a kernel of a Python function that moves some variables of a model.

    Any move that knows more of the problem than a general kernel can: block Gibbs sampling of a
    restricted Boltzmann machine, an exchange of labels, an independence proposal. A kernel that
    is compiled is some hundred times faster; the developer's page "Add a kernel" has its
    contract. Such a move only knows the path from the prior, so the prior is the reference.

    Parameters
    ----------
    move : callable
        `move(state, beta, rng)` returns the new values of the variables that it moves, by name.
        `state` has all value variables of the model by name (unconstrained, with the names of
        `model.value_vars`), `rng` is a `numpy.random.Generator` to take all randomness from.
        It must leave the tempered density, prior times likelihood to the power `beta`,
        invariant for each `beta` in (0, 1], as a density of the unconstrained variables.
    name : str, optional
        By default the name of the function.
    kinds : collection of str, optional
        Kinds of variables that it may be given ("continuous", "binary", "bounded", "integer",
        "joint"); by default all.
    reversal : callable or "self", optional
        The move that runs backward in time, with the same arguments, or "self" if `move` is
        reversible: under the tempered density, from x to y as often as from y to x. Reverse
        annealing (:func:`pymc_tempering.reverse_ais`, :func:`pymc_tempering.sandwich`,
        :func:`pymc_tempering.annealed.raise_`) needs it; sampling does not. A sweep over
        coordinates is undone by the sweep in reverse order.

    Returns
    -------
    Kernel

    Raises
    ------
    KernelError
        While sampling: it returns a state of another shape, moves other variables than its own,
        or goes where the density is zero or not a number.

    Examples
    --------
    >>> import pymc as pm, pymc_tempering as pmt
    >>> def exact(state, beta, rng):  # of a standard normal prior and y = 1 with unit noise
    ...     return {"mu": rng.normal(beta / (1 + beta), (1 + beta) ** -0.5)}
    >>> with pm.Model():
    ...     mu = pm.Normal("mu")
    ...     y = pm.Normal("y", mu, 1, observed=1.0)
    ...     kernel = pmt.kernels.CustomKernel(exact)
    ...     idata = pmt.sample(200, kernel=kernel, random_seed=1, quiet=True)
    >>> idata["tempering"].attrs["kernel"]
    'exact'
    """
    name = name or str(getattr(move, "__name__", "custom"))
    return Kernel(
        name=name,
        transition=unbound,
        n_scratch=0,
        pack=_pack,
        rebuild=(partial(CustomKernel, name=name, kinds=kinds, reversal=reversal), (move,)),
        kinds=KINDS if kinds is None else frozenset(kinds),
        prior_only=True,
        bind=partial(_bind, move, name, reversal),
    )


def _bind(
    move: Move,
    name: str,
    reversal: Move | Literal["self"] | None,
    model: pm.Model,
    layout: Layout,
    block: Block,
) -> Kernel:
    """Give a Python move the names and shapes of a model."""
    own = set(block.names)
    places = dict(zip(layout.names, zip(layout.slices, layout.shapes, strict=True), strict=True))

    def move_raveled(
        x: np.ndarray, beta: float, params: np.ndarray, rng: np.random.Generator
    ) -> float:
        new = move(layout.unravel(x), beta, rng)
        if not isinstance(new, Mapping):
            raise KernelError(
                f"The kernel {name!r} must return a mapping from the names of the variables that "
                f"it moves to their values, not {type(new).__name__}."
            )
        if foreign := sorted(set(new) - own):
            raise KernelError(
                f"The kernel {name!r} returned values of {listed(foreign)}, which "
                f"it was not given to move: its variables are {listed(block.names)}."
            )
        for variable, value in new.items():
            part, shape = places[variable]
            value = np.asarray(value, dtype=float)
            if value.shape != shape:
                raise KernelError(
                    f"The kernel {name!r} returned {variable!r} with shape {value.shape}; the "
                    f"model has it with shape {shape}."
                )
            x[part] = value.ravel()
        return 1.0

    return replace(
        CustomKernel(move, name=name),
        transition=python_transition(move_raveled, name),
        rebuild=(_bind, (move, name, reversal, model, layout, block)),
        reversal=(
            partial(_bind, reversal, f"{name} reversed", move, model, layout, block)
            if callable(reversal)
            else reversal
        ),
        bind=None,
    )


def unbound(*args: Any) -> None:
    """Stand for the transition of a kernel that has no model yet."""
    raise KernelError("This kernel has no model yet.")


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
        Reverse annealing needs that; sampling does not.
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
        kinds=KINDS,
        target_accept=TARGET_ACCEPT,
        prior_only=True,
        keeps_state=True,
        bind=partial(_bind_step, step_class, reversal, kwargs),
    )


def _bind_step(
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
    places = dict(zip(layout.names, layout.slices, strict=True))
    lock = Lock()  # step methods keep state, and chains run in threads

    def move(x: np.ndarray, beta: float, params: np.ndarray, rng: np.random.Generator) -> float:
        with lock:
            tempered._inverse_temperature.set_value(beta)
            scales = np.empty(layout.dim)
            scales[block.indices] = params[SCALE:]
            for method in methods:
                scale = np.concatenate([scales[places[value.name]] for value in method.vars])
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

    return replace(
        StepKernel(step_class),
        transition=python_transition(_ByAddress(move), name),
        rebuild=(_bind_step, (step_class, reversal, kwargs, model, layout, block)),
        reversal=reversal,
        target_accept=TARGET_ACCEPT if scaled else None,
        bind=None,
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
        functions = _functions(method, depth=3)
        if not any(tempered._inverse_temperature in each.get_shared() for each in functions):
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
