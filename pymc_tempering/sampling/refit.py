"""A reference is fitted again with the peaks that a search has found."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pymc_tempering.core.weighting import log_mean
from pymc_tempering.references.mixture import Fitted, Mixture
from pymc_tempering.sampling.evaluated import evaluate_states
from pymc_tempering.sampling.fit_reference import N_PROPOSED, ReferenceFit, fit_reference
from pymc_tempering.sampling.setup import Job
from pymc_tempering.sampling.suspects import Peak

PEAK_DRAWS, PEAK_SHARE = 20, (0.05, 0.5)
"""Draws of a peak for each dimension that its component is made from, and the bounds of the share
that it gets in the reference, before weighted draws tell its own."""

WORSE = 2.0
"""A new fit is not taken if the second moment of its weights is more than so many times that of the
one before; a fit to few draws can be so."""

NO_SHARE = 1e-3
"""A peak with a smaller share of the draws than this is let go."""


def refit(job: Job, fit: ReferenceFit, peaks: Sequence[Peak]) -> tuple[ReferenceFit, list[Peak]]:
    """Add a component for each peak, and fit again to weighted draws.

    Returns
    -------
    new : ReferenceFit
    let_go : list of Peak
        Those of which the new fit has hardly a draw.
    """
    components, n = fit.components.modes, PEAK_DRAWS * (job.prior.path.dim + 1)
    masses = np.array([peak.log_mass for peak in peaks])
    total = np.logaddexp(np.logaddexp.reduce(masses), fit.log_z)
    for peak, mass in zip(peaks, masses, strict=True):
        share = float(np.clip(np.exp(mass - total), *PEAK_SHARE))
        components = components.with_cluster(peak.draw(n, job.rng), share)
    new = fit_reference(job, components, fit.draws.xs)
    if new.near:
        worse, n_evaluations = _is_worse(job, new, components), new.n_evaluations + N_PROPOSED
        reference = Fitted(job.prior, components) if worse else new.reference
        new = replace(new, reference=reference, n_evaluations=n_evaluations)
    return new, [peak for peak in peaks if peak.holds(new.draws.xs).mean() < NO_SHARE]


def _is_worse(job: Job, new: ReferenceFit, old: Mixture) -> bool:
    """Whether weights of a new fit vary far more than those of an old one, or it has lost modes.

    Draws of the old one tell both second moments, since the new one does not draw what it has lost.
    """
    states = evaluate_states(job.prior, old.draw(N_PROPOSED, job.rng))
    log_w, log_new = states.log_ratio(old), states.log_ratio(new.components)
    return log_mean(log_w + log_new) > log_mean(2.0 * log_w) + np.log(WORSE)
