"""The table of kernels that have a name: what each moves, and which kind of variable gets it."""

from collections.abc import Callable
from dataclasses import dataclass
from textwrap import indent, wrap

from pymc_tempering.kernels.contract import BINARY, BOUNDED, CONTINUOUS, FIXED_SUM, INTEGER, Kernel
from pymc_tempering.kernels.gibbs import Gibbs
from pymc_tempering.kernels.hmc import HMC
from pymc_tempering.kernels.langevin import DiscreteLangevin
from pymc_tempering.kernels.metropolis import RandomWalkMetropolis
from pymc_tempering.kernels.nuts import NUTS
from pymc_tempering.kernels.slice import Slice
from pymc_tempering.kernels.transfer import Transfer


@dataclass(frozen=True)
class NamedKernel:
    """A row of the table.

    Attributes
    ----------
    name : str
        What users write, as in `kernel="slice"`.
    factory : callable
        Makes the kernel; all its arguments have defaults.
    kinds : frozenset of str
        Kinds of variables that the kernel moves by default.
    summary : str
        What it is, in one sentence.
    takes_target_accept : bool
        Whether it gets the `target_accept` of `sample` and `SimulatedTempering`; the other kernels
        keep a target of their own.
    default_for : frozenset of str
        Kinds of variables that get it by default. Where two rows name the same kind, the first
        is taken; but not if it needs gradients and there are none.
    """

    name: str
    factory: Callable[..., Kernel]
    kinds: frozenset[str]
    summary: str
    takes_target_accept: bool = False
    default_for: frozenset[str] = frozenset()

    def make(self, target_accept: float) -> Kernel:
        """Make the kernel, for this target where it takes one."""
        return self.factory(target_accept) if self.takes_target_accept else self.factory()


REAL = frozenset({CONTINUOUS})
WHOLE = frozenset({BINARY, BOUNDED, INTEGER})

KERNELS = {
    row.name: row
    for row in (
        NamedKernel(
            "hmc", HMC, REAL, "Hamiltonian Monte Carlo.",
            takes_target_accept=True, default_for=REAL,
        ),
        NamedKernel("nuts", NUTS, REAL, "The No-U-Turn sampler.", takes_target_accept=True),
        NamedKernel(
            "slice", Slice, REAL | WHOLE, "Slice sampling, without gradients.",
            default_for=frozenset({CONTINUOUS, INTEGER}),
        ),
        NamedKernel(
            "metropolis", RandomWalkMetropolis, REAL | WHOLE,
            "Random-walk Metropolis with the covariance of each rung, without gradients.",
        ),
        NamedKernel(
            "gibbs", Gibbs, frozenset({BINARY, BOUNDED}), "Gibbs sampling.",
            default_for=frozenset({BINARY, BOUNDED}),
        ),
        NamedKernel(
            "langevin", DiscreteLangevin, frozenset({BINARY}),
            "Discrete Langevin proposals, which flip many variables with one gradient.",
        ),
        NamedKernel(
            "transfer", Transfer, frozenset({FIXED_SUM}),
            "Transfer of units between two cells, by Metropolis.",
            default_for=frozenset({FIXED_SUM}),
        ),
    )
}  # fmt: skip
"""All kernels that can be chosen by name; a new one is a file of its own and one row here."""


def default_kernels(target_accept: float, *, gradient: bool) -> dict[str, Kernel]:
    """Make the default kernel of each kind of variable; one object where kinds share it."""
    kernels: dict[str, Kernel] = {}
    for row in KERNELS.values():
        missing = row.default_for - kernels.keys()
        if missing:
            kernel = row.make(target_accept)
            if gradient or not kernel.uses_gradient:
                kernels |= dict.fromkeys(missing, kernel)
    return kernels


def words_for(kinds: frozenset[str]) -> str:
    """Say which variables a set of kinds means."""
    words = ["real variables"] if CONTINUOUS in kinds else []
    if kinds >= WHOLE:
        return " and ".join([*words, "integers"])
    words += ["binary variables"] if BINARY in kinds else []
    words += ["integers in known bounds"] if BOUNDED in kinds else []
    words += ["integers without known bounds"] if INTEGER in kinds else []
    words += ["vectors of counts with a fixed sum"] if FIXED_SUM in kinds else []
    return " and ".join(words)


def kernel_list() -> str:
    """List the kernels: a line for each name, with its sentence and the variables it moves."""
    lines = []
    for row in KERNELS.values():
        text = f'- "{row.name}": {row.summary} Moves {words_for(row.kinds)}.'
        lines += wrap(text, 88, subsequent_indent="  ")
    return "\n".join(lines)


def default_list() -> str:
    """Say which kind of variable gets which kernel by default."""
    with_gradient = default_kernels(0.5, gradient=True)
    without = default_kernels(0.5, gradient=False)
    parts = []
    for name, row in KERNELS.items():
        kinds = frozenset(kind for kind, kernel in with_gradient.items() if kernel.name == name)
        if kinds:
            others = {without[kind].name for kind in kinds} - {name}
            more = "".join(f' ("{other}" where the density has no gradient)' for other in others)
            parts.append(f'"{row.name}" for {words_for(kinds)}{more}')
    return ", ".join(parts)


def document_kernels[T](front_door: T) -> T:
    """Put the table of kernels into a docstring where `{kernels}` and its like stand.

    Parameters
    ----------
    front_door : callable
        With a docstring that holds `{kernels}` (the list, on a line of its own), `{defaults}` and
        `{tuned}` (the names of the kernels that take `target_accept`).
    """
    lines = []
    tuned = " and ".join(f'"{row.name}"' for row in KERNELS.values() if row.takes_target_accept)
    for line in (front_door.__doc__ or "").splitlines():
        margin = line[: len(line) - len(line.lstrip())]
        if line.strip() == "{kernels}":
            lines.append(indent(kernel_list(), margin))
        elif "{defaults}" in line or "{tuned}" in line:
            text = line.strip().replace("{defaults}", default_list()).replace("{tuned}", tuned)
            lines.append(indent("\n".join(wrap(text, 92)), margin))
        else:
            lines.append(line)
    front_door.__doc__ = "\n".join(lines)
    return front_door


__doc__ = f"{__doc__}\n\n{kernel_list()}\n\nDefaults: {default_list()}.\n"
