"""Arrays of a compiled graph as its arguments: packed once into one buffer, passed by its address.

PyTensor would write each constant of a graph, and so all data of a model, into the machine code
and into its key in the cache on disk. Here the arrays leave the graph after all rewriting, so that
it is the same graph in every other way. Other data of the same shapes then find the same code,
unless the rewriting made another graph of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from llvmlite import ir
from numba import carray, farray, types
from numba.extending import intrinsic
from pytensor.compile import Function
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph

from pymc_tempering.model.fingerprint import digest

MIN_SIZE = {"f": 2, "i": 8, "u": 8, "b": 8}
"""Numbers in the smallest array that leaves the graph, by kind; a few whole ones may be a shape."""

ALIGNMENT = 64
"""Bytes that each array starts at a multiple of, as wide as the widest vectors of a processor."""

ADDRESS = types.uintp


@intrinsic
def pointer(typingctx, address):  # type: ignore[no-untyped-def]
    """Turn a number into a pointer."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(address), codegen


@dataclass(frozen=True)
class Packing:
    """Arrays that left some graphs, and where they lie in one buffer.

    Attributes
    ----------
    arrays : list of ndarray
        Each is in C or in Fortran order, and there once, however many graphs have it.
    """

    arrays: list[np.ndarray] = field(default_factory=list)

    def open(self, function: Function) -> tuple[FunctionGraph, list[int]]:
        """Take the arrays out of a compiled function's graph.

        Returns
        -------
        FunctionGraph
            The graph with further inputs in the places of its arrays.
        list of int
            Which arrays those inputs are.
        """
        graph, arrays = arrays_out(function.maker.fgraph)
        return graph, [self._place(array) for array in arrays]

    def _place(self, array: np.ndarray) -> int:
        """Index of an array, which is added if it is new."""
        if not array.flags.c_contiguous and not array.flags.f_contiguous:
            array = np.ascontiguousarray(array)
        key = (array.flags.c_contiguous, digest(array))
        for place, other in enumerate(self.arrays):
            if (other.flags.c_contiguous, digest(other)) == key:
                return place
        self.arrays.append(array)
        return len(self.arrays) - 1

    @property
    def starts(self) -> list[int]:
        """Byte of the buffer at which each array starts."""
        sizes = [-(-array.nbytes // ALIGNMENT) * ALIGNMENT for array in self.arrays]
        return [sum(sizes[:i]) for i in range(len(sizes))]

    def source(self, places: Iterable[int]) -> str:
        """Lines of Python that make some of the arrays, without copies, of the address `data`."""
        lines = []
        for place in sorted(set(places)):
            array, start = self.arrays[place], self.starts[place]
            make = "carray" if array.flags.c_contiguous else "farray"
            kind = "bool_" if array.dtype == bool else array.dtype.name
            where = f"pointer(data + np.uintp({start}))"
            lines.append(f"array{place} = {make}({where}, {array.shape}, np.{kind})\n")
        return "".join(lines)

    def pack(self) -> np.ndarray:
        """Buffer that holds the arrays; whoever passes its address must keep it."""
        total = sum(-(-array.nbytes // ALIGNMENT) * ALIGNMENT for array in self.arrays)
        raw = np.zeros(total + ALIGNMENT, dtype=np.uint8)
        first = -raw.ctypes.data % ALIGNMENT
        packed = raw[first : first + total]
        for array, start in zip(self.arrays, self.starts, strict=True):
            flat = array.ravel(order="C" if array.flags.c_contiguous else "F")
            packed[start : start + array.nbytes] = flat.view(np.uint8)
        return packed


ENVIRONMENT = {"carray": carray, "farray": farray, "pointer": pointer}
"""Names in the lines of `Packing.source`."""


def arrays_out(graph: FunctionGraph) -> tuple[FunctionGraph, list[np.ndarray]]:
    """Copy a graph, with further inputs in the places of its arrays; return the arrays, too."""
    # Its features come along: they know what is overwritten in place, and in which order.
    copy, _ = graph.clone_get_equiv(check_integrity=False, attach_feature=True)
    arrays = []
    for constant in _large(copy):
        arrays.append(np.asarray(constant.data))
        variable = constant.type()
        copy.add_input(variable)
        copy.replace(constant, variable)
    return copy, arrays


def _large(graph: FunctionGraph) -> list[Constant]:
    """Constants of a graph that are plain arrays of some size, in the order of their first use."""
    inputs = [variable for node in graph.toposort() for variable in node.inputs]
    found = {
        id(variable): variable
        for variable in [*inputs, *graph.outputs]
        if isinstance(variable, Constant)
        and isinstance(variable.data, np.ndarray)
        and variable.data.size >= MIN_SIZE.get(variable.data.dtype.kind, np.inf)
    }
    return list(found.values())
