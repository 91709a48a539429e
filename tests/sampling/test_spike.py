"""A first-order transition: who met the spike must not be told a confident wrong number.

A needle that no chain meets nobody can see. But where some chain has met it, and its estimate is
off by more than four of its stated errors, it must carry a warning.
"""

from functools import cache

import numpy as np
import pytest

import pymc_tempering as pmt
from pymc_tempering.evidence.estimators import estimate_quietly

SPIKE_SCALE = 0.05
N_RUNS = 8


@cache
def runs():
    """Evidence, how far it is off, and share of draws in the spike of several short runs."""
    spike = pmt.testsystems.spike(dim=2, spike_scale=SPIKE_SCALE)
    out = []
    for seed in range(N_RUNS):
        idata = pmt.sample(
            400, model=spike.model, random_seed=100 + seed, quiet=True, cores=1, reference="prior"
        )
        evidence = estimate_quietly(idata)
        distance = ((idata.posterior["x"].values - spike.mode_centers[1]) ** 2).sum(axis=-1)
        share = (distance < (4 * SPIKE_SCALE) ** 2).mean()
        out.append((evidence, evidence.log_z - spike.log_evidence, share))
    return out


@pytest.mark.slow("compiles models of its own")
def test_some_runs_meet_the_spike_and_are_off():
    """Without this the next test would test nothing."""
    met = [off for _, off, share in runs() if share > 0.02]
    assert len(met) >= N_RUNS // 2
    assert max(np.abs(met)) > 0.5


@pytest.mark.slow("compiles models of its own")
def test_no_run_that_met_the_spike_is_off_without_a_warning():
    confident = [
        (round(off, 2), round(share, 2))
        for evidence, off, share in runs()
        if share > 0.02 and abs(off) > 4.0 * evidence.mcse and not evidence.warnings
    ]
    assert confident == []
