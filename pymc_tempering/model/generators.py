"""Random generators for compiled code, as rows of a table of addresses.

Numba unpacks each generator among the arguments of a function in some 500 instructions, and makes
a model with 100 variables, each with a generator of its own, wait for that longer than for all of
its draws.
"""

from collections.abc import Sequence
from ctypes import c_void_p, cast

import numpy as np
from numba import types, uintp
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from pymc_tempering.borrowed.numba_code import struct_of
from pymc_tempering.model.compiled import RNG

TABLE = uintp[:, ::1]

FIELDS = "state_address", "state", "next_uint64", "next_uint32", "next_double", "bit_generator"
"""What NumPy tells of a bit generator, in the order of the columns; before them come the addresses
of the generator and of the bit generator themselves, for operations that run in Python."""

MEMBERS = (
    "state_address", "state", "fnptr_next_uint64", "fnptr_next_uint32", "fnptr_next_double",
    "bit_generator",
)  # fmt: skip
"""What Numba calls them."""

BITS = types.NumPyRandomBitGeneratorType("bit_generator")


def rows_of(generators: Sequence[np.random.Generator]) -> np.ndarray:
    """Table of some generators, a row each, which must outlive its use."""
    rows = [_row(generator) for generator in generators]
    return np.array(rows, dtype=np.uintp).reshape(-1, 2 + len(FIELDS))


def _row(generator: np.random.Generator) -> list[int]:
    bits = generator.bit_generator
    told = [getattr(bits.ctypes, field) for field in FIELDS]
    addresses = [x if isinstance(x, int) else cast(x, c_void_p).value or 0 for x in told]
    return [id(generator), id(bits), *addresses]


@intrinsic
def generator_at(typingctx, table, row):  # type: ignore[no-untyped-def]
    """Give the generator in a row of a table."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        data = make_array(table)(context, builder, args[0]).data
        first = builder.mul(args[1], args[1].type(2 + len(FIELDS)))
        places = [builder.add(first, args[1].type(i)) for i in range(2 + len(FIELDS))]
        own, bits_own, *told = [builder.load(builder.gep(data, [place])) for place in places]
        pyobject = context.get_value_type(types.pyobject)
        told_as = dict(zip(MEMBERS, told, strict=True))
        told_as["parent"] = builder.inttoptr(bits_own, pyobject)
        bits = struct_of(context, builder, BITS, told_as)
        parts = {"bit_generator": bits, "parent": builder.inttoptr(own, pyobject)}
        return struct_of(context, builder, RNG, parts)

    return RNG(table, row), codegen
