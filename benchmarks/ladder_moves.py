"""Tours from the prior by the move on the ladder and by the number of rungs.

A tour is a round trip between reference and posterior; what a move or a spacing of the ladder is
worth shows in the tours of a fixed number of iterations.
"""

import warnings
from collections.abc import Sequence

import numpy as np
from common import Row, parser, save, system

import pymc_tempering as pmt

MOVES = ("metropolized_gibbs", "gibbs", "nonreversible")
USUAL = 1.5
CONFIGURATIONS = (
    *((move, USUAL) for move in MOVES),
    *((MOVES[0], intervals) for intervals in (1.0, 2.0, 3.0)),
)
"""Every move on the usual ladder, and the default move on others."""
DEFAULT_MODELS = ("regression", "mixture", "hierarchical")
ITERATIONS = 20_000


def run_once(name: str, move: str, intervals: float, seed: int) -> tuple[float, ...]:
    """Tours and log Z's variance in so many iterations, gradients each, and rungs of one run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        idata = pmt.sample(
            model=system(name).model, reference="prior", ladder_move=move, random_seed=seed,
            rungs_per_barrier=intervals, cores=1, quiet=True, progressbar=False,
        )  # fmt: skip
        evidence = pmt.log_marginal_likelihood(idata)
    stats = idata["sample_stats"]
    iterations = float(stats["tempering_steps"].sum())
    return (
        evidence.n_tours / iterations * ITERATIONS,
        evidence.mcse**2 * iterations / ITERATIONS,
        float(stats["n_steps"].sum()) / iterations,
        float(idata["tempering"].sizes["rung"]),
    )


def summarize(name: str, move: str, intervals: float, seeds: Sequence[int]) -> Row:
    """Means over seeds; an infinite mcse stays infinite."""
    runs = np.array([run_once(name, move, intervals, seed) for seed in seeds])
    tours, variance, gradients, rungs = runs.mean(axis=0)
    return {
        "model": name, "move": move, "intervals": intervals, "n": len(seeds),
        "rungs": float(rungs), "tours": float(tours),
        "its error": float(runs[:, 0].std(ddof=1) / np.sqrt(len(seeds))),
        "gradients": float(gradients), "mcse": float(np.sqrt(variance)),
    }  # fmt: skip


def main() -> None:
    args = parser(__doc__, 8, DEFAULT_MODELS).parse_args()
    seeds = range(args.seed, args.seed + args.repeats)
    rows: list[Row] = []
    settings = {
        "seeds": f"{seeds.start} to {seeds.stop - 1}, a warm-up and 4 chains of 1000 draws each",
        "run": "pmt.sample(reference='prior'), all else by default",
        "intervals": "of the ladder, for each unit of the barrier (rungs_per_barrier)",
        "tours, mcse": f"of {ITERATIONS} iterations: number, and root mean square stated error",
        "its error": "standard error of the mean over seeds",
        "gradients": "an iteration",
    }
    for name in args.models:
        for move, intervals in CONFIGURATIONS:
            rows.append(summarize(name, move, intervals, seeds))
            print(rows[-1], flush=True)
        save("ladder_moves", rows, args.out, "Moves on the ladder, and its spacing", settings)


if __name__ == "__main__":
    main()
