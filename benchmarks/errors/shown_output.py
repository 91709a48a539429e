"""The two results that README and the page on estimators show as output, and their exact values."""

from itertools import product

import numpy as np
import pymc as pm
from scipy import stats
from scipy.special import logsumexp

import pymc_tempering as pmt
from benchmarks.common import Row, parser, save


def groups() -> tuple[pm.Model, pm.Model, float]:
    """README's models of six numbers, and the exact log Bayes factor of two groups over one.

    Two groups are a sum over all ways to share the numbers out.
    """
    y = np.array([-3.1, -2.8, -2.2, 1.9, 2.4, 3.3])
    with pm.Model() as one:
        pm.Normal("y", pm.Normal("mu", 0, 10), 1, observed=y)
    with pm.Model() as two:
        pm.NormalMixture("y", [0.5, 0.5], pm.Normal("mu", 0, 10, shape=2), 1, observed=y)

    def log_z(own: np.ndarray) -> float:
        covariance = np.eye(own.size) + 100.0
        return stats.multivariate_normal.logpdf(own, cov=covariance) if own.size else 0.0

    ways = [np.array(way) for way in product([False, True], repeat=y.size)]
    exact = logsumexp([log_z(y[way]) + log_z(y[~way]) for way in ways]) - y.size * np.log(2.0)
    return one, two, float(exact - log_z(y))


def row(page: str, call: str, value: float, mcse: float, exact: float) -> Row:
    """One result beside its exact value; nats."""
    return {
        "page": page, "call": call, "value": f"{value:.4f}", "mcse": f"{mcse:.4f}",
        "exact": f"{exact:.4f}",
    }  # fmt: skip


def main() -> None:
    args = parser(__doc__, 1).parse_args()
    quiet = {"random_seed": args.seed, "quiet": True, "progressbar": False}
    one, two, exact = groups()
    shown = pmt.bayes_factor(*(pmt.sample(model=model, **quiet) for model in (two, one)))
    print(shown)
    page = "docs/explanation/estimators.md"
    system = pmt.testsystems.gaussian_mixture()
    bracket = pmt.evidence.bracket(pmt.sample(1000, model=system.model, **quiet))
    print(bracket)
    rows = [
        row("README.md", "bayes_factor", shown.log_bf, shown.mcse, exact),
        *(
            row(page, f"bracket, {name}", each.log_z, each.mcse, system.log_evidence)
            for name, each in (("lower", bracket.lower), ("upper", bracket.upper))
        ),
    ]
    settings = {"seed": str(args.seed), "run": "pmt.sample() by default"}
    save("shown_output", rows, args.out, "Results that the documentation shows", settings)


if __name__ == "__main__":
    main()
