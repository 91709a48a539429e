"""The exact answers of `testsystems`, held against the densities that PyMC itself compiles.

Models of few dimensions are integrated on a lattice, the others by importance sampling. Sampled
figures are checked at |z| < 4.5: with some 2,000 of them, a false alarm in about 1 % of seeds.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp, ndtri
from support.integration_points import (
    Density,
    adapted,
    given_scales,
    given_tau,
    independent,
    lattice,
    on_shells,
    square,
    tempered_components,
)
from support.scaled_priors import jzs_t_test, scaled_regression

from pymc_tempering import testsystems as ts
from pymc_tempering.testsystems.modes import TWENTY_MEANS

SEED = 20240607

# Williams (1959), 42 specimens of radiata pine: strength, density, resin-adjusted density.
PINE = """
    3040 29.2 25.4  2470 24.7 22.2  3610 32.3 32.2  3480 31.3 31  3810 31.5 30.9  2330 24.5 23.9
    1800 19.9 19.2  3110 27.3 27.2  3670 32.3 29  2310 24 23.9  4360 33.8 33.2  1880 21.5 21
    3670 32.2 29  1740 22.5 22  2250 27.5 23.8  2650 25.6 25.3  4970 34.5 34.2  2620 26.2 25.7
    2900 26.7 26.4  1670 21.1 20  2540 24.1 23.9  3840 30.7 30.7  3800 32.7 32.6  4600 32.6 32.5
    1900 22.1 20.8  2530 25.3 23.1  2920 30.8 29.8  4990 38.9 38.1  1670 22.1 21.3  3310 29.2 28.5
    3450 30.1 29.2  3600 31.4 31.4  2850 26.7 25.9  1590 22.1 21.4  3770 30.3 29.8  3850 32 30.6
    2480 23.2 22.6  3570 30.3 30.3  2620 29.9 23.8  1890 20.8 18.4  3030 33.2 29.4  3030 28.2 28.2
"""


def pine_regression(column: int) -> ts.TestSystem:
    data = np.array(PINE.split(), dtype=float).reshape(-1, 3)
    x = data[:, column]
    X = np.column_stack([np.ones_like(x), x - x.mean()])
    scale = (0.06**-0.5, 6.0**-0.5)
    return ts.normal_inverse_gamma_regression(
        X, data[:, 0], (3000.0, 185.0), scale, 3.0, 2.0 * 300.0**2
    )


def small_regression() -> ts.TestSystem:
    rng = np.random.default_rng(5)
    X = np.column_stack([np.ones(25), rng.normal(size=(25, 2))])
    y = X @ [1.0, -2.0, 0.5] + 0.7 * rng.normal(size=25)
    return ts.normal_inverse_gamma_regression(X, y, (0.5, 0.0, -1.0), (3.0, 2.0, 1.0), 3.0, 2.0)


def group_proposal(**settings: Any) -> Callable:
    def build(system, density, beta, rng):
        observed = system.model.rvs_to_values[system.model["y"]].data
        return given_tau(
            observed.mean(axis=0),
            np.full(observed.shape[1], float(len(observed))),
            **settings,
        )(system, density, beta, rng)

    return build


def intercepts_proposal(groups: int, rows: int, centered: bool = True) -> Callable:
    def build(system, density, beta, rng):
        y = system.model.rvs_to_values[system.model["y"]].data
        # The data as the docstring tells of them, drawn anew.
        x = np.random.default_rng(0).normal(size=rows)
        ends = np.cumsum(np.linspace(1.0, 3.0, groups))
        member = (np.arange(rows) + 0.5)[:, None] / rows > ends[:-1] / ends[-1]
        g = member.sum(axis=1)
        design = np.column_stack([np.ones(rows), x, np.eye(groups)[g]])

        def law_given(s):
            flat, tau = np.full((len(s), 2), 2.5), np.exp(s[:, 1:]) * np.ones(groups)
            unit = np.column_stack([np.ones_like(flat), np.ones_like(tau) if centered else tau])
            return np.column_stack([flat, tau]), np.exp(s[:, 0]), unit

        return given_scales(2, design, y, law_given)(system, density, beta, rng)

    return build


def intercepts_case(groups: int, rows: int, centered: bool) -> "Case":
    settings = (groups, rows, centered)
    return Case(partial(ts.varying_intercepts, *settings), intercepts_proposal(*settings))


FUNNEL_POINTS = given_scales(
    1, np.eye(9), np.linspace(0.0, 1.0, 9), lambda s: (np.exp(0.5 * s) * np.ones(9), 1.0, 1.0)
)
MIXTURE_POINTS = given_scales(
    6, np.eye(6), ts.local_scales.SCALE_MIXTURE_Y, lambda s: (np.exp(s), 1.0, 1.0), 40_000
)


@dataclass(frozen=True)
class Case:
    """A system, the points to integrate it on, and the betas where these points serve."""

    make: Callable[[], ts.TestSystem]
    points: Callable
    betas: tuple[float, ...] = (0.07, 1.0)
    tolerance: float = 1e-6


MIXTURE_3 = {
    "dim": 3,
    "weights": (0.2, 0.5, 0.3),
    "scale": (0.5, 0.3, 1.0),
    "separation": 4.0,
}
ASYMMETRIC_SHELLS = {"radii": (1.5, 2.2), "widths": (0.1, 0.2)}
SCHOOLS = (ts.hierarchical.EIGHT_SCHOOLS_EFFECT, ts.hierarchical.EIGHT_SCHOOLS_ERROR**-2.0)

CASES = {
    "gaussian": Case(ts.gaussian, lattice(-12.0, 14.0, 500)),
    "gaussian_posterior": Case(ts.gaussian_posterior, independent()),
    "conjugate_regression": Case(ts.conjugate_regression, adapted()),
    "normal_inverse_gamma": Case(small_regression, adapted()),
    "beta_binomial": Case(ts.beta_binomial, lattice(-30.0, 30.0, 2001)),
    "unidentifiable_binomial": Case(
        partial(ts.unidentifiable_binomial, 40, 9), lattice(-30.0, 30.0, 501)
    ),
    "mixture_2": Case(partial(ts.gaussian_mixture, 2, prior_sd=2.0), lattice(-18.0, 18.0, 361)),
    "mixture_3": Case(
        partial(ts.gaussian_mixture, **MIXTURE_3), tempered_components((0.5, 0.3, 1.0), 5.0)
    ),
    "mixture_10": Case(ts.gaussian_mixture, tempered_components((0.5, 0.5), 5.0)),
    "spike": Case(ts.spike, tempered_components((1.0, 0.05), 3.0), (0.07, 0.5, 0.85, 1.0)),
    "twenty_modes": Case(ts.twenty_modes, square(50, 6)),
    "shells_2": Case(partial(ts.gaussian_shells, 2, **ASYMMETRIC_SHELLS), square(50, 6)),
    "shells_10": Case(
        partial(ts.gaussian_shells, 10), on_shells((2.0, 2.0), (0.1, 0.1)), (0.5, 1.0)
    ),
    "hierarchical_normal": Case(
        ts.hierarchical_normal,
        group_proposal(prior_mean=1.0, prior_sd=5.0, centered=True),
    ),
    "eight_schools": Case(
        ts.eight_schools,
        given_tau(*SCHOOLS, 0.0, 5.0, centered=False),
    ),
    **{
        f"intercepts_{groups}{'' if centered else '_raw'}": intercepts_case(groups, rows, centered)
        for groups, rows in ((3, 50), (5, 50), (20, 100))
        for centered in (True, False)
    },
    "funnel": Case(ts.funnel, FUNNEL_POINTS),
    "scale_mixture": Case(ts.scale_mixture, MIXTURE_POINTS),
    # Narrow priors: FAST_COMPILE leaves log(1 - p) as it is, -inf for logits above 37.
    "logistic_2": Case(
        partial(ts.logistic_regression, 2, prior_sd=1.0), lattice(-9.0, 9.0, 181), tolerance=1e-5
    ),
    "logistic_4": Case(partial(ts.logistic_regression, prior_sd=1.5), adapted()),
}


@cache
def built(name: str) -> tuple[ts.TestSystem, Density]:
    system = CASES[name].make()
    return system, Density(system.model)


def check(system, density, beta, points, tolerance):
    """Raise AssertionError unless log Z, its derivative, moments and cdf all agree."""
    z, log_weight, n = points
    log_prior, log_likelihood, values = density(z)
    terms = log_prior + beta * log_likelihood + log_weight
    log_z = logsumexp(terms)
    w = np.exp(terms - log_z)
    columns, exact = [], []

    def expect(values, expected):
        columns.append(values.reshape(len(w), -1))
        exact.append(np.ravel(expected))

    for name, (mean, variance) in system.moments(beta).items():
        assert mean.shape == variance.shape == values[name].shape[1:]
        expect(values[name], mean)
        expect((values[name] - mean) ** 2, variance)
    if (cdf := system.cdf(beta)) is not None:
        # Under pi_beta this is uniform.
        uniform = cdf(system.statistic(values))
        expect(np.column_stack([uniform, uniform**2, uniform**5]), [1 / 2, 1 / 3, 1 / 6])
    if beta < 1.0:
        lower, upper = system.log_z([beta - 1e-4, beta + 1e-4])
        # d log Z / d beta is the mean log likelihood.
        expect(log_likelihood, (upper - lower) / 2e-4)
    columns, exact = np.column_stack(columns), np.concatenate(exact)
    if n is None:
        np.testing.assert_allclose(log_z, system.log_z(beta), atol=tolerance)
        np.testing.assert_allclose(w @ columns, exact, rtol=20 * tolerance, atol=30 * tolerance)
        return
    mcse = np.sqrt(np.sum((w - 1.0 / n) ** 2))
    assert mcse < 0.02
    assert abs(log_z - system.log_z(beta)) < 4.5 * mcse + tolerance
    error = np.sqrt(w**2 @ (columns - exact) ** 2)
    np.testing.assert_array_less(np.abs(w @ (columns - exact)), 4.5 * error + tolerance)


@pytest.mark.slow("compiles models of its own", every=17)
@pytest.mark.parametrize(
    ("name", "beta"), [(name, beta) for name, case in CASES.items() for beta in case.betas]
)
def test_agrees_with_the_density_that_pymc_compiles(name, beta):
    system, density = built(name)
    case = CASES[name]
    points = case.points(system, density, beta, np.random.default_rng(SEED))
    check(system, density, beta, points, case.tolerance)


@pytest.mark.slow("compiles models of its own", every=4)
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_forward_draws_at_small_beta(name):
    system, density = built(name)
    log_likelihood = density.from_prior(1_000, SEED)
    beta = min(1.0, 0.4 / log_likelihood.std())
    log_mean = logsumexp(beta * log_likelihood) - np.log(log_likelihood.size)
    ratio = np.exp(beta * log_likelihood - log_mean)
    mcse = ratio.std() / np.sqrt(ratio.size)
    assert mcse < 0.03
    assert abs(log_mean - system.log_z(beta)) < 4.5 * mcse


@pytest.mark.slow("compiles models of its own", every=8)
@pytest.mark.parametrize("name", CASES)
def test_path_starts_at_a_normalized_prior(name):
    system, _ = built(name)
    assert abs(system.log_z(0.0)) < 1e-7
    assert system.dim == sum(np.size(v) for v in system.model.initial_point().values())
    assert not system.model.discrete_value_vars
    assert system.log_evidence == system.log_z(1.0)
    values = system.log_z([[0.3], [0.6]])
    assert values.shape == (2, 1)
    assert values[1, 0] == system.log_z(0.6)


@pytest.mark.parametrize("name", ["gaussian", "mixture_10"])
@pytest.mark.parametrize("bug", ["beta off by a rung", "log z off by 0.1", "mean of wrong sign"])
def test_check_finds_planted_bugs(name, bug):
    system, density = built(name)
    points = CASES[name].points(system, density, 0.5, np.random.default_rng(SEED))
    moments = system.moments(0.5)["x"]
    wrong = {
        "beta off by a rung": {"exact_moments": lambda _: system.moments(0.55)},
        "log z off by 0.1": {"exact_log_z": lambda beta: system.log_z(beta) + 0.1},
        "mean of wrong sign": {"exact_moments": lambda _: {"x": (-moments[0], moments[1])}},
    }
    with pytest.raises(AssertionError):
        check(replace(system, **wrong[bug]), density, 0.5, points, CASES[name].tolerance)


@pytest.mark.parametrize(
    ("make", "published", "tolerance"),
    [
        # Friel & Wyse (2012).
        (partial(pine_regression, 1), -310.12829, 1e-5),
        (partial(pine_regression, 2), -301.70460, 1e-5),
        # Feroz, Hobson & Bridges (2009).
        (partial(ts.gaussian_shells, 2), -1.75, 0.005),
        (partial(ts.gaussian_shells, 5), -5.67, 0.005),
        (partial(ts.gaussian_shells, 10), -14.59, 0.005),
        (partial(ts.gaussian_shells, 20), -36.09, 0.005),
        (partial(ts.gaussian_shells, 30), -60.13, 0.005),
        (partial(ts.beta_binomial, 10, 3, 1.0, 1.0), -np.log(11.0), 1e-10),
    ],
)
def test_published_evidence(make, published, tolerance):
    assert make().log_evidence == pytest.approx(published, abs=tolerance)


def test_twenty_means_are_those_of_the_paper():
    # Kou, Zhou & Wong (2006): true first and second moments, without the box.
    means = TWENTY_MEANS
    np.testing.assert_allclose(means.mean(axis=0), [4.478, 4.905], atol=5e-4)
    np.testing.assert_allclose((means**2).mean(axis=0) + 0.01, [25.605, 33.920], atol=5e-4)


@pytest.mark.parametrize("name", ["mixture_2", "mixture_3", "mixture_10", "spike"])
def test_mixture_evidence_in_closed_form(name):
    # At beta = 1 the share of mode i is v_i N_i / Z, with sum v_i = 1: 1 / Z = sum share_i / N_i.
    system, _ = built(name)
    center = system.model.initial_point()["x"]
    prior_sd, scales = {
        "mixture_2": (2.0, 0.5),
        "mixture_3": (5.0, np.array([0.5, 0.3, 1.0])),
        "mixture_10": (5.0, 0.5),
        "spike": (3.0, np.array([1.0, 0.05])),
    }[name]
    variance = prior_sd**2 + scales**2 * np.ones(system.n_modes)
    offset = np.linalg.norm(system.mode_centers - center, axis=1) * variance / prior_sd**2
    log_n = -0.5 * system.dim * np.log(2 * np.pi * variance) - 0.5 * offset**2 / variance
    expected = -logsumexp(np.log(system.mode_weights()) - log_n)
    assert system.log_evidence == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("name", ["mixture_2", "mixture_10", "spike", "twenty_modes", "shells_2"])
def test_mode_weights_are_the_shares_of_the_nearest_centers(name):
    system, density = built(name)
    points = CASES[name].points(system, density, 1.0, np.random.default_rng(SEED))
    z, log_weight, n = points
    log_prior, log_likelihood, values = density(z)
    terms = log_prior + log_likelihood + log_weight
    w = np.exp(terms - logsumexp(terms))
    distance = [((values["x"] - c) ** 2).sum(axis=1) for c in system.mode_centers]
    nearest = np.argmin(distance, axis=0)
    shares = np.bincount(nearest, weights=w, minlength=system.n_modes)
    assert system.mode_weights().sum() == pytest.approx(1.0)
    # Modes 9 and 10 of the twenty overlap, and the broad component reaches toward the spike.
    loose = {"twenty_modes": 3e-3, "spike": 0.02}.get(name, 1e-4 if n is None else 0.015)
    np.testing.assert_allclose(shares, system.mode_weights(), atol=loose)


def test_cdf_of_a_grid_matches_a_normal():
    # One mixture component is a Gaussian path: the quadrature against a closed form.
    system = ts.gaussian_mixture(5, weights=(1.0,), positions=(2.0,), scale=0.3, prior_sd=1.5)
    precision = 1.5**-2 + 0.25 * 0.3**-2
    mean = 0.25 * 0.3**-2 * 2.0 / precision
    levels = np.linspace(0.001, 0.999, 199)
    quantiles = mean + ndtri(levels) / np.sqrt(precision)
    np.testing.assert_allclose(system.cdf(0.25)(quantiles), levels, atol=3e-5)
    assert system.cdf(0.25)(np.array([-1e6, 1e6])) == pytest.approx([0.0, 1.0])


def test_no_moments_where_they_diverge():
    assert ts.eight_schools().moments(0.0)["tau"] == (np.inf, np.inf)
    vague = ts.normal_inverse_gamma_regression(np.ones((3, 1)), [1.0, 2.0, 4.0], prior_shape=1.0)
    mean, variance = vague.moments(0.0)["coef"]
    assert mean == pytest.approx([0.0])
    assert variance == pytest.approx([np.inf])


@pytest.mark.parametrize(
    "make",
    [
        lambda: ts.beta_binomial(5, 6),
        lambda: ts.unidentifiable_binomial(5, -1),
        lambda: ts.gaussian(dim=3, sigma=[1.0, 2.0]),
        lambda: ts.gaussian_mixture(2, weights=(0.5, -0.5, 1.0)),
        lambda: ts.gaussian_mixture(2, positions=(1.0,)),
        lambda: ts.spike(share=1.0),
        lambda: ts.twenty_modes(weights=[1.0, 2.0]),
        lambda: ts.gaussian_shells(1),
        lambda: ts.eight_schools([1.0, 2.0], [1.0, 1.0]),
        lambda: ts.logistic_regression(dim=5),
        lambda: ts.varying_intercepts(groups=1),
        lambda: ts.varying_intercepts(groups=20, rows=15),
        lambda: ts.funnel(1),
        lambda: ts.funnel(v_sd=0.0),
        lambda: ts.scale_mixture([]),
        lambda: ts.scale_mixture([1.0, np.inf]),
        lambda: ts.scale_mixture(nu=2.0),
        lambda: ts.normal_inverse_gamma_regression(np.ones((3, 1)), [1.0, 2.0]),
        lambda: ts.normal_inverse_gamma_regression(np.ones((2, 1)), [1.0, np.nan]),
        lambda: ts.normal_inverse_gamma_regression(np.ones((2, 1)), [1.0, 2.0], prior_rate=0.0),
        lambda: ts.beta_binomial().log_z(1.5),
        lambda: ts.beta_binomial().moments(np.nan),
        lambda: ts.beta_binomial().cdf(-0.1),
    ],
)
def test_bad_settings_are_refused(make):
    with pytest.raises(ValueError, match=r".+"):
        make()


SCALED = {
    "regression": (scaled_regression(dim=2, n=6), stats.norm, 2.0, (12.0, 12.0)),
    "t test": (jzs_t_test(), stats.cauchy, 2.0**-0.5, (6.0, 4.0)),
}


@pytest.mark.parametrize("factor", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("name", SCALED)
def test_log_z_of_scaled_priors_is_that_of_the_model(name, factor):
    """A lattice over the density that PyMC compiles, times the ratio of the priors."""
    system, law, scale, reach = SCALED[name]
    axes = [np.linspace(-end, end, 801) for end in reach]
    x = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    log_prior, log_likelihood, values = Density(system.model)(x)
    scaled = values[system.variable].reshape(len(x), -1)
    change = law.logpdf(scaled, 0.0, factor * scale) - law.logpdf(scaled, 0.0, scale)
    total = logsumexp(log_prior + log_likelihood + change.sum(axis=1))
    step = np.log([axis[1] - axis[0] for axis in axes]).sum()
    assert system.log_z(factor) == pytest.approx(float(total + step), abs=1e-6)
