"""The value that a Savage-Dickey estimate returns."""

from dataclasses import dataclass, field

import numpy as np

from pymc_tempering.evidence.factor import BayesFactor
from pymc_tempering.evidence.result import plus_minus

SIDES = ("the model", "the null")


@dataclass(frozen=True, repr=False)
class SavageDickey(BayesFactor):
    """Bayes factor of a model over a point null inside it, from draws of the model alone.

    It is a ``BayesFactor`` whose first model is the full one and whose second is the null, so
    ``log_bf`` is log BF10 and ``reverse()`` gives BF01.

    Attributes
    ----------
    log_bf, mcse : float
        log BF10 and its Monte Carlo standard error (nats).
    interval : tuple of float
        95 % interval of ``log_bf`` under Monte Carlo error (nats).
    words : str
        Category of the factor, and whether it favors the model or the null.
    warnings : tuple of str
        What is to be said about the draws.
    scale : {"kass_raftery", "jeffreys"}, default "kass_raftery"
        Whose words they are.
    sides : tuple of str, default ("the first model", "the second model")
        Here "the model" and "the null".
    null : dict of str to ndarray
        The values that were held fixed, on the constrained space.
    log_posterior, log_posterior_mcse : float
        Log of the posterior density at the null, and its error (nats, unconstrained space).
    log_prior : float
        Log of the prior density at the null (nats, unconstrained space). Where it depends on other
        parameters, it is a mean over 2,000 prior draws, for information: ``log_bf`` does not use
        it. NaN where there are no such draws, and beside a null model with another prior.
    log_correction : float
        Log of the factor of Verdinelli & Wasserman (1995) on BF01 (nats), from ``log_prior``: 0
        where the null's prior of the other parameters is that of the model given the null; NaN
        where ``log_prior`` is. ``log_bf`` includes it in any case.
    n_terms : int
        Posterior draws whose terms were averaged.
    ess : float
        Effective number of independent equal terms, of the ``n_terms``.
    khat : float
        Pareto shape of the largest terms.
    seconds : float
        Time that the estimate took, compilation included.
    """

    null: dict[str, np.ndarray] = field(default_factory=dict)
    log_posterior: float = float("nan")
    log_posterior_mcse: float = float("nan")
    log_prior: float = float("nan")
    log_correction: float = 0.0
    n_terms: int = 0
    ess: float = float("nan")
    khat: float = float("nan")
    seconds: float = float("nan")

    def _rows(self) -> list[tuple[str, str]]:
        held = ", ".join(
            f"{name} = {np.array2string(np.asarray(value), threshold=8)}"
            for name, value in self.null.items()
        )
        posterior = plus_minus(self.log_posterior, self.log_posterior_mcse)
        return [
            ("null", held),
            *super()._rows(),
            ("log posterior density at the null", f"{posterior} nats"),
            ("log prior density at the null", f"{self.log_prior:.4f} nats"),
            ("correction to log BF01", f"{self.log_correction:.4f} nats"),
            ("terms", f"{self.n_terms}, worth {self.ess:.0f}; k-hat {self.khat:.2f}"),
        ]
