"""The curve of log Z along the ladder, with its band."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.front import estimate_quietly
from pymc_tempering.evidence.result import emit_warnings, plus_minus
from pymc_tempering.plots.axes import BLUE, GRAY, HALF_WIDTH, ORANGE, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_log_z(
    idata: xr.DataTree | Evidence,
    *,
    method: str = "rts",
    exact: Callable[[np.ndarray], Any] | None = None,
    ax: Any = None,
    figsize: tuple[float, float] | None = None,
    backend_kwargs: dict[str, Any] | None = None,
) -> "Axes":
    """Draw the curve of log Z along beta with its 95 % band.

    The rungs are evenly spaced on the axis, with their betas as labels. On an axis of beta most
    rungs would fall on one point.

    Parameters
    ----------
    idata : DataTree or Evidence
        A run of simulated tempering, or an estimate with a curve.
    method : str, default "rts"
        Estimator, for a DataTree.
    exact : callable, optional
        The true log Z of an array of betas (nats), drawn beside it.
    ax : Axes, optional
        Axes to draw into; a new figure by default.
    figsize : tuple of float, optional
        Size of a new figure in inches.
    backend_kwargs : dict, optional
        Further arguments of ``matplotlib.pyplot.subplots``.

    Returns
    -------
    Axes
        The axes drawn into.

    Raises
    ------
    NotTemperedError, LadderError
        As :func:`pymc_tempering.log_marginal_likelihood` does.
    ImportError
        If Matplotlib is not installed.
    ValueError
        If the estimate has no curve, or the method is not known.

    Warns
    -----
    TemperingWarning
        What the estimate warns about.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> from pymc_tempering.evidence.synthetic import gaussian_run
    >>> ax = pmt.plot_log_z(gaussian_run(draws=400))
    >>> ax.get_ylabel()
    'log Z (nats)'
    """
    evidence = idata
    if not isinstance(idata, Evidence):
        evidence = emit_warnings(estimate_quietly(idata, method))
    if evidence.log_z_curve.size < 2:
        raise ValueError(
            f"the estimate by {evidence.method!r} has no curve of log Z along a ladder: pass a "
            "tempering run, or an estimator that reads one"
        )
    if ax is None:
        ax = new_axes(figsize or (7.0, 4.2), backend_kwargs)
    rung = np.arange(evidence.betas.size)
    half = HALF_WIDTH * evidence.log_z_curve_mcse
    known = np.isfinite(half)
    low, high = evidence.log_z_curve - half, evidence.log_z_curve + half
    if known.all():
        ax.fill_between(rung, low, high, color=BLUE, alpha=0.25, lw=0, label="95 % band")
    ax.plot(rung, evidence.log_z_curve, "o-", color=BLUE, ms=4, lw=1.2, label=evidence.method)
    if not known.all():
        ax.plot([], [], " ", label="no error can be stated")
    if exact is not None:
        values = np.asarray(exact(evidence.betas), dtype=float)
        ax.plot(rung, values, "--", color=ORANGE, lw=1.4, label="exact")
    shown = np.unique(np.linspace(0, rung.size - 1, min(rung.size, 8)).round().astype(int))
    ax.set_xticks(shown, [f"{evidence.betas[k]:.2g}" for k in shown])
    ax.set(xlabel="inverse temperature β (rungs evenly spaced)", ylabel="log Z (nats)")
    ax.axhline(0.0, color=GRAY, lw=0.6)
    title = f"log Z(1) = {plus_minus(evidence.log_z, evidence.mcse)}"
    ax.set_title(title, loc="left", fontsize="medium")
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    axes: Axes = ax
    return axes
