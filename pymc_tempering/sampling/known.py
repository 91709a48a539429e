"""What a fitted reference knows: the height of log_ratio that is usual, and where its draws are."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pymc_tempering.evidence.reference_check import suspect_above
from pymc_tempering.references.mixture import Mixture, nearest_component
from pymc_tempering.sampling.evaluated import Evaluated

HOME_DRAWS = 5
"""Draws for each number of its mean and one, with which a component of a fit is a home. One with
fewer may be far too narrow for its mode: what is left of copies of a particle that hardly moved."""

type Region = Callable[[Evaluated], tuple[np.ndarray, np.ndarray]]
"""Tells of n states whether they are home, and how far from it: see `Known.locate`."""


def home_radius(dim: int) -> float:
    """Squared distance in standard deviations within which a state belongs to a component."""
    return dim + 5.0 * float(np.sqrt(2.0 * dim))


@dataclass(frozen=True, eq=False)
class Known:
    """Regions that a fitted reference knows.

    Attributes
    ----------
    components : Mixture
        Of the reference.
    draws : Evaluated
        Posterior draws, in good approximation.
    log_ratio : array, shape (draws.n,)
        Of these.
    """

    components: Mixture
    draws: Evaluated
    log_ratio: np.ndarray

    @cached_property
    def limit(self) -> float:
        """Value of log_ratio above which a state is a suspect."""
        return suspect_above(self.log_ratio)

    @cached_property
    def lived_in(self) -> np.ndarray:
        """Whether draws enough have come from a mode of the reference, shape (J,)."""
        modes = self.components.modes
        nearest = nearest_component(modes, np.unique(self.draws.xs, axis=0))
        n_draws = np.bincount(nearest, minlength=modes.n_components)
        needed = HOME_DRAWS * (modes.means.shape[1] + 1)
        return np.asarray(n_draws >= min(needed, n_draws.max()))

    def suspects(self, states: Evaluated) -> np.ndarray:
        """Whether log_ratio of states is far above that of all draws, shape (n,)."""
        return np.asarray(states.log_ratio(self.components) > self.limit)

    def locate(self, states: Evaluated) -> tuple[np.ndarray, np.ndarray]:
        """Tell where states are.

        Returns
        -------
        home : array of bool, shape (n,)
            Whether they are no suspects, and lie where draws have come from.
        distance : array, shape (n,)
            Least squared distance, in standard deviations, from where draws have come from.
        """
        squares = self.components.modes.squares(states.xs)[:, self.lived_in]
        distance = np.asarray(squares.min(axis=1))
        home = distance < home_radius(states.xs.shape[1])
        at = np.flatnonzero(home)
        home[at] = ~self.suspects(states.at(at))
        return home, distance

    def home(self, states: Evaluated) -> np.ndarray:
        """Whether states are no suspects, and lie where draws have come from, shape (n,)."""
        return self.locate(states)[0]
