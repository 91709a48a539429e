"""Normalized densities fitted to posterior draws, for bridge and importance sampling."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import solve_triangular

from pymc_tempering.arguments import check_choice
from pymc_tempering.bridge.binary import BinaryFit, log_unit_t
from pymc_tempering.bridge.field import FieldFit
from pymc_tempering.bridge.target import Normalized, Ratio, Target, without_lost
from pymc_tempering.exceptions import TemperingError
from pymc_tempering.fields.find import find_field
from pymc_tempering.references.mixture_fit import fit_mixture
from pymc_tempering.references.prior import Fitted, compile_prior

DOFS = (3.0, 5.0, 8.0, 16.0, 32.0, 100.0)
"""Degrees of freedom that are tried for a single t; the most likely one is taken."""

T_ITERATIONS = 30
"""Steps of the EM algorithm for the location and scale of a t."""


@dataclass(frozen=True)
class Elliptical(Normalized):
    """A multivariate t, or a normal.

    Attributes
    ----------
    mean : ndarray, shape (d,)
    cholesky : ndarray, shape (d, d)
        Lower Cholesky factor of the scale matrix.
    dof : float
        Degrees of freedom; infinite for the normal.
    """

    mean: np.ndarray
    cholesky: np.ndarray
    dof: float = np.inf

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw independent states, shape (n, d)."""
        noise = rng.standard_normal((n, self.mean.size)) @ self.cholesky.T
        if np.isfinite(self.dof):
            noise *= np.sqrt(self.dof / rng.chisquare(self.dof, size=(n, 1)))
        return self.mean + noise

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """Log density, shape (n,), at states of shape (n, d)."""
        dim, square = self.mean.size, squared_distance(x, self.mean, self.cholesky)
        log_det = np.log(np.diag(self.cholesky)).sum()
        if not np.isfinite(self.dof):
            return -0.5 * (square + dim * np.log(2 * np.pi)) - log_det
        return log_unit_t(square, dim, self.dof) - log_det


@dataclass(frozen=True)
class Warp(Elliptical):
    """A normal, and the target averaged with its mirror image in the normal's mean.

    Warp-III of Meng & Schilling (2002) in the coordinates of the target: centered, scaled and
    made symmetric. The averaged target has the same integral.
    """

    evaluations = (2, 1)

    def log_ratio(
        self, target: Target, x: np.ndarray, log_target: np.ndarray | None = None
    ) -> Ratio:
        """Log of the averaged target over the proposal, and the share of lost states."""
        known, lost = without_lost(target.log_density(x) if log_target is None else log_target)
        mirrored, _ = without_lost(target.log_density(2.0 * self.mean - x))
        return np.logaddexp(known, mirrored) - np.log(2.0) - self.log_density(x), lost


@dataclass(frozen=True)
class MixtureProposal:
    """A mixture of t's with a share of the prior."""

    fitted: Fitted
    target: Target

    evaluations = (1, 1)
    spent = 0

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw independent states, shape (n, d)."""
        components, prior = self.fitted.components, self.fitted.prior
        from_prior = rng.random(n) < components.prior_share
        draws = components.draw(n, rng)
        draws[from_prior] = prior.draw(int(from_prior.sum()), prior.spawn(rng))
        return draws

    def log_ratio(
        self, target: Target, x: np.ndarray, log_target: np.ndarray | None = None
    ) -> Ratio:
        """Log of target over proposal, shape (n,), and the share of lost states."""
        return without_lost(target.parts(x, self.fitted.mixture)[1])


def squared_distance(x: np.ndarray, mean: np.ndarray, cholesky: np.ndarray) -> np.ndarray:
    """Squared Mahalanobis distance of the rows of `x`, shape (n, d), from a mean."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = solve_triangular(cholesky, (x - mean).T, lower=True, check_finite=False)
        return (scaled**2).sum(axis=0)


def fit_normal(draws: np.ndarray) -> Elliptical:
    """Fit a normal to draws, shape (n, d), by moments.

    Raises
    ------
    TemperingError
        The draws are too few, or do not vary in some direction.
    """
    n, dim = draws.shape
    if n < 2 * (dim + 1):
        raise TemperingError(
            f"{n} draws are too few to fit a density in {dim} dimensions, which takes at least "
            f"{2 * (dim + 1)}: sample more draws."
        )
    try:
        cholesky = np.linalg.cholesky(np.atleast_2d(np.cov(draws.T)))
    except np.linalg.LinAlgError:
        raise TemperingError(
            "The posterior draws do not vary in some direction of the unconstrained space, so no "
            "density can be fitted to them: look for stuck chains, or for variables that determine "
            "one another."
        ) from None
    return Elliptical(draws.mean(axis=0), cholesky)


def fit_t(draws: np.ndarray, dofs: tuple[float, ...] = DOFS) -> Elliptical:
    """Fit a multivariate t to draws, shape (n, d), by maximum likelihood.

    Location and scale by EM for each number of degrees of freedom, of which the best is kept.
    """
    start, best, highest = fit_normal(draws), None, -np.inf
    for dof in sorted(dofs, reverse=True):
        mean, cholesky = start.mean, start.cholesky
        for _ in range(T_ITERATIONS):
            weight = (dof + mean.size) / (dof + squared_distance(draws, mean, cholesky))
            mean = weight @ draws / weight.sum()
            centered = draws - mean
            new = np.linalg.cholesky((weight * centered.T) @ centered / len(draws))
            done = np.abs(np.diag(new) / np.diag(cholesky) - 1.0).max() < 1e-3
            cholesky = new
            if done:
                break
        t = Elliptical(mean, cholesky, dof)
        if (likelihood := t.log_density(draws).sum()) <= highest:
            break  # in practice the likelihood has one maximum in the degrees of freedom
        best, highest, start = t, likelihood, t
    assert best is not None
    return best


type Proposal = Normalized | MixtureProposal
"""A normalized density that can be drawn from, and its ratio to the target."""

type Fit = Callable[[np.ndarray, np.random.Generator], Proposal]


def find_fit(proposal: str, target: Target, dofs: tuple[float, ...] = DOFS) -> Fit:
    """Find what fits a proposal to draws (n, d); `dofs` are those that are tried for a single t.

    Where there are binary variables, each of their states has a t of its own. Where there is a
    latent field, the t is one of the others, and the field is normal given these.

    Raises
    ------
    ValueError
        It is not for binary variables.
    """
    if target.binary.any():
        check_choice("proposal", proposal, ("t", "mixture"), " for a model with binary variables")
        return BinaryFit(target)
    field = find_field(target.path.model) if proposal == "t" else None
    if field is not None:
        return FieldFit(field, partial(fit_t, dofs=dofs))
    if proposal == "t":
        return lambda draws, rng: fit_t(draws, dofs)
    return PROPOSALS[proposal](target)


def _warp(draws: np.ndarray) -> Warp:
    normal = fit_normal(draws)
    return Warp(normal.mean, normal.cholesky)


def _fit_with_prior(target: Target) -> Fit:
    prior = compile_prior(target.path)

    def fit(draws: np.ndarray, rng: np.random.Generator) -> Proposal:
        fit_normal(draws)  # raises an error for draws that no density can be fitted to
        mixture = fit_mixture(draws, rng, prior_draws=prior.screened, labelings=prior.labelings)
        return MixtureProposal(Fitted(prior, mixture), target)

    return fit


PROPOSALS: dict[str, Callable[[Target], Fit]] = {
    "t": lambda target: lambda draws, rng: fit_t(draws),
    "normal": lambda target: lambda draws, rng: fit_normal(draws),
    "warp": lambda target: lambda draws, rng: _warp(draws),
    "mixture": _fit_with_prior,
}
"""By name of the proposal: from a target to the function that fits it to draws (n, d)."""
