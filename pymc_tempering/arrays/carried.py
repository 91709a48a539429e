"""States that were carried along a path, whoever moved them, and what their weights say of log Z.

Annealing of models and of densities over arrays meet here: both give a `Carried`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_tempering.evidence.particle_weights import curve_from_sums, evidence_of_weights
from pymc_tempering.evidence.result import Evidence

N_SHARE = 20_000
"""Reference draws that tell the share on which the density is positive."""


@dataclass(frozen=True, eq=False)
class Carried:
    """States that were carried along a path, from the reference or down to it.

    Attributes
    ----------
    log_w : array, shape (n,)
        Log weights, in nats.
    states : array, shape (n, ...)
        At the end.
    sums : array, shape (K, 3), optional
        Running sums of the weights at each rung, [largest log w, sum w, sum w^2].
    index : array of int, shape (n,), optional
        Which of the states asked for these are, where Ctrl-C left some out.
    n_evaluations : int
    n_nan : int
        States that started where the density is no number.
    interrupted : bool
    """

    log_w: np.ndarray
    states: np.ndarray
    sums: np.ndarray | None = None
    index: np.ndarray | None = None
    n_evaluations: int = 0
    n_nan: int = 0
    interrupted: bool = False


def carried_evidence(
    done: Carried,
    rng: np.random.Generator,
    *,
    asked: int,
    betas: np.ndarray | None = None,
    chain: np.ndarray | None = None,
    n_evaluations: int = 0,
    **more: Any,
) -> Evidence:
    """Turn the weights of carried states into an evidence.

    Parameters
    ----------
    done : Carried
    rng : numpy.random.Generator
        Of the bootstrap.
    asked : int
        States that were to be carried.
    betas : array, shape (K,), optional
        With them the curve of log Z is told too, from the running sums.
    chain : array of int, shape (asked,), optional
        Chain that each state came from, where they depend on each other.
    n_evaluations : int, default 0
        Before the path began.
    **more
        As for :func:`evidence_of_weights`.
    """
    n, said = done.log_w.size, tuple[str, ...]()
    if done.interrupted:
        said = (
            f"Interrupted: {n} of {asked} particles were finished; the estimate uses these alone.",
        )
    if chain is not None and done.index is not None:
        chain = chain[done.index]
    curve = None
    if betas is not None and done.sums is not None:
        curve = curve_from_sums(betas, done.sums, n)
    return evidence_of_weights(
        done.log_w, rng,
        curve=curve,
        group=chain,
        n_evaluations=n_evaluations + done.n_evaluations,
        n_undefined=done.n_nan,
        warnings=(*more.pop("warnings", ()), *said),
        **more,
    )  # fmt: skip


def log_share(log_ratio: np.ndarray) -> tuple[float, float]:
    """Log of the share of reference draws with a positive density, and its error (nats).

    At any beta above 0 a path stays on this part of the reference. So what goes down to beta = 0
    comes to the reference on this part, whose normalizing constant is the share.
    """
    share = float(np.mean(np.isfinite(log_ratio)))  # NaN and infinity count as none, as in a run
    if share in (0.0, 1.0):
        return (0.0, 0.0) if share else (-np.inf, np.inf)
    return float(np.log(share)), float(np.sqrt((1.0 - share) / (share * log_ratio.size)))
