"""Kernels of the user's own: a Python function from a state to a state."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Literal

import numba
import numpy as np
import pymc as pm
from numba import types

from pymc_tempering.exceptions import KernelError
from pymc_tempering.kernels.contract import (
    ACCEPTANCE,
    BINARY,
    BOUNDED,
    CONTINUOUS,
    DIVERGED,
    FIXED_SUM,
    INTEGER,
    JOINT,
    N_EVALUATIONS,
    Block,
    Kernel,
    log_density_at,
)
from pymc_tempering.model.compiled import KERNEL_SIGNATURE, RNG, VECTOR
from pymc_tempering.model.layout import Layout

State = Mapping[str, np.ndarray]
Move = Callable[[dict[str, np.ndarray], float, np.random.Generator], State]
ALL_KINDS = frozenset({CONTINUOUS, BINARY, BOUNDED, INTEGER, FIXED_SUM, JOINT})


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
        info[ACCEPTANCE] = call(point.x, beta, params, rng)
        if log_density_at(density, point, beta) == -np.inf:
            raise KernelError(lost)
        info[N_EVALUATIONS] = 1.0
        info[DIVERGED] = 0.0

    return transition


def _pack(step_size: float, scale: np.ndarray, block: Block) -> np.ndarray:
    return np.zeros(1)


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
        :func:`pymc_tempering.raise_`) and linked importance sampling need it; sampling does not.
        A sweep over coordinates is undone by the sweep in reverse order.

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
    ...     idata = pmt.sample(200, kernel=pmt.CustomKernel(exact), random_seed=1, quiet=True)
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
        kinds=ALL_KINDS if kinds is None else frozenset(kinds),
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
    places = {
        n: (part, shape)
        for n, part, shape in zip(layout.names, layout.slices, layout.shapes, strict=True)
    }

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
                f"The kernel {name!r} returned values of {', '.join(map(repr, foreign))}, which "
                f"it was not given to move: its variables are {', '.join(map(repr, block.names))}."
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

    return Kernel(
        name=name,
        transition=python_transition(move_raveled, name),
        n_scratch=0,
        pack=_pack,
        rebuild=(_bind, (move, name, reversal, model, layout, block)),
        kinds=ALL_KINDS,
        prior_only=True,
        reversal=(
            partial(_bind, reversal, f"{name} reversed", move, model, layout, block)
            if callable(reversal)
            else reversal
        ),
    )


def unbound(*args: Any) -> None:
    """Stand for the transition of a kernel that has no model yet."""
    raise KernelError("This kernel has no model yet.")
