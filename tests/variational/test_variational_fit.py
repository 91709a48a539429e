"""Fits as a user runs them: T = 1 is pm.fit, the tempered optimum is exact, the end is at T = 1."""

from functools import cache

import numpy as np
import pymc as pm
import pytest
from pymc.variational.callbacks import Tracker
from scipy.special import logsumexp
from support import variational_models as models

import pymc_tempering as pmt
from pymc_tempering.variational import fit_step, fitting, methods

pytestmark = [
    # Short fits may well not be at rest; what they should warn about has tests of its own.
    pytest.mark.filterwarnings("ignore:The fit is not at rest"),
    pytest.mark.filterwarnings("ignore:Pareto k-hat"),
]
FAST = {"progressbar": False, "random_seed": 1}
QUICK = {"mode": "FAST_COMPILE"}  # for runs that are shorter than their compilation


def adam(rate=0.03):
    return pm.adam(learning_rate=rate)


def regression(minibatch=False):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(200, 2))
    y = X @ [1.0, -1.0] + rng.normal(size=200)
    X, y = pm.Minibatch(X, y, batch_size=20) if minibatch else (X, y)
    with pm.Model() as model:
        slope = pm.Normal("slope", 0.0, 2.0, shape=2)
        noise = pm.HalfNormal("noise", 2.0)
        pm.Normal(
            "y", (X * slope).sum(axis=-1), noise, observed=y, total_size=200 if minibatch else None
        )
    return model


@cache
def fit_of_pymc(minibatch, name):
    return pm.fit(
        300, name, model=regression(minibatch), obj_optimizer=adam(), compile_kwargs=QUICK, **FAST
    )


@pytest.mark.slow("compiles models of its own", quick=["False-meanfield-options3"])
@pytest.mark.parametrize(
    ("minibatch", "approx", "options"),
    [
        (False, "meanfield", {"method": "advi"}),
        (False, "fullrank", {"method": "advi"}),
        (True, "meanfield", {"method": "advi"}),
        (False, "meanfield", {"method": "variational_tempering", "temperatures": [1.0]}),
        (False, "meanfield", {"method": "local_variational_tempering", "temperatures": [1.0]}),
        (False, "meanfield", {"method": "annealed", "schedule": lambda share: 1.0}),
    ],
)
def test_all_temperatures_one_is_pm_fit(minibatch, approx, options):
    name = {"meanfield": "advi", "fullrank": "fullrank_advi"}[approx]
    plain = fit_of_pymc(minibatch, name)
    ours = pmt.fit(
        300,
        model=regression(minibatch),
        approx=approx,
        max_n=300,
        obj_optimizer=adam(),
        compile_kwargs=QUICK,
        **options,
        **FAST,
    )
    np.testing.assert_allclose(ours.hist, plain.hist, rtol=1e-7)
    for mine, theirs in zip(ours.params, plain.params, strict=True):
        np.testing.assert_allclose(mine.get_value(), theirs.get_value(), rtol=1e-6)
    assert (ours.tempering.inverse_temperature == 1.0).all()
    assert ours.tempering.drift.window == 0


def at_temperature_four(n=3000):
    """Mean and sd of mu at the end of a long stage at T = 4, averaged over its last half."""
    track = Tracker(
        mu=lambda a, hist, i: a.params[0].get_value()[0],
        rho=lambda a, hist, i: a.params[1].get_value()[0],
    )
    pmt.fit(
        n,
        "annealed",
        models.gaussian(),
        schedule=lambda share: 4.0,
        tA=n,
        max_n=n,
        obj_optimizer=adam(0.02),
        callbacks=[track],
        **FAST,
    )
    late = slice(n // 2, None)
    sd = np.logaddexp(0.0, np.mean(track["rho"][late]))
    return np.mean(track["mu"][late]), sd


@pytest.mark.slow("compiles models of its own")
def test_the_likelihood_alone_is_tempered(monkeypatch):
    mean, sd = models.gaussian_posterior(0.25)
    found = at_temperature_four()
    assert abs(found[0] - mean) < 0.15 * sd
    assert found[1] == pytest.approx(sd, rel=0.06)
    # planted: the prior tempered too
    right = fit_step.TemperedKL.apply

    def wrong(self, f):
        inverse = self.likelihood.tempered / self.approx.datalogp
        return right(self, f) + (1.0 - inverse) * self.varlogp_norm

    monkeypatch.setattr(fit_step.TemperedKL, "apply", wrong)
    assert abs(at_temperature_four()[0] - mean) > 0.25 * sd


def tempered_gaussian(data, **options):
    return pmt.fit(
        4000,
        "variational_tempering",
        models.gaussian(data),
        max_n=4000,
        tA=2000,
        obj_optimizer=adam(0.02),
        first_temperatures="uniform",
        **options,
        **FAST,
    )


def total_variation(report, data, log_c_sign=1.0):
    grid = report.temperatures
    log_c = models.gaussian_log_c(grid, data.size)
    exact, _ = models.tempered_fixed_point(grid, log_c, data)
    hot = report.temperature_probability(report.n_tempered - 1)
    return 0.5 * np.abs(hot - exact).sum()


def test_vt_settles_at_the_exact_q_of_its_temperature(monkeypatch):
    """Exact: both updates of VT in closed form, to their fixed point."""
    data = models.GAUSSIAN_DATA
    report = tempered_gaussian(data).tempering
    np.testing.assert_allclose(report.log_c, models.gaussian_log_c(report.temperatures, 40))
    assert (report.log_c_mcse == 0.0).all()
    assert total_variation(report, data) < 0.03
    assert report.tempered.settled
    _, inverse = models.tempered_fixed_point(report.temperatures, report.log_c, data)
    assert abs(report.tempered.inverse_temperature - inverse) < 0.02
    mean, sd = models.gaussian_posterior(inverse)
    np.testing.assert_allclose(report.tempered.params["mu"], mean, atol=0.3 * sd)
    # planted: the sign of log C
    right = methods.log_partition

    def wrong(*args, **kwargs):
        value = right(*args, **kwargs)
        return type("Value", (), {"log_c": -value.log_c, "mcse": value.mcse})

    monkeypatch.setattr(methods, "log_partition", wrong)
    assert total_variation(tempered_gaussian(data).tempering, data) > 0.5


@pytest.mark.slow("compiles models of its own")
def test_vt_ends_at_one_on_well_specified_data_and_returns_the_posterior():
    rng = np.random.default_rng(3)
    data = rng.normal(0.2, models.SIGMA, 2000)
    approx = tempered_gaussian(data)
    report = approx.tempering
    _, exact = models.tempered_fixed_point(
        report.temperatures, models.gaussian_log_c(report.temperatures, 2000), data
    )
    assert exact > 0.95
    assert abs(report.tempered.inverse_temperature - exact) < 0.01
    assert report.inverse_temperature[-1] == 1.0
    assert report.temperature_probability(report.n_iterations - 1)[0] == 1.0
    evidence = report.evidence
    assert (evidence.method, evidence.verdict) == ("psis_vi", "unchecked")
    # |z| < 4: by chance in 6e-5 of the cases
    assert abs(evidence.log_z - models.gaussian_log_z(data)) < 4 * evidence.mcse
    assert 0.0 < models.gaussian_log_z(data) - report.elbo < 0.5


def test_a_common_normalizer_at_each_theta_is_the_global_one_where_it_is_constant():
    """c(theta, T) of a Normal of known scale does not depend on theta."""
    data = models.GAUSSIAN_DATA
    ours, local = (
        tempered_gaussian(data, normalizer=name).tempering for name in ("global", "local")
    )
    assert local.log_c is None
    n = min(ours.n_tempered, local.n_tempered)
    np.testing.assert_allclose(
        local.inverse_temperature[:n], ours.inverse_temperature[:n], rtol=1e-6
    )


@pytest.mark.slow("compiles models of its own")
def test_bernoulli_trap_the_temperature_stays_up_and_the_result_is_at_one():
    """Uniform prior, half of 1000 successes: the exact C(T) favors T > 1 on perfect data."""
    grid = np.geomspace(1.0, 10.0, 20)
    approx = pmt.fit(
        4000,
        "variational_tempering",
        models.bernoulli(),
        temperatures=grid,
        max_n=4000,
        obj_optimizer=adam(0.02),
        **FAST,
    )
    report = approx.tempering
    np.testing.assert_allclose(report.log_c, models.bernoulli_log_c(grid), atol=0.05)
    hot = report.temperature_probability(report.n_tempered - 1)
    assert hot[0] < 0.05
    assert report.tempered.inverse_temperature < 0.6
    # the posterior of the model itself, Beta(501, 501): sd of the logit is 2 / sqrt(1000)
    spread = np.logaddexp(0.0, approx.params[1].get_value()[0])
    assert spread == pytest.approx(2 / np.sqrt(1000), rel=0.1)
    assert abs(report.evidence.log_z - models.bernoulli_log_z()) < 4 * report.evidence.mcse + 1e-4


def outliers():
    data = models.GAUSSIAN_DATA.copy()
    data[[4, 11, 30]] += 15.0
    return data


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("prior", [None, (2.0, 1.0)])
def test_lvt_gives_outliers_the_high_temperatures(prior):
    data = outliers()
    report = pmt.fit(
        3000,
        "local_variational_tempering",
        models.gaussian(data),
        max_n=3000,
        inverse_temperature_prior=prior,
        obj_optimizer=adam(),
        **FAST,
    ).tempering
    inverse = report.local["y"]
    assert set(np.argsort(inverse)[:3]) == {4, 11, 30}
    assert inverse[[4, 11, 30]].max() < 0.15
    assert np.delete(inverse, [4, 11, 30]).min() > 0.3
    # equation (10), exactly, at the tempered optimum
    grid, weight = methods.beta_grid(*prior) if prior else (report.temperatures, np.full(10, 0.1))
    mean, sd = report.tempered.params["mu"], np.logaddexp(0.0, report.tempered.params["rho"])
    loglik = -0.5 * np.log(2 * np.pi * 4) - ((data - mean) ** 2 + sd**2) / 8
    with np.errstate(divide="ignore"):
        logits = np.log(weight) + np.divide.outer(loglik, grid) - models.gaussian_log_c(grid, 1)
    q = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
    np.testing.assert_allclose(inverse, q @ (1 / grid), atol=0.03)
    np.testing.assert_allclose(report.q[-2], q.mean(axis=0), atol=0.02)


@pytest.mark.slow("compiles models of its own")
def test_lvt_of_minibatches_comes_to_the_same_temperatures():
    data = outliers()
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, models.PRIOR)
        part = pm.Minibatch(data, batch_size=10)
        pm.Normal("y", mu, models.SIGMA, observed=part, total_size=data.size)
    options = {"max_n": 3000, "obj_optimizer": adam(0.01), **FAST}
    method = "local_variational_tempering"
    whole = pmt.fit(3000, method, models.gaussian(data), **options).tempering
    parts = pmt.fit(3000, method, model, tA=300, **options).tempering
    assert parts.n_tempered <= 1200  # four minibatches a pass
    assert parts.local == {}
    late = parts.inverse_temperature[parts.n_tempered - 500 : parts.n_tempered].mean()
    assert abs(late - whole.tempered.inverse_temperature) < 0.03
    # judged on all data, whatever the minibatches were
    assert abs(parts.elbo - whole.elbo) < 1.0


def test_annealing_finds_the_good_mode_where_pm_fit_does_not():
    model, start = models.two_wells()
    ends = {"advi": [], "annealed": []}
    for method, found in ends.items():
        for seed in range(5):
            approx = pmt.fit(
                2000,
                method,
                model,
                start=start,
                random_seed=seed,
                progressbar=False,
                max_n=2000,
                obj_optimizer=adam(0.05),
            )
            found.append(approx.tempering.elbo)
    # log of the weights 0.97 and 0.03: 3.5 nats apart
    assert max(ends["advi"]) < min(ends["annealed"]) - 3.0


def far_start(n=1000, **options):
    """Final ELBO of VT on a narrow peak whose start lies far off, and its temperatures."""
    x = np.linspace(-15.0, 15.0, 60)
    seen = 3.0 * np.exp(-0.5 * (x - 5.0) ** 2) + 0.5 * np.random.default_rng(2).normal(size=60)
    with pm.Model() as model:
        center = pm.Normal("center", 0.0, 6.0)
        pm.Normal("y", 3.0 * pm.math.exp(-0.5 * (x - center) ** 2), 0.5, observed=seen)
    return pmt.fit(
        n,
        "variational_tempering",
        model,
        start={"center": -5.0},
        temperatures=np.geomspace(1.0, 100.0, 40),
        max_n=n,
        obj_optimizer=adam(0.05),
        **options,
        **FAST,
    )


@pytest.mark.slow("compiles models of its own")
def test_an_annealed_start_leaves_the_mode_that_the_papers_form_stays_in():
    """The paper's form takes the misfit for noise at once; the floor is kept, then given up."""
    hot, paper = (
        far_start(first_temperatures=name, trials=0).tempering for name in ("annealed", "uniform")
    )
    assert hot.elbo > paper.elbo + 30.0
    assert hot.inverse_temperature[20] < 0.02
    assert hot.temperature_probability(20)[:35].sum() == 0.0  # below T = 60
    assert paper.inverse_temperature[20] > 0.1
    floor = 1.0 / (100.0 - 99.0 * np.arange(400) / 400.0)  # 80 % of half of the iterations
    assert (hot.inverse_temperature[:400] <= np.repeat(floor[::10], 10) + 1e-9).all()
    assert hot.inverse_temperature[499] > 0.2  # equation (9) alone by then


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("failing", [1, 2])
def test_a_start_that_fails_ends_the_call_only_where_all_fail(monkeypatch, failing):
    """The first start, which is the user's, is the one that fails; and then both."""
    finish, calls = fitting.finish, []

    def fragile(session):
        calls.append(session)
        if len(calls) <= failing:
            raise pmt.exceptions.LikelihoodError(f"start {len(calls)} is not finite")
        return finish(session)

    monkeypatch.setattr(fitting, "finish", fragile)
    if failing == 2:
        with pytest.raises(pmt.exceptions.LikelihoodError, match="start 1"):
            far_start(20, restarts=2)
        return
    with pytest.warns(pmt.TemperingWarning, match="1 of 2 fits are missing"):
        fit = far_start(20, restarts=2)
    assert len(fit.restarts) == 1


@pytest.mark.slow("compiles models of its own")
def test_restarts_keep_all_fits_and_return_the_best():
    best = far_start(500, restarts=4, first_temperatures="uniform")
    assert len(best.restarts) == 4
    elbo = [fit.tempering.elbo for fit in best.restarts]
    assert best.tempering.elbo == max(elbo)
    assert np.ptp(elbo) > 1.0  # they began elsewhere
    alone = far_start(500, first_temperatures="uniform")
    assert alone.tempering.elbo == elbo[0]
    assert len(far_start(20, restarts=2).restarts) == 2  # one draw of the prior
    with pytest.raises(ValueError, match="restarts"):
        far_start(500, restarts=0)


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize(
    "method", ["advi", "annealed", "variational_tempering", "local_variational_tempering"]
)
def test_minibatches_and_all_data_have_the_same_optimum_at_one(method):
    """Known scale: the optimum is the posterior, and the mean of the last parameters finds it."""
    data = np.random.default_rng(8).normal(0.7, models.SIGMA, 120)

    def found(minibatch):
        late = Tracker(mu=lambda a, hist, i: a.params[0].get_value()[0])
        with pm.Model() as model:
            mu = pm.Normal("mu", 0.0, models.PRIOR)
            seen = pm.Minibatch(data, batch_size=30) if minibatch else data
            total = data.size if minibatch else None
            pm.Normal("y", mu, models.SIGMA, observed=seen, total_size=total)
        options = {} if method == "advi" else {"tA": 100 if minibatch else 400}
        pmt.fit(
            1500,
            method,
            model,
            max_n=1500,
            obj_optimizer=adam(0.01),
            callbacks=[late],
            **options,
            **FAST,
        )
        return np.mean(late["mu"][-800:])

    precision = 1 / models.PRIOR**2 + data.size / models.SIGMA**2
    exact, sd = data.sum() / models.SIGMA**2 / precision, precision**-0.5
    # the mean of 800 correlated steps scatters by less than 0.1 sd, that of minibatches by 0.2 sd
    assert abs(found(False) - exact) < 0.3 * sd
    assert abs(found(True) - exact) < 0.6 * sd
