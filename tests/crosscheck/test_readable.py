"""A cross-check that can be read: what confirms nothing says so, and the rest is folded."""

import io
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from rich.console import Console
from support.exact_posteriors import posterior_tree
from support.synthetic import gaussian_run

import pymc_tempering as pmt
from pymc_tempering.annealed.schedule import Annealing, compile_movers
from pymc_tempering.annealed.smc import smc_with_ends
from pymc_tempering.core import status
from pymc_tempering.crosscheck.judge import DrawCheck, Entry, judge
from pymc_tempering.crosscheck.registry import unfit_methods
from pymc_tempering.crosscheck.result import assemble, read_cross_check, to_dataset
from pymc_tempering.evidence import ESTIMATORS, Evidence
from pymc_tempering.evidence.estimators import OWN, POSTERIOR, RUN


def entry(method, log_z, mcse, draws=OWN, repeats="", **more):
    evidence = Evidence(log_z, mcse, method, more.pop("verdict", "ok"), **more)
    return Entry(method, evidence, draws, repeats)


RTS = entry("rts", 0.0, 0.01, RUN)


def test_an_error_above_a_nat_confirms_nothing():
    found = judge([RTS, entry("ti", 30.0, 45.0, RUN), entry("ais", 0.0, 1.001)])
    assert found.agreement == {"rts": "", "ti": "too wide", "ais": "too wide"}
    assert found.agrees == {"rts": None, "ti": None, "ais": None}
    assert found.verdict == "unchecked"
    near = judge([RTS, entry("ais", 0.0, 0.99)])
    assert (near.verdict, near.agreement["ais"]) == ("agree", "yes")
    # It can still contradict, and is never what the others are held against.
    assert judge([RTS, entry("ti", 30.0, 1.5, RUN)]).agreement["ti"] == "NO"
    both = judge([entry("rts", 3.0, 2.0, RUN), entry("ais", 0.0, 0.1), entry("smc", 0.0, 0.1)])
    assert (both.reference, both.believe) == ("ais", "ais")
    words = assemble([RTS, entry("ti", 30.0, 45.0, RUN)]).words
    assert "An error above a nat confirms nothing: ti." in words


def test_a_bias_counts_once():
    # "ti" states a sampling error of 0.01, a bias of 0.1, and the root of both squares as mcse.
    def ti(log_z):
        details = {"sampling_mcse": 0.01}
        return entry("ti", log_z, np.hypot(0.01, 0.1), RUN, bias=0.1, details=details)

    assert ti(0.0).error == pytest.approx(np.hypot(0.01, 0.1))
    # Subtracted and in the error as well, a difference of 0.4 had a z of 2.7 and would agree.
    assert judge([RTS, ti(0.4)]).verdict == "disagree"
    assert judge([RTS, ti(0.2)]).verdict == "agree"


def test_what_is_made_of_the_sums_of_rts_is_no_check_of_it():
    rows = [RTS, entry("ti_rb", 5.0, 5.0, RUN, "rts", bias=5.0)]
    found = judge(rows)
    assert found.agreement["ti_rb"] == "as rts"
    assert (found.verdict, found.worst) == ("unchecked", None)
    # Without RTS it stands for itself.
    assert judge([rows[1], entry("ais", 0.0, 0.1)]).agreement["ti_rb"] == "too wide"
    repeats = {name for name, row in ESTIMATORS.items() if row.repeats}
    assert repeats == {"ti_rb", "ti_corrected_rb"}


def planted_run(nats):
    """A run whose Rao-Blackwellized sums of log_ratio are so many nats off."""
    run = gaussian_run(400, random_seed=2)
    stats = run["sample_stats"].to_dataset()
    added = nats * stats["rb_weight"].values
    sums = stats["rb_log_ratio_sum"]
    run["sample_stats"].dataset = stats.assign(rb_log_ratio_sum=(sums.dims, sums.values + added))
    return run


@pytest.mark.parametrize("nats", [0.5, 5.0])
def test_nats_planted_in_the_sums_do_not_agree(nats):
    methods = ["rts", "counts", "bar", "ti_rb"]
    check = pmt.cross_check(planted_run(nats), methods=methods)
    assert check.table.loc["ti_rb", "mcse"] > nats - 0.3  # the rule itself is off by -0.24
    assert check.table.loc["ti_rb", "agreement"] == "as rts"
    # The planted bug: a row that does not say whose sums they are.
    with patch.dict(ESTIMATORS, ti_rb=replace(ESTIMATORS["ti_rb"], repeats="")):
        blind = pmt.cross_check(planted_run(nats), methods=methods)
    assert blind.table.loc["ti_rb", "agreement"] == ("yes" if nats < 1.0 else "too wide")
    assert check.table["agrees"].isna().tolist() == [False, False, False, True]
    assert "4 estimates" not in check.words


LOW, HIGH = {"bias_direction": "below"}, {"bias_direction": "above"}


def test_bounds_that_cross_beyond_their_errors_disagree():
    many = [entry(f"m{i}", 0.0, 0.01, POSTERIOR) for i in range(20)]
    # 3.5 errors: too little for one of 276 pairs, too much for bounds.
    bounds = [entry("lower", 0.025, 0.01, **LOW), entry("upper", -0.025, 0.0102, POSTERIOR, **HIGH)]
    found = judge([RTS, *many, *bounds])
    assert (found.verdict, found.worst[:2]) == ("disagree", ("lower", "upper"))
    with patch("pymc_tempering.crosscheck.judge.ALPHA_BOUNDS", 0.0):  # the planted bug
        assert judge([RTS, *many, *bounds]).verdict == "agree"
    words = assemble([RTS, *many, *bounds]).words
    assert "meet" not in words
    assert "cross beyond their errors" in words
    apart = [bounds[0], replace(bounds[1], evidence=replace(bounds[1].evidence, log_z=0.01))]
    assert judge([RTS, *many, *apart]).verdict == "agree"


def looked(share, verdict):
    return DrawCheck(5000, 3000.0, 0.99, share, 0.005, 1e-9, verdict, "smc")


def check_with(draws=None):
    entries = [
        RTS,
        entry("ti", 20.0, 30.0, RUN, warnings=("It is far off.",)),
        entry("counts", 0.01, 0.02, RUN),
        entry("bridge_sampling", 0.0, 0.01, POSTERIOR),
        entry("smc", 0.0, 0.03, **LOW),
        entry("ais", 0.0, 0.02, **LOW),
    ]
    return assemble(entries, {"hais": "not wanted"}, draws)


def test_independent_methods_come_first_and_the_rest_is_folded():
    check = check_with()
    assert list(check.table.index)[:3] == ["rts", "smc", "ais"]
    text = repr(check)
    shown = [line.split()[0] for line in text.splitlines()[2:5]]
    assert shown == ["rts", "smc", "ais"]
    folded = " ".join(text.split())
    assert "3 more from the same draws" in folded
    assert "agree: bridge_sampling, counts; too wide: ti." in folded
    assert "It is far off" not in text
    assert "1 more warnings" in text
    assert max(map(len, text.splitlines())) <= 80
    html = check._repr_html_()
    head, _, rest = html.partition("<details>")
    assert "counts" not in head.split("</table>")[0]
    assert "counts" in rest
    assert "It is far off" in rest


def test_a_row_that_disagrees_is_never_folded():
    entries = [RTS, entry("counts", 1.0, 0.02, RUN), entry("bar", 0.0, 0.02, RUN)]
    check = assemble([*entries, entry("ais", 0.0, 0.02)])
    rows = [line.split()[0] for line in repr(check).splitlines()[2:5]]
    assert rows == ["rts", "ais", "counts"]
    assert check.table.loc["counts", "agreement"] == "NO"


def test_draws_that_lack_a_region_are_a_disagreement():
    check = check_with(looked(0.11, "disagree"))
    assert check.verdict == "disagree"
    assert "The draws disagree, though the estimates agree" in check.words
    assert "About 10.0% of the posterior may be missing, and 0.11 nats of log Z" in check.words
    with pytest.warns(pmt.TemperingWarning, match="The cross-check says"):
        found = pmt.log_marginal_likelihood(check)
    assert found.mcse >= -np.log(0.9)
    assert check_with(looked(0.012, "agree")).verdict == "agree"
    assert "too uneven" in check_with(looked(0.5, "unchecked")).words


def test_draws_and_agreement_are_stored():
    check = check_with(looked(0.11, "disagree"))
    tree = xr.DataTree.from_dict({"cross_check": to_dataset(check)})
    back = read_cross_check(tree)
    assert back.draws == check.draws
    assert list(back.table["agreement"]) == list(check.table["agreement"])


OF_RUNGS = {"ti", "ti_riemann", "ti_corrected", "ti_simpson", "ti_rb", "ti_corrected_rb"}
"""Estimators from a run that average log_ratio itself at beta = 0."""


def test_integration_is_left_out_where_log_ratio_has_no_variance():
    assert {name for name, row in ESTIMATORS.items() if row.averages} == OF_RUNGS
    run = gaussian_run(200, random_seed=2)
    plain = pmt.cross_check(run)
    assert not OF_RUNGS & set(plain.left_out)
    fitted = run.copy()
    stats = fitted["sample_stats"].to_dataset()
    component = (("chain", "draw"), np.zeros((4, 200), dtype=int))
    fitted["sample_stats"].dataset = stats.assign(component=component)
    check = pmt.cross_check(fitted)
    assert set(check.left_out) >= OF_RUNGS
    assert "holds some of the prior" in check.left_out["ti"]
    assert list(pmt.cross_check(fitted, methods=["ti", "rts"]).table.index) == ["rts", "ti"]
    heavy = run.copy()
    trace = heavy["tempering_trace"].to_dataset()
    tail = -np.random.default_rng(1).pareto(1.0, trace["rung"].shape)  # no mean, no variance
    ratio = np.where(trace["rung"].values == 0, tail, trace["log_ratio"].values)
    heavy["tempering_trace"].dataset = trace.assign(log_ratio=(trace["rung"].dims, ratio))
    unfit = unfit_methods(heavy, None, ["rts", "ti"], np.random.default_rng(1))
    assert "no finite variance" in unfit["ti"]
    assert list(unfit) == ["ti"]


@pytest.mark.slow("compiles models of its own", quick=["Normal-False"])
@pytest.mark.parametrize(("prior", "unfit"), [(pm.Normal, False), (pm.Cauchy, True)])
def test_integration_from_a_heavy_prior_is_left_out(prior, unfit):
    with pm.Model() as model:
        pm.Normal("y", prior("x", 0.0, 1.0), 1.0, observed=1.0)
    draws, names = posterior_tree(x=np.zeros((2, 9))), ["smc", "thermodynamic_integration"]
    found = unfit_methods(draws, model, names, np.random.default_rng(1))
    assert list(found) == (["thermodynamic_integration"] if unfit else [])


def test_a_run_has_an_upper_bound_of_its_own():
    unfit = unfit_methods(gaussian_run(50), None, ["reverse_ais"], np.random.default_rng(1))
    assert '"backward"' in unfit["reverse_ais"]


@pytest.fixture(scope="module")
def conjugate():
    """A model, and exact draws of its posterior."""
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x"), 1.0, observed=1.0)
    x = np.random.default_rng(1).normal(0.5, 0.5**0.5, size=(4, 500))
    return model, x


def show_at_once(line, at):
    """Show each line that is told, also one that is over before the next frame."""
    line.at = at
    if line.live is not None:
        line.live.refresh()


def test_progress_names_the_methods_and_quiet_has_none(conjugate, monkeypatch):
    model, x = conjugate
    monkeypatch.setattr(status.StatusLine, "__call__", show_at_once)
    for options, shown in (({}, True), ({"quiet": True}, False), ({"progressbar": False}, False)):
        out = io.StringIO()
        console = Console(file=out, force_terminal=True, width=100)
        with patch.object(status, "open_console", lambda theme, console=console: console):
            pmt.cross_check(
                posterior_tree(x=x), model, ["smc", "bridge_sampling"], random_seed=1, **options
            )
        assert ("Cross-check: smc" in out.getvalue()) == shown
        assert ("1/2" in out.getvalue()) == shown


def test_cores_do_not_change_it_and_looks_are_those_of_smc(conjugate):
    model, x = conjugate
    options = {"methods": ["smc"], "random_seed": 4, "progressbar": False}
    with pytest.warns(pmt.TemperingWarning, match="alone states an error"):
        one, two = (pmt.cross_check(posterior_tree(x=x), model, cores=n, **options) for n in (1, 2))
    assert one.draws == two.draws
    assert one.table["log_z"].tolist() == two.table["log_z"].tolist()
    movers = compile_movers(model, None, lambda line: None)
    found, ends = smc_with_ends(Annealing(movers, np.random.default_rng(7), 1))
    alone = pmt.smc(model, random_seed=7, progressbar=False)
    assert found.log_z == alone.log_z
    # The weights of the ends are those that log Z is the mean of.
    assert np.logaddexp.reduce(ends.log_w) - np.log(ends.log_w.size) == pytest.approx(found.log_z)
    weight = np.exp(ends.log_w - ends.log_w.max())
    mean = float(weight @ ends.states[:, 0] / weight.sum())
    assert abs(mean - 0.5) < 4 * 0.5**0.5 / np.sqrt(1000)  # |z| < 4 with a fifth of them effective
