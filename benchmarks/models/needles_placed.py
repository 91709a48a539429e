"""Needles at stated places: two normal likelihoods under a uniform prior in a box, or a normal one.

The prior is Uniform(-half_width, half_width) or Normal(0, prior_sd^2) in each coordinate, and the
likelihood sum_i v_i N(x; mu_i, s_i^2 I). The prior overlap of a component,

    c_i = integral of prior(x) N(x; mu_i, s_i^2 I) dx,

is a product over coordinates: of normal probabilities of the box over its length, or of the density
of Normal(0, prior_sd^2 + s_i^2) at mu_i. With v_i proportional to share_i / c_i the shares of the
evidence are exact. With a normal prior the v_i add up to one, and log Z = -log sum_i share_i / c_i;
in the box the components are normals truncated to it, and log Z = -dim log(2 half_width).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import log_ndtr
from scipy.stats import norm

from pymc_tempering.testsystems import TestSystem

LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class Placed:
    """A row: centers and sds of the two likelihoods, the broad one first; the narrow one's share.

    Attributes
    ----------
    broad, narrow : tuple of float
        Centers.
    sds : tuple of two floats
    share : float
        The narrow one's, of the evidence.
    half_width : float, optional
        Of the box; the prior is normal without one.
    prior_sd : float
        Of the normal prior.
    """

    broad: tuple[float, ...]
    narrow: tuple[float, ...]
    sds: tuple[float, float]
    share: float = 0.5
    half_width: float | None = None
    prior_sd: float = 5.0

    def __post_init__(self) -> None:
        if len(self.broad) != len(self.narrow):
            raise ValueError(f"centers differ in length: {self.broad} and {self.narrow}")
        if not (0.0 < self.share < 1.0 and self.sds[0] > self.sds[1] > 0.0):
            raise ValueError(f"share and sds must be in their range: {self.share}, {self.sds}")

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.broad)

    @property
    def prior(self) -> str:
        """Law of the prior, as in the table."""
        return "normal" if self.half_width is None else "uniform"

    @property
    def means(self) -> np.ndarray:
        """Centers of the two likelihoods, shape (2, dim)."""
        return np.array([self.broad, self.narrow])

    @property
    def scales(self) -> np.ndarray:
        """Standard deviations of the two likelihoods, the broad one first."""
        return np.array(self.sds)

    @property
    def apart(self) -> float:
        """Distance of the centers."""
        return float(np.linalg.norm(self.means[1] - self.means[0]))

    @property
    def ratio(self) -> float:
        """How many times narrower the narrow one is."""
        return self.sds[0] / self.sds[1]

    @cached_property
    def log_overlaps(self) -> np.ndarray:
        """Log integral of the prior times each normal, shape (2,)."""
        means, scales = self.means, self.scales[:, None]
        if self.half_width is None:
            return norm.logpdf(means, 0.0, np.hypot(self.prior_sd, scales)).sum(axis=1)
        above, below = (self.half_width - means) / scales, (-self.half_width - means) / scales
        # log(Phi(above) - Phi(below)) = log(1 - Phi(-above) - Phi(below)), precise for small tails
        outside = np.exp(log_ndtr(-above)) + np.exp(log_ndtr(below))
        return (np.log1p(-outside) - np.log(2.0 * self.half_width)).sum(axis=1)

    @property
    def log_evidence(self) -> float:
        """Exact log Z (nats)."""
        if self.half_width is not None:
            return -self.dim * float(np.log(2.0 * self.half_width))
        log_shares = np.log([1.0 - self.share, self.share])
        return -float(np.logaddexp.reduce(log_shares - self.log_overlaps))

    def build(self) -> TestSystem:
        """Build the model, with its exact evidence."""
        log_shares = np.log([1.0 - self.share, self.share])
        log_v = log_shares - self.log_overlaps + self.log_evidence
        constant = log_v - 0.5 * self.dim * (LOG_2PI + 2.0 * np.log(self.scales))
        with pm.Model() as model:
            if self.half_width is None:
                x = pm.Normal("x", 0.0, self.prior_sd, shape=self.dim)
            else:
                x = pm.Uniform("x", -self.half_width, self.half_width, shape=self.dim)
            distance = ((x[None, :] - self.means) ** 2).sum(axis=1)
            pm.Potential("mixture", pt.logsumexp(constant - 0.5 * distance / self.scales**2))
        return TestSystem(
            name="placed_needle",
            model=model,
            n_modes=2,
            exact_log_z=self._log_z,
            exact_moments=_no_moments,
            mode_centers=self._modes(),
            exact_mode_weights=lambda: np.array([1.0 - self.share, self.share]),
        )

    def _modes(self) -> np.ndarray:
        """Centers of the modes of the posterior, which a normal prior draws to itself."""
        if self.half_width is not None:
            return self.means
        return self.means * self.prior_sd**2 / (self.prior_sd**2 + self.scales[:, None] ** 2)

    def _log_z(self, beta: float) -> float:
        if beta not in (0.0, 1.0):
            raise NotImplementedError("log Z of a needle at a stated place is known at 0 and 1.")
        return self.log_evidence if beta == 1.0 else 0.0


def _no_moments(beta: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    raise NotImplementedError("Moments of a needle at a stated place are not known.")
