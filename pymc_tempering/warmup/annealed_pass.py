"""The annealed pass of the warm-up: particles from the reference to the target.

A first ladder with its log Z, and for each stage a step size, the standard deviations of the
metric and a trajectory length, without any schedule to tune: the next beta follows from the
conditional effective sample size.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from pymc_tempering.chain.sweep import sweep
from pymc_tempering.core.ladder import PathSample
from pymc_tempering.core.population import next_beta, systematic
from pymc_tempering.exceptions import LikelihoodError
from pymc_tempering.kernels import ACCEPTANCE, N_EVALUATIONS, N_INFO, Compound
from pymc_tempering.references.mixture import evaluate_rows
from pymc_tempering.references.prior import Reference

MAX_STAGES = 2000
MIN_SWEEPS, MAX_SWEEPS = 2, 12
ACCEPT_TOLERANCE = 0.1
"""A stage sweeps until its acceptance is this near to the target, within these bounds."""

MIN_GAIN, MAX_RHO = 1.1, 0.7
"""Another trajectory length than the usual one has to change log_ratio by so much more for each
gradient, and the usual one has to forget so much of it at once: where it does not, the first
change says little about the slow ones that follow."""


@dataclass(frozen=True)
class AnnealedPass:
    """What the particles found, a row a stage.

    Attributes
    ----------
    betas, log_z : array, shape (S,)
    log_ratio : array, shape (S, n_particles)
        Of the particles after their moves at each stage.
    step_sizes : array, shape (S, B)
        Of each kernel.
    scales : array, shape (S, d)
        Standard deviations of the particles, unconstrained; within their modes, where a fitted
        reference knows several.
    covs : array, shape (S, d, d), optional
        Their covariances, if some kernel wants them.
    lengths : array, shape (S, B)
        Trajectory lengths; NaN for a kernel without a choice.
    particles : array, shape (n_particles, d)
        At beta = 1, unconstrained.
    n_evaluations : int
        Gradient evaluations.
    """

    betas: np.ndarray
    log_z: np.ndarray
    log_ratio: np.ndarray
    step_sizes: np.ndarray
    scales: np.ndarray
    covs: np.ndarray | None
    lengths: np.ndarray
    particles: np.ndarray
    n_evaluations: int

    @property
    def sample(self) -> PathSample:
        """The particles as a sample over the whole path."""
        counts = np.full(self.betas.size, self.log_ratio.shape[1])
        return PathSample(self.log_ratio.ravel(), self.betas, self.log_z, counts)


def anneal(
    reference: Reference,
    kernel: Compound,
    rng: np.random.Generator,
    *,
    n_particles: int = 512,
    cess: float = 0.5,
    report: Callable[[float], None] = lambda beta: None,
) -> AnnealedPass:
    """Carry particles from the reference to the target.

    Parameters
    ----------
    reference : Reference
    kernel : Compound
    rng : numpy.random.Generator
    n_particles : int, default 512
    cess : float, default 0.5
        Conditional effective sample size of each step, as a share of the particles.
    report : callable, optional
        Called with beta after each stage.

    Returns
    -------
    AnnealedPass
    """
    path = reference.path
    xs = reference.draw(n_particles, reference.spawn(rng))
    values = np.empty((n_particles, 2))
    grads = np.empty((n_particles, 2, path.dim))
    mixture = reference.mixture.copy()
    evaluate_rows(path.density, xs, values, grads, mixture)
    values[~np.isfinite(xs).all(axis=1), 1] = -np.inf
    values[np.isnan(values[:, 1]), 1] = -np.inf
    scratch = np.empty((kernel.n_scratch, path.dim))
    finite = np.isfinite(xs).all(axis=1)
    scale = _scale(reference.residuals(xs[finite]), np.ones(path.dim))
    steps, targets = kernel.first_steps, kernel.targets
    cov = _cov(xs[finite], scale) if kernel.dense else None
    rows = [(0.0, 0.0, values[:, 1].copy(), steps, scale, cov)]
    options = kernel.options
    # Each length has a part of the particles, and another part in the next sweep.
    parts = np.array_split(np.arange(n_particles), len(options))
    jumps, costs = [], []
    beta, log_z, evaluations = 0.0, 0.0, n_particles
    while beta < 1:
        if len(rows) > MAX_STAGES:
            raise LikelihoodError(
                f"The annealed pass is at beta = {beta:.2g} after {MAX_STAGES} stages: the prior "
                "is too far from the posterior for this path. Use a tighter prior."
            )
        log_ratio = values[:, 1]
        new = next_beta(log_ratio, beta, cess)
        log_w = (new - beta) * log_ratio
        log_z += float(logsumexp(log_w) - np.log(n_particles))
        beta = new
        index = systematic(log_w, rng)
        xs, values, grads = xs[index], values[index], grads[index]
        scale = _scale(reference.residuals(xs), scale)
        cov = _cov(xs, scale) if kernel.dense else None
        jump, cost = np.zeros((2, MAX_SWEEPS, len(options)))
        for i in range(MAX_SWEEPS):
            before = values[:, 1].copy()
            accepted = np.zeros(kernel.n_blocks)
            for c, lengths in enumerate(options):
                part = parts[(i + c) % len(options)]
                at = slice(part[0], part[-1] + 1)
                totals = np.zeros((kernel.n_blocks, N_INFO))
                sweep(
                    path.density, kernel.explore, kernel.parts, xs[at], values[at], grads[at],
                    mixture, beta, kernel.pack(steps, scale, cov, lengths), path.circular,
                    scratch, rng, totals,
                )  # fmt: skip
                accepted += totals[:, ACCEPTANCE]
                jump[i, c] = _mean_square_change(before[at], values[at, 1])
                cost[i, c] = totals[:, N_EVALUATIONS].sum() / part.size
                evaluations += int(totals[:, N_EVALUATIONS].sum())
            off = np.nan_to_num(accepted / n_particles - targets)
            if i + 1 >= MIN_SWEEPS and np.abs(off).max() < ACCEPT_TOLERANCE:
                break
            steps = np.clip(steps * np.exp(1.5 * off), 1e-8, 10.0)
        jumps.append(jump[i - 1 : i + 1].mean(axis=0))
        costs.append(cost[i - 1 : i + 1].mean(axis=0))
        scale = _scale(reference.residuals(xs), scale)
        cov = _cov(xs, scale) if kernel.dense else None
        rows.append((beta, log_z, values[:, 1].copy(), steps, scale, cov))
        report(beta)
    # Exact draws need no step: lend the next one's.
    rows[0] = (*rows[0][:3], rows[1][3], *rows[0][4:])
    betas, log_zs, log_ratios, step_sizes, scales, covs = zip(*rows, strict=True)
    return AnnealedPass(
        np.array(betas), np.array(log_zs), np.array(log_ratios), np.array(step_sizes),
        np.array(scales), np.array(covs) if kernel.dense else None,
        options[choose_lengths(np.array(jumps), np.array(costs), np.array(log_ratios))], xs,
        evaluations,
    )  # fmt: skip


def choose_lengths(jumps: np.ndarray, costs: np.ndarray, log_ratio: np.ndarray) -> np.ndarray:
    """Choose, for each stage, the trajectories that change `log_ratio` most for each gradient.

    That is, those with the largest (1 - rho) / gradients, where rho is the autocorrelation of
    `log_ratio` across one transition. Neighboring stages lend each other their measurements.

    Parameters
    ----------
    jumps : array, shape (S - 1, C)
        Mean squared changes of `log_ratio` in one transition of each choice, from stage 1 on.
    costs : array, shape (S - 1, C)
        Gradients of one transition.
    log_ratio : array, shape (S, n)
        Of the particles.

    Returns
    -------
    array of int, shape (S,)
    """
    with np.errstate(all="ignore"):  # what comes of zeros and overflow is no gain
        variance = np.array([np.var(row[row > -np.inf]) for row in log_ratio[1:]])
        gain = np.log(jumps / costs) - np.log(jumps[:, :1] / costs[:, :1])
        rho = 1.0 - 0.5 * jumps[:, 0] / variance
    padded = np.pad(np.column_stack([gain, rho]), ((1, 1), (0, 0)), mode="edge")
    smooth = (padded[:-2] + padded[1:-1] + padded[2:]) / 3.0
    gain, rho = smooth[:, :-1], smooth[:, -1]
    best = np.nan_to_num(gain, nan=-np.inf).argmax(axis=1)
    pays = np.take_along_axis(gain, best[:, None], axis=1)[:, 0] > np.log(MIN_GAIN)
    choice = np.where(pays & (rho < MAX_RHO), best, 0)
    return np.append(choice[:1], choice)


def _mean_square_change(before: np.ndarray, after: np.ndarray) -> float:
    """Mean square of finite changes; a particle may come from where the density is zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = (after - before) ** 2
    squares = squares[np.isfinite(squares)]
    return float(squares.mean()) if squares.size else 0.0


def _scale(xs: np.ndarray, fallback: np.ndarray) -> np.ndarray:
    """Take standard deviations of particles, shape (d,); `fallback` where they do not vary."""
    with np.errstate(over="ignore", invalid="ignore"):
        scale = xs.std(axis=0)
    return np.where(np.isfinite(scale) & (scale > 0), scale, fallback)


def _cov(xs: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Take the covariance of particles, shape (d, d), shrunk a little toward its diagonal."""
    with np.errstate(over="ignore", invalid="ignore"):
        cov = np.cov(xs, rowvar=False).reshape(scale.size, scale.size)
    shrink = min(1.0, (scale.size + 1) / len(xs))
    cov = (1 - shrink) * cov + shrink * np.diag(scale**2)
    return cov if np.isfinite(cov).all() else np.diag(scale**2)
