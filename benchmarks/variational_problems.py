"""Multimodal or badly started PyMC models for the benchmark of fits, each with its starts."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm

LARGEST = 100.0
"""Largest temperature."""


@dataclass(frozen=True)
class Problem:
    """A model with its starts.

    Attributes
    ----------
    model : Model
    start : callable
        Generator to the initial values of a fit.
    largest : float
        Largest temperature of VT.
    """

    model: pm.Model
    start: Callable[[np.random.Generator], dict[str, np.ndarray]]
    largest: float = LARGEST


def peak() -> Problem:
    """A peak in a noisy spectrum; a start beside it feels hardly any slope."""
    rng = np.random.default_rng(2)
    x = np.linspace(-15.0, 15.0, 60)
    y = 3.0 * np.exp(-0.5 * ((x - 5.0) / 0.7) ** 2) + 0.5 * rng.normal(size=60)
    with pm.Model() as model:
        center = pm.Normal("center", 0.0, 6.0)
        height = pm.HalfNormal("height", 3.0)
        width = pm.LogNormal("width", -0.4, 0.3)
        curve = height * pm.math.exp(-0.5 * ((x - center) / width) ** 2)
        pm.Normal("y", curve, 0.5, observed=y)
    return Problem(model, lambda rng: {"center": rng.normal(-5.0, 2.0)})


def blob() -> Problem:
    """A bright spot in a small noisy image; started in another corner."""
    rng = np.random.default_rng(3)
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(9.0), np.arange(9.0)))
    light = 4.0 * np.exp(-0.5 * ((x - 6.0) ** 2 + (y - 6.0) ** 2)) + 0.4 * rng.normal(size=81)
    with pm.Model() as model:
        place = pm.Normal("place", 4.0, 3.0, shape=2)
        height = pm.HalfNormal("height", 4.0)
        square = (x - place[0]) ** 2 + (y - place[1]) ** 2
        pm.Normal("light", height * pm.math.exp(-0.5 * square), 0.4, observed=light)
    return Problem(model, lambda rng: {"place": rng.normal(1.0, 0.7, size=2)})


def ring() -> Problem:
    """Center of a bright ring in a small noisy image; started outside of it."""
    rng = np.random.default_rng(4)
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(11.0), np.arange(11.0)))

    def light(place):  # type: ignore[no-untyped-def]
        radius = pm.math.sqrt((x - place[0]) ** 2 + (y - place[1]) ** 2 + 1e-6)
        return 3.0 * pm.math.exp(-0.5 * ((radius - 2.0) / 0.7) ** 2)

    seen = light(np.array([7.0, 7.0])) + 0.6 * rng.normal(size=121)
    with pm.Model() as model:
        place = pm.Normal("place", 5.0, 4.0, shape=2)
        pm.Normal("light", light(place), 0.6, observed=np.asarray(seen.eval()))
    return Problem(model, lambda rng: {"place": rng.normal(-1.0, 0.7, size=2)})


def wavefront() -> Problem:
    """Time and slowness of a wave that crosses eight receivers; started too early."""
    rng = np.random.default_rng(7)
    t, x = (axis.ravel() for axis in np.meshgrid(np.arange(14.0), np.arange(8.0) - 3.5))
    y = 4.0 * np.exp(-0.5 * (t - 9.0 - 0.5 * x) ** 2) + 0.4 * rng.normal(size=t.size)
    with pm.Model() as model:
        time = pm.Normal("time", 7.0, 4.0)
        slowness = pm.Normal("slowness", 0.0, 1.0)
        strength = pm.HalfNormal("strength", 4.0)
        curve = strength * pm.math.exp(-0.5 * (t - time - slowness * x) ** 2)
        pm.Normal("y", curve, 0.4, observed=y)
    return Problem(model, lambda rng: {"time": rng.normal(2.0, 1.0), "slowness": rng.normal()})


def spots() -> Problem:
    """Two bright spots in a small noisy image; both are started in another corner."""
    rng = np.random.default_rng(3)
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(9.0), np.arange(9.0)))
    pairs = zip((6.0, 2.0), (6.0, 7.0), strict=True)
    light = sum(4.0 * np.exp(-0.5 * ((x - a) ** 2 + (y - b) ** 2)) for a, b in pairs)
    with pm.Model() as model:
        place = pm.Normal("place", 4.0, 3.0, shape=(2, 2))
        height = pm.HalfNormal("height", 4.0, shape=2)
        square = (x[:, None] - place[0]) ** 2 + (y[:, None] - place[1]) ** 2
        curve = (height * pm.math.exp(-0.5 * square)).sum(axis=1)
        pm.Normal("light", curve, 0.4, observed=light + 0.4 * rng.normal(size=81))
    return Problem(model, lambda rng: {"place": rng.normal(1.0, 0.7, size=(2, 2))})


def outliers() -> Problem:
    """Location of heavy-tailed data, a third of which lie elsewhere; started among these."""
    rng = np.random.default_rng(5)
    y = np.concatenate([rng.normal(4.0, 0.5, 40), rng.normal(-6.0, 0.5, 20)])
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 5.0)
        pm.StudentT("y", nu=4.0, mu=mu, sigma=0.5, observed=y)
    return Problem(model, lambda rng: {"mu": rng.normal(-6.0, 1.0)}, 4.5)


def shift() -> Problem:
    """Shift of a pattern with three peaks; a start may lie one peak beside."""
    rng = np.random.default_rng(8)
    x = np.linspace(-15.0, 15.0, 60)

    def pattern(shift):  # type: ignore[no-untyped-def]
        peaks = zip((-4.0, 0.0, 5.0), (1.0, 2.0, 3.0), strict=True)
        return sum(h * pm.math.exp(-0.5 * ((x - shift - c) / 0.6) ** 2) for c, h in peaks)

    y = pattern(2.0).eval() + 0.5 * rng.normal(size=60)
    with pm.Model() as model:
        offset = pm.Normal("offset", 0.0, 4.0)
        pm.Normal("y", pattern(offset), 0.5, observed=y)
    return Problem(model, lambda rng: {"offset": rng.normal(-4.0, 1.5)})


def phases() -> Problem:
    """Coefficients from squared projections: signs are lost, and most starts lead astray."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(50, 6))
    truth = rng.normal(size=6)
    y = (X @ truth) ** 2 + rng.normal(size=50)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, 1.0, shape=6)
        pm.Normal("y", pm.math.sqr(X @ beta), 1.0, observed=y)
    return Problem(model, lambda rng: {"beta": rng.normal(size=6)})


def sinusoid() -> Problem:
    """Frequency of a sinusoid; each wrong period is a narrow mode of its own."""
    rng = np.random.default_rng(1)
    t = np.linspace(0.0, 30.0, 120)
    y = np.sin(3.7 * t) + 0.5 * rng.normal(size=120)
    with pm.Model() as model:
        omega = pm.Normal("omega", 3.0, 2.0)
        pm.Normal("y", pm.math.sin(omega * t), 0.5, observed=y)
    return Problem(model, lambda rng: {"omega": rng.normal(3.0, 2.0)})


def network() -> Problem:
    """Regression by a network with four hidden units."""
    rng = np.random.default_rng(4)
    x = np.linspace(-3.0, 3.0, 60)
    y = np.sin(2.0 * x) + 0.3 * x + 0.3 * rng.normal(size=60)
    with pm.Model() as model:
        inner = pm.Normal("inner", 0.0, 2.0, shape=(2, 4))
        outer = pm.Normal("outer", 0.0, 1.5, shape=4)
        hidden = pm.math.tanh(inner[0] + x[:, None] * inner[1])
        pm.Normal("y", hidden @ outer, 0.3, observed=y)

    def start(rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"inner": 2.0 * rng.normal(size=(2, 4)), "outer": 1.5 * rng.normal(size=4)}

    return Problem(model, start)


def ghost() -> Problem:
    """A source located by distances from sensors nearly on a line; started at its mirror image."""
    rng = np.random.default_rng(9)
    sensors = np.column_stack([np.linspace(-4.0, 4.0, 9), 0.25 * rng.normal(size=9)])
    truth = np.array([1.0, 3.0])
    y = np.linalg.norm(sensors - truth, axis=1) + 0.1 * rng.normal(size=9)
    with pm.Model() as model:
        place = pm.Normal("place", 0.0, 3.0, shape=2)
        distance = pm.math.sqrt(((sensors - place) ** 2).sum(axis=1))
        pm.Normal("y", distance, 0.1, observed=y)
    return Problem(model, lambda rng: {"place": rng.normal([1.0, -3.0], 0.5)})


def step() -> Problem:
    """Time of a step in noisy data; a start after their end feels hardly any slope."""
    rng = np.random.default_rng(4)
    t = np.arange(40.0)
    y = 3.0 * (t > 16) + 0.5 * rng.normal(size=40)
    with pm.Model() as model:
        time = pm.Normal("time", 20.0, 12.0)
        pm.Normal("y", 3.0 * pm.math.sigmoid((t - time) / 0.3), 0.5, observed=y)
    return Problem(model, lambda rng: {"time": rng.normal(46.0, 2.0)})


def arrival() -> Problem:
    """Arrival time of a wavelet; each of its lobes is a mode."""
    rng = np.random.default_rng(7)
    t = np.linspace(0.0, 12.0, 80)

    def wavelet(s):  # type: ignore[no-untyped-def]
        return 3.0 * (1.0 - s**2) * pm.math.exp(-0.5 * s**2)

    y = wavelet(t - 8.0).eval() + 0.4 * rng.normal(size=80)
    with pm.Model() as model:
        arrives = pm.Normal("arrives", 6.0, 3.0)
        pm.Normal("y", wavelet(t - arrives), 0.4, observed=y)
    return Problem(model, lambda rng: {"arrives": rng.normal(4.0, 1.0)})


def pulses() -> Problem:
    """Time and strengths of a pulse that three channels see with known delays; started early."""
    rng = np.random.default_rng(7)
    t = np.arange(30.0)
    delay = np.array([0.0, 3.0, 5.0])[:, None]
    pulse = np.exp(-0.5 * (t - delay - 18.0) ** 2)
    y = np.array([3.0, 4.0, 5.0])[:, None] * pulse + 0.5 * rng.normal(size=(3, 30))
    with pm.Model() as model:
        time = pm.Normal("time", 12.0, 8.0)
        strength = pm.HalfNormal("strength", 5.0, shape=(3, 1))
        curve = strength * pm.math.exp(-0.5 * (t - delay - time) ** 2)
        pm.Normal("y", curve, 0.5, observed=y)
    return Problem(model, lambda rng: {"time": rng.normal(7.0, 1.0)})


FIRST = (peak, blob, spots, wavefront, ring, shift, outliers, phases)
MORE = (sinusoid, network, ghost, step, arrival, pulses)
"""Tried as well, and left out of the first table since a pilot showed little difference."""

PROBLEMS: dict[str, Callable[[], Problem]] = {f.__name__: f for f in (*FIRST, *MORE)}
