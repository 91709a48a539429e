"""The automatic warm-up: annealed pass, rounds that learn log Z-hat, freeze."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from pymc_tempering.chain.chains import ChainState, start_chain
from pymc_tempering.chain.loop import LOWEST, RUNG
from pymc_tempering.chain.plan import Plan
from pymc_tempering.core.deadline import NEVER, Cut, Deadline, annealing_lines
from pymc_tempering.core.ladder import Ladder, PathSample, place_rungs
from pymc_tempering.kernels import Compound
from pymc_tempering.references.prior import Reference
from pymc_tempering.warmup.annealed_pass import AnnealedPass, anneal
from pymc_tempering.warmup.log_z_rounds import WEIGHT_ADAPTATIONS, Learner

N_CHAINS = 4
"""Chains of the rounds that learn log Z-hat."""

ITERATIONS_PER_RUNG = 50
"""Iterations of each chain in the first round, per rung; doubled in every further round."""

MAX_LOG_OFF = 0.7
"""A round may stop when every occupancy is within a factor of 2 of its target (or within two
standard errors of it). The paper's max |r_k - c_k| < 0.1 / K rejects more than half of the
runs with exact log Z at the lengths that suffice for a log Z error of 0.17."""


MAX_ACCEPT_OFF, MIN_VISITS = 0.15, 20
"""A round is not the last if a kernel accepts much more or less often than its target."""


@dataclass(frozen=True)
class WarmupRound:
    """One round in which log Z-hat was learned.

    Attributes
    ----------
    n_rungs, n_iterations : int
        Rungs of its ladder, and iterations of all chains together.
    max_log_off : float
        Largest |log(c_k / r_k)|; of the second half, where log Z-hat adapts within the round.
    log_z : float
        Log Z-hat at beta = 1 after it, in nats.
    gain : float
        Gain of its last iteration; 1 for RTS, which takes the full step.
    seconds : float
    """

    n_rungs: int
    n_iterations: int
    max_log_off: float
    log_z: float
    gain: float
    seconds: float


@dataclass(frozen=True)
class Warmup:
    """A frozen plan and how it came about.

    Attributes
    ----------
    plan : Plan
    annealed : AnnealedPass
    rounds : tuple of WarmupRound
    converged : bool
        Whether the last round met the stopping rule.
    seconds_annealing : float
    cut : Cut, optional
        Where the deadline ended that, and how long it would have needed.
    """

    plan: Plan
    annealed: AnnealedPass
    rounds: tuple[WarmupRound, ...]
    converged: bool
    seconds_annealing: float
    cut: Cut | None = None


def _accepts(plan: Plan, visits: np.ndarray, accept: np.ndarray) -> bool:
    """Whether the kernels accept about as often as they should, where that can be told."""
    off = np.abs(_acceptance_off(plan, visits, accept))
    return bool(np.all((off < MAX_ACCEPT_OFF) | (visits[1:, None] < MIN_VISITS)))


def _acceptance_off(plan: Plan, visits: np.ndarray, accept: np.ndarray) -> np.ndarray:
    """Subtract the targets from the acceptance of the upper rungs, shape (K - 1, B); 0 if none."""
    rate = (accept[:, 1:] / np.maximum(visits[1:], 1)).T
    return np.nan_to_num(rate - plan.kernel.targets)


def _tune_steps(plan: Plan, visits: np.ndarray, accept: np.ndarray) -> Plan:
    """Plan with step sizes moved toward the target acceptance of each rung."""
    off = _acceptance_off(plan, visits, accept)
    gain = np.where(visits >= MIN_VISITS, 2 * visits / (visits + 100), 0.0)[1:, None]
    factor = np.vstack([np.ones(off.shape[1]), np.exp(gain * off)])
    tuning = replace(plan.tuning, step_sizes=plan.tuning.step_sizes * factor)
    return replace(plan, tuning=tuning)


def warm_up(
    reference: Reference,
    kernel: Compound,
    rng: np.random.Generator,
    *,
    ladder_move: str,
    weight_adaptation: str = "rts",
    betas: np.ndarray | None = None,
    rungs_per_barrier: float = 1.5,
    cores: int = 1,
    n_particles: int = 512,
    max_rounds: int = 8,
    deadline: Deadline = NEVER,
    late_cess: float = 0.0,
    report: Callable[[str], None] = lambda line: None,
) -> Warmup:
    """Find ladder, log Z-hat and kernel tuning, and freeze them.

    Parameters
    ----------
    reference : Reference
    kernel : Compound
    rng : numpy.random.Generator
    ladder_move : {"metropolized_gibbs", "gibbs", "nonreversible"}
    weight_adaptation : {"rts", "wang_landau", "sams"}, default "rts"
        How log Z-hat is learned after the annealed pass.
    betas : array, optional
        A ladder that the user wants; by default it is placed automatically.
    rungs_per_barrier : float, default 1.5
        Intervals of an automatic ladder, per unit of the barrier.
    cores : int, default 1
        Threads that they run on.
    n_particles : int, default 512
        Particles of the annealed pass.
    max_rounds : int, default 8
        Bound on these rounds.
    deadline : Deadline, optional
        After which the annealed pass hurries, and no further round starts; the one that is under
        way ends, the first one with the overtime.
    late_cess : float, default 0.0
        How it hurries, as in `anneal`.
    report : callable, optional
        Called with a line of progress.

    Returns
    -------
    Warmup
    """
    started = perf_counter()
    annealed = anneal(
        reference, kernel, rng, n_particles=n_particles, deadline=deadline,
        late_cess=late_cess,
        report=annealing_lines(report),
    )  # fmt: skip
    seconds_annealing = perf_counter() - started
    sample = annealed.sample
    rungs = place_rungs(sample, rungs_per_barrier) if betas is None else betas
    ladder = Ladder(rungs, sample.log_z_at(rungs), np.zeros(rungs.size))
    plan = Plan(reference, kernel, ladder, annealed.tuning.at(rungs), ladder_move)
    states = [start_chain(plan, child) for child in rng.spawn(N_CHAINS)]
    learn = WEIGHT_ADAPTATIONS[weight_adaptation](states, cores)
    plan, rounds, converged = settle(
        plan, learn, rungs_per_barrier if betas is None else None, max_rounds, report, deadline
    )
    cut = None if converged or len(rounds) == max_rounds else _cut(rounds, deadline)
    return Warmup(plan, annealed, tuple(rounds), converged, seconds_annealing, cut)


def settle(
    plan: Plan,
    learn: Learner,
    rungs_per_barrier: float | None,
    max_rounds: int,
    report: Callable[[str], None] = lambda line: None,
    deadline: Deadline = NEVER,
) -> tuple[Plan, list[WarmupRound], bool]:
    """Learn log Z-hat in rounds, tune the kernels, and place the rungs anew once.

    Parameters
    ----------
    plan : Plan
    learn : Learner
    rungs_per_barrier : float or None
        For the new rungs; with None they stay.
    max_rounds : int
    report : callable, optional
    deadline : Deadline, optional
        After which no further round starts, and the one that is under way ends; the first one has
        all of the overtime.

    Returns
    -------
    plan : Plan
    rounds : list of WarmupRound
    converged : bool
    """
    rounds: list[WarmupRound] = []
    converged, placed = False, rungs_per_barrier is None
    while not converged and len(rounds) < max_rounds and not (rounds and deadline.late):
        started = perf_counter()
        n_iterations = _iterations(plan.ladder.n_rungs, len(rounds))
        learned = learn(plan, n_iterations, deadline if rounds else deadline.last.rest(1.0))
        log_z, off = learned.log_z, learned.off
        max_off = float(np.abs(off).max())
        ok = bool(((np.abs(off) < MAX_LOG_OFF) | (np.abs(off) < 2 * learned.error)).all())
        rounds.append(
            WarmupRound(plan.ladder.n_rungs, learned.log_ratio.size, max_off, float(log_z[-1]),
                        learned.gain, perf_counter() - started)
        )  # fmt: skip
        report(f"Learning the weights, round {len(rounds)}: log Z = {log_z[-1]:.2f}")
        respaced, may_place = False, learn.place(ok)
        if np.isfinite(log_z).all():
            seen = PathSample(
                learned.log_ratio.ravel(), plan.ladder.betas, log_z,
                np.maximum(learned.counts, 1e-300),
            )  # fmt: skip
            plan = _tune_steps(plan, learned.visits, learned.accept)
            plan = plan.with_ladder(plan.ladder.with_log_z(log_z))
            if may_place and not placed:
                assert rungs_per_barrier is not None
                old = plan
                plan = _respace(plan, seen, place_rungs(seen, rungs_per_barrier))
                for state in learn.states:
                    _move_to(state, old, plan)
                respaced = placed = True
        accepts = not respaced and _accepts(plan, learned.visits, learned.accept)
        converged = ok and accepts and learn.is_final()
    return plan, rounds, converged


def _iterations(n_rungs: int, rounds: int) -> int:
    """Return the iterations of each chain in the round after so many."""
    return ITERATIONS_PER_RUNG * n_rungs * 2**rounds


def _cut(rounds: Sequence[WarmupRound], deadline: Deadline) -> Cut:
    """Tell where the deadline ended the rounds; a further one would have taken twice as long."""
    last = rounds[-1]
    whole = N_CHAINS * _iterations(last.n_rungs, len(rounds) - 1)
    place = f"at {last.n_iterations} of {whole} iterations of round {len(rounds)}"
    more = last.seconds * (whole / last.n_iterations - 1.0)
    if more == 0.0:
        place, more = f"after round {len(rounds)}", 2.0 * last.seconds
    return Cut("the learning of the weights", place, deadline.enough(more))


def _respace(plan: Plan, seen: PathSample, betas: np.ndarray) -> Plan:
    """Plan on new rungs, tuning interpolated along the old ones."""
    ladder = Ladder(betas, seen.log_z_at(betas), np.zeros(betas.size))
    return replace(plan, ladder=ladder, tuning=plan.tuning.at(betas))


def _move_to(state: ChainState, old: Plan, new: Plan) -> None:
    """Put a chain onto the rung of a new ladder that is nearest to its present one."""
    beta = old.ladder.betas[state.rung]
    rung = int(np.abs(new.ladder.betas - beta).argmin())
    top = new.ladder.n_rungs - 1
    # Only an exact draw may be at beta = 0: a chain from another rung goes to rung 1 at least.
    state.chain.counters[RUNG] = min(max(rung, 1 if beta > 0 else 0), top)
    state.chain = state.chain._replace(
        per_rung=np.zeros((state.chain.per_rung.shape[0], top + 1)),
        accept=np.zeros((state.chain.accept.shape[0], top + 1)),
    )
    state.chain.scalars[:] = 0.0
    state.chain.scalars[LOWEST] = top
