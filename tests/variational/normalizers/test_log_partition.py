"""log C(T) against closed forms and quadrature, its stated error, and infinite averages refused."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import integrate
from scipy.special import gammaln

import pymc_tempering as pmt
from pymc_tempering.core.weighting import log_mean, log_mean_error
from pymc_tempering.variational import check_temperatures, local_log_normalizer
from pymc_tempering.variational.normalizers import log_partition as partition
from pymc_tempering.variational.normalizers.averages import grows
from pymc_tempering.variational.normalizers.log_partition import nodes_of_temperature

T = np.array([1.0, 1.5, 3.0, 10.0])
N = 100


def normal_part(n):
    """What N normals of scale 1 give, for n data."""
    return 0.5 * n * ((1 - 1 / T) * np.log(2 * np.pi) + np.log(T))


def half_normal_part(n, scale):
    """Log of E[sigma^(n (1 - 1 / T))] under a half normal."""
    a = n * (1 - 1 / T)
    moment = 0.5 * a * np.log(2) + gammaln((a + 1) / 2) - 0.5 * np.log(np.pi)
    return a * np.log(scale) + moment


def gaussian(scale=None, n=N, observed=None, **kwargs):
    """Normal data with free mean, and the scale that a prior gives or 2."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 10.0)
        sigma = pm.HalfNormal("sigma", scale) if scale else 2.0
        pm.Normal("y", mu, sigma, observed=np.zeros(n) if observed is None else observed, **kwargs)
    return model


def test_a_fixed_scale_is_exact():
    result = pmt.variational.log_partition(gaussian(), T)
    np.testing.assert_allclose(result.log_c, normal_part(N) + N * (1 - 1 / T) * np.log(2.0))
    assert result.method == ("exact",) * 4
    assert not result.mcse.any()


def test_mixture_of_an_observed_assignment_is_that_of_the_paper():
    """Appendix C of Mandt et al. with the whole density tempered, against all 2^3 assignments."""
    share, n = 0.3, 3
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 0.35)
        z = pm.Bernoulli("z", share, observed=np.zeros(n, int))
        pm.Normal("x", mu * z, 0.1, observed=np.zeros(n))
    log_z = n * np.logaddexp(np.log(share) / T, np.log(1 - share) / T)
    expected = log_z + normal_part(n) + n * (1 - 1 / T) * np.log(0.1)
    np.testing.assert_allclose(pmt.variational.log_partition(model, T).log_c, expected, atol=1e-6)


@pytest.mark.slow("compiles models of its own")
def test_bernoulli_with_a_uniform_prior():
    with pm.Model() as model:
        p = pm.Uniform("p", 0.0, 1.0)
        pm.Bernoulli("y", p, observed=np.zeros(1000, int))
    result = pmt.variational.log_partition(model, T)
    assert result.method == ("exact", "quadrature", "quadrature", "quadrature")
    for temperature, value in zip(T, result.log_c, strict=True):

        def log_c(q, temperature=temperature):
            return 1000 * np.logaddexp(np.log(q) / temperature, np.log1p(-q) / temperature)

        top = log_c(0.5)
        inside = integrate.quad(
            lambda q, log_c=log_c, top=top: np.exp(log_c(q) - top), 0, 1, points=[0.4, 0.5, 0.6]
        )[0]
        assert value == pytest.approx(top + np.log(inside), abs=1e-7)


@pytest.mark.slow("compiles models of its own")
def test_a_free_scale_where_an_average_over_draws_is_nonsense():
    expected = normal_part(N) + half_normal_part(N, 1.5)
    result = pmt.variational.log_partition(gaussian(1.5), T)
    np.testing.assert_allclose(result.log_c, expected, atol=1e-6)
    draws = np.abs(np.random.default_rng(1).normal(0.0, 1.5, 100_000))
    plain = np.log(np.mean(draws ** (N * 0.9)))
    assert plain < half_normal_part(N, 1.5)[-1] - 5  # that test would catch it


def test_minibatches_count_all_data():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(2, 300))
    batch_x, batch_y = pm.Minibatch(x, y, batch_size=20)

    def model(x, y, **kwargs):
        with pm.Model() as result:
            sigma = pm.HalfNormal("sigma")
            pm.Normal("y", 0.0, sigma * pt.exp(x), observed=y, **kwargs)
        return result

    whole = normal_part(300) + half_normal_part(300, 1.0) + (1 - 1 / T) * x.sum()
    result = pmt.variational.log_partition(model(batch_x, batch_y, total_size=300), T)
    np.testing.assert_allclose(result.log_c, whole, atol=1e-5)


@pytest.mark.slow("repeats")
def test_annealed_averages_are_right_within_their_error():
    groups = np.repeat([0, 1], [50, 5])
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1.5, shape=2)
        pm.Normal("y", 0.0, sigma[groups], observed=np.zeros(55))
    expected = sum(normal_part(n) + half_normal_part(n, 1.5) for n in (50, 5))
    z = []
    for seed in range(3):
        result = pmt.variational.log_partition(model, T, draws=1600, random_seed=seed)
        assert result.method[-1] == "annealed"
        assert result.log_c[0] == result.mcse[0] == 0.0
        assert (result.mcse[1:] < 0.2).all()
        z.append((result.log_c - expected)[1:] / result.mcse[1:])
    # Student's t with 15 degrees of freedom, 9 of them: above 5 in 1e-3 of the cases
    assert np.abs(z).max() < 5
    # planted: the prior average of one group in place of both
    wrong = normal_part(50) + half_normal_part(50, 1.5)
    assert np.abs((result.log_c - wrong)[1:] / result.mcse[1:]).min() > 5


def test_error_of_the_mean_of_groups():
    """Sd of z-scores over 500 repeats, 16 lognormal estimates each: 1.07 by Student's t."""
    rng = np.random.default_rng(3)
    log_z = rng.normal(-0.02, 0.2, size=(500, 16))
    values = np.array([(log_mean(row), log_mean_error(row)) for row in log_z])
    assert 0.95 < (values[:, 0] / values[:, 1]).std() < 1.2


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("prior", ["HalfCauchy", "InverseGamma"])
def test_infinite_averages_are_refused(prior):
    with pm.Model() as model:
        sigma = (
            pm.HalfCauchy("sigma", 1.0)
            if prior == "HalfCauchy"
            else pm.InverseGamma("sigma", 3.0, 1.0)
        )
        pm.Normal("y", 0.0, sigma, observed=np.zeros(N))
    # sigma^(100 (1 - 1 / T)) has a mean below 1 / T = 1 - 1 / 100 (HalfCauchy) and 1 - 3 / 100
    finite = 1.005 if prior == "HalfCauchy" else 1.02
    assert np.isfinite(pmt.variational.log_partition(model, [finite]).log_c).all()
    with pytest.raises(
        pmt.exceptions.NormalizerError, match=rf"large 'sigma'.*up to T = {finite}.*annealed"
    ):
        pmt.variational.log_partition(model, [finite, 1.05, 2.0])


@pytest.mark.slow("compiles models of its own")
def test_an_infinite_average_along_several_variables_is_refused():
    with pm.Model() as model:
        tau = pm.HalfCauchy("tau", 1.0)
        sigma = pm.HalfNormal("sigma", tau, shape=3)
        pm.Normal("y", 0.0, sigma, observed=np.zeros((20, 3)))
    with pytest.raises(pmt.exceptions.NormalizerError, match="large 'tau' and large 'sigma'"):
        pmt.variational.log_partition(model, [2.0])


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("power", [2, 3])
def test_an_infinite_average_where_scales_grow_at_different_rates_is_refused(power):
    """At T = 2, C has E sigma ~ E tau^power: infinite, though along sigma = tau it falls."""
    with pm.Model() as model:
        tau = pm.HalfCauchy("tau", 1.0)
        sigma = pm.HalfNormal("sigma", tau**power)
        pm.Normal("y", 0.0, sigma, observed=np.zeros(2))
    with pytest.raises(pmt.exceptions.NormalizerError, match="large 'tau' and large 'sigma'"):
        pmt.variational.log_partition(model, [2.0])


def test_falls_of_the_integrand():
    r = 2.0 ** np.arange(12)
    assert not grows(-1.1 * np.log(r), r, 1)
    assert grows(-0.9 * np.log(r), r, 1)
    assert grows(-1.9 * np.log(r), r, 2)
    assert not grows(-0.01 * r, r, 3)
    assert not grows(np.where(r < 40, -(r**2), -np.inf), r, 1)
    assert grows(np.where(r < 300, 0.1 * r, -np.inf), r, 1)  # an overflow far out
    assert not grows(np.where(r < 8, r, np.nan), r, 1)  # not known


@pytest.mark.slow("compiles models of its own")
def test_heavy_tails_of_the_likelihood_name_the_largest_temperature():
    with pm.Model() as fixed:
        pm.StudentT("y", nu=3.0, mu=pm.Normal("mu"), sigma=1.0, observed=np.zeros(4))
    assert np.isfinite(pmt.variational.log_partition(fixed, [3.9]).log_c).all()
    with pytest.raises(
        pmt.exceptions.NormalizerError, match=r"'y' is infinite at T = 5.*below 4 work"
    ):
        pmt.variational.log_partition(fixed, [2.0, 5.0])
    with pm.Model() as free:
        nu = pm.Gamma("nu", 2.0, 0.1)
        pm.StudentT("y", nu=nu, mu=0.0, sigma=1.0, observed=np.zeros(4))
    with pytest.raises(pmt.exceptions.NormalizerError, match="prior draws, so C"):
        pmt.variational.log_partition(free, [3.0])


def test_bad_input_is_refused():
    model = gaussian()
    for bad, words in (
        ([0.5, 1.0], "at least 1; 0.5 is not"),
        ([1.0, 3.0, 2.0], "3 is followed by 2"),
        ([1.0, np.nan], "finite"),
        ([], "one or more"),
    ):
        with pytest.raises(ValueError, match=words):
            pmt.variational.log_partition(model, bad)
    with pytest.raises(ValueError, match="draws must be at least 160"):
        pmt.variational.log_partition(model, T, draws=10)
    np.testing.assert_array_equal(check_temperatures([1, 2]), [1.0, 2.0])
    with gaussian() as with_potential:
        pm.Potential("pull", with_potential["mu"] ** 2)
    with pytest.raises(pmt.exceptions.NormalizerError, match=r"potential 'pull'.*annealed"):
        pmt.variational.log_partition(with_potential, T)
    with pm.Model() as empty:
        pm.Normal("mu")
    with pytest.raises(pmt.exceptions.ModelError, match="no observed data"):
        pmt.variational.log_partition(empty, T)
    with pm.Model() as chained:
        first = pm.HalfNormal("first", 1.0, observed=1.0)
        pm.Normal("second", 0.0, first, observed=0.0)
    with pytest.raises(pmt.exceptions.NormalizerError, match="'second' depends on observed data"):
        pmt.variational.log_partition(chained, T)
    with pm.Model() as discrete:
        k = pm.Poisson("k", 3.0)
        pm.Normal("y", 0.0, 1.0 + k, observed=0.0)
    with pytest.raises(pmt.exceptions.DiscreteVariableError, match="k"):
        pmt.variational.log_partition(discrete, T)


def test_the_local_form_is_the_sum_over_data_scaled_by_total_size():
    data = pm.Minibatch(np.zeros(300), batch_size=20)
    model = gaussian(1.0, observed=data, total_size=300)
    graph = model.replace_rvs_by_values([local_log_normalizer(model, 3.0)])[0]
    value = pm.compile(model.value_vars, graph, mode="FAST_COMPILE", on_unused_input="ignore")
    point = {v.name: np.array(0.4) for v in model.value_vars}
    expected = normal_part(300)[2] + 300 * (1 - 1 / 3) * 0.4  # the value is log sigma
    assert float(value(*point.values())) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("n", [1, 30, 1000])
@pytest.mark.parametrize("largest", [2.0, 10.0, 1000.0])
def test_fine_grids_are_interpolated_closely(n, largest):
    """A Bernoulli under a uniform prior and a Normal under a half-normal scale bend near T = 1."""
    grid = np.geomspace(1.0, largest, 100)[1:]

    def log_c(temperatures):
        a = n * (1 - 1 / temperatures)
        half = 0.5 * a * np.log(2) + gammaln((a + 1) / 2) - 0.5 * np.log(np.pi)
        return half + 0.5 * n * np.log(temperatures) - np.log1p(n * np.log(temperatures))

    nodes, matrix = nodes_of_temperature(grid)
    assert len(nodes) == 21
    assert nodes[-1] == grid[-1]
    np.testing.assert_allclose(matrix @ log_c(nodes), log_c(grid), atol=2e-3)
    # few temperatures are computed themselves
    few, same = nodes_of_temperature(grid[:5])
    np.testing.assert_array_equal(same @ few, grid[:5])
    # planted: nodes in log T alone miss the bend
    if n == 1000:
        place = 0.5 * (1.0 - np.cos(np.pi * np.arange(22) / 21))
        even = largest**place
        through = np.polynomial.Chebyshev.fit(np.log(even), np.r_[0.0, log_c(even[1:])], 21)
        assert np.abs(through(np.log(grid)) - log_c(grid)).max() > 2e-3


@pytest.mark.slow("compiles models of its own")
def test_what_takes_long_is_told_beforehand_or_refused(monkeypatch, caplog):
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1.5, shape=2)
        pm.Normal("y", 0.0, sigma[np.repeat([0, 1], 5)], observed=np.zeros(10))
    real = pmt.variational.log_partition(model, [2.0], draws=640, random_seed=1)
    assert (
        pmt.variational.log_partition(model, [2.0], draws=640, random_seed=1) is real
    )  # remembered
    assert pmt.variational.log_partition(model, [2.0], draws=640, random_seed=2) is not real
    assert not caplog.records
    with pytest.raises(
        pmt.exceptions.NormalizerError, match=r"'y'.* minutes of CPU time.*annealed"
    ):
        pmt.variational.log_partition(model, [2.0], max_time=1e-9)
    monkeypatch.setattr(partition, "AIM", 1e-9)
    monkeypatch.setattr(partition, "TOLD", 0.0)
    with caplog.at_level("INFO", logger="pymc.tempering"):
        few = pmt.variational.log_partition(model, [2.0], random_seed=3)
        same = pmt.variational.log_partition(model, [2.0], draws=320, random_seed=3)
    assert caplog.text.count("with 320 draws in place of 4000") == 1
    np.testing.assert_array_equal(few.log_c, same.log_c)
    assert few.ess[0] < 320
