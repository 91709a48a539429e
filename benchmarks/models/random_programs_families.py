"""Distributions of one value: parameters, support, and densities by SciPy or by own formulas.

A specification names each parameter, its domain and the range of its constants. Domains: "real",
"positive", "unit"; "shape", a number that stays in its range; "count", a whole number; "fixed", a
constant; "cuts", two increasing constants; "probs", probabilities of three.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special, stats

from benchmarks.truths import random_programs_formulas as own

type Array = np.ndarray
type Values = dict[str, Array]
type Chart = Callable[[Values], tuple[Values, Callable[[Array], Array]]]


@dataclass(frozen=True)
class Parameter:
    """A parameter: what it may be, and the range of its constants."""

    name: str
    domain: str
    low: float
    high: float


@dataclass(frozen=True)
class Family:
    """A distribution of single values.

    Attributes
    ----------
    support : callable
        Least and greatest value, of the arguments; whole numbers for a discrete one.
    log_density : callable
        Of values and arguments, which broadcast.
    cdf, sf : callable, optional
        Probabilities of at most, and of more than, a value.
    chart : callable, optional
        Of the arguments: those of the standard law, and how its values become those of this one.
    draw : callable, optional
        Draws, of the arguments, a size, and a generator.
    """

    name: str
    parameters: tuple[Parameter, ...]
    discrete: bool
    support: Callable[[Values], tuple[Array | float, Array | float]]
    log_density: Callable[[Array, Values], Array]
    cdf: Callable[[Array, Values], Array] | None = None
    sf: Callable[[Array, Values], Array] | None = None
    chart: Chart | None = None
    draw: Callable[[Values, tuple[int, ...], np.random.Generator], Array] | None = None


def parameters_of(text: str) -> tuple[Parameter, ...]:
    """Read parameters from "name domain low high; ..."."""
    words = [each.split() for each in text.split(";") if each.strip()]
    return tuple(Parameter(n, d, float(lo), float(hi)) for n, d, lo, hi in words)


class Law:
    """A distribution of SciPy with its arguments; SciPy's own such object takes a millisecond."""

    def __init__(self, kind: Any, *args: Any) -> None:
        self.kind, self.args = kind, args

    def logpdf(self, x: Array) -> Array:
        return self.kind.logpdf(x, *self.args)

    def logpmf(self, x: Array) -> Array:
        return self.kind.logpmf(x, *self.args)

    def cdf(self, x: Array) -> Array:
        return self.kind.cdf(x, *self.args)

    def sf(self, x: Array) -> Array:
        return self.kind.sf(x, *self.args)

    def draw(self, size: tuple[int, ...], rng: np.random.Generator) -> Array:
        if self.kind is stats.truncnorm:  # whose draws take long for many arguments
            return self.kind.ppf(rng.random(size), *self.args)
        return self.kind.rvs(*self.args, size=size, random_state=rng)


type Frozen = Callable[..., Law]

_RATES = {"Exponential": "lam", "Gamma": "beta", "AsymmetricLaplace": "b"}
_SCALES = {"Wald": ("mu", "lam"), "Pareto": ("m",), "ExGaussian": ("sigma", "nu"),
           "Rice": ("sigma", "nu")}  # fmt: skip
"""Parameters that are one over a scale, and others that have the unit of the values."""
_UNITS = {
    "ExGaussian": lambda a: a["sigma"] + a["nu"],
    "Wald": lambda a: a["mu"] / (1 + a["mu"] / a["lam"]),
}
"""Sizes of values, where they are not the first of the scales."""


def _chart(name: str, text: str) -> Chart | None:
    """Chart of a family of locations and scales, also of logs and logits; none for others."""
    if name in ("LogNormal", "CustomDist by dist", "LogitNormal"):
        onto, back = (special.logit, special.expit) if name == "LogitNormal" else (np.log, np.exp)
        return lambda a: ({"mu": 0 * a["mu"], "sigma": 0 * a["sigma"] + 1},
                          lambda z: back(a["mu"] + a["sigma"] * onto(z)))  # fmt: skip
    names = [p.name for p in parameters_of(text)]
    at = "alpha" if name == "Cauchy" else "mu" if "mu" in names and name != "Wald" else None
    usual = [n for n in ("sigma", "b", "s", "beta") if n in names][:1]
    scales, rate = _SCALES.get(name, usual), _RATES.get(name)
    if not (scales or rate) or name in ("Beta", "Kumaraswamy", "TruncatedNormal", "VonMises"):
        return None
    unit = _UNITS.get(name, lambda a: 1 / a[rate] if rate else a[scales[0]])

    def chart(a: Values) -> tuple[Values, Callable[[Array], Array]]:
        by = unit(a)
        standard = a | ({rate: a[rate] * by} if rate else {k: a[k] / by for k in scales})
        if at:
            standard[at] = 0 * a[at]
        return standard, lambda z: (a[at] if at else 0.0) + by * z

    return chart


REAL = (-np.inf, np.inf)
POSITIVE = (0.0, np.inf)
UNIT = (0.0, 1.0)


def _by_scipy(
    name: str, text: str, support: tuple[float, float] | Callable, make: Frozen, discrete: bool
) -> Family:
    def log_density(x: Array, args: Values) -> Array:
        frozen = make(**args)
        return frozen.logpmf(x) if discrete else frozen.logpdf(x)

    return Family(
        name, parameters_of(text), discrete,
        support if callable(support) else lambda args: support, log_density,
        lambda x, args: make(**args).cdf(x), lambda x, args: make(**args).sf(x),
        None if discrete else _chart(name, text),
        lambda args, size, rng: make(**args).draw(size, rng),
    )  # fmt: skip


def _by_formula(
    name: str, text: str, support: tuple[float, float] | Callable, formula: Callable,
    discrete: bool = False, cdf: Callable | None = None,
) -> Family:  # fmt: skip
    return Family(
        name, parameters_of(text), discrete,
        support if callable(support) else lambda args: support,
        lambda x, args: formula(x, **args),
        None if cdf is None else lambda x, args: cdf(x, **args),
        None if cdf is None else lambda x, args: 1 - cdf(x, **args),
        None if discrete else _chart(name, text), own.DRAWS.get(name),
    )  # fmt: skip


MU = "mu real -2 2; "
SIGMA = "sigma positive .4 2.5"
s = stats

CONTINUOUS = [
    _by_scipy(name, text, support, make, discrete=False)
    for name, text, support, make in (
        ("Normal", MU + SIGMA, REAL, lambda mu, sigma: Law(s.norm, mu, sigma)),
        ("Laplace", MU + "b positive .4 2.5", REAL, lambda mu, b: Law(s.laplace, mu, b)),
        ("Logistic", MU + "s positive .3 1.5", REAL, lambda mu, s: Law(stats.logistic, mu, s)),
        ("Cauchy", "alpha real -2 2; beta positive .3 2", REAL,
         lambda alpha, beta: Law(s.cauchy, alpha, beta)),
        ("StudentT", "nu shape 2 12; " + MU + SIGMA, REAL,
         lambda nu, mu, sigma: Law(s.t, nu, mu, sigma)),
        ("SkewNormal", "alpha real -3 3; " + MU + SIGMA, REAL,
         lambda alpha, mu, sigma: Law(s.skewnorm, alpha, mu, sigma)),
        ("SkewStudentT", "a shape 1 5; b shape 1 5; " + MU + SIGMA, REAL,
         lambda a, b, mu, sigma: Law(s.jf_skew_t, a, b, mu, sigma)),
        ("Gumbel", MU + "beta positive .4 2", REAL, lambda mu, beta: Law(s.gumbel_r, mu, beta)),
        ("Moyal", MU + SIGMA, REAL, lambda mu, sigma: Law(s.moyal, mu, sigma)),
        ("ExGaussian", MU + "sigma positive .4 1.5; nu positive .4 2", REAL,
         lambda mu, sigma, nu: Law(s.exponnorm, nu / sigma, mu, sigma)),
        ("AsymmetricLaplace", "kappa shape .5 2; " + MU + "b positive .4 2", REAL,
         lambda kappa, mu, b: Law(s.laplace_asymmetric, kappa, mu, 1 / b)),
        ("HalfNormal", SIGMA, POSITIVE, lambda sigma: Law(s.halfnorm, 0, sigma)),
        ("HalfCauchy", "beta positive .3 2", POSITIVE, lambda beta: Law(s.halfcauchy, 0, beta)),
        ("Exponential", "lam positive .3 3", POSITIVE, lambda lam: Law(s.expon, 0, 1 / lam)),
        ("Gamma", "alpha shape .7 5; beta positive .4 3", POSITIVE,
         lambda alpha, beta: Law(s.gamma, alpha, 0, 1 / beta)),
        ("InverseGamma", "alpha shape 1.5 6; beta positive .5 4", POSITIVE,
         lambda alpha, beta: Law(s.invgamma, alpha, 0, beta)),
        ("ChiSquared", "nu shape 1.5 8", POSITIVE, lambda nu: Law(s.chi2, nu)),
        ("LogNormal", "mu real -1 1; sigma positive .3 1.2", POSITIVE,
         lambda mu, sigma: Law(s.lognorm, sigma, 0, np.exp(mu))),
        ("Weibull", "alpha shape .8 4; beta positive .5 3", POSITIVE,
         lambda alpha, beta: Law(s.weibull_min, alpha, 0, beta)),
        ("Wald", "mu positive .5 3; lam positive .5 4", POSITIVE,
         lambda mu, lam: Law(s.invgauss, mu / lam, 0, lam)),
        ("Rice", "nu shape .2 3; sigma positive .4 2", POSITIVE,
         lambda nu, sigma: Law(s.rice, nu / sigma, 0, sigma)),
        ("Pareto", "alpha shape 1 5; m shape .5 2", lambda a: (a["m"], np.inf),
         lambda alpha, m: Law(s.pareto, alpha, 0, m)),
        ("Beta", "alpha shape .7 5; beta shape .7 5", UNIT,
         lambda alpha, beta: Law(s.beta, alpha, beta)),
        ("Uniform", "lower fixed -3 0; upper shape .5 4", lambda a: (a["lower"], a["upper"]),
         lambda lower, upper: Law(s.uniform, lower, upper - lower)),
        ("Triangular", "lower fixed -3 -1; c fixed -.9 1; upper shape 1.2 4",
         lambda a: (a["lower"], a["upper"]),
         lambda lower, c, upper: Law(s.triang, (c - lower) / (upper - lower), lower,
                                     upper - lower)),
        ("TruncatedNormal", MU + SIGMA + "; lower fixed -3 -1; upper fixed 1 4",
         lambda a: (a["lower"], a["upper"]),
         lambda mu, sigma, lower, upper: Law(s.truncnorm, (lower - mu) / sigma,
                                                 (upper - mu) / sigma,
                                                     mu, sigma)),
        ("VonMises", "mu fixed -2 2; kappa positive .3 4", (-np.pi, np.pi),
         lambda mu, kappa: Law(s.vonmises, kappa, mu)),
    )
] + [
    _by_formula("HalfStudentT", "nu shape 2 10; " + SIGMA, POSITIVE, own.half_student_t),
    _by_formula("Kumaraswamy", "a shape .8 4; b shape .8 4", UNIT, own.kumaraswamy,
                cdf=lambda x, a, b: -np.expm1(b * np.log1p(-np.clip(x, 0, 1) ** a))),
    _by_formula("LogitNormal", "mu real -1 1; sigma positive .4 1.5", UNIT, own.logit_normal),
    _by_formula("Interpolated", "", (-1.0, 3.0), own.interpolated),
    _by_formula("CustomDist", MU + "b positive .4 2.5", REAL, own.laplace),
    _by_formula("DensityDist", MU + "b positive .4 2.5", REAL, own.laplace),
    _by_formula("CustomDist by dist", MU + SIGMA, POSITIVE, own.log_normal),
]  # fmt: skip

COUNTS = (0, np.inf)

DISCRETE = [
    _by_scipy(name, text, support, make, discrete=True)
    for name, text, support, make in (
        ("Bernoulli", "p unit .1 .9", (0, 1), lambda p: Law(s.bernoulli, p)),
        ("Binomial", "n count 2 8; p unit .1 .9", lambda a: (0, a["n"]),
         lambda n, p: Law(s.binom, n, p)),
        ("BetaBinomial", "alpha shape .7 4; beta shape .7 4; n count 2 8",
         lambda a: (0, a["n"]), lambda alpha, beta, n: Law(s.betabinom, n, alpha, beta)),
        ("Poisson", "mu positive .5 6", COUNTS, lambda mu: Law(s.poisson, mu)),
        ("NegativeBinomial", "mu positive .5 5; alpha shape 1 6", COUNTS,
         lambda mu, alpha: Law(s.nbinom, alpha, alpha / (alpha + mu))),
        ("Geometric", "p unit .2 .8", (1, np.inf), lambda p: Law(s.geom, p)),
        ("HyperGeometric", "N fixed 10 20; k fixed 3 6; n fixed 3 6",
         lambda a: (0, np.minimum(a["n"], a["k"])), lambda N, k, n: Law(s.hypergeom, N, k, n)),
        ("DiscreteUniform", "lower fixed 0 2; upper fixed 3 6",
         lambda a: (a["lower"], a["upper"]), lambda lower, upper: Law(s.randint, lower, upper + 1)),
    )
] + [
    _by_formula(name, text, support, formula, discrete=True, cdf=cdf)
    for name, text, support, formula, cdf in (
        ("DiscreteWeibull", "q unit .3 .8; beta shape .8 2", COUNTS, own.discrete_weibull,
         lambda x, q, beta: np.where(x < 0, 0.0, 1 - q ** ((np.floor(x) + 1.0) ** beta))),
        ("Categorical", "p probs 0 1", (0, 2), own.categorical, None),
        ("OrderedLogistic", "eta real -2 2; cutpoints cuts -1 1", (0, 2), own.ordered_logistic,
         None),
        ("OrderedProbit", "eta real -2 2; cutpoints cuts -1 1", (0, 2), own.ordered_probit, None),
        ("DiracDelta", "c fixed 1 3", lambda a: (a["c"], a["c"]), own.point, None),
        ("ZeroInflatedPoisson", "psi unit .3 .9; mu positive 1 6", COUNTS,
         own.zero_inflated(lambda mu: Law(s.poisson, mu)), None),
        ("ZeroInflatedBinomial", "psi unit .3 .9; n count 3 8; p unit .2 .8",
         lambda a: (0, a["n"]), own.zero_inflated(lambda n, p: Law(s.binom, n, p)), None),
        ("ZeroInflatedNegativeBinomial", "psi unit .3 .9; mu positive 1 5; alpha shape 1 6", COUNTS,
         own.zero_inflated(lambda mu, alpha: Law(s.nbinom, alpha, alpha / (alpha + mu))), None),
        ("HurdlePoisson", "psi unit .3 .9; mu positive 1 6", COUNTS,
         own.hurdle(lambda mu: Law(s.poisson, mu)), None),
        ("HurdleNegativeBinomial", "psi unit .3 .9; mu positive 1 5; alpha shape 1 6", COUNTS,
         own.hurdle(lambda mu, alpha: Law(s.nbinom, alpha, alpha / (alpha + mu))), None),
    )
]  # fmt: skip

MIXED = [
    _by_formula("HurdleGamma", "psi unit .3 .9; alpha shape 1 5; beta positive .5 3", POSITIVE,
                own.hurdle_of_positive(lambda alpha, beta: Law(s.gamma, alpha, 0, 1 / beta))),
    _by_formula("HurdleLogNormal", "psi unit .3 .9; mu real -1 1; sigma positive .3 1.2", POSITIVE,
                own.hurdle_of_positive(lambda mu, sigma: Law(s.lognorm, sigma, 0, np.exp(mu)))),
]  # fmt: skip
"""Zero has a probability, the rest a density: as likelihoods only."""

CONSTANT = [
    _by_formula("Flat", "", REAL, lambda x: np.zeros(np.shape(x))),
    _by_formula("HalfFlat", "", POSITIVE, lambda x: np.zeros(np.shape(x))),
]
"""Densities that have no normalizer: as likelihoods only."""

FAMILIES = {each.name: each for each in (*CONTINUOUS, *DISCRETE, *MIXED, *CONSTANT)}
