"""Whether posterior draws leave out what weighted draws from the prior have found.

Both are seen through one number, the log ratio of the posterior to a density that was fitted to
other draws of the same run. Where the run has hardly been this density is small and the ratio
large, so that a region that the run lacks lies beyond the quantiles of its own ratios.
"""

from dataclasses import dataclass

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from scipy.special import fdtrc

from pymc_tempering.annealed.schedule import WeightedEnds
from pymc_tempering.bridge.proposals import PROPOSALS
from pymc_tempering.bridge.target import check_log_density, find_target
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.weighting import MIN_ESS, effective_size, error_of_influence, kish
from pymc_tempering.exceptions import TemperingError

ALPHA_DRAWS = 0.002
"""Chance that draws are said to leave something out though they do not."""

LEVELS = (0.95, 0.99, 0.995)
"""Quantiles of the run's ratios beyond which the looks are counted."""

MANY = 1e6
"""Looks that are as good as any number of them."""

MIN_BEYOND = 4.0
"""Looks that have to lie beyond a quantile, as an effective number: fewer may be one that came
several times."""

MIN_DRAWS = 50
"""Draws of a chain below which draws are not compared."""


@dataclass(frozen=True)
class DrawCheck:
    """Shares of looks from the prior beyond quantiles of a run.

    Attributes
    ----------
    n_looks : int
        Particles that went from the prior to the posterior.
    ess : float
        Effective number of their weights.
    level : float
        Quantile of the run at which the difference is the clearest.
    share, mcse : float
        Share of the weight of the looks beyond it, and the error of its difference to
        ``1 - level``.
    pvalue : float
        Of the whole comparison: the smallest one-sided p-value, times the number of quantiles.
    verdict : {"agree", "disagree", "unchecked"}
        "unchecked": the weights of the looks are too uneven.
    method : str
        Whose particles the looks are.
    """

    n_looks: int
    ess: float
    level: float
    share: float
    mcse: float
    pvalue: float
    verdict: str
    method: str = ""

    @property
    def missing(self) -> float:
        """Share of the posterior that the run seems to lack: that of the looks, less its own."""
        return max(self.share - (1.0 - self.level), 0.0)

    @property
    def shortfall(self) -> float:
        """Nats by which log Z falls short if the run lacks that share."""
        return float(-np.log1p(-min(self.missing, 0.99)))


def check_from_prior(
    idata: xr.DataTree,
    model: pm.Model,
    ends: WeightedEnds,
    method: str,
    rng: np.random.Generator,
    cores: int | None,
) -> DrawCheck:
    """Compare posterior draws with looks from the prior.

    A mixture of t's with 5 % prior is fitted to the first half of each chain. The second half
    tells the quantiles of the log ratio of the posterior to it.

    Raises
    ------
    ModelError, DataMismatchError, TemperingError
        The draws cannot be seen in the unconstrained space, or are too few.
    """
    target, states = find_target(idata, model, cores)
    chains, draws, dim = states.shape
    if draws < MIN_DRAWS:
        raise TemperingError(f"{draws} draws a chain are too few, {MIN_DRAWS} are needed")
    first, second = states[:, : draws // 2], states[:, draws // 2 :].reshape(-1, dim)
    check_log_density(target.log_density(second), target.path, second)
    density = PROPOSALS["mixture"](target)(first.reshape(-1, dim), rng)
    own, _ = density.log_ratio(target, second)
    looks, _ = density.log_ratio(target, target.wrap(ends.states))
    if not np.isfinite(ends.log_w).any():
        raise TemperingError(f"all looks by {method} have weight zero")
    log_w = np.where(np.isfinite(ends.states).all(axis=1), ends.log_w, -np.inf)
    return compare_draws(own.reshape(chains, -1), looks, log_w, ends.group, method=method)


def compare_draws(
    own: FloatArray,
    looks: FloatArray,
    log_w: FloatArray,
    group: NDArray[np.intp],
    *,
    alpha: float = ALPHA_DRAWS,
    method: str = "",
) -> DrawCheck:
    """Test whether more of the looks lies beyond quantiles of a run than beyond the run itself.

    For each quantile the share of the looks' weight beyond it is held against 1 - level. The error
    of the share is that over independent groups (the delta method for a ratio of sums), and both
    are taken for counts: the looks for as many as give that error, the draws for those beyond the
    quantile, times effective over actual number. Under one law the ratio of the shares is then
    about that of two independent gamma variables over their means, which has an F distribution. A
    normal law would not do: few draws lie beyond the quantile, and it is the lower tail of their
    number that makes false alarms. The p-values are multiplied by the number of quantiles.

    Parameters
    ----------
    own : ndarray, shape (chain, draw)
        Log ratio at draws of the run that the density was not fitted to (nats).
    looks, log_w : ndarray, shape (n,)
        Log ratio at the looks, and their log weights (nats).
    group : ndarray of int, shape (n,)
        Looks of one group may depend on each other.
    alpha : float, default 0.002
        Chance of a false alarm.
    method : str, default ""
        Whose particles the looks are.
    """
    weight = np.exp(log_w - log_w.max())
    weight /= weight.sum()
    totals = np.bincount(group, weights=weight)
    ess, groups = float(kish(weight)), float(kish(totals))

    def beyond(level: float) -> tuple[float, float, float, float]:
        """One-sided p-value at a quantile, the share, its error, and the level."""
        cut, mean = np.quantile(own, level), 1.0 - level
        there = looks > cut
        share = float(weight[there].sum())
        effects = np.bincount(group, weights=weight * (there - share))
        error = float(error_of_influence(effects[np.bincount(group) > 0].reshape(-1, 1))[0])
        drawn = mean * min(effective_size((own > cut).astype(float)), own.size)
        total = float(np.hypot(error, mean / np.sqrt(drawn)))
        if share <= mean or float(kish(weight[there])) < MIN_BEYOND:
            return 1.0, share, total, level
        looked = (share / error) ** 2 * (groups - 1.0) / (groups + 1.0) if error > 0.0 else np.inf
        pvalue = float(fdtrc(2.0 * min(looked, MANY), 2.0 * drawn, share / mean))
        return pvalue, share, total, level

    pvalue, share, mcse, level = min(map(beyond, LEVELS))
    pvalue = min(1.0, pvalue * len(LEVELS))
    verdict = "disagree" if pvalue < alpha else "agree"
    if groups < MIN_ESS:
        verdict = "unchecked"
    return DrawCheck(looks.size, ess, level, share, mcse, pvalue, verdict, method)
