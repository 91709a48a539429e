"""Warnings and alarms about an estimate from posterior draws."""

from collections.abc import Callable

import numpy as np

from pymc_tempering.bridge.optimal_bridge import Bridge
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.weighting import MIN_ESS

MAX_RHAT = 1.01
"""R-hat above which chains have not mixed (Vehtari et al. 2021)."""
LOW_ESS = 100.0
"""Effective numbers of posterior draws: below the first no error is stated, below the second it is
called rough."""
MIN_USED = 10.0
"""Kish's effective number of draws in the overlap below which no error is stated."""
MIN_LOG_CHANCE = np.log(1e-5)
"""Log of the chance below which a region without posterior draws is an alarm."""
MAX_HALVES_Z = 4.0
"""Standard errors by which the estimates from the two halves of the draws may differ."""
MAX_LOST_SHARE = 1e-3
"""Largest share of the proposal's draws that may have a density of NaN without a warning."""


def mixing_warnings(draws: FloatArray, label: Callable[[int], str]) -> list[str]:
    """Warn if chains, shape (chain, draw, d), have not mixed."""
    from arviz_stats.base import array_stats  # slow to import

    if len(draws) < 2:
        return [
            "There is one chain, so nothing tells whether others would agree: sample at least four."
        ]
    rhat = np.atleast_1d(array_stats.rhat(draws, chain_axis=0, draw_axis=1))
    if not np.isfinite(rhat).any() or not np.nanmax(rhat) > MAX_RHAT:
        return []
    worst = int(np.nanargmax(rhat))
    return [
        f"R-hat is {rhat[worst]:.3f} for {label(worst)} (at most {MAX_RHAT} is wanted): the "
        "chains have not mixed, so sample longer, or with pymc_tempering.sample if the posterior "
        "has several modes."
    ]


def size_warnings(ess: float) -> list[str]:
    """Warn if the posterior draws are few, but enough for an error."""
    if not MIN_ESS <= ess < LOW_ESS:
        return []
    return [
        f"The posterior draws are worth only {ess:.0f} independent ones, so the mcse is rough: "
        "sample more draws."
    ]


def bridge_alarms(bridges: list[Bridge]) -> list[str]:
    """Say why no error of a bridge can be stated."""
    ess = min(one.ess for one in bridges)
    draws, proposals = (
        min(one.used_draws for one in bridges),
        min(one.used_proposals for one in bridges),
    )
    alarms = []
    if min(draws, proposals) < MIN_USED:
        alarms.append(
            "Posterior and proposal hardly overlap (worth "
            f"{draws:.1f} draws of the one and {proposals:.1f} of the other), so the bridge did "
            "not converge and the mcse is infinite: try another proposal ('mixture' or 'warp'), "
            "or sample more draws."
        )
    elif ess < MIN_ESS:
        alarms.append(
            f"The posterior draws are worth only {ess:.1f} independent ones, so the mcse is "
            "infinite: the chains hardly moved, or each sits in a mode of its own; sample longer, "
            "or with pymc_tempering.sample."
        )
    worst = min(bridges, key=lambda one: one.log_chance)
    if worst.log_chance < MIN_LOG_CHANCE:
        alarms.append(
            f"{worst.n_unvisited} draws of the proposal lie where the posterior has mass, and no "
            f"posterior draw does (a chance of {np.exp(worst.log_chance):.1g}), so the mcse is "
            "infinite: the sampler missed a mode or a tail; sample with pymc_tempering.sample."
        )
    return alarms


def halves_warning(difference: float, error: float) -> list[str]:
    """Warn if the two halves of the draws disagree."""
    if not abs(difference) > MAX_HALVES_Z * error:
        return []
    return [
        f"The first and the second half of the draws differ by {difference:+.2f} nats in log Z, "
        f"{error:.2g} expected, so the mcse is at least that: the chains had not settled "
        "(discard more of their beginning, sample longer), or they change modes rarely."
    ]


def lost_warnings(lost: float) -> list[str]:
    """Warn if the model's density is NaN at too many draws of the proposal."""
    if lost <= MAX_LOST_SHARE:
        return []
    return [
        f"The model's log density is not a number at {lost:.1%} of the draws of the proposal, "
        "which were given zero density: make it -inf where it is not defined, or numerically "
        "stable where it is."
    ]
