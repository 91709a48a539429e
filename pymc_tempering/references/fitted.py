"""A reference that was fitted to draws from the posterior: a mixture of t's and the prior."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pymc_tempering.model.compiled import Mixing
from pymc_tempering.model.path import Path
from pymc_tempering.references.compiled_mixture import MIXER
from pymc_tempering.references.mixture import Mixture, nearest_component
from pymc_tempering.references.prior import Prior


@dataclass(frozen=True)
class Fitted:
    """A mixture of t's plus a share of the prior, as the reference of a path.

    Attributes
    ----------
    prior : Prior
    components : Mixture
    """

    prior: Prior
    components: Mixture
    name: str = "fitted"

    @property
    def path(self) -> Path:
        """The compiled model."""
        return self.prior.path

    @property
    def prior_constant(self) -> tuple[float, float]:
        """Log Z of the target's prior and its error."""
        return self.prior.prior_constant

    @cached_property
    def mixture(self) -> Mixing:
        """Packed mixture that points carry."""
        return Mixing(MIXER, self.components.pack())

    @cached_property
    def covariance(self) -> np.ndarray | None:
        """Mean covariance of the modes, shape (d, d); None with a warp or in many dimensions."""
        return self.components.covariance

    def spawn(self, rng: np.random.Generator) -> list[np.random.Generator]:
        """Child generators for one stream of draws."""
        return [*rng.spawn(1), *self.prior.spawn(rng)]

    def draw(self, n: int, rngs: list[np.random.Generator]) -> np.ndarray:
        """Draw `n` fresh, independent states, shape (n, d), unconstrained."""
        own, *priors = rngs
        from_prior = own.random(n) < self.components.prior_share
        draws = self.components.draw(n, own)
        draws[from_prior] = self.prior.draw(int(from_prior.sum()), priors)
        return draws

    def residuals(self, xs: np.ndarray) -> np.ndarray:
        """States, shape (n, d), minus the mean of the nearest component of each.

        With a warp the difference is that of warped states, times the spread at each state.
        """
        modes = self.components.modes
        means = modes.means[nearest_component(modes, xs)]
        if modes.warp is None:
            return xs - means
        residuals: np.ndarray = (modes.warp.forward(xs)[0] - means) * modes.warp.spread(xs)
        return residuals
