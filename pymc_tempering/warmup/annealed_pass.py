"""The annealed pass: particles that learn the path from the reference to the target.

It gives a sample of log_ratio over the whole path with its log Z, and for each stage a step size,
the standard deviations of the metric and a trajectory length, without any schedule to tune: the
next beta follows from the conditional effective sample size. The warm-up of the sampler begins
with it, and so do annealed importance sampling and its relatives.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from pymc_tempering.chain.particles import Particles, draw_particles, sweep, sweep_states
from pymc_tempering.chain.plan import Tuning
from pymc_tempering.core.deadline import NEVER, Cut, Deadline, in_round_seconds, stages_to_come
from pymc_tempering.core.ladder import PathSample, Stages, resample_at
from pymc_tempering.core.threads import Pace
from pymc_tempering.core.weighting import next_beta
from pymc_tempering.exceptions import LikelihoodError, TimeLimitError
from pymc_tempering.kernels import Compound
from pymc_tempering.kernels.contract import Covariances
from pymc_tempering.model.compiled import LOG_RATIO, LOG_REFERENCE
from pymc_tempering.model.jit import compile_now
from pymc_tempering.references.prior import Reference
from pymc_tempering.references.score_covariance import geometric_mean
from pymc_tempering.references.warp_fit import WIDE_DIM

MIN_STATES = 2.0
"""Distinct particles for each dimension that a covariance by gradients needs."""


def metric_of(
    reference: Reference, particles: Particles, beta: float, fallback: np.ndarray
) -> tuple[np.ndarray, Covariances]:
    """Take standard deviations of particles, and covariances for the kernels that want them.

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
    scale = _spread(residuals, fallback)
    covs: list[np.ndarray | None] = []
    for (each, block), dense in zip(kernel.pairs, kernel.dense_blocks, strict=True):
        at, known, part = block.indices, reference.covariance, None
        if dense and not each.uses_gradient:
            part = _of_particles(xs[inside][:, at], scale[at])
        elif dense and known is not None:
            part = known[np.ix_(at, at)]
        elif dense:
            part = _by_gradients(residuals[:, at], particles.grads[inside][:, :, at], beta)
        covs.append(np.diag(scale[at] ** 2) if dense and part is None else part)
    return scale, tuple(covs)


def _by_gradients(xs: np.ndarray, grads: np.ndarray, beta: float) -> np.ndarray | None:
    """Geometric mean by states (n, b) and gradients (n, 2, b); None where it is not known."""
    with np.errstate(over="ignore", invalid="ignore"):
        scores = grads[:, LOG_REFERENCE] + beta * grads[:, LOG_RATIO]
        sound = np.isfinite(scores).all(axis=1)
        if len({x.tobytes() for x in xs[sound]}) < MIN_STATES * xs.shape[1] + 10:
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
    covs: Covariances
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

    Each trajectory length has a part of the particles, and another part in the next sweep. In many
    dimensions each half moves in the metric of the other: in one that they tell themselves, log Z
    is too high, by 7 nats for 1,000 item responses and by 29 for 2,000.
    """
    scale, covs = metric_of(reference, particles, beta, before.scale)
    stage = replace(before, scale=scale, covs=covs)
    stage = _sweep_to_targets(particles, beta, stage, particles.kernel.options, limits)
    scale, covs = metric_of(reference, particles, beta, scale)
    return replace(stage, scale=scale, covs=covs)


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
    n_options, n_parts = len(options), 1 + (particles.xs.shape[1] > WIDE_DIM)
    groups = np.array_split(np.arange(n), n_parts * n_options)
    jump, cost, moved = np.zeros((3, limits.most, n_parts, n_options))
    begun = particles.n_evaluations
    for i in range(limits.most):
        log_ratio, accepted = particles.log_ratio.copy(), particles.accepted
        for h in range(n_parts):
            scale = stage.scale
            if n_parts == 2:
                others = np.concatenate(groups[(1 - h) * n_options :][:n_options])
                scale = _spread(particles.xs[others], scale)
            for c, lengths in enumerate(options):
                group = groups[h * n_options + (i + c) % n_options]
                evaluations = particles.n_evaluations
                params = kernel.pack(steps, scale, stage.covs, lengths)
                m = _move(particles, beta, params, slice(group[0], group[-1] + 1), limits)
                if m == 0:
                    continue
                at = slice(group[0], group[0] + m)
                jump[i, h, c] = _mean_square_change(log_ratio[at], particles.log_ratio[at])
                cost[i, h, c] = (particles.n_evaluations - evaluations) / m
                moved[i, h, c] = m
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
    jump, cost, moved = (
        each[max(0, i - 1) : i + 1].reshape(-1, n_options) for each in (jump, cost, moved)
    )
    return replace(
        stage,
        steps=steps,
        jump=_mean_where(moved > 0, jump, stage.jump[:n_options]),
        cost=_mean_where(moved > 0, cost, stage.cost[:n_options]),
        sweeps=moves / n,
    )


def _spread(xs: np.ndarray, fallback: np.ndarray) -> np.ndarray:
    """Take standard deviations of states (n, d), and another value where there are none."""
    with np.errstate(over="ignore", invalid="ignore"):
        scale = xs.std(axis=0)
    return np.where(np.isfinite(scale) & (scale > 0), scale, fallback)


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
        return values.mean(axis=0)
    n = known.sum(axis=0)
    return np.where(n > 0, (values * known).sum(axis=0) / np.maximum(n, 1), otherwise)


def _mean_square_change(before: np.ndarray, after: np.ndarray) -> float:
    """Mean square of finite changes; a particle may come from where the density is zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = (after - before) ** 2
    squares = squares[np.isfinite(squares)]
    return float(squares.mean()) if squares.size else 0.0


MAX_STAGES = 2000

LEAST_PARTICLES = 32
"""Starting states whose density must be known when the time is over, for the pass to go on."""

CLOSING = 0.25
"""Share of what is left of the overtime in which the particles of a pass that was cut short move
at beta = 1; what follows the pass gets the rest."""


@dataclass(frozen=True, eq=False)
class AnnealedPass(Stages):
    """What the particles found, a row a stage, and the tuning that goes with it.

    Attributes
    ----------
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
    cut : Cut, optional
        Where the deadline ended it, and how long it would have needed.
    """

    tuning: Tuning
    states: np.ndarray
    n_evaluations: int
    other: Tuning | None = None
    complete: bool = True
    n_undefined: int = 0
    cut: Cut | None = None

    @property
    def particles(self) -> np.ndarray:
        """At beta = 1, shape (n, d), unconstrained."""
        return self.states[-1]

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
        Asked within each sweep too. After it one step goes all the rest of the way, however few
        particles survive it, and they move no longer than its overtime allows.
    late_cess : float, default 0.0
        Conditional effective sample size of steps after the deadline, each with as few sweeps as
        can be; the one step comes at the end of the overtime. With 0 it comes at the deadline.
    stage_cost : float, optional
        Gradients for each particle after which a stage makes no further sweep.

    Returns
    -------
    AnnealedPass

    Raises
    ------
    LikelihoodError
        The path cannot be entered, or has no end.
    TimeLimitError
        When the time was over the density was known at few of the starting states.
    """
    particles = _start(reference, kernel, n_particles, rng, deadline)
    n_particles, began, limits = particles.n, perf_counter(), StageLimits(most_cost=stage_cost)
    inside = np.isfinite(particles.xs).all(axis=1)
    if not (particles.log_ratio > -np.inf).any():
        raise LikelihoodError(
            f"The likelihood is zero at all {n_particles} prior draws of the annealed pass: the "
            "path from prior to posterior cannot be entered. Use a prior nearer to the data."
        )
    scale, covs = metric_of(reference, particles, 0.0, np.ones(reference.path.dim))
    no_moves = np.zeros(len(kernel.options))
    stages = [Stage(kernel.first_steps, scale, covs, no_moves, no_moves)]
    others = [] if other is None else [other.first_steps]
    path = [(0.0, 0.0, particles.log_ratio.copy())]
    states = [np.where(inside[:, None], particles.xs, np.nan)]
    beta, log_z, evaluations, cut = 0.0, 0.0, n_particles, None
    while beta < 1:
        if len(path) > MAX_STAGES:
            raise LikelihoodError(
                f"The annealed pass is at beta = {beta:.2g} after {MAX_STAGES} stages: the prior "
                "is too far from the posterior for this path. Use a tighter prior."
            )
        new, own, cuts = _next_step(particles.log_ratio, beta, cess, late_cess, deadline, limits)
        if cuts and cut is None:
            would = next_beta(particles.log_ratio, beta, cess)
            cut = _cut(reference, [*(at[0] for at in path), would], stages, began, deadline)
        gain, index = resample_at(new, beta, particles.log_ratio, rng)
        beta, log_z = new, log_z + gain
        particles.select(index)
        stages.append(move_and_tune(reference, particles, beta, stages[-1], own))
        if other is not None:
            beside = particles.moved_by(other)
            lent = replace(stages[-1], covs=kernel.lend(stages[-1].covs, other))
            others.append(tune(beside, beta, others[-1], lent, own))
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
    tuning, of_other = _tuning_of(betas, log_ratios, stages, kernel), None
    if other is not None:  # in the same metric, with its usual lengths
        usual = np.tile(other.options[0], (betas.size, 1))
        shared = kernel.lend(tuning.covs, other)
        of_other = replace(tuning, step_sizes=np.array(others), covs=shared, lengths=usual)
    evaluations += particles.n_evaluations
    return AnnealedPass(
        betas, log_zs, log_ratios, tuning, np.array(states), evaluations, of_other, cut is None,
        particles.n_nan, cut,
    )  # fmt: skip


def _start(
    reference: Reference,
    kernel: Compound,
    n: int,
    rng: np.random.Generator,
    deadline: Deadline,
) -> Particles:
    """Draw the particles; with a limit, as many as its time allows."""
    if not deadline.limited:
        return draw_particles(reference, kernel, n, rng)
    compile_now(kernel.explore, sweep_states)  # or the first piece of a sweep would have this time
    by = deadline.last.rest(CLOSING) if deadline.late else deadline.rest(1.0)
    began = perf_counter()
    particles = draw_particles(reference, kernel, n, rng, by)
    known = particles.n
    if known < min(n, LEAST_PARTICLES):
        need = deadline.enough((n / known - 1.0) * (perf_counter() - began))
        raise TimeLimitError(
            f"max_time was over when the density of the model was known at {known} of {n} draws of "
            f"the {reference.name} reference, where an annealed pass begins: these alone need "
            f"max_time={in_round_seconds(need)}, and a run many times as much."
        )
    return particles


def _next_step(
    log_ratio: np.ndarray,
    beta: float,
    cess: float,
    late_cess: float,
    deadline: Deadline,
    limits: StageLimits,
) -> tuple[float, StageLimits, bool]:
    """Choose the next beta by the conditional effective sample size, and by the clock.

    With it come the limits of the moves there, and whether the deadline decided it.
    """
    late, last = deadline.late, deadline.last
    hurried = late and late_cess > 0.0 and not last.late
    new = next_beta(log_ratio, beta, late_cess if hurried else cess)
    cuts = late and new < 1.0
    if hurried:
        limits = replace(limits, most=MIN_SWEEPS, soon=deadline, last=last)
    elif late:
        new, closing = 1.0, last.rest(CLOSING)
        limits = replace(limits, soon=closing, last=closing)
    else:
        limits = replace(limits, soon=deadline, last=last if late_cess > 0.0 else deadline)
    return new, limits, cuts


def _cut(
    reference: Reference,
    betas: Sequence[float],
    stages: Sequence[Stage],
    began: float,
    deadline: Deadline,
) -> Cut:
    """Tell where the deadline ended a pass, given its betas so far and the one that would be next.

    The stages to come are taken to need as many sweeps as those so far, at the same pace.
    """
    sweeps = [stage.sweeps for stage in stages[1:]]
    needed = np.nan
    if sum(sweeps) > 0.0:
        per_stage = max(MIN_SWEEPS, float(np.mean(sweeps)))
        pace = (perf_counter() - began) / sum(sweeps)
        needed = deadline.enough((1.0 + stages_to_come(betas[1:])) * per_stage * pace)
    name = "fitted reference" if reference.mixture.size else "prior"
    place = f"at beta = {betas[-2]:.2g}" if betas[-2] > 0.0 else "before its first step"
    return Cut(f"the annealed pass from the {name}", place, needed)


def _tuning_of(
    betas: np.ndarray, log_ratio: np.ndarray, stages: list[Stage], kernel: Compound
) -> Tuning:
    """Tuning along the path from that of its stages."""
    jumps, costs = (np.array([getattr(s, name) for s in stages[1:]]) for name in ("jump", "cost"))
    return Tuning(
        betas,
        np.array([stage.steps for stage in stages]),
        np.array([stage.scale for stage in stages]),
        tuple(
            np.array([stage.covs[b] for stage in stages]) if dense else None
            for b, dense in enumerate(kernel.dense_blocks)
        ),
        kernel.options[choose_lengths(jumps, costs, log_ratio)],
    )


MIN_GAIN, MAX_RHO = 1.1, 0.7
"""Another trajectory length than the usual one has to change log_ratio by so much more for each
gradient, and the usual one has to forget so much of it at once: where it does not, the first
change says little about the slow ones that follow."""


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
