"""Pictures hold the numbers of the run, whatever draws them: told by the "none" backend."""

from itertools import pairwise

import numpy as np
import pytest
import xarray as xr
from support import picture_runs
from support.drawn import drawn, ends_of_segments, points
from support.synthetic import GaussianToy, gaussian_run

import pymc_tempering as pmt
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.alarms import neighbor_rejection
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.evidence.pieces import finite_tours
from pymc_tempering.exceptions import NotTemperedError
from pymc_tempering.plots.axes import along_path, path_ticks, spread_over
from pymc_tempering.plots.movement import apart, variance_shares

HALF = 1.959964


@pytest.fixture(scope="module")
def run():
    return gaussian_run(150, 3, random_seed=1)


def limits(pc, panel, name):
    """Ends of an axis."""
    calls = pc.viz["plot"].sel(panel=panel).item()
    return [call["lims"] for call in calls if call["function"] == name][-1]


@pytest.fixture(scope="module")
def fitted():
    return picture_runs.fitted_run(4)


@pytest.mark.parametrize("converted", [False, True])
def test_ladder_holds_rejection_occupancy_and_target(run, converted):
    table = pmt.diagnose(run).table
    pc = pmt.plot_ladder(pmt.convert(run) if converted else run, backend="none")
    x, y = points(drawn(pc, "rejection", "rejection"))
    np.testing.assert_array_equal(x, np.arange(4) + 0.5)  # between the rungs that it belongs to
    np.testing.assert_allclose(y, table["rejection"][:-1])
    np.testing.assert_allclose(points(drawn(pc, "occupancy", "occupancy"))[1], table["occupancy"])
    places, target = ends_of_segments(drawn(pc, "target", "occupancy"))
    np.testing.assert_allclose(target, [table["target"]] * 2)
    np.testing.assert_allclose(places.mean(axis=0), np.arange(5))


def test_a_gap_has_another_mark():
    idata = gaussian_run(100, betas=[0.0, 0.001, 1.0], toy=GaussianToy(2.0, 0.05))
    pc = pmt.plot_ladder(idata, backend="none")
    plain, gap = (drawn(pc, name, "rejection") for name in ("rejection", "gap"))
    assert points(plain)[0].tolist() == [0.5]
    assert points(gap)[0].tolist() == [1.5]
    assert plain["marker"] != gap["marker"]


def areas(steps):
    return np.asarray(steps["y"]) * (steps["r_e"] - steps["l_e"])


@pytest.mark.parametrize("kind", ["prior", "fitted"])
def test_areas_of_the_barrier_are_rejection_rates(kind, fitted):
    idata = fitted if kind == "fitted" else picture_runs.prior_run(2)
    table = pmt.diagnose(idata).table
    pc = pmt.plot_barrier(idata, backend="none")
    np.testing.assert_allclose(areas(drawn(pc, "steps", "barrier")), table["rejection"][:-1])
    first = 1.0 if kind == "fitted" else table["beta"][1]
    marks, _ = ends_of_segments(drawn(pc, "rungs", "barrier"))
    np.testing.assert_allclose(marks[0], along_path(table["beta"].to_numpy(), first))


@pytest.mark.slow("picture backends")
def test_the_local_barrier_is_the_slope_of_rejection_on_a_fine_ladder():
    toy = GaussianToy(2.0, 0.5)
    betas = np.linspace(0.0, 1.0, 9)
    pc = pmt.plot_barrier(
        gaussian_run(6000, 4, toy=toy, betas=betas, random_seed=2), backend="none"
    )
    x, local = points(drawn(pc, "dots", "barrier"))
    # E|V - E V| / 2 of V = -(y - x)^2 / (2 sigma^2) under the exact normal at each beta.
    grid = np.linspace(-10.0, 10.0, 20001)
    for beta, value in zip(x, local, strict=True):
        mean, sd = toy.moments(np.array([beta]))
        p = np.exp(-0.5 * ((grid - mean) / sd) ** 2)
        p /= p.sum()
        v = toy.log_ratio(grid)
        exact = 0.5 * np.sum(p * np.abs(v - np.sum(p * v)))
        assert value == pytest.approx(exact, rel=0.06)  # some 5 standard errors
    steps = drawn(pc, "steps", "barrier")
    middle = 0.5 * (local[1:] + local[:-1])
    np.testing.assert_allclose(np.asarray(steps["y"])[3:], middle[3:], rtol=0.12)


def test_the_local_barrier_of_normal_ratios_needs_no_trace(run):
    bare = run.copy()
    del bare["tempering_trace"]
    stated, kept = (
        points(drawn(pmt.plot_barrier(r, backend="none"), "dots", "barrier"))[1]
        for r in (bare, run)
    )
    assert not np.array_equal(stated, kept)
    np.testing.assert_allclose(stated[-2:], kept[-2:], rtol=0.35)


def test_the_axis_of_the_path_is_continuous_and_smooth():
    first, step = 0.01, 1e-6
    at = along_path([first - step, first, first + step], first)
    left, right = np.diff(at) / step
    assert left == pytest.approx(right, rel=1e-3) == pytest.approx(1 / first, rel=1e-3)
    places, texts = path_ticks(1e-12)
    assert texts[0] == "0"
    assert texts[-1] == "1"
    assert len(texts) <= 9
    assert np.all(np.diff(places) > 0.0)


@pytest.mark.parametrize(("n", "most"), [(3, 7), (12, 7), (100, 7), (5, 2), (2, 7)])
def test_shown_rungs_are_evenly_spread(n, most):
    shown = spread_over(n, most)
    assert (shown[0], shown[-1]) == (0, n - 1)
    assert len(shown) <= most + 1
    steps = np.diff(shown)
    assert len(set(steps[:-1])) <= 1
    assert steps[-1] >= steps[0]


def test_curve_residual_band_and_exact_value(run):
    toy, evidence = GaussianToy(), pmt.log_marginal_likelihood(run)
    pc = pmt.plot_log_z(run, exact=toy.log_z, backend="none")
    np.testing.assert_array_equal(points(drawn(pc, "curve", "curve"))[1], evidence.log_z_curve)
    exact = toy.log_z(evidence.betas)
    np.testing.assert_allclose(points(drawn(pc, "exact", "curve"))[1], exact)
    rest = points(drawn(pc, "exact", "residual"))[1]
    np.testing.assert_allclose(rest, exact - evidence.log_z_curve)
    band = drawn(pc, "band", "residual")
    np.testing.assert_allclose(band["y_top"], HALF * evidence.log_z_curve_mcse, rtol=1e-6)
    np.testing.assert_allclose(band["y_bottom"], -np.asarray(band["y_top"]))
    chains = points(drawn(pc, "chains", "residual"))[1].reshape(3, -1)[:, :-1]
    np.testing.assert_allclose(chains[:, -1], evidence.per_chain - evidence.log_z, atol=1e-9)


def test_a_number_as_exact_value_stands_at_the_top(run):
    pc = pmt.plot_log_z(run, exact=-2.6, backend="none")
    x, y = points(drawn(pc, "exact", "curve"))
    assert (x.tolist(), y.tolist()) == ([4.0], [-2.6])
    assert "exact" not in pmt.plot_log_z(run, backend="none").viz.children


def test_curve_without_error_has_no_band():
    short = gaussian_run(10, 1, random_seed=1)
    with pytest.warns(pmt.TemperingWarning):
        pc = pmt.plot_log_z(short, exact=-2.6, backend="none")
    assert "nothing" not in pc.viz.children
    assert drawn(pc, "band", "residual")["function"] == "line"  # an entry of the legend alone
    assert "chains" not in pc.viz.children
    with pytest.raises(ValueError, match="'ais' has no curve"):
        pmt.plot_log_z(Evidence(0.0, 0.1, "ais", "ok"))


def test_running_estimate_ends_at_the_whole_and_begins_at_its_part(run):
    pc = pmt.plot_running_log_z(run, exact=-2.6, backend="none")
    draws, values = points(drawn(pc, "running", "log_z"))
    whole = pmt.log_marginal_likelihood(run)
    assert (draws[-1], values[-1]) == (150, whole.log_z)
    n = int(draws[draws.size // 2])
    part = pmt.log_marginal_likelihood(run.isel(draw=slice(0, n)))
    assert values[draws.size // 2] == pytest.approx(part.log_z)
    at, errors = points(drawn(pc, "error", "error"))
    assert errors[at == n] == pytest.approx(part.mcse)
    assert points(drawn(pc, "exact", "log_z"))[1].tolist() == [-2.6, -2.6]
    assert not {"looks", "rounds"} & set(pc.viz.children)


def far_start(run):
    """The run with a first fifth that hardly sees the posterior: early estimates are far off."""
    odd = run.copy()
    stats = odd["sample_stats"].to_dataset()
    weight = stats["rb_weight"].copy()
    weight[{"draw": slice(0, 12), weight.dims[-1]: -1}] *= 1e-9
    odd["sample_stats"].dataset = stats.assign(rb_weight=weight)
    return odd


def test_running_estimates_that_are_far_off_at_first_are_left_out(run):
    pc = pmt.plot_running_log_z(far_start(run), backend="none")
    draws, values = points(drawn(pc, "running", "log_z"))
    assert 5 < draws[0] < 150 / 4 + 12
    band = drawn(pc, "band", "log_z")
    low, high = limits(pc, "log_z", "ylim")
    for shown in (values, band["y_bottom"], band["y_top"]):
        assert np.all((np.asarray(shown) >= low) & (np.asarray(shown) <= high))
    _, top = limits(pc, "error", "ylim")
    for visual in ("error", "square_root"):
        assert points(drawn(pc, visual, "error"))[1].max() <= top
    assert limits(pc, "log_z", "xlim")[0] == 0.0


def test_a_round_beyond_the_axis_has_an_arrow(fitted):
    odd = fitted.copy()
    tempering = odd["tempering"].to_dataset()
    changes = {"round_log_z": [-9.0, -2.65, -2.64], "round_mcse": [0.9, 0.05, 0.035]}
    odd["tempering"].dataset = tempering.assign({n: ("round", v) for n, v in changes.items()})
    pc = pmt.plot_running_log_z(odd, backend="none")
    assert drawn(pc, "beyond", "log_z", part="below")["string"] == ["▼ -9"]
    assert drawn(pc, "beyond", "error", part="above")["string"] == ["▲ 0.9"]
    for panel in ("log_z", "error"):
        assert points(drawn(pc, "rounds", panel))[0].tolist() == [100.0, 200.0]


def test_there_are_no_empty_panels_where_no_error_can_be_stated():
    short = gaussian_run(10, 1, random_seed=1)
    pc = pmt.plot_running_log_z(short, backend="none")
    assert pc.viz["plot"].panel.values.tolist() == ["log_z"]
    with pytest.warns(pmt.TemperingWarning):
        curve = pmt.plot_log_z(short, backend="none")
    for pc in (pmt.plot_summary(short, backend="none"), curve):
        [words] = drawn(pc, "nothing", "residual")["string"]
        assert words.startswith("no error can be stated")


def test_running_estimate_shows_looks_and_rounds_that_still_count(fitted):
    pc = pmt.plot_running_log_z(fitted, backend="none")
    x, y = points(drawn(pc, "rounds", "log_z"))
    assert (x.tolist(), y.tolist()) == ([50.0, 100.0, 200.0], [-2.68, -2.65, -2.64])
    ends = points(drawn(pc, "looks", "log_z"))[1]
    np.testing.assert_allclose(ends, [-2.75 - HALF * 0.06, -2.75 + HALF * 0.06])
    again = fitted.copy()
    rounds = again["tempering"].to_dataset().assign(round_draws=("round", [1200, 400, 800]))
    again["tempering"].dataset = rounds
    x, _ = points(drawn(pmt.plot_running_log_z(again, backend="none"), "rounds", "log_z"))
    assert x.tolist() == [100.0, 200.0]  # the fit was made anew after the first


def test_reference_draws_beside_the_chains_have_their_say():
    run = gaussian_run(150, 3, reference_draws=4000, random_seed=1)
    evidence = pmt.log_marginal_likelihood(run)
    assert evidence.method == "pooled"
    pc = pmt.plot_running_log_z(run, backend="none")
    assert points(drawn(pc, "final", "log_z"))[1].tolist() == [evidence.log_z]
    _, values = points(drawn(pc, "running", "log_z"))
    assert values[-1] == pmt.log_marginal_likelihood(run, method="rts").log_z != evidence.log_z
    pc = pmt.plot_log_z(run, backend="none")
    np.testing.assert_array_equal(points(drawn(pc, "curve", "curve"))[1], evidence.log_z_curve)
    chains = points(drawn(pc, "chains", "residual"))[1].reshape(3, -1)[:, :-1]
    np.testing.assert_allclose(chains[:, -1], evidence.per_chain - evidence.log_z, atol=1e-9)
    assert "final" not in pmt.plot_running_log_z(gaussian_run(50, 2), backend="none").viz.children


def test_trace_marks_the_starts_of_the_counted_tours(run):
    pc = pmt.plot_temperature_trace(run, max_iterations=10**6, backend="none")
    for chain, trips in enumerate(pmt.diagnose(run).round_trips):
        starts, _ = points(drawn(pc, "starts", f"chain {chain}"))
        assert starts.size == trips + 1
        x, rung = points(drawn(pc, "path", f"chain {chain}"))
        rung = rung[x == np.floor(x) + 0.5][::2]  # one value an iteration
        trace = run["tempering_trace"]["rung"].values[chain]
        np.testing.assert_array_equal(rung, trace[trace >= 0])
        assert np.all(rung[starts.astype(int)] == 0)
        for a, b in pairwise(starts.astype(int)):
            assert rung[a:b].max() == 4  # a tour has been at the top


def test_trace_shows_a_few_tours_of_the_chains_that_were_asked_for(run):
    pc = pmt.plot_temperature_trace(run, coords={"chain": 2}, backend="none")
    assert pc.viz["plot"].panel.values.tolist() == ["chain 2"]
    x, _ = points(drawn(pc, "path", "chain 2"))
    assert 100 < x.max() < 200
    for wrong in ({"chain": [7]}, {"draw": [0]}, {"chain": []}):
        with pytest.raises(ValueError, match="coords may choose"):
            pmt.plot_temperature_trace(run, coords=wrong, backend="none")
    with pytest.raises(ValueError, match="max_iterations"):
        pmt.plot_temperature_trace(run, max_iterations=0)


def test_trace_without_iterations_shows_the_hottest_rung(run):
    bare = run.copy()
    del bare["tempering_trace"]
    pc = pmt.plot_temperature_trace(bare, max_iterations=50, backend="none")
    _, rung = points(drawn(pc, "path", "chain 1"))
    stats = read_cycles(run)
    hottest = np.searchsorted(stats.beta, stats.beta_min[1, :50] - 1e-12)
    np.testing.assert_array_equal(rung[::2], hottest)
    np.testing.assert_array_equal(
        points(drawn(pc, "starts", "chain 1"))[0], np.flatnonzero(stats.tour_start[1, :50])
    )


def test_round_trips_end_at_those_of_the_diagnosis(run):
    pc = pmt.plot_round_trips(run, backend="none")
    trips = pmt.diagnose(run).round_trips
    ends = [points(drawn(pc, "trips", "round_trips", chain=c))[1][-1] for c in range(3)]
    assert ends == list(trips)
    assert points(drawn(pc, "steady", "round_trips"))[1][-1] == pytest.approx(np.mean(trips))
    calls = pc.viz["plot"].item()
    [ticks] = [call["ticks"] for call in calls if call["function"] == "yticks"]
    assert all(tick == int(tick) for tick in ticks)


def test_names_of_chains_do_not_overlap_where_these_end_at_one_height(run):
    even = run.copy()
    stats = even["sample_stats"].to_dataset()
    same = stats["tour_start"].copy(data=np.broadcast_to(stats["tour_start"][0], (3, 150)))
    even["sample_stats"].dataset = stats.assign(tour_start=same)
    pc = pmt.plot_round_trips(even, backend="none")
    heights = np.sort(drawn(pc, "names", "round_trips")["y"])
    top = limits(pc, "round_trips", "ylim")[1]
    assert np.all(np.diff(heights) > 0.05 * top)
    end = points(drawn(pc, "trips", "round_trips", chain=0))[1][-1]
    assert np.mean(heights) == pytest.approx(end)  # moved as little as can be
    np.testing.assert_allclose(apart(np.array([1.0, 5.0]), 2.0), [1.0, 5.0])


def test_a_chain_that_stays_away_has_another_color(run):
    odd = run.copy()
    stats = odd["sample_stats"].to_dataset()
    start = stats["tour_start"].copy()
    start[1, 2:] = False
    odd["sample_stats"].dataset = stats.assign(tour_start=start)
    pc = pmt.plot_round_trips(odd, backend="none")
    colors = [drawn(pc, "trips", "round_trips", chain=c)["color"] for c in range(3)]
    assert colors[0] == colors[2] != colors[1]


def test_tours_hold_weights_and_lengths_and_whose_variance_it_is(run):
    tours = finite_tours(read_cycles(run))
    pc = pmt.plot_tours(run, backend="none")
    length, weight = points(drawn(pc, "tours", "weights"))
    whole = tours.sums[tours.complete]
    np.testing.assert_allclose(length, whole.sum(axis=1))
    np.testing.assert_allclose(weight, whole[:, -1] / whole[:, -1].mean())
    assert points(drawn(pc, "unfinished", "weights"))[0].size == 3
    share = variance_shares(tours)
    assert share.sum() == pytest.approx(1.0)
    _, curve = points(drawn(pc, "share", "variance"))
    assert curve[1] == pytest.approx(share.max())
    assert curve[-1] == pytest.approx(1.0)


def test_looks_that_found_more_are_marked(fitted):
    pc = pmt.plot_looks(fitted, backend="none")
    ends = fitted["tempering_check"]["log_ratio"].values
    limit = points(drawn(pc, "limit", "looks"))[0][0]
    suspects = points(drawn(pc, "suspects", "looks"))[0]
    assert sorted(suspects) == pytest.approx(sorted(ends[ends > limit]))
    assert suspects.size == 2
    x, _ = points(drawn(pc, "ends", "looks"))
    assert x.size == ends.size - 2 - 3
    assert np.all(np.isfinite(x))
    arrow = drawn(pc, "beyond", "looks", part="left")  # those at minus infinity
    assert arrow["string"] == ["◄ 3"]
    low, high = limits(pc, "looks", "xlim")
    assert low < arrow["x"][0] < x.min() <= suspects.max() < high
    densities = drawn(pc, "draws", "looks")
    assert areas(densities).sum() == pytest.approx(1.0)
    calm = pmt.plot_looks(picture_runs.fitted_run(1, strange=0), backend="none")
    assert "suspects" not in calm.viz.children


def test_looks_that_have_not_arrived_are_rings():
    run = picture_runs.fitted_run(1, arrived=40)
    pc = pmt.plot_looks(run, var_names="x", backend="none")
    ends = run["tempering_check"]["log_ratio"].values
    of_x = run["tempering_looks"]["x"].values
    for panel, values in (("looks", ends), ("x", of_x)):
        x = [np.sort(points(drawn(pc, name, panel))[0]) for name in ("ends", "on_way", "suspects")]
        shown = values[np.isfinite(values)] if panel == "looks" else values
        for found, wanted in zip(x, (shown[2:40], shown[40:], shown[:2]), strict=True):
            np.testing.assert_allclose(found, np.sort(wanted))
    assert "on_way" not in pmt.plot_looks(picture_runs.fitted_run(1), backend="none").viz.children


def test_looks_far_beyond_all_draws_are_counted_beside_an_arrow():
    run = picture_runs.fitted_run(1)
    looks = run["tempering_check"].to_dataset()
    ends = looks["log_ratio"].copy()
    ends[0] = 1e6
    run["tempering_check"].dataset = looks.assign(log_ratio=ends)
    pc = pmt.plot_looks(run, backend="none")
    assert drawn(pc, "beyond", "looks", part="right")["string"] == ["1 ►"]
    assert points(drawn(pc, "suspects", "looks"))[0].size == 1
    assert limits(pc, "looks", "xlim")[1] < 1e4


def test_looks_of_variables_stand_beside_the_draws():
    run = picture_runs.fitted_run(2)
    draws = run["posterior"].to_dataset()
    of = {"group": ["a", "b"]}
    looks = run["tempering_looks"].to_dataset()
    scales = xr.DataArray([1.0, 100.0], coords=of)
    run["posterior"].dataset = draws.assign(pair=draws["x"] * scales)
    run["tempering_looks"].dataset = looks.assign(pair=looks["x"] * scales)
    pc = pmt.plot_looks(run, var_names=["x", "pair"], coords={"group": ["b"]}, backend="none")
    assert pc.viz["plot"].panel.values.tolist() == ["looks", "x", "pair[b]"]
    for panel, scale in (("x", 1.0), ("pair[b]", 100.0)):
        suspects = points(drawn(pc, "suspects", panel))[0]
        beyond = np.sort(suspects) / scale - draws["x"].values.max()
        np.testing.assert_allclose(beyond, [1.0, 1.5])
        ends = points(drawn(pc, "ends", panel))[0]
        np.testing.assert_allclose(sorted(ends), np.sort(looks["x"].values[2:]) * scale)
        assert areas(drawn(pc, "draws", panel)).sum() == pytest.approx(1.0)
    of_all = pmt.plot_looks(run, var_names="all", backend="none").viz["plot"].panel.values.tolist()
    assert of_all == ["looks", "x", "pair[a]", "pair[b]"]


def test_looks_of_variables_that_are_not_there(run):
    fitted = picture_runs.fitted_run(1)
    with pytest.raises(ValueError, match=r"var_names has \['y'\]; there are \['x'\]"):
        pmt.plot_looks(fitted, var_names=["x", "y"], backend="none")
    del fitted["tempering_looks"]
    with pytest.raises(NotTemperedError, match="tempering_looks"):
        pmt.plot_looks(fitted, var_names="x", backend="none")


def test_looks_need_a_checked_reference(run):
    with pytest.raises(NotTemperedError, match="tempering_check"):
        pmt.plot_looks(run)


def test_ridges_have_the_means_of_the_tempered_densities():
    toy = GaussianToy()
    pc = pmt.plot_path(gaussian_run(1500, 2, random_seed=4), "x", backend="none")
    betas = [0.0, 0.03, 0.12, 0.4, 1.0]
    for k, beta in enumerate(betas):
        ridge = drawn(pc, "ridge", "path", part=str(k))
        x, height = np.asarray(ridge["x"]), np.asarray(ridge["y_top"]) - k
        mean, sd = toy.moments(np.array([beta]))
        found = np.sum(x * height) / height.sum()
        assert found == pytest.approx(mean[0], abs=0.12 * sd[0])
        spread = np.sqrt(np.sum(height * (x - found) ** 2) / height.sum())
        assert spread == pytest.approx(sd[0], rel=0.2)  # the kernel widens it
        assert height.max() == pytest.approx(1.6)


def test_path_without_states_draws_log_ratio_and_says_what_to_keep(run):
    bare = run.copy()
    del bare["tempering_states"]
    assert "ridge_4" in pmt.plot_path(bare, backend="none").viz.children
    with pytest.raises(NotTemperedError, match='keep="states"') as caught:
        pmt.plot_path(bare, "x", backend="none")
    assert "log_ratio" in caught.value.__notes__[0]
    with pytest.raises(ValueError, match="no variable 'z'"):
        pmt.plot_path(run, "z", backend="none")


def test_states_count_by_the_probability_of_being_kept():
    """Seven of ten states below 1 are left out, the others counted more: the same ridges."""
    run = gaussian_run(600, 2, random_seed=6)
    thin = run.copy()
    states = thin["tempering_states"].to_dataset()
    probability = states["keep_probability"].where(states["x"] > 1.0, 0.3)
    kept = np.random.default_rng(3).random(states["iteration"].shape) < probability
    thin["tempering_states"].dataset = states.assign(
        iteration=states["iteration"].where(kept, -1), keep_probability=probability
    )
    for part in ("0", "4"):
        means = []
        for tree in (run, thin):
            ridge = drawn(pmt.plot_path(tree, "x", backend="none"), "ridge", "path", part=part)
            means.append(np.average(ridge["x"], weights=np.asarray(ridge["y_top"]) - int(part)))
        assert means[0] == pytest.approx(means[1], abs=0.12)  # some 4 standard errors


def test_elements_of_arrays_can_be_chosen(run):
    wide = run.copy()
    states = wide["tempering_states"].to_dataset()
    both = xr.concat([states["x"], states["x"] + 10.0], dim=xr.IndexVariable("k", ["a", "b"]))
    wide["tempering_states"].dataset = states.assign(x=both)
    low, high = (
        np.mean(drawn(pmt.plot_path(wide, "x", coords=c, backend="none"), "ridge", "path",
                      part="4")["x"])
        for c in (None, {"k": "b"})
    )  # fmt: skip
    assert high - low == pytest.approx(10.0)


def test_summary_has_a_panel_for_looks_only_where_there_are_any(run, fitted):
    assert pmt.plot_summary(run, backend="none").viz["plot"].sizes["panel"] == 7
    pc = pmt.plot_summary(fitted, backend="none")
    assert "looks" in pc.viz["plot"].panel.values
    evidence = pmt.log_marginal_likelihood(fitted)
    assert points(drawn(pc, "running", "running"))[1][-1] == pytest.approx(evidence.log_z)
    title = pc.viz["figure_title"].item()["string"]
    assert title.endswith("ok; 4 × 200 draws, 3 rungs")


@pytest.mark.parametrize("backend", ["matplotlib", "plotly"])
def test_each_panel_of_a_summary_says_what_it_shows_of_this_run(backend):
    """Below the name of its horizontal axis; numbers that the picture shows, too."""
    run = picture_runs.fitted_run(4, 400, strange=0)
    trips = run["sample_stats"]["tour_start"].transpose("chain", "draw").values.sum(axis=1) - 1
    pc = pmt.plot_summary(run, backend=backend)
    labels = {}
    for name in pc.viz["plot"].panel.values.tolist():
        target = pc.get_target(None, {"panel": name})
        if backend == "matplotlib":
            labels[name] = target.get_xlabel().split("\n")
        else:
            place = target.figure.get_subplot(target.row, target.col)
            labels[name] = place.xaxis.title.text.split("<br>")
    assert all(len(lines) == 2 for lines in labels.values())
    assert labels["round_trips"][1] == f"{trips.min()} to {trips.max()} round trips a chain"
    assert labels["path"][1] == f"this chain makes {trips[0]} round trips in all"
    largest = neighbor_rejection(read_cycles(run)).max()
    assert labels["rejection"][1] == f"at most {largest:.2f}: no gap"
    arrived = run["tempering_check"]["arrived"].values
    assert labels["looks"][1] == f"{arrived.sum()} of {arrived.size} looks have arrived"


def test_a_reference_with_a_heavy_tail_does_not_flatten_the_barrier(run):
    heavy = run.copy()
    trace = heavy["tempering_trace"].to_dataset()
    tail = trace["log_ratio"] - 1e4 * ((trace["rung"] == 0) & (trace["iteration"] % 7 == 0))
    heavy["tempering_trace"].dataset = trace.assign(log_ratio=tail)
    pc = pmt.plot_barrier(heavy, backend="none")
    assert points(drawn(pc, "dots", "barrier"))[0].size == 4
    [words] = drawn(pc, "beyond", "barrier", part="above")["string"]
    assert words.startswith("▲ off the axis: λ = ")
