"""Draws a program of a seed: a distribution in a role, and variables about it."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks.models.random_programs_families import CONTINUOUS, DISCRETE, FAMILIES, Parameter
from benchmarks.models.random_programs_language import (
    Dist,
    Item,
    Link,
    Observed,
    Potential,
    Program,
    Unknown,
)
from benchmarks.models.random_programs_sampling import sample
from benchmarks.models.random_programs_vectors import VECTORS, sizes_of
from benchmarks.models.random_programs_writer import BY_DOMAIN, Writer, domain_of
from benchmarks.truths.random_programs_cubature import Integral
from benchmarks.truths.random_programs_densities import is_discrete, support_of
from benchmarks.truths.random_programs_monte_carlo import checked
from benchmarks.truths.random_programs_states import NoTruthError
from benchmarks.truths.random_programs_truth import truth_of

type Rng = np.random.Generator

KNOWN_TO, ATTEMPTS = 0.02, 60
"""Nats to which the truth must be known, and programs that a seed may try."""

WITHOUT_CDF = ("SkewNormal", "AsymmetricLaplace", "Rice", "VonMises", "BetaBinomial",
               "HyperGeometric", "TruncatedNormal")  # fmt: skip
"""In PyMC, which cannot truncate or censor them."""
WITH_CDF = [f.name for f in (*CONTINUOUS, *DISCRETE)
            if f.cdf is not None and f.name not in WITHOUT_CDF]  # fmt: skip
ONE_ROLE = {"LKJCholeskyCov": "prior", "WishartBartlett": "prior", "CAR": "prior",
            "CAR of data": "likelihood", "ICAR": "likelihood"}  # fmt: skip
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
        _use_made(writer, writer.add_unknown(around, (), ""), "real", None)
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
            _use_made(writer, writer.add_unknown(mixture, (), ""), "real", None)
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
        if not any(isinstance(item, Unknown) for item in items):
            continue
        yield Program(seed, items, coords=bool(rng.random() < 0.2))


def program_of(seed: int) -> tuple[Program, Integral]:
    """The program of a seed and its truth: the first attempt whose truth is known."""
    passed_over = 0
    for program in attempts(seed):
        try:
            truth = truth_of(program)
            if truth.error < KNOWN_TO:
                truth = checked(program, truth)
        except NoTruthError:
            continue
        except ValueError:  # SciPy refuses parameters that have overflown
            passed_over += 1
            continue
        if truth.error < KNOWN_TO:
            return replace(program, passed_over=passed_over), truth
        passed_over += 1
    raise NoTruthError(f"no program of seed {seed} has a truth")
