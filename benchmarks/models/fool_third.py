"""Models whose modes are easily lost, with their evidences: a third set, that nobody has tuned on.

Who wrote these had not seen the code that they test. In most, the evidence of each mode is known in
closed form; in the others it is summed on panels, on a grid, or over all states.
"""

from collections.abc import Callable
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import expit, logsumexp
from scipy.stats import cauchy, laplace_asymmetric, multivariate_normal, norm, t, triang

from benchmarks.models.fool_second import at, boxed, either, line, normal, panels, shared


def placed(name: str, dim: str, keys: Any, edge: float, *parts: tuple) -> tuple[Callable, Callable]:
    """Unknowns in a box, all of them from one law at a time: the model and the truth.

    Each part is its share, its law for each unknown as PyMC has it, and as SciPy has it.
    """

    def build() -> pm.Model:
        with pm.Model(coords={dim: keys}) as model:
            x = pm.Uniform(name, -edge, edge, dims=dim)
            pm.Potential("seen", either(*((share, pt.sum(law(x))) for share, law, _ in parts)))
        return model

    def inside(law: Any) -> float:
        mass = np.log((law.cdf(edge) - law.cdf(-edge)) / (2 * edge))
        return np.broadcast_to(mass, len(keys)).sum()

    return build, lambda: shared(*((share, inside(law)) for share, _, law in parts))


# Spikes

ROUGH = np.random.default_rng(301).normal(0.5, 1.8, 12)
FINE = ROUGH + np.random.default_rng(302).normal(0, 0.12, 12)
RUNS = ((0.35, ROUGH, 1.1), (0.65, FINE, 0.15))


def metabolites() -> pm.Model:
    """Twelve levels were read roughly, or well if the standard was right."""
    with pm.Model(coords={"metabolite": range(12)}) as model:
        level = pm.Normal("level", 0, 2.5, dims="metabolite")
        rough = pm.Data("rough", ROUGH, dims="metabolite")
        fine = pm.Data("fine", FINE, dims="metabolite")
        parts = (0.35, pm.Normal.dist(level, 1.1), rough), (0.65, pm.Normal.dist(level, 0.15), fine)
        pm.Potential("readings", either(*((share, at(law, y)) for share, law, y in parts)))
    return model


NODES = np.linspace(-0.8, 1.1, 20), np.linspace(0.6, 1.3, 20)
LOADINGS = np.array([0.8, -0.6, 0.3, 0.9, -0.7, 0.2, 0.5])
FACTOR = np.outer(LOADINGS, LOADINGS) + 0.4**2 * np.eye(7)
PORTFOLIO = 0.3 * LOADINGS + np.array([0.03, 0.0, -0.04, 0.02, 0.05, -0.03, 0.0])


def portfolio() -> pm.Model:
    """Seven returns move along one factor, unless an index pins all of these."""
    with pm.Model(coords={"asset": list("ABCDEFG")}) as model:
        gain = pm.Normal("gain", 0, 3, dims="asset")
        factor = at(pm.MvNormal.dist(np.zeros(7), FACTOR), gain)
        pinned = at(pm.Normal.dist(PORTFOLIO, 0.06), gain)
        pm.Potential("market", either((0.3, factor), (0.7, pinned)))
    return model


def portfolio_truth() -> float:
    factor = multivariate_normal.logpdf(np.zeros(7), np.zeros(7), FACTOR + 9 * np.eye(7))
    return shared((0.3, factor), (0.7, norm.logpdf(PORTFOLIO, 0, np.hypot(3, 0.06)).sum()))


HOT = np.array([1.3, 1.0, 1.2, 0.9, 1.4, 1.1, 1.3, 1.0])
LINES = np.array([0.1, -0.1, 0.05, 0.1, -0.05, 0.1, -0.1, 0.1])
POINTING = np.array([[2.1, -0.9], [-0.9, 1.7]])
CATALOG, CATALOG_SD = np.array([0.6, 0.5]), 0.05


def pointing() -> pm.Model:
    """Where a telescope points is known roughly, and a star may be in the catalog."""
    with pm.Model(coords={"axis": ["azimuth", "altitude"]}) as model:
        angle = pm.Normal("angle", 0, 5, dims="axis")
        rough = pm.MvNormal.dist(angle, POINTING)
        fixed = pm.MvNormal.dist(angle - CATALOG, CATALOG_SD**2 * np.eye(2))
        pm.Mixture("offset", [0.88, 0.12], [rough, fixed], observed=np.zeros(2), dims="axis")
    return model


def pointing_truth() -> float:
    rough = multivariate_normal.logpdf(np.zeros(2), np.zeros(2), POINTING + 25 * np.eye(2))
    return shared((0.88, rough), (0.12, norm.logpdf(CATALOG, 0, np.hypot(5, CATALOG_SD)).sum()))


# Narrow modes beside broad ones

SKEWED = (
    0.4,
    lambda x: pm.logp(pm.AsymmetricLaplace.dist(kappa=1.4, mu=-1.1, b=8.0), x),
    laplace_asymmetric(1.4, -1.1, 1 / 8.0),
)
HELD = (
    0.5,
    lambda x: pm.logp(pm.Triangular.dist(lower=-1.6, c=-1.45, upper=-1.0), x),
    triang(0.25, -1.6, 0.6),
)


def shifts() -> pm.Model:
    """Two jobs start and end at any time, or each ends soon after its start."""
    with pm.Model(coords={"job": ["paint", "dry"]}) as model:
        start = pm.Uniform("start", -6, 6, dims="job")
        end = pm.Uniform("end", -6, 6, dims="job")
        free = at(pm.Normal.dist(1.2, 0.9), start) + at(pm.Normal.dist(1.5, 1.0), end)
        soon = at(pm.Normal.dist(-1.3, 0.15), start)
        soon += at(pm.Exponential.dist(scale=0.12), end - start)
        pm.Potential("log", either((0.45, free), (0.55, soon)))
    return model


STRETCH, RADIUS, THICK = np.array([1.3, 1.0, 1.0, 0.8]), 0.75, 0.11
SHELL = np.prod(STRETCH) * 2 * np.pi**2


def orbit() -> pm.Model:
    """Either the state is known roughly, or its energy about a resting point well."""
    with pm.Model(coords={"part": ["x", "y", "vx", "vy"]}) as model:
        state = pm.Uniform("state", -6, 6, dims="part")
        stretch = pm.Data("stretch", STRETCH, dims="part")
        size = pt.sqrt(pt.sum(((state + 1.3) / stretch) ** 2))
        rough = at(pm.Normal.dist(1.3, 0.9), state)
        pm.Potential("seen", either((0.85, rough), (0.15, at(pm.Normal.dist(RADIUS, THICK), size))))
    return model


# Far data

CLOCKS = np.array([[0.8, 2.0, 5.0], [0.5, 1.0, 0.4], [3e5, -900.0, 150.0]])


def clocks() -> pm.Model:
    """Three clocks each run as expected, or as read."""
    with pm.Model(coords={"clock": ["quartz", "pendulum", "sundial"]}) as model:
        drift = pm.Cauchy("drift", alpha=0, beta=CLOCKS[0], dims="clock")
        pm.Cauchy("y", alpha=drift, beta=CLOCKS[1], observed=CLOCKS[2], dims="clock")
    return model


TWICE = np.array([[800.0, 806.0], [-60.0, 2500.0]])


def twice() -> pm.Model:
    """Two depths are sounded twice, the one time in accord and the other not."""
    with pm.Model(coords={"place": ["bay", "strait"], "time": [1, 2]}) as model:
        depth = pm.StudentT("depth", nu=3, mu=0, sigma=1.5, dims="place")
        sounding = pm.Data("sounding", TWICE, dims=("place", "time"))
        pm.StudentT("y", 2, mu=depth[:, None], sigma=0.6, observed=sounding)
    return model


def twice_truth() -> float:
    seen = lambda x, y: t.logpdf(y[:, None], 2, x, 0.6).sum(0)  # noqa: E731
    both = lambda x, y: t.logpdf(x, 3, 0, 1.5) + seen(x, y)  # noqa: E731
    return sum(line(partial(both, y=y), 0.0, *y) for y in TWICE)


DEPTH = np.array([-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0])
PRESSURE = np.array([104.8, 2.6, 107.9, 0.3, 112.3, -1.4, 115.7])


def pressures() -> pm.Model:
    """Four of seven gauges are far from the prior, and the others fit it."""
    with pm.Model(coords={"gauge": range(7)}) as model:
        depth = pm.Data("depth", DEPTH, dims="gauge")
        base = pm.StudentT("base", nu=3, mu=0, sigma=1)
        slope = pm.StudentT("slope", nu=3, mu=0, sigma=1)
        pm.StudentT("y", 3, mu=base + slope * depth, sigma=0.5, observed=PRESSURE, dims="gauge")
    return model


def pressures_truth() -> float:
    pairs = list(combinations(range(7), 2))
    meet = [(PRESSURE[i] - PRESSURE[j]) / (DEPTH[i] - DEPTH[j]) for i, j in pairs]
    slopes, weights = panels([0.0, *meet], 0.05, 13)
    total = t.logpdf(slopes, 3, 0, 1) + weights + 7 * t.logpdf(0, 3, 0, 0.5)
    for i, slope in enumerate(slopes):
        base, weight = panels([0.0, *(PRESSURE - slope * DEPTH)], 0.3, 13)
        off = ((PRESSURE - slope * DEPTH)[:, None] - base) / 0.5
        fit = -2 * np.log1p(off**2 / 3).sum(0)
        total[i] += logsumexp(fit + t.logpdf(base, 3, 0, 1) + weight)
    return float(logsumexp(total))


BUOYS = np.array([60.0, 57.0, -2.0])


def buoys() -> pm.Model:
    """Two of three buoys agree on a drift far from the prior, and the third fits it."""
    with pm.Model(coords={"buoy": ["north", "west", "south"]}) as model:
        current = pm.StudentT("current", nu=4, mu=0, sigma=1.2)
        drift = pm.StudentT("drift", nu=4, mu=current, sigma=1.0, dims="buoy")
        pm.StudentT("y", nu=4, mu=drift, sigma=0.7, observed=BUOYS, dims="buoy")
    return model


def buoys_truth() -> float:
    current, total = panels([0.0, *BUOYS], 0.01, 24)
    total = total + t.logpdf(current, 4, 0, 1.2)
    both = lambda x, mu, y: t.logpdf(x, 4, mu, 1.0) + t.logpdf(y, 4, x, 0.7)  # noqa: E731
    for y in BUOYS:
        total += [line(partial(both, mu=mu, y=y), mu, y, near=0.1) for mu in current]
    return float(logsumexp(total))


# Signs


def pair(y: tuple, x: tuple, tau: float, sd: float) -> np.ndarray:
    """Log density of two data that are x times a normal unknown, which is integrated out."""
    size, along = x[0] ** 2 + x[1] ** 2, x[0] * y[0] + x[1] * y[1]
    square = (y[0] ** 2 + y[1] ** 2 - along**2 / (size + (sd / tau) ** 2)) / sd**2
    return -0.5 * (square + np.log1p(size * (tau / sd) ** 2)) - np.log(2 * np.pi * sd**2)


SCORES = np.outer([1.2, -0.8], [1.0, -0.6, 1.5, 0.4])
SCORES += np.random.default_rng(303).normal(0, 0.3, (2, 4))


def scores() -> pm.Model:
    """Each score is a test's weight times a pupil's skill."""
    with pm.Model(coords={"test": ["sums", "poems"], "pupil": range(4)}) as model:
        weight = pm.Normal("weight", 0, 1.3, dims="test")
        skill = pm.Normal("skill", 0, 1, dims="pupil")
        pm.Normal("score", weight[:, None] * skill, 0.3, observed=SCORES, dims=("test", "pupil"))
    return model


def scores_truth() -> float:
    x, step = np.linspace(-10, 10, 2501, retstep=True)
    total = norm.logpdf(x[:, None], 0, 1.3) + norm.logpdf(x, 0, 1.3)
    total += sum(pair(y, (x[:, None], x), 1.0, 0.3) for y in SCORES.T)
    return float(logsumexp(total) + 2 * np.log(step))


def coils() -> pm.Model:
    """Three currents whose products are seen, and no signs can fit all three."""
    with pm.Model() as model:
        left, middle, right = (pm.Normal(f"{n}_current", 0, 1.4) for n in ("left", "mid", "right"))
        pm.Normal("pull", left * middle, 0.4, observed=2.0)
        pm.Normal("push", middle * right, 0.4, observed=1.4)
        pm.Normal("twist", right * left, 0.4, observed=-0.9)
    return model


def coils_truth() -> float:
    x, step = np.linspace(-11, 11, 2201, retstep=True)
    a, b = x[:, None], x
    total = norm.logpdf(a, 0, 1.4) + norm.logpdf(b, 0, 1.4) + norm.logpdf(2.0, a * b, 0.4)
    total += pair((1.4, -0.9), (b, a), 1.4, 0.4)
    return float(logsumexp(total) + 2 * np.log(step))


ROADS, BACK = np.array([2.0, 3.1, 1.4, 2.3, 1.2]), 3.6


def towns() -> pm.Model:
    """Only distances between towns along a road are known, from the depot and back."""
    with pm.Model(coords={"town": range(5)}) as model:
        place = pm.Normal("place", 0.5, 4, dims="town")
        steps = pt.diff(pt.concatenate([[0.0], place]))
        pm.Normal("road", pt.abs(steps), 0.25, observed=ROADS, dims="town")
        pm.Normal("back", pt.abs(place[-1]), 0.8, observed=BACK)
    return model


def towns_truth() -> float:
    x, step = np.linspace(-13, 13, 2601, retstep=True)
    prior = norm.pdf(x, 0.5, 4) * step
    now = prior * norm.pdf(ROADS[0], np.abs(x), 0.25)
    for road in ROADS[1:]:
        now = prior * (norm.pdf(road, np.abs(x[:, None] - x), 0.25) @ now)
    return float(np.log(now @ norm.pdf(BACK, np.abs(x), 0.8)))


BRIGHT, DARK = np.array([4.2, 2.9, 6.0]), np.array([2.4, 3.6, 1.8])


def fringes() -> pm.Model:
    """Squares of sums and of differences of three pairs are seen."""
    with pm.Model(coords={"channel": ["red", "green", "blue"]}) as model:
        signal = pm.Normal("signal", 0.4, 1.5, dims="channel")
        mirror = pm.Normal("mirror", 0.1, 1.5, dims="channel")
        pm.Normal("bright", (signal + mirror) ** 2, 0.5, observed=BRIGHT, dims="channel")
        pm.Normal("dark", (signal - mirror) ** 2, 0.4, observed=DARK, dims="channel")
    return model


def fringes_truth() -> float:
    x, step = np.linspace(-18, 18, 36_001, retstep=True)
    total = 6 * np.log(step)
    # a sum and a difference are independent
    for seen, mu, sd in ((BRIGHT, 0.5, 0.5), (DARK, 0.3, 0.4)):
        prior = norm.logpdf(x, mu, np.hypot(1.5, 1.5))
        total += logsumexp(prior + norm.logpdf(seen[:, None], x**2, sd), axis=1).sum()
    return float(total)


# Binaries beside two modes


def lattice() -> pm.Model:
    """Sixteen cells on a square like their neighbors, and some of them move two modes."""
    with pm.Model(coords={"row": range(4), "column": range(4)}) as model:
        wet = pm.Bernoulli("wet", 0.45, dims=("row", "column"))
        s = 2 * wet - 1
        bonds = pt.sum(s[1:] * s[:-1]) + pt.sum(s[:, 1:] * s[:, :-1])
        pm.Potential("alike", 0.4 * bonds)
        growth = pm.Uniform("growth", -6, 6, dims="column")
        wild = at(pm.Normal.dist(1.6 + 0.4 * s[0], 0.9), growth)
        tame = at(pm.Normal.dist(-1.6 + 0.15 * s[3], 0.12), growth)
        share = pm.math.sigmoid(0.8 * s[1, 1])
        pm.Potential("harvest", either((1 - share, wild), (share, tame)))
    return model


def lattice_truth() -> float:
    wet = np.array(list(product((0, 1), repeat=16))).reshape(-1, 4, 4)
    s, count = 2 * wet - 1, wet.sum((1, 2))
    bonds = (s[:, 1:] * s[:, :-1]).sum((1, 2)) + (s[:, :, 1:] * s[:, :, :-1]).sum((1, 2))
    prior = count * np.log(0.45) + (16 - count) * np.log(0.55) + 0.4 * bonds
    wild = boxed(1.6 + 0.4 * s[:, 0], 0.9, -6, 6).sum(1)
    tame = boxed(-1.6 + 0.15 * s[:, 3], 0.12, -6, 6).sum(1)
    share = expit(0.8 * s[:, 1, 1])
    return float(logsumexp(prior + np.logaddexp(np.log1p(-share) + wild, np.log(share) + tame)))


FACTIONS = np.random.default_rng(304).choice([-1.0, 1.0], size=(2, 15))


def council() -> pm.Model:
    """Fifteen votes follow one of two factions, and the budget one of two plans."""
    with pm.Model(coords={"member": range(15), "faction": range(2), "item": range(5)}) as model:
        factions = pm.Data("factions", FACTIONS, dims=("faction", "member"))
        yes = pm.Bernoulli("yes", 0.55, dims="member")
        accord = pt.dot(factions, 2 * yes - 1) / 15
        pm.Potential("whip", 12.0 * pt.sum(accord**2))
        budget = pm.Normal("budget", 0, 2.5, dims="item")
        broad = at(pm.Normal.dist(1.2 + 0.7 * accord[0], 1.0), budget)
        strict = at(pm.Normal.dist(-1.2, 0.13), budget)
        pm.Potential("plan", either((0.5, broad), (0.5, strict)))
    return model


def council_truth() -> float:
    yes = np.array(list(product((0, 1), repeat=15)))
    accord = (2 * yes - 1) @ FACTIONS.T / 15
    prior = yes.sum(1) * np.log(0.55) + (15 - yes.sum(1)) * np.log(0.45)
    prior += 12.0 * (accord**2).sum(1)
    broad = 5 * norm.logpdf(1.2 + 0.7 * accord[:, 0], 0, np.hypot(2.5, 1.0))
    strict = 5 * norm.logpdf(-1.2, 0, np.hypot(2.5, 0.13))
    return float(logsumexp(prior + np.logaddexp(broad, strict)) + np.log(0.5))


MODELS: dict[str, tuple[str, Callable[[], pm.Model], Callable[[], float]]] = {
    "spike at twelve metabolites, d 12": (
        "spike", metabolites,
        lambda: shared(*((w, norm.logpdf(y, 0, np.hypot(2.5, sd)).sum()) for w, y, sd in RUNS))),
    "spike at the planned voltages, d 20": (
        "spike",
        *placed(
            "voltage", "node", range(20), 8.0,
            normal(0.2, *NODES), normal(0.8, NODES[0], NODES[1] / 5.5))),
    "spike beside a factor, d 7": ("spike", portfolio, portfolio_truth),
    "spike in the hot mode, d 8": (
        "spike",
        *placed(
            "abundance", "element", ["C", "N", "O", "Na", "Mg", "Si", "Ca", "Fe"], 6.0,
            normal(0.3, -HOT, 0.7), normal(0.3, HOT, 0.65), normal(0.4, HOT + LINES, 0.08))),
    "small spike at a star, d 2": ("spike", pointing, pointing_truth),
    "skewed cusp, d 5": (
        "dropped", *placed("change", "year", range(5), 7.0, normal(0.6, 1.1, 0.9), SKEWED)),
    "oblique walls, d 4": (
        "dropped", shifts,
        lambda: shared(
            (0.45, 2 * boxed(1.2, 0.9, -6, 6) + 2 * boxed(1.5, 1.0, -6, 6)),
            (0.55, -4 * np.log(12)))),
    "triangle between two stops, d 6": (
        "dropped", *placed("phase", "rotor", range(6), 5.5, normal(0.5, 0.9, 1.0), HELD)),
    "small spike on a narrow mode, d 7": (
        "dropped",
        *placed(
            "torque", "joint", range(7), 5.5,
            normal(0.5, 1.0, 1.0), normal(0.49, -0.9, 0.22), normal(0.01, -0.88, 0.03))),
    "energy about a resting point, d 4": (
        "dropped", orbit,
        lambda: shared(
            (0.85, 4 * boxed(1.3, 0.9, -6, 6)),
            (0.15, np.log(SHELL * (RADIUS**3 + 3 * RADIUS * THICK**2)) - 4 * np.log(12)))),
    "three clocks, d 3": (
        "far", clocks, lambda: float(cauchy.logpdf(CLOCKS[2], 0, CLOCKS[0] + CLOCKS[1]).sum())),
    "depths sounded twice, d 2": ("far", twice, twice_truth),
    "gauges on two lines": ("far", pressures, pressures_truth),
    "three buoys, d 4": ("far", buoys, buoys_truth),
    "weights times skills, d 6": ("signs", scores, scores_truth),
    "frustrated coils": ("signs", coils, coils_truth),
    "towns along a road, d 5": ("signs", towns, towns_truth),
    "sums and differences, d 6": ("signs", fringes, fringes_truth),
    "cells on a square": ("bits", lattice, lattice_truth),
    "two factions of a council": ("bits", council, council_truth),
}  # fmt: skip
"""Kind, model and log evidence, by name."""
