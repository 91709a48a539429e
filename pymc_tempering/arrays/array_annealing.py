"""Annealing over arrays: AIS up, reverse AIS down, both as a sandwich, and RAISE for data."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from pymc_tempering.arguments import check_whole
from pymc_tempering.arrays.array_density import (
    ArrayDensity,
    States,
    check_density,
    check_starts,
    checked_ratio,
    move_states,
)
from pymc_tempering.arrays.array_pass import Betas, anneal_arrays, rungs_on
from pymc_tempering.arrays.carried_states import carry_down, carry_up, log_share
from pymc_tempering.core.ladder import check_betas
from pymc_tempering.core.weighting import log_mean, log_mean_error
from pymc_tempering.evidence.bracket import Sandwich, join_bounds
from pymc_tempering.evidence.particle_weights import curve_from_sums, evidence_of_weights
from pymc_tempering.evidence.result import Evidence, emit_warnings

MIN_PARTICLES = 20
"""Least number of particles."""

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

    @property
    def mean_mcse(self) -> float:
        """Standard error of the mean, for these data: of the scatter of the particles alone."""
        return float(np.sqrt(np.sum(self.mcse**2)) / self.mcse.size)


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

    def ais(
        self, n_particles: int = 100, *, random_seed: int | np.random.Generator | None = None
    ) -> Evidence:
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
        rng, started = np.random.default_rng(random_seed), perf_counter()
        check_density(self.density, rng)
        log_w, sums = carry_up(self.density, self.betas, n_particles, rng)
        return emit_warnings(
            evidence_of_weights(
                log_w, rng,
                method="ais",
                curve=curve_from_sums(self.betas, sums, n_particles),
                n_evaluations=self.n_pilot + n_particles * (self.betas.size - 1),
                seconds=perf_counter() - started,
            )
        )  # fmt: skip

    def reverse_ais(
        self,
        states: States,
        chain: np.ndarray | None = None,
        *,
        random_seed: int | np.random.Generator | None = None,
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
        rng, started = np.random.default_rng(random_seed), perf_counter()
        reverse = self.density.reverse_move or self.density.move
        check_density(self.density, rng, down=self.density.reverse_move is not None)
        starts = check_starts(states, self.density, rng)
        check_whole(MIN_PARTICLES, states=len(starts))
        log_w = carry_down(self.density, reverse, self.betas, starts, rng)
        return emit_warnings(
            evidence_of_weights(
                log_w, rng,
                method="reverse_ais",
                inverse=True,
                group=chain,
                share=log_share(self.density, rng),
                noun="draws",
                n_evaluations=self.n_pilot + len(starts) * (self.betas.size - 1),
                seconds=perf_counter() - started,
            )
        )  # fmt: skip

    def sandwich(
        self,
        states: States,
        chain: np.ndarray | None = None,
        *,
        random_seed: int | np.random.Generator | None = None,
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
        rng = np.random.default_rng(random_seed)
        upper = self.reverse_ais(states, chain, random_seed=rng)
        return join_bounds(self.ais(len(states), random_seed=rng), upper)

    def raise_(
        self,
        data: np.ndarray,
        complete: Complete,
        n_particles: int = 20,
        *,
        random_seed: int | np.random.Generator | None = None,
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
            log weights (nats) whose mean weight is f of the datum. ``RBM.complete`` does, exactly.
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
        rng = np.random.default_rng(random_seed)
        reverse = self.density.reversal("RAISE")
        check_density(self.density, rng, down=True)
        share = log_share(self.density, rng)[0]
        rows, log_w = np.repeat(np.asarray(data), n_particles, axis=0), []
        for part in np.array_split(rows, max(1, -(-len(rows) // BATCH))):
            states, weight = complete(part, rng)
            starts = check_starts(states, self.density, rng)
            # One move more than AIS makes: the annealing model ends with it.
            ones = np.ones(len(starts))
            starts = move_states(self.density, reverse, starts, ones, rng)[0]
            own = carry_down(self.density, reverse, self.betas, starts, rng)
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
    random_seed: int | np.random.Generator | None = None,
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
    >>> rbm = pmt.arrays.RBM(np.full((4, 3), 0.5), np.zeros(4), np.zeros(3))
    >>> run = pmt.arrays.temper(rbm.density(), 200, chains=50, random_seed=1)
    >>> states, chain = run.cold_states()
    >>> both = pmt.arrays.annealing(rbm.density(), 20).sandwich(states, chain, random_seed=1)
    >>> both.verdict, bool(abs(both.lower.log_z - rbm.exact_log_z()) < 0.05)
    ('ok', True)
    """
    check_whole(MIN_PARTICLES, n_pilot=n_pilot)
    rng = np.random.default_rng(random_seed)
    if betas is not None and not isinstance(betas, int | np.integer):
        return ArrayAnnealing(density, check_betas(betas))
    if betas is not None:
        check_whole(2, betas=int(betas))
    check_density(density, rng)
    found = anneal_arrays(density, n_pilot, rng)
    rungs = rungs_on(found.sample, betas, rungs_per_barrier)
    return ArrayAnnealing(density, rungs, n_pilot * found.n_moves)
