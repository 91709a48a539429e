"""HAIS against AIS on products of experts with exact log Z (HAIS paper, Figures 2 and 3).

Sohl-Dickstein & Culpepper (2011), section 5.2: complete products of 36 Student-t experts and of
36 Laplace experts; annealing from a standard normal with beta_n = n / N, unit metric and 200
particles, by one leapfrog step of size 0.2 with persistent momentum (HAIS), the same with fresh
momentum, and a Gaussian proposal of standard deviation 0.1. Their experts were learned from image
patches, which are not at hand. Ours are drawn at random: filters that are a mixed rotation,
scaled to the spread of whitened data as theirs were, and shapes lambda of the Student-t experts of
which a third has infinite variance, as theirs had.

The error of one run is |log Z-hat - log Z|. How many intermediate distributions each method needs
for one accuracy is read off its curve of root mean squared errors over repeats.

    python benchmarks/hais.py --particles 200 --repeats 4 --max-rungs 30000
"""

import argparse
import csv
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import gammaln

from pymc_tempering.annealed.setup import Schedule, anneal_blocks, prior_blocks
from pymc_tempering.annealed.transition import pack
from pymc_tempering.annealed.weights import effective_number, log_mean
from pymc_tempering.prepare import compile_model
from pymc_tempering.references import Reference

RESULTS = Path(__file__).parent / "results"
DIM = 36
LEAPFROG_STEP, WALK_STEP = 0.2, 0.1
METHODS = {"HAIS": "persistent", "AIS, leapfrog": "leapfrog", "AIS, Gaussian": "metropolis"}
TARGETS = (2.0, 1.0, 0.5, 0.25, 0.1)

LENGTHS = {"laplace": np.sqrt(2.0), "student_t": 0.75}
"""Lengths of the filters that give x the spread of whitened data: variance 1, or quartiles."""


@dataclass(frozen=True)
class Experts:
    """A complete product of experts as a PyMC model over a standard normal, with its log Z."""

    name: str
    model: pm.Model
    log_z: float


@cache
def filters(length: float, seed: int = 0) -> np.ndarray:
    """Filters of the experts, shape (36, 36): a mixed rotation with rows of about one length."""
    rng = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(rng.normal(size=(DIM, DIM)))
    mixing = np.eye(DIM) + 0.05 * rng.normal(size=(DIM, DIM))
    return length * np.exp(rng.uniform(-0.3, 0.3, size=(DIM, 1))) * (mixing @ rotation)


def experts(kind: str) -> Experts:
    """Build the model: sum over experts of energy(phi_l x), from N(0, I).

    With u = phi x, Z is the product of the experts' own integrals over |det phi|: 2 for exp(-|u|),
    and sqrt(pi) Gamma(lambda - 1/2) / Gamma(lambda) for (1 + u^2)^(-lambda), whose variance is
    infinite for lambda <= 3/2.
    """
    phi = filters(LENGTHS[kind])
    log_det = np.linalg.slogdet(phi)[1]
    with pm.Model() as model:
        x = pm.Normal("x", shape=DIM)
        u = pt.dot(phi, x)
        log_normal = -0.5 * pt.sum(x**2) - 0.5 * DIM * np.log(2.0 * np.pi)
        if kind == "laplace":
            energy = pt.sum(pt.abs(u))
            log_z = DIM * np.log(2.0) - log_det
        else:
            shape = np.linspace(1.1, 2.3, DIM)
            energy = pt.sum(shape * pt.log1p(u**2))
            log_z = np.sum(0.5 * np.log(np.pi) + gammaln(shape - 0.5) - gammaln(shape)) - log_det
        pm.Potential("experts", -energy - log_normal)
    return Experts(kind, model, float(log_z))


def run_once(
    reference: Reference, transition: str, n_rungs: int, n_particles: int, seed: int, cores: int
) -> tuple[float, float, int, float]:
    """Anneal once; returns log Z-hat, effective number, evaluations and CPU seconds."""
    betas = np.linspace(0.0, 1.0, n_rungs)
    step = WALK_STEP if transition == "metropolis" else LEAPFROG_STEP
    params = pack(transition, np.full(n_rungs, step), np.ones((n_rungs, DIM)))
    schedule = Schedule(betas, params, 0)
    rng = np.random.default_rng(seed)
    began = process_time()
    done = anneal_blocks(prior_blocks(reference, n_particles, rng), schedule, cores)
    seconds = process_time() - began
    return log_mean(done.log_w), effective_number(done.log_w), done.n_evaluations, seconds


def rungs_needed(rungs: np.ndarray, rmse: np.ndarray, target: float) -> float:
    """Distributions from which on the RMSE stays below a target, by log-log interpolation."""
    above = np.flatnonzero(rmse >= target)
    if above.size == 0:
        return float(rungs[0])
    last = above[-1]
    if last == rungs.size - 1:
        return np.inf
    at, x, y = np.log(target), np.log(rungs), np.log(rmse)
    share = (y[last] - at) / (y[last] - y[last + 1])
    return float(np.exp(x[last] + share * (x[last + 1] - x[last])))


def tables(rows: list[dict], targets: tuple[float, ...] = TARGETS) -> str:
    """Write the two tables of each model in Markdown: RMSE by rungs, and rungs by RMSE."""
    lines, names, rule = [], " | ".join(METHODS), "|--:|" + "--:|" * len(METHODS)
    for kind in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == kind]
        rungs = np.array(sorted({row["rungs"] for row in mine}))
        curve = {}
        for method in METHODS:
            off = [[r["error"] for r in mine if r["method"] == method and r["rungs"] == n]
                   for n in rungs]  # fmt: skip
            curve[method] = np.array([np.sqrt(np.mean(np.square(e))) for e in off])
        repeats = len([r for r in mine if r["method"] == "HAIS" and r["rungs"] == rungs[0]])
        lines += [f"\n## {kind}: RMSE of log Z in nats, {repeats} repeats\n"]
        lines += [f"| distributions | {names} |", rule]
        for i, n in enumerate(rungs):
            lines.append(f"| {n} | " + " | ".join(f"{curve[m][i]:.2f}" for m in METHODS) + " |")
        lines += [f"\n{kind}: distributions needed for an RMSE, and how many times those of HAIS\n"]
        lines += [f"| RMSE (nats) | {names} |", rule]
        for target in targets:
            need = {m: rungs_needed(rungs, curve[m], target) for m in METHODS}
            if not np.isfinite(need["HAIS"]):
                continue
            floor = bool(need["HAIS"] == rungs[0])  # already there with the fewest
            cells = [f"{'<= ' if floor else ''}{need['HAIS']:.0f}"]
            for method in list(METHODS)[1:]:
                least = rungs[-1] if np.isinf(need[method]) else need[method]
                sign = "> " if np.isinf(need[method]) else ""
                cells.append(
                    f"{sign}{least:.0f} ({sign or '>= ' * floor}{least / need['HAIS']:.0f} x)"
                )
            lines.append(f"| {target:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(rows: list[dict], path: Path) -> None:
    """Draw estimates against the number of distributions, as Figures 2 and 3 do."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    kinds = list(dict.fromkeys(row["model"] for row in rows))
    figure, axes = plt.subplots(1, len(kinds), figsize=(5.4 * len(kinds), 4.2), squeeze=False)
    marks = {"HAIS": ("C0", "x"), "AIS, leapfrog": ("C2", "*"), "AIS, Gaussian": ("C3", ".")}
    for axis, kind in zip(axes[0], kinds, strict=True):
        mine = [row for row in rows if row["model"] == kind]
        for method, (color, marker) in marks.items():
            points = [(r["rungs"], r["error"]) for r in mine if r["method"] == method]
            axis.plot(*np.array(points).T, marker, color=color, label=method, alpha=0.8)
        axis.axhline(0.0, color="C0", linestyle="--", linewidth=1.0, label="exact")
        axis.set(xscale="log", xlabel="intermediate distributions", title=f"{kind} experts, 36-D")

    axes[0, 0].legend(loc="lower right")
    axes[0, 0].set_ylabel("estimate of log Z less exact (nats)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--particles", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--min-rungs", type=int, default=30)
    parser.add_argument("--max-rungs", type=int, default=30_000)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    n_points = round(2 * np.log10(args.max_rungs / args.min_rungs)) + 1
    grid = np.unique(np.geomspace(args.min_rungs, args.max_rungs, n_points).astype(int))
    rows = []
    for kind in ("student_t", "laplace"):
        system = experts(kind)
        reference = compile_model(system.model)
        for n, (method, transition) in product(grid, METHODS.items()):
            for seed in range(args.repeats):
                log_z, ess, evaluations, seconds = run_once(
                    reference, transition, int(n), args.particles, seed, args.cores
                )
                rows.append({
                    "model": kind, "method": method, "rungs": int(n), "seed": seed,
                    "exact": system.log_z, "error": log_z - system.log_z, "ess": ess,
                    "evaluations": evaluations, "cpu_seconds": seconds,
                })  # fmt: skip
            print(f"{kind} {method} {n}: {np.round([r['error'] for r in rows[-args.repeats:]], 2)}",
                  flush=True)  # fmt: skip
    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / "hais.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    text = (
        "# HAIS and AIS on products of 36 experts\n\n"
        f"`python benchmarks/hais.py --particles {args.particles} --repeats {args.repeats} "
        f"--min-rungs {args.min_rungs} --max-rungs {args.max_rungs}`: one evaluation of the "
        "density a distribution and particle, for all three methods.\n"
    )
    (args.out / "hais.md").write_text(text + tables(rows))
    draw(rows, args.out / "hais.png")
    print(tables(rows), f"CPU: {sum(r['cpu_seconds'] for r in rows) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
