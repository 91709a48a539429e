"""The evidence, or a Bayes factor, along the values of a prior's number."""

from typing import TYPE_CHECKING, Any

import numpy as np

from pymc_tempering.arguments import check_choice
from pymc_tempering.evidence.prior_curves import PriorSensitivity
from pymc_tempering.evidence.sensitivity_curve import SensitivityCurve
from pymc_tempering.plots.axes import BLUE, GRAY, HALF_WIDTH, ORANGE, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWS = {
    "log_z": "log Z (nats)",
    "default": "log Bayes factor over the default (nats)",
    "against": "log Bayes factor over the other model (nats)",
}


def plot_prior_sensitivity(
    sensitivity: PriorSensitivity,
    name: str | None = None,
    *,
    show: str | None = None,
    ax: Any = None,
    figsize: tuple[float, float] | None = None,
    backend_kwargs: dict[str, Any] | None = None,
) -> "Axes":
    """Draw one curve of a prior sensitivity with its 95 % intervals, and mark the default.

    Disks are from the reweighted draws of the default run, squares from fresh runs; a gap is left
    where no error can be stated.

    Parameters
    ----------
    sensitivity : PriorSensitivity
        From :func:`pymc_tempering.prior_sensitivity`.
    name : str, optional
        Which curve; the first by default.
    show : {"log_z", "default", "against"}, optional
        log Z; or the log Bayes factor over the default, or over the other model. By default the
        last that there is.
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
    KeyError
        If there is no curve of that name.
    ImportError
        If Matplotlib is not installed.
    ValueError
        If ``show`` is not known, or "against" without another model.

    Examples
    --------
    >>> import pymc as pm, pymc_tempering as pmt
    >>> with pm.Model() as model:
    ...     b = pm.Normal("b", 0, 1)
    ...     y = pm.Normal("y", b, 1, observed=1.5)
    ...     idata = pmt.sample(500, random_seed=1, quiet=True)
    >>> found = pmt.prior_sensitivity(idata, model, {"b": [0.5, 1.0, 2.0]}, quiet=True)
    >>> pmt.plot_prior_sensitivity(found).get_xlabel()
    'scale of b, times its default'
    """
    curve = sensitivity.curves[0] if name is None else sensitivity[name]
    if show is None:
        show = "default" if sensitivity.against is None else "against"
    check_choice("show", show, SHOWS)
    value, error = _shown(sensitivity, curve, show)
    if ax is None:
        ax = new_axes(figsize or (7.0, 4.2), backend_kwargs)
    order = np.argsort(curve.coordinate, kind="stable")
    x, half = curve.coordinate[order], HALF_WIDTH * error[order]
    y = np.where(np.isfinite(half), value[order], np.nan)
    source = np.array(curve.source)[order]
    ax.fill_between(x, y - half, y + half, color=BLUE, alpha=0.25, lw=0, label="95 % interval")
    ax.plot(x, y, "-", color=BLUE, lw=1.2)
    for kind, marker, label in (("reweighted", "o", "reweighted"), ("rerun", "s", "fresh run")):
        here = (source == kind) & np.isfinite(y)
        if here.any():
            face = BLUE if kind == "reweighted" else "white"
            bars = ax.errorbar(
                x[here], y[here], half[here], fmt=marker, color=BLUE, mfc=face, ms=5, lw=1.2,
                capsize=2, label=label,
            )  # fmt: skip
            bars.lines[0].set_zorder(4)
    _mark_default(ax, curve)
    if show != "log_z":
        ax.axhline(0.0, color=GRAY, lw=0.8)
    if not np.isfinite(y).all():
        ax.plot([], [], " ", label="gap: no error can be stated")
    positive = curve.values.ndim == 1 and np.all(x > 0.0)
    if positive and x.max() > 5.0 * x.min():
        _log_axis(ax, x)
    ax.set(xlabel=curve.label, ylabel=SHOWS[show])
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    axes: Axes = ax
    return axes


def _shown(
    sensitivity: PriorSensitivity, curve: SensitivityCurve, show: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the values to draw, and their errors."""
    if show == "against":
        return sensitivity.against_of(curve)
    if show == "default":
        return curve.log_bf, curve.log_bf_mcse
    return curve.log_z, curve.mcse


def _mark_default(ax: Any, curve: SensitivityCurve) -> None:
    """Draw a line where the default is, if that is a place on the axis."""
    if curve.default.ndim == 0:
        ax.axvline(float(curve.default), color=ORANGE, lw=1.4, ls="--", label="default")


def _log_axis(ax: Any, x: np.ndarray) -> None:
    """Put a logarithmic scale with plain numbers on the axis of the values."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    ax.set_xscale("log")
    decades = np.log10(x.max() / x.min())
    subs = (1.0, 2.0, 5.0) if decades < 3.0 else (1.0,)
    ax.xaxis.set_major_locator(LogLocator(subs=subs))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
