"""RTS gives log Z with an honest error: calibration over repeats, planted bugs, warnings."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as sps
from support.repeated_runs import (
    BETAS,
    EXACT,
    GAUSSIAN_TOY,
    LOG_WEIGHT,
    LOG_Z_LADDER,
    drop_log_weight,
    join_chains,
    repeats,
    shift_ladder,
    with_stats,
)
from support.synthetic import GaussianToy, gaussian_run

import pymc_tempering as pmt
from pymc_tempering.evidence import homogeneity_pvalue, rts, rts_log_z, tour_sums
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.evidence.pieces import delta_error
from pymc_tempering.evidence.rts import second_order_bias
from pymc_tempering.exceptions import TemperingWarning

REPEATS = 400
SETTINGS = [
    {"rho": 0.0, "ladder_move": "gibbs"},
    {"rho": 0.9, "ladder_move": "gibbs", "draws": 300},
    {"rho": 0.5, "ladder_move": "nonreversible", "draws": 300, "chains": 2},
]


def calibration_faults(z):
    """Sentences about z-scores that are not standard normal.

    With R = 400 standard normal z-scores the standard errors are 0.05 (mean), 0.035 (sd) and
    0.011 (coverage). The limits lie 6, 3.7 and 3.7 of them away: 4e-4 of false alarms in all. The
    mean has room for the bias of the ratio, which is of order 1 / sqrt(tours).
    """
    coverage = np.mean(np.abs(z) < 1.96)
    if abs(z.mean()) > 0.3:
        yield f"mean of z-scores {z.mean():.2f}"
    if not 0.87 < z.std() < 1.13:
        yield f"sd of z-scores {z.std():.2f}"
    if abs(coverage - 0.95) > 0.04:
        yield f"coverage {coverage:.3f}"


def z_scores(results, rung=-1):
    exact = GAUSSIAN_TOY.log_z(BETAS[rung])
    return np.array([(e.log_z_curve[rung] - exact) / e.log_z_curve_mcse[rung] for e in results])


@pytest.mark.slow("repeats")
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_stated_error_is_the_real_one(setting):
    results = [rts(stats) for stats in repeats(REPEATS, **setting)]
    assert not list(calibration_faults(z_scores(results)))
    assert not list(calibration_faults(z_scores(results, rung=2)))
    # 5 % of the runs may warn: above it with probability 1e-3 if the true rate is 2 %
    assert np.mean([bool(result.warnings) for result in results]) <= 0.05


@pytest.mark.slow("repeats", every=2)
@pytest.mark.parametrize("bug", [drop_log_weight, shift_ladder])
def test_calibration_sees_a_planted_bug(bug):
    runs = repeats(REPEATS, **SETTINGS[0])[:100]
    assert list(calibration_faults(z_scores([rts(bug(stats)) for stats in runs])))


@pytest.mark.slow("repeats", every=2)
def test_calibration_sees_an_error_that_takes_draws_for_independent():
    """Draws between two tours are alike: an error over single cycles is too small."""
    runs = repeats(REPEATS, **SETTINGS[1])
    naive = np.array([delta_error(s.rb_weight.reshape(-1, 5))[-1] for s in runs])
    z = (np.array([rts(s).log_z for s in runs]) - EXACT) / naive
    assert list(calibration_faults(z))


def test_occupancies_of_the_exact_law_give_the_exact_log_z():
    """c_k proportional to r_k Z_k / Z-hat_k (equation 8) inverts to Z_k, whatever Z-hat is."""
    exact = GAUSSIAN_TOY.log_z(BETAS)
    weight = np.exp(LOG_WEIGHT + exact - LOG_Z_LADDER)
    np.testing.assert_allclose(rts_log_z(7.0 * weight, LOG_Z_LADDER, LOG_WEIGHT), exact)


def test_scale_of_r_does_not_matter():
    stats = read_cycles(gaussian_run(100, 4))
    evidence, scaled = rts(stats), rts(replace(stats, log_weight=stats.log_weight + 5.0))
    assert scaled.log_z == pytest.approx(evidence.log_z)
    assert scaled.mcse == pytest.approx(evidence.mcse)


def test_second_order_bias_is_that_of_the_log_of_a_mean():
    """The mean of n exponentials has E log = psi(n) - log(n), about -1 / 2n (equation 15)."""
    n = 30
    sums = np.random.default_rng(3).exponential(size=(4000, n))
    bias = [second_order_bias(np.column_stack([np.ones(n), s])) for s in sums]
    error = np.std(bias) / np.sqrt(len(bias))
    # 1 / n^2 for the next order, and |z| < 4: false alarm 6e-5
    assert abs(np.mean(bias) - np.mean(np.log(sums.mean(axis=1)))) < 4.0 * error + 5.0 / n**2
    assert np.mean(bias) == pytest.approx(-0.5 / n, rel=0.1)


def stuck(stats, weight):
    """Let the last, unfinished tour of the first chain end with a long stay at beta = 1."""
    rb_weight = stats.rb_weight.copy()
    rb_weight[0, -1, -1] += weight
    return replace(stats, rb_weight=rb_weight)


@pytest.mark.parametrize("weight", [200.0, 1000.0, 1e5])
def test_a_chain_stuck_in_its_last_tour_is_not_a_confident_number(weight):
    stats = read_cycles(gaussian_run(200, 4, random_seed=5))
    wrong = stuck(stats, weight)
    evidence = rts(wrong)
    off = abs(evidence.log_z - EXACT)
    assert off < 3.0 * evidence.mcse
    # Left out of the variance, as in the first design, it moves the value at no stated error.
    tours = tour_sums(wrong.rb_weight, wrong.rb_weight_head, wrong.tour_start)
    assert off > 4.0 * delta_error(tours.sums[tours.complete])[-1]


def one_tour_a_cycle(n_draws):
    """Statistics of one chain in which every cycle is a tour."""
    stats = read_cycles(gaussian_run(n_draws, 1, betas=[0.0, 0.5, 1.0]))
    rng = np.random.default_rng(0)
    return replace(
        stats,
        rb_weight=rng.uniform(1.0, 2.0, (1, n_draws, 3)),
        rb_weight_head=np.zeros((1, n_draws, 3)),
        tour_start=np.ones((1, n_draws), dtype=bool),
    )


def test_below_twenty_complete_tours_there_is_no_error():
    few, enough = rts(one_tour_a_cycle(20)), rts(one_tour_a_cycle(21))
    assert (few.n_tours, few.verdict, few.mcse) == (19, "unchecked", np.inf)
    assert (enough.n_tours, enough.verdict) == (20, "ok")
    assert np.isfinite(enough.mcse)
    assert np.isfinite(few.log_z)
    assert "Only 19 tours" in few.warnings[0]


def test_a_few_tours_that_hold_the_weight_give_no_error():
    stats = one_tour_a_cycle(60)
    weight = stats.rb_weight.copy()
    weight[0, 10:13, -1] = 1e4
    evidence = rts(replace(stats, rb_weight=weight))
    assert evidence.ess < 4.0
    assert (evidence.verdict, evidence.mcse) == ("unchecked", np.inf)
    assert any("effective number" in sentence for sentence in evidence.warnings)


def test_homogeneity_test_rejects_as_often_as_it_says():
    """Normal estimates with errors from 8 tours each, among 4 chains."""
    rng, n, level = np.random.default_rng(6), 8, 0.01
    samples = rng.standard_normal((8000, 4, n)) * np.array([1.0, 2.0, 0.5, 1.0])[:, None]
    means, errors = samples.mean(axis=2), samples.std(axis=2, ddof=1) / np.sqrt(n)
    df = np.full(4, n - 1.0)
    pairs = list(zip(means, errors, strict=True))
    share = np.mean([homogeneity_pvalue(m, e, df) < level for m, e in pairs])
    # Standard error 0.001; Welch's correction is itself approximate.
    assert 0.005 < share < 0.015
    # without the correction the plain chi-square test rejects several times as often
    plain = [homogeneity_pvalue(m, e, df * 1e9) < level for m, e in pairs]
    assert np.mean(plain) > 0.025
    large = homogeneity_pvalue(means[0], errors[0], df * 1e9)
    w = errors[0] ** -2.0
    chi2 = np.sum(w * (means[0] - np.sum(w * means[0]) / w.sum()) ** 2)
    assert large == pytest.approx(sps.chi2.sf(chi2, 3), rel=1e-5)


def test_chains_that_differ_by_rounding_agree():
    """As those of a model with one state, whose errors are of rounding too."""
    estimate = -14.7 + 1e-15 * np.arange(4)
    assert homogeneity_pvalue(estimate, np.full(4, 1e-17), np.full(4, 99.0)) > 0.99
    assert homogeneity_pvalue(1e9 * estimate, np.full(4, 1e-8), np.full(4, 99.0)) > 0.99
    assert homogeneity_pvalue(1e7 * estimate, np.full(4, 1e-9), np.full(4, 99.0)) > 0.99
    assert homogeneity_pvalue(1e8 * np.arange(4), np.full(4, 1e-9), np.full(4, 99.0)) < 1e-9


def test_chains_that_disagree_widen_the_error():
    """Two chains see a posterior that the other two never meet."""
    shared = {"betas": BETAS, "log_z_ladder": LOG_Z_LADDER}
    idata = join_chains(
        gaussian_run(300, 2, random_seed=1, **shared),
        gaussian_run(300, 2, random_seed=2, toy=GaussianToy(1.0, 0.5), **shared),
    )
    with pytest.warns(TemperingWarning, match="chains disagree"):
        evidence = pmt.log_marginal_likelihood(idata)
    assert evidence.verdict == "disagreed"
    scatter = evidence.per_chain.std(ddof=1) / 2.0
    assert evidence.mcse >= scatter > 0.1


def test_identical_chains_are_an_alarm():
    one = gaussian_run(200, 2, random_seed=1)
    with pytest.warns(TemperingWarning, match=r"Chains 1, 3 are identical"):
        evidence = pmt.log_marginal_likelihood(
            join_chains(one.isel(chain=[0, 1]), gaussian_run(200, 1), one.isel(chain=[1]))
        )
    assert (evidence.verdict, evidence.mcse) == ("unchecked", np.inf)


def test_a_chain_with_nan_is_an_alarm_and_leaves_the_value():
    def spoil(values):
        values[1, 7] = np.nan
        return values

    idata = gaussian_run(200, 4)
    with pytest.warns(TemperingWarning, match="Chain 1 holds non-finite"):
        evidence = pmt.log_marginal_likelihood(with_stats(idata, rb_weight=spoil))
    rest = rts(read_cycles(idata.isel(chain=[0, 2, 3])))
    assert evidence.log_z == pytest.approx(rest.log_z)
    assert (evidence.verdict, evidence.mcse) == ("unchecked", np.inf)
    assert np.isnan(evidence.per_chain).tolist() == [False, True, False, False]
    assert evidence.round_trips == (rest.round_trips[0], 0, *rest.round_trips[1:])


def test_no_finite_chain_gives_no_number():
    idata = with_stats(gaussian_run(50, 2), rb_weight=lambda values: values * np.nan)
    with pytest.warns(TemperingWarning, match="non-finite"):
        evidence = pmt.log_marginal_likelihood(idata)
    assert np.isnan(evidence.log_z)
    assert evidence.verdict == "unchecked"


def test_occupancy_far_from_r_is_said_with_its_rung():
    far = GAUSSIAN_TOY.log_z(BETAS) + np.array([0.0, 0.0, 0.0, 2.5, 0.0])
    with pytest.warns(TemperingWarning, match="far from r at rung 3") as record:
        evidence = pmt.log_marginal_likelihood(gaussian_run(400, log_z_ladder=far))
    assert len(record) == len(evidence.warnings) == 1
    assert abs(evidence.log_z - EXACT) < 4.0 * evidence.mcse


def test_a_gap_in_the_ladder_is_said():
    idata = gaussian_run(3000, betas=[0.0, 0.4, 1.0], toy=GaussianToy(4.0, 0.2))
    with pytest.warns(TemperingWarning, match="gap between rungs 0 and 1"):
        pmt.log_marginal_likelihood(idata)


def test_a_sound_run_warns_of_nothing_and_shows_its_numbers():
    evidence = pmt.log_marginal_likelihood(gaussian_run(400, random_seed=1))
    assert evidence.warnings == ()
    assert evidence.verdict == "ok"
    assert f"{evidence.log_z:.3f}" in repr(evidence)
    assert f"{evidence.mcse:.3f}" in evidence._repr_html_()
    assert evidence.log_z == evidence.log_z_curve[-1]
    assert evidence.n_tours == sum(evidence.round_trips)


def test_halves_are_the_estimates_of_the_halves():
    idata = gaussian_run(300, 3)
    evidence = rts(read_cycles(idata))
    first = rts(read_cycles(idata.isel(draw=slice(0, 150))))
    second = rts(read_cycles(idata.isel(draw=slice(150, None))))
    assert evidence.halves == pytest.approx((first.log_z, second.log_z))


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="'rts'"):
        pmt.log_marginal_likelihood(gaussian_run(30), method="harmonic mean")
