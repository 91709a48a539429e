"""A proposal for binary variables and the continuous ones beside them, as in spike and slab.

The law of a coefficient depends on its indicator, and the indicators on each other, so that no
mixture of independent tables is near. Here the binary variables z follow logistic regressions, each
on those before it, and the continuous ones x given z a multivariate t at the mode of the density
at z, which Newton's method finds for each z that occurs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit, gammaln

from pymc_tempering.bridge.target import Normalized, Target, without_lost
from pymc_tempering.core.weighting import kish

LEAST_CHANCE = 0.001
"""Each value of a binary variable has this conditional probability at least."""

SLOPE_PENALTY, INTERCEPT_PENALTY = 1.0, 0.01
"""Half of it times the square of each number is taken from the log likelihood of a regression."""

SCORING_STEPS, LONGEST_STEP, SCORED = 12, 3.0, 1e-4
"""Steps of Fisher's scoring at most, the largest change in one, and the gain at which it ends."""

N_REFIT = 2000
"""States that the regressions are fitted to anew, weighted by what the density says of each."""

NEWTON_STEPS, NEAR, HALVINGS = 6, 0.02, 8
"""Steps to a mode at most, the decrement (nats, twice) at which it is near, and halvings of one."""

LEAST_LOG = -1e300
"""Log weight of a state without density: a difference of two is a number."""

DIFFERENCE = 1e-4
"""Shift of a coordinate for the second derivatives, in standard deviations."""

MOST_NUMBERS = 4_000_000
"""In the matrices that are worked with at a time."""

DOFS = (5.0, 10.0, 30.0, 100.0)
"""Degrees of freedom that are tried; the most likely one is taken."""


@dataclass(frozen=True)
class Regressions:
    """A law of J binary variables: each has log odds that are linear in those before it.

    Attributes
    ----------
    means : array, shape (J,)
        What the variables are counted from.
    intercepts : array, shape (J,)
    slopes : array, shape (J, J)
        Row j has numbers before column j only.
    """

    means: np.ndarray
    intercepts: np.ndarray
    slopes: np.ndarray

    def chances(self, zs: np.ndarray, j: int) -> np.ndarray:
        """Probability that variable j is one, given those before it, shape (n,)."""
        odds = self.intercepts[j] + (zs[:, :j] - self.means[:j]) @ self.slopes[j, :j]
        return LEAST_CHANCE + (1.0 - 2.0 * LEAST_CHANCE) * expit(odds)

    def log_density(self, zs: np.ndarray) -> np.ndarray:
        """Log probability of states, shape (n, J) -> (n,)."""
        total = np.zeros(len(zs))
        for j in range(zs.shape[1]):
            p = self.chances(zs, j)
            total += np.log(np.where(zs[:, j] == 1.0, p, 1.0 - p))
        return total

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw independent states, shape (n, J)."""
        zs = np.zeros((n, self.means.size))
        for j in range(self.means.size):
            zs[:, j] = rng.random(n) < self.chances(zs, j)
        return zs


def fit_regressions(zs: np.ndarray, weights: np.ndarray) -> Regressions:
    """Fit to states, shape (n, J), whose weights sum to the number that they are worth."""
    zs, at = np.unique(zs, axis=0, return_inverse=True)
    weights = np.bincount(at.ravel(), weights)
    n_variables = zs.shape[1]
    means = (weights @ zs + 0.5) / (weights.sum() + 1.0)
    start = np.log(means / (1.0 - means))
    intercepts, slopes = start.copy(), np.zeros((n_variables, n_variables))
    for j in range(n_variables):
        before = np.column_stack([np.ones(len(zs)), zs[:, :j] - means[:j]])
        penalty = np.full(j + 1, SLOPE_PENALTY)
        penalty[0] = INTERCEPT_PENALTY
        first = np.append(start[j], np.zeros(j))
        theta = first.copy()
        for _ in range(SCORING_STEPS):
            p = expit(before @ theta)
            slope = before.T @ (weights * (zs[:, j] - p)) - penalty * (theta - first)
            curvature = (before * (weights * p * (1.0 - p))[:, None]).T @ before + np.diag(penalty)
            step = np.linalg.solve(curvature, slope)
            theta += step * min(1.0, LONGEST_STEP / np.abs(step).max())
            if slope @ step < SCORED:
                break
        intercepts[j], slopes[j, :j] = theta[0], theta[1:]
    return Regressions(means, intercepts, slopes)


@dataclass(eq=False)
class Modes:
    """Modes of the continuous variables for each state of the binary ones, found when asked for.

    Attributes
    ----------
    target : Target
    binary : array of bool, shape (d,)
        Which raveled elements are binary; J of them.
    start : array, shape (J + 1, d - J)
        A constant and slopes: where the way to the mode begins, linear in the binary variables.
    spread : array, shape (d - J,)
        Standard deviations about this line.
    places : dict
        Row of each known state.
    means, roots : array, shape (U, d - J) and (U, d - J, d - J)
        Modes, and lower Cholesky factors of minus the second derivatives.
    log_dets, log_masses : array, shape (U,)
        Logs of the determinants of these, and of the masses that a normal of this shape has.
    n_evaluations : int
        Gradients so far.
    """

    target: Target
    binary: np.ndarray
    start: np.ndarray
    spread: np.ndarray
    places: dict[bytes, int] = field(default_factory=dict)
    n_evaluations: int = 0

    def __post_init__(self) -> None:
        rest = self.spread.size
        self.means = np.empty((0, rest))
        self.roots = np.empty((0, rest, rest))
        self.log_dets, self.log_masses = np.empty(0), np.empty(0)

    def find(self, zs: np.ndarray) -> np.ndarray:
        """Rows of states, shape (n, J) -> (n,); modes are looked for where a state is new."""
        states, back = np.unique(zs, axis=0, return_inverse=True)
        keys = [state.tobytes() for state in states]
        new = states[[key not in self.places for key in keys]]
        for part in self._parts(len(new)):
            self._add(new[part])
        return np.array([self.places[key] for key in keys])[back.ravel()]

    def _add(self, zs: np.ndarray) -> None:
        means, roots, values = self._climb(zs)
        log_dets = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
        masses = values + 0.5 * self.spread.size * np.log(2.0 * np.pi) - log_dets
        self.places |= {z.tobytes(): len(self.places) + i for i, z in enumerate(zs)}
        self.means = np.concatenate([self.means, means])
        self.roots = np.concatenate([self.roots, roots])
        self.log_dets = np.append(self.log_dets, log_dets)
        self.log_masses = np.append(self.log_masses, without_lost(masses)[0])

    def _climb(self, zs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Modes, factors and log densities there, by damped Newton steps."""
        xs = self.start[0] + zs @ self.start[1:]
        roots = np.tile(np.diag(1.0 / self.spread), (len(zs), 1, 1))
        values, slopes = self._slopes(zs, xs)
        going = np.flatnonzero(np.isfinite(values)) if self.spread.size else np.empty(0, int)
        for _ in range(NEWTON_STEPS):
            if not going.size:
                break
            roots[going] = self._roots(zs[going], xs[going], slopes[going])
            half = np.linalg.solve(roots[going], slopes[going][:, :, None])
            steps = np.linalg.solve(roots[going].transpose(0, 2, 1), half)[:, :, 0]
            near = (half**2).sum(axis=(1, 2)) < NEAR
            better = np.zeros(going.size, dtype=bool)
            for k in range(HALVINGS):
                at = np.flatnonzero(~better)
                if not at.size:
                    break
                rows = going[at]
                tried = xs[rows] + 0.5**k * steps[at]
                new_values, new_slopes = self._slopes(zs[rows], tried)
                higher = new_values > values[rows] - 1e-9
                taken = rows[higher]
                xs[taken], values[taken] = tried[higher], new_values[higher]
                slopes[taken], better[at[higher]] = new_slopes[higher], True
            going = going[better & ~near]
        return xs, roots, values

    def _roots(self, zs: np.ndarray, xs: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        """Lower Cholesky factors of minus the second derivatives, made positive, (n, d - J, d - J).

        Differences of gradients; where these are no peak, the inverse variances of the draws are
        added until they are one.
        """
        size = self.spread.size
        curvature = np.empty((len(zs), size, size))
        for i, spread in enumerate(self.spread):
            shifted = xs.copy()
            shifted[:, i] += DIFFERENCE * spread
            curvature[:, i] = (slopes - self._slopes(zs, shifted)[1]) / (DIFFERENCE * spread)
        curvature = 0.5 * (curvature + curvature.transpose(0, 2, 1))
        own = np.diag(self.spread**-2.0)
        curvature[~np.isfinite(curvature).all(axis=(1, 2))] = own
        try:
            return np.linalg.cholesky(curvature)
        except np.linalg.LinAlgError:
            return np.array([_peaked(each, own) for each in curvature])

    def _slopes(self, zs: np.ndarray, xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log density (n,) and its gradient (n, d - J), with no density where it is no number."""
        self.n_evaluations += len(zs)
        values, slopes = self.target.gradients(self.join(zs, xs))
        return without_lost(values)[0], slopes[:, ~self.binary]

    def join(self, zs: np.ndarray, xs: np.ndarray) -> np.ndarray:
        """Put binary and continuous variables together, shape (n, d)."""
        states = np.empty((len(zs), self.binary.size))
        states[:, self.binary], states[:, ~self.binary] = zs, xs
        return states

    def squares(self, at: np.ndarray, xs: np.ndarray) -> np.ndarray:
        """Squared distances of states from the modes in rows `at`, in standard deviations."""
        return np.concatenate([
            (np.einsum("nij,ni->nj", self.roots[at[part]], xs[part] - self.means[at[part]]) ** 2)
            .sum(axis=1)
            for part in self._parts(len(xs))
        ])  # fmt: skip

    def states_at(self, at: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """States at whitened distances `noise` (n, d - J) from the modes in rows `at`."""
        return np.concatenate([
            self.means[at[part]] + np.linalg.solve(
                self.roots[at[part]].transpose(0, 2, 1), noise[part][:, :, None]
            )[:, :, 0]
            for part in self._parts(len(noise))
        ])  # fmt: skip

    def _parts(self, n: int) -> Iterator[slice]:
        size = max(1, MOST_NUMBERS // max(1, self.spread.size) ** 2)
        return (slice(i, i + size) for i in range(0, n, size))


def _peaked(curvature: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Cholesky factor of a matrix, with ever more of another one added until there is one."""
    share = 0.0
    while True:
        try:
            return np.linalg.cholesky(curvature + share * own)
        except np.linalg.LinAlgError:
            share = max(0.01, 4.0 * share)


@dataclass(frozen=True)
class BinaryProposal(Normalized):
    """Regressions for the binary variables, and t's for the continuous ones given these."""

    regressions: Regressions
    modes: Modes
    dof: float
    n_before: int

    @property
    def spent(self) -> int:
        """Gradients that the modes have taken since this was fitted."""
        return self.modes.n_evaluations - self.n_before

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw independent states, shape (n, d)."""
        zs = self.regressions.draw(n, rng)
        noise = rng.standard_normal((n, self.modes.spread.size))
        noise *= np.sqrt(self.dof / rng.chisquare(self.dof, size=(n, 1)))
        return self.modes.join(zs, self.modes.states_at(self.modes.find(zs), noise))

    def log_density(self, states: np.ndarray) -> np.ndarray:
        """Log density, shape (n,), at states of shape (n, d)."""
        zs, xs = states[:, self.modes.binary], states[:, ~self.modes.binary]
        at = self.modes.find(zs)
        squares = self.modes.squares(at, xs)
        log_t = log_unit_t(squares, xs.shape[1], self.dof)
        return self.regressions.log_density(zs) + self.modes.log_dets[at] + log_t


def log_unit_t(squares: np.ndarray, dim: int, dof: float) -> np.ndarray:
    """Log density of a t of unit scale matrix, at squared distances from its middle."""
    half = 0.5 * (dof + dim)
    constant = gammaln(half) - gammaln(0.5 * dof) - 0.5 * dim * np.log(dof * np.pi)
    return constant - half * np.log1p(squares / dof)


@dataclass(eq=False)
class BinaryFit:
    """Fits proposals to draws; all share the modes, which do not depend on the draws.

    Attributes
    ----------
    target : Target
    modes : Modes, optional
        Those that are known; where the ways to them begin is fitted to the first draws.
    """

    target: Target
    modes: Modes | None = None

    def __call__(self, draws: np.ndarray, rng: np.random.Generator) -> BinaryProposal:
        """Fit to posterior draws, shape (n, d), and to states weighted by their masses."""
        binary = self.target.binary
        zs, xs = draws[:, binary], draws[:, ~binary]
        if self.modes is None:
            self.modes = Modes(self.target, binary, *_line(zs, xs))
        modes, before = self.modes, self.modes.n_evaluations
        few = np.arange(0, len(zs), max(1, len(zs) // N_REFIT))
        first = fit_regressions(zs[few], np.ones(few.size))
        own = first.draw(N_REFIT, rng)
        at = modes.find(own)
        log_w = np.maximum(modes.log_masses[at] - first.log_density(own), LEAST_LOG)
        w = np.exp(log_w - log_w.max())
        w = np.minimum(w, w.sum() / np.sqrt(w.size))
        weights = np.append(np.ones(few.size), w / w.sum() * kish(w))
        regressions = fit_regressions(np.concatenate([zs[few], own]), weights)
        squares = modes.squares(modes.find(zs[few]), xs[few])
        dof = max(DOFS, key=lambda one: float(log_unit_t(squares, xs.shape[1], one).sum()))
        return BinaryProposal(regressions, modes, dof, before)


def _line(zs: np.ndarray, xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Regress continuous variables on binary ones: a constant and slopes, and what is left."""
    terms = np.column_stack([np.ones(len(zs)), zs])
    center = xs.mean(axis=0)
    gram = terms.T @ terms / len(zs) + 3.0 / len(zs) * np.eye(terms.shape[1])
    line = np.linalg.solve(gram, terms.T @ (xs - center) / len(zs))
    left = (xs - center - terms @ line).std(axis=0)
    line[0] += center
    return line, np.where(left > 0.0, left, 1.0)
