"""Multivariate distributions and series: where their draws lie, and their densities by formulas.

Domains of parameters beside those of single values: "vector", so many real numbers; "positives";
"cov", a covariance matrix of that size; "chol", the Cholesky factor of one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import special, stats

from benchmarks.models.random_programs_families import Parameter, Values, parameters_of
from benchmarks.truths.random_programs_formulas import of_cuts

type Array = np.ndarray
type Part = Callable[[Array], Array]
"""Log density of what a distribution is made of, element by element."""

W = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
"""Neighbours of CAR and ICAR."""
DT = 0.3
ZERO_SUM_STDEV = 0.5


@dataclass(frozen=True)
class Vector:
    """A distribution of vectors or matrices.

    Attributes
    ----------
    space : str
        Where its draws lie, a key of `SPACES`, or "counts".
    log_density : callable
        Of draws (n, *core), arguments (n or 1, ...), and parts; for each draw.
    core : tuple of int
    long : tuple of int
        Shape of one draw of a prior, and of a likelihood.
    parts : str
        What it is made of: "init", "init innovation", "init vector", "scales".
    """

    name: str
    parameters: tuple[Parameter, ...]
    space: str
    log_density: Callable[[Array, Values, Sequence[Part]], Array]
    core: tuple[int, ...]
    long: tuple[int, ...]
    parts: str = ""


def sizes_of(space: str, core: tuple[int, ...]) -> int:
    """Count the coordinates of a draw."""
    if space == "real":
        return int(np.prod(core))
    return {"simplex": core[0] - 1, "zero_sum": core[0] - 1, "corr": 1}.get(space, 3)


def real(w: Array, core: tuple[int, ...]) -> tuple[Array, Array]:
    return np.sinh(w).reshape(-1, *core), np.log(np.cosh(w)).sum(axis=1)


def simplex(w: Array, core: tuple[int, ...]) -> tuple[Array, Array]:
    log_v, log_rest = special.log_expit(w), special.log_expit(-w)
    left = np.concatenate([np.zeros((len(w), 1)), np.cumsum(log_rest, axis=1)], axis=1)
    logs = np.concatenate([left[:, :-1] + log_v, left[:, -1:]], axis=1)
    return np.exp(logs), (left[:, :-1] + log_v + log_rest).sum(axis=1)


def plane(k: int) -> Array:
    """Axes of the plane of vectors that sum to zero."""
    return np.linalg.qr(np.column_stack([np.ones(k), np.eye(k)[:, 1:]]))[0][:, 1:]


def zero_sum(w: Array, core: tuple[int, ...]) -> tuple[Array, Array]:
    return np.sinh(w) @ plane(core[0]).T, np.log(np.cosh(w)).sum(axis=1)


def corr(w: Array, core: tuple[int, ...]) -> tuple[Array, Array]:
    """Cholesky factor of a correlation; the measure is that of the correlation."""
    r, s, one = np.tanh(w[:, 0]), 1 / np.cosh(w[:, 0]), np.ones(len(w))
    return np.stack([one, 0 * one, r, s], axis=1).reshape(-1, 2, 2), 2 * np.log(s)


def chol(w: Array, core: tuple[int, ...]) -> tuple[Array, Array]:
    """Cholesky factor of a covariance; the measure is that of two scales and a correlation."""
    factor, log_jac = corr(w[:, 2:], core)
    return np.exp(w[:, :2])[:, :, None] * factor, log_jac + w[:, :2].sum(axis=1)


def definite(w: Array, core: tuple[int, ...]) -> tuple[Array, Array]:
    """Positive definite matrices; the measure is that of three of the elements."""
    first, second, low = np.exp(w[:, 0]), np.exp(w[:, 1]), np.sinh(w[:, 2])
    factor = np.stack([first, 0 * first, low, second], axis=1).reshape(-1, 2, 2)
    log_jac = np.log(4) + 3 * w[:, 0] + 2 * w[:, 1] + np.log(np.cosh(w[:, 2]))
    return factor @ factor.transpose(0, 2, 1), log_jac


SPACES = {
    "real": real, "simplex": simplex, "zero_sum": zero_sum, "corr": corr, "chol": chol,
    "definite": definite,
}  # fmt: skip


def compositions(n: int, k: int) -> list[tuple[int, ...]]:
    """All vectors of k counts whose sum is n."""
    return [c for c in product(range(n + 1), repeat=k) if sum(c) == n]


def _sound(cov: Array) -> tuple[Array, Array]:
    """Matrices and log determinants; 1 and NaN where rounding has made a matrix singular."""
    sign, log_det = np.linalg.slogdet(cov)
    bad = ~((sign > 0) & (log_det > -300))
    return np.where(bad[:, None, None], np.eye(cov.shape[1]), cov), np.where(bad, np.nan, log_det)


def _quadratic(x: Array, cov: Array) -> tuple[Array, Array]:
    """Mahalanobis squares and log determinants."""
    cov, log_det = _sound(cov)
    solved = np.linalg.solve(np.broadcast_to(cov, (len(x), *cov.shape[1:])), x[..., None])[..., 0]
    return np.sum(x * solved, axis=1), log_det


def mv_normal(x: Array, mu: Array, cov: Array) -> Array:
    square, log_det = _quadratic(x - mu, cov)
    return -0.5 * (square + log_det + x.shape[1] * np.log(2 * np.pi))


def mv_student_t(x: Array, nu: Array, mu: Array, scale: Array) -> Array:
    k = x.shape[1]
    square, log_det = _quadratic(x - mu, scale)
    front = special.gammaln((nu + k) / 2) - special.gammaln(nu / 2) - k / 2 * np.log(nu * np.pi)
    return front - log_det / 2 - (nu + k) / 2 * np.log1p(square / nu)


def dirichlet(x: Array, a: Array) -> Array:
    front = special.gammaln(a.sum(axis=1)) - special.gammaln(a).sum(axis=1)
    return front + special.xlogy(a - 1, x).sum(axis=1)


def multinomial(x: Array, n: Array, p: Array) -> Array:
    logs = special.gammaln(x + 1.0).sum(axis=1)
    return special.gammaln(n + 1.0) - logs + special.xlogy(x, p).sum(axis=1)


def dirichlet_multinomial(x: Array, n: Array, a: Array) -> Array:
    ways = special.gammaln(n + 1.0) - special.gammaln(x + 1.0).sum(axis=1)
    return ways + _log_rising(a, x).sum(axis=1) - _log_rising(a.sum(axis=1), n)


def _log_rising(a: Array, count: Array) -> Array:
    """Log of a (a + 1) ... (a + count - 1); a difference of log gammas is noise for large a."""
    terms = (np.log(a + j) * (j < count) for j in range(int(np.max(count, initial=0))))
    return sum(terms, np.zeros(np.shape(a)))


def ordered_multinomial(x: Array, eta: Array, cutpoints: Array, n: Array) -> Array:
    return multinomial(x, n, of_cuts(special.expit, eta, cutpoints))


def stick_breaking(x: Array, alpha: Array) -> Array:
    """Shares of what is left are Beta(1, alpha)."""
    left = np.flip(np.cumsum(np.flip(x, 1), axis=1), 1)
    share_left = left[:, 1:] / left[:, :-1]
    found = np.log(alpha)[:, None] + (alpha - 1)[:, None] * np.log(share_left)
    return (found - np.log(left[:, :-1])).sum(axis=1)


def wishart(x: Array, nu: Array, V: Array) -> Array:
    k = x.shape[1]
    V, log_det = _sound(V)
    trace = np.trace(np.linalg.solve(np.broadcast_to(V, x.shape), x), axis1=1, axis2=2)
    front = nu * k / 2 * np.log(2) + nu / 2 * log_det
    front = front + _log_gamma(nu / 2, k)
    return (nu - k - 1) / 2 * np.linalg.slogdet(x)[1] - trace / 2 - front


def _log_gamma(a: Array, k: int) -> Array:
    return k * (k - 1) / 4 * np.log(np.pi) + sum(special.gammaln(a - j / 2) for j in range(k))


def lkj(x: Array, eta: Array) -> Array:
    """Of the Cholesky factor of a correlation matrix, with the measure of its lower elements."""
    n = x.shape[1]
    below = n - np.arange(1, n)
    beta = eta[:, None] + (below - 1) / 2
    front = (2 * eta[:, None] - 2 + below) * below * np.log(2) + below * special.betaln(beta, beta)
    diagonal = np.log(np.diagonal(x, axis1=1, axis2=2))
    powers = 2 * (eta[:, None] - 1) + n - np.arange(1, n + 1)
    return (powers * diagonal).sum(axis=1) - front.sum(axis=1)


def lkj_cov(x: Array, args: Values, parts: Sequence[Part]) -> Array:
    scales = np.sqrt(np.sum(x**2, axis=2))
    return lkj(x / scales[:, :, None], args["eta"]) + parts[0](scales).sum(axis=1)


def matrix_normal(x: Array, mu: Array, rowcov: Array, colcov: Array) -> Array:
    return mv_normal(x.reshape(len(x), -1), mu.reshape(len(mu), -1), kron(rowcov, colcov))


def kron(a: Array, b: Array) -> Array:
    found = np.einsum("nij,nkl->nikjl", *np.broadcast_arrays(a, b))
    k = a.shape[1] * b.shape[1]
    return found.reshape(-1, k, k)


def kronecker_normal(x: Array, args: Values, parts: Sequence[Part]) -> Array:
    cov = kron(args["cov0"], args["cov1"])
    noise = args["sigma"][:, None, None] ** 2 * np.eye(x.shape[1])
    return mv_normal(x, args["mu"], cov + noise)


def car(x: Array, mu: Array, alpha: Array, tau: Array) -> Array:
    precision = np.diag(W.sum(axis=0)) - alpha[:, None, None] * W
    return mv_normal(x, mu, np.linalg.inv(tau[:, None, None] * precision))


def icar(x: Array, sigma: Array) -> Array:
    i, j = np.nonzero(np.tril(W))
    pairs = -np.sum((x[:, i] - x[:, j]) ** 2, axis=1) / (2 * sigma**2)
    n, values = len(W), np.linalg.eigvalsh(np.diag(W.sum(axis=0)) - W)[1:]
    constant = 0.5 * np.log(n * values.prod()) - (n - 1) * (np.log(sigma) + 0.5 * np.log(2 * np.pi))
    return constant + pairs + stats.norm.logpdf(x.sum(axis=1), 0, ZERO_SUM_STDEV * n)


def zero_sum_normal(x: Array, sigma: Array) -> Array:
    free = x.shape[1] - 1
    square = np.sum(x**2, axis=1) / sigma**2
    return -0.5 * square - free * (np.log(sigma) + 0.5 * np.log(2 * np.pi))


def ar(x: Array, args: Values, parts: Sequence[Part]) -> Array:
    rho = args["rho"]
    p = rho.shape[1]
    mean = sum(rho[:, i, None] * x[:, p - i - 1 : x.shape[1] - i - 1] for i in range(p))
    noise = stats.norm.logpdf(x[:, p:], mean, args["sigma"][:, None])
    return parts[0](x[:, :p]).sum(axis=1) + noise.sum(axis=1)


def gaussian_walk(x: Array, args: Values, parts: Sequence[Part]) -> Array:
    steps = stats.norm.logpdf(np.diff(x), args["mu"][:, None], args["sigma"][:, None])
    return parts[0](x[:, :1]).sum(axis=1) + steps.sum(axis=1)


def walk(x: Array, args: Values, parts: Sequence[Part]) -> Array:
    return parts[0](x[:, :1]).sum(axis=1) + parts[1](np.diff(x)).sum(axis=1)


def vector_walk(step: Callable[..., Array]) -> Callable[[Array, Values, Sequence[Part]], Array]:
    """Walk of vectors, its first row by the part, and the others by a density of the step."""

    def log_density(x: Array, args: Values, parts: Sequence[Part]) -> Array:
        steps = np.diff(x, axis=1)
        return parts[0](x[:, 0]) + sum(step(steps[:, i], **args) for i in range(steps.shape[1]))

    return log_density


def garch(x: Array, args: Values, parts: Sequence[Part]) -> Array:
    sd, total = args["initial_vol"], np.zeros(len(x))
    for t in range(x.shape[1]):
        if t:
            square = args["alpha_1"] * x[:, t - 1] ** 2 + args["beta_1"] * sd**2
            sd = np.sqrt(args["omega"] + square)
        total = total + stats.norm.logpdf(x[:, t], 0, sd)
    return total


def euler(x: Array, args: Values, parts: Sequence[Part]) -> Array:
    mean = x[:, :-1] * (1 - DT * args["theta"][:, None])
    noise = stats.norm.logpdf(x[:, 1:], mean, np.sqrt(DT) * args["g"][:, None])
    return parts[0](x[:, :1]).sum(axis=1) + noise.sum(axis=1)


def plain(formula: Callable[..., Array]) -> Callable[[Array, Values, Sequence[Part]], Array]:
    """Take a formula of named arguments."""
    return lambda x, args, parts: formula(x, **args)


_MV = "mu vector 2 1; "
VECTORS = {
    name: Vector(name, parameters_of(text), space, density, core, long or core, parts)
    for name, text, space, density, core, long, parts in (
        ("MvNormal", _MV + "cov cov 2 1", "real", plain(mv_normal), (2,), None, ""),
        ("MvNormal by chol", _MV + "chol chol 2 1", "real",
         lambda x, a, p: mv_normal(x, a["mu"], a["chol"] @ a["chol"].transpose(0, 2, 1)),
         (2,), None, ""),
        ("MvStudentT", "nu shape 3 10; " + _MV + "scale cov 2 1", "real", plain(mv_student_t),
         (2,), None, ""),
        ("Dirichlet", "a positives 3 1", "simplex", plain(dirichlet), (3,), None, ""),
        ("StickBreakingWeights", "alpha positive .7 4", "simplex", plain(stick_breaking), (3,),
         None, ""),
        ("Multinomial", "n fixed 2 5; p probs 0 1", "counts", plain(multinomial), (3,), None, ""),
        ("DirichletMultinomial", "n fixed 2 5; a positives 3 1", "counts",
         plain(dirichlet_multinomial), (3,), None, ""),
        ("OrderedMultinomial", "eta real -1 1; cutpoints cuts -1 1; n fixed 2 5", "counts",
         plain(ordered_multinomial), (3,), None, ""),
        ("Wishart", "nu fixed 3 7; V cov 2 1", "definite", plain(wishart), (2, 2), None, ""),
        ("WishartBartlett", "nu fixed 3 7; S cov 2 1", "definite",
         lambda x, a, p: wishart(x, a["nu"], a["S"]), (2, 2), None, ""),
        ("LKJCorr", "eta shape 1 4", "corr", plain(lkj), (2, 2), (3, 3), ""),
        ("LKJCholeskyCov", "eta shape 1 4", "chol", lkj_cov, (2, 2), None, "scales"),
        ("MatrixNormal", "mu matrix 2 1; rowcov cov 2 1; colcov cov 2 1", "real",
         plain(matrix_normal), (2, 2), None, ""),
        ("KroneckerNormal", "mu vector 4 1; cov0 cov 2 1; cov1 cov 2 1; sigma positive .3 1",
         "real", kronecker_normal, (4,), None, ""),
        ("CAR", "mu vector 3 1; alpha shape .2 .9; tau positive .4 2", "real", plain(car), (3,),
         None, ""),
        ("CAR of data", "mu vector 3 1; alpha shape .2 .9; tau positive .4 2", "improper",
         plain(car), (3,), None, ""),
        ("ICAR", "sigma positive .4 2", "improper", plain(icar), (3,), None, ""),
        ("ZeroSumNormal", "sigma positive .5 2", "zero_sum", plain(zero_sum_normal), (3,), None,
         ""),
        ("AR", "rho vector 1 1; sigma positive .4 2", "real", ar, (3,), (6,), "init"),
        ("AR of order 2", "rho vector 2 1; sigma positive .4 2", "real", ar, (3,), (6,), "init"),
        ("GaussianRandomWalk", "mu real -1 1; sigma positive .4 2", "real", gaussian_walk, (3,),
         (5,), "init"),
        ("RandomWalk", "", "real", walk, (3,), (5,), "init innovation"),
        ("MvGaussianRandomWalk", _MV + "cov cov 2 1", "real", vector_walk(mv_normal), (2, 2),
         (4, 2), "vector"),
        ("MvStudentTRandomWalk", "nu shape 3 10; " + _MV + "scale cov 2 1", "real",
         vector_walk(mv_student_t), (2, 2), (4, 2), "vector"),
        ("GARCH11", "omega positive .2 1.5; alpha_1 shape .1 .4; beta_1 shape .1 .5; "
         "initial_vol positive .3 2", "real", garch, (3,), (6,), ""),
        ("EulerMaruyama", "theta positive .3 2; g positive .3 1.5", "real", euler, (3,), (6,),
         "init"),
    )
}  # fmt: skip
"""Each with its core as a prior, and as a likelihood."""
