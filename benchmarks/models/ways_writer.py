"""Ways of writing one model: sizes, data, names, what stands between, what is done afterwards.

A kind of model (`ways_kinds.py`, `ways_kinds_second.py`) is written once, with a `Way` as its pen:
that gives it sizes or dims, wraps its data, and writes its unknowns and its likelihood. So a kind
has as many spellings as there are ways, and one exact value.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.transforms import Transform
from pymc.model.transform.optimization import freeze_dims_and_data

LABELS = {
    "ints": lambda n: list(range(n)),
    "strings": lambda n: [f"row {i}" for i in range(n)],
    "dates": lambda n: pd.date_range("2026-01-01", periods=n, freq="D"),
}
"""Coordinates of a dimension."""


class Tripled(Transform):
    """A transform of a user's: real numbers that are three times as large."""

    name = "tripled"

    def forward(self, value: Any, *inputs: Any) -> Any:
        """Real numbers of values."""
        return value * 3.0

    def backward(self, value: Any, *inputs: Any) -> Any:
        """Values of real numbers."""
        return value / 3.0

    def log_jac_det(self, value: Any, *inputs: Any) -> Any:
        """Log of the derivative of `backward`."""
        return pt.full_like(value, -np.log(3.0))


@dataclass(frozen=True, eq=False)
class Way:
    """A way of writing a model.

    Attributes
    ----------
    name : str
    dims : {"", "all", "unknowns", "terms"}
        What has dims; the rest has shapes.
    labels : {"ints", "strings", "dates"}
    values : callable
        From the data of a kind to those of this way, which may be others of another shape.
    wrap : callable
        From those to what is given as `observed=`.
    container : {"", "before", "after"}
        Whether the data are in a `pm.Data`, from the beginning or set afterwards.
    likelihood : {"", "deterministic", "potential", "logp", "dist", "shift", "later"}
        What stands in the place of a plain observed term.
    written : callable
        From a name to how it is written.
    initial : bool
        Whether unknowns are given an initial point.
    transform : Transform, optional
        Of unknowns on the real line.
    sized_by_data : bool
        Whether sizes are read off the data.
    inside : bool
        Whether the model is written inside of another one.
    after : callable
        What is done to the model.
    """

    name: str
    dims: str = ""
    labels: str = "ints"
    values: Callable[[np.ndarray], np.ndarray] = lambda y: y
    wrap: Callable[[np.ndarray], Any] = lambda y: y
    container: str = ""
    likelihood: str = ""
    written: Callable[[str], str] = lambda name: name
    initial: bool = False
    transform: Transform | None = None
    sized_by_data: bool = False
    inside: bool = False
    after: Callable[[pm.Model], pm.Model] = lambda model: model

    def seen(self, y: np.ndarray) -> np.ndarray:
        """Return the values of the data that are not missing, raveled."""
        shown = self.wrap(self.values(y))
        y = np.ma.masked_invalid(shown) if np.ma.isMaskedArray(shown) else self.values(y)
        return np.ma.compressed(np.ravel(y))

    def model(self, y: np.ndarray, write: Callable[["Pen"], None], **dims: int) -> pm.Model:
        """Write a model of data; `dims` are further dimensions and their lengths."""
        pen = Pen(self, y, {f"axis{i}": n for i, n in enumerate(np.shape(y))} | dims)
        longer = self.container == "after"
        coords = {d: LABELS[self.labels](n + (longer and d in pen.rows)) for d, n in pen.n.items()}
        outer = pm.Model(coords=coords if self.dims else None)
        with outer:
            if self.inside:
                with pm.Model(name="inner"):
                    write(pen)
            else:
                write(pen)
        if longer:
            fresh = {d: LABELS[self.labels](n) for d, n in pen.n.items() if d in pen.rows}
            with outer:
                pm.set_data({self.written("y data"): y}, coords=fresh if self.dims else None)
        if self.likelihood == "later":
            outer = pm.observe(outer, {self.written("y"): self.wrap(y)})
        if self.likelihood == "shift":
            outer = pm.do(outer, {self.written("shift"): np.zeros(())})
        return self.after(outer)


@dataclass(frozen=True, eq=False)
class Pen:
    """What a kind writes its model with."""

    way: Way
    y: np.ndarray
    n: dict[str, int]

    @property
    def rows(self) -> list[str]:
        """Dimensions of the data."""
        return [d for d in self.n if d.startswith("axis")]

    def size(self, *names: str, of: str = "unknowns") -> dict[str, Any]:
        """`shape=` or `dims=` of a variable that has such dimensions; `of` the data by default."""
        names = names or tuple(self.rows)
        if self.way.dims in ("all", of) and names:
            return {"dims": names if len(names) > 1 else names[0]}
        if self.way.sized_by_data and self.rows and names == tuple(self.rows):
            sizes = pm.Data(
                self.way.written(f"sizes {len(pm.modelcontext(None).data_vars)}"), self.y
            )
            return {"shape": tuple(sizes.shape[i] for i in range(len(names)))}
        return {"shape": tuple(self.n[d] for d in names)}

    def free(self, name: str, kind: Any, *args: Any, real: bool = False, **more: Any) -> Any:
        """Write an unknown; `real` where it is on the real line, without a transform."""
        if self.way.initial and real:
            more["initval"] = "prior" if kind is pm.GaussianRandomWalk else "support_point"
        if self.way.transform is not None and real:
            more["default_transform"] = self.way.transform
        return kind(self.way.written(name), *args, **more)

    def observe(self, kind: Any, *args: Any) -> None:
        """Write the term of the data: a distribution, and its arguments (first: the mean)."""
        way, name = self.way, self.way.written("y")
        size = self.size(of="terms") if self.rows else {}
        how = way.likelihood
        if how == "deterministic":
            own = {k: v for k, v in size.items() if k == "dims"}
            mean = pt.broadcast_to(args[0], self.y.shape)
            args = (pm.Deterministic(way.written("mean"), mean, **own), *args[1:])
        if how == "shift":
            args = (args[0] + pm.Normal(way.written("shift"), 0, 1), *args[1:])
        given = way.wrap(self.y)
        if way.container:
            first = given
            if way.container == "after":  # one row more, of other data
                first = np.concatenate([given, 0 * given[:1]], axis=0) if self.rows else given + 1
            own = {k: v for k, v in size.items() if k == "dims"}
            given = pm.Data(way.written("y data"), first, **own)
        if way.container == "after" and "shape" in size:
            size = {"shape": given.shape}
        if how == "potential":
            own = {k: v for k, v in size.items() if k == "dims"}
            pm.Potential(name, pm.logp(kind.dist(*args), pt.as_tensor(given)), **own)
        elif how == "logp":
            law = lambda value, *inputs: pm.logp(kind.dist(*inputs), value)  # noqa: E731
            pm.CustomDist(name, *args, logp=law, observed=given, **size)
        elif how == "dist":
            law = lambda *inputs: kind.dist(*inputs[:-1], size=inputs[-1])  # noqa: E731
            pm.CustomDist(name, *args, dist=law, observed=given, **size)
        elif how == "later":
            kind(name, *args, **size)
        else:
            kind(name, *args, observed=given, **size)


def pickled(model: pm.Model) -> pm.Model:
    """Return what comes back from a pickle."""
    return cloudpickle.loads(cloudpickle.dumps(model))


def polars_series(y: np.ndarray) -> Any:
    """Return data as a series of polars."""
    import polars as pl

    return pl.Series("y", y)


def masked(y: np.ndarray) -> np.ndarray:
    """Return data of which the last one is missing."""
    hidden = np.zeros(y.shape, bool)
    hidden.flat[-1] = True
    return np.ma.masked_array(y, hidden)


def _frame(y: np.ndarray) -> Any:
    return (
        pd.Series(y, index=[f"id {i}" for i in range(len(y))]) if y.ndim == 1 else pd.DataFrame(y)
    )


WAYS: Sequence[Way] = (
    Way("shape"),
    Way("dims of ints", dims="all"),
    Way("dims of strings", dims="all", labels="strings"),
    Way("dims of dates", dims="all", labels="dates"),
    Way("dims of unknowns alone", dims="unknowns"),
    Way("dims of terms alone", dims="terms", labels="strings"),
    Way("sizes read off the data", sized_by_data=True),
    Way("pm.Data", dims="all", container="before"),
    Way("pm.Data set again", dims="all", container="after"),
    Way("pm.observe", dims="all", likelihood="later"),
    Way("pm.do", dims="all", likelihood="shift"),
    Way("frozen dims and data", dims="all", container="before", after=freeze_dims_and_data),
    Way("deep copy", dims="all", container="before", after=copy.deepcopy),
    Way("pickled", dims="all", container="before", after=pickled),
    Way("model in a model", dims="all", inside=True),
    Way("blanks and bars", dims="all", written=lambda name: f"1 | {name} x:y"),
    Way("pandas", dims="all", labels="strings", wrap=_frame),
    Way("polars", wrap=polars_series),
    Way("masked", dims="all", wrap=masked),
    Way("float32", dims="all", wrap=lambda y: y.astype(np.float32)),
    Way("int8", dims="all", wrap=lambda y: y.astype(np.int8)),
    Way("bool", dims="all", values=lambda y: (y > 0).astype(float), wrap=lambda y: y.astype(bool)),
    Way("no dimensions", values=lambda y: y[2], wrap=float),
    Way("one element", dims="all", values=lambda y: y[2:3]),
    Way("two dimensions", dims="all", values=lambda y: y.reshape(2, -1)),
    Way("deterministic between", dims="all", likelihood="deterministic"),
    Way("potential", dims="all", likelihood="potential"),
    Way("CustomDist with logp", dims="all", likelihood="logp"),
    Way("CustomDist with dist", dims="all", likelihood="dist"),
    Way("given initial point", dims="all", initial=True),
    Way("transform of the user's", dims="all", transform=Tripled()),
)
"""All of them but `pymc.dims` and Bambi, which have models of their own (`ways_own.py`)."""
