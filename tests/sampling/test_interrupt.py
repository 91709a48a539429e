"""Ctrl-C during `pmt.sample` returns the draws so far, and their cycles and tours are whole."""

import _thread
import threading

import numpy as np
import pytest
from support.compiled_systems import system
from support.gaussian_path import recount

import pymc_tempering as pmt
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.sampling import rounds, search as searching

SOME = 60
"""Draws that each chain has when the interrupt comes; the tests ask for 40 and 50."""


def long_run(draws=100_000, **kwargs):
    return pmt.sample(
        draws, model=system("gaussian").model, random_seed=1, chains=2,
        progressbar=False, compute_convergence_checks=False,
        **{"quiet": True, "reference": "prior"} | kwargs,
    )  # fmt: skip


def interrupt_after(monkeypatch, seconds):
    """Send the signal from another thread, as a terminal would, once all chains have some draws."""
    original = rounds.run_chains

    def with_timer(plan, runs, *args, **kwargs):
        ended = threading.Event()

        def send():
            ended.wait(seconds)
            while not ended.is_set() and min(run.state.n_draws for run in runs) < SOME:
                ended.wait(0.01)
            if not ended.is_set():
                _thread.interrupt_main()

        threading.Thread(target=send, daemon=True).start()
        try:
            return original(plan, runs, *args, **kwargs)
        finally:
            ended.set()

    monkeypatch.setattr(rounds, "run_chains", with_timer)


def assert_whole(idata):
    """Cycles and tours are those recounted from the flat trace."""
    cycles = read_cycles(idata)
    ladder = Ladder(cycles.beta, cycles.log_z_ladder, cycles.log_weight)
    for chain in range(cycles.n_chains):
        trace = idata["tempering_trace"].to_dataset().isel(chain=chain)
        n = int(cycles.tempering_steps[chain].sum())
        assert (trace["rung"].values[:n] >= 0).all()
        expected = recount(ladder, trace["log_ratio"].values[:n], trace["rung"].values[:n])
        assert len(expected) == cycles.n_draws
        for i, (sums, steps, tour_start, *_) in enumerate(expected):
            assert cycles.tour_start[chain, i] == tour_start
            assert cycles.tempering_steps[chain, i] == steps
            np.testing.assert_allclose(cycles.rb_weight[chain, i], sums["rb_weight"])
            np.testing.assert_allclose(cycles.rb_weight_head[chain, i], sums["rb_weight_head"])


@pytest.mark.slow("compiles models of its own")
def test_an_interrupt_gives_the_draws_so_far_with_whole_tours(monkeypatch):
    interrupt_after(monkeypatch, 0.15)
    with pytest.warns(pmt.TemperingWarning, match=r"Interrupted: .* of 100000 draws"):
        idata = long_run(cores=2)
    n = idata.posterior.sizes["draw"]
    assert 50 < n < 100_000
    assert np.isfinite(idata.posterior["x"].values).all()
    assert_whole(idata.isel(draw=slice(0, 400)))
    # |z| < 4: false alarm 6e-5
    evidence = pmt.log_marginal_likelihood(idata)
    assert abs(evidence.log_z - system("gaussian").log_evidence) < 4.0 * evidence.mcse


def interrupt_at_look(monkeypatch, number):
    """Interrupt when the main thread looks at the chains for the given time."""
    looks = []

    def look(runs):
        looks.append(1)
        if len(looks) == number:
            raise KeyboardInterrupt
        return []

    monkeypatch.setattr("pymc_tempering.chain.chains.hanging_chains", look)


def test_chains_of_unequal_length_are_cut_to_whole_cycles(monkeypatch):
    interrupt_at_look(monkeypatch, 2)
    with pytest.warns(pmt.TemperingWarning, match="Interrupted"):
        idata = long_run(tune=5, cores=1)
    assert idata.posterior.sizes["draw"] >= 50
    assert_whole(idata.isel(draw=slice(0, 400)))


def test_an_interrupt_before_the_first_draw_goes_through(monkeypatch):
    def not_yet(plan, run, n_draws, stop):
        stop.wait()

    interrupt_at_look(monkeypatch, 1)
    monkeypatch.setattr("pymc_tempering.chain.chains.advance_chain", not_yet)
    with pytest.raises(KeyboardInterrupt, match="before the first draw"):
        long_run()


def test_the_same_draws_come_first_with_or_without_the_interrupt(monkeypatch):
    whole = long_run(draws=40)
    interrupt_after(monkeypatch, 0.1)
    with pytest.warns(pmt.TemperingWarning, match="Interrupted"):
        part = long_run(cores=2)
    np.testing.assert_array_equal(part.posterior["x"].values[:, :40], whole.posterior["x"].values)


@pytest.mark.slow("compiles models of its own")
def test_an_interrupt_of_the_search_gives_a_short_unchecked_run(monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(searching, "take_looks", interrupted)
    with pytest.warns(
        pmt.TemperingWarning, match=r"Interrupted before the search .* of 1000000 draws"
    ):
        idata = long_run(10**6, reference="auto", keep=None)
    assert 4 <= idata.posterior.sizes["draw"] < 10**6
    assert idata["tempering"].attrs["reference"] == "fitted"
    assert "tempering_check" not in idata.children
    with pytest.warns(pmt.TemperingWarning, match="No looks .* 100 were asked for"):
        evidence = pmt.log_marginal_likelihood(idata)
    assert evidence.verdict == evidence.check.verdict == "unchecked"
    assert abs(evidence.log_z - system("gaussian").log_evidence) < 4.0 * evidence.mcse


def test_a_short_run_after_an_interrupt_of_the_search_ends_at_its_draws(monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(searching, "take_looks", interrupted)
    with pytest.warns(pmt.TemperingWarning, match="Interrupted"):
        idata = long_run(30, reference="auto", cores=1)
    assert idata.posterior.sizes["draw"] == 30
