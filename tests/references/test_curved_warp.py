"""A warp by curvature where the posterior is normal given the scale, and a fit by it."""

import numpy as np
import pytest

from pymc_tempering.references import curved_warp
from pymc_tempering.references.curved_fit import fit_by_curvature
from pymc_tempering.references.curved_warp import warp_by_curvature
from pymc_tempering.references.warp_fit import Effect

N_PERSONS, N_ITEMS, NOISE = 60, 40, 0.7


class Crossed:
    """Persons with an unknown scale (its log is first), items with sd 1, normal answers.

    Persons have no prior mean, or that of a coordinate `center`, the last one.
    """

    def __init__(self, n_each=4, *, center=False, seed=0):
        rng = np.random.default_rng(seed)
        self.person = np.repeat(np.arange(N_PERSONS), n_each)
        self.item = rng.integers(N_ITEMS, size=self.person.size)
        self.center = center
        self.dim = 1 + N_PERSONS + N_ITEMS + center
        self.y = rng.normal(size=self.person.size) + rng.normal(size=N_PERSONS)[self.person]
        design = np.zeros((self.y.size, self.dim - 1))
        design[np.arange(self.y.size), self.person] = 1.0
        design[np.arange(self.y.size), N_PERSONS + self.item] = 1.0
        self.design = design
        self.rows = [
            Effect(1 + i, 0, 1.0, 0.0, 0.0, (self.dim - 1,), np.array([0.0, 1.0]))
            if center else Effect(1 + i, 0, 1.0, 0.0, 0.0, (), np.zeros(1))
            for i in range(N_PERSONS)
        ]  # fmt: skip

    def prior_precision(self, s):
        precision = np.eye(self.dim - 1)
        tau = np.exp(-2 * s)
        persons = np.arange(N_PERSONS)
        precision[persons, persons] = tau
        if self.center:
            precision[persons, -1] = precision[-1, persons] = -tau
            precision[-1, -1] = 1.0 + N_PERSONS * tau
        return precision

    def law(self, s):
        """Precision and mean of all others given the scale."""
        precision = self.prior_precision(s) + self.design.T @ self.design / NOISE**2
        return precision, np.linalg.solve(precision, self.design.T @ self.y / NOISE**2)

    def terms(self, xs):
        values, slopes = np.empty((len(xs), 2)), np.zeros((len(xs), 2, self.dim))
        for x, value, slope in zip(xs, values, slopes, strict=True):
            s, rest = x[0], x[1:]
            precision = self.prior_precision(s)
            off = rest[:N_PERSONS] - (rest[-1] if self.center else 0.0)
            value[0] = -0.5 * rest @ precision @ rest - N_PERSONS * s - 0.5 * s**2
            slope[0, 1:] = -precision @ rest
            slope[0, 0] = np.exp(-2 * s) * off @ off - N_PERSONS - s
            left = self.y - self.design @ rest
            value[1] = -0.5 * left @ left / NOISE**2
            slope[1, 1:] = self.design.T @ left / NOISE**2
        return values, slopes

    def draws(self, n, s, spread=0.0, seed=1):
        rng = np.random.default_rng(seed)
        precision, mean = self.law(s)
        rest = rng.multivariate_normal(mean, np.linalg.inv(precision), n)
        return np.column_stack([s + spread * rng.normal(size=n), rest])

    def log_z(self):
        """Integral of the density over all coordinates."""
        logs = np.linspace(-6, 4, 2001)
        terms = []
        for s in logs:
            precision, mean = self.law(s)
            value = self.terms(np.append(s, mean)[None])[0].sum()
            half = 0.5 * np.linalg.slogdet(precision)[1]
            terms.append(value + 0.5 * (self.dim - 1) * np.log(2 * np.pi) - half)
        return np.logaddexp.reduce(terms) + np.log(logs[1] - logs[0])


def whitening(warp, x):
    """Rows of du / dx, and u, at a state, without the scale."""
    moved = x + np.vstack([np.zeros(x.size), 1e-5 * np.eye(x.size)[1:]])
    us = warp.forward(moved)[0][:, 1:]
    return ((us[1:] - us[0]) / 1e-5).T, us[0]


def distances(model, s, at):
    """Relative errors of the precision of u, and sizes of u at the mean, of a fit at `at`."""
    warp, _ = warp_by_curvature(model.rows, model.draws(50, at), lambda xs: model.terms(xs)[1])
    precision, mean = model.law(s)
    rows, u = whitening(warp, np.append(s, mean))
    size = np.sqrt(np.outer(np.diag(precision), np.diag(precision)))
    return np.abs((rows.T @ rows - precision) / size), np.abs(u)


@pytest.fixture
def keep_all(monkeypatch):
    monkeypatch.setattr(curved_warp, "MAX_LOSS", 1e-9)
    monkeypatch.setattr(curved_warp, "MAX_REGRESSORS", 1000)


@pytest.mark.usefixtures("keep_all")
@pytest.mark.parametrize("center", [False, True])
def test_at_its_scale_it_is_exact(center):
    off, u = distances(Crossed(center=center), -0.3, -0.3)
    assert off.max() < 0.02
    assert u[: N_PERSONS + N_ITEMS].max() < 0.02  # that of the center is told by its draws


@pytest.mark.usefixtures("keep_all")
@pytest.mark.parametrize("center", [False, True])
def test_it_follows_the_scale(center):
    """Persons do, given the others; what those are given does so nearly.

    The precision of another scale than that of the state would be off by .4 here.
    """
    off, u = distances(Crossed(center=center), 0.0, -0.3)
    assert off[:N_PERSONS, :N_PERSONS].max() < 0.02
    assert u[:N_PERSONS].max() < 0.1
    assert off[:N_PERSONS].max() < 0.02
    assert off[N_PERSONS:-1, N_PERSONS:-1].max() < 0.15


def test_what_is_left_out_costs_little():
    """Draws of the exact law are nearly standard normal in u."""
    model = Crossed()
    warp, _ = warp_by_curvature(model.rows, model.draws(50, -0.3), lambda xs: model.terms(xs)[1])
    us = warp.forward(model.draws(4000, -0.3, seed=2))[0][:, 1:]
    values = np.linalg.eigvalsh(np.cov(us, rowvar=False))
    loss = 0.5 * (values - 1.0 - np.log(values)).sum()
    assert loss < 2.0


@pytest.mark.slow("compiles models of its own", quick=["0.0-False"])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("shift", [0.0, -1.0])
def test_fit_has_the_evidence(center, shift):
    """From draws at the posterior, or at a scale far from it; the error of log Z is some .03."""
    model = Crossed(center=center)
    draws = model.draws(200, 0.1 + shift, spread=0.1)
    draws[:, 1:] += 0.5 * shift
    rng = np.random.default_rng(4)
    made, log_ratio = fit_by_curvature(draws, model.rows, model.terms, rng, rough=True)
    assert log_ratio.std() < 3.0
    xs = made.draw(4000, rng)
    log_w = model.terms(xs)[0].sum(axis=1) - np.logaddexp.reduce(made.log_t(xs), axis=1)
    log_z = np.logaddexp.reduce(log_w) - np.log(log_w.size)
    assert log_z == pytest.approx(model.log_z(), abs=0.2)
    assert made.curved
    assert not made.with_cluster(draws, 0.1).curved


def test_clusters_of_good_draws_are_no_single_mode():
    model = Crossed()
    both = np.concatenate([model.draws(300, 0.0), 8.0 + model.draws(300, 0.0)])
    both = np.random.default_rng(0).permutation(both)
    assert (
        fit_by_curvature(both, model.rows, model.terms, np.random.default_rng(1), rough=False)
        is None
    )


def test_without_curvature_there_is_no_fit():
    model = Crossed()

    def upside_down(xs):
        values, slopes = model.terms(xs)
        return -values, -slopes

    draws = model.draws(100, 0.0, spread=0.1)
    rng = np.random.default_rng(0)
    assert fit_by_curvature(draws, model.rows, upside_down, rng, rough=True) is None
