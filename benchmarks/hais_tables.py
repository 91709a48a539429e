"""Tables and pictures of `hais.py`: errors by rungs, rungs by error, and their factors."""

import warnings
from pathlib import Path

import numpy as np

METHODS = {"HAIS": "persistent", "AIS, leapfrog": "leapfrog", "AIS, Gaussian": "metropolis"}
TARGETS = (8.0, 5.0, 3.0, 2.0, 1.5, 1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.13, 0.09, 0.06, 0.04, 0.03)


def parabola(rungs: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Fit log RMSE, of errors (rungs, repeats), by a parabola in log rungs."""
    rmse = np.sqrt(np.mean(np.square(errors), axis=1))
    return np.polyfit(np.log(rungs), np.log(rmse), min(2, len(rungs) - 2))


def rungs_needed(rungs: np.ndarray, curve: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Distributions at which a curve has each RMSE; NaN outside of those that were run."""
    x = np.linspace(np.log(rungs[0]), np.log(rungs[-1]), 2000)
    y = np.minimum.accumulate(np.polyval(curve, x))
    return np.exp(np.interp(np.log(targets), y[::-1], x[::-1], left=np.nan, right=np.nan))


def factors(rows: list[dict], targets: np.ndarray, n_boot: int = 500) -> dict[str, np.ndarray]:
    """Distributions of each method over those of HAIS for an RMSE, and the sd of its logarithm.

    Returns arrays of shape (2, targets); the mean over targets that both reach is appended as a
    last column.
    """
    rng = np.random.default_rng(0)
    result = {}
    table = {method: error_table([r for r in rows if r["method"] == method]) for method in METHODS}
    for method in METHODS:
        logs = []
        for i in range(n_boot + 1):
            need = {}
            for name in ("HAIS", method):
                rungs, errors = table[name]
                pick = rng.integers(errors.shape[1], size=errors.shape) if i else (
                    np.tile(np.arange(errors.shape[1]), (len(errors), 1))
                )  # fmt: skip
                drawn = np.take_along_axis(errors, pick, axis=1)
                need[name] = rungs_needed(rungs, parabola(rungs, drawn), targets)
            logs.append(np.log(need[method] / need["HAIS"]))
        logs = np.array(logs)
        both = np.isfinite(logs[0])
        logs = np.column_stack([logs, np.nanmean(logs[:, both], axis=1) if both.any() else (
            np.full(n_boot + 1, np.nan)
        )])  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # levels that no draw reaches
            result[method] = np.array([np.exp(logs[0]), np.nanstd(logs[1:], axis=0)])
    return result


def error_table(rows: list[dict]) -> tuple[np.ndarray, np.ndarray]:
    """Rungs (n,) and errors (n, repeats) of the rows of one method."""
    rungs = np.array(sorted({row["rungs"] for row in rows}))
    return rungs, np.array([[r["error"] for r in rows if r["rungs"] == n] for n in rungs])


def tables(rows: list[dict], targets: tuple[float, ...] = TARGETS) -> str:
    """Write the two tables of each model in Markdown: RMSE by rungs, and rungs by RMSE."""
    lines, names, rule = [], " | ".join(METHODS), "|--:|" + "--:|" * len(METHODS)
    at = np.array(targets)
    for kind in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == kind]
        found = {m: error_table([r for r in mine if r["method"] == m]) for m in METHODS}
        repeats = found["HAIS"][1].shape[1]
        lines += [f"\n## {kind}: RMSE of log Z in nats, {repeats} repeats\n"]
        lines += [f"| distributions | {names} |", rule]
        for n in sorted({row["rungs"] for row in mine}):
            cells = []
            for rungs, errors in found.values():
                rmse = np.sqrt(np.mean(np.square(errors[rungs == n])))
                cells.append(f"{rmse:.2f}" if n in rungs else "-")
            lines.append(f"| {n} | " + " | ".join(cells) + " |")
        lines += [f"\n{kind}: distributions needed for an RMSE, and how many times those of HAIS\n"]
        lines += [f"| RMSE (nats) | {names} |", rule]
        ratio = factors(mine, at)
        need = {m: rungs_needed(rungs, parabola(rungs, e), at) for m, (rungs, e) in found.items()}
        for i, target in enumerate(targets):
            cells = []
            for method in METHODS:
                times, sd = ratio[method][:, i]
                more = f" ({times:.1f} x, {times * np.exp(-sd):.1f} to {times * np.exp(sd):.1f})"
                known = method != "HAIS" and np.isfinite(times)
                cells.append(f"{need[method][i]:.0f}{more if known else ''}".replace("nan", "-"))
            if any(cell != "-" for cell in cells):
                lines.append(f"| {target:g} | " + " | ".join(cells) + " |")
        means = ["1"]
        for method in list(METHODS)[1:]:
            times, sd = ratio[method][:, -1]
            means.append(f"{times:.1f} x, {times * np.exp(-sd):.1f} to {times * np.exp(sd):.1f}")
        lines.append("| mean of these | " + " | ".join(means) + " |")
    return "\n".join(lines) + "\n"


def draw(rows: list[dict], path: Path) -> None:
    """Draw estimates against the number of distributions, as Figures 2 and 3 do."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    kinds = list(dict.fromkeys(row["model"] for row in rows))
    figure, axes = plt.subplots(2, len(kinds), figsize=(5.4 * len(kinds), 7.6), squeeze=False)
    marks = {"HAIS": ("C0", "x"), "AIS, leapfrog": ("C2", "*"), "AIS, Gaussian": ("C3", ".")}
    for (axis, below), kind in zip(axes.T, kinds, strict=True):
        mine = [row for row in rows if row["model"] == kind]
        for method, (color, marker) in marks.items():
            points = [(r["rungs"], r["error"]) for r in mine if r["method"] == method]
            axis.plot(*np.array(points).T, marker, color=color, label=method, alpha=0.8)
            rungs, errors = error_table([r for r in mine if r["method"] == method])
            rmse = np.sqrt(np.mean(np.square(errors), axis=1))
            below.plot(rungs, rmse, marker, color=color)
            fine = np.geomspace(rungs[0], rungs[-1], 100)
            below.plot(fine, np.exp(np.polyval(parabola(rungs, errors), np.log(fine))), color=color)
        axis.axhline(0.0, color="C0", linestyle="--", linewidth=1.0, label="exact")
        axis.set(xscale="log", xlabel="intermediate distributions", title=f"{kind} experts, 36-D")
        below.set(xscale="log", yscale="log", xlabel="intermediate distributions")
    axes[0, 0].legend(loc="lower right")
    axes[0, 0].set_ylabel("estimate of log Z less exact (nats)")
    axes[1, 0].set_ylabel("RMSE of log Z (nats), fitted parabola")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
