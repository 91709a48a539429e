"""Models whose modes are easily lost, with their evidences: the half that is by another hand.

Who wrote these had not seen the code that they test. In most, the evidence of each mode is known in
closed form; in the others it is summed on panels or on a grid, fine enough for six digits.
"""

from collections.abc import Callable
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import expit, logsumexp
from scipy.stats import cauchy, expon, laplace, multivariate_normal, norm, t, truncnorm, uniform

NODE, WEIGHT = np.polynomial.legendre.leggauss(8)


def either(*parts: tuple[Any, Any]) -> Any:
    """Log density of a mixture: each part comes with its share."""
    return pm.math.logsumexp(pt.stack([pt.log(share) + part for share, part in parts]))


def at(law: Any, x: Any) -> Any:
    """Log density of all of x under a law of PyMC."""
    return pm.logp(law, x).sum()


def shared(*parts: tuple[float, float]) -> float:
    """Log evidence of a mixture: each part's log evidence comes with its share."""
    return float(logsumexp([np.log(share) + part for share, part in parts]))


def boxed(center: Any, sd: Any, low: float, high: float) -> Any:
    """Log of the mean of a normal density over a uniform prior."""
    inside = norm.cdf(high, center, sd) - norm.cdf(low, center, sd)
    return np.log(inside / (high - low))


def panels(points: Any, near: float, doublings: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and log weights of Gauss's rule on panels that double in width away from points."""
    reach = near * 2.0 ** np.arange(doublings)
    around = np.concatenate([-reach, [0.0], reach])
    edges = np.unique(np.add.outer(points, around))
    half = 0.5 * np.diff(edges)[:, None]
    return (edges[:-1, None] + half * (NODE + 1)).ravel(), np.log(half * WEIGHT).ravel()


def line(log_f: Callable[[np.ndarray], np.ndarray], *points: float, near: float = 0.005) -> float:
    """Log of the integral of a function of one unknown, which may be narrow at some points."""
    x, weight = panels(points, near, 45)
    return float(logsumexp(log_f(x) + weight))


# Spikes

PREDICTORS = np.random.default_rng(111).normal(size=(8, 4))
RESPONSE = PREDICTORS @ [0.3, -0.2, 0.2, 0.1] + np.random.default_rng(112).normal(0, 1, 8)
COEFFICIENTS = ((0.35, 0.05), (0.65, 0.8))


def regression() -> pm.Model:
    """All coefficients are next to nothing, or all are something."""
    with pm.Model(coords={"row": range(8), "predictor": list("abcd")}) as model:
        table = pm.Data("table", PREDICTORS, dims=("row", "predictor"))
        laws = [pm.MvNormal.dist(np.zeros(4), sd**2 * np.eye(4)) for _, sd in COEFFICIENTS]
        b = pm.Mixture("b", [share for share, _ in COEFFICIENTS], laws, dims="predictor")
        pm.Normal("y", pt.dot(table, b), 1.0, observed=RESPONSE, dims="row")
    return model


def regression_truth() -> float:
    spread = lambda sd: sd**2 * PREDICTORS @ PREDICTORS.T + np.eye(8)  # noqa: E731
    law = lambda sd: multivariate_normal(np.zeros(8), spread(sd))  # noqa: E731
    return shared(*((share, law(sd).logpdf(RESPONSE)) for share, sd in COEFFICIENTS))


SPREADS = ((0.85, 1.2), (0.15, 0.15))
PLATES = np.random.default_rng(103).normal(0, 1.5, (4, 6))


def plates() -> pm.Model:
    """All wells of all plates were read either well or badly."""
    with pm.Model(coords={"plate": range(4), "well": range(6)}) as model:
        reading = pm.Data("reading", PLATES, dims=("plate", "well"))
        level = pm.Normal("level", 0, 3, dims=("plate", "well"))
        parts = [(share, at(pm.Normal.dist(level, sd), reading)) for share, sd in SPREADS]
        pm.Potential("seen", either(*parts))
    return model


BEND_SPIKE, BEND_WIDTH = np.array([1.0, 0.6, -0.9]), 0.07


def bend() -> pm.Model:
    """A curved ridge with a spike beside its crest."""
    with pm.Model() as model:
        a = pm.Uniform("a", -4, 4)
        b = pm.Uniform("b", -3, 7)
        c = pm.Uniform("c", -5, 5)
        ridge = at(pm.Normal.dist(0, 1.3), a) + at(pm.Normal.dist(a**2 / 2, 0.5), b)
        ridge += at(pm.Normal.dist(-a, 0.6), c)
        spike = at(pm.Normal.dist(BEND_SPIKE, BEND_WIDTH), pt.stack([a, b, c]))
        pm.Potential("likelihood", either((0.55, ridge), (0.45, spike)))
    return model


def bend_truth() -> float:
    a = (np.arange(20_000) + 0.5) * 4e-4 - 4
    ridge = norm.logpdf(a, 0, 1.3) + boxed(a**2 / 2, 0.5, -3, 7) + boxed(-a, 0.6, -5, 5)
    # all of the spike lies inside
    return shared((0.55, logsumexp(ridge) - np.log(a.size)), (0.45, -np.log(8 * 10 * 10)))


MONTHS = 1.5**2 * 0.9 ** np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
MONTH_SHIFT = np.full(5, 1.2)


def months() -> pm.Model:
    """A correlated ridge, and on it a spike of the same shape."""
    with pm.Model(coords={"month": ["May", "June", "July", "August", "September"]}) as model:
        trend = pm.Normal("trend", 0, 4, dims="month")
        ridge = pm.MvNormal.dist(trend, MONTHS)
        spike = pm.MvNormal.dist(trend - MONTH_SHIFT, MONTHS / 7**2)
        pm.Mixture("y", [0.4, 0.6], [ridge, spike], observed=np.zeros(5), dims="month")
    return model


def months_truth() -> float:
    prior = 4.0**2 * np.eye(5)
    ridge = multivariate_normal.logpdf(np.zeros(5), np.zeros(5), MONTHS + prior)
    spike = multivariate_normal.logpdf(MONTH_SHIFT, np.zeros(5), MONTHS / 7**2 + prior)
    return shared((0.4, ridge), (0.6, spike))


FIXES = (
    (0.45, np.array([-2.5, -2.0]), 0.9),
    (0.35, np.array([2.5, 2.0]), 0.9),
    (0.20, np.array([3.2, 1.6]), 0.9 / 25),
)


def harbors() -> pm.Model:
    """A ship is near one of two harbors, and perhaps at a berth of one of these."""
    with pm.Model() as model:
        place = pt.stack([pm.Uniform("east", -6, 6), pm.Uniform("north", -6, 6)])
        parts = [(share, at(pm.Normal.dist(mu, sd), place)) for share, mu, sd in FIXES]
        pm.Potential("sighting", either(*parts))
    return model


# Narrow modes beside broad ones


def modes(name: str, size: int, prior: tuple[str, float, float], *parts: Any) -> tuple:
    """Some unknowns with a mixture of laws, all from one law at a time: the model and the truth.

    Each part is its share, its law for each unknown as PyMC has it, and as SciPy has it.
    """
    kind, *numbers = prior

    def build() -> pm.Model:
        with pm.Model(coords={"each": range(size)}) as model:
            x = getattr(pm, kind)(name, *numbers, dims="each")
            pm.Potential("seen", either(*((share, pt.sum(law(x))) for share, law, _ in parts)))
        return model

    def one(law: Any) -> float:
        low, high = numbers
        known = norm(low, high) if kind == "Normal" else uniform(low, high - low)
        corners = np.array([*known.support(), *law.support(), law.median()])
        both = lambda x: known.logpdf(x) + law.logpdf(x)  # noqa: E731
        return line(both, *corners[np.isfinite(corners)])

    return build, lambda: shared(*((share, size * one(law)) for share, _, law in parts))


def normal(share: float, mu: float, sd: float) -> tuple:
    return share, lambda x: pm.logp(pm.Normal.dist(mu, sd), x), norm(mu, sd)


POINTED = (0.5, lambda x: pm.logp(pm.Laplace.dist(-1.0, 0.12), x), laplace(-1.0, 0.12))
ONE_SIDED = (0.3, lambda x: pm.logp(pm.Exponential.dist(scale=0.1), x + 1.4), expon(-1.4, 0.1))
SLOT = (
    0.65,
    lambda x: pm.logp(pm.TruncatedNormal.dist(-1.5, 0.4, lower=-1.5, upper=-0.9), x),
    truncnorm(0, 1.5, -1.5, 0.4),
)


def shell() -> pm.Model:
    """Either the place is known roughly, or its distance from a beacon well."""
    with pm.Model(coords={"axis": range(5)}) as model:
        place = pm.Uniform("place", -4, 4, dims="axis")
        distance = pt.sqrt(pt.sum((place + 1) ** 2))
        known = either(
            (0.7, at(pm.Normal.dist(1.0, 1.0), place)),
            (0.3, at(pm.Normal.dist(distance, 0.1), 0.6)),
        )
        pm.Potential("known", known)
    return model


def shell_truth() -> float:
    area, r, s = 8 * np.pi**2 / 3, 0.6, 0.1
    around = np.log(area * (r**4 + 6 * r**2 * s**2 + 3 * s**4)) - 5 * np.log(8)
    return shared((0.7, 5 * boxed(1.0, 1.0, -4, 4)), (0.3, around))


# Far data


def jumps() -> pm.Model:
    """Somewhere between the prior and the reading there was a large jump."""
    with pm.Model() as model:
        first = pm.Cauchy("first", alpha=0, beta=1.5)
        second = pm.Cauchy("second", alpha=first, beta=1.3)
        pm.Cauchy("y", alpha=second, beta=1.2, observed=5000.0)
    return model


def sites(nus: Any, seen: Any) -> tuple[Callable, Callable]:
    """Each site is either as expected, or as seen: the model and the truth."""

    def build() -> pm.Model:
        with pm.Model(coords={"site": range(len(nus))}) as model:
            nu = pm.Data("nu", nus, dims="site")
            level = pm.StudentT("level", nu=nu, mu=0, sigma=1.1, dims="site")
            pm.StudentT("y", nu=nu, mu=level, sigma=0.9, observed=seen, dims="site")
        return model

    def truth() -> float:
        both = lambda x, nu, y: t.logpdf(x, nu, 0, 1.1) + t.logpdf(y, nu, x, 0.9)  # noqa: E731
        pairs = zip(nus, seen, strict=True)
        return sum(line(partial(both, nu=nu, y=y), 0.0, y) for nu, y in pairs)

    return build, truth


DOSE = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
EFFECT = np.array([0.7, 2.1, 0.8, 60.3, 64.4, 68.5])


def doses() -> pm.Model:
    """Three of six responses fit the prior, the three others fit another line."""
    with pm.Model(coords={"row": range(6)}) as model:
        dose = pm.Data("dose", DOSE, dims="row")
        base = pm.StudentT("base", nu=2, mu=0, sigma=10)
        slope = pm.StudentT("slope", nu=2, mu=0, sigma=4)
        pm.StudentT("y", nu=2, mu=base + slope * dose, sigma=0.4, observed=EFFECT, dims="row")
    return model


def doses_truth() -> float:
    meet = [(EFFECT[i] - EFFECT[j]) / (DOSE[i] - DOSE[j]) for i, j in combinations(range(6), 2)]
    slopes, weights = panels([0.0, *meet, *(EFFECT / DOSE)], 0.2, 10)
    total = t.logpdf(slopes, 2, 0, 4) + weights + 6 * t.logpdf(0, 2, 0, 0.4)
    for i, slope in enumerate(slopes):
        base, weight = panels([0.0, *(EFFECT - slope * DOSE)], 0.8, 11)
        off = ((EFFECT - slope * DOSE)[:, None] - base) / 0.4
        fit = -1.5 * np.log(np.prod(1 + off**2 / 2, axis=0))
        total[i] += logsumexp(fit + t.logpdf(base, 2, 0, 10) + weight)
    return float(logsumexp(total))


# Signs

HEIGHTS = np.array([1.3, 1.7, 1.1, 1.5, 2.2, 1.6])


def walk() -> pm.Model:
    """Only the sizes of a random walk's values are seen, and each change of sign costs."""
    with pm.Model(coords={"day": range(6)}) as model:
        start = pm.Normal.dist(0, 1.5)
        x = pm.GaussianRandomWalk("x", mu=0.0, sigma=1.3, init_dist=start, dims="day")
        pm.Normal("height", pt.abs(x), 0.25, observed=HEIGHTS, dims="day")
    return model


def walk_truth() -> float:
    x, step = np.linspace(-6, 6, 2401, retstep=True)
    onward = norm.pdf(x[:, None], x, 1.3) * step
    seen = norm.pdf(HEIGHTS[:, None], np.abs(x), 0.25)
    now = norm.pdf(x, 0, 1.5) * seen[0]
    for like in seen[1:]:
        now = like * (onward @ now)
    return float(np.log(now.sum() * step))


def gauges() -> pm.Model:
    """Two products, a size and a square are seen: sixteen modes."""
    with pm.Model(coords={"side": ["left", "right"]}) as model:
        a, b = pm.Normal("a", 0, 1.5), pm.Normal("b", 0, 2)
        arm = pm.Uniform("arm", -3, 3, dims="side")
        force = pm.Normal("force", 0, 3)
        speed = pm.Uniform("speed", -4, 4)
        pm.Normal("power", a * b, 0.25, observed=2.0)
        pm.Normal("area", pt.prod(arm), 0.3, observed=-2.5)
        pm.Laplace("strain", pt.abs(force), 0.15, observed=1.8)
        pm.Normal("energy", speed**2, 0.4, observed=3.0)
    return model


def gauges_truth() -> float:
    # given the first factor, the second is integrated in closed form
    power = line(lambda a: norm.logpdf(a, 0, 1.5) + norm.logpdf(2, 0, np.hypot(0.25, 2 * a)), 0.0)
    size = (np.arange(30_000) + 0.5) * 1e-4
    within = norm.cdf(3 * size, -2.5, 0.3) - norm.cdf(-3 * size, -2.5, 0.3)
    area = np.log(np.mean(within / size) / 6)
    strain = line(lambda f: norm.logpdf(f, 0, 3) + laplace.logpdf(1.8, abs(f), 0.15), 0, 1.8, -1.8)
    speed = (np.arange(8000) + 0.5) * 5e-4
    return float(power + area + strain + np.log(norm.pdf(3.0, speed**2, 0.4).mean()))


# Binaries beside two modes

PULLS = np.triu(np.random.default_rng(105).normal(0.1, 0.5, (16, 16)), 1)
FIELD = np.random.default_rng(106).normal(-0.5, 0.7, 16)
PEAKS = ((0.5, np.array([1.5, -1.0, 1.2]), 1.0), (0.5, np.array([-1.5, 0.6, -1.0]), 0.12))


def spins() -> pm.Model:
    """Sixteen spins that pull at each other, and apart from them two modes."""
    with pm.Model(coords={"spin": range(16), "axis": range(3)}) as model:
        up = pm.Bernoulli("up", 0.5, dims="spin")
        x = pm.Normal("x", 0, 3, dims="axis")
        pm.Potential("pulls", pt.dot(up, pt.dot(PULLS, up)) + pt.dot(FIELD, up))
        parts = [(share, at(pm.Normal.dist(mu, sd), x)) for share, mu, sd in PEAKS]
        pm.Potential("peaks", either(*parts))
    return model


def spins_truth() -> float:
    up = np.array(list(product((0.0, 1.0), repeat=16)))
    energy = ((up @ PULLS) * up).sum(1) + up @ FIELD
    parts = ((share, norm.logpdf(mu, 0, np.hypot(3, sd)).sum()) for share, mu, sd in PEAKS)
    return float(logsumexp(energy) - 16 * np.log(2)) + shared(*parts)


NEIGHBORS = 0.9


def genes() -> pm.Model:
    """Fourteen genes like their neighbors, and three of them move the modes of two unknowns."""
    with pm.Model(coords={"gene": range(14), "tissue": ["skin", "bone"]}) as model:
        on = pm.Bernoulli("on", 0.3, dims="gene")
        growth = pm.Uniform("growth", -5, 5, dims="tissue")
        pm.Potential("alike", NEIGHBORS * pt.sum(pt.eq(on[1:], on[:-1])))
        broad = pm.Normal.dist(1.5 + 0.8 * on[0] - 0.6 * on[5], 1.0)
        narrow = pm.Normal.dist(-1.5 - 0.4 * on[0], 0.1)
        share = pm.math.sigmoid(1.6 * on[9] - 0.8)
        parts = (1 - share, at(broad, growth)), (share, at(narrow, growth))
        pm.Potential("response", either(*parts))
    return model


def genes_truth() -> float:
    on = np.array(list(product((0, 1), repeat=14)))
    count = on.sum(1)
    prior = count * np.log(0.3) + (14 - count) * np.log(0.7)
    prior += NEIGHBORS * (on[:, 1:] == on[:, :-1]).sum(1)
    broad = 2 * boxed(1.5 + 0.8 * on[:, 0] - 0.6 * on[:, 5], 1.0, -5, 5)
    narrow = 2 * boxed(-1.5 - 0.4 * on[:, 0], 0.1, -5, 5)
    share = expit(1.6 * on[:, 9] - 0.8)
    both = np.logaddexp(np.log(1 - share) + broad, np.log(share) + narrow)
    return float(logsumexp(prior + both))


MODELS: dict[str, tuple[str, Callable[[], pm.Model], Callable[[], float]]] = {
    "spike-and-slab regression, d 4": ("spike", regression, regression_truth),
    "spike at the plates' readings, d 24": (
        "spike", plates,
        lambda: shared(*((w, norm.logpdf(PLATES, 0, np.hypot(3, sd)).sum()) for w, sd in SPREADS))),
    "spike beside a curved ridge, d 3": ("spike", bend, bend_truth),
    "spike on a correlated ridge, d 5": ("spike", months, months_truth),
    "spike at one of two harbors, d 2": (
        "spike", harbors,
        lambda: shared(*((share, boxed(mu, sd, -6, 6).sum()) for share, mu, sd in FIXES))),
    "pointed mode, d 6": (
        "dropped", *modes("gain", 6, ("Normal", 0, 2.5), normal(0.5, 1.0, 1.0), POINTED)),
    "one-sided mode, d 3": (
        "dropped", *modes("delay", 3, ("Uniform", -5, 5), normal(0.7, 1.4, 1.0), ONE_SIDED)),
    "mode in a slot, d 4": (
        "dropped", *modes("setting", 4, ("Normal", 0, 2.5), normal(0.35, 1.2, 1.0), SLOT)),
    "tiny spike on the narrow mode, d 8": (
        "dropped",
        *modes(
            "dial", 8, ("Normal", 0, 2),
            normal(0.499, 0.85, 1.0), normal(0.5, -0.85, 0.25), normal(0.001, -0.85, 0.01))),
    "distance from a beacon, d 5": ("dropped", shell, shell_truth),
    "reading a million scales away": ("far", *sites([2.0], [1e6])),
    "four sites far off, d 4": (
        "far", *sites([2.0, 2.0, 3.0, 4.0], [3e4, -500.0, 120.0, -25.0])),
    "jump along a chain": ("far", jumps, lambda: float(cauchy.logpdf(5000, 0, 1.5 + 1.3 + 1.2))),
    "regression on two lines": ("far", doses, doses_truth),
    "sizes of a random walk, d 6": ("signs", walk, walk_truth),
    "products, a size and a square": ("signs", gauges, gauges_truth),
    "sixteen spins": ("bits", spins, spins_truth),
    "genes that move the modes": ("bits", genes, genes_truth),
}  # fmt: skip
"""Kind, model and log evidence, by name."""
