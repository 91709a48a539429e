"""NumPy's old RandomState is a seed like any other, however a function reads its seed."""

import numpy as np
import pytest
from support.small_runs import SHORT, mean_of_two

import pymc_tempering as pmt

FEW = {"progressbar": False}
DOORS = {
    "sample": lambda m, seed: pmt.sample(
        9, model=m, chains=2, reference="prior", quiet=True, random_seed=seed
    ).posterior["mu"].values,
    "SimulatedTempering": lambda m, seed: pmt.SimulatedTempering(
        model=m, reference="prior", random_seed=seed, **FEW
    ).plan.ladder.log_z,
    "smc": lambda m, seed: pmt.smc(
        m, n_particles=50, islands=10, random_seed=seed, **FEW
    ).log_z,
    "fit": lambda m, seed: pmt.fit(9, model=m, restarts=2, random_seed=seed, **FEW).hist,
    "sample_many": lambda m, seed: pmt.sample_many(
        m, {"a": {"y": [0.5, 1.0]}}, **SHORT | {"draws": 9, "random_seed": seed}
    )["log_z"].values,
}  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return mean_of_two()


@pytest.mark.slow("compiles models of its own", quick=["SimulatedTempering"])
@pytest.mark.filterwarnings("ignore::pymc_tempering.TemperingWarning")
@pytest.mark.parametrize("name", DOORS)
def test_an_old_generator_is_a_seed(name, model):
    first, again, other = (
        DOORS[name](model, np.random.RandomState(number)) for number in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.filterwarnings("ignore::pymc_tempering.TemperingWarning")
def test_two_calls_with_one_of_them_are_two_runs(model):
    rng = np.random.RandomState(1)
    first, other = (DOORS["sample"](model, rng) for _ in range(2))
    assert not np.array_equal(first, other)
