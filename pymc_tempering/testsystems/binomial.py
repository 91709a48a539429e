"""Binomial likelihoods with one identified and with two unidentified probabilities."""

import numpy as np
import pymc as pm
from scipy import stats
from scipy.special import betainc, betaln, digamma, gammaln

from pymc_tempering.testsystems.gauss_legendre import Axis
from pymc_tempering.testsystems.system import Distribution, FloatArray, Moments, TestSystem, element


def beta_binomial(n: int = 20, y: int = 14, a: float = 1.5, b: float = 4.0) -> TestSystem:
    """Put a beta prior on a binomial probability.

    ``p ~ Beta(a, b)``, ``y ~ Binomial(n, p)``:
    log Z(beta) = beta log C(n, y) + log B(a + beta y, b + beta (n - y)) - log B(a, b).

    Parameters
    ----------
    n, y : int
        Trials and successes, 0 <= y <= n.
    a, b : float
        Parameters of the prior.

    Returns
    -------
    TestSystem
        Variable ``p`` (scalar); the cdf is its own. log Z in nats.

    Raises
    ------
    ValueError
        If y is not in [0, n].
    """
    log_choose = _log_choose(n, y)
    with pm.Model() as model:
        p = pm.Beta("p", a, b)
        pm.Binomial("y", n, p, observed=y)

    def law(beta: float) -> tuple[float, float]:
        return a + beta * y, b + beta * (n - y)

    def moments(beta: float) -> Moments:
        first, second = law(beta)
        total = first + second
        variance = first * second / (total**2 * (total + 1.0))
        return {"p": (np.asarray(first / total), np.asarray(variance))}

    def cdf(beta: float) -> Distribution:
        return lambda value: np.asarray(stats.beta.cdf(value, *law(beta)))

    return TestSystem(
        name="beta_binomial",
        model=model,
        dim=1,
        n_modes=1,
        exact_log_z=lambda beta: float(beta * log_choose + betaln(*law(beta)) - betaln(a, b)),
        exact_moments=moments,
        exact_cdf=cdf,
        statistic=element("p"),
        statistic_name="p",
    )


def unidentifiable_binomial(n: int = 100, y: int = 30) -> TestSystem:
    """Observe only the product of two probabilities: a curved ridge.

    ``p1, p2 ~ Uniform(0, 1)``, ``y ~ Binomial(n, p1 * p2)``. The product has the prior density
    -log(theta), and with c = beta y + 1, d = beta (n - y) + 1

        log Z(beta) = beta log C(n, y) + log B(c, d) + log[psi(c + d) - psi(c)],

    psi the digamma function. Given theta, p1 has density proportional to 1/p1 on (theta, 1),
    which gives the moments: Z E[p1^k] is proportional to [B(c, d) - B(c + k, d)] / k.

    Parameters
    ----------
    n, y : int
        Trials and successes, 0 <= y <= n.

    Returns
    -------
    TestSystem
        Variables ``p1`` and ``p2`` (scalars, the same law); the cdf is that of ``p1``.
        log Z in nats.

    Raises
    ------
    ValueError
        If y is not in [0, n].
    """
    log_choose = _log_choose(n, y)
    with pm.Model() as model:
        p1 = pm.Uniform("p1", 0.0, 1.0)
        p2 = pm.Uniform("p2", 0.0, 1.0)
        pm.Binomial("y", n, p1 * p2, observed=y)

    def law(beta: float) -> tuple[float, float]:
        return beta * y + 1.0, beta * (n - y) + 1.0

    def log_z(beta: float) -> float:
        c, d = law(beta)
        ridge = np.log(digamma(c + d) - digamma(c))
        return float(beta * log_choose + betaln(c, d) + ridge)

    def moments(beta: float) -> Moments:
        c, d = law(beta)
        ridge = digamma(c + d) - digamma(c)

        def power(k: int) -> float:
            ratio = np.exp(betaln(c + k, d) - betaln(c, d))
            return float((1.0 - ratio) / (k * ridge))

        mean = power(1)
        moment = (np.asarray(mean), np.asarray(power(2) - mean**2))
        return {"p1": moment, "p2": moment}

    def cdf(beta: float) -> Distribution:
        c, d = law(beta)
        # p1 has density I_u(c, d) / u up to a constant. In w = log u it is I(c, d) alone.
        axis = Axis(-np.linspace(0.0, 40.0, 801)[::-1])
        curve = axis.cdf(axis.weights * betainc(c, d, np.exp(axis.nodes)))

        def value_cdf(value: FloatArray) -> FloatArray:
            return curve(np.log(np.clip(value, np.finfo(float).tiny, 1.0)))

        return value_cdf

    return TestSystem(
        name="unidentifiable_binomial",
        model=model,
        dim=2,
        n_modes=1,
        exact_log_z=log_z,
        exact_moments=moments,
        exact_cdf=cdf,
        statistic=element("p1"),
        statistic_name="p1",
    )


def _log_choose(n: int, y: int) -> float:
    if not 0 <= y <= n:
        raise ValueError(f"y must be in [0, n], got y = {y} and n = {n}.")
    return float(gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1))
