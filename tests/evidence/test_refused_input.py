"""What estimators say of a run or of numbers that they cannot use."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from support.synthetic import gaussian_run

import pymc_tempering as pmt
from pymc_tempering.evidence import read_run


def run_with(**groups):
    """Return a short run with other groups."""
    idata = gaussian_run(draws=30, chains=2)
    kept = {name: group.to_dataset() for name, group in idata.children.items()}
    return xr.DataTree.from_dict(kept | groups)


def test_traces_of_fewer_chains():
    idata = gaussian_run(draws=30, chains=2)
    one = {"tempering_trace": idata["tempering_trace"].to_dataset().isel(chain=[0])}
    with pytest.raises(
        pmt.exceptions.NotTemperedError, match="trace has 1 chains and sample_stats 2"
    ):
        read_run(run_with(**one))


def test_a_ladder_of_no_rungs():
    stats = gaussian_run(draws=30, chains=2)["sample_stats"].to_dataset()
    flat = {"sample_stats": stats.assign(beta=stats["tour_start"].astype(float))}
    with pytest.raises(
        pmt.exceptions.NotTemperedError, match=r"sample_stats\['beta'\] has dimensions"
    ):
        pmt.log_marginal_likelihood(run_with(**flat), method="rts")


def test_a_tree_without_an_evidence():
    with pytest.raises(pmt.TemperingError, match=r"this DataTree has no group 'evidence'"):
        pmt.evidence.Evidence.from_datatree(xr.DataTree())


def test_equations_that_are_not_solved(monkeypatch):
    # The package has functions of the names of these modules.
    stopped = SimpleNamespace(converged=False, flag="too many steps")
    module = sys.modules["pymc_tempering.evidence.bar"]
    monkeypatch.setattr(module, "brentq", lambda *args, **kwargs: (0.0, stopped))
    with pytest.raises(pmt.exceptions.SolverError, match="was not solved: too many steps"):
        pmt.log_marginal_likelihood(gaussian_run(draws=30), method="bar")


def test_rungs_that_do_not_overlap(monkeypatch):
    module = sys.modules["pymc_tempering.evidence.bar"]
    monkeypatch.setattr(module, "newton", lambda equations, start: (start, np.zeros(4)))
    monkeypatch.setattr(module, "moments", lambda *args: (None, np.zeros((5, 5))))
    with pytest.raises(pmt.exceptions.SolverError, match="MBAR: the rungs do not overlap"):
        pmt.log_marginal_likelihood(gaussian_run(draws=200), method="mbar")


def test_ladders_and_draws_that_are_none():
    stats = gaussian_run(draws=30, chains=2)["sample_stats"].to_dataset()
    one = {dim: [0] for dim in stats.dims if dim not in ("chain", "draw")}
    for bad, message in (
        (stats.isel(one), "needs at least two finite inverse temperatures"),
        (stats.isel(draw=[]), "hold no draws"),
    ):
        with pytest.raises(pmt.TemperingError, match=message):
            pmt.log_marginal_likelihood(run_with(sample_stats=bad), method="rts")
