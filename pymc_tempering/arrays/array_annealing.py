"""Annealing over arrays: a pass that finds the path, AIS, reverse AIS, and RAISE for data."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from pymc_tempering.arguments import RandomSeed, check_whole, rng_of
from pymc_tempering.arrays.array_density import (
    ArrayDensity,
    Move,
    States,
    check_density,
    check_starts,
    checked_ratio,
    move_states,
)
from pymc_tempering.arrays.carried import (
    MIN_PARTICLES,
    Betas,
    Carried,
    carried_evidence,
    check_schedule,
    given_betas,
    log_share,
)
from pymc_tempering.arrays.lockstep import LockstepChains, evaluated_draws
from pymc_tempering.core.ladder import (
    Ladder,
    PathSample,
    Stages,
    alive_sample,
    check_betas,
    place_rungs,
    resample_at,
)
from pymc_tempering.core.weighting import log_mean, log_mean_error, next_beta
from pymc_tempering.evidence.bracket import Sandwich, join_bounds
from pymc_tempering.evidence.result import Evidence, emit_warnings
from pymc_tempering.exceptions import LikelihoodError

STEP_CESS, STAGE_MOVES = 0.95, 2
"""Conditional effective sample size of a step, as a share, and the moves of each stage."""

MAX_STAGES = 5000
"""Stages after which a path is said to have no end."""

MAX_SPACED = 30_000
"""Particles of all stages that rungs are spaced by, at most: spacing takes as many rows as there
are stages of them, and more particles say no more."""


@dataclass(frozen=True, eq=False)
class ArrayPass(Stages):
    """What n particles found on their way from the reference to the density.

    Attributes
    ----------
    states : list of array, S of shape (n, ...)
        After the moves of each stage.
    n_moves : int
        Moves of one state.
    """

    states: list[States]
    n_moves: int

    @property
    def spaced(self) -> PathSample:
        """As many particles of each stage as rungs need, from all ancestors."""
        step = -(-self.log_ratio.size // MAX_SPACED)
        return alive_sample(self.betas, self.log_z, self.log_ratio[:, ::step])

    def chains(self, ladder: Ladder, n: int, rng: np.random.Generator) -> LockstepChains:
        """Start n chains: a rung by r, and a particle, each another, of the stage next below."""
        rung = rng.choice(ladder.n_rungs, size=n, p=np.exp(ladder.log_weights))
        stage = np.searchsorted(self.betas, ladder.betas[rung], side="right") - 1
        particle = rng.permutation(self.log_ratio.shape[1])[:n]
        states = np.array([self.states[s][i] for s, i in zip(stage, particle, strict=True)])
        ratio = self.log_ratio[stage, particle]
        return LockstepChains(states, ratio, np.where(ratio > -np.inf, rung, 0), np.zeros(n, bool))


def anneal_arrays(
    density: ArrayDensity,
    n_particles: int,
    rng: np.random.Generator,
) -> ArrayPass:
    """Carry particles to the density, each stage as far as their weights allow.

    Parameters
    ----------
    density : ArrayDensity
    n_particles : int
    rng : numpy.random.Generator

    Raises
    ------
    LikelihoodError
        The path has no end, or cannot be entered.
    """
    states, ratio = evaluated_draws(density, n_particles, rng)
    if not np.any(ratio > -np.inf):
        raise LikelihoodError(
            f"log_ratio is minus infinity at all {n_particles} draws of the reference: use more "
            "chains, or a reference nearer to the density."
        )
    beta, log_z = 0.0, 0.0
    path, kept = [(0.0, 0.0, ratio)], [states]
    while beta < 1.0:
        if len(path) > MAX_STAGES:
            raise LikelihoodError(
                f"The annealed pass is at beta = {beta:.2g} after {MAX_STAGES} stages: the "
                "reference is too far from the density."
            )
        new = next_beta(ratio, beta, STEP_CESS)
        gain, index = resample_at(new, beta, ratio, rng)
        beta, log_z = new, log_z + gain
        states, ratio = states[index], ratio[index]
        for _ in range(STAGE_MOVES):
            states, ratio = move_states(density, density.move, states, beta, rng)
        path.append((beta, log_z, ratio))
        kept.append(states)
    betas, log_zs, ratios = (np.array(column) for column in zip(*path, strict=True))
    return ArrayPass(betas, log_zs, ratios, kept, STAGE_MOVES * (len(path) - 1))


def rungs_on(found: PathSample, betas: Betas, per_barrier: float) -> np.ndarray:
    """Inverse temperatures (K,): those given, or as many as asked or enough, evenly apart."""
    return place_rungs(found, per_barrier) if betas is None else given_betas(betas, found)


SHARE_DRAWS = 10_000
"""Reference draws that tell the share on which the density is positive."""


def carry_arrays(
    density: ArrayDensity,
    move: Move,
    betas: np.ndarray,
    states: States,
    ratio: np.ndarray,
    rng: np.random.Generator,
) -> Carried:
    """Carry states, whose log_ratio is ``ratio``, along inverse temperatures.

    Up from draws of the reference the mean of the weights is Z, equation (23) of Carlson et al.
    (2016); down from draws of the density, by reversed moves, it is 1 / Z.
    """
    n = len(states)
    log_w, sums = np.zeros(n), np.tile([-np.inf, 0.0, 0.0], (betas.size, 1))
    sums[0] = 0.0, n, n
    for k in range(1, betas.size):
        log_w += (betas[k] - betas[k - 1]) * ratio
        alive = ratio > -np.inf
        if not alive.any():
            break
        w = np.exp(log_w - log_w.max())
        sums[k] = log_w.max(), w.sum(), w @ w
        if k < betas.size - 1:  # those of density zero stay, with weight zero
            states, ratio = states.copy(), ratio.copy()
            states[alive], ratio[alive] = move_states(density, move, states[alive], betas[k], rng)
    return Carried(log_w, states, sums, n_evaluations=n * (betas.size - 1))


def share_alive(density: ArrayDensity, rng: np.random.Generator) -> tuple[float, float]:
    """Log of the share of the reference on which the density is positive, and its error (nats)."""
    return log_share(evaluated_draws(density, SHARE_DRAWS, rng)[1])


BATCH = 2000
"""States that RAISE moves at a time."""

type Complete = Callable[[np.ndarray, np.random.Generator], tuple[States, np.ndarray]]
"""``complete(data, rng)`` returns whole states (n, ...) for rows of data, and log weights (n,)."""


@dataclass(frozen=True, eq=False)
class DataBounds:
    """Stochastic lower bounds on the log likelihood of data, from RAISE.

    Attributes
    ----------
    log_likelihood : array, shape (n,)
        Of each row of the data, in nats.
    mcse : array, shape (n,)
        Standard error of each, by the delta method; infinite for one particle.
    """

    log_likelihood: np.ndarray
    mcse: np.ndarray

    @property
    def mean(self) -> float:
        """Mean over the data, in nats."""
        return float(self.log_likelihood.mean())


@dataclass(frozen=True, eq=False)
class ArrayAnnealing:
    """A schedule over the path of a density over arrays, and the estimates that go along it.

    :func:`annealing` makes it. The schedule is frozen, so that all estimates share it.

    Attributes
    ----------
    density : ArrayDensity
    betas : array, shape (K,)
        Inverse temperatures from 0 to 1.
    n_pilot : int
        Moves of the pass that placed them.
    """

    density: ArrayDensity
    betas: np.ndarray
    n_pilot: int = 0

    def ais(self, n_particles: int = 100, *, random_seed: RandomSeed = None) -> Evidence:
        """Estimate log Z by annealed importance sampling (Neal 2001), below it in expectation.

        Parameters
        ----------
        n_particles : int, default 100
        random_seed : int or numpy.random.Generator, optional

        Returns
        -------
        Evidence
            In nats, with the curve of log Z along ``betas``.
        """
        check_whole(MIN_PARTICLES, n_particles=n_particles)
        rng, started = rng_of(random_seed), perf_counter()
        check_density(self.density, rng)
        states, ratio = evaluated_draws(self.density, n_particles, rng)
        done = carry_arrays(self.density, self.density.move, self.betas, states, ratio, rng)
        return emit_warnings(
            carried_evidence(
                done, rng, method="ais", asked=n_particles, betas=self.betas,
                n_evaluations=self.n_pilot, seconds=perf_counter() - started,
            )
        )  # fmt: skip

    def reverse_ais(
        self,
        states: States,
        chain: np.ndarray | None = None,
        *,
        random_seed: RandomSeed = None,
    ) -> Evidence:
        """Estimate log Z by annealing draws of the density down (Grosse et al. 2015), from above.

        Parameters
        ----------
        states : array, shape (n, ...)
            Draws of the density: ``ArrayRun.cold_states()``, say. Where they miss a mode the
            estimate may lie below log Z, by up to -log(share that they see).
        chain : array of int, shape (n,), optional
            Chain of each draw; draws of a chain stand in their order, and the error allows for
            their dependence. By default they are taken to be independent.
        random_seed : int or numpy.random.Generator, optional

        Returns
        -------
        Evidence
            In nats.

        Notes
        -----
        The path goes down by ``reverse_move``, as that of :meth:`ais` came up; where there is none,
        by ``move``, which leaves the same densities invariant, so that 1 / Z is as unbiased.
        """
        rng, started = rng_of(random_seed), perf_counter()
        reverse = self.density.reverse_move or self.density.move
        check_density(self.density, rng, down=self.density.reverse_move is not None)
        starts, ratio = check_starts(states, self.density, rng)
        check_whole(MIN_PARTICLES, states=len(starts))
        done = carry_arrays(self.density, reverse, self.betas[::-1], starts, ratio, rng)
        return emit_warnings(
            carried_evidence(
                done, rng, method="reverse_ais", asked=len(starts), chain=chain, inverse=True,
                share=share_alive(self.density, rng), noun="draws",
                n_evaluations=self.n_pilot, seconds=perf_counter() - started,
            )
        )  # fmt: skip

    def sandwich(
        self,
        states: States,
        chain: np.ndarray | None = None,
        *,
        random_seed: RandomSeed = None,
    ) -> Sandwich:
        """Bracket log Z between :meth:`ais` and :meth:`reverse_ais`, with as many particles each.

        Parameters
        ----------
        states, chain
            As for :meth:`reverse_ais`.
        random_seed : int or numpy.random.Generator, optional

        Returns
        -------
        Sandwich
        """
        rng = rng_of(random_seed)
        upper = self.reverse_ais(states, chain, random_seed=rng)
        return join_bounds(self.ais(len(states), random_seed=rng), upper)

    def raise_(
        self,
        data: np.ndarray,
        complete: Complete,
        n_particles: int = 20,
        *,
        random_seed: RandomSeed = None,
    ) -> DataBounds:
        """Bound the log likelihood of data from below, all of them at once (Burda et al. 2015).

        The model whose likelihood is estimated without bias is annealing itself: draw from the
        reference, move once at each beta, keep what the data show.

        Parameters
        ----------
        data : array, shape (n, ...)
            One row a datum.
        complete : callable
            ``complete(data, rng)`` draws what the data do not show: it returns whole states and
            log weights (nats) whose mean weight is f of the datum.
        n_particles : int, default 20
            Of each datum.
        random_seed : int or numpy.random.Generator, optional

        Returns
        -------
        DataBounds
            Of the annealing model, whose distance from the density is not part of the errors.

        Raises
        ------
        KernelError
            The density has no reversal of its move.
        """
        check_whole(1, n_particles=n_particles)
        rng = rng_of(random_seed)
        reverse = self.density.reversal("RAISE")
        check_density(self.density, rng, down=True)
        share = share_alive(self.density, rng)[0]
        rows, log_w = np.repeat(np.asarray(data), n_particles, axis=0), []
        for part in np.array_split(rows, max(1, -(-len(rows) // BATCH))):
            states, weight = complete(part, rng)
            starts, _ = check_starts(states, self.density, rng)
            # One move more than AIS makes: the annealing model ends with it.
            starts, ratio = move_states(self.density, reverse, starts, 1.0, rng)
            own = carry_arrays(self.density, reverse, self.betas[::-1], starts, ratio, rng).log_w
            log_w.append(
                own + checked_ratio(weight, len(starts), "the weights of complete") - share
            )
        table = np.concatenate(log_w).reshape(-1, n_particles)
        return DataBounds(
            np.array([log_mean(row) for row in table]),
            np.array([log_mean_error(row) for row in table]),
        )


def annealing(
    density: ArrayDensity,
    betas: Betas = None,
    *,
    rungs_per_barrier: float = 40.0,
    n_pilot: int = 100,
    random_seed: RandomSeed = None,
) -> ArrayAnnealing:
    """Choose a schedule over the path of a density over arrays, for AIS and its relatives.

    Parameters
    ----------
    density : ArrayDensity
    betas : int or sequence of float, optional
        Number of inverse temperatures, at equal distances along the path, or these themselves,
        from 0 to 1. By default as many as the path needs.
    rungs_per_barrier : float, default 40.0
        Intervals per unit of the barrier, where ``betas`` is left out.
    n_pilot : int, default 100
        Particles of the annealed pass that places them.
    random_seed : int or numpy.random.Generator, optional

    Returns
    -------
    ArrayAnnealing
        With methods ``ais``, ``reverse_ais``, ``sandwich`` and ``raise_``.

    Raises
    ------
    LadderError
        ``betas`` do not increase from 0 to 1.
    KernelError, LikelihoodError, ModelError
        The functions of the density do not hold what they promise.

    Examples
    --------
    >>> def draw(n, rng):
    ...     return rng.standard_normal((n, 1))
    >>> def log_ratio(x):
    ...     return -4 * x[:, 0] ** 2
    >>> def move(x, beta, rng):
    ...     return rng.standard_normal(x.shape) / np.sqrt(1 + 8 * beta[:, None])
    >>> density = pmt.arrays.ArrayDensity(draw, log_ratio, move, reversible=True)
    >>> run = pmt.arrays.temper(density, 200, chains=50, random_seed=1)
    >>> states, chain = run.cold_states()
    >>> both = pmt.arrays.annealing(density, 20).sandwich(states, chain, random_seed=1)
    >>> both.verdict, bool(abs(both.lower.log_z + np.log(3)) < 0.05)
    ('ok', True)
    """
    check_whole(MIN_PARTICLES, n_pilot=n_pilot)
    rng = rng_of(random_seed)
    check_schedule(betas)
    if betas is not None and not isinstance(betas, int | np.integer):
        return ArrayAnnealing(density, check_betas(betas))
    check_density(density, rng)
    found = anneal_arrays(density, n_pilot, rng)
    rungs = rungs_on(found.alive, betas, rungs_per_barrier)
    return ArrayAnnealing(density, rungs, n_pilot * found.n_moves)
