"""Regressions with varying intercepts: does the fitted reference follow the funnel?

A table of fits to exact posterior draws, with and without a warp: the mean over the posterior of
posterior over reference (1 would be perfect), and the largest log of it in 20,000 draws. A second
table of whole runs: the errors of log Z against its exact value, and the share of draws beyond the
exact 99 % quantile of tau.
"""

import sys
import warnings
from pathlib import Path
from time import perf_counter

import numpy as np
from common import Row, parser, save
from scipy.special import logsumexp

import pymc_tempering as pmt
from pymc_tempering.references.mixture import Mixture
from pymc_tempering.references.mixture_fit import fit_mixture
from pymc_tempering.references.warp_fit import PriorDraws

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.varying_intercepts import VaryingIntercepts

GROUPS = {3: 50, 5: 50, 8: 50, 20: 100}
"""Observations for each number of groups."""

DRAWS = (500, 1000, 2000)
TEST_DRAWS = 20_000


def ratios(system: VaryingIntercepts, xs: np.ndarray, mixture: Mixture) -> tuple[float, float]:
    """Mean of posterior over reference at posterior draws, and its largest log."""
    log_prior, log_likelihood = system.log_parts(xs)
    log_t = np.log1p(-mixture.prior_share) + logsumexp(mixture.log_t(xs), axis=1)
    log_reference = np.logaddexp(log_t, np.log(mixture.prior_share) + log_prior)
    logs = log_prior + log_likelihood - system.log_evidence - log_reference
    return float(np.exp(logs).mean()), float(logs.max())


def fits(n_groups: int, centered: bool, seeds: range) -> list[Row]:
    """One row for each number of draws: the median and the worst of several data sets."""
    found: dict[int, list[tuple[float, ...]]] = {n: [] for n in DRAWS}
    for seed in seeds:
        system = VaryingIntercepts(n_groups, centered, GROUPS[n_groups], seed)
        rng = np.random.default_rng(seed)
        draws, tests = np.split(system.posterior_draws(max(DRAWS) + TEST_DRAWS, rng), [max(DRAWS)])
        prior = PriorDraws(system.prior_draws(2000, rng))
        for n in DRAWS:
            plain = ratios(system, tests, fit_mixture(draws[:n], rng))
            began = perf_counter()
            warped = ratios(system, tests, fit_mixture(draws[:n], rng, None, prior))
            found[n].append((*plain, *warped, perf_counter() - began))
    rows: list[Row] = []
    for n, values in found.items():
        middle, worst = np.median(values, axis=0), np.max(values, axis=0)
        rows.append(
            {
                "groups": n_groups,
                "form": "centered" if centered else "non-centered",
                "draws": n,
                "plain mean": f"{middle[0]:.0f}",
                "plain worst mean": f"{worst[0]:.0f}",
                "plain worst log": f"{worst[1]:.1f}",
                "warped mean": f"{middle[2]:.2f}",
                "warped worst mean": f"{worst[2]:.2f}",
                "warped worst log": f"{worst[3]:.1f}",
            }
        )
    return rows


def whole_runs(n_groups: int, centered: bool, seeds: range) -> Row:
    """Calibration of `sample` on one data set."""
    system = VaryingIntercepts(n_groups, centered, GROUPS[n_groups])
    exact = system.posterior_draws(200_000, np.random.default_rng(0))[:, 3]
    limit, beyond, evidences = np.quantile(exact, 0.99), [], []
    for seed in seeds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pmt.TemperingWarning)
            idata = pmt.sample(model=system.model, random_seed=seed, quiet=True, cores=1)
        evidences.append(pmt.log_marginal_likelihood(idata))
        beyond.append((np.log(idata["posterior"]["tau"].values) > limit).mean())
    mcse = np.array([e.mcse for e in evidences])
    z = (np.array([e.log_z for e in evidences]) - system.log_evidence) / mcse
    return {
        "groups": n_groups,
        "form": "centered" if centered else "non-centered",
        "runs": len(z),
        "median mcse": f"{np.median(mcse):.4f}",
        "mean z": f"{z.mean():.2f}",
        "sd z": f"{z.std(ddof=1):.2f}",
        "ok": sum(e.verdict == "ok" for e in evidences),
        "share above q99": f"{np.mean(beyond):.4f}",
    }


def main() -> None:
    arguments = parser(__doc__, 20).parse_args()
    settings = {"data sets": "4", "test draws": str(TEST_DRAWS)}
    cases = [(n_groups, centered) for n_groups in GROUPS for centered in (True, False)]
    rows = [row for case in cases for row in fits(*case, range(4))]
    title = "Posterior over reference, with and without a warp"
    save("funnels", rows, arguments.out, title, settings)
    seeds = range(arguments.seed, arguments.seed + arguments.repeats)
    runs = [whole_runs(3, centered, seeds) for centered in (True, False)]
    title = "Whole runs on varying intercepts, exact log Z by quadrature"
    save("funnels_runs", runs, arguments.out, title, {"first seed": str(arguments.seed)})


if __name__ == "__main__":
    main()
