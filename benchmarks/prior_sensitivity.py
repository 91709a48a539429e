"""Coverage of the 95 % intervals of `pmt.prior_sensitivity`, on two models with exact answers.

Each run is made once, with the states of all rungs kept, and its curve is made twice: from all
states, and from the draws at beta = 1 alone. `log_z` and `log_bf` are the coverages of the
intervals of log Z and of the log Bayes factor over the default. A scale whose coverage is outside
of [0.91, 0.985] gets as many further runs, and is judged by all of them.
"""

import warnings
from collections.abc import Iterator
from time import perf_counter

import numpy as np
import xarray as xr
from common import Row, parser, save

import pymc_tempering as pmt
from pymc_tempering import testsystems

FACTORS = {
    "scaled_regression": (0.4, 0.7, 2.0, 5.0, 10.0),
    "jzs_t_test": (0.15, 0.5, 2.0, 5.0, 10.0),
}
SYSTEMS = {
    "scaled_regression": testsystems.scaled_regression,
    "jzs_t_test": testsystems.jzs_t_test,
}
LOW, HIGH = 0.91, 0.985
HALF = 1.959963984540054
DRAWS = 300

type Results = dict[tuple[str, float], list[tuple[float, ...]]]


def curves(
    idata: xr.DataTree, system: testsystems.ScaledSystem, seed: int
) -> Iterator[tuple[str, pmt.SensitivityCurve]]:
    """Return the curve from all states, and that from the draws."""
    bare = idata.copy()
    del bare["tempering_states"]
    for kind, tree in (("states", idata), ("draws", bare)):
        found = pmt.prior_sensitivity(
            tree,
            system.model,
            {system.variable: FACTORS[system.name]},
            random_seed=seed,
            quiet=True,
            sample_kwargs={"keep": "log_ratio"},
        )
        yield kind, found[system.variable]


def run(system: testsystems.ScaledSystem, seeds: range) -> Results:
    """Make runs, and hold each value of their curves against the exact one."""
    exact = {factor: system.log_z(factor) for factor in (1.0, *FACTORS[system.name])}
    results: Results = {}
    for seed in seeds:
        started = perf_counter()
        idata = pmt.sample(
            DRAWS, model=system.model, random_seed=seed, quiet=True, keep="states", cores=1
        )
        seconds = perf_counter() - started
        for kind, curve in curves(idata, system, seed):
            for i, factor in enumerate(FACTORS[system.name]):
                off = curve.log_z[i] - exact[factor]
                off_bf = curve.log_bf[i] - (exact[factor] - exact[1.0])
                results.setdefault((kind, factor), []).append(
                    (
                        off / curve.mcse[i], off_bf / curve.log_bf_mcse[i], curve.mcse[i],
                        curve.log_bf_mcse[i], curve.khat[i], curve.source[i] == "rerun", seconds,
                    )
                )  # fmt: skip
    return results


def coverage(values: list[tuple[float, ...]]) -> tuple[float, float]:
    """Shares of the intervals of log Z and of log BF that hold the exact value."""
    z = np.array(values)[:, :2]
    return tuple(np.mean(np.abs(z) < HALF, axis=0))


def outside(values: list[tuple[float, ...]]) -> bool:
    """Whether a coverage is outside of what is allowed."""
    return not all(LOW <= share <= HIGH for share in coverage(values))


def summarize(name: str, kind: str, factor: float, values: list[tuple[float, ...]]) -> Row:
    """One row of the table."""
    table = np.array(values)
    log_z, log_bf = coverage(values)
    return {
        "model": name,
        "from": kind,
        "scale": factor,
        "n": len(values),
        "coverage log_z": log_z,
        "coverage log_bf": log_bf,
        "sd z": float(table[:, 0].std(ddof=1)),
        "sd z bf": float(table[:, 1].std(ddof=1)),
        "mcse": float(np.median(table[:, 2])),
        "mcse bf": float(np.median(table[:, 3])),
        "k-hat": float(np.median(table[:, 4])),
        "reruns": int(table[:, 5].sum()),
        "ok": "no" if outside(values) else "yes",
    }


def main() -> None:
    arguments = parser(__doc__, 300)
    arguments.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    args = arguments.parse_args()
    warnings.simplefilter("ignore", pmt.TemperingWarning)
    rows: list[Row] = []
    for name in args.systems:
        system = SYSTEMS[name]()
        results = run(system, range(args.seed, args.seed + args.repeats))
        if any(outside(values) for values in results.values()):
            again = range(args.seed + args.repeats, args.seed + 2 * args.repeats)
            more = run(system, again)
            for key, values in results.items():
                if outside(values):
                    values += more[key]
        rows += [summarize(name, *key, values) for key, values in sorted(results.items())]
    settings = {
        "seeds": f"from {args.seed} on, one a run",
        "runs": f"pmt.sample({DRAWS}, keep='states'), 4 chains; prior_sensitivity by default",
        "sd z": "standard deviation of error over stated error, of log Z and of log BF",
        "k-hat, mcse": "medians; reruns: values for which a fresh run was made",
        "ok": f"coverages in [{LOW}, {HIGH}], of 95 % intervals",
    }
    save("prior_sensitivity", rows, args.out, "Coverage of prior sensitivity", settings)


if __name__ == "__main__":
    main()
