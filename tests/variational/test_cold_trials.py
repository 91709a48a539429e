"""The trials at T = 1 beside the tempered stage: which end goes on, and from where."""

from itertools import pairwise

import numpy as np
import pymc as pm
import pytest
from support import variational_models as models

import pymc_tempering as pmt
from pymc_tempering.variational import stages
from pymc_tempering.variational.assess import elbo_drift
from pymc_tempering.variational.fitting import first_approximation, prior_locations

pytestmark = [
    pytest.mark.filterwarnings("ignore:The fit is not at rest"),
    pytest.mark.filterwarnings("ignore:Pareto k-hat"),
]
FAST = {"progressbar": False, "random_seed": 1}
ADAM = pm.adam(learning_rate=0.05)


def two_peaks():
    """Peaks of two heights: heat brings both centers to the higher one."""
    x = np.linspace(-10.0, 10.0, 60)
    curve = 6.0 * np.exp(-0.5 * (x + 4.0) ** 2) + 4.0 * np.exp(-0.5 * (x - 4.0) ** 2)
    y = curve + 0.5 * np.random.default_rng(3).normal(size=60)
    with pm.Model() as model:
        center = pm.Normal("center", 0.0, 5.0, shape=2)
        height = pm.HalfNormal("height", 5.0, shape=2)
        shape = pm.math.exp(-0.5 * (x[:, None] - center) ** 2)
        pm.Normal("y", (height * shape).sum(axis=-1), 0.5, observed=y)
    return model


def fitted(model, start, n=1200, method="annealed", temperatures=(1.0, 300.0), **options):
    return pmt.fit(
        n,
        method,
        model,
        start=start,
        temperatures=temperatures,
        schedule="exponential",
        max_n=n,
        obj_optimizer=ADAM,
        **options,
        **FAST,
    )


@pytest.mark.slow("compiles models of its own")
def test_the_trial_goes_on_where_heat_merges_parts():
    start = {"center": np.array([-3.0, 3.0])}
    both = fitted(two_peaks(), start, trials=1).tempering
    assert both.trials.won
    assert both.trials.n == 400
    assert both.n_tempered == 200
    assert both.n_iterations == 1200
    assert both.elbo > both.trials.tempered_elbo + 20.0
    assert abs(both.elbo - both.trials.elbo) < 10.0
    assert (both.inverse_temperature[160:] == 1.0).all()


@pytest.mark.slow("compiles models of its own")
def test_the_trial_is_given_up_where_heat_leads_out_of_a_bad_start():
    model, start = models.two_wells()
    cold = fitted(model, start, n=2000, method="advi").tempering
    both = fitted(model, start, n=4000, trials=1, temperatures=(1.0, 10.0))
    assert not both.tempering.trials.won
    assert both.tempering.elbo > cold.elbo + 3.0
    assert "given up" in repr(both.tempering)


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("wins", [False, True])
def test_a_fit_goes_on_from_where_the_better_one_ended(monkeypatch, wins):
    """The parameters at the first iteration of the last stage follow on those of the winner."""
    monkeypatch.setattr(stages.ColdTrials, "won", property(lambda trial: wins))
    seen = []

    def note(approx, losses, i):
        seen.append(approx.params[0].get_value().copy())

    start = {"center": np.array([-3.0, 3.0])}
    fitted(two_peaks(), start, n=600, trials=1, callbacks=[note])
    hot, trial, after = seen[99], seen[299], seen[300]
    step = np.abs(seen[1] - seen[0]).max()  # of adam: hardly above its rate
    assert np.abs(after - (trial if wins else hot)).max() < 2 * step
    assert np.abs(after - (hot if wins else trial)).max() > 4 * step
    first = seen[100]  # of the trial: one step from the start
    assert np.abs(first - seen[0]).max() < 3 * step


@pytest.mark.slow("compiles models of its own")
def test_a_trial_that_is_not_finite_is_given_up(monkeypatch):
    real, calls = stages.advance, []

    def breaks(run, *args, **options):
        real(run, *args, **options)
        calls.append(options)
        if len(calls) == 2:  # the first is the tempered stage, the third the end at T = 1
            run.stopped = "not finite"

    monkeypatch.setattr(stages, "advance", breaks)
    start = {"center": np.array([-3.0, 3.0])}
    report = fitted(two_peaks(), start, n=400, trials=1).tempering
    assert report.trials.elbo == -np.inf
    assert report.n_iterations == 400
    assert np.isfinite(report.elbo)


@pytest.mark.slow("compiles models of its own")
def test_who_has_a_trial_by_default():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, observed=np.array([0.3, 0.7, -0.2]))
    for options, expected in [
        ({"method": "variational_tempering"}, 8),
        ({"method": "variational_tempering", "first_temperatures": "uniform"}, 0),
        ({"method": "variational_tempering", "trials": 0}, 0),
        ({"method": "variational_tempering", "temperatures": [1.0]}, 0),
        ({"method": "annealed"}, 0),
        ({"method": "annealed", "trials": 3}, 3),
        ({"method": "advi"}, 0),
    ]:
        report = pmt.fit(80, model=model, max_n=80, **options, **FAST).tempering
        assert (report.trials.starts if report.trials else 0) == expected
    with pytest.raises(ValueError, match="trials"):
        pmt.fit(80, model=model, trials=-1, **FAST)


@pytest.mark.parametrize(
    ("starts", "n"), [(1, 600), (2, 601), (3, 50), (4, 600), (5, 7), (8, 1200)]
)
def test_trials_are_halved_and_take_no_more_than_their_iterations(starts, n):
    rounds = list(stages.halvings(starts, n))
    counts = [count for count, _ in rounds]
    assert counts[0] == starts
    assert counts[-1] == 1
    assert all(after == -(-before // 2) for before, after in pairwise(counts))
    assert sum(count * each for count, each in rounds) == n


@pytest.mark.slow("compiles models of its own")
def test_a_trial_from_another_start_may_win():
    start, cool = {"center": np.array([-4.0, -4.0])}, [1.0, 1.01]
    alone = fitted(two_peaks(), start, trials=1, temperatures=cool)
    several = fitted(two_peaks(), start, trials=8, temperatures=cool)
    assert several.tempering.elbo > alone.tempering.elbo + 20.0
    assert several.tempering.trials.n == 400


def test_the_other_starts_are_draws_from_the_prior():
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 2.0)
        pm.Normal("x", 3.0, 0.1, shape=2)
        pm.Normal("y", 0.0, scale, observed=np.ones(3))
    approx = first_approximation(model, "meanfield", None, None, 1)
    places = np.array(prior_locations(approx, 400, 7))
    assert places.shape == (400, 3)
    log_scale, x = places[:, 0], places[:, 1:]
    # E log of a half-normal of scale 2, its sd 1.11: five standard errors
    assert abs(log_scale.mean() - (np.log(2.0) - 0.635)) < 5 * 1.11 / 20
    assert abs(x.mean() - 3.0) < 5 * 0.1 / np.sqrt(800)
    assert prior_locations(approx, 0, 7) == []
    with model:
        pm.Flat("anywhere")
    assert prior_locations(first_approximation(model, "meanfield", None, None, 1), 3, 7) == []


def three_overlapping(seed):
    rng = np.random.default_rng(seed)
    y = np.concatenate([rng.normal(m, 1.0, 40) for m in (-2.0, 0.0, 2.0)])
    with pm.Model() as model:
        weights, mu = pm.Dirichlet("weights", np.ones(3)), pm.Normal("mu", 0, 5, shape=3)
        pm.NormalMixture("y", weights, mu, pm.HalfNormal("scale", 2), observed=y)
    return model


@pytest.mark.slow("compiles models of its own")
def test_an_annealed_fit_is_no_worse_than_pm_fit_and_says_what_happened():
    """All components merge, with heat and without; this is said, and which of both goes on."""
    model = three_overlapping(1)
    settings = {"model": model, "random_seed": 1, "progressbar": False}
    with pytest.warns(pmt.TemperingWarning, match="All 3 elements of 'mu' are at the same place"):
        report = pmt.fit(10_000, **settings).tempering
    with pytest.warns(pmt.TemperingWarning):
        plain = pmt.fit(10_000, "advi", **settings).tempering
    assert report.elbo > plain.elbo - 4.0 * np.hypot(report.elbo_mcse, plain.elbo_mcse)
    assert (report.trials.starts, report.trials.n, report.n_tempered) == (1, 3333, 5000)
    assert report.trials.won
    assert "the best goes on, so that heat was no better than pm.fit" in repr(report)


def test_a_fit_that_still_moves_is_not_plainly_at_rest():
    noise = np.random.default_rng(1).normal(size=8000)
    assert elbo_drift(0.1 * noise).in_words == "yes"
    assert elbo_drift(noise + 0.00008 * np.arange(8000)).in_words == "nearly, still moving"
    assert elbo_drift(noise + 0.001 * np.arange(8000)).in_words == "no"
    assert elbo_drift(30.0 * noise).in_words == "as far as its noise tells"


@pytest.mark.slow("compiles models of its own")
def test_advice_that_was_followed_is_not_given_again():
    with pytest.warns(pmt.TemperingWarning) as record:
        pmt.fit(
            400, "advi", three_overlapping(2), approx="fullrank", random_seed=1, progressbar=False
        )
    texts = [str(one.message) for one in record if "k-hat" in str(one.message)]
    assert texts
    assert not [text for text in texts if 'approx="fullrank"' in text]
