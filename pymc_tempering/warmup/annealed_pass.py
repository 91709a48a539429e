"""The annealed pass: particles that learn the path from the reference to the target.

It gives a sample of log_ratio over the whole path with its log Z, and for each stage a step size,
the standard deviations of the metric and a trajectory length, without any schedule to tune: the
next beta follows from the conditional effective sample size. The warm-up of the sampler begins
with it, and so do annealed importance sampling and its relatives.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from pymc_tempering.chain.particles import Particles, draw_particles, sweep
from pymc_tempering.chain.tuning import Tuning
from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.core.ladder import PathSample, alive_sample
from pymc_tempering.core.population import next_beta, systematic_resampling
from pymc_tempering.exceptions import LikelihoodError
from pymc_tempering.kernels import Compound
from pymc_tempering.references.prior import Reference
from pymc_tempering.warmup.metrics import metric_of
from pymc_tempering.warmup.trajectory_lengths import choose_lengths

MAX_STAGES = 2000
MIN_SWEEPS, MAX_SWEEPS, MAX_TUNING = 2, 12, 10
OVERTIME = 2.0
"""How many times its time a pass takes at most that hurries at the deadline."""
ACCEPT_TOLERANCE = 0.1
"""A stage sweeps until its acceptance is this near to the target, within these bounds."""


@dataclass(frozen=True)
class AnnealedPass:
    """What the particles found, a row a stage.

    Attributes
    ----------
    betas, log_z : array, shape (S,)
    log_ratio : array, shape (S, n)
        Of the particles after their moves at each stage.
    tuning : Tuning
        Standard deviations are those of the particles; within their modes, where a fitted
        reference knows several.
    states : array, shape (S, n, d)
        The particles after their moves, unconstrained; the last stage alone (S = 1) unless all
        were to be kept.
    n_evaluations : int
        Gradient evaluations.
    other : Tuning, optional
        Of other kernels that were tuned beside those that moved the particles.
    complete : bool
        Whether no deadline cut the path short.
    n_undefined : int
        Particles that started where the density is no number.
    """

    betas: np.ndarray
    log_z: np.ndarray
    log_ratio: np.ndarray
    tuning: Tuning
    states: np.ndarray
    n_evaluations: int
    other: Tuning | None = None
    complete: bool = True
    n_undefined: int = 0

    @property
    def particles(self) -> np.ndarray:
        """At beta = 1, shape (n, d), unconstrained."""
        return np.asarray(self.states[-1])

    @property
    def sample(self) -> PathSample:
        """The particles as a sample over the whole path."""
        counts = np.full(self.betas.size, self.log_ratio.shape[1])
        return PathSample(self.log_ratio.ravel(), self.betas, self.log_z, counts)

    @property
    def alive(self) -> PathSample:
        """The particles of some likelihood as a sample over the whole path."""
        return alive_sample(self.betas, self.log_z, self.log_ratio)


@dataclass(frozen=True)
class _Stage:
    """Tuning at one beta, and what its last sweeps did with each trajectory length."""

    steps: np.ndarray
    scale: np.ndarray
    cov: np.ndarray | None
    jump: np.ndarray
    cost: np.ndarray


def anneal(
    reference: Reference,
    kernel: Compound,
    rng: np.random.Generator,
    *,
    n_particles: int = 512,
    cess: float = 0.5,
    report: Callable[[float], None] = lambda beta: None,
    keep_states: bool = False,
    other: Compound | None = None,
    deadline: Deadline = NEVER,
    late_cess: float = 0.0,
    stage_cost: float = np.inf,
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
        Called with beta after each stage; it may raise to end the work.
    keep_states : bool, default False
        Whether to keep the particles of all stages.
    other : Compound, optional
        Kernels whose step sizes are tuned beside: single steps, say, that would not mix by
        themselves.
    deadline : Deadline, optional
        After which one step goes all the rest of the way, however few particles survive it.
    late_cess : float, default 0.0
        Conditional effective sample size of steps after the deadline, each with as few sweeps as
        can be; the one step comes when twice the time is over. With 0 it comes at the deadline.
    stage_cost : float, optional
        Gradients for each particle after which a stage makes no further sweep.

    Returns
    -------
    AnnealedPass

    Raises
    ------
    LikelihoodError
        The path cannot be entered, or has no end.
    """
    particles = draw_particles(reference, kernel, n_particles, rng)
    inside = np.isfinite(particles.xs).all(axis=1)
    if not (particles.log_ratio > -np.inf).any():
        raise LikelihoodError(
            f"The likelihood is zero at all {n_particles} prior draws of the annealed pass: the "
            "path from prior to posterior cannot be entered. Use a prior nearer to the data."
        )
    scale, cov = metric_of(reference, particles, 0.0, np.ones(reference.path.dim))
    no_moves = np.zeros(len(kernel.options))
    stages = [_Stage(kernel.first_steps, scale, cov, no_moves, no_moves)]
    others = [] if other is None else [other.first_steps]
    path = [(0.0, 0.0, particles.log_ratio.copy())]
    states = [np.where(inside[:, None], particles.xs, np.nan)]
    beta, log_z, evaluations, complete = 0.0, 0.0, n_particles, True
    while beta < 1:
        if len(path) > MAX_STAGES:
            raise LikelihoodError(
                f"The annealed pass is at beta = {beta:.2g} after {MAX_STAGES} stages: the prior "
                "is too far from the posterior for this path. Use a tighter prior."
            )
        late = deadline.late
        hurried = late and late_cess > 0.0 and not deadline.part(OVERTIME).late
        new = next_beta(particles.log_ratio, beta, late_cess if hurried else cess)
        if late and new < 1.0:
            new, complete = new if hurried else 1.0, False
        log_w = (new - beta) * particles.log_ratio
        log_z += float(logsumexp(log_w) - np.log(n_particles))
        beta = new
        particles.select(systematic_resampling(log_w, rng))
        most = MIN_SWEEPS if hurried else MAX_SWEEPS
        stages.append(_move_and_tune(reference, particles, beta, stages[-1], most, stage_cost))
        if other is not None:
            beside = particles.moved_by(other)
            others.append(_tune(beside, beta, others[-1], stages[-1]))
            evaluations += beside.n_evaluations
        path.append((beta, log_z, particles.log_ratio.copy()))
        states.append(particles.xs.copy())
        del states[: 0 if keep_states else -1]
        report(beta)
    # Exact draws need no step: lend the next one's. A fitted reference has a share of the prior,
    # which the path leaves at once: its wide draws tell nothing of the metric there.
    lent = stages[1] if reference.mixture.size else replace(stages[0], steps=stages[1].steps)
    stages[0], others[:1] = lent, others[1:2]
    betas, log_zs, log_ratios = (np.array(column) for column in zip(*path, strict=True))
    tuning = _tuning_of(betas, log_ratios, stages, kernel)
    return AnnealedPass(
        betas, log_zs, log_ratios, tuning, np.array(states),
        evaluations + particles.n_evaluations,
        None if other is None else _for_other(tuning, np.array(others), other), complete,
        particles.n_nan,
    )  # fmt: skip


def _move_and_tune(
    reference: Reference,
    particles: Particles,
    beta: float,
    last: _Stage,
    most: int,
    most_cost: float,
) -> _Stage:
    """Sweep until the acceptance of all kernels is near its target, `most` times at most.

    Step sizes follow it. Each trajectory length has a part of the particles, and another part in
    the next sweep.
    """
    kernel, n = particles.kernel, particles.n
    options, targets = kernel.options, kernel.targets
    steps = last.steps
    scale, cov = metric_of(reference, particles, beta, last.scale)
    parts = np.array_split(np.arange(n), len(options))
    jump, cost = np.zeros((2, most, len(options)))
    begun = particles.n_evaluations
    for i in range(most):
        before, accepted = particles.log_ratio.copy(), particles.accepted
        for c, lengths in enumerate(options):
            part = parts[(i + c) % len(options)]
            at = slice(part[0], part[-1] + 1)
            evaluations = particles.n_evaluations
            sweep(particles, beta, kernel.pack(steps, scale, cov, lengths), part=at)
            jump[i, c] = _mean_square_change(before[at], particles.log_ratio[at])
            cost[i, c] = (particles.n_evaluations - evaluations) / part.size
        off = np.nan_to_num((particles.accepted - accepted) / n - targets)
        if i + 1 >= MIN_SWEEPS and _near(off, targets):
            break
        steps = _changed(steps, off, targets)
        if particles.n_evaluations - begun > most_cost * n:
            break
    scale, cov = metric_of(reference, particles, beta, scale)
    last_two = slice(max(0, i - 1), i + 1)
    return _Stage(steps, scale, cov, jump[last_two].mean(axis=0), cost[last_two].mean(axis=0))


def _tune(particles: Particles, beta: float, steps: np.ndarray, stage: _Stage) -> np.ndarray:
    """Step sizes of kernels, tuned by a few sweeps in the metric of a stage."""
    kernel = particles.kernel
    for _ in range(MAX_TUNING):
        accepted = particles.accepted
        sweep(particles, beta, kernel.pack(steps, stage.scale, stage.cov, kernel.options[0]))
        off = np.nan_to_num((particles.accepted - accepted) / particles.n - kernel.targets)
        if _near(off, kernel.targets):
            break
        steps = _changed(steps, off, kernel.targets)
    return steps


def _near(off: np.ndarray, targets: np.ndarray) -> bool:
    """Whether acceptance rates are near their targets, by how far they are off, shape (B,)."""
    room = np.nan_to_num(0.5 * (1.0 - targets), nan=np.inf)
    return bool(np.all(np.abs(off) < np.minimum(ACCEPT_TOLERANCE, room)))


def _changed(steps: np.ndarray, off: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Step sizes moved toward the target acceptance, by more where little can be rejected."""
    room = np.nan_to_num(1.0 - targets, nan=1.0)
    return np.clip(steps * np.exp(1.5 * off * np.maximum(1.0, 0.2 / room)), 1e-8, 10.0)


def _tuning_of(
    betas: np.ndarray, log_ratio: np.ndarray, stages: list[_Stage], kernel: Compound
) -> Tuning:
    """Tuning along the path from that of its stages."""
    jumps, costs = (np.array([getattr(s, name) for s in stages[1:]]) for name in ("jump", "cost"))
    return Tuning(
        betas,
        np.array([stage.steps for stage in stages]),
        np.array([stage.scale for stage in stages]),
        np.array([stage.cov for stage in stages]) if kernel.dense else None,
        kernel.options[choose_lengths(jumps, costs, log_ratio)],
    )


def _for_other(tuning: Tuning, steps: np.ndarray, kernel: Compound) -> Tuning:
    """Tuning of other kernels in the same metric, with their usual lengths."""
    lengths = np.tile(kernel.options[0], (tuning.betas.size, 1))
    return replace(tuning, step_sizes=steps, lengths=lengths)


def _mean_square_change(before: np.ndarray, after: np.ndarray) -> float:
    """Mean square of finite changes; a particle may come from where the density is zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = (after - before) ** 2
    squares = squares[np.isfinite(squares)]
    return float(squares.mean()) if squares.size else 0.0
