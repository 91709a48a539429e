"""The problems by which nested sampling is shown, with their evidences.

Definitions and published values: Feroz, Hobson & Bridges (2009, MNRAS 398) for the egg box and the
shells; Beaujean & Caldwell (2013, arXiv:1304.7808) for the log-gamma laws; Albert (2020,
arXiv:2012.15286) for the slab and spike in eight dimensions; the nested sampling page of blackjax's
Sampling Book for the spike in the middle of a slab. All priors are uniform on a box.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.integrate import quad
from scipy.special import gammaln, logsumexp
from scipy.stats import loggamma, norm

type Likelihood = Callable[[Any], Any]
type Classic = tuple[Callable[[], pm.Model], Callable[[], float]]


def in_a_box(dim: int, low: float, high: float, likelihood: Likelihood) -> Callable[[], pm.Model]:
    """A uniform prior and a log likelihood of a vector."""

    def build() -> pm.Model:
        with pm.Model(coords={"axis": range(dim)}) as model:
            pm.Potential("likelihood", likelihood(pm.Uniform("x", low, high, dims="axis")))
        return model

    return build


def nodes(low: float, high: float, panels: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and log weights of Gauss-Legendre, four in each panel, of a uniform law."""
    at, weights = np.polynomial.legendre.leggauss(4)
    starts, width = np.linspace(low, high, panels, endpoint=False), (high - low) / panels
    x = (starts[:, None] + width * (at + 1) / 2).ravel()
    return x, np.tile(np.log(weights * width / 2 / (high - low)), panels)


def on_a_plane(low: float, high: float, likelihood: Callable) -> float:
    """Log evidence of a likelihood of two numbers."""
    x, log_w = nodes(low, high)
    rows = [logsumexp(log_w + likelihood(each, x)) for each in x]
    return float(logsumexp(log_w + np.array(rows)))


def egg_box() -> Classic:
    def height(x: Any, y: Any, cos: Callable) -> Any:
        return (2 + cos(x / 2) * cos(y / 2)) ** 5

    build = in_a_box(2, 0.0, 10 * np.pi, lambda x: height(x[0], x[1], pt.cos))
    return build, partial(on_a_plane, 0.0, 10 * np.pi, partial(height, cos=np.cos))


def himmelblau() -> Classic:
    def height(x: Any, y: Any) -> Any:
        return -((x**2 + y - 11) ** 2) - (x + y**2 - 7) ** 2

    build = in_a_box(2, -5.0, 5.0, lambda x: height(x[0], x[1]))
    return build, partial(on_a_plane, -5.0, 5.0, height)


def shells(dim: int, radius: float = 2.0, width: float = 0.1) -> Classic:
    centers = np.zeros((2, dim))
    centers[:, 0] = -3.5, 3.5

    def one(x: Any, center: np.ndarray) -> Any:
        r = pt.sqrt(pt.sum((x - center) ** 2))
        return -0.5 * ((r - radius) / width) ** 2 - np.log(width * np.sqrt(2 * np.pi))

    def truth() -> float:
        surface = np.log(2) + dim / 2 * np.log(np.pi) - gammaln(dim / 2)
        inside, _ = quad(lambda r: r ** (dim - 1) * norm.pdf(r, radius, width), 1.0, 3.5)
        return float(np.log(2) + surface + np.log(inside) - dim * np.log(12))

    return in_a_box(dim, -6.0, 6.0, lambda x: pt.logaddexp(*(one(x, c) for c in centers))), truth


def rosenbrock(dim: int) -> Classic:
    def build(x: Any) -> Any:
        return -pt.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    def truth() -> float:
        """One coordinate after the other: the next one sees only the last."""
        x, log_w = nodes(-5.0, 5.0, 1000)
        step = -100 * (x - x[:, None] ** 2) ** 2 - (1 - x[:, None]) ** 2 + log_w
        kernel, rest = np.exp(step), np.zeros(x.size)
        for _ in range(dim - 1):
            top = rest.max()
            with np.errstate(divide="ignore"):
                rest = np.log(kernel @ np.exp(rest - top)) + top
        return float(logsumexp(log_w + rest))

    return in_a_box(dim, -5.0, 5.0, build), truth


def rastrigin(dim: int) -> Classic:
    def height(x: Any, cos: Callable) -> Any:
        return -(10 + x**2 - 10 * cos(2 * np.pi * x))

    def truth() -> float:
        x, log_w = nodes(-5.12, 5.12)
        return float(dim * logsumexp(log_w + height(x, np.cos)))

    return in_a_box(dim, -5.12, 5.12, lambda x: pt.sum(height(x, pt.cos))), truth


def log_gamma(dim: int = 30, scale: float = 1 / 30) -> Classic:
    half = (dim + 2) // 2

    def tailed(x: Any, center: float) -> Any:
        z = (x - center) / scale
        return z - pt.exp(z) - np.log(scale)

    def normal(x: Any, center: float) -> Any:
        return -0.5 * ((x - center) / scale) ** 2 - np.log(scale * np.sqrt(2 * np.pi))

    def likelihood(x: Any) -> Any:
        pair = [
            pt.logaddexp(law(x[i], 1 / 3), law(x[i], 2 / 3)) - np.log(2)
            for i, law in enumerate((tailed, normal))
        ]
        return sum(pair) + tailed(x[2:half], 2 / 3).sum() + normal(x[half:], 2 / 3).sum()

    def truth() -> float:
        """The mass of each law inside of the unit interval."""
        laws = loggamma(1, 1 / 3, scale), loggamma(1, 2 / 3, scale), norm(1 / 3, scale)
        a, b, c, d = (np.diff(law.cdf([0, 1]))[0] for law in (*laws, norm(2 / 3, scale)))
        rest = (half - 2) * np.log(b) + (dim - half) * np.log(d)
        return float(np.log((a + b) / 2) + np.log((c + d) / 2) + rest)

    return in_a_box(dim, 0.0, 1.0, likelihood), truth


def normals(dim: int, box: tuple[float, float], parts: list[tuple[float, float, float]]) -> Classic:
    """Spherical normals on the diagonal of the first two axes, with masses before they are cut.

    Each part is its place on either axis, its variance and the log of its mass.
    """
    centers = np.zeros((len(parts), dim))
    centers[:, :2] = np.array([[place, place] for place, _, _ in parts])

    def likelihood(x: Any) -> Any:
        logs = [
            mass - pt.sum((x - c) ** 2) / (2 * v) - dim / 2 * np.log(2 * np.pi * v)
            for c, (_, v, mass) in zip(centers, parts, strict=True)
        ]
        return pt.logaddexp(*logs)

    def truth() -> float:
        masses = [
            mass + np.log(np.diff(norm.cdf(np.array(box)[:, None], c, np.sqrt(v)), axis=0)).sum()
            for c, (_, v, mass) in zip(centers, parts, strict=True)
        ]
        return float(logsumexp(masses) - dim * np.log(box[1] - box[0]))

    return in_a_box(dim, *box, likelihood), truth


SLAB = 5 * np.log(2 * np.pi)
"""Log mass of the slab in ten dimensions, of height one; the spike has nine times as much."""

MODELS: dict[str, tuple[str, Callable[[], pm.Model], Callable[[], float]]] = {
    name: ("classic", *made)
    for name, made in {
        "egg box, d 2": egg_box(),
        "two shells, d 2": shells(2), "two shells, d 10": shells(10),
        "two shells, d 30": shells(30),
        "Rosenbrock, d 2": rosenbrock(2), "Rosenbrock, d 10": rosenbrock(10),
        "Himmelblau, d 2": himmelblau(),
        "Rastrigin, d 2": rastrigin(2), "Rastrigin, d 6": rastrigin(6),
        "log-gamma, d 30": log_gamma(),
        "spike in the middle of a slab, d 10": normals(
            10, (-5.0, 5.0), [(0.0, 1.0, SLAB), (0.0, 0.01, SLAB + np.log(9))]),
        "slab and spike, d 8": normals(8, (-4.0, 8.0), [(6.0, 0.08, 0.0), (2.5, 0.8, 0.0)]),
    }.items()
}  # fmt: skip
"""By name: kind, how each is built, and its evidence."""
