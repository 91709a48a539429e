"""RTS pooled with reference draws: exact by quadrature, as printed, calibrated on thin tails."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from support.repeated_runs import (
    BETAS,
    LOG_WEIGHT,
    LOG_Z_LADDER,
    TOYS,
    calibration_faults,
    repeated_runs,
)
from support.synthetic import (
    cycle_sums,
    gaussian_run,
    simulate,
    synthetic_datatree,
)

from pymc_tempering.evidence import pooled, read_run, rts
from pymc_tempering.evidence.rts import mixture_shares
from pymc_tempering.exceptions import NotTemperedError


@dataclass(frozen=True)
class WideToy:
    """x ~ N(0, 1) and exp(0.45 x^2): ten times the variance at beta = 1, so weights of draws of the
    reference have no variance."""

    steep: float = 0.45
    y: float = 0.0

    def sd(self, beta):
        return (1.0 - 2.0 * self.steep * np.asarray(beta)) ** -0.5

    def log_ratio(self, x):
        return self.steep * x**2

    def log_z(self, beta):
        return np.log(self.sd(beta))

    def reference_draw(self, n, rng):
        return rng.standard_normal(n)

    def explore(self, x, beta, rho, rng):
        return self.sd(beta) * rng.standard_normal(x.size)


def with_draws(run, toy, n, rng, spread=1.0):
    """Put n reference draws beside a run; with another spread they are not those of the law."""
    return replace(run, reference=toy.log_ratio(spread * toy.reference_draw(n, rng)))


@pytest.mark.parametrize("sizes", [(100, 1), (100, 5000)])
def test_the_equations_hold_for_any_weights_of_the_samples(sizes):
    """By quadrature, with log Z-hat that are off: C and each Z_k come out exact."""
    toy, offsets = TOYS["gauss"], LOG_WEIGHT - LOG_Z_LADDER
    x = np.linspace(-9.0, 9.0, 4001)
    density = np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi) * (x[1] - x[0])
    log_ratio = toy.log_ratio(x)
    shares = mixture_shares(log_ratio, BETAS, offsets, *sizes)
    rungs, reference = shares[:, :-1], shares[:, -1]
    path = np.exp(BETAS * log_ratio[:, None] + offsets).sum(axis=1) * density
    path /= path.sum()  # the law of the iterations
    c = (rungs.sum(axis=1) @ density) / (reference @ path)
    both = sizes[0] * c * (path @ rungs) + sizes[1] * (density @ rungs)
    np.testing.assert_allclose(np.log(both) - offsets, toy.log_z(BETAS), atol=1e-12)


def test_it_is_what_the_docstring_says():
    """One number after the other, in plain floats."""
    run = read_run(
        gaussian_run(40, 2, random_seed=3, reference_draws=50, log_z_ladder=LOG_Z_LADDER)
    )
    inside = run.pieces.used[run.piece]
    offsets = run.stats.log_weight - run.stats.log_z_ladder
    big, small = np.unique(run.pieces.tour[run.pieces.used]).size, run.reference.size

    def terms(d):
        f = [np.exp(b * d) for b in run.stats.beta]
        g = sum(np.exp(o) * each for o, each in zip(offsets, f, strict=True))
        return g, f, big * g + small

    draws = [terms(d) for d in run.reference]
    states = [terms(d) for d in run.trace.log_ratio[inside]]
    c = np.mean([g / h for g, _, h in draws]) / np.mean([1.0 / h for _, _, h in states])
    z = [
        big * c * np.mean([f[k] / h for _, f, h in states]) + sum(f[k] / h for _, f, h in draws)
        for k in range(len(offsets))
    ]
    np.testing.assert_allclose(pooled(run).log_z_curve, np.log(z), atol=1e-10)


@pytest.fixture(scope="module")
def wide():
    """Two hundred runs on the path to a wider law, with exact draws at each rung."""
    toy, n, chains, draws = WideToy(), 200, 2, 150
    ladder = (BETAS, toy.log_z(BETAS) + np.array([0.0, 0.1, -0.1, 0.2, -0.2]), LOG_WEIGHT)
    rng = np.random.default_rng(5)
    trace = simulate(
        toy, *ladder, draws=draws, n_chains=n * chains, rho=0.0, ladder_move="gibbs", rng=rng
    )
    sums = [cycle_sums(toy, *ladder, trace, c, draws) for c in range(n * chains)]
    return [
        read_run(synthetic_datatree(toy, *ladder, sums[i : i + chains]))
        for i in range(0, n * chains, chains)
    ]


@pytest.mark.slow("compiles models of its own")
def test_a_reference_that_is_too_thin_is_no_harm(wide):
    """Plain weights of the draws lie far below; the pooled estimate states its real error."""
    toy, rng = WideToy(), np.random.default_rng(8)
    runs = [with_draws(run, toy, 3000, rng) for run in wide]
    found = [pooled(run) for run in runs]
    exact = float(toy.log_z(1.0))
    assert not list(calibration_faults(found, exact, len(found)))
    plain = np.array([np.log(np.mean(np.exp(run.reference))) for run in runs])
    assert np.mean(plain < exact - 0.1) > 0.5


def test_it_is_more_precise_than_the_run_alone():
    toy, rng = TOYS["gauss"], np.random.default_rng(2)
    runs = repeated_runs(100)
    ours = [pooled(with_draws(run, toy, 3000, rng)) for run in runs]
    alone = [rts(run.stats) for run in runs]
    exact = float(toy.log_z(1.0))
    rmse = [np.sqrt(np.mean([(e.log_z - exact) ** 2 for e in es])) for es in (ours, alone)]
    assert rmse[0] < 0.7 * rmse[1]
    assert all(a.mcse < b.mcse for a, b in zip(ours, alone, strict=True))


@pytest.mark.slow("repeats", quick=["constant"])
@pytest.mark.parametrize("bug", ["law", "constant", "error"])
def test_calibration_sees_planted_bugs(bug):
    """Draws of another law; C = 1, as if log Z-hat were right; the error of the chains alone."""
    toy, rng = TOYS["gauss"], np.random.default_rng(11)
    runs = repeated_runs(120)
    n, spread = {"law": (3000, 1.1), "constant": (100, 1.0), "error": (20_000, 1.0)}[bug]
    runs = [with_draws(run, toy, n, rng, spread) for run in runs]
    found = [pooled(run) for run in runs]
    if bug == "error":
        found = [replace(e, mcse=e.details["chain_mcse"]) for e in found]
    if bug == "constant":
        found = [replace(e, log_z=with_unit_constant(r)) for e, r in zip(found, runs, strict=True)]
    assert list(calibration_faults(found, float(toy.log_z(1.0)), len(found)))


def with_unit_constant(run):
    """Sum f_K / h over both samples, as if the iterations had a normalized density."""
    offsets = run.stats.log_weight - run.stats.log_z_ladder
    inside = run.trace.log_ratio[run.pieces.used[run.piece]]
    sizes = np.unique(run.pieces.tour[run.pieces.used]).size, run.reference.size
    found = [
        size * mixture_shares(states, run.stats.beta, offsets, *sizes)[:, -2].mean()
        for size, states in zip(sizes, (inside, run.reference), strict=True)
    ]
    return float(np.log(sum(found)) - offsets[-1])


def test_the_verdict_is_that_of_the_run_alone():
    """One chain in four hangs in another place: the draws do not hide it."""
    runs = repeated_runs(2)
    rng = np.random.default_rng(1)
    for run in runs:
        ours, alone = pooled(with_draws(run, TOYS["gauss"], 500, rng)), rts(run.stats)
        assert ours.verdict == alone.verdict
        np.testing.assert_allclose(ours.per_chain, alone.per_chain, atol=1e-10)
        np.testing.assert_allclose(ours.halves, alone.halves, atol=1e-10)
        parts = [ours.details[name] for name in ("chain_mcse", "reference_mcse")]
        assert ours.mcse == pytest.approx(np.hypot(*parts))
    shifted = run.stats.rb_weight.copy()
    shifted[0, :, 0] *= 2.0
    stats = replace(run.stats, rb_weight=shifted)
    apart = pooled(replace(with_draws(run, TOYS["gauss"], 500, rng), stats=stats))
    assert rts(stats).verdict == apart.verdict == "disagreed"


def test_without_draws_it_says_what_to_do():
    with pytest.raises(NotTemperedError, match="reference_draws="):
        pooled(read_run(gaussian_run(30, 2)))
