"""How much the rungs of a ladder overlap, and the effective sample size of each."""

import numpy as np
import xarray as xr

from pymc_tempering.core.weighting import kish
from pymc_tempering.evidence.pieces import finite_chains
from pymc_tempering.evidence.standard_errors import sum_by
from pymc_tempering.evidence.trace import Run, chunks, probabilities_of, read_run


def overlap(idata: xr.DataTree) -> xr.Dataset:
    """Return the overlap matrix of the ladder and the effective sample size of every rung.

    Parameters
    ----------
    idata : DataTree
        A run of :func:`pymc_tempering.sample` with ``keep="log_ratio"``, its default.

    Returns
    -------
    Dataset
        ``overlap`` by (rung, rung_to): sum_i q_k(x_i) q_j(x_i) / sum_i q_k(x_i), the probability
        that a state at rung k is found at rung j after a Gibbs move; rows sum to 1.
        ``ess`` by rung: Kish's effective number of iterations with weights q_k(x_i), as if they
        were independent. ``ess_tours``: that of tours, which are independent. ``visits`` by rung,
        and the coordinate ``beta``. The attribute ``spectral_gap`` is 1 minus the second
        eigenvalue of the matrix: near 0 the ladder falls apart into two groups of rungs.

    Raises
    ------
    NotTemperedError
        If ``idata`` holds no trace, or one that is not of its draws.
    LadderError
        If its draws do not come from one ladder.

    Notes
    -----
    The matrix is that of Klimovich, Shirts & Mobley (2015), "Guidelines for the analysis of free
    energy calculations", at the RTS estimate of log Z and with expected visits in place of counts.
    Its weights are then q(beta_k | x), equation (7) of Carlson et al. (2016).

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> from pymc_tempering.evidence.synthetic import gaussian_run
    >>> table = pmt.evidence.overlap(gaussian_run(draws=200))
    >>> table["overlap"].shape, bool(table.attrs["spectral_gap"] > 0.05)
    ((5, 5), True)
    """
    return overlap_of(read_run(idata))


def overlap_of(run: Run) -> xr.Dataset:
    """Compute :func:`overlap` for a run that is already read."""
    stats, trace = run.stats, run.trace
    n_rungs = stats.beta.size
    keep = finite_chains(stats)[run.pieces.chain[run.piece]]
    log_ratio, piece = trace.log_ratio[keep], run.piece[keep]
    both, square = np.zeros((n_rungs, n_rungs)), np.zeros(n_rungs)
    sums = np.zeros((run.pieces.chain.size, n_rungs))
    for rows in chunks(log_ratio.size, n_rungs):
        q = probabilities_of(stats, log_ratio[rows])
        both += q.T @ q
        square += np.sum(q**2, axis=0)
        sums += run.sum_table(q, piece[rows])
    total = sums.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        matrix = both / total[:, None]
        root = np.sqrt(total)
        symmetric = both / np.outer(root, root)
        ess = total**2 / square
    known = total > 0.0
    values = np.linalg.eigvalsh(symmetric[np.ix_(known, known)])
    gap = 1.0 - float(values[-2]) if known.all() and values.size > 1 else 0.0
    return xr.Dataset(
        {
            "overlap": (("rung", "rung_to"), matrix),
            "ess": ("rung", np.nan_to_num(ess)),
            "ess_tours": ("rung", kish(sum_by(run.pieces.tour, sums))),
            "visits": ("rung", stats.visits.sum(axis=(0, 1))),
        },
        {
            "rung": np.arange(n_rungs),
            "rung_to": np.arange(n_rungs),
            "beta": ("rung", stats.beta),
        },
        {"spectral_gap": gap},
    )
