"""The curve of log Z along the ladder, and what is left of it beside its band."""

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.evidence import Evidence, rts_log_z
from pymc_tempering.evidence.datatree import read_cycles
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.pieces import cycle_pieces
from pymc_tempering.evidence.result import emit_warnings, plus_minus
from pymc_tempering.plots.marks import BLUE, GRAY, HALF_WIDTH, ORANGE, rung_ticks
from pymc_tempering.plots.new_sheet import open_sheet
from pymc_tempering.plots.sheet import Sheet, Visuals

VISUALS = ("curve", "dots", "band", "chains", "exact", "zero", "nothing")


def plot_log_z(
    idata: xr.DataTree | Evidence,
    *,
    method: str | None = None,
    exact: float | Callable[[np.ndarray], Any] | None = None,
    plot_collection: Any = None,
    backend: str | None = None,
    visuals: Visuals = None,
    **pc_kwargs: Any,
) -> Any:
    """Draw log Z along beta, and below it what the chains and the exact value differ from it.

    How to read it: the upper panel shows how far log Z goes along the path; the lower one has the
    scale of its error, in which the thin lines of the chains should wander around zero and an
    exact value should lie within the 95 % band.

    Parameters
    ----------
    idata : DataTree or Evidence
        A run of simulated tempering, or an estimate with a curve.
    method : str, optional
        Estimator, for a DataTree; by default that of :func:`log_marginal_likelihood`.
    exact : float or callable, optional
        The true log Z (nats), or that of an array of betas.
    plot_collection : PlotCollection, optional
        With panels "curve" and "residual" along the dimension ``panel``; new ones by default.
    backend : {"matplotlib", "bokeh", "plotly"}, optional
        What draws; by default that of ``plot_collection`` or of ``arviz_base.rcParams``.
    visuals : mapping of str to mapping or False, optional
        Properties of the visuals, or False to leave one out: "curve", "dots", "band", "chains",
        "exact", "zero", "nothing", "xlabel", "ylabel", "legend", "title".
    **pc_kwargs
        Passed to ``PlotCollection.wrap``.

    Returns
    -------
    PlotCollection
        With what was drawn in ``viz``, by visual and panel.

    Raises
    ------
    NotTemperedError, LadderError
        As :func:`pymc_tempering.log_marginal_likelihood` does.
    ImportError
        If the backend is not installed.
    ValueError
        If the estimate has no curve, the method, the backend or a visual is not known, or
        ``plot_collection`` lacks a panel.

    Warns
    -----
    TemperingWarning
        What the estimate warns about.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> pc = pmt.plot_log_z(idata, exact=-2.63)  # a run of pmt.sample
    >>> pc.viz["plot"].panel.values.tolist()
    ['curve', 'residual']
    """
    chains = None
    if isinstance(idata, Evidence):
        evidence = idata
    else:
        evidence = emit_warnings(estimate_quietly(idata, method))
        chains = _chain_curves(idata) if evidence.method in ("rts", "pooled") else None
    if evidence.log_z_curve.size < 2:
        raise ValueError(
            f"the estimate by {evidence.method!r} has no curve of log Z along a ladder: pass a "
            "tempering run, or an estimator that reads one"
        )
    sheet = open_sheet(
        ("curve", "residual"),
        size=(7.0, 4.8),
        known=VISUALS,
        plot_collection=plot_collection,
        backend=backend,
        visuals=visuals,
        **pc_kwargs,
    )
    at, values = _exact_at(exact, evidence.betas)
    _draw_curve(sheet, evidence, at, values)
    draw_residual(sheet, "residual", evidence, chains, (at, values))
    sheet.label("residual", "inverse temperature β, evenly by rung", "difference (nats)")
    return sheet.finish(f"log Z = {plus_minus(evidence.log_z, evidence.mcse)} by {evidence.method}")


def _draw_curve(sheet: Sheet, evidence: Evidence, at: FloatArray, exact: FloatArray) -> None:
    """Draw the curve over the rungs."""
    rung = np.arange(evidence.betas.size)
    curve = evidence.log_z_curve
    sheet.draw("curve", "curve", "line", rung, curve, color=BLUE, width=1.4)
    size = 6.0 if rung.size <= 30 else 4.0
    sheet.draw("dots", "curve", "scatter", rung, curve, color=BLUE, size=size, label="log Z(β)")
    if at.size:
        sheet.draw("exact", "curve", "scatter", at, exact, color=ORANGE, marker="C3",
                   size=_cross(at), width=1.6, label="exact")  # fmt: skip
    sheet.ticks("curve", "x", *rung_ticks(evidence.betas))
    sheet.label("curve", "", "log Z (nats)")


def draw_residual(
    sheet: Sheet,
    panel: str,
    evidence: Evidence,
    chains: FloatArray | None,
    exact: tuple[FloatArray, FloatArray],
) -> None:
    """Draw the band around zero, each chain's curve less that of all, and the exact one less it."""
    rung = np.arange(evidence.betas.size)
    half = HALF_WIDTH * evidence.log_z_curve_mcse
    known = np.isfinite(half)
    if known[1:].any():
        shown = np.where(known, half, np.nan)
        sheet.draw("band", panel, "fill_between_y", rung[known], -shown[known], shown[known],
                   color=BLUE, alpha=0.25, label="95 % band")  # fmt: skip
    else:
        sheet.draw("band", panel, "line", [0.0], [np.nan], color=BLUE, alpha=0.25,
                   label="no error can be stated")  # fmt: skip
    sheet.draw("zero", panel, "line", rung, 0.0 * rung, color=BLUE, width=1.4)
    if chains is not None and len(chains) > 1:
        rest = chains - evidence.log_z_curve
        gap = np.full((len(chains), 1), np.nan)
        x = np.broadcast_to(np.append(rung, np.nan), (len(chains), rung.size + 1))
        y = np.hstack([np.where(np.isfinite(rest), rest, np.nan), gap])
        sheet.draw("chains", panel, "line", x.ravel(), y.ravel(), color=GRAY, width=0.8,
                   label=f"each of {len(chains)} chains")  # fmt: skip
    at, values = exact
    if not known[1:].any() and not at.size and (chains is None or len(chains) < 2):
        sheet.limit(panel, "y", -1.0, 1.0)
        sheet.texts("nothing", panel, [0.5 * rung[-1]], [0.4],
                    ["no error can be stated, and no second chain compared"])  # fmt: skip
    if at.size:
        here = np.asarray(at, dtype=int)
        sheet.draw("exact", panel, "scatter", at, values - evidence.log_z_curve[here],
                   color=ORANGE, marker="C3", size=_cross(at), width=1.6,
                   label="exact")  # fmt: skip
    sheet.ticks(panel, "x", *rung_ticks(evidence.betas))


def _cross(at: FloatArray) -> float:
    """Diameter of crosses that so many rungs leave room for, beyond the dots below them."""
    return 11.0 if at.size <= 30 else 6.0


def _chain_curves(idata: xr.DataTree) -> FloatArray:
    """Return log Z of every rung by RTS from each chain alone, shape (chain, K)."""
    stats = read_cycles(idata)
    pieces = cycle_pieces(stats)
    flat = stats.rb_weight.reshape(-1, stats.beta.size)
    masks = [pieces.used & (pieces.chain == chain) for chain in range(stats.n_chains)]
    weight = np.array([flat[mask].sum(axis=0) for mask in masks])
    return np.asarray(rts_log_z(weight, stats.log_z_ladder, stats.log_weight))


def _exact_at(
    exact: float | Callable[[np.ndarray], Any] | None, betas: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the rungs where log Z is known, and its values there."""
    if exact is None:
        return np.zeros(0), np.zeros(0)
    if callable(exact):
        return np.arange(betas.size, dtype=float), np.asarray(exact(betas), dtype=float)
    return np.array([betas.size - 1.0]), np.array([float(exact)])


def residual_of_run(sheet: Sheet, panel: str, idata: xr.DataTree, evidence: Evidence) -> None:
    """Draw the residual panel of a run alone."""
    draw_residual(sheet, panel, evidence, _chain_curves(idata), _exact_at(None, evidence.betas))
    sheet.label(panel, "inverse temperature β, evenly by rung", "log Z(β), difference (nats)")
