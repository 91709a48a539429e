"""What a density over arrays is refused for, each in words that name the fault."""

import sys
from pathlib import Path

import numpy as np
import pytest

import pymc_tempering as pmt
from pymc_tempering.arrays import ArrayDensity, array_annealing, temper
from pymc_tempering.arrays.array_density import check_density, normalization_fault

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from rbm_density import BernoulliReference


def draw(n, rng):
    return rng.standard_normal((n, 2))


def log_ratio(x):
    return -np.sum(x**2, axis=1)


def move(x, beta, rng):
    return rng.standard_normal(x.shape) / np.sqrt(1 + 2 * beta[:, None])


def in_place(x, beta, rng):
    x[:] = 0.0
    return x


def flip_in_place(x, beta, rng):
    x *= -1.0
    return x.copy()


BUFFER = np.zeros((64, 2))


def pooled(n, rng):
    BUFFER[:n] = rng.standard_normal((n, 2))
    return BUFFER[:n]


FAULTS = {
    "a draw of another length": (
        {"reference_draw": lambda n, rng: draw(n + 1, rng)}, "states along",
    ),
    "draws of two types": (
        {"reference_draw": lambda n, rng: draw(n, rng).astype("f4" if n < 64 else "f8")},
        "gives float64 of shape .* and float32",
    ),
    "a draw that is a list": ({"reference_draw": lambda n, rng: [[0.0]] * n}, "NumPy array"),
    "a draw of text": ({"reference_draw": lambda n, rng: np.full((n, 2), "a")}, "NumPy array"),
    "a draw with NaN": ({"reference_draw": lambda n, rng: np.full((n, 2), np.nan)}, "NaN"),
    "a draw from a pool": ({"reference_draw": pooled}, "same memory twice"),
    "a ratio a coordinate": ({"log_ratio": lambda x: -(x**2)}, "one number a state"),
    "a ratio of whole numbers": ({"log_ratio": lambda x: np.zeros(len(x), int)}, "floats of shape"),
    "a ratio of NaN": ({"log_ratio": lambda x: np.full(len(x), np.nan)}, "log_ratio is nan"),
    "a ratio of infinity": ({"log_ratio": lambda x: np.full(len(x), np.inf)}, "log_ratio is inf"),
    "no density anywhere": ({"log_ratio": lambda x: np.full(len(x), -np.inf)}, "cannot be entered"),
    "a ratio that mixes chains": (
        {"log_ratio": lambda x: log_ratio(x) + np.arange(len(x))}, "mixes chains",
    ),
    "a ratio that writes": ({"log_ratio": lambda x: np.exp(x, out=x)[:, 0]}, "log_ratio changes"),
    "a move in place": ({"move": in_place}, "move changes the states"),
    "a move that spoils its input": ({"move": flip_in_place}, "move changes the states"),
    "a move of another shape": (
        {"move": lambda x, beta, rng: x[:, :1].copy()}, "both have to stay",
    ),
    "a move of another type": (
        {"move": lambda x, beta, rng: x.astype(np.float32)}, "both have to stay",
    ),
    "a move to NaN": ({"move": lambda x, beta, rng: x * np.nan}, "NaN or infinite"),
    "a move with a wrong ratio": (
        {"move": lambda x, beta, rng: (x + 1.0, log_ratio(x))}, "of the state that it returns",
    ),
    "a reference that is not normalized": (
        {"log_reference": lambda x: -0.5 * np.sum(x**2, axis=1)}, "is not normalized",
    ),
    "a reference density of NaN": ({"log_reference": lambda x: x[:, 0] * np.nan}, "finite numbers"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_refused_before_work_starts(fault):
    functions, words = FAULTS[fault]
    good = {"reference_draw": draw, "log_ratio": log_ratio, "move": move, "reversible": True}
    bad = ArrayDensity(**good | functions)
    with np.errstate(all="ignore"), pytest.raises(pmt.TemperingError, match=words):
        temper(bad, 10, random_seed=1)


def test_a_good_density_passes_and_a_reversal_is_tried_where_it_is_needed():
    def normal(x):
        return -0.5 * np.sum(x**2, axis=1) - np.log(2 * np.pi)

    rng = np.random.default_rng(1)
    check_density(ArrayDensity(draw, log_ratio, move, move, log_reference=normal), rng, down=True)
    bad = ArrayDensity(draw, log_ratio, move, in_place)
    check_density(bad, rng)
    with pytest.raises(pmt.exceptions.KernelError, match="reverse_move changes"):
        check_density(bad, rng, down=True)


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        ({"move": None}, "move must be a function"),
        ({"reverse_move": 1}, "reverse_move must be a function"),
        ({"reverse_move": move, "reversible": True}, "give one of the two"),
    ],
)
def test_what_is_no_density_is_refused_at_once(functions, words):
    good = {"reference_draw": draw, "log_ratio": log_ratio, "move": move}
    with pytest.raises(pmt.exceptions.ArgumentError, match=words):
        ArrayDensity(**good | functions)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"chains": 19}, "chains must be"),
        ({"sweeps": 0}, "sweeps must be"),
        ({"betas": [0.0, 0.5]}, "beta = 1"),
        ({"betas": 1}, "betas must be"),
        ({"ladder_move": "up"}, "ladder_move must be"),
    ],
)
def test_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        temper(ArrayDensity(draw, log_ratio, move), **settings)


def test_states_that_are_none_are_refused():
    ways = pmt.arrays.annealing(ArrayDensity(draw, log_ratio, move, reversible=True), [0.0, 1.0])
    with pytest.raises(pmt.exceptions.ArgumentError, match="states have shape"):
        ways.reverse_ais(np.zeros((30, 3)))


def test_the_check_of_a_normalization_has_few_false_alarms():
    """At five standard errors one in two million; here none of 50, of 30 bits or two normals."""
    law = BernoulliReference(np.linspace(0.1, 0.9, 30))
    rng = np.random.default_rng(1)
    assert not any(normalization_fault(law.draw, law.log_density, rng) for _ in range(50))
    assert normalization_fault(law.draw, lambda x: law.log_density(x) + 0.1, rng)
    other = BernoulliReference(np.linspace(0.15, 0.85, 30))
    assert normalization_fault(law.draw, other.log_density, rng)


def test_states_of_density_zero_and_what_is_no_density_are_refused():
    walled = ArrayDensity(
        draw, lambda x: np.where(x[:, 0] > 50.0, -np.inf, log_ratio(x)), move, reversible=True
    )
    ways = pmt.arrays.annealing(walled, 5, random_seed=1)
    with pytest.raises(
        pmt.exceptions.LikelihoodError, match=r"50\.0% of the states given have density zero"
    ):
        ways.reverse_ais(np.array([[0.0, 0.0], [60.0, 0.0]]), random_seed=1)
    with pytest.raises(pmt.exceptions.ArgumentError, match="expected an ArrayDensity, not str"):
        temper("normal")


def test_a_path_without_an_entry_or_an_end(monkeypatch):
    rng = np.random.default_rng(0)
    closed = ArrayDensity(draw, lambda x: np.full(len(x), -np.inf), move)
    with pytest.raises(pmt.exceptions.LikelihoodError, match="minus infinity at all 64 draws"):
        array_annealing.anneal_arrays(closed, 64, rng)
    monkeypatch.setattr(array_annealing, "MAX_STAGES", 0)
    with pytest.raises(
        pmt.exceptions.LikelihoodError, match="the reference is too far from the density"
    ):
        array_annealing.anneal_arrays(ArrayDensity(draw, log_ratio, move), 64, rng)
