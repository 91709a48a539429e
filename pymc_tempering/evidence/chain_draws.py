"""Posterior draws of any sampler: what they did to log Z, and errors by their autocorrelation."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.weighting import MIN_ESS, effective_size, khat_limit, kish


@dataclass(frozen=True, eq=False)
class ChainDraws:
    """Posterior draws of any sampler, chain after chain, all of weight one.

    The error of an average is that of correlated draws, by the effective sample size of Vehtari et
    al. (2021) over all chains, which falls where the chains' means differ.

    Attributes
    ----------
    log_z_effects : ndarray, shape (chain, draw)
        First-order effect of each draw on log Z (nats); they sum to zero.
    other_variance : float
        Variance of log Z that does not come from these draws.
    ess : float
        Effective number of the draws for log Z.
    """

    log_z_effects: FloatArray
    other_variance: float
    ess: float

    @property
    def weight(self) -> FloatArray:
        """Ones, shape (n,)."""
        return np.ones(self.log_z_effects.size)

    @property
    def chain(self) -> NDArray[np.intp]:
        """Chain of each draw, shape (n,)."""
        n_chains, n_draws = self.log_z_effects.shape
        return np.repeat(np.arange(n_chains), n_draws)

    @property
    def khat_limit(self) -> float:
        """Largest k-hat for which as many independent draws suffice."""
        return khat_limit(max(int(min(self.ess, self.log_z_effects.size)), 2))

    @property
    def copies(self) -> float:
        """How many draws are worth one independent draw: the neighbors of a large one are large."""
        return max(self.log_z_effects.size / max(self.ess, 1.0), 1.0)

    def errors(self, effects: FloatArray) -> FloatArray:
        """Errors (V,) of numbers that each draw moves by its effects (n, V)."""
        size, terms = self._sizes(effects), effects * len(effects)
        return np.asarray(np.sqrt(terms.var(axis=0, ddof=1) / size))

    def errors_with_log_z(self, effects: FloatArray) -> FloatArray:
        """Errors (V,) of the sums of such numbers and log Z."""
        both = self.errors(effects + self.log_z_effects.reshape(-1, 1))
        return np.asarray(np.sqrt(both**2 + self.other_variance))

    def few(self, share: FloatArray) -> NDArray[np.bool_]:
        """Whether few draws hold the weight, or draws that are worth few independent ones."""
        return np.asarray(~((kish(share) >= MIN_ESS) & (self._sizes(share) >= MIN_ESS)))

    def _sizes(self, values: FloatArray) -> FloatArray:
        """Effective sample size of each column of numbers of the draws (n, V)."""
        return np.array([self._size(column) for column in values.T])

    def _size(self, values: FloatArray) -> float:
        if np.ptp(values) == 0.0:
            return float(values.size)
        return effective_size(values.reshape(self.log_z_effects.shape))
