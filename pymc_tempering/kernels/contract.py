"""The contract of a kernel: a compiled transition of a block; and kernels for all free variables.

These move their blocks one after the other, at the same beta.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from types import FunctionType
from typing import Any, Literal

import numpy as np

from pymc_tempering.borrowed.private import NOT_COUNTED
from pymc_tempering.exceptions import KernelError
from pymc_tempering.model.compiled import EXPLORE_SIGNATURE, LOG_RATIO, LOG_REFERENCE, Parts
from pymc_tempering.model.jit import compile_now, njit
from pymc_tempering.references.compiled_mixture import evaluate, evaluate_values

ACCEPTANCE, N_EVALUATIONS, DIVERGED = 0, 1, 2
N_INFO = 3

KINDS = frozenset({"continuous", "binary", "bounded", "integer", "fixed sum", "joint"})
"""Kinds of variables: real, 0 or 1, integers in known bounds, integers without, vectors of counts
with a fixed sum (a multinomial), and other discrete vectors, whose elements cannot move one at a
time."""


SMALL_BLOCK = 30
"""Coordinates up to which the products with a dense metric cost next to nothing."""


@dataclass(frozen=True, eq=False)
class Block:
    """Free variables that one kernel moves.

    Attributes
    ----------
    indices : array of int, shape (b,)
        Their positions in the raveled vector.
    lower, upper : array, shape (b,)
        Bounds that the values cannot leave, inclusive; infinite for real variables and for
        integers without known bounds.
    whole : array of bool, shape (b,)
        Whether the values are whole numbers.
    names : tuple of str
        Value variables.
    """

    indices: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    whole: np.ndarray
    names: tuple[str, ...] = ()

    @classmethod
    def real(cls, dim: int) -> "Block":
        """Block of all of `dim` real coordinates."""
        return cls(
            np.arange(dim), np.full(dim, -np.inf), np.full(dim, np.inf), np.zeros(dim, dtype=bool)
        )

    @property
    def size(self) -> int:
        """Number of coordinates b."""
        return self.indices.size

    def reversed(self) -> "Block":
        """Put the same coordinates in reverse order."""
        parts = {name: getattr(self, name)[::-1] for name in ("indices", "lower", "upper", "whole")}
        return replace(self, **parts)


@dataclass(frozen=True)
class Kernel:
    """A transition of a block of coordinates that leaves `pi_beta` invariant.

    Attributes
    ----------
    name : str
    transition : callable
        Compiled function of the signature `pymc_tempering.model.compiled.KERNEL_SIGNATURE`.
    n_scratch : int
        Rows of scratch space of length d that it needs.
    pack : callable
        `pack(step_size, metric, block)`: tuning numbers of one rung. `metric` holds the standard
        deviations of the rung's distribution, shape (b,), or, for a dense kernel, the lower
        Cholesky factor of its covariance, shape (b, b). With `lengths` also
        `pack(step_size, metric, block, length)`.
    kinds : frozenset of str
        Kinds of variables that it can move.
    target_accept : float, optional
        Acceptance probability that the step size is tuned for; None if there is nothing to tune.
    uses_gradient : bool
        Whether it reads `point.grads`; if so, they are those of the state when it returns.
    dense : bool or None
        Whether its metric is a covariance; None: for at most `SMALL_BLOCK` coordinates.
    dense_form : callable, optional
        Makes the same kernel with `dense` true, where `dense` is None.
    prior_only : bool
        Whether it only works on the path from the prior: it leaves prior times likelihood to the
        power beta invariant.
    bind : callable, optional
        `bind(model, layout, block)` makes the kernel that moves this block of this model, where
        the kernel must know them.
    lengths : tuple of float
        Trajectory lengths that the warm-up chooses from at each rung, the usual one first; empty
        where there is no choice.
    reversal : {"self", "block"} or callable, optional
        What undoes it in time. P~ is the reversal of P if pi(x) P(x, y) = pi(y) P~(y, x), with pi
        the law that both leave invariant. "self": P~ = P. "block": P~ is P with the coordinates
        of its block in reverse order, as for coordinates that are updated one after the other.
        Otherwise a function that makes the kernel P~; None where it is not known.
    carries : bool, default False
        Whether its first row of scratch keeps its content between the transitions of one state,
        where a standard normal momentum lies at first. Such a kernel is for annealing: a chain
        that must forget its past when it comes to the reference cannot have it.
    keeps_state : bool, default False
        Whether it keeps more from one transition to the next than the chain does, in Python, so
        that a chain cannot be stored and gone on with.
    rebuild : tuple
        `(function, args)` that makes this kernel again, for pickling: compiled code stays
        where it is.
    """

    name: str
    transition: Callable
    n_scratch: int
    pack: Callable[..., np.ndarray]
    rebuild: tuple[Callable[..., "Kernel"], tuple[Any, ...]]
    kinds: frozenset[str] = field(default=frozenset({"continuous"}))
    target_accept: float | None = None
    uses_gradient: bool = False
    dense: bool | None = False
    dense_form: Callable[[], "Kernel"] | None = None
    prior_only: bool = False
    bind: Callable[..., "Kernel"] | None = None
    lengths: tuple[float, ...] = ()
    reversal: Literal["self", "block"] | Callable[[], "Kernel"] | None = None
    carries: bool = False
    keeps_state: bool = False

    def __reduce__(self) -> tuple[Callable[..., "Kernel"], tuple[Any, ...]]:
        return self.rebuild

    def __post_init__(self) -> None:
        target = self.target_accept
        if target is not None and not (isinstance(target, int | float) and 0 < target < 1):
            raise ValueError(f"target_accept must lie between 0 and 1, not {self.target_accept!r}.")


@njit(forceinline=True, **NOT_COUNTED)
def tell(info, acceptance, evaluations, diverged):  # type: ignore[no-untyped-def]
    """Write what a transition has to say of itself."""
    info[ACCEPTANCE] = acceptance
    info[N_EVALUATIONS] = evaluations
    info[DIVERGED] = diverged


@njit(error_model="numpy")
def log_density_at(density, point, beta):  # type: ignore[no-untyped-def]
    """Evaluate a point without gradients; its tempered log density, -inf where it is no number."""
    evaluate_values(density, point)
    value = point.values[LOG_REFERENCE] + beta * point.values[LOG_RATIO]
    return value if -np.inf < value < np.inf else -np.inf


# Columns of `Parts.table`: where the block lies in `Parts.indices` and its tuning numbers in a
# row of `params`, whether the gradients must be brought up to date before, and the first row of
# scratch.
FIRST, LAST, FIRST_PARAM, LAST_PARAM, REFRESH, SCRATCH = range(6)
N_COLUMNS = 6


@njit()
def _before(density, point, beta, parts, params, scratch, rng, infos):  # type: ignore[no-untyped-def]
    """Move nothing: what comes before the first kernel."""


def _kernel(density, point, beta, block, params, scratch, rng, info):  # type: ignore[no-untyped-def]
    """Stand-in of the template for a transition."""


_b = 0
"""Stand-in of the template for the place of the kernel among all."""


def _template(density, point, beta, parts, params, scratch, rng, infos):  # type: ignore[no-untyped-def]
    """Move the blocks of the kernels before the last one, and then its own."""
    _before(density, point, beta, parts, params, scratch, rng, infos)
    indices, table = parts
    if table[_b, REFRESH]:
        evaluate(density, point)
    block = indices[table[_b, FIRST] : table[_b, LAST]]
    tuning = params[table[_b, FIRST_PARAM] : table[_b, LAST_PARAM]]
    own = scratch[table[_b, SCRATCH] :]
    _kernel(density, point, beta, block, tuning, own, rng, infos[_b])
    infos[_b, N_EVALUATIONS] += table[_b, REFRESH]


@cache
def _explorer(transitions: tuple[Callable, ...]) -> Any:
    """Make one function that calls those of the kernels, each on its block.

    It is one function because each function that compiled code is given costs 26 microseconds.
    """
    if not transitions:
        return _before
    before, last = _explorer(transitions[:-1]), len(transitions) - 1
    places = globals() | {"_before": before, "_kernel": transitions[-1], "_b": last}
    function = FunctionType(_template.__code__, places, "explore")
    return njit(EXPLORE_SIGNATURE, key=_cache_key(transitions))(function)


def _cache_key(transitions: tuple[Callable, ...]) -> str | None:
    """Key of the explorer in the disk cache; None where a transition is not of this package.

    A transition that a function of the package made around a user's own (`<locals>`) is not either.
    """
    if not all(
        transition.__module__.startswith("pymc_tempering.")
        and "<locals>" not in transition.__qualname__
        for transition in transitions
    ):
        return None
    return "_".join(transition.__name__ for transition in transitions)


type Covariances = tuple[np.ndarray | None, ...]
"""For each kernel of a compound the covariance of its block, (b, b); None where it wants none."""


@dataclass(frozen=True, eq=False)
class Compound:
    """Kernels with the blocks that they move.

    Attributes
    ----------
    kernels : tuple of Kernel
    blocks : tuple of Block
        As many; together they hold each coordinate once.
    """

    kernels: tuple[Kernel, ...]
    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        if not self.kernels or len(self.kernels) != len(self.blocks):
            raise ValueError("A compound needs at least one kernel, and one block for each.")

    def __reduce__(self) -> tuple[Any, ...]:
        return Compound, (self.kernels, self.blocks)

    @property
    def name(self) -> str:
        """Names of the kernels, in their order."""
        return " + ".join(kernel.name for kernel in self.kernels)

    @property
    def pairs(self) -> list[tuple[Kernel, Block]]:
        """Each kernel with its block."""
        return list(zip(self.kernels, self.blocks, strict=True))

    @property
    def n_blocks(self) -> int:
        """Number of kernels B."""
        return len(self.kernels)

    @property
    def n_scratch(self) -> int:
        """Rows of scratch space: some that all kernels share, and own ones of those that carry."""
        carried = sum(kernel.n_scratch for kernel in self.kernels if kernel.carries)
        return self._shared_scratch + carried

    @property
    def _shared_scratch(self) -> int:
        return max((kernel.n_scratch for kernel in self.kernels if not kernel.carries), default=0)

    @property
    def carries(self) -> bool:
        """Whether some kernel keeps something from one transition of a state to the next."""
        return any(kernel.carries for kernel in self.kernels)

    def reversed(self) -> "Compound":
        """Compound that runs backward in time: the reversals of its kernels in reverse order.

        Raises
        ------
        KernelError
            A kernel does not say what its reversal is.
        """
        reverse = [_reversed(kernel, block) for kernel, block in self.pairs][::-1]
        return Compound(*(tuple(each) for each in zip(*reverse, strict=True)))

    @property
    def dense_blocks(self) -> tuple[bool, ...]:
        """Whether the metric of each kernel is a covariance."""
        return tuple(
            block.size <= SMALL_BLOCK if kernel.dense is None else kernel.dense
            for kernel, block in self.pairs
        )

    def densified(self) -> "Compound":
        """Compound with a dense metric for each kernel that can have one."""
        kernels = (k if k.dense_form is None else k.dense_form() for k in self.kernels)
        return Compound(tuple(kernels), self.blocks)

    def lend(self, covs: Covariances, other: "Compound") -> Covariances:
        """Covariances for another compound: those of the blocks that both have."""
        pairs = zip(self.blocks, covs, strict=True)
        known = {block.indices.tobytes(): cov for block, cov in pairs}
        return tuple(known.get(block.indices.tobytes()) for block in other.blocks)

    @property
    def targets(self) -> np.ndarray:
        """Target acceptance of each kernel, shape (B,); NaN where there is nothing to tune."""
        targets = [kernel.target_accept for kernel in self.kernels]
        return np.array([np.nan if target is None else target for target in targets])

    @property
    def first_steps(self) -> np.ndarray:
        """Step sizes to begin with, shape (B,)."""
        return np.array([block.size**-0.25 for block in self.blocks])

    @property
    def options(self) -> np.ndarray:
        """Trajectory lengths to choose from, a row for each, shape (C, B); NaN without a choice."""
        n = max(1, *(len(kernel.lengths) for kernel in self.kernels))
        columns = [(kernel.lengths or (np.nan,)) for kernel in self.kernels]
        return np.array([[column[min(c, len(column) - 1)] for column in columns] for c in range(n)])

    @property
    def uses_gradient(self) -> bool:
        """Whether some kernel needs gradients."""
        return any(kernel.uses_gradient for kernel in self.kernels)

    @property
    def prior_only(self) -> bool:
        """Whether some kernel only works on the path from the prior."""
        return any(kernel.prior_only for kernel in self.kernels)

    @property
    def needs(self) -> dict[str, Any]:
        """What `compile_model` must know of the kernels.

        These are the value variables that some kernel needs gradients of, and whether some kernel
        evaluates the density without its gradients.
        """
        names = tuple(name for kernel, b in self.pairs if kernel.uses_gradient for name in b.names)
        return {"gradient": names, "values": not all(k.uses_gradient for k in self.kernels)}

    def pack(
        self,
        steps: np.ndarray,
        scale: np.ndarray,
        covs: Covariances | None,
        lengths: np.ndarray | None = None,
    ) -> np.ndarray:
        """Tuning numbers of one rung.

        Of steps (B,), standard deviations (d,), covariances and trajectory lengths (B,). Without
        covariances a dense metric has the standard deviations on its diagonal.
        """
        return np.concatenate(self._rows(steps, scale, covs, lengths))

    def _rows(
        self,
        steps: np.ndarray,
        scale: np.ndarray,
        covs: Covariances | None,
        lengths: np.ndarray | None = None,
    ) -> list[np.ndarray]:
        rows = []
        for b, (kernel, block, step, dense) in enumerate(
            zip(self.kernels, self.blocks, steps, self.dense_blocks, strict=True)
        ):
            metric = scale[block.indices]
            if dense:
                part = None if covs is None else covs[b]
                part = np.diag(metric**2) if part is None else part
                metric = np.linalg.cholesky(part + np.diag(1e-10 * np.diag(part) + 1e-300))
            length = () if lengths is None or not kernel.lengths else (float(lengths[b]),)
            rows.append(kernel.pack(float(step), metric, block, *length))
        return rows

    @cached_property
    def explore(self) -> Callable:
        """Compiled function that moves each block once."""
        made = _explorer(tuple(kernel.transition for kernel in self.kernels))
        compile_now(made)
        return made

    @cached_property
    def parts(self) -> Parts:
        """What `explore` must know of the blocks."""
        dim = sum(block.size for block in self.blocks)
        sizes = [row.size for row in self._rows(self.first_steps, np.ones(dim), None)]
        ends = np.cumsum([block.size for block in self.blocks])
        param_ends = np.cumsum(sizes)
        table = np.zeros((self.n_blocks, N_COLUMNS), dtype=np.int64)
        table[:, FIRST], table[:, LAST] = ends - [b.size for b in self.blocks], ends
        table[:, FIRST_PARAM], table[:, LAST_PARAM] = param_ends - sizes, param_ends
        gradient = np.array([kernel.uses_gradient for kernel in self.kernels])
        # Gradients are out of date after a kernel without them; before the first comes the last.
        table[:, REFRESH] = gradient & ~np.roll(gradient, 1)
        own = [kernel.n_scratch if kernel.carries else 0 for kernel in self.kernels]
        carried = self._shared_scratch + np.cumsum([0, *own[:-1]])
        table[:, SCRATCH] = np.where([kernel.carries for kernel in self.kernels], carried, 0)
        indices = np.concatenate([block.indices for block in self.blocks]).astype(np.int64)
        return Parts(indices, table)


def _reversed(kernel: Kernel, block: Block) -> tuple[Kernel, Block]:
    """Reversal of one kernel on its block."""
    if kernel.reversal is None:
        raise KernelError(
            f"The reversal in time of the kernel {kernel.name!r} is not known, and this method "
            "needs it: choose another kernel, or state the reversal (reversal= of CustomKernel "
            "and StepKernel)."
        )
    if kernel.reversal == "self":
        return kernel, block
    if kernel.reversal == "block":
        return kernel, block.reversed()
    assert callable(kernel.reversal)
    return kernel.reversal(), block


def on_all(kernel: Kernel, dim: int) -> Compound:
    """One kernel for all of `dim` real coordinates."""
    return Compound((kernel,), (Block.real(dim),))
