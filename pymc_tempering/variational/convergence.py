"""A test of convergence on the history of an ELBO, with its noise counted against it."""

from dataclasses import dataclass

import numpy as np

from pymc_tempering.core.cycles import FloatArray

N_BATCHES = 10
"""Batches in each half of the window."""

MIN_WINDOW = 1000
"""With fewer iterations at T = 1 convergence is not judged."""

TOLERANCE = 0.2
"""Change of the ELBO (nats) between the halves of the window that still passes."""

NOISE_SHARE = 0.3
"""The same as a share of the ELBO's standard deviation, where that is larger."""


@dataclass(frozen=True)
class Drift:
    """How much the ELBO moved between the two halves of a window.

    Attributes
    ----------
    change, error : float
        Second half less first half, and its standard error (nats).
    tolerance : float
        What passes (nats).
    window : int
        Iterations in both halves; 0 if there were too few to judge.
    """

    change: float
    error: float
    tolerance: float
    window: int

    @property
    def converged(self) -> bool:
        """Whether the change is below the tolerance by two standard errors.

        Noise that could hide a change counts against convergence, too. In both cases more
        iterations help.
        """
        return bool(abs(self.change) + 2.0 * self.error < self.tolerance)

    def __str__(self) -> str:
        if not self.window:
            return f"fewer than {MIN_WINDOW} iterations at T = 1, too few to judge"
        return (
            f"the ELBO changed by {self.change:.2g} ± {self.error:.2g} nats between the halves of "
            f"the last {self.window} iterations; {self.tolerance:.2g} passes"
        )


NOT_JUDGED = Drift(np.nan, np.inf, TOLERANCE, 0)


def elbo_drift(elbo: FloatArray) -> Drift:
    """Measure the drift over the last half of a stage, or its last 1000 iterations if longer.

    Each half is cut into batches. Their medians are compared, so that single outliers of a
    heavy-tailed ELBO do not count. The scatter of the medians gives the error, so that correlation
    within a batch does not matter.

    Parameters
    ----------
    elbo : ndarray, shape (n,)
        One value an iteration, all at T = 1 (nats).

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_tempering.variational.convergence import elbo_drift
    >>> noise = np.random.default_rng(1).normal(size=4000)
    >>> elbo_drift(noise).converged, elbo_drift(noise + 0.001 * np.arange(4000)).converged
    (True, False)
    """
    if elbo.size < MIN_WINDOW or not np.isfinite(elbo).all():
        return NOT_JUDGED
    size = max(elbo.size // 2, MIN_WINDOW) // (2 * N_BATCHES)
    window = elbo[-2 * N_BATCHES * size :].reshape(2, N_BATCHES, size)
    batches = np.median(window, axis=2)
    change = float(batches[1].mean() - batches[0].mean())
    error = float(np.sqrt(batches.var(axis=1, ddof=1).sum() / N_BATCHES))
    half = window[1].ravel()
    spread = 1.4826 * float(np.median(np.abs(half - np.median(half))))
    return Drift(change, error, max(TOLERANCE, NOISE_SHARE * spread), window.size)
