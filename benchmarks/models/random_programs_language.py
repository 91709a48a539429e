"""What a random program is: frozen data, read once as PyMC source and once as an integrand."""

from collections.abc import Iterator
from dataclasses import dataclass

type Table = tuple["Table | float | int", ...]
type Argument = float | int | Table | Link


@dataclass(frozen=True)
class Link:
    """A value computed from an earlier variable x.

    Attributes
    ----------
    source : str
    form : str
        "same" is x, "linear" a + b x, "exp" exp(a + b x), "between" a + (b - a) / (1 + exp(-x)),
        "slope" a + table x, "pick" table[x].
    index : int, optional
        Of the element of x that is meant.
    """

    source: str
    form: str = "same"
    a: float = 0.0
    b: float = 1.0
    table: Table = ()
    index: int | None = None


@dataclass(frozen=True)
class Dist:
    """A distribution with its arguments, and others that it is made of.

    Attributes
    ----------
    family : str
        Name in PyMC, or of a variant of it.
    core : tuple of int
        Shape of one draw of a multivariate one.
    """

    family: str
    args: tuple[tuple[str, Argument], ...] = ()
    parts: tuple["Dist", ...] = ()
    core: tuple[int, ...] = ()

    def families(self) -> Iterator[str]:
        """Names of this one and of all that it is made of."""
        yield self.family
        for part in self.parts:
            yield from part.families()

    def links(self) -> Iterator[Link]:
        """Arguments that depend on earlier variables."""
        yield from (value for _, value in self.args if isinstance(value, Link))
        for part in self.parts:
            yield from part.links()


@dataclass(frozen=True)
class Unknown:
    """A free variable; `shape` is that of all its draws without the core of each."""

    name: str
    dist: Dist
    shape: tuple[int, ...] = ()
    transform: str = ""


@dataclass(frozen=True)
class Observed:
    """A likelihood; missing data are NaN, and unknowns. `data` may go through `pm.Data`."""

    name: str
    dist: Dist
    data: Table | float | int
    as_data: bool = False


@dataclass(frozen=True)
class Deterministic:
    """A named value."""

    name: str
    link: Link


@dataclass(frozen=True)
class Potential:
    """A further term: "square" is -b (x - a)^2, "tilt" b tanh(x - a), summed over elements."""

    name: str
    link: Link
    form: str
    a: float
    b: float


type Item = Unknown | Observed | Deterministic | Potential


@dataclass(frozen=True)
class Program:
    """A model: its variables and terms in their order.

    Attributes
    ----------
    passed_over : int
        Earlier ones of the seed, whose evidence could not be had well enough.
    """

    seed: int
    items: tuple[Item, ...]
    coords: bool = False
    passed_over: int = 0

    def families(self) -> list[str]:
        """Names of all families, each once, in order."""
        dists = [item.dist for item in self.items if isinstance(item, Unknown | Observed)]
        return list(dict.fromkeys(name for dist in dists for name in dist.families()))
