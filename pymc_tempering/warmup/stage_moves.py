"""The sweeps of one stage of an annealed pass, which tune step sizes and metrics as they go."""

from dataclasses import dataclass, field, replace

import numpy as np

from pymc_tempering.chain.particles import Particles, sweep
from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.core.threads import Pace
from pymc_tempering.kernels import Compound
from pymc_tempering.model.compiled import LOG_RATIO, LOG_REFERENCE
from pymc_tempering.references.prior import Reference
from pymc_tempering.references.score_covariance import geometric_mean

MIN_STATES = 2.0
"""Distinct particles for each dimension that a covariance by gradients needs."""


def metric_of(
    reference: Reference, particles: Particles, beta: float, fallback: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """Take standard deviations of particles, and their covariance if a kernel wants it.

    A kernel without gradients gets the covariance of the particles. One with gradients gets that
    of the reference's modes, where it is fitted and not warped. Else it is the geometric mean G of
    the covariance of the particles and the inverse covariance of the gradients: for a normal
    density it is exact, and in general it minimizes the Fisher divergence (Seyboldt, Carlson &
    Carpenter 2026).
    """
    kernel, xs = particles.kernel, particles.xs
    inside = np.isfinite(xs).all(axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        residuals = reference.residuals(xs[inside])
        scale = residuals.std(axis=0)
    scale = np.where(np.isfinite(scale) & (scale > 0), scale, fallback)
    if not kernel.dense:
        return scale, None
    cov = np.diag(scale**2)
    for each, block, dense in zip(kernel.kernels, kernel.blocks, kernel.dense_blocks, strict=True):
        at = block.indices
        if not dense:
            continue
        if each.uses_gradient:
            known = reference.covariance
            part = (
                _by_gradients(residuals[:, at], particles.grads[inside][:, :, at], beta)
                if known is None
                else known[np.ix_(at, at)]
            )
        else:
            part = _of_particles(xs[inside][:, at], scale[at])
        if part is not None:
            cov[np.ix_(at, at)] = part
    return scale, cov


def _by_gradients(xs: np.ndarray, grads: np.ndarray, beta: float) -> np.ndarray | None:
    """Geometric mean by states (n, b) and gradients (n, 2, b); None where it is not known."""
    with np.errstate(over="ignore", invalid="ignore"):
        scores = grads[:, LOG_REFERENCE] + beta * grads[:, LOG_RATIO]
        sound = np.isfinite(scores).all(axis=1)
        if len(np.unique(xs[sound], axis=0)) < MIN_STATES * xs.shape[1] + 10:
            return None
        of_states, of_scores = (
            np.cov(each[sound], rowvar=False).reshape(2 * xs.shape[1:]) for each in (xs, scores)
        )
    try:
        covariance = geometric_mean(of_states, of_scores)
        np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return None
    return covariance if np.isfinite(covariance).all() else None


def _of_particles(xs: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Take the covariance of particles, shape (b, b), shrunk a little toward its diagonal."""
    with np.errstate(over="ignore", invalid="ignore"):
        cov = np.cov(xs, rowvar=False).reshape(scale.size, scale.size)
    shrink = min(1.0, (scale.size + 1) / len(xs))
    cov = (1 - shrink) * cov + shrink * np.diag(scale**2)
    return cov if np.isfinite(cov).all() else np.diag(scale**2)


CORRELATED = 10.0
"""Ratio of the largest to the least eigenvalue of a correlation matrix for which a dense metric
pays, in many dimensions."""

MAX_DENSE = 200
"""Most coordinates that get a dense metric by default."""


def kernel_for(reference: Reference, kernel: Compound) -> Compound:
    """Return the kernel for a path: with a dense metric, where the reference shows correlation."""
    known = reference.covariance
    if known is None or len(known) > MAX_DENSE:
        return kernel
    spread = np.sqrt(np.diag(known))
    values = np.linalg.eigvalsh(known / np.outer(spread, spread))
    return kernel.densified() if values[-1] > CORRELATED * max(values[0], 0.0) else kernel


MIN_SWEEPS, MAX_SWEEPS, MAX_TUNING = 2, 12, 10
ACCEPT_TOLERANCE = 0.1
"""A stage sweeps until its acceptance is this near to the target, within these bounds."""


@dataclass(frozen=True)
class Stage:
    """Tuning at one beta, and what its last sweeps did with each trajectory length.

    `sweeps` is the number of moves for each particle.
    """

    steps: np.ndarray
    scale: np.ndarray
    cov: np.ndarray | None
    jump: np.ndarray
    cost: np.ndarray
    sweeps: float = 0.0


@dataclass(frozen=True)
class StageLimits:
    """How long a stage may sweep.

    Attributes
    ----------
    least, most : int
        Sweeps.
    most_cost : float
        Gradients for each particle after which no further sweep begins.
    soon : Deadline
        After which no sweep begins but the first `least`.
    last : Deadline
        After which no particle moves.
    pace : Pace
        Of the particles that move between two looks at the clock.
    """

    least: int = MIN_SWEEPS
    most: int = MAX_SWEEPS
    most_cost: float = np.inf
    soon: Deadline = NEVER
    last: Deadline = NEVER
    pace: Pace = field(default_factory=Pace)


def move_and_tune(
    reference: Reference, particles: Particles, beta: float, before: Stage, limits: StageLimits
) -> Stage:
    """Sweep until the acceptance of all kernels is near its target, in a metric of the particles.

    Each trajectory length has a part of the particles, and another part in the next sweep.
    """
    scale, cov = metric_of(reference, particles, beta, before.scale)
    stage = replace(before, scale=scale, cov=cov)
    stage = _sweep_to_targets(particles, beta, stage, particles.kernel.options, limits)
    scale, cov = metric_of(reference, particles, beta, scale)
    return replace(stage, scale=scale, cov=cov)


def tune(
    particles: Particles, beta: float, steps: np.ndarray, stage: Stage, limits: StageLimits
) -> np.ndarray:
    """Step sizes of other kernels, tuned by a few sweeps in the metric of a stage."""
    own = StageLimits(least=1, most=MAX_TUNING, last=limits.last)
    options = particles.kernel.options[:1]
    return _sweep_to_targets(particles, beta, replace(stage, steps=steps), options, own).steps


def _sweep_to_targets(
    particles: Particles, beta: float, stage: Stage, options: np.ndarray, limits: StageLimits
) -> Stage:
    """Sweep in the metric of a stage, with step sizes that follow the acceptance."""
    kernel, n, steps, moves = particles.kernel, particles.n, stage.steps, 0
    parts = np.array_split(np.arange(n), len(options))
    jump, cost, moved = np.zeros((3, limits.most, len(options)))
    begun = particles.n_evaluations
    for i in range(limits.most):
        log_ratio, accepted = particles.log_ratio.copy(), particles.accepted
        for c, lengths in enumerate(options):
            part = parts[(i + c) % len(options)]
            evaluations = particles.n_evaluations
            params = kernel.pack(steps, stage.scale, stage.cov, lengths)
            m = _move(particles, beta, params, slice(part[0], part[-1] + 1), limits)
            if m == 0:
                continue
            at = slice(part[0], part[0] + m)
            jump[i, c] = _mean_square_change(log_ratio[at], particles.log_ratio[at])
            cost[i, c] = (particles.n_evaluations - evaluations) / m
            moved[i, c] = m
        now = int(moved[i].sum())
        moves += now
        if now == 0:
            break
        off = np.nan_to_num((particles.accepted - accepted) / now - kernel.targets)
        if i + 1 >= limits.least and _near(off, kernel.targets):
            break
        steps = _changed(steps, off, kernel.targets)
        enough = i + 1 >= limits.least and limits.soon.late
        if enough or particles.n_evaluations - begun > limits.most_cost * n:
            break
    last_two = slice(max(0, i - 1), i + 1)
    known = moved[last_two] > 0
    return replace(
        stage,
        steps=steps,
        jump=_mean_where(known, jump[last_two], stage.jump[: len(options)]),
        cost=_mean_where(known, cost[last_two], stage.cost[: len(options)]),
        sweeps=moves / n,
    )


def _move(
    particles: Particles, beta: float, params: np.ndarray, part: slice, limits: StageLimits
) -> int:
    """Move a part of the particles, one after the other, until the time is over; returns how many.

    Where it is cut into pieces does not change the moves.
    """
    n, done = part.stop - part.start, 0
    if not limits.last.limited:
        sweep(particles, beta, params, part=part)
        return n
    for begin, end in limits.pace.pieces(n, lambda: limits.last.late):
        sweep(particles, beta, params, part=slice(part.start + begin, part.start + end))
        done = end
    return done


def _near(off: np.ndarray, targets: np.ndarray) -> bool:
    """Whether acceptance rates are near their targets, by how far they are off, shape (B,)."""
    room = np.nan_to_num(0.5 * (1.0 - targets), nan=np.inf)
    return bool(np.all(np.abs(off) < np.minimum(ACCEPT_TOLERANCE, room)))


def _changed(steps: np.ndarray, off: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Step sizes moved toward the target acceptance, by more where little can be rejected."""
    room = np.nan_to_num(1.0 - targets, nan=1.0)
    return np.clip(steps * np.exp(1.5 * off * np.maximum(1.0, 0.2 / room)), 1e-8, 10.0)


def _mean_where(known: np.ndarray, values: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Mean over the first axis of what is known; another value where nothing is."""
    if known.all():
        return np.asarray(values.mean(axis=0))
    n = known.sum(axis=0)
    return np.where(n > 0, (values * known).sum(axis=0) / np.maximum(n, 1), otherwise)


def _mean_square_change(before: np.ndarray, after: np.ndarray) -> float:
    """Mean square of finite changes; a particle may come from where the density is zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = (after - before) ** 2
    squares = squares[np.isfinite(squares)]
    return float(squares.mean()) if squares.size else 0.0
