"""Identities between the estimators, exact on fixed arrays; and agreement with pymbar."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from support.pymbar_answers import pymbar_answers
from support.repeated_runs import (
    BETAS,
    LOG_WEIGHT,
    repeated_runs,
)

from pymc_tempering import evidence as ev
from pymc_tempering.evidence import rts_log_z
from pymc_tempering.evidence.bar import bar_step
from pymc_tempering.evidence.datatree import probabilities_of

RNG = np.random.default_rng(7)
LOG_RATIO = RNG.normal(-3.0, 2.0, 200)
LADDER = np.array([0.0, -0.6, -1.1, -1.9, -2.4])


def log_likelihood(log_z, weight, offsets):
    """Equation (14) of Carlson et al. (2016), summed over parts (T, K)."""
    n = weight.sum(axis=1)
    return np.sum(weight @ log_z) - n @ logsumexp(offsets + log_z, axis=1)


def weights_of(log_ratio, betas=BETAS, log_z=LADDER, log_weight=LOG_WEIGHT):
    """q(beta_k | x), equation (7), by its definition."""
    log_q = log_weight - log_z + betas * log_ratio[:, None]
    return np.exp(log_q - logsumexp(log_q, axis=1, keepdims=True))


def test_rts_is_the_maximum_of_the_rao_blackwellized_likelihood():
    """Equation (14) with one log Z-hat: in closed form, and found by a search that knows no RTS."""
    c = weights_of(LOG_RATIO).sum(axis=0)
    offsets = (LOG_WEIGHT - LADDER)[None]
    rts = rts_log_z(c, LADDER, LOG_WEIGHT)
    found = minimize(
        lambda free: -log_likelihood(np.append(0.0, free), c[None], offsets),
        np.zeros(4), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 8000},
    )  # fmt: skip
    np.testing.assert_allclose(found.x, rts[1:], atol=1e-5)


def test_rts_is_mbar_with_expected_counts():
    """Appendix D: equation (18) with n_k = sum_i q(beta_k | x_i) is solved by RTS, to rounding.

    There n_k / Z_k is proportional to r_k / Z-hat_k, and so p_k(x) = q(beta_k | x).
    """
    q = weights_of(LOG_RATIO)
    n, rts = q.sum(axis=0), rts_log_z(q.sum(axis=0), LADDER, LOG_WEIGHT)
    log_p = np.log(n) - rts + BETAS * LOG_RATIO[:, None]
    p = np.exp(log_p - logsumexp(log_p, axis=1, keepdims=True))
    np.testing.assert_allclose(p.sum(axis=0), n, rtol=1e-12)

    def minus_18(free):
        log_z = np.append(0.0, free)
        mixture = logsumexp(np.log(n / n.sum()) - log_z + BETAS * LOG_RATIO[:, None], axis=1)
        return mixture.mean() + n @ log_z / n.sum()

    found = minimize(minus_18, rts[1:] + 0.3, method="BFGS", options={"gtol": 1e-10})
    np.testing.assert_allclose(found.x, rts[1:], atol=1e-5)
    # Visits in the place of expected counts give MBAR, which is not RTS.
    visits = n + np.array([5.0, -5.0, 4.0, -4.0, 0.0])
    other = minimize(
        lambda free: logsumexp(
            np.log(visits) - np.append(0.0, free) + BETAS * LOG_RATIO[:, None], axis=1
        ).sum() + visits[1:] @ free,
        rts[1:], method="BFGS",
    )  # fmt: skip
    assert np.abs(other.x - rts[1:]).max() > 1e-3


def test_rao_blackwellized_ti_becomes_rts_as_rungs_grow():
    """Equation (22) on fixed states: the trapezoid's difference falls as 1 / K^2."""
    off = []
    for n_rungs in (10, 20, 40, 80, 160):
        betas = np.linspace(0.0, 1.0, n_rungs)
        log_z, even = -2.0 * betas, np.full(n_rungs, -np.log(n_rungs))
        q = weights_of(LOG_RATIO, betas, log_z, even)
        n = q.sum(axis=0)
        mean = q.T @ LOG_RATIO / n
        variance = q.T @ LOG_RATIO**2 / n - mean**2
        rts = rts_log_z(n, log_z, even)[-1]
        off.append([
            ev.integrate(rule, betas, mean, variance)[-1] - rts
            for rule in ("trapezoid", "corrected", "simpson", "riemann")
        ])  # fmt: skip
    ratio = np.abs(np.array(off[:-1]) / np.array(off[1:]))
    np.testing.assert_allclose(ratio[-1], [4.0, 16.0, 16.0, 2.0], rtol=0.15)
    assert abs(off[-1][1]) < 1e-8
    assert off[-1][3] > 0.0


def test_moments_of_a_run_are_those_of_its_iterations():
    """What TI-RB reads from the statistics of cycles, from the trace by equation (21)."""
    run = repeated_runs(200, "gauss")[0]
    q = probabilities_of(run.stats, run.trace.log_ratio)
    used = run.pieces.counted[run.piece]
    q, ratio = q[used], run.trace.log_ratio[used]
    mean = q.T @ ratio / q.sum(axis=0)
    expected = ev.integrate("trapezoid", BETAS, mean, np.zeros(5))[-1]
    found = ev.ti(run.stats, rao_blackwell=True)
    assert found.log_z == pytest.approx(expected, abs=1e-10)
    rts = rts_log_z(q.sum(axis=0), run.stats.log_z_ladder, run.stats.log_weight)[-1]
    assert found.bias == pytest.approx(expected - rts, abs=1e-10)


def test_bar_and_mbar_are_those_of_pymbar():
    pymbar = pytest.importorskip("pymbar")
    run = repeated_runs(200, "gauss")[0]
    used = run.pieces.counted[run.piece]
    ratio, rung = run.trace.log_ratio[used], run.trace.rung[used]
    total = 0.0
    for k in range(4):
        width = BETAS[k + 1] - BETAS[k]
        lower, upper = width * ratio[rung == k], width * ratio[rung == k + 1]
        theirs = -pymbar.bar(-lower, upper, relative_tolerance=1e-13)["Delta_f"]
        assert bar_step(lower, upper).increment == pytest.approx(theirs, abs=1e-6)
        total += theirs
    assert ev.bar(run).log_z == pytest.approx(total, abs=1e-6)
    found = ev.mbar(run)
    theirs, _ = pymbar_answers(ratio, rung, BETAS)
    np.testing.assert_allclose(found.log_z_curve, theirs, atol=1e-6)
    mine = run.pieces.chain[run.piece][used] == 0
    theirs, _ = pymbar_answers(ratio[mine], rung[mine], BETAS)
    assert found.per_chain[0] == pytest.approx(theirs[-1], abs=1e-6)


def test_mbar_of_an_empty_rung_is_by_reweighting():
    run = repeated_runs(200, "gauss")[0]
    moved = np.where(run.trace.rung == 2, 3, run.trace.rung)
    found = ev.mbar(ev.Run(run.stats, replace(run.trace, rung=moved)))
    used = run.pieces.counted[run.piece]
    ratio, counts = run.trace.log_ratio[used], np.bincount(moved[used], minlength=5)
    known = counts > 0
    zeta = np.log(counts[known]) - found.log_z_curve[known]
    mixture = logsumexp(zeta + np.multiply.outer(ratio, BETAS[known]), axis=1)
    assert found.log_z_curve[2] == pytest.approx(logsumexp(BETAS[2] * ratio - mixture), abs=1e-6)
