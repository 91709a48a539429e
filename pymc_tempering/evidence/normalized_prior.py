"""Evidence under a prior that is not normalized: the quotient of two constants."""

from dataclasses import replace

import numpy as np

from pymc_tempering.core.overflows import OVERFLOWS, SENTENCE
from pymc_tempering.evidence.result import Evidence


def over_prior(evidence: Evidence, log_z: float, mcse: float) -> Evidence:
    """Divide an evidence by the normalizing constant of its prior.

    Parameters
    ----------
    evidence : Evidence
        Log of the integral of prior times likelihood, with the prior not normalized.
    log_z, mcse : float
        Log of the prior's normalizing constant and its error (nats), from another run.

    Returns
    -------
    Evidence
        ``log_z`` under the normalized prior; the errors add in quadrature. The curve along the
        ladder is left as it is.
    """
    known = bool(np.isfinite(mcse))
    note = (
        "The prior's own normalizing constant has no error, so neither has the evidence: sample "
        "more draws."
    )
    if (log_z, mcse) == OVERFLOWS:
        note = SENTENCE
    first, second = evidence.halves
    return replace(
        evidence,
        log_z=evidence.log_z - log_z,
        mcse=float(np.hypot(evidence.mcse, mcse)),
        verdict=evidence.verdict if known or evidence.verdict != "ok" else "unchecked",
        per_chain=evidence.per_chain - log_z,
        halves=(first - log_z, second - log_z),
        warnings=evidence.warnings if known else (*evidence.warnings, note),
        prior_term=(log_z, mcse),
    )
