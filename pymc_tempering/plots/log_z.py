"""log Z of one run: along the ladder, and while draws come in."""

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_tempering.core.cycles import CycleStats, FloatArray
from pymc_tempering.evidence import Evidence, rts, rts_log_z
from pymc_tempering.evidence.datatree import read_check, read_cycles, read_prior
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.pieces import cycle_pieces
from pymc_tempering.evidence.result import emit_warnings, plus_minus
from pymc_tempering.plots.axes import HALF_WIDTH, Span, draw_beyond, rung_ticks, span_of
from pymc_tempering.plots.ladder import dot_size
from pymc_tempering.plots.sheet import GRAY, GREEN, ORANGE, Panel, finished, open_panels

CURVE_VISUALS = ("curve", "dots", "band", "chains", "exact", "zero", "nothing")
RUNNING_VISUALS = (
    "running",
    "band",
    "looks",
    "looks_value",
    "final",
    "rounds",
    "exact",
    "error",
    "square_root",
    "beyond",
)
POINTS = 24
"""Numbers of draws at which the estimate is made."""

type Exact = float | Callable[[np.ndarray], Any] | None
"""The true log Z (nats), or that of an array of betas."""
type Known = tuple[NDArray[np.intp], FloatArray]
"""Rungs where log Z is known, and its values there."""
NOWHERE = np.zeros(0, dtype=np.intp), np.zeros(0)


def plot_log_z(
    idata: xr.DataTree | Evidence,
    *,
    method: str | None = None,
    exact: Exact = None,
    **options: Any,
) -> Any:
    """Draw log Z along beta, and below it how far the chains and the exact value are from it.

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
    **options
        As every picture takes them (see the gallery): ``plot_collection`` with panels "curve",
        "residual"; ``backend``; ``visuals``, of "curve", "dots", "band", "chains", "exact", "zero",
        "nothing"; and arguments of ``PlotCollection.wrap``.

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
        chains = chain_curves(idata) if evidence.method in ("rts", "pooled") else None
    if evidence.log_z_curve.size < 2:
        raise ValueError(
            f"the estimate by {evidence.method!r} has no curve of log Z along a ladder: pass a "
            "tempering run, or an estimator that reads one"
        )
    panels = open_panels(("curve", "residual"), (7.0, 4.8), CURVE_VISUALS, options)
    known = _exact_at(exact, evidence.betas)
    _draw_curve(panels[0], evidence, known)
    draw_residual(panels[1], evidence, chains, known)
    title = f"log Z = {plus_minus(evidence.log_z, evidence.mcse)} by {evidence.method}"
    return finished(panels, title)


def _draw_curve(panel: Panel, evidence: Evidence, exact: Known) -> None:
    """Draw the curve over the rungs."""
    rung, curve = np.arange(evidence.betas.size), evidence.log_z_curve
    panel.line("curve", rung, curve)
    panel.dots("dots", rung, curve, size=dot_size(rung.size, 6.0), label="log Z(β)")
    _draw_exact(panel, *exact)
    panel.axes("", "log Z (nats)", xticks=rung_ticks(evidence.betas))


def _draw_exact(panel: Panel, at: NDArray[np.intp], values: FloatArray) -> None:
    """Draw crosses at the rungs where log Z is known, larger than the dots below them."""
    size = 11.0 if at.size <= 30 else 6.0
    panel.dots("exact", at, values, color=ORANGE, marker="C3", width=1.6, size=size, label="exact")


def draw_residual(
    panel: Panel, evidence: Evidence, chains: FloatArray | None, exact: Known = NOWHERE
) -> None:
    """Draw the band around zero, each chain's curve less that of all, and the exact one less it."""
    rung, curve = np.arange(evidence.betas.size), evidence.log_z_curve
    half = HALF_WIDTH * evidence.log_z_curve_mcse
    known = np.isfinite(half)
    compared = chains is not None and len(chains) > 1
    if known[1:].any():
        panel.band("band", rung[known], -half[known], half[known], label="95 % band")
    else:
        panel.line("band", 0.0, np.nan, alpha=0.25, label="no error can be stated")
        if not exact[0].size and not compared:
            panel.axes(y=(-1.0, 1.0))
            words = "no error can be stated, and no second chain compared"
            panel.texts("nothing", 0.5 * rung[-1], 0.4, words)
    panel.line("zero", rung, 0.0)
    if chains is not None and compared:
        rest = np.where(np.isfinite(chains), chains - curve, np.nan)
        label = f"each of {len(rest)} chains"
        panel.curves("chains", rung, rest, color=GRAY, width=0.8, label=label)
    _draw_exact(panel, exact[0], exact[1] - curve[exact[0]])
    name = "Δ log Z(β) (nats)"
    panel.axes("inverse temperature β, evenly by rung", name, xticks=rung_ticks(evidence.betas))


def chain_curves(idata: xr.DataTree) -> FloatArray:
    """Return log Z of every rung by RTS from each chain alone, shape (chain, K)."""
    stats = read_cycles(idata)
    pieces = cycle_pieces(stats)
    flat = stats.rb_weight.reshape(-1, stats.beta.size)
    masks = [pieces.used & (pieces.chain == chain) for chain in range(stats.n_chains)]
    weight = np.array([flat[mask].sum(axis=0) for mask in masks])
    return rts_log_z(weight, stats.log_z_ladder, stats.log_weight)


def _exact_at(exact: Exact, betas: FloatArray) -> Known:
    """Return the rungs where log Z is known, and its values there."""
    if exact is None:
        return NOWHERE
    if callable(exact):
        return np.arange(betas.size), np.asarray(exact(betas), dtype=float)
    return np.array([betas.size - 1]), np.array([float(exact)])


def plot_running_log_z(
    idata: xr.DataTree,
    *,
    exact: float | None = None,
    **options: Any,
) -> Any:
    """Draw log Z and its error as they would have been after fewer draws.

    How to read it: a run that has settled keeps within its own 95 % band, and its error falls
    along the dashed line of one over the square root of the draws; log Z of the looks from the
    prior may lie below the run's by chance, and is a warning above it.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, converted or not.
    exact : float, optional
        The true log Z (nats).
    **options
        As every picture takes them (see the gallery): ``plot_collection`` with panels "log_z",
        "error"; ``backend``; ``visuals``, of "running", "band", "looks", "looks_value", "final",
        "rounds", "exact", "error", "square_root", "beyond"; and arguments of
        ``PlotCollection.wrap``.

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

    Notes
    -----
    Running estimates are those of RTS from the first draws of all chains; where the run has
    reference draws beside them, a triangle shows the estimate from both. Those of the first draws
    are left out where they are beyond the scale of all others. The diamonds are what the
    rounds of ``pmt.sample`` reported, where it stored any (docs/reference/data_layout.md); those
    of draws that were thrown away, for a fit that was repeated, are left out.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> pc = pmt.plot_running_log_z(idata)  # a run of pmt.sample
    >>> pc.viz["plot"].panel.values.tolist()
    ['log_z', 'error']
    """
    stats, evidence = read_cycles(idata), estimate_quietly(idata)
    running, rounds = running_rts(idata, stats), rounds_of(idata, stats)
    stated = bool(np.isfinite(running[2]).any())
    names, size = (("log_z", "error"), (7.0, 5.0)) if stated else (("log_z",), (7.0, 3.2))
    panels = open_panels(names, size, RUNNING_VISUALS, options)
    draw_running(panels[0], running, rounds, beside_of(idata, evidence), exact)
    if stated:
        _draw_errors(panels[1], running, rounds)
    return finished(panels, f"log Z = {plus_minus(evidence.log_z, evidence.mcse)}")


type Running = tuple[FloatArray, FloatArray, FloatArray]
"""Numbers of draws of each chain, and log Z with its error after each (nats)."""
type Beside = dict[str, FloatArray]
"""Lower end of the 95 % interval, value and upper end of what stands beside them (nats)."""


def running_rts(idata: xr.DataTree, stats: CycleStats) -> Running:
    """Estimate from the first draws of all chains, again and again."""
    n = stats.n_draws
    draws = np.unique(np.linspace(min(n, max(5, n // 50)), n, min(POINTS, n)).round().astype(int))
    part = xr.DataTree.from_dict({"sample_stats": idata["sample_stats"].to_dataset().load()})
    found = [rts(read_cycles(part.isel(draw=slice(k)))) for k in draws]
    log_z, mcse = np.array([(one.log_z, one.mcse) for one in found]).T
    return draws, log_z - _shift(idata), mcse


def _shift(idata: xr.DataTree) -> float:
    """Log Z of a prior that was not normalized, which estimates are less than RTS' by."""
    prior = read_prior(idata)
    return 0.0 if prior is None else prior[0]


def rounds_of(idata: xr.DataTree, stats: CycleStats) -> Running:
    """Return what the rounds of the run in hand reported; of other runs nothing."""
    if "tempering" not in idata.children or "round_draws" not in idata["tempering"].data_vars:
        return (np.zeros(0),) * 3
    told = idata["tempering"].to_dataset()
    draws, log_z, mcse = (told[f"round_{name}"].values for name in ("draws", "log_z", "mcse"))
    if "warmup_sample_stats" in idata.children:
        tuning = idata["warmup_sample_stats"].sizes["draw"]
    else:
        tuning = max(0, int(draws[-1]) // stats.n_chains - stats.n_draws)
    # A repeated fit starts the draws anew: what came before it tells of draws that are gone.
    fall = np.flatnonzero(np.diff(draws) < 0)
    kept = slice(int(fall[-1]) + 1 if fall.size else 0, None)
    return draws[kept] / stats.n_chains - tuning, log_z[kept], mcse[kept]


def beside_of(idata: xr.DataTree, evidence: Evidence) -> Beside:
    """Return the values with their intervals that stand beside the running estimate."""
    found, sides = {}, HALF_WIDTH * np.array([-1.0, 0.0, 1.0])
    if evidence.method != "rts" and np.isfinite(evidence.mcse):
        found["final"] = evidence.log_z + sides * evidence.mcse
    fresh = read_check(idata)
    if fresh is not None and np.isfinite(fresh.log_z):
        wide = fresh.mcse if np.isfinite(fresh.mcse) else 0.0
        found["looks"] = fresh.log_z - _shift(idata) + sides * wide
    return found


def draw_running(
    panel: Panel, running: Running, rounds: Running, beside: Beside, exact: float | None = None
) -> None:
    """Draw the running estimate with its band, the looks' value, the rounds, the exact value."""
    draws, values, errors = running
    last, half = draws[-1], HALF_WIDTH * errors
    band = np.array([values, values - half, values + half])
    band[~np.isfinite(band)] = np.nan
    others = [*beside.values(), [] if exact is None else [exact]]
    span = span_of(np.concatenate([band[:, draws.size // 4 :].ravel(), *others]), rounds[1])
    # The first few draws may be far off: they would hide all others, and are left out.
    first = _settled(np.any((band < span.low) | (band > span.high), axis=0))
    draws, band = draws[first:], band[:, first:]
    known, finite = np.isfinite(band[1:]).all(axis=0), np.isfinite(band[0])
    panel.band("band", draws[known], *band[1:, known], label="95 % band")
    name = "running log Z" if known.any() else "running log Z, no error can be stated"
    panel.line("running", draws[finite], band[0][finite], width=1.6, label=name)
    _draw_rounds(panel, span, rounds[0], rounds[1])
    for kind, dot, part, place, color, marker, label in (
        ("final", "final", "interval", 1.02 * last, "B1", "C2", "with reference draws"),
        ("looks", "looks_value", "", 1.04 * last, ORANGE, "C5", "looks from the prior"),
    ):
        if kind in beside:
            low, middle, high = beside[kind]
            panel.line(kind, place, [low, high], part=part, color=color, width=2.0)
            panel.dots(dot, place, middle, color=color, marker=marker, size=8.0, label=label)
    if exact is not None:
        panel.guide("exact", [0.0, 1.04 * last], exact, label="exact")
    panel.axes("draws of each chain", "log Z (nats)", x=(0.0, 1.08 * last), y=span)


def _settled(off: np.ndarray) -> int:
    """Place after the last one that is off."""
    return int(np.flatnonzero(off)[-1]) + 1 if off.any() else 0


def _draw_rounds(panel: Panel, span: Span, at: FloatArray, values: FloatArray) -> None:
    """Draw what rounds have reported, with an arrow for what is beyond the axis."""
    here = span.holds(values)
    panel.dots(
        "rounds", at[here], values[here],
        color=GREEN, marker="C4", size=9.0, label="after a round",
    )  # fmt: skip
    draw_beyond(panel, span, values, at, upright=True, color=GREEN)


def _draw_errors(panel: Panel, running: Running, rounds: Running) -> None:
    """Draw the error against its fall by the root of the draws, but for the first few draws."""
    draws, _, errors = running
    known, told = np.isfinite(errors), np.isfinite(rounds[2])
    at, error, at_round, of_round = draws[known], errors[known], rounds[0][told], rounds[2][told]
    top = 1.1 * error[error.size // 4 :].max()
    top = max([top, *(1.05 * of_round[of_round < 1.5 * top])])
    guide = error[-1] * np.sqrt(at[-1] / at)
    fits, first = guide <= top, _settled(error > top)
    label = "one over the root of the draws"
    panel.guide("square_root", at[fits], guide[fits], color=GRAY, label=label)
    panel.line("error", at[first:], error[first:], width=1.6, label="error (mcse)")
    _draw_rounds(panel, Span(0.0, top), at_round, of_round)
    panel.axes("draws of each chain", "mcse (nats)", x=(0.0, 1.08 * draws[-1]), y=(0.0, top))
