"""One page of pictures of a tempering run."""

from typing import Any

import xarray as xr

from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.evidence.diagnostics import rung_table
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.pieces import finite_tours
from pymc_tempering.evidence.result import plus_minus
from pymc_tempering.plots.barrier_curve import draw_barrier, local_barrier
from pymc_tempering.plots.ladder_panels import draw_rejection
from pymc_tempering.plots.log_z_curve import residual_of_run
from pymc_tempering.plots.look_densities import GROUP, draw_looks
from pymc_tempering.plots.new_sheet import open_sheet
from pymc_tempering.plots.round_trips import draw_round_trips
from pymc_tempering.plots.rung_paths import chain_names, rung_paths
from pymc_tempering.plots.running_log_z import rounds_and_running
from pymc_tempering.plots.sheet import Visuals
from pymc_tempering.plots.temperature_trace import draw_path, usual_length
from pymc_tempering.plots.tour_panels import draw_weights

PANELS = (
    *("running", "residual", "rejection", "barrier"),
    *("path", "round_trips", "tours", "looks"),
)


def plot_summary(
    idata: xr.DataTree,
    *,
    plot_collection: Any = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> Any:
    """Draw one page of a run: the estimate, the ladder, the tours, and the looks from the prior.

    How to read it: row by row, is the estimate steady and do chains agree, are the rungs well
    placed, do chains move, and does anything stand out among the tours or the looks; the title
    has log Z and the verdict.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.
    plot_collection : PlotCollection, optional
        With panels "running", "residual", "rejection", "barrier", "path", "round_trips", "tours"
        and, where there are looks from the prior, "looks"; new ones by default.
    backend : {"matplotlib", "bokeh", "plotly"}, optional
        What draws; by default that of ``plot_collection`` or of ``arviz_base.rcParams``.
    visuals : mapping of str to mapping or False, optional
        "xlabel", "ylabel", "legend" and "title" of all panels; the single pictures have more.
    **pc_kwargs
        Passed to ``PlotCollection.wrap``.

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
    panels = PANELS if GROUP in idata.children else PANELS[:-1]
    _, names = chain_names(stats, idata, stats.n_chains)
    sheet = open_sheet(
        panels,
        size=(11.0, 11.5),
        columns=2,
        known=(),
        chains=names,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        **pc_kwargs,
    )
    rounds_and_running(sheet, "running", idata, stats, evidence)
    residual_of_run(sheet, "residual", idata, evidence)
    draw_rejection(sheet, "rejection", rung_table(stats))
    draw_barrier(sheet, "barrier", stats, local_barrier(idata, stats))
    paths, flat = rung_paths(idata, stats)
    draw_path(sheet, "path", paths[0], usual_length(paths), stats.beta, 5)
    step = "iteration" if flat else "draw"
    sheet.label("path", f"{step} of chain {names[0]}", "β of the rung")
    draw_round_trips(sheet, "round_trips", stats, names)
    draw_weights(sheet, "tours", finite_tours(stats))
    if GROUP in idata.children:
        draw_looks(sheet, "looks", idata)
    return sheet.finish(
        f"log Z = {plus_minus(evidence.log_z, evidence.mcse)}, {evidence.verdict}; "
        f"{stats.n_chains} × {stats.n_draws} draws, {stats.beta.size} rungs"
    )
