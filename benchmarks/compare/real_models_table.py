"""The table of real models, and the judgment whether what was promised holds."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Row
from benchmarks.models.real_models_entry import HALVES
from benchmarks.models.real_models_list import all_models

FAR = 4.0
"""Errors that an answer may be off by."""
MIXED = 1.01
"""R-hat up to which NUTS has mixed."""
SLOWER, LESS_PRECISE = 5.0, 2.0
"""CPU seconds and mcse of tempering, over those of NUTS and bridge sampling, that are allowed."""
LEAST_ESS = 400.0
MAX_TRUTH_ERROR = 0.1
"""Nats; a truth that is less certain judges nothing."""

NOTES = {
    "tempering": "pmt.sample() and pmt.log_marginal_likelihood() by default, on one core",
    "bridge": "nutpie, 4 x 1,000 draws after 1,000, and pmt.bridge_sampling; on one core",
    "CPU s": "of the process after compiling, medians over seeds",
    "truth": "exact: by conjugacy, a sum, quadrature, or importance sampling over what a sum "
    "leaves or over few parameters; else the more precise of two long runs, with a ? where the "
    f"other is missing or differs by more than {FAR:.0f} errors; error in nats",
    "z": "largest |log Z - truth| over both errors joined, of the seeds",
    "ratio": "CPU seconds of tempering over those of the bridge; where its mcse is more than "
    f"{LESS_PRECISE:.0f} times the bridge's, times the squared factor that is beyond it",
    "due": "whether the ratio is to be held: R-hat at most "
    f"{MIXED}, a verdict of the bridge of ok, and its answer right, at most of the seeds",
    "verdicts": "of tempering, by seed",
}

type Line = dict[str, Any]


def read_runs(path: Path) -> list[Line]:
    """Read the runs that earlier calls have left."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def number(run: Line, name: str) -> float:
    """Read a number of a run; NaN where there is none."""
    return float(run[name] or "nan")


def chosen_truth(truths: Sequence[Line]) -> tuple[float, float, str]:
    """Return log Z, its error and how it was found; the error of methods that disagree is wider."""
    found = sorted(
        (number(run, "mcse"), number(run, "log_z"), run["method"])
        for run in truths
        if run["status"] == "done" and np.isfinite(number(run, "mcse"))
    )
    if not found:
        return np.nan, np.nan, "none"
    error, log_z, method = found[0]
    if method == "exact":
        return log_z, error, method
    if len(found) == 1:
        return log_z, error, f"{method}?"
    off = abs(found[1][1] - log_z)
    if off > FAR * np.hypot(error, found[1][0]):
        return log_z, off, f"{method}?"
    return log_z, error, f"{method}, {found[1][2]}"


def z_scores(runs: Sequence[Line], truth: float, error: float) -> np.ndarray:
    """Distances of answers from the truth, in errors of both."""
    return np.array(
        [(number(r, "log_z") - truth) / np.hypot(number(r, "mcse"), error) for r in runs]
    )


def warned(run: Line) -> bool:
    """Whether a run of tempering said that something may be wrong."""
    return run["verdict"] != "ok" or bool(json.loads(run["warnings"] or "[]"))


def short(status: str) -> str:
    """Shorten what is said of a run that did not return: the kind of error, or the time."""
    said = status.removeprefix("failed: ")
    if said == status:
        return status.split(" < ")[0]
    return said.split(":")[0].rpartition(".")[2]


def shown(value: float, form: str = "{:.4g}") -> str:
    """Format a number; nothing where there is none."""
    return "" if np.isnan(value) else form.format(value)


def median(runs: Sequence[Line], name: str) -> float:
    """Median of a number over runs that have it."""
    values = [number(run, name) for run in runs]
    values = [value for value in values if not np.isnan(value)]
    return float(np.median(values)) if values else float("nan")


def is_due(bridge: Sequence[Line], truth: float, error: float) -> bool:
    """Whether NUTS and the bridge did well at most of the seeds."""
    good = [
        number(run, "rhat") <= MIXED and run["verdict"] == "ok" and abs(z) <= FAR
        for run, z in zip(bridge, z_scores(bridge, truth, error), strict=True)
    ]
    return bool(good) and 2 * sum(good) > len(good)


def ratio_of(ours: Sequence[Line], bridge: Sequence[Line]) -> float:
    """CPU seconds of tempering over the bridge's, until its mcse is at most twice the bridge's."""
    ratio = median(ours, "cpu") / median(bridge, "cpu")
    worse = median(ours, "mcse") / median(bridge, "mcse")
    return float(ratio * (worse / LESS_PRECISE) ** 2) if worse > LESS_PRECISE else ratio


def one_row(name: str, runs: Sequence[Line], truths: Sequence[Line]) -> Row:
    """Row of a model."""
    entry = all_models()[name]
    truth, error, how = chosen_truth([run for run in truths if run["model"] == name])
    mine = [run for run in runs if run["model"] == name]
    ours = [r for r in mine if r["method"] == "tempering" and r["status"] == "done"]
    bridge = [r for r in mine if r["method"] == "nuts_bridge" and r["status"] == "done"]
    lost = [
        short(r["status"]) for r in mine if r["method"] == "tempering" and r["status"] != "done"
    ]
    zs = np.abs(z_scores(ours, truth, error))
    words = [r["verdict"] + ("" if r["verdict"] != "ok" or not warned(r) else "!") for r in ours]
    return {
        "model": name,
        "half": entry.half,
        "d": entry.dim,
        "rows": entry.rows,
        "truth": f"{truth:.4f} ± {error:.1g}" if how != "none" else "",
        "by": how,
        "log Z": shown(median(ours, "log_z"), "{:.3f}"),
        "mcse": shown(median(ours, "mcse"), "{:.2g}"),
        "z": shown(float(zs.max()) if zs.size else float("nan"), "{:.1f}"),
        "verdicts": ", ".join([*words, *lost]),
        "CPU s": shown(median(ours, "cpu"), "{:.3g}"),
        "ESS": shown(median(ours, "ess"), "{:.0f}"),
        "bridge log Z": shown(median(bridge, "log_z"), "{:.3f}"),
        "bridge mcse": shown(median(bridge, "mcse"), "{:.2g}"),
        "bridge CPU s": shown(median(bridge, "cpu"), "{:.3g}"),
        "R-hat": shown(median(bridge, "rhat"), "{:.3f}"),
        "ratio": shown(ratio_of(ours, bridge), "{:.3g}"),
        "due": "yes" if is_due(bridge, truth, error) else "no",
    }


def table(runs: Sequence[Line], truths: Sequence[Line]) -> list[Row]:
    """Rows of all models that have runs, in the order of their files."""
    there = {run["model"] for run in runs}
    return [one_row(name, runs, truths) for name in all_models() if name in there]


def judge(runs: Sequence[Line], truths: Sequence[Line]) -> dict[str, str]:
    """Say of each promise whether it holds, for each half of the models and for both."""
    halves = {
        half: [run for run in runs if all_models()[run["model"]].half == half] for half in HALVES
    }
    parts = {half: part for half, part in halves.items() if part}
    if len(parts) > 1:
        parts["both"] = list(runs)
    return {
        f"{half}: {k}": v
        for half, part in parts.items()
        for k, v in _judge_part(part, truths).items()
    }


def _judge_part(runs: Sequence[Line], truths: Sequence[Line]) -> dict[str, str]:
    """Judge some models."""
    ours = [run for run in runs if run["method"] == "tempering"]
    back = [run for run in ours if run["status"] == "done"]
    rows = table(runs, truths)
    slow = [f"{r['model']} ({r['ratio'] or 'no answer'})" for r in rows
            if r["due"] == "yes" and not float(r["ratio"] or "inf") <= SLOWER]  # fmt: skip
    right, false_alarms, far = 0, [], []
    for run in back:
        truth, error, _ = chosen_truth([t for t in truths if t["model"] == run["model"]])
        z = float(z_scores([run], truth, error)[0])
        if np.isnan(z) or error > MAX_TRUTH_ERROR:
            continue
        label = f"{run['model']} seed {run['seed']}"
        if abs(z) <= FAR:
            right += 1
            false_alarms += [label] if warned(run) else []
        elif not warned(run):
            far.append(f"{label} ({z:.1f})")
    few = [f"{r['model']} ({r['ESS']})" for r in rows if r["ESS"] and float(r["ESS"]) < LEAST_ESS]
    due = sum(r["due"] == "yes" for r in rows)
    return {
        "returned": f"{len(back)} of {len(ours)} runs, {len({r['model'] for r in back})} of "
        f"{len({r['model'] for r in ours})} models",
        f"ratio above {SLOWER:.0f}": f"{len(slow)} of {due} models where it is due: "
        f"{', '.join(slow) or 'none'}",
        f"off by more than {FAR:.0f} errors without a warning": ", ".join(far) or "none",
        "right answers with a warning": f"{len(false_alarms)} of {right}: "
        f"{', '.join(false_alarms) or 'none'}",
        f"least ESS below {LEAST_ESS:.0f}": ", ".join(few) or "none",
    }
