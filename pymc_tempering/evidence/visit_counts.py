"""Tempered sampling (TS): log Z_k from counted visits, which is RTS without Rao-Blackwellization.

Carlson, Stinson, Pakman & Paninski (2016), ICML; equation numbers are theirs.
"""

import numpy as np

from pymc_tempering.core.cycles import BoolArray, CycleStats, FloatArray
from pymc_tempering.evidence.fit_run import PartFit, fit_run
from pymc_tempering.evidence.pieces import cycle_pieces
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.rts import rts_log_z

PSEUDO_COUNT = 0.1
"""Added to the visits of each rung, as in section 4.3, so that no logarithm is infinite."""


def counts(stats: CycleStats) -> Evidence:
    """Estimate log Z by counting the visits to each rung.

    Equation (11) of Carlson et al. (2016) with q(beta_k) estimated by the visits plus 0.1 each,
    their "TS" of section 4.3. At a rung that was never visited log Z_k rests on the 0.1 alone: its
    error is infinite, and a warning says so.

    Parameters
    ----------
    stats : CycleStats

    Returns
    -------
    Evidence
        Everything in nats. ``bias`` is the effect of the 0.1, to first order.

    Notes
    -----
    The statistics tell how often a cycle visited each rung, but not how the start of a tour
    divides these visits. So tours are cut at the draw before they start. Neighbors then share a
    cycle, and the error includes their covariance. It is at least the error over batches of draws.
    """
    visits = stats.visits.reshape(-1, stats.beta.size)

    def fit(part: BoolArray) -> PartFit:
        total = visits[part].sum(axis=0)
        share = visits[part] / (total + PSEUDO_COUNT)
        effects = share - share[:, :1]
        effects[:, total == 0.0] = np.nan
        with np.errstate(divide="ignore"):
            pseudo = np.log1p(PSEUDO_COUNT / total)
        curve = rts_log_z(total + PSEUDO_COUNT, stats.log_z_ladder, stats.log_weight)
        return PartFit(
            curve,
            effects if total[0] > 0.0 else np.full(effects.shape, np.nan),
            bias=float(pseudo[-1] - pseudo[0]) if min(total[0], total[-1]) > 0.0 else np.nan,
            notes=tuple(empty_warnings(total, "the 0.1 added to its count")),
        )

    return fit_run("counts", stats, cycle_pieces(stats), fit)


def empty_warnings(visits: FloatArray, rests_on: str) -> list[str]:
    """Warn of rungs that were never visited, and say what their log Z_k rests on."""
    empty = np.flatnonzero(visits == 0.0)
    if empty.size == 0:
        return []
    which = ", ".join(str(k) for k in empty[:8]) + (", ..." if empty.size > 8 else "")
    many = empty.size > 1
    return [
        f"Rung{'s' if many else ''} {which} {'were' if many else 'was'} never visited, so that log "
        f"Z there rests on {rests_on} and has no error: sample more draws, use fewer rungs, or "
        'method="rts", which needs no visits.'
    ]
