"""Reference draws beside the chains: RMSE and z of "pooled" and of "rts" on the same runs.

Plain importance sampling from the same draws stands beside them. One core, one run after the other;
the table is written after each model.
"""

import warnings
from collections.abc import Sequence

import numpy as np
from common import Row, parser, prior, run_and_keep, save, system

from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.rts import rts
from pymc_tempering.sampling.recorded import cycles_of

DEFAULT_MODELS = (
    "schools", "regression", "hierarchical", "logistic", "mixture", "twenty_modes", "shells",
    "gaussian100", "funnel",
)  # fmt: skip
SETTINGS = {
    "runs": "pmt.sample() by default: 4 chains of 1,000 draws",
    "plain": "RMSE of the log of the mean weight of the reference draws alone",
    "draws": "of the reference, median; chain, reference: parts of the stated error of pooled",
    "sd, mean, max": "of z = (estimate - exact) / stated error, in runs with a finite one",
    "not ok": "runs with another verdict than ok, which is the same for both",
}


def numbers(found: Sequence[tuple[float, float]], exact: float) -> dict[str, float]:
    """RMSE and z-scores of estimates (log Z, error)."""
    table = np.array(found)
    off, error = table[:, 0] - exact, table[:, 1]
    z = (off / error)[np.isfinite(error)]
    return {
        "RMSE": float(np.sqrt(np.mean(off**2))), "sd": float(z.std(ddof=1)),
        "mean": float(z.mean()), "max": float(np.abs(z).max()),
    }  # fmt: skip


def measure(name: str, seeds: Sequence[int]) -> Row:
    """Run a model with each seed."""
    prior(name)
    exact = float(system(name).log_evidence)
    ours: list[tuple[float, float]] = []
    alone: list[tuple[float, float]] = []
    plain, sizes, parts, odd = [], [], [], 0
    for seed in seeds:
        run, outcome = run_and_keep(name, seed)
        by_rts: Evidence = rts(cycles_of(outcome.chosen.plan, outcome.runs))
        ours.append((run.log_z, run.mcse))
        alone.append((by_rts.log_z, by_rts.mcse))
        odd += run.verdict != "ok"
        sizes.append(outcome.reference.size)
        if outcome.reference.size:
            plain.append(np.log(np.mean(np.exp(outcome.reference - exact))))
            parts.append([run.details[k] for k in ("chain_mcse", "reference_mcse")])
    chain, reference = np.median(parts, axis=0) if parts else (np.nan, np.nan)
    found, before = numbers(ours, exact), numbers(alone, exact)
    return {
        "model": name, "runs": len(seeds), "draws": int(np.median(sizes)),
        "RMSE": found["RMSE"], "RMSE rts": before["RMSE"],
        "ratio": before["RMSE"] / found["RMSE"],
        "plain": float(np.sqrt(np.mean(np.square(plain)))) if plain else float("nan"),
        "chain": float(chain), "reference": float(reference),
        **{key: found[key] for key in ("sd", "mean", "max")},
        **{f"{key} rts": before[key] for key in ("sd", "max")},
        "not ok": odd,
    }  # fmt: skip


def main() -> None:
    args = parser(__doc__, 100, DEFAULT_MODELS).parse_args()
    warnings.simplefilter("ignore")
    seeds = range(args.seed, args.seed + args.repeats)
    rows: list[Row] = []
    for name in args.models:
        rows.append(measure(name, seeds))
        settings = {"seeds": f"{seeds[0]} to {seeds[-1]}", **SETTINGS}
        save("reference_draws", rows, args.out, "Reference draws beside the chains", settings)


if __name__ == "__main__":
    main()
