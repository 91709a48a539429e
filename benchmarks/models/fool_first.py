"""Models whose modes are easily lost, with their evidences: the half that was known while the code
was written.

Those of parts have a uniform prior on a box, and a likelihood that is a mixture of parts. Each part
is divided by its integral, so that log Z is the log of the sum of the shares, which is 0, as far as
all parts lie inside of the box.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.integrate import quad
from scipy.special import gammaln, logsumexp
from scipy.stats import cauchy, norm, t

type Part = Callable[[Any], Any]
type Law = Callable[[np.ndarray, float], np.ndarray]

BOX = 5.0


def normal(center: Any, sd: Any) -> Part:
    """Log density of independent normals."""
    return lambda x: pt.sum(-0.5 * ((x - center) / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi)))


def ridge(dim: int, along: float, across: float) -> Part:
    """Log density of a normal that is long along the diagonal."""
    u = np.ones(dim) / np.sqrt(dim)
    constant = np.log(along) + (dim - 1) * np.log(across) + 0.5 * dim * np.log(2 * np.pi)

    def part(x: Any) -> Any:
        a = pt.dot(x, u)
        return -0.5 * (a / along) ** 2 - 0.5 * (pt.sum(x**2) - a**2) / across**2 - constant

    return part


def cusp(center: Any, scale: float) -> Part:
    """Log density of independent Laplace laws."""
    return lambda x: pt.sum(-pt.abs(x - center) / scale - np.log(2 * scale))


def wall(center: Any, scale: float) -> Part:
    """Log density of exponential laws: nothing on one side of each wall."""
    return lambda x: pt.sum(pt.switch(x > center, -(x - center) / scale, -np.inf) - np.log(scale))


def two_walls(center: Any, scale: float) -> Part:
    """Log density of exponential laws that are cut after twice their scale."""
    mass = scale * -np.expm1(-2.0)
    inside = lambda x: pt.and_(x > center, x < center + 2 * scale)  # noqa: E731
    return lambda x: pt.sum(pt.switch(inside(x), -(x - center) / scale, -np.inf) - np.log(mass))


def shell(dim: int, center: Any, radius: float, width: float) -> Part:
    """Log density that falls off on both sides of a sphere."""
    area = np.log(2.0) + 0.5 * dim * np.log(np.pi) - gammaln(0.5 * dim)
    low, high = max(0.0, radius - 12 * width), radius + 12 * width
    mass = quad(lambda r: r ** (dim - 1) * np.exp(-0.5 * ((r - radius) / width) ** 2), low, high)[0]

    def part(x: Any) -> Any:
        r = pt.sqrt(pt.sum((x - center) ** 2) + 1e-300)
        return -0.5 * ((r - radius) / width) ** 2 - area - np.log(mass)

    return part


def of_parts(dim: int, *parts: tuple[float, Part]) -> Callable[[], pm.Model]:
    """Mixture of parts with their shares."""

    def build() -> pm.Model:
        with pm.Model() as model:
            x = pm.Uniform("x", -BOX, BOX, shape=dim)
            terms = [np.log(share) + dim * np.log(2 * BOX) + part(x) for share, part in parts]
            whole = terms[0]
            for term in terms[1:]:
                whole = pt.logaddexp(whole, term)
            pm.Potential("likelihood", whole)
        return model

    return build


def beside(dim: int, law: Callable[[Any, float], Part], scale: float) -> list[tuple[float, Part]]:
    """A part five standard deviations beside a broad normal one, of half of the mass each."""
    place = 2.5 / np.sqrt(dim)
    return [(0.5, normal(place, 1.0)), (0.5, law(-place, scale))]


def zero() -> float:
    return 0.0


def heavy(prior: tuple[Law, str, dict], far: float, dim: int) -> tuple[Callable, Callable]:
    """A heavy-tailed prior against a heavy-tailed likelihood whose data lie far away."""
    law, name, parameters = prior

    def build() -> pm.Model:
        with pm.Model(coords={"each": range(dim)}) as model:
            x = getattr(pm, name)("x", **parameters, dims="each")
            like = {key: value for key, value in parameters.items() if key == "nu"}
            place = {"alpha": x, "beta": 1.0} if name == "Cauchy" else {"mu": x, "sigma": 1.0}
            getattr(pm, name)("y", **like, **place, observed=np.full(dim, far), dims="each")
        return model

    def truth(n: int = 2_000_001) -> float:
        grid = np.sinh(np.linspace(-22, 22, n)) / 50
        both = np.unique(np.concatenate([grid, far + grid]))
        terms = law(both) + law(far - both) + np.log(np.gradient(both))
        return float(dim * logsumexp(terms))

    return build, truth


def student(nu: float) -> tuple[Law, str, dict]:
    return (lambda x: t.logpdf(x, nu)), "StudentT", {"nu": nu, "mu": 0.0, "sigma": 1.0}


CAUCHY = cauchy.logpdf, "Cauchy", {"alpha": 0.0, "beta": 1.0}

POINTS = np.array([0.2, -0.1, 0.3, 40.0, 41.0])


def outliers() -> pm.Model:
    """Two of five data lie far out, and so may the level."""
    with pm.Model(coords={"row": range(5)}) as model:
        level = pm.StudentT("level", nu=2, mu=0, sigma=5)
        pm.StudentT("y", nu=2, mu=level, sigma=0.3, observed=POINTS, dims="row")
    return model


def outliers_truth() -> float:
    grid = np.sort(
        np.concatenate(
            [
                np.linspace(-5e4, 5e4, 1_000_001),
                *(p + np.sinh(np.linspace(-9, 9, 400_001)) / 80 for p in POINTS),
            ]
        )
    )
    grid = np.unique(grid)
    terms = t.logpdf(grid, 2, 0, 5) + sum(t.logpdf(y, 2, grid, 0.3) for y in POINTS)
    return float(logsumexp(terms + np.log(np.gradient(grid))))


def signs(dim: int) -> tuple[Callable, Callable]:
    """Squares of unknowns are seen: each may have either sign."""
    seen = 1.0 + 0.3 * np.arange(dim)

    def build() -> pm.Model:
        with pm.Model(coords={"each": range(dim)}) as model:
            x = pm.Normal("x", 0, 2, dims="each")
            pm.Normal("y", x**2, 0.3, observed=seen, dims="each")
        return model

    def truth() -> float:
        grid, step = np.linspace(-12, 12, 400_001, retstep=True)
        one = lambda y: logsumexp(norm.logpdf(grid, 0, 2) + norm.logpdf(y, grid**2, 0.3))  # noqa: E731
        return float(sum(one(y) for y in seen) + dim * np.log(step))

    return build, truth


def of_three() -> pm.Model:
    """A product of three is seen: four modes."""
    with pm.Model() as model:
        a, b, c = (pm.Normal(name, 0, 1.5) for name in "abc")
        pm.Normal("y", a * b * c, 0.3, observed=4.0)
    return model


def of_three_truth() -> float:
    grid, step = np.linspace(-11, 11, 2001, retstep=True)
    log_p = norm.logpdf(grid, 0, 1.5)
    a, b = np.meshgrid(grid, grid, indexing="ij")
    # given a and b, c is normal and y is linear in it
    both = norm.logpdf(4.0, 0, np.hypot(0.3, 1.5 * a * b)) + log_p[:, None] + log_p
    return float(logsumexp(both) + 2 * np.log(step))


N_BITS, PULL = 14, np.random.default_rng(14).normal(0, 0.8, (14, 14))


def bits() -> pm.Model:
    """Fourteen coupled binaries, beside two modes of unequal width."""
    d, wide, narrow, tau = 3, 1.0, 0.15, 4.0
    a = 3.0 / np.sqrt(d)

    def mode(x: Any, at: float, sd: float) -> Any:
        own = -0.5 * pt.sum(((x - at) / sd) ** 2) - d * np.log(sd * np.sqrt(2 * np.pi))
        return np.log(0.5) + own - d * norm.logpdf(a, 0, np.hypot(tau, sd))

    with pm.Model() as model:
        g = pm.Bernoulli("g", 0.5, shape=N_BITS)
        x = pm.Normal("x", 0, tau, shape=d)
        pm.Potential("modes", pt.logaddexp(mode(x, a, wide), mode(x, -a, narrow)))
        pm.Potential("coupled", pt.tanh(pt.dot(g, pt.dot(PULL, g))))
    return model


def bits_truth() -> float:
    g = np.array(list(product((0, 1), repeat=N_BITS)))
    return float(logsumexp(np.tanh(np.einsum("ni,ij,nj->n", g, PULL, g))) - N_BITS * np.log(2))


MODELS: dict[str, tuple[str, Callable[[], pm.Model], Callable[[], float]]] = {
    "spike at the center, d 10": (
        "spike", of_parts(10, (0.1, normal(0, 1.0)), (0.9, normal(0, 0.1))), zero),
    "spike off the center, d 2": (
        "spike", of_parts(2, (0.5, normal(0, 1.0)), (0.5, normal(0.7, 0.05))), zero),
    "spike on a ridge, d 5": (
        "spike", of_parts(5, (0.7, ridge(5, 1.5, 0.4)), (0.3, normal(0.2, 0.1))), zero),
    "spike in one of two modes, d 4": (
        "spike",
        of_parts(4, (0.3, normal(-1.5, 0.6)), (0.3, normal(1.5, 0.6)), (0.4, normal(1.6, 0.04))),
        zero),
    "spike at the center, d 30": (
        "spike", of_parts(30, (0.3, normal(0, 1.0)), (0.7, normal(0, 0.2))), zero),
    "narrow spike, d 3": (
        "spike", of_parts(3, (0.9, normal(0, 1.0)), (0.1, normal(0.3, 1 / 30))), zero),
    "cusp, d 5": ("dropped", of_parts(5, *beside(5, cusp, 0.1)), zero),
    "wall, d 3": ("dropped", of_parts(3, *beside(3, wall, 0.12)), zero),
    "walls, d 8": ("dropped", of_parts(8, *beside(8, wall, 0.3)), zero),
    "two walls, d 2": ("dropped", of_parts(2, *beside(2, two_walls, 0.1)), zero),
    "spike on top, d 4": (
        "dropped",
        of_parts(
            4, (0.5, normal(1.25, 1.0)), (0.499, normal(-1.25, 0.2)),
            (0.001, normal(-1.25, 0.004)),
        ),
        zero),
    "shell, d 3": (
        "dropped", of_parts(3, (0.5, normal(1.45, 1.0)), (0.5, shell(3, -1.45, 0.6, 0.08))), zero),
    "t 2 against t 2, d 3": ("far", *heavy(student(2), 200.0, 3)),
    "Cauchy against Cauchy": ("far", *heavy(CAUCHY, 2e4, 1)),
    "t 3 against t 3, d 2": ("far", *heavy(student(3), 1e3, 2)),
    "t 4 against t 4, d 4": ("far", *heavy(student(4), 30.0, 4)),
    "outliers": ("far", outliers, outliers_truth),
    "squares, d 6": ("signs", *signs(6)),
    "product of three": ("signs", of_three, of_three_truth),
    "coupled bits": ("bits", bits, bits_truth),
}  # fmt: skip
"""Kind, model and log evidence, by name."""
