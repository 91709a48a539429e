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
from pymc_tempering.core.population import next_beta, systematic_resampling
from pymc_tempering.exceptions import LikelihoodError
from pymc_tempering.kernels import ACCEPTANCE, N_EVALUATIONS, N_INFO, Compound
from pymc_tempering.references.prior import Reference
from pymc_tempering.warmup.swarm import Metric, Swarm, draw_swarm, mean_square_change, metric_of

MAX_STAGES = 2000
MIN_SWEEPS, MAX_SWEEPS = 2, 12
ACCEPT_TOLERANCE = 0.1
"""A stage sweeps until its acceptance is this near to the target, within these bounds."""

MIN_GAIN, MAX_RHO = 1.1, 0.7
"""When another trajectory length than the usual one is chosen. It must change `log_ratio` by 10 %
more for each gradient. And with the usual one the autocorrelation of `log_ratio` must be below 0.7:
if it is higher, the first change says little about the slow ones that follow."""


@dataclass(frozen=True, eq=False)
class Tuned:
    """What the sweeps of a stage found.

    Attributes
    ----------
    steps : array, shape (B,)
        Step size of each kernel.
    jump, cost : array, shape (C,)
        Of each choice of trajectory lengths: the mean squared change of `log_ratio` in a sweep, and
        its gradients for each particle.
    n_evaluations : int
    """

    steps: np.ndarray
    jump: np.ndarray
    cost: np.ndarray
    n_evaluations: int


@dataclass(frozen=True, eq=False)
class AnnealedStage:
    """Particles after the moves of a stage: log Z so far, log_ratio (n,), and the tuning."""

    beta: float
    log_z: float
    log_ratio: np.ndarray
    tuned: Tuned
    metric: Metric


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
    swarm, mixture = draw_swarm(reference, n_particles, rng)
    finite = np.isfinite(swarm.xs).all(axis=1)
    metric = metric_of(reference, kernel, swarm.xs[finite], np.ones(reference.path.dim))
    nothing = np.empty(0)
    first = Tuned(kernel.first_steps, nothing, nothing, n_particles)
    stages = [AnnealedStage(0.0, 0.0, swarm.log_ratio.copy(), first, metric)]
    while (last := stages[-1]).beta < 1:
        if len(stages) > MAX_STAGES:
            raise LikelihoodError(
                f"The annealed pass is at beta = {last.beta:.2g} after {MAX_STAGES} stages: the "
                "prior is too far from the posterior for this path. Use a tighter prior."
            )
        beta = next_beta(swarm.log_ratio, last.beta, cess)
        log_w = (beta - last.beta) * swarm.log_ratio
        log_z = last.log_z + float(logsumexp(log_w) - np.log(n_particles))
        swarm = swarm.at(systematic_resampling(log_w, rng))
        metric = metric_of(reference, kernel, swarm.xs, last.metric.scale)
        tuned = _sweep_until_tuned(
            reference, kernel, swarm, mixture, beta, last.tuned.steps, metric, rng
        )
        metric = metric_of(reference, kernel, swarm.xs, metric.scale)
        stages.append(AnnealedStage(beta, log_z, swarm.log_ratio.copy(), tuned, metric))
        report(beta)
    return _summarize(stages, kernel, swarm.xs)


def _sweep_until_tuned(
    reference: Reference,
    kernel: Compound,
    swarm: Swarm,
    mixture: np.ndarray,
    beta: float,
    steps: np.ndarray,
    metric: Metric,
    rng: np.random.Generator,
) -> Tuned:
    """Move the particles in place, until the step sizes accept as often as they should.

    In a sweep each trajectory length moves a part of the particles, in the next sweep another part.
    """
    path, options = reference.path, kernel.options
    n_particles = len(swarm.xs)
    parts = np.array_split(np.arange(n_particles), len(options))
    scratch = np.empty((kernel.n_scratch, path.dim))
    jump, cost = np.zeros((2, MAX_SWEEPS, len(options)))
    evaluations = 0
    for i in range(MAX_SWEEPS):
        accepted = np.zeros(kernel.n_blocks)
        for c, lengths in enumerate(options):
            part = parts[(i + c) % len(options)]
            some = swarm.at(slice(part[0], part[-1] + 1))
            before = some.log_ratio.copy()
            totals = np.zeros((kernel.n_blocks, N_INFO))
            sweep(
                path.density, kernel.explore, kernel.parts, *some, mixture, beta,
                kernel.pack(steps, metric.scale, metric.cov, lengths), path.circular, scratch,
                rng, totals,
            )  # fmt: skip
            accepted += totals[:, ACCEPTANCE]
            taken = totals[:, N_EVALUATIONS].sum()
            jump[i, c] = mean_square_change(before, some.log_ratio)
            cost[i, c] = taken / part.size
            evaluations += int(taken)
        off = np.nan_to_num(accepted / n_particles - kernel.targets)
        if i + 1 >= MIN_SWEEPS and np.abs(off).max() < ACCEPT_TOLERANCE:
            break
        steps = np.clip(steps * np.exp(1.5 * off), 1e-8, 10.0)
    last = slice(i - 1, i + 1)
    return Tuned(steps, jump[last].mean(axis=0), cost[last].mean(axis=0), evaluations)


def _summarize(
    stages: list[AnnealedStage], kernel: Compound, particles: np.ndarray
) -> AnnealedPass:
    """Put the stages into arrays, and choose the trajectory lengths."""
    steps = [stage.tuned.steps for stage in stages]
    steps[0] = steps[1]  # exact draws need no step: the first stage gets that of the second
    log_ratio = np.array([stage.log_ratio for stage in stages])
    jumps = np.array([stage.tuned.jump for stage in stages[1:]])
    costs = np.array([stage.tuned.cost for stage in stages[1:]])
    return AnnealedPass(
        betas=np.array([stage.beta for stage in stages]),
        log_z=np.array([stage.log_z for stage in stages]),
        log_ratio=log_ratio,
        step_sizes=np.array(steps),
        scales=np.array([stage.metric.scale for stage in stages]),
        covs=np.array([stage.metric.cov for stage in stages]) if kernel.dense else None,
        lengths=kernel.options[choose_lengths(jumps, costs, log_ratio)],
        particles=particles,
        n_evaluations=sum(stage.tuned.n_evaluations for stage in stages),
    )


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
