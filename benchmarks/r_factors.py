"""Published Bayes factors of R's packages BayesFactor and bridgesampling, and ours beside them.

Each pair of models is sampled by `pmt.sample` and compared by `pmt.bayes_factor`, all settings as
they are by default, with three seeds. Beside stands the exact factor by quadrature.
"""

import warnings
from collections import Counter
from collections.abc import Sequence
from time import process_time

import numpy as np
import r_factors_data as data
from common import Row, parser, save
from r_factors_models import MODELS, exact_log_bf
from scipy import stats

import pymc_tempering as pmt

MAX_Z = 3.0
"""Joint errors by which two factors may differ."""

type Key = tuple[str, str, int]
type Runs = dict[Key, tuple[pmt.evidence.Evidence, float]]
"""Evidence and CPU seconds by data, model and seed."""


def fair_coin(heads: int, n: int = 100) -> pmt.evidence.Evidence:
    """Evidence of a coin without an unknown share."""
    return pmt.evidence.Evidence(float(stats.binom.logpmf(heads, n, 0.5)), 0.0, "exact", "ok")


def run(seeds: range) -> Runs:
    """Sample each model once a seed."""
    found: Runs = {}
    for (name, side), build in MODELS.items():
        for seed in seeds:
            started = process_time()
            idata = pmt.sample(model=build(), random_seed=seed, quiet=True, progressbar=False)
            evidence = pmt.log_marginal_likelihood(idata)
            found[name, side, seed] = evidence, process_time() - started
            print(f"{name}: {side}, seed {seed}: {evidence.log_z:.3f}", flush=True)
    for heads in (60, 0):
        for seed in seeds:
            found[f"coin, {heads} of 100", "fair", seed] = fair_coin(heads), 0.0
    return found


def r_error(of: data.Published) -> float:
    """R's error of the log factor (nats): what it states, or the rounding of the figure."""
    digits = len(f"{of.factor!r}".split("e")[0].replace(".", "").lstrip("0"))
    rounding = 0.5 * 10.0 ** (1 - digits)
    return max(of.error, rounding) if np.isfinite(of.error) else rounding


def row_of(of: data.Published, seed: int, runs: Runs) -> Row:
    """Compare one run of a pair with the published factor and the exact one."""
    (upper, first), (lower, second) = (runs[of.data, s, seed] for s in (of.upper, of.lower))
    ours = pmt.bayes_factor(upper, lower)
    published, exact, error = np.log(of.factor), exact_log_bf(of), r_error(of)
    z = (ours.log_bf - published) / np.hypot(ours.mcse, error)
    known = bool(np.isfinite(ours.mcse))
    verdict = "agrees" if abs(z) < MAX_Z else "differs"
    return {
        "data": of.data,
        "model": of.upper,
        "over": of.lower,
        "R": f"{published:.5f}",
        "R's error": error if np.isfinite(of.error) and of.error else "-",
        "exact": f"{exact:.5f}",
        "seed": seed,
        "ours": f"{ours.log_bf:.4f}",
        "mcse": ours.mcse,
        "z to R": float(z) if known else "-",
        "z to exact": float((ours.log_bf - exact) / ours.mcse) if known else "-",
        "verdict": verdict if known else "no error",
        "of the runs": "ok" if upper.verdict == lower.verdict == "ok" else "not ok",
        "CPU s": first + second,
    }


def main() -> None:
    args = parser(__doc__, 3).parse_args()
    warnings.simplefilter("ignore", pmt.TemperingWarning)
    seeds = range(args.seed, args.seed + args.repeats)
    runs = run(seeds)
    rows = [row_of(of, seed, runs) for of in data.PUBLISHED for seed in seeds]
    title = "Published Bayes factors of R's packages"
    save("r_factors", rows, args.out, title, notes(rows, seeds))


def notes(rows: Sequence[Row], seeds: range) -> dict[str, str]:
    """What stands below the table."""
    z = np.array([row["z to exact"] for row in rows if row["verdict"] != "no error"], dtype=float)
    count = Counter(row["verdict"] for row in rows)
    off = [
        (np.log(of.factor) - exact_log_bf(of)) / r_error(of)
        for of in data.PUBLISHED
        if np.isfinite(of.error) and of.error
    ]
    return {
        "seeds": ", ".join(map(str, seeds)),
        "R, exact, ours": "log Bayes factors (nats) of the model over the other",
        "R's error": "relative, as R prints it; - where it prints 0 % or none",
        "z": f"difference in joint errors, agrees below {MAX_Z:g}; sd of z to exact "
        f"{z.std():.2f}, largest {np.abs(z).max():.2f}",
        "verdicts": ", ".join(f"{count[v]} of {len(rows)} {v}" for v in sorted(count)),
        "R beside the exact factors": "largest difference in R's stated errors "
        f"{np.abs(off).max():.2f}, of {len(off)} figures that have one",
        "runs": "pmt.sample() and pmt.bayes_factor() with default settings",
        "CPU s": "both runs, with the compilation of their models in the first seed",
        **{f"source {i}": text for i, text in enumerate(dict.fromkeys(sources()), 1)},
    }


def sources() -> list[str]:
    """Where each figure was published."""
    return [f"{of.data}, {of.upper}, {of.factor:g}: {of.source}" for of in data.PUBLISHED]


if __name__ == "__main__":
    main()
