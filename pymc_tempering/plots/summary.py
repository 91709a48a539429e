"""One page of pictures of a tempering run."""

from typing import Any

import xarray as xr

from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.evidence.diagnostics import rung_table
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.pieces import finite_tours
from pymc_tempering.evidence.result import plus_minus
from pymc_tempering.plots.ladder import draw_barrier, draw_rejection
from pymc_tempering.plots.log_z import (
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
    *("running", "residual", "rejection", "barrier"),
    *("path", "round_trips", "tours", "looks"),
)


def plot_summary(
    idata: xr.DataTree,
    **options: Any,
) -> Any:
    """Draw one page of a run: the estimate, the ladder, the tours, and the looks from the prior.

    How to read it: row by row, is the estimate steady and do chains agree, are the rungs well
    placed, do chains move, and does anything stand out among the tours or the looks; the title
    has log Z and the verdict.

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
    panels = open_panels(shown, (11.0, 11.5), (), options, columns=2, chains=names)
    running, residual, rejection, barrier, path, trips, tours, *looks = panels
    running_log_z, rounds = running_rts(idata, stats), rounds_of(idata, stats)
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
