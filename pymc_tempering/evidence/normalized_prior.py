"""Evidence under a prior that had to be normalized too: the quotient of two constants."""

from dataclasses import replace

import numpy as np

from pymc_tempering.evidence.result import Evidence


def over_prior(evidence: Evidence, log_z: float, mcse: float) -> Evidence:
    """Divide an evidence by the normalizing constant of its prior.

    Parameters
    ----------
    evidence : Evidence
        Of prior times likelihood, with the prior as it is.
    log_z, mcse : float
        Log of the constant of the prior alone and its error (nats), from a run of its own.

    Returns
    -------
    Evidence
        ``log_z`` of the likelihood under the normalized prior; the errors add in quadrature. The
        curve along the ladder stays that of the run.
    """
    known = bool(np.isfinite(mcse))
    said = () if known else ("The prior's own normalizing constant has no error, so neither has "
                             "the evidence: sample more draws.",)  # fmt: skip
    first, second = evidence.halves
    return replace(
        evidence,
        log_z=evidence.log_z - log_z,
        mcse=float(np.hypot(evidence.mcse, mcse)),
        verdict=evidence.verdict if known or evidence.verdict != "ok" else "unchecked",
        per_chain=evidence.per_chain - log_z,
        halves=(first - log_z, second - log_z),
        warnings=(*evidence.warnings, *said),
        prior_term=(log_z, mcse),
    )
