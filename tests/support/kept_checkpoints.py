"""Runs with a checkpoint of which every one that was written is kept, and comparison of runs."""

import shutil
import time
from contextlib import contextmanager

import numpy as np

import pymc_tempering as pmt
from pymc_tempering.chain import chains
from pymc_tempering.core import threads
from pymc_tempering.sampling.kept import CheckpointRecorder

DRAWS_BETWEEN = 300
DRAWN = (
    *("posterior", "sample_stats", "tempering_trace", "tempering_states", "tempering_reference"),
)


def run(model, path=None, **kwargs):
    """Make a small run on one core, with a checkpoint where there is a path."""
    return pmt.sample(
        model=model, checkpoint=path, **{"random_seed": 1, "cores": 1, "quiet": True} | kwargs
    )


def has_moved(self):
    """Whether chains have made more draws than these since the last checkpoint."""
    written = sum(draws for draws, *_ in self.written)
    return sum(one.state.n_draws for one in self.at.runs) - written > DRAWS_BETWEEN


def clock_after_a_sleep():
    """Read the clock late, so that another thread can look at the chains in the meantime."""
    time.sleep(0.006)
    return time.perf_counter()


@contextmanager
def short_chunks(monkeypatch):
    """Let chains pause for a checkpoint by their draws, in the middle of cycles."""
    with monkeypatch.context() as patch:
        patch.setattr(threads, "POLL_SECONDS", 0.005)
        patch.setattr(chains, "FIRST_CHUNK", 37)
        patch.setattr(chains, "CHUNK_SECONDS", 0.01)
        patch.setattr(chains, "MAX_CHUNK", 300)
        patch.setattr(chains, "perf_counter", clock_after_a_sleep)
        patch.setattr(CheckpointRecorder, "due", has_moved)
        yield patch


def run_and_keep_all(monkeypatch, folder, model, **kwargs):
    """Run with a checkpoint; return the run and a copy of the folder after each checkpoint."""
    path, copies, save = folder / "run.zarr", [], CheckpointRecorder._save

    def saving(self, job, standing):
        save(self, job, standing)
        copies.append(folder / f"{len(copies):03d}.zarr")
        shutil.copytree(path, copies[-1])

    with short_chunks(monkeypatch) as patch:
        patch.setattr(CheckpointRecorder, "_save", saving)
        idata = run(model, path, cores=4, **kwargs)
    return idata, copies


def assert_same(one, other):
    """Draws, statistics, traces and states of two runs have the same bits."""
    for group in DRAWN:
        assert (group in one.children) == (group in other.children)
        if group not in one.children:
            continue
        first, second = one[group].to_dataset(), other[group].to_dataset()
        assert set(first.data_vars) == set(second.data_vars)
        if group == "tempering_states":  # behind the last state of a chain there may be anything
            first = first.where(first["iteration"] >= 0)
            second = second.where(second["iteration"] >= 0)
        for name in first.data_vars:
            a, b = first[name], second[name]
            assert (a.dims, a.dtype, a.shape) == (b.dims, b.dtype, b.shape), name
            floats = a.dtype.kind == "f"
            np.testing.assert_array_equal(a.values, b.values, err_msg=f"{group} {name}")
            assert not floats or np.array_equal(np.signbit(a.values), np.signbit(b.values)), name
