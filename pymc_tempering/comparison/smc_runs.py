"""Evidence from what ``pm.sample_smc`` stores: log Z by chain, and an error from their scatter.

PyMC stores the running log Z of every stage as a statistic, NaN before the last stage. Its shape
depends on the run: a list a chain where chains took unequal numbers of stages, a table of objects
where they took the same number, and for one chain its stages along a dimension that is called
``chain``.
"""

from typing import Any

import numpy as np
import xarray as xr
from scipy.special import stdtrit

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.weighting import kish, log_mean, log_mean_error
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.factor import QUANTILE_95
from pymc_tempering.exceptions import TemperingError

STATISTIC = "log_marginal_likelihood"
"""Name of the statistic in ``sample_stats``."""

MIN_CHAINS = 4
"""Chains below which the scatter says too little."""

MAX_RHAT = 1.1
"""R-hat above which the chains' posteriors are different ones.

Particles are resampled, so that equal ones are many. So it is not 1.01, which is for Markov chains.
"""


def is_smc_run(thing: Any) -> bool:
    """Whether something is a DataTree with the statistic that ``pm.sample_smc`` stores."""
    if not isinstance(thing, xr.DataTree) or "sample_stats" not in thing.children:
        return False
    return STATISTIC in thing["sample_stats"].data_vars


def chain_log_z(tree: xr.DataTree) -> FloatArray:
    """Return log Z of each chain of ``pm.sample_smc``, shape (chain,), in nats.

    Raises
    ------
    TemperingError
        If a chain has none: it did not come to beta = 1.
    """
    stored = tree["sample_stats"].to_dataset()[STATISTIC].values
    n_chains = tree["posterior"].sizes["chain"] if "posterior" in tree.children else len(stored)
    # One chain: its stages lie along a dimension that is called chain.
    rows = [stored] if n_chains == 1 else list(stored)
    if len(rows) != n_chains:
        raise TemperingError(
            f"sample_stats['{STATISTIC}'] has {len(rows)} chains and the posterior {n_chains}: "
            "pass the DataTree as pm.sample_smc returned it"
        )
    last = [np.asarray(row, dtype=float).reshape(-1)[-1:] for row in rows]
    values = np.array([row[0] if row.size else np.nan for row in last])
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise TemperingError(
            f"chains {bad.tolist()} of pm.sample_smc have no finite log Z: they did not come to "
            "beta = 1; run it again"
        )
    return values


def smc_evidence(tree: xr.DataTree) -> Evidence:
    """Estimate log Z from the chains of ``pm.sample_smc``.

    The log of the mean of the chains' Z, which each estimates nearly without bias (Del Moral,
    Doucet & Jasra 2006). Its error is the standard error of that mean, by the delta method, and
    wider by the ratio of the 97.5 % quantiles of Student's t with C - 1 degrees of freedom and of
    a normal, so that 1.96 errors are half of a 95 % interval: 1.6 times at four chains.
    """
    values = chain_log_z(tree)
    n = values.size
    wider = float(stdtrit(n - 1, 0.975)) / QUANTILE_95 if n > 1 else 1.0
    too_few, apart = _too_few(n), _apart(tree) if n > 1 else []
    return Evidence(
        log_z=log_mean(values),
        mcse=log_mean_error(values) * wider,
        method="pm.sample_smc",
        verdict="disagreed" if apart else "unchecked" if too_few else "ok",
        ess=float(kish(np.exp(values - values.max()))),
        per_chain=values,
        per_chain_mcse=np.full(n, np.inf),
        warnings=(*too_few, *apart),
        seconds=float(tree["sample_stats"].attrs.get("_t_sampling", np.nan)),
    )


def _too_few(n: int) -> list[str]:
    if n >= MIN_CHAINS:
        return []
    count = "one chain" if n == 1 else f"{n} chains"
    error = "there is no error" if n == 1 else "the mcse is a guess"
    return [
        f"pm.sample_smc ran {count}, and its error is the scatter of chains, so {error}: run "
        f"chains={MIN_CHAINS} or more."
    ]


def _apart(tree: xr.DataTree) -> list[str]:
    """Warn if the posteriors of the chains are different ones."""
    from arviz_stats import rhat  # slow to import

    if "posterior" not in tree.children:
        return []
    found = rhat(tree["posterior"].to_dataset())
    worst = {str(name): float(values.max()) for name, values in found.data_vars.items()}
    name = max(worst, key=lambda name: np.nan_to_num(worst[name]), default="")
    if not name or not worst[name] > MAX_RHAT:
        return []
    return [
        f"R-hat of the chains of pm.sample_smc is {worst[name]:.2f} for {name!r} (at most "
        f"{MAX_RHAT} is wanted): they ended in different parts of the posterior; run it with more "
        "draws, or sample with pymc_tempering.sample."
    ]
