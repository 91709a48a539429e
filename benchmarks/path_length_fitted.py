"""HMC's trajectory lengths from a fitted reference: what "auto" saves beside length 1.2.

Each model is sampled by `pmt.sample` as users do it, once with `HMC()` and once with
`HMC(path_length=1.2)`, with the same seeds. The mcse of a run whose chains or legs disagree is the
size of the disagreement and rules a mean over few seeds: hence medians beside means.
"""

import warnings
from dataclasses import dataclass

import arviz as az
import numpy as np
from common import Row, parser, save, system

import pymc_tempering as pmt

DEFAULT_MODELS = ("mixture", "regression", "logistic", "hierarchical", "schools")
LENGTHS = ("auto", 1.2)


@dataclass(frozen=True)
class Cost:
    """Of one run: mcse^2 times gradients, smallest bulk ESS per gradient, and how it went."""

    error: float
    ess: float
    fitted: bool
    ok: bool


def run_once(name: str, length: float | str, seed: int) -> Cost:
    """Sample with one choice of the trajectory length; gradients are those of the draws alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        idata = pmt.sample(
            model=system(name).model, kernel=pmt.kernels.HMC(path_length=length), random_seed=seed,
            cores=1, quiet=True, progressbar=False,
        )  # fmt: skip
        evidence = pmt.log_marginal_likelihood(idata)
    gradients = float(idata["sample_stats"]["n_steps"].sum())
    ess = az.ess(idata["posterior"].to_dataset(), method="bulk")
    smallest = min(float(values.min()) for values in ess.data_vars.values())
    fitted = idata["tempering"].attrs["reference"] == "fitted"
    ok = evidence.verdict == "ok"
    return Cost(evidence.mcse**2 * gradients, smallest / gradients, fitted, ok)


def ratio(auto: np.ndarray, usual: np.ndarray) -> tuple[float, float]:
    """Quotient of the means, and its standard error by leaving out each seed in turn."""
    n = auto.size
    left = (auto.sum() - auto) / (usual.sum() - usual)
    error = np.sqrt((n - 1) / n * np.sum((left - left.mean()) ** 2))
    return float(auto.sum() / usual.sum()), float(error)


def main() -> None:
    args = parser(__doc__, 8, DEFAULT_MODELS).parse_args()
    seeds = range(args.seed, args.seed + args.repeats)
    rows: list[Row] = []
    for name in args.models:
        auto, usual = ([run_once(name, length, seed) for seed in seeds] for length in LENGTHS)
        error, ess = (
            [np.array([getattr(run, field) for run in runs]) for runs in (auto, usual)]
            for field in ("error", "ess")
        )
        medians = float(np.median(error[0]) / np.median(error[1]))
        row: Row = {"model": name, "n": len(seeds), "mcse^2 x gradients, medians": medians}
        row["means"], row["its error"] = ratio(*error)
        row["ESS / gradient, means"], row["error of that"] = ratio(*ess)
        row["not ok"] = ", ".join(str(sum(not run.ok for run in runs)) for runs in (auto, usual))
        row["fitted"] = sum(run.fitted for run in auto + usual)
        rows.append(row)
        print(row, flush=True)
    settings = {
        "seeds": f"{seeds.start} to {seeds.stop - 1}, the same for both lengths",
        "run": "pmt.sample() by default but for the kernel: 4 chains of 1000 draws",
        "gradients": "those of the chains that give the draws",
        "ESS": "smallest bulk ESS of the posterior draws",
        "figures": 'those of "auto" over those of length 1.2, of medians or means over seeds',
        "its error": "of the quotient of means: jackknife over seeds",
        "not ok": 'runs with another verdict, of "auto" and of length 1.2',
        "fitted": "of the 2 n runs, those that answered from a fitted reference",
    }
    title = "Trajectory lengths of HMC from a fitted reference"
    save("path_length_fitted", rows, args.out, title, settings)


if __name__ == "__main__":
    main()
