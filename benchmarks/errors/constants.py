"""Whether the density of each distribution of PyMC is normalized, whatever its parameters are.

A missing constant that depends on a parameter makes evidences and posteriors wrong where that
parameter is unknown. So exp(logp) of all public distributions is integrated or summed at three
settings of their parameters or more, with the default transform and its Jacobian: on a line by
quadrature in pieces, in more dimensions by importance sampling from Student laws that are fitted to
the density, over whole numbers by sums. Where that is not 1, a small model of unknown parameters
tells what this package does, and the density that it uses is integrated too.

    python benchmarks constants
    python benchmarks constants --only ICAR Truncated    # the other rows stay as they were
"""

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.pytensorf import compile as compile_graph
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from scipy.integrate import tanhsinh
from scipy.optimize import minimize
from scipy.special import logsumexp, ndtri
from scipy.stats import chi2, multivariate_t, qmc

from benchmarks.common import RESULTS, Row, earlier_rows, save
from benchmarks.private import compile_model, log_density_of
from pymc_tempering.exceptions import TemperingError

MODE = Mode("py", "fast_run").excluding("fusion", "inplace")
TOLERANCE, ERRORS, DIVERGES = 1e-3, 8.0, 0.05
"""A log integral counts as zero within so many nats, or so many of its errors, if it has a small
relative error at all."""
N_POINTS, N_SCRAMBLES, N_FITS = 2**9, 8, 4
BASE, OWN = "a base class", "the density is the user's"
NOT_APPLICABLE = {
    **dict.fromkeys(("Continuous", "Discrete", "Distribution", "SymbolicRandomVariable"), BASE),
    **dict.fromkeys(("CustomDist", "DensityDist"), OWN),
    "Simulator": "no density; refused by name",
    "Lognormal": "another name of LogNormal",
}

type Density = Callable[[np.ndarray], np.ndarray]
type Found = list[tuple[float, float]]


class Line(NamedTuple):
    """A piece of the line, and places that have a mass; farther out, densities round badly."""

    low: float = -1e9
    high: float = 1e9
    masses: tuple[float, ...] = ()


class Nodes(NamedTuple):
    """Places of a cubature, and the logs of their weights."""

    rows: np.ndarray
    log_weights: np.ndarray


class Case(NamedTuple):
    name: str
    parameters: str
    settings: Sequence[tuple[Any, ...]]
    build: Callable[..., Any]
    support: Line | Nodes | np.ndarray | None = None  # none: the space of the default transform
    constant: bool = False  # the parameters must be constants
    df: float = 3.0  # of the Student laws


def case(name: str, parameters: str, settings: Sequence[Any], **options: Any) -> Case:
    """Make a case of a distribution of a name, unless it has `build`; the rest goes to PyMC."""
    own = {key: options.pop(key) for key in ("support", "constant", "df") if key in options}
    law, names = getattr(pm, name.split(",")[0]), parameters.split()

    def by_name(*values: Any) -> Any:
        return law("x", **dict(zip(names, values, strict=True)), **options)

    rows = [s if isinstance(s, tuple) else (s,) for s in settings]
    return Case(name, parameters, rows, options.pop("build", by_name), **own)


def some(settings: Sequence[Any], laws: str, **options: Any) -> Iterator[Case]:
    """Cases of several distributions at the same settings; `laws` has their parameters too."""
    for law in laws.split("; "):
        name, _, parameters = law.partition(" ")
        yield case(name, parameters, settings, **options)


def dense(graph: Variable, value: Variable, shape: tuple[int, ...]) -> Density:
    """Compile a log density to a function of rows of unconstrained values."""
    many = pt.tensor(dtype=value.dtype, shape=(None, *value.type.shape))
    f = compile_graph([many], vectorize_graph(graph, {value: many}), mode=MODE)

    def density(rows: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            values = f(np.asarray(rows, value.dtype).reshape(-1, *shape))
        return np.where(np.isfinite(values), values, -np.inf)  # +inf where a power underflows

    return density


def over_line(density: Density, line: Line) -> tuple[float, float]:
    """Log integral over a line, in pieces between quantiles, and its error."""
    at = np.linspace(-30.0, 30.0, 4001)
    at = at[(line.low < np.sinh(at)) & (np.sinh(at) < line.high)]
    log_p = density(np.sinh(at)) + np.log(np.cosh(at))
    shares = np.exp(np.logaddexp.accumulate(log_p) - logsumexp(log_p))
    places = np.searchsorted(shares, [1e-5, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1 - 1e-5])
    inner = np.unique(np.sinh(at)[places.clip(0, at.size - 1)])
    edges = np.array([line.low, *inner, line.high])
    found = tanhsinh(lambda x: np.exp(density(x)).reshape(x.shape), edges[:-1], edges[1:])
    masses = np.exp(density(np.array(line.masses))).sum() if line.masses else 0.0
    total = found.integral.sum() + masses
    return float(np.log(total)), float(found.error.sum() / total)


@cache
def student(dim: int, df: float) -> list[np.ndarray]:
    """Sets of points of a standard Student law, by scrambled Sobol sequences."""
    sets = []
    for seed in range(N_SCRAMBLES):
        u = qmc.Sobol(dim + 1, rng=np.random.default_rng(seed)).random(N_POINTS)
        u = u.clip(1e-12, 1.0 - 1e-12)
        sets.append(ndtri(u[:, :-1]) / np.sqrt(chi2(df).ppf(u[:, -1:]) / df))
    return sets


def over_space(density: Density, dim: int, df: float) -> tuple[float, float]:
    """Log integral over several dimensions by importance sampling, and its error."""
    shifts = 1e-3 * np.eye(dim)

    def slopes(x: np.ndarray) -> np.ndarray:
        ends = np.concatenate([x[:, None] + shifts, x[:, None] - shifts], axis=1)
        up, down = np.moveaxis(density(ends.reshape(-1, dim)).reshape(-1, 2, dim), 1, 0)
        return (down - up) / 2e-3

    start = np.full(dim, 0.01)
    center = minimize(lambda x: -density(x[None])[0], start, method="Nelder-Mead").x
    for _ in range(3):
        up, down = slopes(center + shifts), slopes(center - shifts)
        curvatures, axes = np.linalg.eigh((up - down + (up - down).T) / 4e-3)
        spread = (axes / np.abs(curvatures).clip(1e-6)) @ axes.T
        better = center - spread @ slopes(center[None])[0]
        center = max(center, better, key=lambda x: density(x[None])[0])
    for k in range(N_FITS):
        law, root = multivariate_t(center, spread, df), np.linalg.cholesky(spread)
        sets = [center + z @ root.T for z in student(dim, df)]
        log_w = np.array([density(rows) - law.logpdf(rows) for rows in sets])
        weights = np.exp(log_w - logsumexp(log_w)).ravel()
        if k < N_FITS - 1 and 1.0 / np.sum(weights**2) > 0.05 * weights.size:
            rows = np.concatenate(sets)
            center, spread = weights @ rows, np.cov(rows.T, aweights=weights)
    means = logsumexp(log_w, axis=1) - np.log(N_POINTS)
    total = logsumexp(means) - np.log(N_SCRAMBLES)
    return float(total), float(np.std(np.exp(means - total), ddof=1) / np.sqrt(N_SCRAMBLES))


def integrals(each: Case, ours: bool = False) -> Found:
    """Log integral of a case at each setting, with its error: of PyMC's density, or of ours."""
    found: Found = []
    for k, setting in enumerate(each.settings):
        if k == 0 or each.constant:
            shared = [pytensor.shared(np.asarray(s)) for s in setting]
            with pm.Model() as model:
                each.build(*(setting if each.constant else shared))
            graph = log_density_of(model, model.free_RVs) if ours else model.logp()
            (value,), (start,) = model.value_vars, model.initial_point(0).values()
            density, dim = dense(graph, value, np.shape(start)), np.size(start)
        for variable, parameter in zip(shared, setting, strict=True):
            variable.set_value(np.asarray(parameter))
        if isinstance(each.support, np.ndarray):
            found.append((float(logsumexp(density(each.support))), 0.0))
        elif isinstance(each.support, Nodes):
            log_p = density(each.support.rows) + each.support.log_weights
            half = logsumexp(log_p[::2]) + np.log(2.0) - logsumexp(log_p)
            found.append((float(logsumexp(log_p)), float(abs(np.expm1(half)))))
        elif dim == 1:
            found.append(over_line(density, each.support or Line()))
        else:
            found.append(over_space(density, dim, each.df))
    return found


def off(found: Found) -> bool:
    """Whether some log integral is not zero, or has no value."""
    allowed = [max(TOLERANCE, ERRORS * e) if e < DIVERGES else 0.0 for _, e in found]
    return any(not abs(v) <= most for (v, _), most in zip(found, allowed, strict=True))


def depends(found: Found) -> bool:
    """Whether log integrals differ."""
    value, error = found[0]
    return off([(v - value, float(np.hypot(e, error))) for v, e in found[1:]])


def what_is_done(each: Case) -> str:
    """What this package does with a case whose parameters are unknown."""
    with pm.Model() as model:
        unknown = pm.LogNormal("unknown", 0.0, 0.05)
        first = [s * unknown if np.asarray(s).dtype.kind == "f" else s for s in each.settings[0]]
        each.build(*first)
        pm.Normal("y", model["x"].sum(), 1.0, observed=0.0)
    if isinstance(each.support, np.ndarray):
        model = pm.observe(model, {model["x"]: each.support[2]})
    try:
        compile_model(model)
    except TemperingError as error:
        return f"refused by name ({type(error).__name__})"
    return "taken, and WRONG" if off(integrals(each, ours=True)) else "mended: ours is normalized"


def row_of(each: Case) -> Row:
    """Row of a case."""
    found: Found = []
    try:
        found = integrals(each)
        done = what_is_done(each) if off(found) else "nothing needed"
    except Exception as error:
        done = f"not checked: {type(error).__name__}: {str(error).splitlines()[0]}"
    texts = [[str(np.round(s, 3).tolist()).replace(" ", "") for s in row] for row in each.settings]
    values = [f"{v:.5f}" if e < DIVERGES else "diverges" for v, e in found]
    values = ["infinite"] if "Improper" in done else values
    return {
        "distribution": each.name,
        "parameters": each.parameters or "none",
        "tried": "; ".join(map(" ".join, texts)),
        "log integrals": "; ".join(values),
        "largest error": max((e for _, e in found), default=float("nan")),
        "depends on them": ("yes" if depends(found) else "no") if found else "?",
        "what is done": done,
    }


def zipped(*columns: Any) -> list[tuple[Any, ...]]:
    return list(zip(*columns, strict=True))


def arrays(*rows: Any) -> list[np.ndarray]:
    return [np.array(row, dtype=float) for row in rows]


def factors() -> Nodes:
    """Cholesky factors of 2 x 2 covariances, by logs of scales and artanh of the correlation."""
    a, b, t = np.meshgrid(logs := np.arange(-14, 5.4, 0.4), logs, np.arange(-16, 16, 0.2))
    a, b, t = a.ravel(), b.ravel(), t.ravel()
    log_q, step = -np.logaddexp(t, -t) + np.log(2.0), np.log(0.4 * 0.4 * 0.2)
    rows = np.stack([np.exp(a), np.exp(b) * np.tanh(t), np.exp(b + log_q)], axis=1)
    return Nodes(rows, a + 2.0 * b + log_q + step)


OPEN, TEN, GRID = np.arange(20_000), np.arange(11), np.array([*product(range(7), repeat=3)])
PATH3, RING4 = np.diag([1, 1], 1) + np.diag([1, 1], -1), np.roll(np.eye(4, dtype=int), 1, 0)
COVS = arrays([[1, 0.5], [0.5, 2]], [[0.01, 0], [0, 9]], [[4, -3.5], [-3.5, 4]])
CHOLS, TAUS = [np.linalg.cholesky(c) for c in COVS], [np.linalg.inv(c) for c in COVS]
NUS, ZEROS, ONES, NS, ETAS = (2.0, 5.0, 40.0), np.zeros(2), np.ones(2), (1, 3, 6), (0.0, 2.0, -5.0)
P2 = arrays([0.2, 0.8], [0.5, 0.5], [0.999, 0.001])
P3 = arrays([0.2, 0.3, 0.5], [0.01, 0.01, 0.98], [1 / 3, 1 / 3, 1 / 3])
A3, RHOS = arrays([0.3, 0.5, 0.4], [1, 1, 1], [20, 3, 0.8]), arrays([0.5, 0.1], [1.2, -0.9], [0, 3])
CUTS = arrays([-1, 0.5, 2], [-0.1, 0, 0.1], [-9, 1, 9])
PAIRS = [cuts[:2] for cuts in CUTS]
SIZES, RATIOS = (0.1, 1.0, 50.0), (0.01, 0.5, 0.9)
SCALES, LOGS = [(0.0, 0.1), (1.0, 1.0), (-3.0, 50.0)], [(0.0, 0.1), (1.0, 1.0), (-3.0, 3.0)]
SHAPES, BETAS = [(0.5, 0.1), (2.0, 1.0), (20.0, 30.0)], [(0.4, 0.6), (1.0, 3.0), (30.0, 8.0)]
COUNTS, MEANS = [(0.2, 0.1), (3.0, 0.5), (50.0, 0.9)], [(0.1, 0.2), (3.0, 1.0), (90.0, 50.0)]
CIRCLE, HURDLE = Line(-np.pi, np.pi), Line(0.0, np.inf, (0.0,))
RAW, MIXED = {"default_transform": None}, {"support": HURDLE}
CUT = {"support": TEN, "compute_p": False}
normal, mv_normal, poisson = pm.Normal.dist, pm.MvNormal.dist, pm.Poisson.dist
WALK = {"mu": ONES, "init_dist": mv_normal(ZEROS, np.eye(2)), "shape": (3, 2)}

CASES = [
    *some(SCALES, "Normal mu sigma; Normal mu tau; Cauchy alpha beta; Laplace mu b; Logistic mu s; "
          "Gumbel mu beta; Moyal mu sigma"),
    *some(LOGS, "LogNormal mu sigma"),
    *some(LOGS, "LogitNormal mu sigma", support=Line(0.0, 1.0)),
    *some(SHAPES, "HalfStudentT nu sigma; Gamma alpha beta; Gamma mu sigma; Weibull alpha beta; "
          "InverseGamma alpha beta; Pareto alpha m; Rice nu sigma; Rice b sigma; Wald mu lam; "
          "Wald mu phi"),
    *some(BETAS, "Beta alpha beta; Kumaraswamy a b"), *some(MEANS, "InverseGamma mu sigma"),
    *some(SIZES, "HalfNormal sigma; HalfCauchy beta; Exponential lam; ChiSquared nu"),
    *some([(0.1, 2.0), (0.5, 0.8), (0.9, 90.0)], "Beta mu nu"),
    *some([(0.1, 0.2, 0.0), (1.0, 1.0, 2.0), (9.0, 5.0, 1.0)], "AsymmetricLaplace b kappa mu"),
    *some([(0.7, 0.0, 0.1), (3.0, 1.0, 1.0), (60.0, -3.0, 50.0)], "StudentT nu mu sigma"),
    *some([(0.8, 2.0, 0.0, 0.1), (3.0, 1.0, 1.0, 1.0), (9.0, 9.0, 0.0, 9.0)],
          "SkewStudentT a b mu sigma"),
    *some([(0.0, 0.1, -3.0), (1.0, 1.0, 0.0), (-3.0, 50.0, 30.0)], "SkewNormal mu sigma alpha"),
    *some([(0.0, 1.0, 0.04), (0.0, 1.0, 0.06), (1.0, 0.1, 3.0)], "ExGaussian mu sigma nu"),
    *some([(0.0, 0.01), (3.0, 1.0), (-1.0, 80.0)], "VonMises mu kappa", support=CIRCLE),
    *some([(0.0, 0.1), (-1.0, 1.0), (5.0, 900.0)], "Uniform lower upper"),
    *some([(0.0, 0.0, 0.1), (-1.0, 0.5, 1.0), (5.0, 900.0, 900.0)], "Triangular lower c upper"),
    *some([(0.0, 1.0, -1.0, 2.0), (-20.0, 1.0, 0.0, 1.0), (0.0, 50.0, 0.0, 1.0)],
          "TruncatedNormal mu sigma lower upper"),
    *some([(0.0, 1.0, -1.0), (-20.0, 1.0, 0.0), (9.0, 3.0, 0.0)], "TruncatedNormal mu sigma lower"),
    *some([(0.5, 0.1, 0.7), (2.0, 1.0, 0.0), (20.0, 30.0, 9.0)], "Wald mu lam alpha"),
    *some([(1.0, 0.0), (2.0, 3.0), (0.5, -1.0)], "PolyaGamma h z"), *some([()], "Flat; HalfFlat"),
    *some(zipped(CUTS, np.abs(CUTS)), "Interpolated x_points pdf_points", constant=True),
    *some(RATIOS, "Bernoulli p", support=TEN), *some(ETAS, "Bernoulli logit_p", support=TEN),
    *some(P3, "Categorical p", support=TEN), *some(CUTS, "Categorical logit_p", support=TEN),
    *some(zipped(NS, RATIOS), "Binomial n p", support=TEN), *some(NS, "DiracDelta c", support=TEN),
    *some(zipped(NS, ETAS), "Binomial n logit_p", support=TEN),
    *some([(1, 0.4, 0.6), (5, 1.0, 3.0), (9, 30.0, 8.0)], "BetaBinomial n alpha beta", support=TEN),
    *some([(0, 3), (2, 2), (1, 9)], "DiscreteUniform lower upper", support=TEN),
    *some([(10, 3, 5), (15, 10, 8), (30, 2, 9)], "HyperGeometric N k n", support=TEN),
    *some([(0.1, 0.5), (0.8, 0.7), (0.9, 3.0)], "DiscreteWeibull q beta", support=OPEN),
    *some(RATIOS, "Geometric p", support=OPEN),
    *some([0.01, 3.0, 900.0], "Poisson mu", support=OPEN),
    *some(MEANS, "NegativeBinomial mu alpha", support=OPEN),
    *some(COUNTS, "NegativeBinomial n p", support=OPEN),
    *some([(0.1, 1, 0.01), (0.5, 5, 0.5), (0.9, 9, 0.9)], "ZeroInflatedBinomial psi n p",
          support=TEN),
    *some(zipped(RATIOS, SIZES), "ZeroInflatedPoisson psi mu; HurdlePoisson psi mu", support=OPEN),
    *some([(0.1, 0.1, 0.2), (0.5, 3.0, 1.0), (0.9, 90.0, 50.0)], "ZeroInflatedNegativeBinomial psi "
          "mu alpha; HurdleNegativeBinomial psi mu alpha", support=OPEN),
    *some([(0.1, 0.5, 0.1), (0.5, 2.0, 1.0), (0.9, 20.0, 30.0)], "HurdleGamma psi alpha beta; "
          "HurdleLogNormal psi mu sigma", **MIXED, **RAW),
    *some(zipped(CUTS, ETAS), "OrderedLogistic cutpoints eta", **CUT),
    *some(zipped(CUTS, ETAS, SIZES), "OrderedProbit cutpoints eta sigma", **CUT),
    *some(zipped(PAIRS, ETAS, NS), "OrderedMultinomial cutpoints eta n", **CUT | {"support": GRID}),
    *some(zipped(NS, P3), "Multinomial n p", support=GRID),
    *some(zipped(NS, A3), "DirichletMultinomial n a", support=GRID),
    case("Truncated, StudentT", "mu sigma", [(0.0, 0.1), (-9.0, 1.0), (0.0, 50.0)],
         build=lambda m, s: pm.Truncated("x", pm.StudentT.dist(3.0, mu=m, sigma=s), -0.1, 2.0)),
    case("Truncated, Gamma", "alpha beta low", [(0.5, 0.1, 3.0), (2.0, 1.0, 9.0), (20.0, 9.0, 1.0)],
         build=lambda a, b, low: pm.Truncated("x", pm.Gamma.dist(a, b), low)),
    case("Truncated, Poisson", "mu lower", zipped(SIZES, (1, 2, 60)), support=OPEN,
         build=lambda mu, low: pm.Truncated("x", poisson(mu), low)),
    case("Truncated, Poisson to 2.5", "mu", (0.1, 1.3, 9.0), support=OPEN,
         build=lambda mu: pm.Truncated("x", poisson(mu), upper=2.5)),
    case("Truncated, Poisson from 0.5", "mu", (0.1, 1.3, 9.0), support=OPEN,
         build=lambda mu: pm.Truncated("x", poisson(mu), 0.5)),
    case("Censored, Normal", "mu sigma", SCALES, support=Line(-1.0, 2.0, (-1.0, 2.0)),
         build=lambda m, s: pm.Censored("x", normal(m, s), -1.0, 2.0, **RAW)),
    case("Censored, Poisson", "mu", (0.1, 1.3, 9.0), support=np.arange(1, 9),
         build=lambda mu: pm.Censored("x", poisson(mu), 1, 8)),
    case("Censored, Poisson at 2.5", "mu", (0.1, 1.3, 9.0), support=np.array([0, 1, 2, 2.5]),
         build=lambda mu: pm.Censored("x", poisson(mu), 0, 2.5)),
    case("NormalMixture", "w sigma", zipped(P2, arrays([0.1, 1], [1, 1], [1, 50])), mu=[-3.0, 2.0]),
    case("Mixture, HalfNormal and Gamma", "w sigma alpha", zipped(P2, SIZES, NUS),
         build=lambda w, s, a: pm.Mixture("x", w, [pm.HalfNormal.dist(s), pm.Gamma.dist(a, 1.0)])),
    case("Mixture, MvNormal", "w cov", zipped(P2, COVS), df=1.5,
         build=lambda w, c: pm.Mixture("x", w, [mv_normal(ZEROS, c), mv_normal(ONES, c)])),
    *some(COVS, "MvNormal cov", mu=ONES), *some(CHOLS, "MvNormal chol", mu=ONES),
    *some(TAUS, "MvNormal tau", mu=ONES), *some(zipped(NUS, COVS), "MvStudentT nu scale", mu=ONES),
    *some(zipped(NUS, TAUS), "MvStudentT nu tau", mu=ONES),
    *some(zipped(CHOLS, CHOLS[::-1]), "MatrixNormal rowchol colchol", mu=np.zeros((2, 2))),
    *some(SIZES, "KroneckerNormal sigma", mu=np.zeros(4), covs=COVS[:2]),
    case("KroneckerNormal, chols", "first second", zipped(CHOLS, CHOLS[::-1]),
         build=lambda a, b: pm.KroneckerNormal("x", np.zeros(4), chols=[a, b], sigma=0.5)),
    *some(A3, "Dirichlet a"), *some((0.3, 1.0, 20.0), "StickBreakingWeights alpha", K=3),
    *some(zipped((2, 5, 30), COVS), "Wishart nu V; WishartBartlett nu S"),
    case("LKJCorr, n = 3", "eta", (0.8, 2.0, 9.0), n=3, df=1.0),
    case("LKJCorr, n = 4", "eta", (2.0, 4.0, 9.0), n=4, df=2.0),
    case("LKJCholeskyCov", "eta rate", [(0.5, 0.3), (1.0, 1.0), (9.0, 3.0)], support=factors(),
         build=lambda eta, rate: pm.LKJCholeskyCov(
             "x", eta=eta, n=2, sd_dist=pm.Exponential.dist(rate), compute_corr=False, **RAW)),
    case("ZeroSumNormal", "sigma", SIZES, shape=4),
    case("ZeroSumNormal, two axes", "sigma", SIZES, shape=(3, 3), n_zerosum_axes=2),
    case("ZeroSumNormal, rows", "sigma", [np.array([[s], [2 * s]]) for s in SIZES], shape=(2, 3),
         constant=True),
    *some([(0.1, 0.1), (0.9, 1.0), (-0.5, 30.0)], "CAR alpha tau", mu=np.zeros(3), W=PATH3),
    *some([(0.1, 1.0), (1.0, 1.0), (9.0, 0.1)], "ICAR sigma zero_sum_stdev", W=RING4 + RING4.T),
    *some(SCALES, "GaussianRandomWalk mu sigma", init_dist=normal(0.0, 1.0), shape=4),
    case("RandomWalk, StudentT", "nu sigma", [(2.0, 1.0), (20.0, 30.0), (3.0, 0.1)], df=1.5,
         build=lambda nu, s: pm.RandomWalk("x", init_dist=normal(0.0, 1.0), steps=2,
                                           innovation_dist=pm.StudentT.dist(nu, mu=0.0, sigma=s))),
    *some(COVS, "MvGaussianRandomWalk cov", **WALK),
    *some(TAUS, "MvGaussianRandomWalk tau", **WALK),
    *some(zipped(NUS, COVS), "MvStudentTRandomWalk nu scale", df=1.5, **WALK),
    *some(zipped(RHOS, SIZES), "AR rho sigma", ar_order=2, shape=4,
          init_dist=normal(0.0, 1.0, shape=2)),
    case("AR, with a constant", "rho sigma", zipped(RHOS, SIZES), build=lambda rho, s: pm.AR(
        "x", rho, s, ar_order=1, constant=True, init_dist=normal(0.0, 1.0, shape=1), shape=3)),
    *some([(0.1, 0.1, 0.8, 0.1), (1.0, 0.5, 0.3, 2.0), (30.0, 0.0, 0.1, 9.0)],
          "GARCH11 omega alpha_1 beta_1 initial_vol", df=1.5, shape=3),
    case("EulerMaruyama", "a s", [(0.5, 0.1), (2.0, 1.0), (0.0, 9.0)], df=1.5,
         build=lambda a, s: pm.EulerMaruyama(
             "x", 0.1, lambda x, a, s: (-a * x, s * pt.sqrt(1 + x**2)), (a, s),
             init_dist=normal(0.0, 1.0), shape=3)),
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], help="names that the cases begin with")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the tables")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    known = {each.name.split(",")[0] for each in CASES} | set(NOT_APPLICABLE)
    if left := sorted(set(pm.distributions.__all__) - known):
        raise SystemExit(f"Add these distributions to CASES or NOT_APPLICABLE: {left}.")
    rows = []
    for each in CASES:
        if each.name.startswith(tuple(arguments.only)):
            rows.append(row_of(each))
            print(*rows[-1].values(), sep=" | ", flush=True)
    if arguments.only != [""]:
        table, new = arguments.out / "constants.csv", [str(row["distribution"]) for row in rows]
        rows += earlier_rows(table, "distribution", [*new, *NOT_APPLICABLE])
    for name, why in NOT_APPLICABLE.items():
        last = {"distribution": name, "what is done": f"not applicable: {why}"}
        rows.append(dict.fromkeys(rows[0], "") | last)
    rows.sort(key=lambda row: row["what is done"] == "nothing needed")
    settings = {
        "zero": f"a log integral (nats) within {TOLERANCE} or {ERRORS:g} of its errors",
        "several dimensions": f"{N_SCRAMBLES} scrambled Sobol sets of {N_POINTS} points each",
    }
    save("constants", rows, arguments.out, "Integrals of PyMC's densities", settings)


if __name__ == "__main__":
    main()
