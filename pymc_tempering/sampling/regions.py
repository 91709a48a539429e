"""Regions of the target: as a normal density, and the mass that is found in them from a place.

Neither the height of a place nor the curvature there tells what its region holds: a cusp has an
infinite curvature, a wall none, and in the neck of a funnel both are huge and there is no mass. So
a region is weighed by states that move there at beta = 1.

In few dimensions these are walkers that move by differences of others (differential evolution: ter
Braak, 2006, Statistics and Computing 16). Their steps take the size and shape of the region by
themselves, and ask for no gradient. In many dimensions they are chains of the run's kernel.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pymc_tempering.chain.particles import place, sweep
from pymc_tempering.core.weighting import log_mean
from pymc_tempering.references.labels import relabeled
from pymc_tempering.sampling.call import Job
from pymc_tempering.sampling.climbs import spread_of
from pymc_tempering.sampling.effort import is_wide
from pymc_tempering.sampling.evaluated import Evaluated, evaluate_states, home_radius
from pymc_tempering.sampling.fit_reference import HOME_DRAWS, ReferenceFit
from pymc_tempering.warmup.annealed_pass import AnnealedPass

LEAST_MASS = 5e-4
"""Share of the evidence below which a region is let go."""

LET_GO = 0.005
"""Share of the evidence that all regions that are let go may have; the error has it too."""

MAX_WEIGHED_DIM = 30
"""Dimensions up to which walkers weigh a region."""

SLACK = 3.0
"""Nats, and one for each dimension, by which states may lie above the normal density of a region of
another shape."""

WALKERS, WALKERS_PER_DIM, WALKS, WALKS_PER_DIM = 64, 4, 40, 4
"""Walkers, and for each dimension at least; moves of each before states are kept, with so many for
each dimension, and as many while they are."""

NEAREST, MAX_WIDTHS = 24, 3
"""Halvings of the width of the prior, from the least width at which walkers may begin on; and the
widths at which they do, at most."""

N_COVERED, PART = 2000, 0.1
"""States of walkers of which it is asked whether a fit covers them, and the least part of them that
is a region of its own: tails of a curved one are hardly covered either."""

EVERY, SPREAD = 10, 1e-4
"""How often a move takes the whole difference of two walkers, which leads from one mode to another,
and the relative spread of the lengths of all moves."""

CHAINS, CHAIN_BEGIN, CHAIN_PARTS, CHAIN_SWEEPS = 64, 10, 8, 5
"""In many dimensions: chains, transitions that are thrown away, and how many times so many that are
kept, by their last states."""


@dataclass(frozen=True, eq=False)
class Peak:
    """A local maximum of the target, as a normal density.

    Attributes
    ----------
    mean : array, shape (d,)
    cholesky : array, shape (d, d)
        Lower factor of the covariance.
    log_mass : float
        Its evidence (nats), by Laplace's method, by walkers or by chains.
    """

    mean: np.ndarray
    cholesky: np.ndarray
    log_mass: float

    def squares(self, xs: np.ndarray) -> np.ndarray:
        """Squared distances of states (n, d) in standard deviations, shape (n,)."""
        z = np.linalg.solve(self.cholesky, (xs - self.mean).T)
        return (z**2).sum(axis=0)

    def holds(self, xs: np.ndarray) -> np.ndarray:
        """Whether states (n, d) lie in its region, shape (n,)."""
        return self.squares(xs) < home_radius(self.mean.size)

    def explains(self, states: Evaluated) -> np.ndarray:
        """Whether states lie in its region, and no higher than its mass allows, shape (n,).

        What stands out of a wide region without mass has a region of its own.
        """
        top = self.log_mass + self.log_density(self.mean[None])[0]
        return self.holds(states.xs) & (states.log_target < top + self.mean.size + SLACK)

    def log_density(self, xs: np.ndarray) -> np.ndarray:
        """Log of the normal density, without the mass, at states (n, d), shape (n,)."""
        log_size = np.log(np.diag(self.cholesky)).sum() + 0.5 * self.mean.size * np.log(2 * np.pi)
        return -0.5 * self.squares(xs) - log_size

    def share(self, log_z: float) -> float:
        """Share of its mass in all, beside an evidence of `log_z` without it."""
        return float(np.exp(self.log_mass - np.logaddexp(self.log_mass, log_z)))

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw from the normal density, shape (n, d)."""
        return self.mean + rng.standard_normal((n, self.mean.size)) @ self.cholesky.T


def explained_by(peaks: Sequence[Peak], states: Evaluated) -> np.ndarray:
    """Whether one of some peaks explains states, shape (n,)."""
    held = np.zeros(states.n, dtype=bool)
    for peak in peaks:
        held |= peak.explains(states)
    return held


def least_mass(log_z: float) -> float:
    """Log mass (nats) below which a peak is let go, beside an evidence of `log_z`."""
    return log_z + float(np.log(LEAST_MASS))


def weigh_regions(
    job: Job,
    annealed: AnnealedPass,
    xs: np.ndarray,
    log_z: float,
    bound: int,
    dropped: float,
    fit: ReferenceFit | None = None,
) -> tuple[list[Peak], list[Peak], np.ndarray]:
    """Weigh the regions where states are stuck, one after the other.

    In many dimensions, those of a white field left out, a state may be long on its way to a mode,
    where there is no mass yet. So no region is light there.

    Parameters
    ----------
    job : Job
    annealed : AnnealedPass
        Whose tuning at beta = 1 the chains have.
    xs : array, shape (n, d)
    log_z : float
        Evidence without them (nats).
    bound : int
        Evaluations after which no further one is weighed.
    dropped : float
        Share of earlier regions that were let go; with all light ones it is less than `LET_GO`.
    fit : ReferenceFit, optional
        As in `regions_around`.

    Returns
    -------
    heavy, light : list of Peak
        Regions that may have mass, and those without.
    explained : array of bool, shape (n,)
        Which of the states lie in light ones.
    """
    heavy, light, cost = list[Peak](), list[Peak](), 0
    explained, wide = np.zeros(len(xs), dtype=bool), is_wide(job.prior.path, MAX_WEIGHED_DIM)
    if job.deadline.late:
        return heavy, light, explained
    for region, inside, spent in regions_of(job, annealed, xs, range(len(xs)), fit):
        cost += spent
        if region.log_mass > least_mass(log_z):
            heavy.append(region)
        elif not wide and dropped + region.share(log_z) < LET_GO:
            dropped += region.share(log_z)
            light.append(region)
            explained |= inside
        if cost > bound or job.deadline.late:
            break
    job.tally.work["fit"] += cost
    return heavy, light, explained


def regions_of(
    job: Job,
    annealed: AnnealedPass,
    xs: np.ndarray,
    order: Iterable[int],
    fit: ReferenceFit | None = None,
) -> Iterator[tuple[Peak, np.ndarray, int]]:
    """Regions of states (n, d), one after the other, of states that lie in none before.

    Yields
    ------
    region : Peak
    inside : array of bool, shape (n,)
        Which of the states lie in it; the one that it is found from does.
    n_evaluations : int
    """
    held = np.zeros(len(xs), dtype=bool)
    for i in order:
        if not held[i]:
            region, spent = region_around(job, annealed, xs[i], fit)
            inside = region.holds(xs)
            inside[i] = True
            held |= inside
            yield region, inside, spent


def region_around(
    job: Job, annealed: AnnealedPass, x: np.ndarray, fit: ReferenceFit | None = None
) -> tuple[Peak, int]:
    """Take the first of `regions_around`, the narrowest; and its evaluations."""
    return next(regions_around(job, annealed, x, fit))


def regions_around(
    job: Job, annealed: AnnealedPass, x: np.ndarray, fit: ReferenceFit | None = None
) -> Iterator[tuple[Peak, int]]:
    """Tell the region of a place, and wider ones that it may be a spike on, with their masses.

    Parameters
    ----------
    job : Job
    annealed : AnnealedPass
        Whose tuning at beta = 1 chains have.
    x : array, shape (d,)
    fit : ReferenceFit, optional
        What is known. Where labels can be exchanged, states go through several labelings; they get
        that of its draws, so that the mass is that of one labeling. Where they go both through a
        known region and through another, the other one is a region of its own.

    Yields
    ------
    region : Peak
        The normal density of where states from x stay at beta = 1.
    n_evaluations : int
    """
    if x.size > MAX_WEIGHED_DIM:
        states, spent = _chains(job, annealed, x)
        yield _region(job, states, fit), spent
        return
    widths, spent = widths_around(job, x)
    for i, width in enumerate(widths):
        states, walked = _walk(job, _around(job, x, width, itself=i == 0))
        region = _region(job, states, fit)
        yield region, spent + walked
        spent = 0
        if fit is not None and not job.prior.path.dear:
            apart, spent = _uncovered(job, fit, states, region)
            if apart is not None:
                yield apart, spent
                spent = 0


def _region(job: Job, states: np.ndarray, fit: ReferenceFit | None) -> Peak:
    """Take the normal density of states, shape (m, n, d + 1) with the log target, and their mass.

    For states of the target p in a region of mass Z the mean of q / p is 1 / Z for any normalized
    density q (Gelfand & Dey, 1994). q is normal, of half of the walkers, and the mean is over the
    other half. Where q reaches farther than the walkers Z is overrated. Of the two halves that
    serve in turn the larger Z counts.
    """
    n_white, width = job.prior.path.n_white, states.shape[2]
    if fit is not None and fit.components.labelings is not None:
        flat = states[..., :-1].reshape(-1, width - 1)
        states[..., :-1] = relabeled(fit.components, flat).reshape(*states.shape[:2], -1)
    halves = (states[:, ::2].reshape(-1, width), states[:, 1::2].reshape(-1, width))
    log_mass = max(
        -log_mean(_normal(own[:, :-1], n_white).log_density(other[:, :-1]) - other[:, -1])
        for own, other in (halves, halves[::-1])
    )
    region = _normal(states[..., :-1].reshape(-1, width - 1), n_white)
    return replace(region, log_mass=log_mass)


def _uncovered(
    job: Job, fit: ReferenceFit, states: np.ndarray, region: Peak
) -> tuple[Peak | None, int]:
    """Part of a region that a fit hardly covers, by states that went through all of it.

    Walls and slopes without a barrier let walkers go from a mode that nobody knows to one that all
    draws are in, and the region of both has been seen. None if it is all of the region, or nothing.
    """
    flat = states[..., :-1].reshape(-1, states.shape[2] - 1)
    some = evaluate_states(job.prior, flat[:: max(1, len(flat) // N_COVERED)], job.value_cores)
    apart = fit.suspects(some)
    least = max(HOME_DRAWS * (some.xs.shape[1] + 1), PART * some.n)
    if apart.sum() < least or (~apart).sum() < least:
        return None, some.n
    made = _normal(some.xs[apart], job.prior.path.n_white)
    return replace(made, log_mass=region.log_mass + float(np.log(apart.mean()))), some.n


def _chains(job: Job, annealed: AnnealedPass, x: np.ndarray) -> tuple[np.ndarray, int]:
    """States of chains from x, and the log target at each, (m, n, d + 1); and evaluations."""
    chains = place(job.prior, job.kernel, np.tile(x, (CHAINS, 1)), job.rng)
    params = annealed.tuning.pack(job.kernel)[-1]
    sweep(chains, 1.0, params, CHAIN_BEGIN)
    kept = list[np.ndarray]()
    for _ in range(CHAIN_PARTS):
        sweep(chains, 1.0, params, CHAIN_SWEEPS)
        kept.append(np.column_stack([chains.xs, chains.values.sum(axis=1)]))
    return np.array(kept), CHAINS + chains.n_evaluations


def _walk(job: Job, walkers: np.ndarray) -> tuple[np.ndarray, int]:
    """States that walkers (n, d + 1) go through, and the log target at each, (m, n, d + 1).

    They are moved at beta = 1, in two halves; also returns the number of evaluations.
    """
    n, dim, rng = len(walkers), walkers.shape[1] - 1, job.rng
    moves, spent = WALKS + WALKS_PER_DIM * dim, n
    halves = np.arange(n) < n // 2, np.arange(n) >= n // 2
    kept = list[np.ndarray]()
    for i in range(2 * moves):
        if job.deadline.late:
            break
        factor = 1.0 if i % EVERY == 0 else 2.38 / np.sqrt(2.0 * dim)
        for own in halves:
            others = walkers[~own, :-1]
            first = rng.integers(len(others), size=own.sum())
            second = (first + rng.integers(1, len(others), size=own.sum())) % len(others)
            steps = factor * (others[first] - others[second])
            steps *= 1.0 + SPREAD * rng.standard_normal(steps.shape)
            new = _with_heights(job, walkers[own, :-1] + steps)
            up = np.log(rng.random(len(new))) < new[:, -1] - walkers[own, -1]
            walkers[np.flatnonzero(own)[up]] = new[up]
        spent += n
        if i in (moves // 4, moves // 2):
            _bring_back(walkers, rng)
        if i >= moves:
            kept.append(walkers.copy())
    return np.array(kept or [walkers]), spent


def _bring_back(walkers: np.ndarray, rng: np.random.Generator) -> None:
    """Put walkers that were left behind, far below the others, where some of these are."""
    low, high = np.quantile(walkers[:, -1], [0.25, 0.75])
    behind = walkers[:, -1] < low - 2.0 * (high - low)
    walkers[behind] = rng.choice(walkers[~behind], behind.sum())


def widths_around(job: Job, x: np.ndarray) -> tuple[list[float], int]:
    """Find the widths of the region of a place, and of wider ones around it.

    Inside of a region the mean density at random places at some distance hardly falls with that
    distance, and outside it falls with its d-th power. Where a spike sits on top of a wider mode it
    falls twice. The widths are those where it begins to fall by more than half of this power.

    Returns
    -------
    widths : list of float
        In standard deviations of the prior, the least first; one at least.
    n_evaluations : int
    """
    dim, away = x.size, _directions(job, x.size)
    widths = 0.5 ** np.arange(NEAREST, -1, -1)
    xs = (x + widths[:, None, None] * away).reshape(-1, dim)
    heights = evaluate_states(job.prior, xs, job.value_cores).log_target
    means = np.array([log_mean(each) for each in heights.reshape(-1, len(away))])
    with np.errstate(invalid="ignore"):
        falls = np.diff(means) < -0.5 * dim * np.log(2.0)
    begins = np.flatnonzero(falls & ~np.append(False, falls[:-1]))
    return [float(w) for w in widths[begins][:MAX_WIDTHS]] or [1.0], len(xs)


def _around(job: Job, x: np.ndarray, width: float, *, itself: bool) -> np.ndarray:
    """Place walkers around x, shape (n, d + 1), and one at it if it is to count.

    None is far below the highest, where another region begins.
    """
    away = _directions(job, x.size)
    if itself:
        away[0] = 0.0
    walkers = _with_heights(job, x + width * away)
    below = walkers[:, -1] < walkers[:, -1].max() - 0.5 * home_radius(x.size)
    walkers[below] = job.rng.choice(walkers[~below], below.sum())
    return walkers


def _directions(job: Job, dim: int) -> np.ndarray:
    """Draw steps of walkers from a place, with the spread of the prior, shape (n, d)."""
    n = max(WALKERS, WALKERS_PER_DIM * dim)
    return job.rng.standard_normal((n, dim)) * spread_of(job.prior.sample)


def _with_heights(job: Job, xs: np.ndarray) -> np.ndarray:
    """States (n, d) and the log target at each, shape (n, d + 1)."""
    return np.column_stack([xs, evaluate_states(job.prior, xs, job.value_cores).log_target])


def _normal(xs: np.ndarray, n_white: int) -> Peak:
    """Take the normal density with mean and covariance of states, (n, d); it has no mass yet.

    The last ones that are white have theirs. In many other dimensions only the variances, which few
    states tell.
    """
    n, dim = xs.shape[1] - n_white, xs.shape[1]
    mean, covariance = np.zeros(dim), np.eye(dim)
    mean[:n] = xs[:, :n].mean(axis=0)
    if n > MAX_WEIGHED_DIM:
        covariance[:n, :n] = np.diag((1e-5 + xs[:, :n].std(axis=0)) ** 2)
    else:
        own = np.cov(xs[:, :n], rowvar=False).reshape(n, n)
        covariance[:n, :n] = own + np.diag(1e-9 + 1e-6 * np.diag(own))
    return Peak(mean, np.linalg.cholesky(covariance), -np.inf)
