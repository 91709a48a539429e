"""HAIS against AIS on products of experts with exact log Z (HAIS paper, Figures 2 and 3).

Sohl-Dickstein & Culpepper (2011), section 5.2: complete products of 36 Student-t experts and of
36 Laplace experts; annealing from a standard normal with beta_n = n / N, unit metric and 200
particles, by one leapfrog step of size 0.2 with persistent momentum (HAIS), the same with fresh
momentum, and a Gaussian proposal of standard deviation 0.1. Their experts were learned from image
patches of natural scenes. Ours are learned from patches of two photographs (`--learned`), or drawn
at random: filters that are a mixed rotation, scaled to the spread of whitened data as theirs were,
and shapes lambda of the Student-t experts of which a third has infinite variance, as theirs had.
With `--tuned` each distribution has its own step size and metric instead, and with `--matched` the
path begins at a reference whose tails are those of the experts (`Experts.matched`).

The error of one run is |log Z-hat - log Z|. How many intermediate distributions each method needs
for one accuracy is read off a parabola through its root mean squared errors over repeats, log by
log; the error of that number is from a bootstrap over the repeats.

    python benchmarks/hais.py --particles 200 --repeats 12 --max-rungs 10000
"""

import argparse
import csv
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from time import process_time

import numpy as np
import pymc as pm
from hais_tables import METHODS, draw, tables
from image_experts import Experts, Kind, learned

from pymc_tempering.annealed.schedule import (
    Annealing,
    BetaSchedule,
    anneal_blocks,
    compile_movers,
    freeze,
    learn_path,
    prior_blocks,
)
from pymc_tempering.arrays.carried import given_betas
from pymc_tempering.chain.plan import Tuning
from pymc_tempering.core.weighting import effective_number, log_mean
from pymc_tempering.kernels import HMC, RandomWalkMetropolis, on_all
from pymc_tempering.kernels.hmc import Persistent
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

type Schedules = Callable[[int], BetaSchedule]

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


def paper_schedule(
    transition: str, n_rungs: int, renewal: float = 1.0, leapfrog: float = LEAPFROG_STEP
) -> BetaSchedule:
    """Return the paper's schedule: betas n / N, unit metric, one step size for all."""
    betas = np.linspace(0.0, 1.0, n_rungs)
    kernel = on_all(KERNELS[transition](renewal), DIM)
    step = WALK_STEP / 2.38 if transition == "metropolis" else leapfrog  # it takes 2.38 sd
    lengths = np.tile(kernel.options[0], (n_rungs, 1))
    ones = np.ones((n_rungs, DIM))
    return BetaSchedule(kernel, Tuning(betas, np.full((n_rungs, 1), step), ones, (None,), lengths))


def tuned_schedules(
    model: pm.Model, transition: str, renewal: float
) -> tuple[Reference, Schedules]:
    """Return the compiled model, and schedules as `pmt.annealed.hais` makes them, by a pilot.

    Each distribution has its own step size, for the acceptance that the kernel wants, and its own
    standard deviations, and the distributions are at equal distances along the path.
    """
    movers = compile_movers(model, "persistent", lambda line: None)
    movers = replace(movers, kernel=on_all(KERNELS[transition](renewal), DIM))
    path = learn_path(Annealing(movers, np.random.default_rng(0)))
    return movers.reference, lambda n: freeze(movers, path, given_betas(n, path.alive))


def run_once(
    reference: Reference, schedule: BetaSchedule, n_particles: int, seed: int, cores: int
) -> tuple[float, float, int, float]:
    """Anneal once; returns log Z-hat, effective number, evaluations and CPU seconds."""
    schedule.params  # noqa: B018  (packed before the clock starts)
    rng = np.random.default_rng(seed)
    began = process_time()
    done = anneal_blocks(prior_blocks(reference, n_particles, rng), schedule, cores)
    seconds = process_time() - began
    return log_mean(done.log_w), effective_number(done.log_w), done.n_evaluations, seconds


def rows_of(kind: Kind, grid: np.ndarray, args: argparse.Namespace) -> list[dict]:
    """Anneal to one product of experts with all methods, at all numbers of distributions."""
    experts = learned(kind) if args.learned else random_experts(kind, args.spread)
    model = experts.matched() if args.matched else experts.model()
    exact, reference = experts.log_z(), compile_model(model)
    rows = []
    for method, transition in METHODS.items():
        schedule_of: Schedules = partial(
            paper_schedule, transition, renewal=args.renewal, leapfrog=args.step
        )
        if args.tuned or args.matched:
            reference, schedule_of = tuned_schedules(model, transition, args.renewal)
        for n in grid:
            if method == "HAIS" and n > args.max_rungs / 3:
                continue  # it is there long before
            schedule = schedule_of(int(n))
            for seed in range(args.repeats):
                log_z, ess, evaluations, seconds = run_once(
                    reference, schedule, args.particles, seed, args.cores
                )
                rows.append({
                    "model": kind, "method": method, "rungs": int(n), "seed": seed,
                    "exact": exact, "error": log_z - exact, "ess": ess,
                    "evaluations": evaluations, "cpu_seconds": seconds,
                })  # fmt: skip
            print(f"{kind} {method} {n}: {np.round([r['error'] for r in rows[-args.repeats:]], 2)}",
                  flush=True)  # fmt: skip
    return rows


def name_of(args: argparse.Namespace) -> str:
    """Name of the files of a run by what differs from the paper's settings."""
    stem = "hais_learned" if args.learned else "hais"
    if args.matched or args.tuned:
        stem = f"{stem}_matched" if args.matched else f"{stem}_tuned"
    changed = {"spread": args.spread, "renewal": args.renewal}
    changed |= {"step": args.step} if args.step != LEAPFROG_STEP else {}
    return "_".join([stem, *(f"{key}{value:g}" for key, value in changed.items() if value != 1)])


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
    parser.add_argument("--tuned", action="store_true",
                        help="steps and distances of distributions by a pilot")  # fmt: skip
    parser.add_argument("--matched", action="store_true",
                        help="tuned, from a reference with the tails of the experts")  # fmt: skip
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    n_points = round(2 * np.log10(args.max_rungs / args.min_rungs)) + 1
    grid = np.unique(np.geomspace(args.min_rungs, args.max_rungs, n_points).astype(int))
    rows = [row for kind in args.models for row in rows_of(kind, grid, args)]
    args.out.mkdir(parents=True, exist_ok=True)
    name = name_of(args)
    with (args.out / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    flags = "".join(f" --{flag}" for flag in ("learned", "tuned", "matched") if vars(args)[flag])
    text = (
        "# HAIS and AIS on products of 36 experts\n\n"
        f"`python benchmarks/hais.py --models {' '.join(args.models)} --particles "
        f"{args.particles} --repeats {args.repeats} "
        f"--min-rungs {args.min_rungs} --max-rungs {args.max_rungs} --spread {args.spread:g} "
        f"--renewal {args.renewal:g} --step {args.step:g}{flags}`: "
        "one evaluation of the density a distribution and particle, for all three methods. Factors "
        "with one standard "
        "deviation to each side, by a bootstrap over repeats.\n"
    )
    (args.out / f"{name}.md").write_text(text + tables(rows))
    draw(rows, args.out / f"{name}.png")
    print(tables(rows), f"CPU: {sum(r['cpu_seconds'] for r in rows) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
