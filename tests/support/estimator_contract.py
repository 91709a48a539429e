"""The contract of the estimators that read a run: one row an estimator, and what it is to give."""

from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from pymc_tempering.evidence import ESTIMATORS, integrate
from support.repeated_runs import BETAS, TOYS, ratio_moments, repeated_runs

REFERENCE_DRAWS = 600
"""Further draws of the reference beside each run."""


@dataclass(frozen=True)
class Row:
    """What is particular to an estimator.

    ``rule`` is the rule of integration, of one that integrates over beta: its sampling error is
    about what the rule gives on the exact moments. ``repeats`` are the runs on each toy.
    """

    rule: str | None = None
    repeats: dict[str, int] = field(
        default_factory=lambda: {"gauss": 200, "gamma": 120, "cut": 120}
    )


CONTRACT = {
    "pooled": Row(),
    "rts": Row(),
    "counts": Row(),
    "ti": Row(rule="trapezoid"),
    "ti_riemann": Row(rule="riemann"),
    "ti_corrected": Row(rule="corrected"),
    "ti_simpson": Row(rule="simpson"),
    "ti_rb": Row(rule="trapezoid"),
    "ti_corrected_rb": Row(rule="corrected"),
    "bar": Row(),
    "stepping_stone": Row(),
    "mbar": Row(repeats={"gauss": 200, "gamma": 40, "cut": 40}),
    "forward": Row(),
    "backward": Row(),
}


def estimate_run(method, run):
    """Estimate by a method from a ``Run``."""
    row = ESTIMATORS[method]
    data = {"cycles": run.stats, "trace": run, "reference": run}
    return row.estimate(data[row.reads])


@cache
def estimates(method, toy, n, **settings):
    """Estimates from n independent runs, with further draws of the reference beside each."""
    rng, law = np.random.default_rng(17), TOYS[toy]
    draws = [law.log_ratio(law.reference_draw(REFERENCE_DRAWS, rng)) for _ in range(n)]
    runs = repeated_runs(n, toy, **settings)
    return [
        estimate_run(method, replace(run, reference=own))
        for run, own in zip(runs, draws, strict=True)
    ]


def target(method, toy):
    """What a method is to give: log Z, or the rule of integration on the exact moments."""
    rule = CONTRACT[method].rule
    if rule is None:
        return float(TOYS[toy].log_z(1.0))
    exact = integrate(rule, BETAS, *ratio_moments(TOYS[toy], BETAS))[-1]
    jump = np.log(TOYS[toy].cut) if toy == "cut" else 0.0
    return float(exact + jump)
