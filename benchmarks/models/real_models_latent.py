"""Real models with something hidden: mixtures, a switch, volatility, states, an orbit, a GP."""

from functools import cache, partial

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from scipy.special import gammaln, logsumexp

from benchmarks.models.published import published
from benchmarks.models.real_models_entry import RealModel
from benchmarks.truths.real_models_integrals import poisson_field, random_walk_volatility

GALAXIES = np.array(published("GALAXIES")) / 1000.0
"""Velocities of 82 galaxies, 1000 km/s (Roeder 1990)."""

COAL = np.array(published("COAL"))
"""Disasters in British coal mines in the 112 years 1851 to 1962 (Jarrett 1979)."""

HARES = np.array(published("HARES"))
LYNXES = np.array(published("LYNXES"))
"""Pelts of the Hudson's Bay Company, thousands, 1900 to 1920 (Howard 2009)."""


def galaxies(components: int) -> pm.Model:
    """Build a mixture of normals with a variance each (Richardson & Green 1997)."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(components))
        mu = pm.Normal("mu", 20, 10, shape=components)
        v = pm.InverseGamma("v", 2, 1, shape=components)
        pm.NormalMixture("y", w, mu, sigma=pt.sqrt(v), observed=GALAXIES)
    return model


def coal() -> pm.Model:
    """Build the switch of a Poisson rate at an unknown year."""
    with pm.Model() as model:
        switch = pm.DiscreteUniform("switch", 0, COAL.size - 1)
        early = pm.Exponential("early", 1)
        late = pm.Exponential("late", 1)
        rate = pt.switch(np.arange(COAL.size) < switch, early, late)
        pm.Poisson("y", rate, observed=COAL)
    return model


def exact_coal() -> tuple[float, float]:
    """Sum over the years; rates are gamma laws given the year."""

    def part(counts: np.ndarray) -> float:
        total = counts.sum()
        value = gammaln(total + 1.0) - (total + 1.0) * np.log(counts.size + 1.0)
        return float(value - gammaln(counts + 1.0).sum())

    parts = [part(COAL[:s]) + part(COAL[s:]) for s in range(COAL.size)]
    return float(logsumexp(parts) - np.log(COAL.size)), 1e-9


@cache
def volatility_data() -> np.ndarray:
    """Return 150 returns."""
    rng = np.random.default_rng(150)
    walk = -4.5 + np.cumsum(0.15 * rng.normal(size=150))
    return np.exp(walk) * rng.standard_t(8, size=150)


def volatility() -> pm.Model:
    """Build the random walk of a log volatility with Student-t returns, 150 days."""
    with pm.Model() as model:
        step = pm.Exponential("step", 10)
        nu = pm.Exponential("nu", 0.1)
        start = pm.Normal.dist(-4, 2)
        h = pm.GaussianRandomWalk("h", sigma=step, init_dist=start, steps=149)
        pm.StudentT("y", nu=nu, sigma=pt.exp(h), observed=volatility_data())
    return model


def hidden_states() -> pm.Model:
    """Build a two-state hidden Markov model, its states summed out by the forward algorithm."""
    rng = np.random.default_rng(7)
    state = np.zeros(100, dtype=int)
    for t in range(1, 100):
        state[t] = state[t - 1] if rng.random() < (0.9, 0.8)[state[t - 1]] else 1 - state[t - 1]
    y = np.array([3.0, 9.0])[state] + np.array([1.0, 1.5])[state] * rng.normal(size=100)
    with pm.Model() as model:
        stay = pm.Beta("stay", 2, 1, shape=2)
        mu = pm.Normal("mu", [3, 10], 2, shape=2)
        sigma = pm.HalfNormal("sigma", 2, shape=2)
        log_move = pt.log(pt.stack([pt.stack([stay[0], 1 - stay[0]]),
                                    pt.stack([1 - stay[1], stay[1]])]))  # fmt: skip
        emitted = pm.logp(pm.Normal.dist(mu, sigma), y[:, None])

        def forward(seen, alpha, log_move):  # type: ignore[no-untyped-def]
            return pt.logsumexp(alpha[:, None] + log_move, axis=0) + seen

        alpha = pytensor.scan(
            forward, [emitted[1:]], [emitted[0] - np.log(2)], [log_move], return_updates=False
        )
        pm.Potential("y", pt.logsumexp(alpha[-1]))
    return model


def hares(steps: int = 10) -> pm.Model:
    """Build the Lotka-Volterra equations by Runge-Kutta steps in a scan: 8 parameters.

    Priors of Carpenter (2018); the logs of both populations are followed, so that they stay
    positive.
    """
    observed = np.log(np.column_stack([HARES, LYNXES]))
    with pm.Model() as model:
        rate = pm.TruncatedNormal("rate", 1, 0.5, lower=0, shape=2)
        contact = pm.TruncatedNormal("contact", 0.05, 0.05, lower=0, shape=2)
        start = pm.LogNormal("start", np.log(10), 1, shape=2)
        sigma = pm.LogNormal("sigma", -1, 1, shape=2)

        def slope(z, rate, contact):  # type: ignore[no-untyped-def]
            size = pt.exp(z)
            return pt.stack([rate[0] - contact[0] * size[1], contact[1] * size[0] - rate[1]])

        def advance(z, rate, contact):  # type: ignore[no-untyped-def]
            h = 1.0 / steps
            one = slope(z, rate, contact)
            two = slope(z + 0.5 * h * one, rate, contact)
            three = slope(z + 0.5 * h * two, rate, contact)
            four = slope(z + h * three, rate, contact)
            return z + h / 6.0 * (one + 2.0 * two + 2.0 * three + four)

        path = pytensor.scan(
            advance, None, [pt.log(start)], [rate, contact], n_steps=20 * steps,
            return_updates=False,
        )  # fmt: skip
        z = pt.concatenate([pt.log(start)[None], path[steps - 1 :: steps]])
        pm.Normal("y", z, sigma, observed=observed)
    return model


@cache
def field_data() -> tuple[np.ndarray, np.ndarray]:
    """Places and counts."""
    rng = np.random.default_rng(40)
    x = np.linspace(0.0, 10.0, 40)
    return x, rng.poisson(np.exp(1.0 + np.sin(x) + 0.5 * np.cos(2.3 * x)))


def field() -> pm.Model:
    """Build a latent Gaussian process with Poisson counts at 40 points: 43 parameters."""
    x, counts = field_data()
    with pm.Model() as model:
        length = pm.InverseGamma("length", 5, 5)
        height = pm.HalfNormal("height", 2)
        level = pm.Normal("level", 0, 2)
        gp = pm.gp.Latent(cov_func=height**2 * pm.gp.cov.ExpQuad(1, length))
        f = gp.prior("f", x[:, None])
        pm.Poisson("y", pt.exp(level + f), observed=counts)
    return model


MODELS = {
    "galaxies3": RealModel(partial(galaxies, 3), 8, 82, "published (Roeder 1990)", several=True),
    "galaxies4": RealModel(partial(galaxies, 4), 11, 82, "published (Roeder 1990)", several=True),
    "coal": RealModel(coal, 3, 112, "published (Jarrett 1979)", exact_coal),
    "volatility": RealModel(
        volatility, 152, 150, "simulated", lambda: random_walk_volatility(volatility_data())
    ),
    "hidden_states": RealModel(hidden_states, 6, 100, "simulated"),
    "hares": RealModel(hares, 8, 21, "published (Howard 2009)", dear=True),
    "field": RealModel(field, 43, 40, "simulated", lambda: poisson_field(*field_data())),
}
"""Models by name."""
