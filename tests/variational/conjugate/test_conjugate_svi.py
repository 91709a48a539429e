"""SVI, annealed and tempered: laws of the ELBO, T = 1, q(T) exact, outliers, bad input."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats as sps
from support.conjugate_models import (
    CASES,
    PARTS,
    documents,
    factorial_data,
    gaussian_data,
    log_ratio_draws,
)

from pymc_tempering.exceptions import DataError, TemperatureError, TemperingWarning
from pymc_tempering.variational.conjugate import LDA, FactorialMixture, GaussianMixture, svi
from pymc_tempering.variational.conjugate.svi_fit import elbo

QUIET = pytest.mark.filterwarnings("ignore:the ELBO of:pymc_tempering.exceptions.TemperingWarning")
EXACT = {"tol": 0.0, "jitter": 0.0}
TEMPERED = ("variational_tempering", "local_variational_tempering")


def hot(progress):
    return 3.0


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_elbo_is_the_mean_of_log_p_less_log_q(name, temperature):
    # |z| < 4: false alarm 6e-5 for each of eight cases
    model, data = CASES[name]
    data, rng = model.check(data[:12]), np.random.default_rng(1)
    lam = model.initialize(data, rng)
    inv_temp = np.full(12, 1.0 / temperature)
    local = model.local_step(lam, data, inv_temp, model.start_local(data))
    stated = model.global_elbo(lam, data) + (inv_temp * local.log_joint + local.rest).sum()
    plain = data.toarray() if name == "lda" else data
    draws = log_ratio_draws(model, lam, plain, local.state, inv_temp, 800, rng)
    error = draws.std() / np.sqrt(draws.size)
    assert abs(draws.mean() - stated) < 4.0 * error
    assert error < 0.05 * abs(stated)


def largest_fall(history):
    """Largest fall of an ELBO in one iteration, relative to its size."""
    return float((-np.diff(history)).max() / np.abs(history).max())


def at_fixed_temperature(model, data, schedule):
    fit = svi(
        model,
        data,
        "annealed",
        schedule=schedule,
        iterations=31,
        anneal_passes=30.0,
        random_seed=3,
        tol=0.0,
        jitter=0.0,
    )
    return fit.elbo_history[:30]


@QUIET
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("schedule", [lambda _: 1.0, hot], ids=["1", "3"])
def test_elbo_never_falls_in_batches_at_a_fixed_temperature(name, schedule):
    model, data = CASES[name]
    assert largest_fall(at_fixed_temperature(model, data, schedule)) < 1e-9


def gain_beside_the_fit(model, data, factor):
    """Largest gain in ELBO (nats) at T = 3 from a little more or less of the data's statistics."""
    data, s = model.check(data), 1.0 / 3.0
    lam, state = model.initialize(data, np.random.default_rng(3)), model.start_local(data)
    inv_temp, prior = np.full(60, s), model.prior(data)
    for _ in range(150):
        local = model.local_step(lam, data, inv_temp, state)
        state, lam = local.state, tuple(0.0 * a + b for a, b in zip(lam, prior, strict=True))
        local.add_statistics(factor * inv_temp, lam)
    values = [
        elbo(
            model,
            tuple(a + step * (b - a) for a, b in zip(prior, lam, strict=True)),
            data,
            inv_temp=s,
            state=state,
        )
        for step in (0.98, 1.0, 1.02)
    ]
    return max(values[0], values[2]) - values[1]


@QUIET
@pytest.mark.parametrize("name", CASES)
def test_a_converged_annealed_fit_is_an_optimum_and_a_wrong_global_step_is_not(name):
    model, data = CASES[name]
    assert gain_beside_the_fit(model, data, 1.0) < 0.0
    assert gain_beside_the_fit(model, data, 3.0) > 0.01  # planted: the statistics not tempered


@QUIET
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("damping", [0.0, 0.9])
def test_tempered_elbo_never_falls(name, damping):
    model, data = CASES[name]
    fit = svi(model, data, iterations=40, damping=damping, random_seed=3, tol=0.0, jitter=0.0)
    assert largest_fall(fit.elbo_history[: fit.n_tempered]) < 1e-9
    assert largest_fall(fit.elbo_history[fit.n_tempered :]) < 1e-9


@QUIET
def test_damping_is_the_share_of_the_old_q_of_t():
    model, data = CASES["gaussian"]
    new, mixed = (
        svi(model, data, damping=d, iterations=1, untempered=0, random_seed=3) for d in (0.0, 0.7)
    )
    old, new = np.eye(100)[-1], new.temperature_weights[0]  # hot: all mass on the last temperature
    assert new[-1] < 0.5
    np.testing.assert_allclose(mixed.temperature_weights[0], 0.7 * old + 0.3 * new, atol=1e-14)


@QUIET
def test_hyperparameters_may_be_python_integers():
    pairs = [
        (LDA(2, alpha=1, eta=1, tol=1), LDA(2, alpha=1.0, eta=1.0, tol=1.0), documents()),
        *(
            (kind(2, sd=1, prior_sd=2), kind(2, sd=1.0, prior_sd=2.0), gaussian_data())
            for kind in (GaussianMixture, FactorialMixture)
        ),
    ]
    for whole, real, data in pairs:
        a, b = (svi(m, data, "vi", iterations=3, random_seed=0) for m in (whole, real))
        assert all((x == y).all() for x, y in zip(a.lam, b.lam, strict=True))


@QUIET
def test_locally_tempered_elbo_never_falls_where_the_normalizer_is_free_of_the_globals():
    model, data = CASES["factorial"]
    fit = svi(model, data, TEMPERED[1], iterations=40, random_seed=3, tol=0.0, jitter=0.0)
    assert largest_fall(fit.elbo_history[: fit.n_tempered]) < 1e-9


@QUIET
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("batch_size", [None, 16])
def test_temperature_one_is_plain_svi_to_the_last_bit(name, batch_size):
    model, data = CASES[name]
    settings = {"iterations": 12, "batch_size": batch_size, "random_seed": 5, "tol": 0.0}
    plain = svi(model, data, "vi", **settings)
    others = [
        svi(model, data, "annealed", hottest=1.0, **settings),
        *(svi(model, data, m, temperatures=[1.0], untempered=0, **settings) for m in TEMPERED),
    ]
    for other in others:
        assert all((a == b).all() for a, b in zip(plain.lam, other.lam, strict=True))
    warm = svi(model, data, "annealed", hottest=1.5, **settings)
    assert not all((a == b).all() for a, b in zip(plain.lam, warm.lam, strict=True))


@QUIET
@pytest.mark.parametrize("name", CASES)
def test_minibatch_steps_are_those_of_hoffman(name):
    """Two steps of lam = (1 - rho) lam + rho (alpha + N / B t), rho = (tau + t)^-kappa."""
    model, data = CASES[name]
    settings = {"batch_size": 20, "random_seed": 5, "tau": 2.0, "kappa": 0.8}
    fit = svi(model, data, "vi", iterations=2, **settings)
    rng, checked = np.random.default_rng(5), model.check(data)
    lam = model.initialize(checked, rng)
    order = rng.permutation(60)
    for t, rows in enumerate((order[:20], order[20:40]), 1):
        batch = checked[rows]
        local = model.local_step(lam, batch, np.ones(20), model.start_local(batch))
        total = tuple(np.zeros_like(a) for a in lam)
        local.add_statistics(np.ones(20), total)
        rho = (2.0 + t) ** -0.8
        lam = tuple(
            (1 - rho) * old + rho * (prior + 3.0 * new)
            for old, prior, new in zip(lam, model.prior(checked), total, strict=True)
        )
    for mine, plain in zip(fit.lam, lam, strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-12)


def exact_temperature_posterior(x, sd, temperatures):
    """q(T) of x ~ N(0, sd^2) with nothing unknown but T: normalizers by quadrature."""
    logits = []
    for t in temperatures:
        norm = integrate.quad(lambda v, t=t: sps.norm.pdf(v, 0.0, sd) ** (1.0 / t), -60, 60)[0]
        logits.append((sps.norm.logpdf(x, 0.0, sd) / t - np.log(norm)).sum())
    p = np.exp(np.array(logits) - max(logits))
    return p / p.sum()


@pytest.mark.parametrize("sd", [0.9, 0.6])
def test_temperature_posterior_is_exact_where_nothing_else_is_unknown(sd):
    x = np.random.default_rng(0).normal(size=(40, 1))
    model, grid = GaussianMixture(1, sd=sd, prior_sd=1e-7), np.geomspace(1.0, 5.0, 12)
    fit = svi(model, x, temperatures=grid, damping=0.0, iterations=20, random_seed=0)
    exact = exact_temperature_posterior(x, sd, grid)
    assert exact.max() < 0.9
    np.testing.assert_allclose(fit.temperature_weights[fit.n_tempered - 1], exact, atol=1e-5)


def test_paper_constant_of_the_gaussian_gives_a_wrong_temperature_posterior():
    """Planted: Appendix C leaves (2 pi s)^(D/2 (1 - 1/T)) out of C(T)."""
    x = np.random.default_rng(0).normal(size=(40, 1))
    model, grid = GaussianMixture(1, sd=0.9, prior_sd=1e-7), np.geomspace(1.0, 5.0, 12)
    wrong = 20.0 * np.log(grid)
    fit = svi(model, x, temperatures=grid, log_partition=wrong, damping=0.0, iterations=20)
    exact = exact_temperature_posterior(x, 0.9, grid)
    assert np.abs(fit.temperature_weights[fit.n_tempered - 1] - exact).max() > 0.1


@QUIET
def test_temperature_ends_at_one_on_well_specified_gaussian_data():
    # E[1/T] at the optimum is min(1, sd^2 / mean square) give or take the grid: its sd over data
    # sets is 0.03 below 1 at N = 2000, half of them at 1
    x = np.random.default_rng(1).normal(2.0, 1.0, size=(2000, 1))
    fit = svi(GaussianMixture(1, sd=1.0, prior_sd=5.0), x, damping=0.8, random_seed=1)
    assert fit.inverse_temperature[0] < 0.5
    assert fit.inverse_temperature[fit.n_tempered - 1] > 0.9
    misfit = svi(GaussianMixture(1, sd=0.7, prior_sd=5.0), x, damping=0.8, random_seed=1)
    assert misfit.inverse_temperature[misfit.n_tempered - 1] == pytest.approx(0.49, abs=0.05)
    assert misfit.inverse_temperature[-1] == 1.0


@QUIET
@pytest.mark.parametrize("name", ["gaussian", "factorial", "lda"])
def test_planted_outliers_get_the_high_temperatures(name):
    model, data = CASES[name]
    rng = np.random.default_rng(2)
    if name == "lda":
        model, data = LDA(2, alpha=0.5), documents(80, length=60)
        strange = rng.multinomial(
            60, np.r_[np.zeros(10), np.ones(5), np.zeros(10), np.ones(5)] / 10, 4
        )
    else:
        strange = rng.uniform(6.0, 8.0, size=(4, data.shape[1])) * [[1], [-1], [1], [-1]]
    fit = svi(model, np.concatenate([data, strange]), TEMPERED[1], iterations=60, random_seed=4)
    inv_temp = fit.local_inverse_temperature
    assert inv_temp[-4:].max() < inv_temp[:-4].min()
    assert fit.inverse_temperature[-1] == 1.0


def test_tempering_finds_the_parts_where_plain_vi_does_not():
    # Seeds fixed; a regression test, not a law
    data = factorial_data(400, sd=0.2)
    model = FactorialMixture(3, sd=0.2, prior_sd=0.6, probability=0.4)

    def share_right(method):
        right = 0
        for seed in range(5):
            fit = svi(model, data, method, iterations=200, tol=1e-5, random_seed=seed)
            mean = fit.posterior["mean"].values
            distance = np.linalg.norm(mean[:, None] - PARTS, axis=2)
            right += bool((distance.min(axis=0) < 0.2).all())
        return right

    assert share_right("variational_tempering") >= 4
    assert share_right("vi") <= 3


@pytest.mark.parametrize(
    ("temperatures", "words"),
    [
        ([0.5, 1.0], "at least 1; 0.5 is not"),
        ([2.0, 3.0], "put 1 in front"),
        ([1.0, 3.0, 2.0], "3 is followed by 2"),
        ([1.0, 1.0], "1 is followed by 1"),
        ([1.0, np.nan], "finite"),
        ([], "shape"),
    ],
)
@pytest.mark.parametrize("method", TEMPERED)
def test_bad_temperatures_are_refused(method, temperatures, words):
    with pytest.raises(TemperatureError, match=words):
        svi(*CASES["gaussian"], method, temperatures=temperatures)


NOT_FINITE = tuple(
    np.full(part.shape, np.nan)
    for part in CASES["gaussian"][0].initialize(CASES["gaussian"][1], np.random.default_rng(0))
)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "advi"}, "method must be one of"),
        ({"method": "annealed", "anneal_passes": 600.0}, "ends at T = 1"),
        ({"method": "annealed", "hottest": 0.5}, "hottest"),
        ({"method": "annealed", "schedule": "cubic"}, "schedule"),
        ({"method": "annealed", "schedule": lambda p: 0.5}, "returned 0.5"),
        ({"method": "vi", "temperatures": [1.0, 2.0]}, "are for the methods"),
        ({"iterations": 0}, "iterations"),
        ({"batch_size": 61}, "60 data points"),
        ({"jitter": 1.0}, "jitter"),
        ({"kappa": 0.4}, "kappa"),
        ({"tau": -1.0}, "tau must not be negative, got -1.0"),
        ({"tol": -1.0}, "tol must not be negative, got -1.0"),
        ({"damping": 1.0}, "share of the old q.*not 1.0"),
        ({"damping": -0.1}, "share of the old q.*not -0.1"),
        ({"callback": 3}, "callback must be callable, not 3"),
        ({"initial": (np.ones((2, 3)),)}, "needs"),
        ({"initial": NOT_FINITE}, "holds a value that is not finite"),
        ({"log_partition": [0.0]}, "needs one value for each"),
        ({"temperatures": [1.0, 2.0], "log_partition": [0.0, np.inf]}, "not finite at T = 2"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        svi(*CASES["gaussian"], **options)


def test_bad_data_are_refused():
    for data, words in [
        (np.ones(5), "x\\[:, None\\]"),
        (np.array([[1.0], [np.nan]]), "data\\[1, 0\\] is nan"),
        (np.empty((0, 2)), "shape"),
    ]:
        with pytest.raises(DataError, match=words):
            svi(CASES["gaussian"][0], data)


@pytest.mark.filterwarnings("ignore:overflow|invalid value:RuntimeWarning")
def test_an_infinite_elbo_stops_the_fit():
    for name in ("gaussian", "factorial"):
        model, data = CASES[name]
        with pytest.raises(DataError, match="in iteration 0"):
            svi(model, 1e200 * data, random_seed=0)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: GaussianMixture(0, sd=1.0, prior_sd=1.0),
        lambda: GaussianMixture(2, sd=-1.0, prior_sd=1.0),
        lambda: GaussianMixture(2, sd=1.0, prior_sd=1.0, prior_mean=np.nan),
        lambda: FactorialMixture(2, sd=1.0, prior_sd=1.0, probability=1.0),
        lambda: FactorialMixture(2, sd=1.0, prior_sd=1.0, covariance="diagonal"),
        lambda: LDA(2, alpha=0.0),
        lambda: LDA(1.5),
    ],
)
def test_bad_hyperparameters_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        wrong()


def test_an_unfinished_fit_warns():
    with pytest.warns(TemperingWarning, match="had not converged after 2 iterations"):
        svi(*CASES["factorial"], "vi", iterations=2, random_seed=0)


@QUIET
@pytest.mark.parametrize("name", CASES)
def test_datatree_names_its_dimensions(name, tmp_path):
    model, data = CASES[name]
    fit = svi(model, data, TEMPERED[1], iterations=6, random_seed=0)
    tree = fit.to_datatree()
    tree.to_netcdf(tmp_path / "fit.nc")
    assert tree["history"].sizes["iteration"] == 7
    assert tree["data_temperature"].sizes["datum"] == 60
    assert tree["variational"].attrs["elbo"] == fit.elbo
    per = "topic" if name == "lda" else "component"
    assert tree["tempered"].sizes[per] == model.describe(fit.lam).sizes[per]
    assert not any("dim_" in str(dim) for dim in tree["variational"].dims)
    np.testing.assert_allclose(
        tree["history"]["temperature_weight"][:6].sum("temperature"), 1.0, rtol=1e-9
    )


def test_initial_parameters_are_not_changed():
    model, data = CASES["gaussian"]
    first = model.initialize(model.check(data), np.random.default_rng(0))
    before = tuple(a.copy() for a in first)
    fit = svi(replace(model), gaussian_data(), "vi", initial=first)
    assert all((a == b).all() for a, b in zip(first, before, strict=True))
    assert fit.converged


def test_a_callback_sees_every_iteration_and_changes_nothing():
    model, data = CASES["lda"]
    options = {"iterations": 6, "untempered": 2, "batch_size": 8, "random_seed": 1}
    seen = []
    fit = svi(model, data, **options, callback=lambda n, lam: seen.append((n, lam[0].copy())))
    assert [n for n, _ in seen] == list(range(1, 9))
    assert np.array_equal(seen[-1][1], fit.lam[0])
    assert np.array_equal(seen[5][1], fit.tempered_lam[0])
    assert np.array_equal(svi(model, data, **options).lam[0], fit.lam[0])


@pytest.mark.slow("compiles models of its own")
def test_components_that_became_equal_part_again():
    """Of one variable, T = 5 is where two Gaussians of this distance merge, and where VT stays."""
    x = np.random.default_rng(1).normal(size=(200, 1))
    x += 4.0 * np.random.default_rng(2).integers(2, size=(200, 1))
    model = GaussianMixture(2, sd=1.0, prior_sd=5.0)
    for model_data in ((model, x), (LDA(2), np.repeat([[9, 8, 0, 0], [0, 0, 7, 9]], 20, axis=0))):
        parted, equal = (svi(*model_data, jitter=j, random_seed=1) for j in (1e-3, 0.0))
        assert parted.elbo > equal.elbo + 100.0


@pytest.mark.parametrize("name", CASES)
def test_new_data_of_another_width_are_refused(name):
    model, data = CASES[name]
    fit = svi(model, data, "vi", iterations=100, random_seed=0)
    assert fit.log_predictive(data).shape == (60,)
    for other in (data[:, :-1], np.concatenate([data, data[:, :1]], axis=1)):
        with pytest.raises(DataError, match="was fitted to"):
            fit.log_predictive(other)


@QUIET
@pytest.mark.parametrize("method", TEMPERED)
def test_a_fit_does_not_settle_between_updates_of_the_temperature(method):
    model, data = CASES["gaussian"]
    rare, often = (
        svi(model, data, method, update_every=n, damping=0.0, random_seed=0, iterations=2000)
        for n in (40, 1)
    )
    assert rare.n_tempered % 40 == 0
    last = [fit.inverse_temperature[fit.n_tempered - 1] for fit in (rare, often)]
    assert last[0] == pytest.approx(last[1], abs=1e-3)
