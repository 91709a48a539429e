"""The benchmark of real models: its formulas against other ways, and what its table calls right."""

import numpy as np
import pytest
from scipy import integrate, stats

from benchmarks import fresh_runs
from benchmarks.compare import real_models_table as tables
from benchmarks.models.real_models_list import all_models
from benchmarks.truths import real_models_exact as exact, real_models_integrals as integrals

MODELS = all_models()


# The initial point of an LKJ prior compiles a product, and PyTensor may find no BLAS for it.
@pytest.mark.slow("many kinds of models", quick=["one_mean"])
@pytest.mark.filterwarnings("ignore:(?s).*BLAS:UserWarning")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_as_many_parameters_as_its_row_says(name):
    model = MODELS[name].build()
    assert sum(np.size(value) for value in model.initial_point().values()) == MODELS[name].dim


def test_normal_sum_is_the_normal_law():
    rng = np.random.default_rng(1)
    X, y, sds = rng.normal(size=(7, 3)), rng.normal(size=7), np.array([0.5, 2.0, 1.0])
    covariance = X * sds**2 @ X.T + 0.49 * np.eye(7)
    law = stats.multivariate_normal(np.zeros(7), covariance)
    found = exact.NormalSum.of(X, y).log_density(sds, 0.7)
    assert found == pytest.approx(law.logpdf(y), abs=1e-9)
    assert abs(exact.NormalSum.of(X, y).log_density(sds, 0.8) - law.logpdf(y)) > 1e-3


def test_quadrature_over_scales():
    def density(a, b):
        return exact.half_cauchy(a, 2.0) + exact.half_normal(b, 0.3)

    log_z, error = exact.over_scales(density, [(1e-12, 1e12), (1e-12, 100.0)], 192)
    assert abs(log_z) < 1e-6
    assert error < 1e-4
    cut, error = exact.over_scales(density, [(1e-12, 1e12), (0.1, 100.0)], 192)
    assert cut < -0.2  # a box that is too small is told by its error
    assert error > 1e-3


def test_importance_sampling_knows_its_error():
    """|z| < 4 of one run: false alarms in 6 of 100,000 seeds."""
    covariance = np.array([[2.0, 0.9, 0.0], [0.9, 1.0, 0.3], [0.0, 0.3, 0.5]])
    law = stats.multivariate_normal(np.ones(3), covariance)
    log_z, error = integrals.by_importance(
        lambda x: np.atleast_1d(law.logpdf(x)) + 5.0, np.zeros(3), 4000
    )
    assert abs(log_z - 5.0) < 4.0 * error < 0.1


@pytest.mark.slow("compiles models of its own")
def test_counts_with_effects():
    """One row: the slope, the effect and its scale by quadrature; |z| < 4."""

    def density(u, b, log_s):
        s = np.exp(log_s)
        prior = stats.norm.pdf(b, 0, 2.5) * stats.norm.pdf(u) * 2 * stats.norm.pdf(s) * s
        return prior * stats.poisson.pmf(3, np.exp(b + s * u))

    grid = [np.linspace(*edges) for edges in ((-8, 8, 121), (-14, 14, 161), (-12, 2, 141))]
    values = density(*np.meshgrid(*grid, indexing="ij"))
    for axis in grid:
        values = integrate.trapezoid(values, axis, axis=0)
    log_z, error = integrals.poisson_with_effects(np.ones((1, 1)), np.array([3]), 2.5, 1.0)
    assert abs(log_z - np.log(values)) < 4.0 * error < 0.1


@pytest.mark.slow("compiles models of its own")
def test_counts_of_a_field_at_one_place():
    """|z| < 4: the length does not matter, the value has variance height^2 + 4."""

    def density(g, height):
        sd = np.sqrt(height**2 + 4.0 + 1e-6)
        return 2 * stats.norm.pdf(height, 0, 2) * stats.norm.pdf(g, 0, sd) * stats.poisson.pmf(
            2, np.exp(g)
        )  # fmt: skip

    grid = [np.linspace(-30, 6, 1441), np.linspace(0, 16, 321)]
    values = integrate.trapezoid(density(*np.meshgrid(*grid, indexing="ij")), grid[0], axis=0)
    log_z, error = integrals.poisson_field(np.zeros(1), np.array([2]))
    assert abs(log_z - np.log(integrate.trapezoid(values, grid[1]))) < 4.0 * error < 0.1


def run(model="schools", method="tempering", seed=1, **changes):
    line = {"model": model, "method": method, "seed": seed, "status": "done", "log_z": "-31.31",
            "mcse": "0.01", "verdict": "ok", "cpu": "1.0", "ess": "2000", "rhat": "1.001",
            "warnings": "[]"}  # fmt: skip
    return line | changes


TRUTH = [run(method="exact", log_z="-31.3113", mcse="1e-9")]


def test_the_truth_is_a_formula_or_two_methods_that_agree():
    assert tables.chosen_truth(TRUTH)[2] == "exact"
    two = [run(method="a", log_z="1.00", mcse="0.02"), run(method="b", log_z="1.05", mcse="0.03")]
    assert tables.chosen_truth(two) == (1.0, 0.02, "a, b")
    assert tables.chosen_truth(two[:1])[2] == "a?"
    far = [two[0], run(method="b", log_z="2.00", mcse="0.03")]
    assert tables.chosen_truth(far) == (1.0, 1.0, "a?")
    assert tables.chosen_truth([])[2] == "none"


def test_an_answer_far_off_is_told_unless_it_warned():
    far = run(log_z="-31.20")
    assert (
        "schools seed 1"
        in tables.judge([far], TRUTH)["tuned: off by more than 4 errors without a warning"]
    )
    for changes in ({"verdict": "unchecked"}, {"warnings": '["few tours"]'}, {"mcse": "0.1"}):
        said = tables.judge([far | changes], TRUTH)
        assert said["tuned: off by more than 4 errors without a warning"] == "none"


def test_a_right_answer_that_warns_is_counted():
    said = tables.judge([run(), run(seed=2, verdict="unchecked")], TRUTH)
    assert said["tuned: right answers with a warning"] == "1 of 2: schools seed 2"


@pytest.mark.parametrize(
    ("ours", "bridge", "slow"),
    [
        ({"cpu": "4.9"}, {}, False),
        ({"cpu": "5.1"}, {}, True),
        ({"cpu": "4.9", "mcse": "0.019"}, {}, False),
        ({"cpu": "4.9", "mcse": "0.022"}, {}, True),
        ({"status": "over 600 CPU s in fit"}, {}, True),
        ({"cpu": "5.1"}, {"rhat": "1.02"}, False),
        ({"cpu": "5.1"}, {"log_z": "-31.20"}, False),
        ({"cpu": "5.1"}, {"verdict": "unchecked"}, False),
    ],
)
def test_slow_is_what_takes_five_times_as_long_as_a_bridge_that_is_right(ours, bridge, slow):
    runs = [run(**ours), run(method="nuts_bridge", **bridge)]
    said = tables.judge(runs, TRUTH)["tuned: ratio above 5"]
    assert said.startswith("1" if slow else "0")


def test_the_place_where_a_run_was_ended():
    signal = (
        "Fatal Python error: CPU\n\nCurrent thread 0x7f (most recent call first):\n"
        '  File "/a/pymc_tempering/chain/particles.py", line 3 in sweep\n'
        '  File "/a/pymc_tempering/warmup/annealed_pass.py", line 9 in anneal\n'
    )
    raised = (
        "Traceback (most recent call last):\n"
        '  File "/a/pymc_tempering/warmup/annealed_pass.py", line 9, in anneal\n    x\n'
        '  File "/a/pymc_tempering/chain/particles.py", line 3, in sweep\n    y\nValueError: no\n'
    )
    place = "chain/particles:sweep < warmup/annealed_pass:anneal"
    assert fresh_runs.place_of(signal) == fresh_runs.place_of(raised) == place
