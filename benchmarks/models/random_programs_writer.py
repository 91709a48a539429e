"""Writes the variables and terms of a random program, with data from a draw of its variables."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.models.random_programs_families import (
    CONTINUOUS,
    DISCRETE,
    FAMILIES,
    Parameter,
    Values,
)
from benchmarks.models.random_programs_language import (
    Argument,
    Deterministic,
    Dist,
    Item,
    Link,
    Observed,
    Table,
    Unknown,
)  # fmt: skip
from benchmarks.models.random_programs_sampling import sample, table_of
from benchmarks.models.random_programs_vectors import VECTORS, Vector, sizes_of
from benchmarks.truths.random_programs_densities import is_discrete, value_of
from benchmarks.truths.random_programs_states import NoTruthError, dimension_of

type Array = np.ndarray
type Rng = np.random.Generator

POPULAR = {
    "real": ("Normal", "Normal", "StudentT", "Cauchy"),
    "positive": ("HalfNormal", "Exponential", "Gamma", "LogNormal", "HalfCauchy"),
    "unit": ("Beta", "Beta", "Kumaraswamy", "LogitNormal"),
    "count": ("Poisson", "DiscreteUniform", "Binomial"),
    "binary": ("Bernoulli", "Categorical", "DiscreteUniform"),
}
SUPPORTS = {"real": (-np.inf, np.inf), "positive": (0.0, np.inf), "unit": (0.0, 1.0)}


def domain_of(name: str) -> str:
    """Say what the draws of a family of single values are."""
    family = FAMILIES[name]
    if family.discrete:
        return "count"
    if not family.parameters or "upper" in {p.name for p in family.parameters}:
        return "real"
    low, high = family.support({p.name: np.array(1.0) for p in family.parameters})
    if name == "Pareto":
        return "positive"
    return next((d for d, s in SUPPORTS.items() if s == (low, high)), "real")


BY_DOMAIN = {
    domain: [f.name for f in CONTINUOUS if domain_of(f.name) == domain] for domain in SUPPORTS
} | {
    "count": [f.name for f in DISCRETE if f.name != "DiracDelta"],
    "binary": list(POPULAR["binary"]),
}


class Writer:
    """Writes the items of a program, with a value for each variable to make data of."""

    def __init__(self, rng: Rng, coordinates: int) -> None:
        self.rng, self.left = rng, coordinates
        self.items: list[Item] = []
        self.env: Values = {}

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def number(self, low: float, high: float) -> float:
        return round(float(self.rng.uniform(low, high)), 2)

    def numbers(self, n: int, low: float, high: float) -> Table:
        return tuple(self.number(low, high) for _ in range(n))

    def fresh(self, kind: str) -> str:
        return f"{kind}{sum(item.name.startswith(kind) for item in self.items)}"

    # Arguments

    def dist(self, name: str, free: float, *, bounded: bool = False, long: bool = False) -> Dist:
        """Draw the arguments of a distribution, free with a probability."""
        if name in VECTORS:
            return self._vector(VECTORS[name], free, bounded=bounded, long=long)
        family = FAMILIES[name]
        args = tuple((p.name, self.argument(p, free, bounded=bounded)) for p in family.parameters)
        return Dist(name, args)

    def _vector(self, family: Vector, free: float, *, bounded: bool, long: bool) -> Dist:
        if family.space == "definite" and not long:
            free = 0.0  # PyMC: "Random variables detected in the logp graph"
        args = tuple((p.name, self.argument(p, free, bounded=bounded)) for p in family.parameters)
        if family.name == "EulerMaruyama" and args[0][1] == args[1][1]:
            raise NoTruthError("PyMC takes no variable twice here")
        parts: tuple[Dist, ...] = ()
        match family.parts:
            case "init" | "init innovation":
                names = ["Normal", *family.parts.split()[1:]]
                real = ("Normal", "StudentT", "Laplace", "Logistic")
                parts = tuple(self.dist(self.pick(real), 0.3 * (i > 0)) for i in range(len(names)))
            case "vector":
                parts = (self.dist("MvNormal", 0.0),)
            case "scales":
                parts = (self.dist(self.pick(("Exponential", "HalfNormal", "Gamma")), 0.0),)
        return Dist(family.name, args, parts, family.long if long else family.core)

    def argument(self, p: Parameter, free: float, *, bounded: bool = False) -> Argument:
        """Draw a constant, or a link to a variable that is there or is made."""
        if p.domain == "chol" or (self.chance(free) and p.domain != "fixed"):
            link = self._link(p, bounded=bounded)
            if link is not None:
                return self._named(link)
        k = int(p.low)
        match p.domain:
            case "count":
                return int(self.rng.integers(k, int(p.high) + 1))
            case "fixed":
                whole = p.low == k and p.high == int(p.high) and p.name in "NknclowerupperKnu"
                return (
                    int(self.rng.integers(k, int(p.high) + 1))
                    if whole
                    else self.number(p.low, p.high)
                )
            case "cuts":
                return (self.number(-1.2, -0.1), self.number(0.1, 1.2))
            case "probs":
                p1, p2 = self.number(0.2, 0.4), self.number(0.2, 0.4)
                return (p1, p2, round(1 - p1 - p2, 2))
            case "vector":
                low = 0.5 if p.name == "rho" else 1.5
                return self.numbers(k, -low, low)
            case "positives":
                return self.numbers(k, 0.7, 4.0)
            case "matrix":
                return (self.numbers(2, -1, 1), self.numbers(2, -1, 1))
            case "cov":
                return self._covariance()
        return self.number(p.low, p.high)

    def _covariance(self) -> Table:
        a, c, r = self.number(0.5, 2), self.number(0.5, 2), self.number(-0.7, 0.7)
        b = round(r * float(np.sqrt(a * c)), 3)
        return ((a, b), (b, c))

    def _named(self, link: Link) -> Link:
        """Make a link a deterministic variable of its own, now and then."""
        if link.form == "same" or not self.chance(0.2):
            return link
        name = self.fresh("d")
        self.items.append(Deterministic(name, link))
        self.env[name] = value_of(link, self.env)
        return Link(name)

    def _link(self, p: Parameter, *, bounded: bool) -> Link | None:
        domain = p.domain
        if domain == "shape" or (bounded and domain in ("real", "positive", "unit")):
            if self.chance(0.3) and (source := self.source("binary")):
                return Link(source, "pick", table=self.numbers(3, p.low, p.high))
            source = self.source("real")
            return Link(source, "between", p.low, p.high) if source else None
        match domain:
            case "real":
                kind = self.pick(("real", "real", "real", "positive", "binary"))
                source = self.source(kind)
                if kind == "binary" and source:
                    return Link(source, "pick", table=self.numbers(3, p.low, p.high))
                form = Link(source or "", "linear", self.number(-1, 1), self.number(0.5, 1.5))
                return self.pick((form, Link(source))) if source else None
            case "positive":
                kind = self.pick(("positive", "positive", "real", "binary"))
                source = self.source(kind)
                if not source:
                    return None
                return {
                    "positive": Link(source),
                    "real": Link(source, "exp", 0.0, self.number(0.3, 1.0)),
                    "binary": Link(source, "pick", table=self.numbers(3, p.low, p.high)),
                }[kind]
            case "unit":
                kind = self.pick(("unit", "unit", "real"))
                source = self.source(kind)
                form = (
                    Link(source or "")
                    if kind == "unit"
                    else Link(source or "", "between", 0.0, 1.0)
                )
                return form if source else None
            case "count":
                source = self.source("count") if not bounded else None
                return Link(source) if source else None
            case "cuts":
                return Link(made) if (made := self.ordered("Normal")) else None
        return self._link_of_array(p)

    def _link_of_array(self, p: Parameter) -> Link | None:
        k = int(p.low)
        match p.domain:
            case "probs":
                made = self.unknown(self.pick(("Dirichlet", "StickBreakingWeights")), 0.0)
                return Link(made) if made else None
            case "chol":
                made = self.unknown(self.pick(("LKJCholeskyCov", "LKJCorr")), 0.0)
                if made is None:
                    raise NoTruthError("no coordinates left")
                return Link(made)
            case "vector":
                source = self.source("real")
                return Link(source, "slope", 0.0, table=self.numbers(k, 0.2, 1)) if source else None
            case "positives":
                source = self.source("positive")
                return Link(source, "slope", 0.3, table=self.numbers(k, 0.5, 2)) if source else None
            case "matrix":
                source = self.source("real")
                table = (self.numbers(2, -1, 1), self.numbers(2, -1, 1))
                return Link(source, "slope", 0.0, table=table) if source else None
            case "cov":
                source = self.source("positive")
                return Link(source, "slope", 0.0, table=self._covariance()) if source else None
        return None

    # Variables

    def source(self, domain: str) -> str | None:
        """Name a scalar variable of a domain: one that is there, or a new one if there is room."""
        there = [
            item.name for item in self.items
            if isinstance(item, Unknown) and not item.shape and item.dist.family in FAMILIES
            and (domain_of(item.dist.family) == domain if domain != "binary"
                 else item.dist.family in ("Bernoulli", "Categorical"))
        ]  # fmt: skip
        if there and self.chance(0.4):
            return self.pick(there)
        popular = self.chance(0.5) or domain == "binary"
        name = self.pick(POPULAR[domain] if popular else BY_DOMAIN[domain])
        if domain == "binary" and name == "DiscreteUniform":
            dist = Dist(name, (("lower", 0), ("upper", 2)))
            return self.add_unknown(dist, (), "")
        return self.unknown(name, 0.2) or (self.pick(there) if there else None)

    def unknown(self, name: str, free: float, shape: tuple[int, ...] = ()) -> str | None:
        """Make a free variable of a family if there is room for it."""
        discrete = name in FAMILIES and FAMILIES[name].discrete
        discrete = discrete or (name in VECTORS and VECTORS[name].space == "counts")
        need = int(np.prod(shape)) if name in FAMILIES else max(1, int(np.prod(shape)))
        if name in VECTORS:
            family = VECTORS[name]
            need *= 1 if discrete else sizes_of(family.space, family.core)
        if need > self.left:
            return None
        self.left -= need
        dist = self.dist(name, free, bounded=discrete)
        self.left += need
        return self.add_unknown(dist, shape, self._transform(name))

    def _transform(self, name: str) -> str:
        if name == "CustomDist by dist":
            return "log"
        if name in VECTORS or FAMILIES[name].discrete or not self.chance(0.3):
            return ""
        if name == "Pareto":
            return ""
        return {"positive": self.pick(("log_exp_m1", "log")), "unit": "interval"}.get(
            domain_of(name), ""
        )

    def ordered(self, name: str) -> str | None:
        """Make a vector of two or three with an ordered transform."""
        if self.left < 2:
            return None
        self.left -= 2
        args = dict(self.dist(name, 0.2).args)
        self.left += 2
        if name == "Normal" and self.chance(0.5):
            args["mu"] = self.numbers(2, -1, 1)
        return self.add_unknown(Dist(name, tuple(args.items())), (2,), "ordered")

    def zero_sum(self) -> str | None:
        """Make a vector of three normals on the plane where they sum to zero."""
        args = (("mu", self.number(-1, 1)), ("sigma", self.number(0.5, 2)))
        return self.add_unknown(Dist("Normal", args), (3,), "zero_sum")

    def add_unknown(self, dist: Dist, shape: tuple[int, ...], transform: str) -> str | None:
        name = self.fresh("x")
        item = Unknown(name, dist, shape, transform)
        need = dimension_of(item) or max(1, int(np.prod(shape)))
        if need > self.left:
            return None
        self.left -= need
        self.items.append(item)
        self.env[name] = self._value(item)
        return name

    def _value(self, item: Unknown) -> Array:
        if item.transform == "ordered":
            return np.sort(sample(item.dist, item.shape, self.env, self.rng), axis=1)
        if item.transform == "zero_sum":
            x = sample(item.dist, item.shape, self.env, self.rng)
            return x - x.mean(axis=1, keepdims=True)
        return sample(item.dist, item.shape, self.env, self.rng)

    # Terms

    def observe(self, dist: Dist, missing: int = 0) -> str:
        """Add a likelihood with data of its own distribution."""
        shape = self._shape_of_data(dist, missing)
        data = sample(dist, shape, self.env, self.rng)[0]
        if dist.family not in VECTORS or VECTORS[dist.family].space == "real":
            data = np.round(data, 3)
        if missing:
            missing = min(missing, data.size - 1)
            data = np.asarray(data, float)
            flat = self.rng.choice(data.size, missing, replace=False)
            data.ravel()[flat] = np.nan
        elif is_discrete(dist):
            data = data.astype(int)
        name = self.fresh("y")
        self.items.append(Observed(name, dist, table_of(data), not missing and self.chance(0.15)))
        return name

    def _shape_of_data(self, dist: Dist, missing: int) -> tuple[int, ...]:
        n = int(self.rng.integers(max(2, missing + 1) if missing else 1, 6))
        if dist.family in VECTORS:
            family = VECTORS[dist.family]
            rows = family.long == family.core and family.name != "KroneckerNormal"
            rows = (
                rows and family.space != "definite" and not family.parts and len(family.core) == 1
            )
            rows = rows and family.space in ("real", "simplex", "counts") and family.name != "CAR"
            return (n,) if rows and self.chance(0.7) else ()
        shapes = [value_of(link, self.env).shape[1:]
                  for d in (dist, *dist.parts) for link in d.links()
                  if link.source and not _has_core(d, link)]  # fmt: skip
        base = np.broadcast_shapes(*shapes) if shapes else ()
        if len(base) == 2 and base[1] == 1:
            return (base[0], n)
        if not base and not missing and self.chance(0.1):
            return ()
        return (n, *base) if not base or self.chance(0.7) or missing else base

    def use(self, name: str, domain: str, index: int | None = None) -> None:
        """Add a likelihood with a parameter that is computed from a variable."""
        p = 0.25
        positive = Parameter("", "positive", 0.4, 2.5)
        link = Link(name, index=index)
        match domain:
            case "positive":
                kind = self.pick(("Normal", "Exponential", "Poisson", "Gamma"))
                real = self.argument(Parameter("", "real", -2, 2), p)
                args = {
                    "Normal": (("mu", real), ("sigma", link)),
                    "Exponential": (("lam", link),),
                    "Poisson": (("mu", link),),
                    "Gamma": (("alpha", 2.0), ("beta", link)),
                }[kind]
            case "unit":
                kind = self.pick(("Binomial", "Bernoulli", "Geometric"))
                args = (("n", 6), ("p", link)) if kind == "Binomial" else (("p", link),)
            case "probs":
                kind, args = "Categorical", (("p", link),)
            case "count":
                kind = "Normal"
                args = (("mu", replace(link, form="linear", a=0.0, b=self.number(0.5, 1))),
                        ("sigma", self.argument(positive, p)))  # fmt: skip
            case _:
                kind = self.pick(("Normal", "Laplace", "Bernoulli", "Poisson", "StudentT"))
                mean = replace(
                    link, form="linear", a=self.number(-0.5, 0.5), b=self.number(0.7, 1.3)
                )
                scale = self.argument(positive, p)
                args = {
                    "Normal": (("mu", mean), ("sigma", scale)),
                    "Laplace": (("mu", mean), ("b", scale)),
                    "StudentT": (("nu", 4.0), ("mu", mean), ("sigma", scale)),
                    "Bernoulli": (("p", replace(link, form="between", a=0.0, b=1.0)),),
                    "Poisson": (("mu", replace(link, form="between", a=0.2, b=8.0)),),
                }[kind]
        self.observe(Dist(kind, args))


def _has_core(dist: Dist, link: Link) -> bool:
    if dist.family in ("Mixture", "NormalMixture"):
        return True
    domains = (
        {p.name: p.domain for p in FAMILIES[dist.family].parameters}
        if dist.family in FAMILIES
        else {}
    )
    return any(v is link and domains.get(k) in ("probs", "cuts") for k, v in dist.args)
