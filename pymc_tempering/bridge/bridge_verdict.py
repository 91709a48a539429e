"""The verdict on two bridges from halves of the draws, and the error of their mean."""

import numpy as np

from pymc_tempering.bridge import draw_alarms
from pymc_tempering.bridge.optimal_bridge import Bridge, fit_correlation
from pymc_tempering.evidence import homogeneity_pvalue
from pymc_tempering.evidence.alarms import disagreement_warning

MAX_PVALUE = 1e-3
"""p-value of the homogeneity test below which the chains disagree."""


def judge_bridges(
    bridges: tuple[Bridge, Bridge], ratios: tuple[np.ndarray, np.ndarray], messages: list[str]
) -> tuple[str, float]:
    """Return verdict and error of the mean of two bridges.

    Any entry of `messages` is an alarm, so that no error is stated. New warnings are appended.
    """
    if messages or not all(np.isfinite(one.variance) for one in bridges):
        return "unchecked", np.inf
    own = sum(one.variance for one in bridges)
    both = (
        2.0
        * fit_correlation(bridges, ratios)
        * np.sqrt(np.prod([one.variance - one.proposal_variance for one in bridges]))
    )
    verdict, mcse = "ok", float(np.sqrt(own + both) / 2.0)
    chains = chain_estimates(bridges)
    df = np.full(chains.size, sum(one.ess for one in bridges) / chains.size - 1.0)
    # Chains of equal length have the same error, so the mean over chains is less noisy.
    error = np.full(chains.size, np.sqrt(chain_variances(bridges).mean()))
    pvalue = homogeneity_pvalue(chains, error, df)
    if pvalue < MAX_PVALUE:
        verdict = "disagreed"
        messages.append(disagreement_warning(pvalue))
        mcse = max(mcse, float(chains.std(ddof=1) / np.sqrt(chains.size)))
    difference = bridges[1].log_z - bridges[0].log_z
    if apart := draw_alarms.halves_warning(difference, float(np.sqrt(own))):
        verdict = "disagreed"
        messages += apart
        mcse = max(mcse, abs(difference))  # both may be off in the same direction
    return verdict, mcse


def chain_estimates(bridges: tuple[Bridge, Bridge]) -> np.ndarray:
    """Return each chain's log Z by two bridges, shape (chain,)."""
    return np.asarray((bridges[0].per_chain + bridges[1].per_chain) / 2.0)


def chain_variances(bridges: tuple[Bridge, Bridge]) -> np.ndarray:
    """Return the part of their variance that comes from the chain's own draws, shape (chain,)."""
    return np.asarray(sum(one.per_chain_variance for one in bridges) / 4.0)
