"""One page of pictures of a tempering run."""

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.core.cycles import CycleStats
from pymc_tempering.evidence.alarms import MAX_REJECTION, neighbor_rejection
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.evidence.diagnostics import rung_table
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.pieces import finite_tours
from pymc_tempering.evidence.result import plus_minus
from pymc_tempering.plots.ladder import draw_barrier, draw_rejection
from pymc_tempering.plots.log_z import (
    Running,
    beside_of,
    chain_curves,
    draw_residual,
    draw_running,
    rounds_of,
    running_rts,
)
from pymc_tempering.plots.looks import GROUP, draw_looks
from pymc_tempering.plots.movement import (
    chain_names,
    draw_path,
    draw_round_trips,
    draw_weights,
    rung_paths,
    usual_length,
)
from pymc_tempering.plots.sheet import finished, open_panels

PANELS = (
    "running",
    "residual",
    "rejection",
    "barrier",
    "path",
    "round_trips",
    "tours",
    "looks",
)


def plot_summary(
    idata: xr.DataTree,
    **options: Any,
) -> Any:
    """Draw one page of a run: the estimate, the ladder, the tours, and the looks from the prior.

    How to read it: row by row, is the estimate steady and do chains agree, are the rungs well
    placed, do chains move, and does anything stand out among the tours or the looks; the title
    has log Z and the verdict. Below each panel stands what it shows of this run.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.
    **options
        As every picture takes them (see the gallery): ``plot_collection`` with panels "running",
        "residual", "rejection", "barrier", "path", "round_trips", "tours", "looks"; ``backend``;
        ``visuals``; and arguments of ``PlotCollection.wrap``.

    Returns
    -------
    PlotCollection
        With what was drawn in ``viz``, by visual and panel.

    Raises
    ------
    NotTemperedError, LadderError
        As :func:`pymc_tempering.diagnose` does.
    ImportError
        If the backend is not installed.
    ValueError
        If the backend or a visual is not known, or ``plot_collection`` lacks a panel.

    See Also
    --------
    plot_running_log_z, plot_log_z, plot_ladder, plot_barrier, plot_temperature_trace
    plot_round_trips, plot_tours, plot_looks

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> pc = pmt.plot_summary(idata)  # a run of pmt.sample
    >>> pc.viz["plot"].sizes["panel"]
    7
    """
    stats, evidence = read_cycles(idata), estimate_quietly(idata)
    shown = PANELS if GROUP in idata.children else PANELS[:-1]
    names = chain_names(idata)
    running_log_z, rounds = running_rts(idata, stats), rounds_of(idata, stats)
    words = _words(idata, stats, running_log_z)
    panels = [
        replace(panel, words=words[panel.name])
        for panel in open_panels(shown, (11.0, 11.5), (), options, columns=2, chains=names)
    ]
    running, residual, rejection, barrier, path, trips, tours, *looks = panels
    draw_running(running, running_log_z, rounds, beside_of(idata, evidence))
    draw_residual(residual, evidence, chain_curves(idata))
    draw_rejection(rejection, rung_table(stats))
    draw_barrier(barrier, idata, stats)
    paths, step = rung_paths(idata, stats)
    draw_path(path, paths[0], usual_length(paths), stats.beta, 5)
    path.axes(f"{step} of chain {names[0]}", "β of the rung")
    draw_round_trips(trips, stats, names)
    draw_weights(tours, finite_tours(stats))
    for panel in looks:
        draw_looks(panel, idata)
    return finished(
        panels,
        f"log Z = {plus_minus(evidence.log_z, evidence.mcse)}, {evidence.verdict}; "
        f"{stats.n_chains} × {stats.n_draws} draws, {stats.beta.size} rungs",
    )


def _words(idata: xr.DataTree, stats: CycleStats, running: Running) -> dict[str, str]:
    """Say what each panel shows of this run."""
    draws, log_z, _ = running
    moved = abs(log_z[-1] - log_z[np.searchsorted(draws, draws[-1] / 2)])
    rejection, ends = neighbor_rejection(stats), chain_curves(idata)[:, -1]
    trips = np.maximum(stats.tour_start.sum(axis=1) - 1, 0)
    weight = finite_tours(stats).sums[:, -1]
    largest, share = float(np.nanmax(rejection)), 100.0 * weight.max() / max(weight.sum(), 1e-300)
    words = {
        "running": f"moved by {moved:.2g} nats in the second half",
        "residual": f"at β = 1 chains are up to {np.ptp(ends):.2g} nats apart",
        "rejection": f"at most {largest:.2f}: {'a gap' if largest > MAX_REJECTION else 'no gap'}",
        "barrier": f"Λ = {np.nansum(rejection):.1f} in all, with {stats.beta.size} rungs",
        "path": f"this chain makes {trips[0]} round trips in all",
        "round_trips": f"{trips.min()} to {trips.max()} round trips a chain",
        "tours": f"the heaviest has {share:.2g} % of the weight",
    }
    if GROUP in idata.children:
        arrived = idata[GROUP].to_dataset()["arrived"].values.astype(bool)
        words["looks"] = f"{arrived.sum()} of {arrived.size} looks have arrived"
    return words
