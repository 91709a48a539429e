"""A run that could go on for days ends before its chains hold too much."""

import warnings

import pytest
from support.small_models import mean_only

import pymc_tempering as pmt
from pymc_tempering.sampling import recorded, rounds


def test_rounds_end_where_the_next_would_hold_too_much(monkeypatch):
    seen = []

    def limit(runs, draws):
        seen.append((runs, draws))
        return recorded.too_large(runs, draws)

    monkeypatch.setattr(rounds, "too_large", limit)
    monkeypatch.setattr(recorded, "MOST_HELD", 400_000.0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        idata = pmt.sample(
            100, model=mean_only(), random_seed=1, quiet=True, target_mcse=1e-9, cores=1, chains=2
        )
    [words] = [str(one.message) for one in said if "hold" in str(one.message)]
    runs, draws = seen[-1]
    assert idata.posterior.sizes["draw"] == draws
    assert f"The run ends at {draws} draws of each chain" in words
    # What was foreseen for these draws is what they hold.
    rows = [
        array for run in runs for array in (run.record.x, run.record.per_rung, run.record.scalars)
    ]
    trace = [array for run in runs for part in run.trace for array in part]
    held = sum(array.nbytes for array in (*rows, *trace))
    assert recorded.bytes_held(runs, draws) == pytest.approx(held)
    assert held <= 400_000.0 < 2 * held
