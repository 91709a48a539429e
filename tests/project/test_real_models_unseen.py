"""The unseen real models: the integrands of their formulas are the densities of the models."""

import numpy as np
import pytest
from scipy import integrate, stats

from benchmarks.models.real_models_list import all_models
from benchmarks.truths import (
    real_models_integrals as integrals,
    real_models_unseen_lines as lines,
    real_models_unseen_marginals as marginals,
    real_models_unseen_truths as truths,
)
from benchmarks.truths.real_models_exact import NormalSum, half_normal, over_scales

MODELS = all_models()

EXPLICIT = {
    "remissions": ("b", "shape"),
    "stacks": ("level", "b", "phi", "sigma"),
    "attitudes": ("cut", "b"),
    "diabetes": ("b", "scale", "sigma"),
    "lynx": ("c", "phi", "sigma", "nu"),
    "two_lines": ("w", "a", "b", "sigma"),
}
"""Models whose formula sums nothing out, and the order of its coordinates."""


ORDERINGS = {"attitudes": np.log(24.0)}
"""Log of what normalizes an ordered prior, which PyMC's density leaves out."""


class FoundError(Exception):
    """Ends a formula once its integrand is known."""


@pytest.mark.parametrize("name", EXPLICIT)
def test_an_integrand_is_the_density_of_its_model(name, monkeypatch):
    found = {}

    def catch(smooth, start, *args, **kwargs):
        found["f"], found["x"] = smooth, start
        raise FoundError

    monkeypatch.setattr(truths, "by_importance", catch)
    monkeypatch.setattr(marginals, "by_importance", catch)
    with pytest.raises(FoundError):
        MODELS[name].exact()
    x = found["x"] + 0.2 * np.random.default_rng(1).normal(size=found["x"].size)
    model, at, point = MODELS[name].build(), 0, {}
    initial = model.initial_point()
    for variable in EXPLICIT[name]:
        value = model.rvs_to_values[model[variable]].name
        size = np.size(initial[value])
        point[value] = x[at : at + size].reshape(np.shape(initial[value]))
        at += size
    density = model.compile_logp(mode="FAST_COMPILE")(point) + ORDERINGS.get(name, 0.0)
    assert found["f"](x[None])[0] == pytest.approx(float(density), abs=1e-5)
    assert abs(found["f"](x[None] + 1e-3)[0] - float(density)) > 1e-4


def test_lines_of_stores_are_a_normal_sum():
    rng = np.random.default_rng(2)
    store, x, y = np.repeat([0, 1, 2], 3), rng.normal(size=9), rng.normal(size=9)
    groups = np.eye(3)[store]
    X = np.column_stack([np.ones(9), x, groups, groups * x[:, None]])

    law = NormalSum.of(X, y)
    for first, second, sigma in ((0.3, 0.7, 0.5), (2.0, 0.1, 1.5)):
        sds = np.r_[5.0, 5.0, np.full(3, first), np.full(3, second)]
        found = lines.law_of_stores(store, x, y)(first, second, sigma)
        assert found == pytest.approx(law.log_density(sds, sigma), abs=1e-9)


def test_counts_of_a_field_that_is_exposed():
    """|z| < 4 of one place: the rate times 3."""
    grid = np.linspace(-12, 8, 4001)
    density = stats.norm.pdf(grid) * stats.poisson.pmf(2, 3.0 * np.exp(grid))
    rng = np.random.default_rng(3)
    found = integrals.counts_of_field(np.eye(1), np.array([2]), 4000, rng, np.array([3.0]))
    assert found == pytest.approx(np.log(integrate.trapezoid(density, grid)), abs=0.01)


def test_a_bend_whose_place_does_not_matter():
    """Rows far below the bend: a line, whose level and slope the normal law sums out."""
    x = np.array([-5.0, -4.0, -3.5, -3.0])
    y = np.array([0.3, 0.1, -0.2, 0.4])
    places = np.linspace(-1.3, 1.1, 25)

    def log_joint(place, sigma):
        law = NormalSum.of(np.column_stack([np.ones(4), x - place]), y)
        return law.log_density(np.full(2, 2.0), sigma) + half_normal(sigma, 0.5)

    values = [over_scales(lambda s, c=c: log_joint(c, s), [(1e-3, 10.0)], 60)[0] for c in places]
    expected = np.log(integrate.trapezoid(np.exp(values), places) / 2.4)
    assert lines.bend(x, y, 60)[0] == pytest.approx(expected, abs=1e-3)
