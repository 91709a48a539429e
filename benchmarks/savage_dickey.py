"""Is the stated error of the Savage-Dickey ratio the real one: 300 runs a null, exact answers.

The draws are exact and autocorrelated (0.6 from one to the next in regressions, a Gibbs sampler
in the t-test), 4 chains of 500. Each run states a 95 % interval; the coverage is the share of those
that hold the exact log BF. Where it is outside of [0.91, 0.985], 300 further runs are made, and the
600 are judged together.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time

import numpy as np
import pymc as pm
import xarray as xr
from common import Row, parser, save

import pymc_tempering as pmt
from pymc_tempering.model.handle import CompiledModel

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.nested_nulls import (
    NestedNull,
    jzs_draws,
    jzs_log_bf,
    jzs_model,
    regression,
    scaled_regression,
)

CHAINS, DRAWS = 4, 500
COVERAGE = (0.91, 0.985)
PER_DATA = 10
"""Runs of the t-test on the same data; after them come new data."""

type Case = tuple[xr.DataTree, pm.Model | CompiledModel, dict[str, float], float]
"""Draws, model, null, exact log BF10."""


def of(known: NestedNull) -> Callable[[range], Iterator[Case]]:
    """Draw again and again from one posterior."""

    def cases(seeds: range) -> Iterator[Case]:
        for seed in seeds:
            idata = known.draw(np.random.default_rng([7, seed]), CHAINS, DRAWS)
            yield idata, known.model, known.null, known.log_bf

    return cases


def t_test(n: int, effect: float) -> Callable[[range], Iterator[Case]]:
    """Draw data, and from their posteriors."""

    def cases(seeds: range) -> Iterator[Case]:
        handle = pmt.compile(jzs_model(n), progressbar=False)
        for seed in seeds:
            if seed == seeds.start or seed % PER_DATA == 0:
                y = np.random.default_rng([8, seed // PER_DATA]).normal(effect, 1.0, n)
                model, exact = handle.with_data(y=y), jzs_log_bf(y)
            rng = np.random.default_rng([9, seed])
            yield jzs_draws(y, rng, CHAINS, DRAWS), model, {"delta": 0.0}, exact

    return cases


PROBLEMS: dict[str, Callable[[range], Iterator[Case]]] = {
    "regression, 1 coefficient": of(regression()),
    "regression, 2 coefficients": of(regression(elements=(1, 3))),
    "regression, farther": of(regression(effect=0.6)),
    "regression, prior on the noise's scale": of(scaled_regression()),
    "regression, prior on the noise's scale, farther": of(scaled_regression(effect=0.6)),
    "JZS t-test": t_test(25, 0.3),
    "JZS t-test, farther": t_test(25, 0.7),
    "regression, nearly out of reach": of(regression(effect=0.8)),
}


def run(problem: str, seeds: range) -> tuple[np.ndarray, int]:
    """Rows of (log BF, mcse, exact, worth, seconds), and how many runs were refused."""
    rows, refused = [], 0
    for idata, model, null, exact in PROBLEMS[problem](seeds):
        started = process_time()
        try:
            found = pmt.savage_dickey(idata, model, null=null, cores=1, random_seed=1)
        except pmt.exceptions.NullError:
            refused += 1
            continue
        seconds = process_time() - started
        rows.append((found.log_bf, found.mcse, exact, found.ess, seconds))
    return np.array(rows).reshape(-1, 5), refused


def covered(rows: np.ndarray) -> float:
    """Share of the runs whose 95 % interval holds the exact value."""
    log_bf, mcse, exact = rows.T[:3]
    return float(np.mean(np.abs(log_bf - exact) <= 1.959964 * mcse))


def summarize(problem: str, rows: np.ndarray, refused: int) -> Row:
    """Compare what was stated with what is known."""
    log_bf, mcse, exact, worth, seconds = rows.T
    z = (log_bf - exact) / mcse
    return {
        "problem": problem,
        "n": len(rows) + refused,
        "refused": refused,
        "log BF10": f"{exact.mean():.3f}",
        "RMSE": float(np.sqrt(np.mean((log_bf - exact) ** 2))),
        "stated": float(np.median(mcse)),
        "infinite": int(np.isinf(mcse).sum()),
        "mean z": float(z.mean()),
        "sd z": float(z.std(ddof=1)),
        "coverage": covered(rows),
        "worth": float(np.median(worth)),
        "seconds": float(np.median(seconds)),
    }


def main() -> None:
    arguments = parser(__doc__, 300)
    arguments.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    args = arguments.parse_args()
    warnings.simplefilter("ignore", pmt.TemperingWarning)
    table: list[Row] = []
    for problem in args.problems:
        stop = args.seed + args.repeats
        rows, refused = run(problem, range(args.seed, stop))
        if not COVERAGE[0] <= covered(rows) <= COVERAGE[1]:
            more, also = run(problem, range(stop, stop + args.repeats))
            rows, refused = np.concatenate([rows, more]), refused + also
        table.append(summarize(problem, rows, refused))
        print(table[-1], flush=True)
    settings = {
        "seeds": f"from {args.seed} on, of each problem",
        "draws": f"{CHAINS} chains of {DRAWS}, all of them used",
        "stated, worth, seconds": "medians; mcse in nats, independent terms, CPU seconds "
        "with compiled models (those of the t-test are given new data every "
        f"{PER_DATA} runs)",
        "coverage": "of 95 % intervals; with 300 runs known to 1.3 percentage points",
    }
    save("savage_dickey", table, args.out, "Savage-Dickey ratio beside exact factors", settings)


if __name__ == "__main__":
    main()
