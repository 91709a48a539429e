"""Cases, truths and the table of planets in radial velocities."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.common import Row

FAR, LEAST = 4.0, 0.05
"""Errors that an answer may be off by, and nats that it may always be off by."""


@dataclass(frozen=True)
class Case:
    """A model, its truth with an error or a range (nats), and how it is run.

    Attributes
    ----------
    planets : int
    periods : {"broad", "narrow"}
    repeats : int
        Runs by default.
    truth, error : float
        NaN where there is only a range.
    low, high : float
        Of the range.
    options : dict
        Further arguments of `pmt.sample`.
    """

    planets: int
    periods: str
    repeats: int
    truth: float = float("nan")
    error: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    options: dict[str, float] = field(default_factory=dict)

    @property
    def stated(self) -> str:
        """The truth, as in the table."""
        if np.isnan(self.truth):
            return f"{self.low} to {self.high}"
        return f"{self.truth:.3f} ± {self.error:.3f}"


CASES = {
    "1 broad": Case(1, "broad", 40, truth=-445.950, error=0.003),
    "1 narrow": Case(1, "narrow", 10, truth=-441.593, error=0.003),
    "2 narrow": Case(2, "narrow", 10, truth=-390.774, error=0.005),
    "2 broad": Case(2, "broad", 10, low=-399.3, high=-397.4, options={"max_time": 600.0}),
}

NOTES = {
    "run": "pmt.sample() by default on one core, for 2 broad with max_time=600, in a process that "
    "has compiled the model before",
    "right": f"log Z is within {FAR:.0f} errors, both joined, or {LEAST} nats of the truth; of 2 "
    "broad, in the range",
    "not ok": "a verdict other than ok; `failed`: no answer, since the run raised or was ended",
    "abs z": "abs(log Z - truth) over both errors joined, of all runs with a finite mcse",
    "arrived": "looks from the prior that came to where the draws are, median",
    "cpu, wall": "seconds, compiling not counted; of failed runs those until then",
}


@dataclass(frozen=True)
class PlanetRun:
    """What one run said.

    Attributes
    ----------
    status : str
        "done", or why there is no answer.
    log_z, mcse : float
        In nats.
    check : str
        Verdict of the looks.
    looks, arrived, passes : str
        Numbers, where they are known.
    cpu, wall : float
        Of the call, seconds.
    seconds, evaluations : str
        Of the stages, as JSON.
    """

    case: str
    seed: int
    status: str
    log_z: float = float("nan")
    mcse: float = float("nan")
    verdict: str = ""
    check: str = ""
    looks: str = ""
    arrived: str = ""
    passes: str = ""
    least_ess: float = float("nan")
    cpu: float = float("nan")
    wall: float = float("nan")
    seconds: str = ""
    evaluations: str = ""
    warnings: str = ""


def error_of(run: PlanetRun) -> float:
    """Error of a run and of the truth, joined (nats)."""
    return float(np.hypot(run.mcse, CASES[run.case].error))


def is_right(run: PlanetRun) -> bool:
    """Whether log Z of a run is the true one, by its own error."""
    case = CASES[run.case]
    if np.isnan(case.truth):
        return case.low <= run.log_z <= case.high
    return abs(run.log_z - case.truth) <= max(FAR * error_of(run), LEAST)


def one_row(name: str, runs: Sequence[PlanetRun]) -> Row:
    """Row of a case."""
    case, back = CASES[name], [run for run in runs if run.status == "done"]
    ok = [run for run in back if run.verdict == "ok"]
    sure = [run for run in back if np.isfinite(run.mcse)]
    z = [abs(run.log_z - case.truth) / error_of(run) for run in sure]

    def of(function: Callable[[Any], Any], values: Sequence[float]) -> str | float:
        values = [value for value in values if not np.isnan(value)]
        return float(function(values)) if values else ""

    return {
        "case": name,
        "truth": case.stated,
        "n": len(runs),
        "ok and right": sum(map(is_right, ok)),
        "ok and wrong": sum(not is_right(run) for run in ok),
        "not ok": len(back) - len(ok),
        "failed": len(runs) - len(back),
        "median abs z": of(np.median, z),
        "largest abs z": of(np.max, z),
        "median mcse": of(np.median, [run.mcse for run in back]),
        "median cpu": of(np.median, [run.cpu for run in runs]),
        "max cpu": of(np.max, [run.cpu for run in runs]),
        "max wall": of(np.max, [run.wall for run in runs]),
        "arrived": of(np.median, [float(run.arrived) for run in back if run.arrived]),
    }


def table(runs: Sequence[PlanetRun]) -> list[Row]:
    """Rows of all cases that have runs."""
    by_case = {name: [run for run in runs if run.case == name] for name in CASES}
    return [one_row(name, own) for name, own in by_case.items() if own]


def failures(runs: Sequence[PlanetRun]) -> str:
    """Name the runs without an answer, and why."""
    failed = Counter(f"{run.case}: {run.status}" for run in runs if run.status != "done")
    return "; ".join(f"{text} ({n})" for text, n in failed.items()) or "none"
