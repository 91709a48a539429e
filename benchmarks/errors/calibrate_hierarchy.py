"""`pmt.calibrate` on a hierarchical against a pooled model, and its test on exact evidences.

The first table is of one calibration of two models of eight groups of five measurements, as the
page on calibration shows them, and of the same evidences with a fault planted: one nat too much for
the hierarchical model, or log Bayes factors that are half as large. The second has shares of
tables of exact log evidences, of two regressions on 100 rows, in which the test raised an alarm:
with the right evidences, and with a prior of twice the scale in one of them.
"""

import sys
from dataclasses import replace
from pathlib import Path
from time import process_time

import numpy as np
import pymc as pm

import pymc_tempering as pmt
from benchmarks.common import Row, parser, save
from pymc_tempering.evidence.calibration import ALARM, Calibration

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from support.conjugate_regressions import two_regressions

GROUPS, EACH = 8, 5
SCALES = (0.1, 0.2, 0.3, 0.5, 1.0)


def pooled() -> pm.Model:
    """All groups alike."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", mu, sigma, observed=np.zeros((GROUPS, EACH)))
    return model


def hierarchical() -> pm.Model:
    """Groups whose means scatter."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        tau = pm.HalfNormal("tau", 0.5)
        theta = pm.Normal("theta", mu, tau, shape=GROUPS)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", theta[:, None], sigma, observed=np.zeros((GROUPS, EACH)))
    return model


def row_of(what: str, found: Calibration) -> Row:
    """Return what a calibration says of the second model."""
    mean, factors = found.models().iloc[1], found.factors()
    first, second = found.names
    return {
        "evidences": what,
        "verdict": found.verdict,
        "p": found.p_value,
        "p of ranks": found.rank_p_value,
        "mean": mean["mean"],
        "se": mean["se"],
        "mean BF under pooled": factors["mean"][second, first],
        "its k-hat": factors["k-hat"][second, first],
        "mean 1/BF under hierarchical": factors["mean"][first, second],
    }


def alarms(tables: int, n: int, seed: int) -> list[Row]:
    """Shares of tables of exact evidences with an alarm."""
    rows = []
    for sd in SCALES:
        row: Row = {"prior sd": sd, "tables": tables, "data sets": n}
        for what, doubled in (("right", False), ("doubled", True)):
            made = two_regressions(tables, n, doubled=doubled, sd=sd, seed=seed)
            prior = np.full(2, 0.5)
            found = [Calibration(("a", "b"), prior, *one) for one in zip(*made, strict=True)]
            row[what] = float(np.mean([each.p_value < ALARM for each in found]))
        rows.append(row)
    return rows


def main() -> None:
    """Run both."""
    options = parser(__doc__, 500)
    options.add_argument("--data-sets", type=int, default=200)
    options.add_argument("--exact-only", action="store_true")
    args = options.parse_args()
    rows = alarms(args.repeats, args.data_sets, args.seed)
    title = "Alarms of a calibration, from exact evidences"
    save("calibrate_alarms", rows, args.out, title, {"seed": str(args.seed)})
    if args.exact_only:
        return
    models = {"pooled": pooled(), "hierarchical": hierarchical()}
    pmt.calibrate(models, 4, random_seed=0, quiet=True)  # compiles
    began = process_time()
    found = pmt.calibrate(models, args.data_sets, random_seed=args.seed, quiet=True)
    seconds = process_time() - began
    print(found)
    assert found.runs is not None
    shifted = replace(found, log_z=found.log_z + np.array([0.0, 1.0]))
    halved = replace(found, log_z=0.5 * found.log_z)
    rows = [
        row_of("computed", found),
        row_of("one nat too much", shifted),
        row_of("half the log Bayes factor", halved),
    ]
    counts = found.runs["verdict"].value_counts()
    settings = {
        "seed": str(args.seed),
        "data sets": str(args.data_sets),
        "runs": ", ".join(f"{count} {verdict}" for verdict, count in counts.items()),
        "CPU seconds, compiling apart": f"{seconds:.0f}",
    }
    title = "Calibration of a hierarchical against a pooled model"
    save("calibrate_hierarchy", rows, args.out, title, settings)
    pmt.plot_calibration(found, backend="matplotlib").savefig(args.out / "calibrate_hierarchy.png")
    print(found.curve(), found.rank_table(), found.models(), found.factors(), sep="\n")


if __name__ == "__main__":
    main()
