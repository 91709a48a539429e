"""What was compiled for a model, kept as long as the model lives and stays as it is.

The graphs of the model are walked node by node, and the numbers in them are hashed. So a variable
or a potential that was added, other data, a transform, an initial value or an array that was
changed in place is noticed. A false alarm costs a compilation, a missed change would cost a wrong
result; in doubt the model counts as changed.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pymc as pm
from pytensor import config
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import toposort
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_tempering.borrowed.private import log_density_of_op
from pymc_tempering.exceptions import ModelError
from pymc_tempering.model.exactly import ALONE, no_search_for_garbage

LIBRARIES = ("pymc", "pytensor", "pymc_extras")
"""Packages whose operations never change after they are made, and whose densities no user wrote."""

SIMPLE = (str, bytes, bool, int, float, complex, np.generic)
"""Values that cannot change."""

FLAGS = ("floatX", "mode", "optimizer_excluding", "optimizer_including")
"""Settings of PyTensor that the compiled code depends on; not fast math, which is always off."""


def walk_model(model: pm.Model, walk: "GraphWalk") -> None:
    """Have all that the compiled code of a model depends on met by a walk."""
    for kind in ("free_RVs", "observed_RVs", "potentials", "deterministics", "data_vars"):
        variables = list(getattr(model, kind))
        walk.entries.append((kind, tuple(variable.name for variable in variables)))
        walk.graphs(variables)
    for rv, value in model.rvs_to_values.items():
        walk.entries.append((rv.name, value.name, walk.content(model.rvs_to_transforms.get(rv))))
        walk.graphs([value])
        initial = model.rvs_to_initial_values.get(rv)
        if isinstance(initial, Variable):
            walk.graphs([initial])
        else:
            walk.entries.append(walk.content(initial))
    walk.graphs(length for length in model.dim_lengths.values() if length is not None)
    walk.entries.append((
        walk.content(dict(model.coords)),
        walk.content({name: tuple(dims) for name, dims in model.named_vars_to_dims.items()}),
        bool(model.check_bounds),
        flags(),
    ))  # fmt: skip
    if written := [rv for rv in model.basic_RVs if _is_users_own(model, rv)]:
        walk.graphs(written_densities(model, written))


def written_densities(model: pm.Model, rvs: Sequence[Variable]) -> list[Variable]:
    """Graphs of log densities that a user's own code writes.

    Raises
    ------
    ModelError
        That code raises an error.
    """
    try:
        return model.logp(vars=rvs, sum=False)
    except Exception:  # of the user's, whatever it is
        for rv in rvs:
            try:
                model.logp(vars=[rv], sum=False)
            except Exception as error:
                raise ModelError(
                    f"The log density of {rv.name!r} cannot be written down: its `logp`, or what "
                    f"PyMC makes of its `dist`, raises {type(error).__name__}: {error}. Correct "
                    "that function."
                ) from error
        raise


def flags() -> tuple[str, ...]:
    """Values of the settings that compiled code depends on, of a time when nothing compiles."""
    with ALONE:
        return tuple(str(getattr(config, flag)) for flag in FLAGS)


def _is_users_own(model: pm.Model, rv: Variable) -> bool:
    """Whether code of the user writes a variable's density anew at each compilation."""
    if log_density_of_op is None:
        return True
    transform = model.rvs_to_transforms.get(rv)
    logp = log_density_of_op.dispatch(type(rv.owner.op))
    makers = [type(rv.owner.op), logp, *_held_by(logp)]
    if transform is not None:
        makers += [type(transform), *filter(callable, vars(transform).values())]
    return not all(map(_of_library, makers))


def _held_by(function: Any) -> list[Any]:
    """Functions that a function closes over: PyMC wraps those of the user."""
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    return [content for content in cells if callable(content)]


def _of_library(thing: Any) -> bool:
    """Whether a class or function belongs to PyMC or PyTensor."""
    return str(getattr(thing, "__module__", "")).split(".")[0] in LIBRARIES


@dataclass(frozen=True)
class GraphWalk:
    """What a walk through a model has met so far."""

    entries: list[Any]
    alive: list[Any]

    def identity(self, thing: Any) -> int:
        """`id` of an object, which is kept."""
        self.alive.append(thing)
        return id(thing)

    def content(self, value: Any) -> Any:
        """Return what to compare of a value: its numbers and names, or which object it is."""
        if value is None or isinstance(value, SIMPLE):
            return (type(value).__name__, repr(value))
        if isinstance(value, np.ndarray):
            return digest(value)
        if isinstance(value, dict):
            return tuple((self.content(k), self.content(v)) for k, v in value.items())
        if isinstance(value, list | tuple):
            return tuple(self.content(item) for item in value)
        try:
            inside = vars(value)
        except TypeError:
            return self.identity(value)
        return (self.identity(value), *((k, self._shallow(v)) for k, v in inside.items()))

    def _shallow(self, value: Any) -> Any:
        plain = value is None or isinstance(value, (np.ndarray, *SIMPLE))
        return self.content(value) if plain else self.identity(value)

    def graphs(self, outputs: Iterable[Variable]) -> None:
        """Add all nodes of some graphs, with the graphs inside of operations.

        The view that a `pm.Deterministic` is, is passed over: copies of a model are without it.
        """
        outputs = list(outputs)
        numbers: dict[Variable, Any] = {}
        count = 0
        for node in toposort(outputs):
            inputs = tuple(numbers.get(v) or self._leaf(v) for v in node.inputs)
            if isinstance(node.op, ViewOp):
                numbers[node.outputs[0]] = inputs[0]
                continue
            self.entries.append(
                (*self.operation(node.op), inputs, tuple(v.type for v in node.outputs))
            )
            numbers |= {v: (count, place) for place, v in enumerate(node.outputs)}
            count += 1
        self.entries.append(tuple(numbers.get(v) or self._leaf(v) for v in outputs))

    def operation(self, op: Any) -> tuple[Any, ...]:
        """Return what to compare of an operation; its hash is that of its present properties."""
        if isinstance(op, HasInnerGraph):
            self.graphs(op.inner_outputs)
        inside = () if _of_library(type(op)) else self.content(op)
        try:
            return op, hash(op), inside
        except TypeError:
            return self.identity(op), inside

    def _leaf(self, variable: Variable) -> tuple[Any, ...]:
        """Return what to compare of a variable without an owner."""
        if isinstance(variable, Constant):
            return ("constant", variable.type, self.content(variable.data))
        if isinstance(variable.type, RandomGeneratorType):
            return ("generator", self.identity(variable))
        if isinstance(variable, SharedVariable):
            content = self.content(variable.get_value(borrow=True))
            return ("shared", self.identity(variable), content)
        return ("input", self.identity(variable), variable.type)


def digest(values: np.ndarray) -> tuple[Any, ...]:
    """Shape, type and a hash of the numbers of an array."""
    if values.dtype == object:
        return (values.shape, tuple(map(repr, values.ravel())))
    plain = np.ascontiguousarray(values)
    return values.shape, values.dtype.str, sha256(plain.view(np.uint8).data).hexdigest()


_MEMORIES: WeakKeyDictionary[pm.Model, tuple[GraphWalk, dict[Hashable, Any]]] = WeakKeyDictionary()
"""By model object: what was met of it at one time, and the parts that were compiled then.

Each call walks the model first, so that nothing can be stale. The objects that were met are kept,
so that no other gets the `id` of one.
"""


def _is_same(before: GraphWalk, now: GraphWalk) -> bool:
    """Whether a model is known to be the same as it was."""
    try:
        return before.entries == now.entries
    except (TypeError, ValueError):  # an operation with arrays as properties
        return False


def remembered[T](model: pm.Model, key: Hashable, make: Callable[[], T]) -> T:
    """Return what `make` returned for this model and key before, if the model is as it was then.

    Parameters
    ----------
    model : pymc.Model
    key : hashable
        What is made, with all that it depends on beside the model.
    make : callable
        Its result must not hold the model, which could then never be forgotten.
    """
    walk_model(model, now := GraphWalk([], []))
    before, parts = _MEMORIES.get(model, (None, {}))
    if before is None or not _is_same(before, now):
        parts = {}
        _MEMORIES[model] = now, parts
    if key not in parts:
        with no_search_for_garbage():
            parts[key] = make()
    return parts[key]
