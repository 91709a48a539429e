"""The report of a tempered fit, its DataTree, and a picture of fits."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import xarray as xr
from pymc.variational.opvi import Approximation

from pymc_tempering.arguments import RandomSeed, as_seed, check_whole
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.status import text_as_html
from pymc_tempering.evidence.result import Evidence, as_text, counted, plus_minus
from pymc_tempering.model.bambi import noted
from pymc_tempering.plots.sheet import BLUE, GRAY, GREEN, ORANGE, Panel, finished, open_panels
from pymc_tempering.variational.assess import Drift


@dataclass(frozen=True)
class ColdTrials:
    """What the trials found.

    Attributes
    ----------
    starts : int
        How many fits began.
    n : int
        Iterations of all of them.
    elbo, tempered_elbo : float
        Untempered ELBO of the best trial and of the tempered stage, medians over the last
        iterations of each (nats).
    """

    starts: int
    n: int
    elbo: float
    tempered_elbo: float

    @property
    def won(self) -> bool:
        """Whether the fit went on from where the best trial had ended."""
        return self.elbo > self.tempered_elbo


@dataclass(frozen=True, repr=False, eq=False)
class TemperedOptimum:
    """Where the tempered stage of VT or LVT ended: an optimum of the *tempered* model.

    It approximates the posterior of the model with the temperature as a further variable, not
    that of the user's model.

    Attributes
    ----------
    params : dict of ndarray
        Parameters of the approximation there, by name (unconstrained space).
    iteration : int
        Iterations before it.
    inverse_temperature : float
        E[1/T] there, averaged over data for LVT.
    loss : float
        Negative tempered ELBO there, median of the last iterations, in the scale of
        ``approx.hist``.
    settled : bool
        Whether q(T) and the ELBO had come to rest, or the stage ran out of iterations.
    """

    params: Mapping[str, FloatArray]
    iteration: int
    inverse_temperature: float
    loss: float
    settled: bool

    def __repr__(self) -> str:
        state = "settled" if self.settled else "not settled"
        return (
            f"TemperedOptimum({state} after {self.iteration} iterations at "
            f"E[1/T] = {self.inverse_temperature:.3g})"
        )

    _repr_html_ = text_as_html


@dataclass(frozen=True, repr=False, eq=False)
class TemperedFit:
    """History and quality of a fit by :func:`pymc_tempering.fit`: its ``approx.tempering``.

    Attributes
    ----------
    method : str
    elbo, elbo_mcse : float
        ELBO of the final approximation at T = 1 on all data, and its standard error (nats).
    khat : float
        Pareto k-hat of the importance weights of the final approximation.
    evidence : Evidence or None
        log Z by Pareto smoothed importance sampling from the approximation, method "psis_vi";
        None where the model has no evidence (an improper prior).
    converged : bool
        Whether the ELBO came to rest at T = 1.
    drift : Drift
        The numbers behind ``converged``.
    n_tempered : int
        Iterations of the tempered stage.
    elbo_history : ndarray, shape (iteration,)
        Untempered ELBO, one noisy estimate an iteration (nats, full data).
    inverse_temperature : ndarray, shape (iteration,)
        E[1/T]; for LVT averaged over data.
    temperatures : ndarray, shape (M,)
        Grid of temperatures; of length 1 for "advi", empty for "annealed".
    q : ndarray, shape (update, M)
        q(T) in force from each update on; for LVT averaged over data.
    q_iteration : ndarray, shape (update,)
        First iteration at which it was in force.
    tempered : TemperedOptimum or None
        Where VT or LVT left the tempered model.
    local : dict of ndarray
        LVT: E[1/T] of each datum at the tempered optimum, by observed variable.
    log_c, log_c_mcse : ndarray, shape (M,), or None
        log C(T) of VT with global normalizers and its error (nats).
    warnings : tuple of str
        One sentence each, saying what to do.
    trials : ColdTrials or None
        The fits at T = 1 that competed with the tempered stage: how many, their iterations, the
        ELBO of the best and of the tempered stage (nats), and whether it ``won``.
    """

    method: str
    elbo: float
    elbo_mcse: float
    khat: float
    evidence: Evidence | None
    converged: bool
    drift: Drift
    n_tempered: int
    elbo_history: FloatArray
    inverse_temperature: FloatArray
    temperatures: FloatArray
    q: FloatArray
    q_iteration: FloatArray
    tempered: TemperedOptimum | None
    local: Mapping[str, FloatArray]
    log_c: FloatArray | None
    log_c_mcse: FloatArray | None
    warnings: tuple[str, ...]
    trials: ColdTrials | None = None

    @property
    def n_iterations(self) -> int:
        """Iterations in all stages."""
        return int(self.inverse_temperature.size)

    def temperature_probability(self, iteration: int) -> FloatArray:
        """q(T) in force at an iteration, shape (M,).

        Raises
        ------
        ValueError
            If there is no such iteration, or the method has no q(T).
        """
        if not 0 <= iteration < self.n_iterations:
            raise ValueError(f"iteration must be in 0..{self.n_iterations - 1}, got {iteration}")
        if not self.q_iteration.size:
            raise ValueError(f"method {self.method!r} has no distribution over temperatures")
        return self.q[int(np.searchsorted(self.q_iteration, iteration, side="right")) - 1]

    def _rows(self) -> dict[str, str]:
        rows = {
            "method": self.method,
            "ELBO at T = 1": f"{plus_minus(self.elbo, self.elbo_mcse)} nats",
        }
        if self.evidence is not None:
            log_z = plus_minus(self.evidence.log_z, self.evidence.mcse)
            rows["log Z (psis_vi)"] = f"{log_z} nats"
        rows |= {
            "Pareto k-hat": f"{self.khat:.2f}",
            "iterations": f"{self.n_iterations}, {self.n_tempered} of them tempered",
            "converged": f"{self.drift.in_words if self.converged else 'no'}: {self.drift}",
        }
        if (trials := self.trials) is not None:
            values = f"ELBO {trials.elbo:.1f}, of the tempered stage {trials.tempered_elbo:.1f}"
            end = "the best goes on" if trials.won else "given up"
            if self.method == "annealed" and trials.won:
                end += ", so that heat was no better than pm.fit"
            count = f"{trials.starts} in {trials.n} iterations"
            rows["trials at T = 1"] = f"{count}, {values} nats: {end}"
        if self.tempered is not None:
            rows["tempered optimum"] = repr(self.tempered)
        return rows

    def __repr__(self) -> str:
        return as_text(["TemperedFit", self._rows()], counted(self.warnings))

    _repr_html_ = text_as_html


GIVEN = "_model_given"
"""Attribute of an approximation that holds the model as the user gave it."""


def tempering_of(approx: Approximation, function: str) -> TemperedFit:
    """Return the report that ``fit`` attached.

    Raises
    ------
    ValueError
        If there is none.
    """
    report = getattr(approx, "tempering", None)
    if not isinstance(report, TemperedFit):
        raise ValueError(
            f"{function} needs an approximation from pmt.fit, got {type(approx).__name__} without "
            "`tempering`"
        )
    return report


def to_datatree(
    approx: Approximation,
    draws: int = 1000,
    *,
    random_seed: RandomSeed = None,
) -> xr.DataTree:
    """Put a fit into a DataTree: draws, ELBO and temperature history.

    Parameters
    ----------
    approx : Approximation
        From :func:`pymc_tempering.fit`.
    draws : int, default 1000
        Independent draws from the approximation, at T = 1.
    random_seed : int or numpy.random.Generator, optional
        Seed of the draws.

    Returns
    -------
    DataTree
        The groups of ``approx.sample`` (``posterior``, in the constrained space, one chain), and
        ``variational``: by ``iteration`` ``loss`` (negative tempered ELBO, as ``approx.hist``),
        ``elbo`` (untempered, one noisy estimate each, nats) and ``inverse_temperature``; by
        ``update`` ``update_iteration``, and by ``update`` and ``temperature``
        ``temperature_probability``; ``log_c`` and ``log_c_mcse`` (nats) of VT;
        ``inverse_temperature_of_<observed>`` of LVT, in the shape of the data. Its attributes hold
        ``method``, ``elbo``, ``elbo_mcse``, ``log_z``, ``log_z_mcse`` (nats; NaN without an
        evidence), ``khat``, ``converged`` (0 or 1) and ``n_tempered``.

    Raises
    ------
    ValueError
        If ``approx`` does not come from :func:`pymc_tempering.fit`, or ``draws`` is below 1.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_tempering as pmt
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     y = pm.Normal("y", mu, observed=np.array([1.2, 0.7, 1.1]))
    >>> adam = pm.adam(learning_rate=0.05)
    >>> approx = pmt.fit(2000, model=model, obj_optimizer=adam, random_seed=1, progressbar=False)
    >>> idata = pmt.to_datatree(approx, draws=100)
    >>> idata["posterior"]["mu"].shape, idata["variational"]["elbo"].dims
    ((1, 100), ('iteration',))
    """
    report = tempering_of(approx, "to_datatree")
    check_whole(1, draws=draws)
    idata = noted(
        approx.sample(draws, random_seed=as_seed(random_seed)), getattr(approx, GIVEN, None)
    )
    idata["variational"] = xr.DataTree(_history(approx, report))
    return idata


def _history(approx: Approximation, report: TemperedFit) -> xr.Dataset:
    variables: dict[str, Any] = {
        "loss": ("iteration", approx.hist),
        "elbo": ("iteration", report.elbo_history),
        "inverse_temperature": ("iteration", report.inverse_temperature),
    }
    coords: dict[str, Any] = {"iteration": np.arange(report.n_iterations)}
    if report.temperatures.size:
        variables["update_iteration"] = ("update", report.q_iteration)
        variables["temperature_probability"] = (("update", "temperature"), report.q)
        coords["temperature"] = report.temperatures
        for name in ("log_c", "log_c_mcse"):
            if (value := getattr(report, name)) is not None:
                variables[name] = ("temperature", value)
    for name, value in report.local.items():
        dims = approx.model.named_vars_to_dims.get(name)
        if dims is None or len(dims) != value.ndim:
            dims = tuple(f"{name}_dim_{i}" for i in range(value.ndim))
        variables[f"inverse_temperature_of_{name}"] = (tuple(dims), value)
    evidence = report.evidence
    attrs = {
        "method": report.method,
        "elbo": report.elbo,
        "elbo_mcse": report.elbo_mcse,
        "log_z": np.nan if evidence is None else evidence.log_z,
        "log_z_mcse": np.nan if evidence is None else evidence.mcse,
        "khat": report.khat,
        "converged": int(report.converged),
        "n_tempered": report.n_tempered,
    }
    return xr.Dataset(variables, coords, attrs)


PURPLE, YELLOW, SKY = "#CC79A7", "#E69F00", "#56B4E9"

VISUALS = ("elbo", "inverse_temperature", "cold")
LINES = ("C0", "C1", "C2", "C3")
"""Kinds of line, so that fits can be told apart in gray."""
POINTS = 200
"""Points of a curve; each is a median over the iterations between them."""


def plot_annealing(
    fits: Approximation | Mapping[str, Approximation],
    **options: Any,
) -> Any:
    """Draw the untempered ELBO and E[1/T] of one or several fits against the iteration.

    How to read it: the ELBO should be flat at the end, and the fit that ends highest is the
    closest to its posterior; one that ends lower with the same model is in a worse optimum.

    The ELBO is that at T = 1 of the approximation at each iteration, whatever the temperature was
    then: medians over short stretches, since each single value is noisy. A dot marks where the
    stage at T = 1 begins. The first descent of the ELBO is left out.

    Parameters
    ----------
    fits : Approximation or dict of Approximation
        From :func:`pymc_tempering.fit`; a dict gives them names.
    **options
        As every picture takes them (see the gallery): ``plot_collection`` with panels "elbo",
        "inverse_temperature"; ``backend``; ``visuals``, of "elbo", "inverse_temperature", "cold";
        and arguments of ``PlotCollection.wrap``.

    Returns
    -------
    PlotCollection
        With what was drawn in ``viz``, by visual and panel; parts have the fit's number appended.

    Raises
    ------
    ValueError
        If there is no fit, one does not come from :func:`pymc_tempering.fit`, the backend or a
        visual is not known, or ``plot_collection`` lacks a panel.
    ImportError
        If the backend is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_tempering as pmt
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     y = pm.Normal("y", mu, observed=np.array([1.2, 0.7, 1.1]))
    >>> adam = pm.adam(learning_rate=0.05)
    >>> approx = pmt.fit(2000, model=model, obj_optimizer=adam, random_seed=1, progressbar=False)
    >>> pc = pmt.plot_annealing(approx)
    >>> pc.viz["plot"].panel.values.tolist()
    ['elbo', 'inverse_temperature']
    """
    named = dict(fits) if isinstance(fits, Mapping) else {"": fits}
    if not named:
        raise ValueError("plot_annealing needs at least one fit")
    reports = {name: tempering_of(approx, "plot_annealing") for name, approx in named.items()}
    panels = open_panels(("elbo", "inverse_temperature"), (7.0, 5.0), VISUALS, options)
    draw_annealing(panels[0], panels[1], reports)
    return finished(panels)


def draw_annealing(top: Panel, bottom: Panel, reports: Mapping[str, TemperedFit]) -> None:
    """Draw both curves of each fit, and where its stage at T = 1 begins."""
    colors = cycle((BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW, GRAY))
    curves = [_curve(report.elbo_history) for report in reports.values()]
    low = min(elbo[elbo.size // 4 :].min() for _, elbo in curves)
    high = max(elbo.max() for _, elbo in curves)
    room = max(high - low, 1e-6)
    low, high = low - 0.15 * room, high + 0.1 * room
    for k, ((name, report), color) in enumerate(zip(reports.items(), colors, strict=False)):
        style = {"color": color, "part": str(k)}
        line = {"width": 1.6, "linestyle": LINES[k % len(LINES)]} | style
        at, elbo = curves[k]
        label = name or report.method.replace("_", " ")
        first = int(np.flatnonzero(elbo < low)[-1]) + 1 if np.any(elbo < low) else 0
        top.line("elbo", at[first:], elbo[first:], label=label, **line)
        bottom.line("inverse_temperature", *_curve(report.inverse_temperature), **line)
        n = report.n_tempered
        if 0 < n < report.n_iterations:
            if n >= at[first]:
                top.dots("cold", [n], [np.interp(n, at, elbo)], size=8.0, **style)
            bottom.dots("cold", [n], [1.0], size=8.0, **style)
    longest = max(report.n_iterations for report in reports.values())
    ends = (-0.02 * longest, 1.02 * longest)
    top.axes("", "ELBO at T = 1 (nats)", x=ends, y=(low, high))
    bottom.axes("iteration; dots: T = 1 from here", "E[1/T]", x=ends, y=(0.0, 1.08))


def _curve(history: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return iterations and medians of a history over short stretches."""
    parts = np.array_split(np.arange(history.size), min(POINTS, history.size))
    return (
        np.array([part.mean() for part in parts]),
        np.array([np.median(history[part]) for part in parts]),
    )
