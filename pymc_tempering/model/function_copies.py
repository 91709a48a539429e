"""Copies of a compiled function that have shared variables of their own; nothing is compiled."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from pytensor.compile.executor import Function
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.fg import FunctionGraph

from pymc_tempering.borrowed.private import NumbaLinker
from pymc_tempering.model.exactly import ALONE


class KnownLinker(NumbaLinker):
    """PyTensor's linker for Numba, for a graph whose function exists."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def fgraph_convert(self, fgraph: FunctionGraph, **options: Any) -> Any:
        """Return the function."""
        return self.function

    def jit_compile(self, fn: Any) -> Any:
        """Return the function."""
        return fn


def is_copied_at_once(function: Function) -> bool:
    """Whether copies need no compilation: so it is with Numba's functions."""
    return isinstance(function.maker.linker, NumbaLinker)


def changed_by(function: Function) -> list[SharedVariable]:
    """List the shared variables that a call changes."""
    return [given.variable for given in function.maker.inputs if given.update is not None]


def copied(function: Function, swap: Mapping[SharedVariable, SharedVariable]) -> Function:
    """Copy a function of Numba's, with other shared variables.

    Parameters
    ----------
    function : Function
        One of which `is_copied_at_once` is true.
    swap : dict
        From its shared variables to those of the copy. Others are shared with the copy.
    """
    maker = function.maker
    with ALONE:
        own = maker.mode
        maker.mode = Mode(KnownLinker(function.vm.jit_fn), None)
        try:
            return function.copy(swap=dict(swap))
        finally:
            maker.mode = own


def fresh(shared: SharedVariable, value: Any) -> SharedVariable:
    """Make a shared variable like another one, with a copy of a value."""
    return type(shared)(type=shared.type, value=deepcopy(value), strict=True, name=shared.name)
