"""Both front doors against exact answers, NUTS and each other."""

import pickle
import tracemalloc
from functools import cache, partial

import arviz as az
import cloudpickle
import numpy as np
import pymc as pm
import pytest
from pytensor import config
from scipy import stats
from support.compiled_systems import SYSTEMS, system
from support.small_models import all_transforms, mean_only
from support.transform_moments import kept_moments, moments

import pymc_tempering as pmt
from pymc_tempering.chain import chains
from pymc_tempering.core import status
from pymc_tempering.sampling import step_method

every_system = pytest.mark.parametrize("name", SYSTEMS)
STEP_OPTIONS = ("reference", "ladder_move", "check_looks")
QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}


def by_step(model, draws, seed, *, chains=2, cores=1, warmup_seed=11, mode=None, **kwargs):
    """Sample by PyMC; ``mode`` is for its function that records the draws."""
    options = {key: kwargs.pop(key) for key in STEP_OPTIONS if key in kwargs}
    options = {"reference": "prior", "random_seed": warmup_seed} | options
    method = pmt.SimulatedTempering(model=model, **options)
    with config.change_flags(mode=mode or config.mode):
        return pm.sample(
            draws, step=method, model=model, chains=chains, cores=cores, random_seed=seed,
            **QUIET | kwargs,
        )  # fmt: skip


def by_sample(model, draws, seed, **kwargs):
    return pmt.sample(
        draws, model=model, random_seed=seed, **QUIET | {"reference": "prior"} | kwargs
    )


@cache
def run(door, name, seed=1):
    longer = 6 if name == "two_modes" else 1  # some 20 draws to each crossing
    if door == "step":
        return by_step(system(name).model, 500 * longer, seed)
    return by_sample(system(name).model, 2000 * longer, seed)


def scores(idata, moments):
    """z-scores of means and variances of all variables, with errors by ESS."""
    out = []
    for name, (mean, variance) in moments.items():
        draws = idata.posterior[name]
        for values, exact in ((draws, mean), ((draws - mean) ** 2, variance)):
            error = az.mcse(values).values
            if np.isfinite(exact).all():
                out.append((values.mean(("chain", "draw")).values - exact) / error)
    return np.concatenate([np.ravel(z) for z in out])


@pytest.mark.slow("repeats", quick=["sample-beta_binomial"])
@every_system
@pytest.mark.parametrize("door", ["step", "sample"])
def test_log_z_is_exact_within_its_error(door, name):
    # |z| < 4 in ten runs: false alarm 6e-4, seeds fixed
    evidence = pmt.log_marginal_likelihood(run(door, name))
    assert evidence.verdict == "ok"
    assert evidence.mcse < 0.35
    assert abs(evidence.log_z - system(name).log_evidence) < 4.0 * evidence.mcse


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("name", ["gaussian", "two_modes"])
@pytest.mark.parametrize("door", [by_step, by_sample], ids=["step", "sample"])
def test_the_default_reference_keeps_log_z_and_says_how_sure_it_is(door, name):
    # |z| < 4 in four runs: false alarm 3e-4, seeds fixed
    idata = door(system(name).model, 500, 7, reference="auto")
    evidence = pmt.log_marginal_likelihood(idata)
    assert evidence.verdict == "ok"
    assert abs(evidence.log_z - system(name).log_evidence) < 4.0 * evidence.mcse
    assert np.abs(scores(idata, system(name).moments(1.0))).max() < 5.0


@pytest.mark.slow("compiles models of its own", quick=["sample-two_modes"])
@every_system
@pytest.mark.parametrize("door", ["step", "sample"])
def test_draws_have_the_exact_moments(door, name):
    # |z| < 5 in at most 40 moments with errors by ESS: false alarm 2e-5 each, seeds fixed
    assert np.abs(scores(run(door, name), system(name).moments(1.0))).max() < 5.0


@pytest.mark.slow("repeats")
@every_system
def test_draws_of_both_doors_have_one_law(name):
    # KS of draws thinned by their ESS, p > 1e-4 per system, seeds fixed
    statistic = system(name).statistic
    thinned = []
    for door in ("step", "sample"):
        posterior = run(door, name).posterior
        values = statistic({v: posterior[v].values for v in posterior.data_vars})
        ess = float(az.ess(values))
        thinned.append(values.ravel()[:: max(1, int(np.ceil(values.size / ess)))])
    assert stats.ks_2samp(*thinned).pvalue > 1e-4
    cdf = system(name).cdf(1.0)
    assert all(stats.kstest(values, cdf).pvalue > 1e-4 for values in thinned)


def test_modes_have_their_weights():
    # |z| < 4 with an error by ESS, in both front doors: false alarm 1e-4, seeds fixed
    two = system("two_modes")
    exact = two.mode_weights()[0]
    for door in ("step", "sample"):
        x = run(door, "two_modes").posterior["x"].values
        distance = ((x[..., None, :] - two.mode_centers) ** 2).sum(axis=-1)
        first = (distance.argmin(axis=-1) == 0).astype(float)
        error = np.sqrt(exact * (1 - exact) / float(az.ess(first)))
        assert error < 0.1
        assert abs(first.mean() - exact) < 4.0 * error


@cache
def transforms_model():
    """Return one model for all tests: it takes long to compile."""
    return all_transforms()


@cache
def transform_runs():
    by_pymc = by_step(transforms_model(), 1200, 5, mode="FAST_COMPILE")
    return by_sample(transforms_model(), 2000, 4), by_pymc


@pytest.mark.slow("compiles models of its own")
def test_draws_of_both_doors_agree_with_nuts():
    # |z| < 5 in some 60 differences of means and squares: false alarm 4e-5, seeds fixed
    nuts = kept_moments()
    for idata in transform_runs():
        found = moments(idata)
        assert found.keys() == nuts.keys()
        for name, (mean, error) in found.items():
            apart = np.subtract(mean, nuts[name][0]) / np.hypot(error, nuts[name][1])
            assert np.abs(apart).max() < 5.0, name


@pytest.mark.parametrize("index", [0, 1], ids=["sample", "step"])
def test_dims_coords_data_and_deterministics_arrive(index):
    idata = transform_runs()[index]
    posterior = idata.posterior
    assert posterior["mu"].dims == ("chain", "draw", "obs")
    assert posterior["shares"].coords["kind"].values.tolist() == ["a", "b", "c"]
    angle, shift = posterior["angle"], posterior["zero_sum"][..., 0]
    expected = posterior["uniform"] + shift * idata.constant_data["x"] + np.sin(angle)
    np.testing.assert_allclose(posterior["mu"].values, expected.values, atol=1e-12)
    assert set(idata.observed_data.data_vars) == {"y", "counts"}
    assert np.abs(angle.values).max() <= np.pi
    assert (np.diff(posterior["cuts"].values) > 0).all()


def equal_draws(a, b):
    return all(
        np.array_equal(a[group][name].values, b[group][name].values, equal_nan=True)
        for group in ("posterior", "sample_stats")
        for name in a[group].data_vars
    )


@cache
def in_one_process():
    return by_step(system("gaussian").model, 40, 21)


@pytest.mark.slow("other processes", quick=["fork"])
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_same_seeds_same_draws_in_other_processes(start):
    two = by_step(system("gaussian").model, 40, 21, cores=2, mp_ctx=start)
    assert equal_draws(in_one_process(), two)


def test_other_seeds_other_draws():
    model, one = system("gaussian").model, in_one_process()
    assert not equal_draws(one, by_step(model, 40, 22))
    assert not equal_draws(one, by_step(model, 40, 21, warmup_seed=12))
    chains = one.posterior["x"].values
    assert (chains[0] != chains[1]).all()


def test_same_seed_same_draws_whatever_the_threads():
    model = system("gaussian").model
    one, two = (by_sample(model, 60, 31, cores=cores, chains=3) for cores in (1, 2))
    assert equal_draws(one, two)
    for name in one["tempering_trace"].data_vars:
        np.testing.assert_array_equal(one["tempering_trace"][name], two["tempering_trace"][name])
    assert not equal_draws(one, by_sample(model, 60, 32, chains=3))


@pytest.mark.parametrize("door", [by_step, partial(by_sample, chains=2)], ids=["step", "sample"])
def test_tuning_draws_are_thrown_away_or_kept(door):
    model = system("gaussian").model
    kept = door(model, 30, 41, tune=20, discard_tuned_samples=False)
    cut = door(model, 30, 41, tune=20)
    assert "warmup_posterior" not in cut.children
    assert kept.warmup_posterior["x"].shape == (2, 20, 2)
    assert kept.posterior["x"].shape == cut.posterior["x"].shape == (2, 30, 2)
    np.testing.assert_array_equal(kept.posterior["x"].values, cut.posterior["x"].values)
    assert kept.warmup_sample_stats["tour_start"].values[:, 0].all()
    if "tempering_trace" in cut.children:
        for idata, groups in (
            (cut, ["sample_stats"]),
            (kept, ["warmup_sample_stats", "sample_stats"]),
        ):
            steps = sum(int(idata[g]["tempering_steps"].sum()) for g in groups)
            assert int((idata["tempering_trace"]["rung"].values >= 0).sum()) == steps


def test_the_callback_sees_every_draw():
    seen = []
    by_step(system("gaussian").model, 15, 51, callback=lambda trace, draw: seen.append(draw))
    assert len(seen) == 30
    assert all(draw.stats[0]["tempering_steps"] >= 1 for draw in seen)
    assert all(draw.stats[0]["rb_weight"].ndim == 1 for draw in seen)


@pytest.mark.parametrize("bar", [True, "combined", "split+stats"])
def test_progress_is_shown(bar, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.setattr(status, "LOG_SECONDS", 0.001)  # these runs are too short for lines
    model = system("gaussian").model
    kwargs = {"progressbar": bar, "quiet": False}
    by_step(model, 10, 61, **kwargs)
    by_sample(model, 1000, 61, chains=2, **kwargs)
    shown = "".join(capfd.readouterr())
    assert "Steps/draw" in shown or bar == "combined"
    assert "Sampling: " in shown
    assert "round trips" in shown or bar == "combined"


def test_nothing_is_printed_when_quiet(capfd):
    by_sample(system("gaussian").model, 10, 62)
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow("compiles models of its own")
def test_what_is_kept_is_what_was_asked():
    idata = by_sample(transforms_model(), 20, 71, keep=None, var_names=["half", "mu"])
    assert set(idata.posterior.data_vars) == {"half", "mu"}
    assert "tempering_trace" not in idata.children
    assert "rb_weight" in idata.sample_stats


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("reference", ["prior", "fitted"])
def test_the_step_pickles_and_goes_on_where_it_was(reference):
    model = system("gaussian").model
    method = pmt.SimulatedTempering(model=model, random_seed=1, reference=reference)
    method.setup_chain(np.random.default_rng(2), 0, 10)
    point = {"x": np.zeros(2)}
    for _ in range(5):
        point, _ = method.step(point)
    copy = pickle.loads(cloudpickle.dumps(method))
    state = method.sampling_state
    ours = [method.step(point)[0]["x"] for _ in range(20)]
    np.testing.assert_array_equal(ours, [copy.step(point)[0]["x"] for _ in range(20)])
    copy.sampling_state = pickle.loads(pickle.dumps(state))
    assert isinstance(state, step_method.SimulatedTemperingState)


@pytest.mark.slow("compiles models of its own")
def test_memory_does_not_grow_with_iterations():
    # ten times the iterations for as many draws: nothing but the record may be kept
    model = mean_only()
    peaks = []
    for betas in (np.linspace(0.0, 1.0, 3), np.linspace(0.0, 1.0, 60)):
        prepared_run = partial(by_sample, model, 300, 81, keep=None, chains=2, cores=1, betas=betas)
        prepared_run()
        tracemalloc.start()
        idata = prepared_run()
        peaks.append(tracemalloc.get_traced_memory()[1] / len(betas))
        tracemalloc.stop()
    assert int(idata.sample_stats["tempering_steps"].sum()) > 20_000
    assert peaks[1] < 1.5 * peaks[0]


@pytest.mark.slow("repeats")
def test_a_stuck_chain_is_an_error_before_its_first_draw(monkeypatch):
    model = system("gaussian").model
    monkeypatch.setattr(chains, "CYCLE_BOUND", 0)
    monkeypatch.setattr(step_method, "CHUNK", 1)
    monkeypatch.setattr(chains, "FIRST_CHUNK", 1)
    for door in (by_step, by_sample):
        with pytest.raises(
            pmt.exceptions.StuckChainError, match=r"hangs at rung \d+ of \d+ \(beta = "
        ):
            door(model, 10, 91)


@pytest.mark.slow("compiles models of its own")
def test_a_stuck_chain_is_a_warning_after_its_first_draw(monkeypatch):
    method = pmt.SimulatedTempering(
        model=system("gaussian").model, random_seed=1, reference="prior"
    )
    method.setup_chain(np.random.default_rng(2), 0, 10)
    method.step({})
    monkeypatch.setattr(chains, "CYCLE_BOUND", 0)
    monkeypatch.setattr(step_method, "CHUNK", 1)
    with pytest.warns(pmt.TemperingWarning, match="has not come back to beta = 1"):
        draws = [method.step({})[0]["x"] for _ in range(50)]
    assert np.isfinite(draws).all()


@pytest.mark.slow("compiles models of its own")
def test_one_seed_gives_the_same_draws_by_pymc():
    """PyMC hands its seed on when the step method, and its warm-up, have been made."""

    def draws(seed, cores=1, **options):
        with mean_only():
            method = pmt.SimulatedTempering(reference="prior", progressbar=False, **options)
            return pm.sample(
                20, step=method, chains=2, cores=cores, random_seed=seed, **QUIET
            ).posterior["mu"].values  # fmt: skip

    first, other_warmup = draws(1), draws(1, random_seed=5)
    np.testing.assert_array_equal(draws(1), first)
    np.testing.assert_array_equal(draws(1, cores=2), first)
    np.testing.assert_array_equal(draws(1, random_seed=5), other_warmup)
    assert not np.array_equal(draws(2), first)
    assert not np.array_equal(other_warmup, first)
    assert not np.array_equal(first[0], first[1])
