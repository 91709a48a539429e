"""A proposal for models with a latent field: a t for the few others, and the field normal given it.

The normal law of the field, with its mode and precision, comes from gradients of the model and not
from draws, of which there are never enough in a thousand dimensions.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_tempering.bridge.target import Normalized
from pymc_tempering.fields.conditional import Field
from pymc_tempering.references.compiled_mixture import LOG_2PI


@dataclass(frozen=True, eq=False)
class FieldProposal(Normalized):
    """A law of the others, and a field that is normal given them.

    Attributes
    ----------
    field : Field
    others : Normalized or None
        Law of the others; None where there are none.
    """

    field: Field
    others: Normalized | None

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw independent states, shape (n, d)."""
        field = self.field
        others = np.empty((n, 0)) if self.others is None else self.others.draw(n, rng)
        us = rng.standard_normal((n, field.inside.size))
        return np.array([field.inverse(t, u) for t, u in zip(others, us, strict=True)])

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """Log density, shape (n,), at states of shape (n, d)."""
        field = self.field
        log_q = np.zeros(len(x))
        if self.others is not None:
            log_q = self.others.log_density(x[:, field.others])
        for i, row in enumerate(x):
            others, u = field.forward(row)
            log_q[i] += field.given(others).root.log_det - 0.5 * (u @ u + u.size * LOG_2PI)
        return log_q


@dataclass(frozen=True)
class FieldFit:
    """Fits such a proposal to draws, shape (n, d)."""

    field: Field
    fit_others: Callable[[np.ndarray], Normalized]

    def __call__(self, draws: np.ndarray, rng: np.random.Generator) -> FieldProposal:
        """Fit to draws, shape (n, d)."""
        some = draws[:, self.field.others]
        return FieldProposal(self.field, self.fit_others(some) if some.shape[1] else None)
