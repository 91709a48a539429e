"""HAIS against AIS on products of experts with exact log Z (HAIS paper, Figures 2 and 3).

Sohl-Dickstein & Culpepper (2011), section 5.2: complete products of 36 Student-t experts and of
36 Laplace experts; annealing from a standard normal with beta_n = n / N, unit metric and 200
particles, by one leapfrog step of size 0.2 with persistent momentum (HAIS), the same with fresh
momentum, and a Gaussian proposal of standard deviation 0.1. Their experts were learned from image
patches of natural scenes. Ours are learned from patches of two photographs (`--learned`), or drawn
at random: filters that are a mixed rotation, scaled to the spread of whitened data as theirs were,
and shapes lambda of the Student-t experts of which a third has infinite variance, as theirs had.

The error of one run is |log Z-hat - log Z|. How many intermediate distributions each method needs
for one accuracy is read off a parabola through its root mean squared errors over repeats, log by
log; the error of that number is from a bootstrap over the repeats.

    python benchmarks/hais.py --particles 200 --repeats 12 --max-rungs 10000
"""

import argparse
import csv
from functools import cache
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np
from image_experts import Experts, Kind, learned

from pymc_tempering import HMC, RandomWalkMetropolis
from pymc_tempering.annealed.schedule import BetaSchedule, anneal_blocks, prior_blocks
from pymc_tempering.chain.tuning import Tuning
from pymc_tempering.core.weighting import effective_number, log_mean
from pymc_tempering.kernels import on_all
from pymc_tempering.kernels.persistent import Persistent
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.prior import Reference

RESULTS = Path(__file__).parent / "results"
DIM = 36
LEAPFROG_STEP, WALK_STEP = 0.2, 0.1
KERNELS = {
    "persistent": lambda renewal: Persistent(renewal=renewal),
    "leapfrog": lambda renewal: HMC(max_steps=1),
    "metropolis": lambda renewal: RandomWalkMetropolis(n_steps=1),
}
"""Transitions of one evaluation; `renewal` counts how often half of the power is renewed."""

METHODS = {"HAIS": "persistent", "AIS, leapfrog": "leapfrog", "AIS, Gaussian": "metropolis"}
TARGETS = (8.0, 5.0, 3.0, 2.0, 1.5, 1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.13, 0.09, 0.06)

LENGTHS = {"laplace": np.sqrt(2.0), "student_t": 0.75}
"""Lengths of the filters that give x the spread of whitened data: variance 1, or quartiles."""


@cache
def filters(length: float, seed: int = 0) -> np.ndarray:
    """Filters of the experts, shape (36, 36): a mixed rotation with rows of about one length."""
    rng = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(rng.normal(size=(DIM, DIM)))
    mixing = np.eye(DIM) + 0.05 * rng.normal(size=(DIM, DIM))
    return length * np.exp(rng.uniform(-0.3, 0.3, size=(DIM, 1))) * (mixing @ rotation)


def random_experts(kind: Kind, spread: float = 1.0) -> Experts:
    """Draw experts; x is ``spread`` times as wide as whitened data."""
    shape = np.ones(DIM) if kind == "laplace" else np.linspace(1.1, 2.3, DIM)
    return Experts(kind, filters(LENGTHS[kind] / spread), shape)


def run_once(
    reference: Reference,
    transition: str,
    n_rungs: int,
    n_particles: int,
    seed: int,
    cores: int,
    renewal: float = 1.0,
    leapfrog: float = LEAPFROG_STEP,
) -> tuple[float, float, int, float]:
    """Anneal once; returns log Z-hat, effective number, evaluations and CPU seconds."""
    betas = np.linspace(0.0, 1.0, n_rungs)
    kernel = on_all(KERNELS[transition](renewal), DIM)
    step = WALK_STEP / 2.38 if transition == "metropolis" else leapfrog  # it takes 2.38 sd
    covs = np.broadcast_to(np.eye(DIM), (n_rungs, DIM, DIM)) if kernel.dense else None
    lengths = np.tile(kernel.options[0], (n_rungs, 1))
    ones = np.ones((n_rungs, DIM))
    schedule = BetaSchedule(kernel, Tuning(betas, np.full((n_rungs, 1), step), ones, covs, lengths))
    schedule.params  # noqa: B018  (packed before the clock starts)
    rng = np.random.default_rng(seed)
    began = process_time()
    done = anneal_blocks(prior_blocks(reference, n_particles, rng), schedule, cores)
    seconds = process_time() - began
    return log_mean(done.log_w), effective_number(done.log_w), done.n_evaluations, seconds


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
        with np.errstate(invalid="ignore"):
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--particles", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--min-rungs", type=int, default=10)
    parser.add_argument("--max-rungs", type=int, default=10_000)
    parser.add_argument("--models", nargs="+", default=["student_t", "laplace"], choices=LENGTHS)
    parser.add_argument("--spread", type=float, default=1.0, help="standard deviations of x")
    parser.add_argument("--renewal", type=float, default=1.0,
                        help="halvings of the momentum's power in a unit of time")  # fmt: skip
    parser.add_argument("--step", type=float, default=LEAPFROG_STEP, help="of a leapfrog")
    parser.add_argument("--learned", action="store_true", help="experts of image patches")
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    n_points = round(2 * np.log10(args.max_rungs / args.min_rungs)) + 1
    grid = np.unique(np.geomspace(args.min_rungs, args.max_rungs, n_points).astype(int))
    rows = []
    for kind in args.models:
        system = learned(kind) if args.learned else random_experts(kind, args.spread)
        exact, reference = system.log_z(), compile_model(system.model())
        for n, (method, transition) in product(grid, METHODS.items()):
            if method == "HAIS" and n > args.max_rungs / 3:
                continue  # it is there long before
            for seed in range(args.repeats):
                log_z, ess, evaluations, seconds = run_once(
                    reference, transition, int(n), args.particles, seed, args.cores,
                    args.renewal, args.step,
                )  # fmt: skip
                rows.append({
                    "model": kind, "method": method, "rungs": int(n), "seed": seed,
                    "exact": exact, "error": log_z - exact, "ess": ess,
                    "evaluations": evaluations, "cpu_seconds": seconds,
                })  # fmt: skip
            print(f"{kind} {method} {n}: {np.round([r['error'] for r in rows[-args.repeats:]], 2)}",
                  flush=True)  # fmt: skip
    args.out.mkdir(parents=True, exist_ok=True)
    changed = {"spread": args.spread, "renewal": args.renewal}
    changed |= {"step": args.step} if args.step != LEAPFROG_STEP else {}
    stem = "hais_learned" if args.learned else "hais"
    name = "_".join([stem, *(f"{key}{value:g}" for key, value in changed.items() if value != 1)])
    with (args.out / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    text = (
        "# HAIS and AIS on products of 36 experts\n\n"
        f"`python benchmarks/hais.py --models {' '.join(args.models)} --particles "
        f"{args.particles} --repeats {args.repeats} "
        f"--min-rungs {args.min_rungs} --max-rungs {args.max_rungs} --spread {args.spread:g} "
        f"--renewal {args.renewal:g} --step {args.step:g}{' --learned' if args.learned else ''}`: "
        "one evaluation of the density a distribution and particle, for all three methods. Factors "
        "with one standard "
        "deviation to each side, by a bootstrap over repeats.\n"
    )
    (args.out / f"{name}.md").write_text(text + tables(rows))
    draw(rows, args.out / f"{name}.png")
    print(tables(rows), f"CPU: {sum(r['cpu_seconds'] for r in rows) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
