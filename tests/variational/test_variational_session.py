"""Going on, stopping, bad input, and what a fit leaves: callbacks, DataTree, picture."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from support import variational_models as models
from support.drawn import drawn, points

import pymc_tempering as pmt
from pymc_tempering.variational import fitting

pytestmark = [
    pytest.mark.filterwarnings("ignore:The fit is not at rest"),
    pytest.mark.filterwarnings("ignore:Pareto k-hat"),
]
FAST = {"progressbar": False, "random_seed": 1}
ADAM = pm.adam(learning_rate=0.03)


@pytest.fixture(scope="module")
def fits():
    """One short fit by each of three methods."""
    options = {"obj_optimizer": ADAM, "max_n": 2000, **FAST}
    model = models.gaussian()
    return {
        method: pmt.fit(2000, method, model, **options)
        for method in ("advi", "annealed", "local_variational_tempering")
    }


@pytest.mark.slow("compiles models of its own")
def test_a_fit_that_goes_on_is_the_long_fit():
    options = {"model": models.gaussian(), "method": "advi", "obj_optimizer": ADAM, **FAST}
    long = pmt.fit(1500, **options)
    short = pmt.refine(pmt.fit(1000, **options), 500, progressbar=False)
    np.testing.assert_array_equal(short.hist, long.hist)
    assert short.tempering.n_iterations == 1500
    np.testing.assert_array_equal(short.tempering.elbo_history, long.tempering.elbo_history)


@pytest.mark.slow("compiles models of its own")
def test_the_last_stage_goes_on_until_the_elbo_is_at_rest(monkeypatch):
    slow = {"obj_optimizer": pm.adam(learning_rate=0.002), **FAST}
    compiled = []
    right = fitting.compile_step
    monkeypatch.setattr(
        fitting, "compile_step", lambda *a, **k: compiled.append(1) or right(*a, **k)
    )
    start = {"mu": 6.0}
    approx = pmt.fit(1000, model=models.gaussian(), start=start, max_n=8000, **slow)
    report = approx.tempering
    assert report.converged
    assert 2000 < report.n_iterations < 8000
    assert compiled == [1]  # one step for all stages
    with pytest.warns(pmt.TemperingWarning, match=r"not at rest.*pmt.refine"):
        report = pmt.fit(1000, model=models.gaussian(), start=start, max_n=1000, **slow).tempering
    assert not report.converged
    assert report.n_iterations == 1000


def test_callbacks_see_each_iteration_and_stop_one_stage():
    seen = []

    def stop(approx, losses, i):
        seen.append((i, losses.size))
        if i == 300 or i == 900:
            raise StopIteration

    approx = pmt.fit(
        2000, "annealed", models.gaussian(), callbacks=[stop], obj_optimizer=ADAM, trials=0, **FAST
    )
    report = approx.tempering
    assert seen == [(i, i) for i in range(1, 901)]
    assert report.n_tempered == 300
    assert report.n_iterations == approx.hist.size == 900
    assert (report.inverse_temperature[:300] < 1.0).all()
    assert (report.inverse_temperature[300:] == 1.0).all()


def test_an_interrupted_fit_says_what_it_is():
    def interrupt(approx, losses, i):
        if i == 100:
            raise KeyboardInterrupt

    with pytest.warns(pmt.TemperingWarning, match=r"interrupted at iteration 100.*tempered model"):
        approx = pmt.fit(
            1000, "annealed", models.gaussian(), callbacks=[interrupt], obj_optimizer=ADAM, **FAST
        )
    approx = pmt.refine(approx, 1000, progressbar=False)
    assert approx.tempering.inverse_temperature[-1] == 1.0
    assert approx.tempering.n_iterations == 1100


def cliff(edge):
    """Data that pull mu beyond an edge where the log density is not a number."""
    model = models.gaussian(np.full(100, 3.0))
    with model:
        mu = model["mu"]
        pm.Potential("cliff", pm.math.switch(mu > edge, np.nan, 0.0))
    return model


@pytest.mark.filterwarnings("ignore:The log density is not a number")
@pytest.mark.parametrize("method", ["advi", "annealed"])
def test_a_loss_that_is_not_finite_keeps_the_best_parameters(method):
    options = {"start": {"mu": -1.0}, "start_sigma": {"mu": 0.01}, "obj_optimizer": ADAM, **FAST}
    words = "The ELBO was not finite at iteration"
    with pytest.warns(pmt.TemperingWarning, match=words) as caught:
        approx = pmt.fit(2000, method, cliff(1.5), tA=None, **options)
    sentence = next(str(w.message) for w in caught if words in str(w.message))
    report = approx.tempering
    assert f"iteration {report.n_iterations + 1}, at temperature T = " in sentence
    assert ("T = 1 " in sentence) == (method == "advi")
    assert not report.converged
    assert all(np.isfinite(p.get_value()).all() for p in approx.params)
    assert approx.params[0].get_value()[0] > -0.9  # it had moved by then


@pytest.mark.slow("compiles models of its own")
def test_a_first_loss_that_is_not_finite_is_refused():
    with pytest.raises(pmt.exceptions.LikelihoodError, match="at the first iteration"):
        pmt.fit(100, "advi", cliff(-30.0), **FAST)


def discrete():
    with pm.Model() as model:
        k = pm.Poisson("k", 3.0)
        pm.Normal("y", k, 1.0, observed=2.0)
    return model


def without_data():
    with pm.Model() as model:
        pm.Normal("x")
    return model


def with_potential():
    model = models.gaussian()
    with model:
        pm.Potential("extra", -(model["mu"] ** 2))
    return model


def half_cauchy_scale():
    with pm.Model() as model:
        sigma = pm.HalfCauchy("sigma", 1.0)
        pm.Normal("y", 0.0, sigma, observed=np.arange(20.0))
    return model


def heavy_tails():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.StudentT("y", nu=4.0, mu=mu, sigma=1.0, observed=np.arange(20.0))
    return model


@pytest.mark.parametrize(
    ("model", "options", "error", "words"),
    [
        (discrete, {}, pmt.exceptions.DiscreteVariableError, "k. Marginalize"),
        (without_data, {}, pmt.exceptions.ModelError, "no observed data"),
        (models.gaussian, {"method": "svgd"}, ValueError, "method must be one of.*svgd"),
        (models.gaussian, {"approx": "flow"}, ValueError, "approx must be one of.*flow"),
        (models.gaussian, {"n": 0}, ValueError, "n must be a whole number"),
        (models.gaussian, {"temperatures": [2.0, 3.0]}, ValueError, "must contain 1"),
        (models.gaussian, {"temperatures": [0.5, 1.0]}, ValueError, "0.5 is not"),
        (models.gaussian, {"damping": 1.0}, ValueError, "share of the old log q.*not 1.0"),
        (models.gaussian, {"tA": 20_000}, ValueError, "20000 iterations, more than n"),
        (models.gaussian, {"max_n": 5}, ValueError, "max_n must be at least n"),
        (models.gaussian, {"normalizer": "none"}, ValueError, "normalizer must be one of"),
        (models.gaussian, {"inverse_temperature_prior": (1, 1)}, ValueError, "belongs to method"),
        (models.gaussian, {"start": {"nu": 1.0}}, ValueError, "nu"),
        (models.gaussian, {"start_sigma": {}, "approx": "fullrank"}, ValueError, "start_sigma"),
        (
            with_potential,
            {"method": "local_variational_tempering"},
            pmt.exceptions.ModelError,
            "extra.*annealed",
        ),
        (
            with_potential,
            {"method": "variational_tempering"},
            pmt.exceptions.ModelError,
            "extra.*annealed",
        ),
        (
            half_cauchy_scale,
            {"method": "variational_tempering"},
            pmt.exceptions.NormalizerError,
            "infinite.*annealed",
        ),
        (
            heavy_tails,
            {"method": "variational_tempering"},
            pmt.exceptions.NormalizerError,
            "y.*below 5.*annealed",
        ),
        (
            heavy_tails,
            {"method": "local_variational_tempering"},
            pmt.exceptions.NormalizerError,
            "y.*below 5.*annealed",
        ),
        (
            heavy_tails,
            {"method": "variational_tempering", "normalizer": "local"},
            pmt.exceptions.NormalizerError,
            "y.*below 5.*annealed",
        ),
    ],
)
def test_bad_input_is_refused_by_name(model, options, error, words):
    with pytest.raises(error, match=words):
        pmt.fit(model=model(), **options, **FAST)


def test_what_is_no_fit_is_refused():
    approx = pm.MeanField(model=models.gaussian())
    for function in (pmt.refine, pmt.to_datatree, pmt.plot_annealing):
        with pytest.raises(ValueError, match=r"pmt\.fit"):
            function(approx)


@pytest.mark.slow("compiles models of its own")
def test_an_ordered_prior_has_its_orderings_counted():
    """Two ordered standard normals, y ~ N(sum, 1) at 0.5: the same evidence as unordered."""
    with pm.Model() as model:
        x = pm.Normal(
            "x", shape=2, transform=pm.distributions.transforms.ordered, initval=[-1.0, 1.0]
        )
        pm.Normal("y", x.sum(), 1.0, observed=0.5)
    report = pmt.fit(
        4000, "advi", model, approx="fullrank", obj_optimizer=pm.adam(learning_rate=0.02), **FAST
    ).tempering
    exact = -0.5 * np.log(2 * np.pi * 3.0) - 0.5 * 0.25 / 3.0
    assert abs(report.evidence.log_z - exact) < 4 * report.evidence.mcse
    assert report.evidence.mcse < 0.1


@pytest.mark.slow("compiles models of its own")
def test_an_improper_prior_has_no_evidence():
    with pm.Model() as model:
        mu = pm.Flat("mu")
        pm.Normal("y", mu, 1.0, observed=np.array([0.3, 0.1]))
    report = pmt.fit(1000, "advi", model, obj_optimizer=ADAM, **FAST).tempering
    assert report.evidence is None
    assert np.isfinite(report.elbo)


@pytest.mark.slow("compiles models of its own")
def test_datatree_holds_draws_and_history(fits, tmp_path):
    for method, approx in fits.items():
        idata = pmt.to_datatree(approx, draws=400, random_seed=4)
        report, group = approx.tempering, idata["variational"]
        np.testing.assert_array_equal(group["loss"], approx.hist)
        np.testing.assert_array_equal(group["elbo"], report.elbo_history)
        np.testing.assert_array_equal(group["inverse_temperature"], report.inverse_temperature)
        assert group.attrs["method"] == method
        assert group.attrs["log_z"] == report.evidence.log_z
        draws = idata["posterior"]["mu"].values.ravel()
        sd = np.logaddexp(0.0, approx.params[1].get_value()[0])
        # |z| < 4 for the mean of 400 independent draws
        assert abs(draws.mean() - approx.params[0].get_value()[0]) < 4 * sd / np.sqrt(400)
        idata.to_netcdf(tmp_path / f"{method}.nc", engine="h5netcdf")
        back = xr.open_datatree(tmp_path / f"{method}.nc", engine="h5netcdf")
        xr.testing.assert_identical(back["variational"].to_dataset(), group.to_dataset())
    local = pmt.to_datatree(fits["local_variational_tempering"], draws=2)["variational"]
    assert local["inverse_temperature_of_y"].shape == (40,)
    np.testing.assert_allclose(local["temperature_probability"].sum("temperature"), 1.0)
    with pytest.raises(ValueError, match="draws"):
        pmt.to_datatree(fits["advi"], draws=0)


def test_history_of_the_untempered_elbo_is_that_of_the_report(fits):
    report = fits["annealed"].tempering
    late = report.elbo_history[-300:]
    assert abs(late.mean() - report.elbo) < 5 * (late.std() / np.sqrt(300) + report.elbo_mcse)
    np.testing.assert_allclose(late, -fits["annealed"].hist[-300:])
    with pytest.raises(ValueError, match="no distribution over temperatures"):
        report.temperature_probability(3)
    assert "converged" in repr(report)


@pytest.mark.slow("compiles models of its own")
def test_picture_shows_elbo_and_temperature(fits):
    pc = pmt.plot_annealing(fits, backend="none")
    _, inverse = points(drawn(pc, "inverse_temperature", "inverse_temperature", part="1"))
    np.testing.assert_allclose(inverse[0], 0.1, atol=0.01)  # annealed: linear in T from 10 to 1
    assert inverse[-1] == 1.0
    calls = pc.viz["plot"].sel(panel="elbo").item()
    low, high = next(c["lims"] for c in calls if c["function"] == "ylim")
    for approx in fits.values():
        assert low < approx.tempering.elbo < high
    styles = {drawn(pc, "elbo", "elbo", part=str(k))["linestyle"] for k in range(len(fits))}
    assert len(styles) == min(len(fits), 4)
    with pytest.raises(ValueError, match="at least one"):
        pmt.plot_annealing({})
