"""Draws a program of a seed: a distribution in a role, and variables about it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from random_programs_cubature import Integral
from random_programs_families import CONTINUOUS, DISCRETE, FAMILIES, MIXED, Parameter, Values
from random_programs_language import (
    Argument, Deterministic, Dist, Item, Link, Observed, Potential, Program, Table, Unknown,
)  # fmt: skip
from random_programs_truth import (
    NoTruthError, dimension_of, is_discrete, log_density, single_density, states_of, support_of,
    truth_of, value_of, _place,
)  # fmt: skip
from random_programs_vectors import SPACES, VECTORS, Vector, compositions, sizes_of

type Array = np.ndarray
type Rng = np.random.Generator

KNOWN_TO, ATTEMPTS = 0.02, 60
"""Nats to which the truth must be known, and programs that a seed may try."""
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
} | {"count": [f.name for f in DISCRETE if f.name != "DiracDelta"], "binary": list(POPULAR["binary"])}  # fmt: skip

WITHOUT_CDF = ("SkewNormal", "AsymmetricLaplace", "Rice", "VonMises", "BetaBinomial",
               "HyperGeometric", "TruncatedNormal")  # fmt: skip
"""In PyMC, which cannot truncate or censor them."""
WITH_CDF = [f.name for f in (*CONTINUOUS, *DISCRETE)
            if f.cdf is not None and f.name not in WITHOUT_CDF]  # fmt: skip
ONE_ROLE = {"LKJCholeskyCov": "prior", "WishartBartlett": "prior", "CAR": "prior",
            "CAR without its constant": "likelihood", "ICAR": "likelihood"}  # fmt: skip
ROLES = (
    *(("prior", f.name) for f in (*CONTINUOUS, *DISCRETE)),
    *(("prior", name) for name, v in VECTORS.items() if v.space != "improper"),
    *(("likelihood", name) for name in (*FAMILIES, *VECTORS)
      if ONE_ROLE.get(name) != "prior"),
    *(("imputed", f.name) for f in (*CONTINUOUS, *DISCRETE)),
    *(("imputed", name) for name, v in VECTORS.items() if v.space == "real" and name != "CAR"),
    *(("truncated", name) for name in WITH_CDF),
    *(("censored", name) for name in WITH_CDF),
    *(("mixture", f.name) for f in (*CONTINUOUS, *DISCRETE) if f.name != "DiracDelta"),
    ("normal mixture", "NormalMixture"),
    *(("ordered", name) for name in ("Normal", "StudentT", "Laplace", "Gumbel")),
    *(("ordered", name) for name in ("HalfNormal", "Exponential", "Gamma")),
    ("zero sum", "Normal"),
)  # fmt: skip
"""Roles and distributions in them."""
SUBJECTS = (*dict.fromkeys(name for _, name in ROLES), "ordered", "zero sum")
"""What programs are about, in turn: a distribution, or a role that is rare otherwise."""


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
        args = tuple(
            (p.name, self.argument(p, free, bounded=bounded)) for p in family.parameters
        )
        return Dist(name, args)

    def _vector(self, family: Vector, free: float, *, bounded: bool, long: bool) -> Dist:
        args = tuple((p.name, self.argument(p, free, bounded=bounded)) for p in family.parameters)
        parts: tuple[Dist, ...] = ()
        match family.parts:
            case "init" | "init innovation":
                names = ["Normal", *family.parts.split()[1:]]
                real = [n for n in BY_DOMAIN["real"] if FAMILIES[n].support({}) == SUPPORTS["real"]] if False else ["Normal", "StudentT", "Laplace", "Logistic"]
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
                return int(self.rng.integers(k, int(p.high) + 1)) if whole else self.number(p.low, p.high)
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
                form = Link(source or "") if kind == "unit" else Link(source or "", "between", 0.0, 1.0)
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
            return self._place_unknown(dist, (), "")
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
        return self._place_unknown(dist, shape, self._transform(name))

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
        return self._place_unknown(Dist(name, tuple(args.items())), (2,), "ordered")

    def zero_sum(self) -> str | None:
        """Make a vector of three normals on the plane where they sum to zero."""
        args = (("mu", self.number(-1, 1)), ("sigma", self.number(0.5, 2)))
        return self._place_unknown(Dist("Normal", args), (3,), "zero_sum")

    def _place_unknown(self, dist: Dist, shape: tuple[int, ...], transform: str) -> str | None:
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
            data = np.asarray(data, float)
            flat = self.rng.choice(data.size, missing, replace=False)
            data.ravel()[flat] = np.nan
        elif is_discrete(dist):
            data = data.astype(int)
        name = self.fresh("y")
        self.items.append(Observed(name, dist, _table(data), not missing and self.chance(0.15)))
        return name

    def _shape_of_data(self, dist: Dist, missing: int) -> tuple[int, ...]:
        n = int(self.rng.integers(max(2, missing + 1) if missing else 1, 6))
        if dist.family in VECTORS:
            family = VECTORS[dist.family]
            rows = family.long == family.core and family.name != "KroneckerNormal"
            rows = rows and family.space != "definite" and not family.parts and len(family.core) == 1
            rows = rows and family.space in ("real", "simplex", "counts") and family.name != "CAR"
            return (n,) if rows and self.chance(0.7) else ()
        shapes = [value_of(link, self.env).shape[1:] for d in (dist, *dist.parts) for link in d.links()
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
        positive, probability = Parameter("", "positive", 0.4, 2.5), Parameter("", "unit", 0.2, 0.8)
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
                mean = replace(link, form="linear", a=self.number(-0.5, 0.5), b=self.number(0.7, 1.3))
                scale = self.argument(positive, p)
                args = {
                    "Normal": (("mu", mean), ("sigma", scale)),
                    "Laplace": (("mu", mean), ("b", scale)),
                    "StudentT": (("nu", 4.0), ("mu", mean), ("sigma", scale)),
                    "Bernoulli": (("p", replace(link, form="between", a=0.0, b=1.0)),),
                    "Poisson": (("mu", replace(link, form="between", a=0.2, b=8.0)),),
                }[kind]
        del probability
        self.observe(Dist(kind, args))


def _has_core(dist: Dist, link: Link) -> bool:
    if dist.family in ("Mixture", "NormalMixture"):
        return True
    domains = {p.name: p.domain for p in FAMILIES[dist.family].parameters} if dist.family in FAMILIES else {}
    return any(v is link and domains.get(k) in ("probs", "cuts") for k, v in dist.args)


def _table(data: Array) -> Any:
    if data.ndim == 0:
        return data.item()
    return tuple(_table(each) for each in data)


def sample(dist: Dist, shape: tuple[int, ...], env: Values, rng: Rng) -> Array:
    """Draw values of a distribution, (1, *shape, *core), for one point of `env`."""
    if dist.family in VECTORS:
        return _sample_vectors(dist, shape, env, rng)
    if dist.family == "Censored":
        x, limits = sample(dist.parts[0], shape, env, rng), dict(dist.args)
        return np.clip(x, limits["lower"], limits["upper"])
    if is_discrete(dist):
        x = np.arange(0.0, 200.0)
        grid = np.tile(x.reshape(-1, *(1,) * len(shape)), (1, *shape))
        logs = single_density(dist, grid, env)
    else:
        w = np.linspace(-5, 5, 1001).reshape(-1, *(1,) * len(shape)) * np.ones(shape)
        low, high = support_of(dist, env, w.ndim)
        grid, log_jac = _place(w, low, high)
        logs = single_density(dist, grid, env) + log_jac
    weights = np.exp(logs - logs.max(axis=0))
    cdf = np.cumsum(weights, axis=0)
    below = cdf < rng.random(shape) * cdf[-1]
    x = np.take_along_axis(grid, np.minimum(below.sum(axis=0), len(grid) - 1)[None], 0)
    hurdle = dist.family in ("HurdleGamma", "HurdleLogNormal")
    return np.where(rng.random(shape) < 0.3, 0.0, x) if hurdle else x


def _sample_vectors(dist: Dist, shape: tuple[int, ...], env: Values, rng: Rng) -> Array:
    family = VECTORS[dist.family]
    space = {"improper": "real"}.get(family.space, family.space)
    if family.name == "LKJCorr" and dist.core == (3, 3):
        return _factors(shape, rng)
    rows = []
    for _ in range(max(1, int(np.prod(shape)))):
        if space == "counts":
            x = np.array(compositions(int(dict(dist.args)["n"]), dist.core[0]))
            log_jac: Array | float = 0.0
        else:
            w = rng.normal(scale=1.2, size=(3000, sizes_of(space, dist.core)))
            x, log_jac = SPACES[space](w, dist.core)
            log_jac = log_jac + 0.5 * np.sum(w**2, axis=1) / 1.44
        logs = log_density(dist, x, env) + log_jac
        p = np.exp(logs - logs.max())
        rows.append(x[rng.choice(len(x), p=p / p.sum())])
    return np.array(rows).reshape(1, *shape, *dist.core)


def _factors(shape: tuple[int, ...], rng: Rng) -> Array:
    a = rng.normal(size=(1, *shape, 3, 6))
    c = a @ np.swapaxes(a, -1, -2)
    d = np.sqrt(np.diagonal(c, axis1=-2, axis2=-1))
    return np.linalg.cholesky(c / d[..., :, None] / d[..., None, :])


def write(rng: Rng, role: str, name: str) -> tuple[Item, ...]:
    """Write the items of a program about a distribution in a role."""
    writer = Writer(rng, int(rng.choice([1, 2, 3, 4], p=[0.25, 0.4, 0.25, 0.1])))
    match role:
        case "prior":
            _prior(writer, name)
        case "imputed":
            _imputed(writer, name)
        case "truncated" | "censored":
            _limited(writer, role.capitalize(), name)
        case "mixture":
            _mixture(writer, name)
        case "normal mixture":
            w = writer.argument(Parameter("w", "probs", 0, 1), 0.4)
            mu = tuple(sorted(writer.numbers(3, -3, 3)))
            sigma = writer.argument(Parameter("sigma", "positive", 0.4, 1.5), 0.8)
            writer.observe(Dist("NormalMixture", (("w", w), ("mu", mu), ("sigma", sigma))))
        case "ordered":
            writer.left = max(writer.left, 2)
            made = writer.ordered(name)
            _use_made(writer, made, domain_of(name), None)
        case "zero sum":
            writer.left = max(writer.left, 2)
            _use_made(writer, writer.zero_sum(), "real", None)
        case _:
            _likelihood(writer, name)
    real = [i.name for i in writer.items if isinstance(i, Unknown) and i.dist.family in FAMILIES
            and not FAMILIES[i.dist.family].discrete]  # fmt: skip
    if real and writer.chance(0.15):
        form = writer.pick(("square", "tilt"))
        potential = Potential(
            "p0", Link(writer.pick(real)), form, writer.number(-1, 1), writer.number(0.1, 0.8)
        )
        writer.items.append(potential)
    return tuple(writer.items)


def _use_made(writer: Writer, made: str | None, domain: str, index: int | None) -> None:
    if made is None:
        raise NoTruthError("no coordinates left")
    writer.use(made, domain, index)


def _prior(writer: Writer, name: str) -> None:
    if name in VECTORS:
        family = VECTORS[name]
        writer.left = max(writer.left, sizes_of(family.space, family.core))
        made = writer.unknown(name, 0.3)
        if family.space in ("corr", "chol"):
            args = (("mu", writer.numbers(2, -1, 1)), ("chol", Link(made or "")))
            writer.observe(Dist("MvNormal by chol", args, core=(2,)))
        elif family.space == "definite":
            args = (("mu", writer.numbers(2, -1, 1)), ("cov", Link(made or "")))
            writer.observe(Dist("MvNormal", args, core=(2,)))
        else:
            domain = {"simplex": "probs", "counts": "count"}.get(family.space, "real")
            _use_made(writer, made, domain, None)
        return
    shape = writer.pick(((), (), (), (), (2,), (2, 1)))
    writer.left = max(writer.left, int(np.prod(shape)))
    _use_made(writer, writer.unknown(name, 0.5, shape), domain_of(name), None)


def _likelihood(writer: Writer, name: str) -> None:
    dist = writer.dist(name, 0.7, long=True)
    if not writer.items:
        _prior(writer, writer.pick(BY_DOMAIN["real"]))
    writer.observe(dist)


def _imputed(writer: Writer, name: str) -> None:
    missing = writer.pick((1, 1, 2))
    writer.left = max(writer.left, missing)
    writer.left -= missing
    dist = writer.dist(name, 0.6)
    made = writer.observe(dist, missing)
    item = writer.items[-1]
    assert isinstance(item, Observed)
    data = np.asarray(item.data, float)
    writer.env[made] = np.where(np.isnan(data), np.nanmean(data), data)[None]
    if dist.family in FAMILIES and FAMILIES[dist.family].discrete:
        writer.env[made] = np.round(writer.env[made])
    if data.ndim == 1 and writer.chance(0.7):
        place = int(np.flatnonzero(np.isnan(data))[0])
        domain = "real" if name in VECTORS else domain_of(name)
        writer.use(made, domain, place)


def _limited(writer: Writer, kind: str, name: str) -> None:
    dist = writer.dist(name, 0.7)
    draws = sample(dist, (400,), writer.env, writer.rng)
    low, high = (round(float(q), 2) for q in np.quantile(draws, [0.1, 0.85]))
    if is_discrete(dist):
        low, high = float(np.floor(low)), float(max(np.ceil(high), low + 2))
    limits = writer.pick(((low, high), (low, np.inf), (-np.inf, high)))
    around = Dist(kind, (("lower", limits[0]), ("upper", limits[1])), (dist,))
    if kind == "Truncated" and not is_discrete(dist) and writer.left and writer.chance(0.4):
        _use_made(writer, writer._place_unknown(around, (), ""), "real", None)
        return
    if not writer.items:
        _prior(writer, writer.pick(BY_DOMAIN["real"]))
    writer.observe(around)


def _mixture(writer: Writer, name: str) -> None:
    domain = domain_of(name)
    w = writer.argument(Parameter("w", "probs", 0, 1), 0.3)
    first = writer.dist(name, 0.5)
    low, high = support_of(first, writer.env, 1)
    others = [n for n in BY_DOMAIN[domain] if n not in ("Pareto", "CustomDist by dist")]
    parts = [first]
    for _ in range(2):
        other = writer.dist(writer.pick(others) if np.isinf(np.max(high)) else name, 0.3)
        parts.append(other)
    mixture = Dist("Mixture", (("w", w),), tuple(parts))
    if domain == "real" and np.all(np.isinf(low)) and writer.left and writer.chance(0.3):
        reach = [support_of(p, writer.env, 1) for p in parts]
        if all(np.all(np.isinf(v)) for pair in reach for v in pair):
            _use_made(writer, writer._place_unknown(mixture, (), ""), "real", None)
            return
    if not writer.items:
        _prior(writer, writer.pick(BY_DOMAIN["real"]))
    writer.observe(mixture)


def attempts(seed: int) -> Iterator[Program]:
    """Programs that a seed may become, in their order."""
    options = [each for each in ROLES if SUBJECTS[seed % len(SUBJECTS)] in each]
    role, name = options[int(np.random.default_rng([44, seed]).integers(len(options)))]
    for attempt in range(ATTEMPTS):
        rng = np.random.default_rng([44, seed, attempt])
        try:
            items = write(rng, role, name)
        except NoTruthError:
            continue
        yield Program(seed, items, coords=bool(rng.random() < 0.2))


def program_of(seed: int) -> tuple[Program, Integral]:
    """The program of a seed and its truth: the first attempt whose truth is known."""
    for program in attempts(seed):
        try:
            truth = truth_of(program)
        except NoTruthError:
            continue
        if np.isfinite(truth.log_value) and truth.error < KNOWN_TO:
            return program, truth
    raise NoTruthError(f"no program of seed {seed} has a truth")


__all__ = ["DISCRETE", "MIXED", "program_of", "states_of"]
