"""The optimal bridge between posterior draws and draws of a normalized density, as arrays."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.weighting import effective_size, kish


@dataclass(frozen=True)
class Bridge:
    """An estimate by the optimal bridge.

    Attributes
    ----------
    log_z : float
        Log of the target's normalizing constant (nats).
    variance : float
        Its relative mean-squared error, that of log Z to first order.
    proposal_variance : float
        The part of it that comes from the draws of the proposal.
    ess : float
        Effective number of the posterior draws for the bridge: their number over the
        autocorrelation time of what the bridge averages over them.
    share : float
        Share s of posterior draws in the bridge function.
    used_draws, used_proposals : float
        Kish's effective number of posterior draws and of proposal draws that carry the averages:
        small where the two densities hardly overlap.
    per_chain, per_chain_variance : ndarray, shape (chain,)
        Estimate with each chain's posterior draws alone and all of the proposal's, and the part
        of its variance that comes from the posterior draws: the chains share the others.
    log_chance : float
        Log of the chance that none of the posterior draws is among the states with the highest
        ratios, if the posterior draws left out no region. In falling order of the ratio, the next
        state is one of the n effective posterior draws with odds n r / (n2 Z).
    n_unvisited : int
        Draws of the proposal whose ratio is above that of all posterior draws.
    """

    log_z: float
    variance: float
    proposal_variance: float
    ess: float
    share: float
    used_draws: float
    used_proposals: float
    per_chain: FloatArray
    per_chain_variance: FloatArray
    log_chance: float
    n_unvisited: int


def bridge_log_z(log_ratio: FloatArray, proposed: FloatArray, share: float) -> float:
    """Return the fixed point of the iteration of Meng & Wong (1996) for log Z.

    With r = target / proposal, s the share of posterior draws, and the optimal bridge function
    1 / (s r / Z + 1 - s), equation (4.1) of Meng & Wong,

        Z = mean over proposal draws of r / (s r / Z + 1 - s)
            over mean over posterior draws of 1 / (s r / Z + 1 - s).

    Multiplied by (1 - s) / Z and written with the logistic function, this is

        (1 - s) mean over proposal draws of expit(l - log Z + log s/(1-s)) / s
            = mean over posterior draws of expit(log Z - l - log s/(1-s)),

    where l = log r. The left side falls in log Z and the right side rises, so there is one root.
    It is bracketed, so the search always converges.

    Parameters
    ----------
    log_ratio : ndarray, shape (n1,)
        l at posterior draws; finite.
    proposed : ndarray, shape (n2,)
        l at draws of the proposal, not all of them minus infinity (zero target).
    share : float
        s, between 0 and 1.

    Returns
    -------
    float
    """
    odds = np.log(share) - np.log1p(-share)

    def excess(log_z: float) -> float:
        left = expit(proposed - log_z + odds).mean() * (1.0 - share) / share
        return float(left - expit(log_z - log_ratio - odds).mean())

    finite = proposed[np.isfinite(proposed)]
    margin = 50.0 + abs(odds)
    low = min(finite.min(), log_ratio.min()) - margin
    high = max(finite.max(), log_ratio.max()) + margin
    return float(brentq(excess, low, high, xtol=1e-12, rtol=1e-15, maxiter=500))


def fit_bridge(log_ratio: FloatArray, proposed: FloatArray) -> Bridge:
    """Estimate log Z by the optimal bridge, with its error.

    The relative mean-squared error of Fruehwirth-Schnatter (2004, section 3.3),

        var(f1) / mean(f1)^2 / n2 + tau var(f2) / mean(f2)^2 / n1,

    with f1 and f2 the two averaged functions of :func:`bridge_log_z` and tau the autocorrelation
    time of f2, the normalized spectral density at zero: here n1 / tau is the effective sample size
    of Vehtari et al. (2021) over all chains, which falls where the chains' means differ.

    Parameters
    ----------
    log_ratio : ndarray, shape (chain, draw)
        Log of target over proposal at posterior draws that the proposal was not fitted to.
    proposed : ndarray, shape (n2,)
        The same at independent draws of the proposal; minus infinity where the target is zero.

    Returns
    -------
    Bridge
        With infinite variance where the two densities do not overlap.
    """
    if not np.isfinite(proposed).any():
        none = np.full(len(log_ratio), -np.inf)
        return Bridge(-np.inf, np.inf, np.inf, 1.0, 0.5, 0.0, 0.0, none, -none, 0.0, 0)
    share = effective_size(log_ratio) / (effective_size(log_ratio) + proposed.size)
    log_z = bridge_log_z(log_ratio.ravel(), proposed, share)
    f1, f2 = _averaged(log_ratio, proposed, share, log_z)
    ess = effective_size(f2)
    chains = [bridge_log_z(chain, proposed, share) for chain in log_ratio]
    errors = []
    for chain, own in zip(log_ratio, chains, strict=True):
        f = _averaged(chain, proposed, share, own)[1]
        errors.append(_relative_variance(f) / effective_size(f[None]))
    above = proposed[proposed > log_ratio.max()]
    odds = np.log(ess) + above - np.log(proposed.size) - log_z
    proposal_variance = _relative_variance(f1) / proposed.size
    return Bridge(
        log_z=log_z,
        variance=proposal_variance + _relative_variance(f2) / ess,
        proposal_variance=proposal_variance,
        ess=ess,
        share=share,
        used_draws=float(kish(f2.ravel())),
        used_proposals=float(kish(f1.ravel())),
        per_chain=np.array(chains),
        per_chain_variance=np.array(errors),
        log_chance=-float(np.logaddexp(0.0, odds).sum()),
        n_unvisited=above.size,
    )


def fit_correlation(
    bridges: tuple[Bridge, Bridge], log_ratios: tuple[FloatArray, FloatArray]
) -> float:
    """Return the correlation of two bridges; each is fitted to the draws that the other averages.

    Suppose that f2 minus its mean is g(x) + a s(x) for the first bridge and g(x) + b s(x) for the
    second: g is the misfit of the family of densities, which both share, and a and b are the
    errors of the fits, independent and proportional to the means of s over the halves that were
    fitted to. The averages over the *other* halves are then mean(g) + a b and mean(g) + b a. The
    parts of the misfit are independent, and those of the fits are equal. Their share of the
    variance is var(f2 - f2') / (var(f2) + var(f2')), over all posterior draws, and it is large
    where the density has nearly the posterior's shape.

    Parameters
    ----------
    bridges : tuple of Bridge
    log_ratios : tuple of ndarray, shape (chain, draw)
        Log of target over each bridge's proposal at all posterior draws.
    """
    one, other = (
        f / f.mean()
        for f in (
            _averaged(log_ratio, np.zeros(1), bridge.share, bridge.log_z)[1]
            for bridge, log_ratio in zip(bridges, log_ratios, strict=True)
        )
    )
    total = one.var() + other.var()
    return float(np.clip((one - other).var() / total, 0.0, 1.0)) if total > 0.0 else 1.0


def draw_effects(
    bridges: tuple[Bridge, Bridge], log_ratios: tuple[FloatArray, FloatArray]
) -> FloatArray:
    """Return the effect of each posterior draw on the mean of two bridges, shape (chain, draw).

    To first order a bridge moves by -f2(x_i) / (n sum_i f2(x_i) / n) with the draws that it
    averages over, as if Z in f2 were known: the terms that its iteration adds cancel. Which
    density is fitted to the other half moves it in second order only. The effects sum to zero.

    Parameters
    ----------
    bridges : tuple of Bridge
        The first one averages over the second half of each chain, the other over the first.
    log_ratios : tuple of ndarray, shape (chain, draw)
        Log of target over each bridge's proposal at all posterior draws.
    """
    middle = log_ratios[0].shape[1] // 2
    result = np.empty(log_ratios[0].shape)
    halves = (slice(middle, None), slice(0, middle))
    for bridge, log_ratio, half in zip(bridges, log_ratios, halves, strict=True):
        f = _averaged(log_ratio[:, half], np.zeros(1), bridge.share, bridge.log_z)[1]
        mean = f.mean()  # zero where the two densities do not overlap at all
        result[:, half] = (1.0 - f / mean) / (2.0 * f.size) if mean > 0.0 else 0.0
    return result


def _averaged(
    log_ratio: FloatArray, proposed: FloatArray, share: float, log_z: float
) -> tuple[FloatArray, FloatArray]:
    """Return what the bridge averages over draws of the proposal, and over posterior draws."""
    odds = np.log(share) - np.log1p(-share)
    return expit(proposed - log_z + odds), expit(log_z - log_ratio - odds)


def _relative_variance(values: FloatArray) -> float:
    mean = values.mean()
    return float(values.var(ddof=1) / mean**2) if mean > 0.0 else np.inf
