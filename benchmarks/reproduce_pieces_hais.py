"""Figures 2 to 5 and Table 1 of the HAIS paper for `reproduce.py`."""

from math import isfinite
from typing import Any

import numpy as np
from hais_tables import TARGETS, factors
from reproduce_piece import Piece, Table, says

ORDER = ("linear, normal prior", "linear, Laplace prior", "experts, Student-t")
"""Models of Table 1 whose order the paper's claim is about, of 36 filters or bases each."""


WORSE = ("path", "from the prior", "by chains alone")
"""Ends of the names of lines that are there beside better ones of the same model."""


def judge_factors(rows: Table) -> str:
    """Ten times fewer distributions than either form of AIS, in the mean over accuracies."""
    numbers: list[dict[str, Any]] = [
        row | {"rungs": int(row["rungs"]), "error": float(row["error"])} for row in rows
    ]
    said = []
    for kind in dict.fromkeys(row["model"] for row in numbers):
        mine = [row for row in numbers if row["model"] == kind]
        found = factors(mine, np.array(TARGETS))
        for method in ("AIS, leapfrog", "AIS, Gaussian"):
            times, spread = found[method][:, -1]
            if not np.isfinite(times):
                text = f"{kind}: HAIS and {method} reach no accuracy both"
                said.append(f"**not shown**: {text}")
                continue
            low, high = times * np.exp(-spread), times * np.exp(spread)
            text = (
                f"{kind}: {method} needs {times:.1f} times ({low:.1f} to {high:.1f}) those of HAIS"
            )
            said.append(says(times >= 10.0, text))
    return "; ".join(said)


def judge_figure4(rows: Table) -> str:
    """The linear model with the normal prior comes to its exact likelihood."""
    mine = [row for row in rows if row["model"] == ORDER[0]]
    last = max(mine, key=lambda row: int(row["rungs"]))
    off, error = float(last["estimate"]) - float(last["exact"]), float(last["mcse"])
    text = f"{off:+.3f} nats off at {last['rungs']} distributions, standard error {error:.3f}"
    return says(isfinite(error) and abs(off) < 4.0 * error, text)


def judge_figure5(rows: Table) -> str:
    """More experts raise the likelihood; Student-t ones are above Laplace ones."""
    mine = [row for row in rows if row["method"] != "tempering"]
    mine.sort(key=lambda row: row["learned by"] == "likelihood")  # the best complete ones, last
    value = {(row["kind"], int(row["experts"])): float(row["log likelihood"]) for row in mine}
    unknown = [row for row in mine if not isfinite(float(row["mcse"]))]
    if unknown:
        names = ", ".join(f"{row['experts']} {row['kind']}" for row in unknown)
        return f"**not shown**: no finite error for {names} experts"
    sizes = sorted({n for _, n in value})
    said = []
    for kind in ("Laplace", "Student-t"):
        gain = value[kind, sizes[-1]] - value[kind, sizes[0]]
        text = f"{kind}: {gain:+.2f} nats from {sizes[0]} (by likelihood) to {sizes[-1]} experts"
        said.append(says(gain > 0.0, text))
    above = min(value["Student-t", n] - value["Laplace", n] for n in sizes)
    said.append(says(above > 0.0, f"Student-t above Laplace by at least {above:.2f} nats"))
    return "; ".join(said)


def judge_table1(rows: Table) -> str:
    """Gaussian < Laplace < Student-t, with errors that are known."""
    last = {row["model"]: row for row in sorted(rows, key=lambda row: int(row["rungs"]))}
    values = [float(last[name]["estimate"]) for name in ORDER]
    errors = [float(last[name]["mcse"]) for name in ORDER]
    names = ("Gaussian", "Laplace", "Student-t")
    text = " < ".join(
        f"{name} {value:.2f} ± {error:.2f}"
        for name, value, error in zip(names, values, errors, strict=True)
    )
    steps = zip(values, values[1:], errors, errors[1:], strict=False)
    holds = all(b - a > 4.0 * np.hypot(e, f) for a, b, e, f in steps)
    last = {name: row for name, row in last.items() if not name.endswith(WORSE)}
    best = max(last.values(), key=lambda row: float(row["estimate"]))
    unknown = [name for name, row in last.items() if not isfinite(float(row["mcse"]))]
    more = f"; the best is {best['model']}, {float(best['estimate']):.2f}"
    more += f"; no finite error: {', '.join(unknown)}" if unknown else "; all errors are finite"
    return says(bool(holds), text) + more


def judge_likelihoods(rows: Table) -> str:
    """Figure 4, then Table 1."""
    return f"Figure 4 {judge_figure4(rows)}. Table 1 {judge_table1(rows)}"


PIECES = (
    Piece(
        "hais_learned",
        "Figures 2 and 3: HAIS against AIS on learned experts",
        ("--learned", "--particles", "50", "--repeats", "3", "--max-rungs", "100"),
        "HAIS needs fewer intermediate distributions than AIS with a Gaussian proposal or with "
        "leapfrog steps of fresh momentum, by an order of magnitude or more.",
        judge_factors,
        "Persistence saves a random walk. The Laplace experts here are a few steps wide, where "
        "there is little of one to save. The Student-t experts have no mean, and no path from a "
        "normal has a finite length there. [Annealed methods](annealed.md) has both, and what is "
        "changed by tuned step sizes and by a reference with the tails of the experts.",
        paper="HAIS",
        script="hais",
    ),
    Piece(
        "image_likelihoods",
        "Figure 4 and Table 1: log likelihood of image patches",
        ("--lines", *ORDER, "--rungs", "300", "1000", "--patches", "2"),
        "Figure 4: the estimate of HAIS comes to the exact log likelihood of the linear model with "
        "a Gaussian prior. Table 1: sparse priors and experts raise the log likelihood, Gaussian < "
        "Laplace < Student-t, and the bilinear model is the best.",
        judge_likelihoods,
        "The patches are of two photographs, half of them nearly flat, which widens the steps. The "
        "last column but one is the exact value, where there is one. Lines with a path from a "
        "standard normal, or from the prior, are as in the paper; the others begin nearer to the "
        "target, see [annealed methods](annealed.md). The line whose path is the machine's own "
        "misses nearly all of its mass: 22.75 is wrong. Two patches, as in the small run, say "
        "nothing of the order.",
        paper="HAIS",
    ),
    Piece(
        "image_overcomplete",
        "Figure 5: number of experts",
        ("--experts", "36", "48", "--rounds", "300", "--rungs", "1000"),
        "More experts raise the log likelihood of test patches until it stands or they overfit; "
        "Student-t experts do much better than Laplace experts.",
        judge_figure5,
        "36, 72 and 144 experts alone, learned by persistent chains in place of minimum "
        "probability flow. At these sizes nothing overfits, where the paper's Student-t experts "
        "did with more.",
        paper="HAIS",
    ),
)
