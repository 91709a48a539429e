"""Whether draws of a prior have the law that its density says, coordinate by coordinate.

Real coordinates and angles are screened by their gradients, whole numbers by steps. What the
screen suspects is judged by steps at a second batch of draws: a Metropolis step leaves any law as
it is, with jumps, edges or heavy tails, and the means that it is judged by are bounded.

The constant of the density is compared with that of a law q near it, which is normalized. With
draws of p and of q the means of q / (p + q) and of p / (p + q) are equal, in any number of
dimensions. If the density is c times p, the second is c times the first. Both lie between 0 and 1,
so no tail can spoil them; where p and q hardly overlap both are near zero, and the test has no
power.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from pytensor.graph.basic import Variable
from scipy.special import expit

from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.core.threads import one_thread
from pymc_tempering.exceptions import ImproperPriorError, PriorDrawsError
from pymc_tempering.model.imputed import imputed_parts
from pymc_tempering.model.layout import ordered_transform
from pymc_tempering.model.path import Path
from pymc_tempering.model.python_mode import compile_alone
from pymc_tempering.references.prior import Prior, evaluate_draws

PER_DIMENSION = 4
"""Draws for each real coordinate from which correlations are fitted."""


@dataclass(frozen=True)
class NearLaw:
    """A law of some coordinates: normal if real, whole numbers as often as seen, even angles.

    Attributes
    ----------
    real, whole, angles : array of int
        Raveled indices.
    center : array, shape (r,)
        Mean of the real coordinates.
    factor : array, shape (r, r) or (r,)
        Cholesky factor of their covariance; its diagonal alone where they do not correlate.
    tables : list of (values, frequencies)
        For each coordinate in `whole`.
    """

    real: np.ndarray
    whole: np.ndarray
    angles: np.ndarray
    center: np.ndarray
    factor: np.ndarray
    tables: list[tuple[np.ndarray, np.ndarray]]

    def redraw(self, xs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return states, shape (n, d), with these coordinates drawn anew."""
        n, out = len(xs), xs.copy()
        noise = rng.normal(size=(n, self.real.size))
        moved = noise * self.factor if self.factor.ndim == 1 else noise @ self.factor.T
        out[:, self.real] = self.center + moved
        out[:, self.angles] = rng.uniform(-np.pi, np.pi, (n, self.angles.size))
        for i, (values, shares) in zip(self.whole, self.tables, strict=True):
            out[:, i] = rng.choice(values, n, p=shares)
        return out

    def log_density(self, xs: np.ndarray) -> np.ndarray:
        """Log density at states, shape (n,)."""
        away, alone = (xs[:, self.real] - self.center).T, self.factor.ndim == 1
        white = away / self.factor[:, None] if alone else np.linalg.solve(self.factor, away)
        scales = self.factor if alone else np.diag(self.factor)
        log_q = -0.5 * (white**2).sum(axis=0) - np.log(scales).sum()
        log_q -= 0.5 * self.real.size * np.log(2 * np.pi) + self.angles.size * np.log(2 * np.pi)
        for i, (values, shares) in zip(self.whole, self.tables, strict=True):
            at = np.minimum(np.searchsorted(values, xs[:, i]), len(values) - 1)
            with np.errstate(divide="ignore"):
                log_q += np.log(np.where(values[at] == xs[:, i], shares[at], 0.0))
        return log_q


def near_law(path: Path, xs: np.ndarray, part: slice = slice(None)) -> NearLaw:
    """Fit such a law of a part of the coordinates to draws, shape (n, d), whatever their tails."""
    own = np.arange(path.dim)[part]
    angles = np.intersect1d(own, path.circular)
    whole = own[path.layout.whole_numbers[own]]
    real = np.setdiff1d(own, np.union1d(whole, angles))
    low, center, high = np.quantile(xs[:, real], (0.16, 0.5, 0.84), axis=0)
    spread = np.where(high > low, (high - low) / 2, 1.0)
    standard = np.clip((xs[:, real] - center) / spread, -3.0, 3.0)
    factor = spread
    if 1 < real.size * PER_DIMENSION <= len(xs):
        found = standard.T @ standard / len(xs) + 1e-9 * np.eye(real.size)
        scale = np.sqrt(np.diag(found))
        shrink = real.size / len(xs)
        alone = np.eye(real.size)
        correlations = (1 - shrink) * found / np.outer(scale, scale) + shrink * alone
        factor = spread[:, None] * np.linalg.cholesky(correlations)
    tables = []
    for i in whole:
        values, counts = np.unique(xs[:, i], return_counts=True)
        tables.append((values, counts / len(xs)))
    return NearLaw(real, whole, angles, center, factor, tables)


def missed_constant(
    path: Path,
    draws: np.ndarray,
    log_p: np.ndarray,
    log_density: Callable[[np.ndarray], np.ndarray],
    rng: np.random.Generator,
    part: slice = slice(None),
) -> tuple[float, float]:
    """Log of the factor by which a density misses its constant, and by how many errors.

    Parameters
    ----------
    path : Path
    draws : array, shape (n, d)
        Of the prior. Half of them fit q.
    log_p : array, shape (n,)
        What the density says there.
    log_density : callable
        What it says at other states, shape (n, d).
    rng : numpy.random.Generator
    part : slice, optional
        Coordinates that it is a density of, given the others.
    """
    half = len(draws) // 2
    law, theirs = near_law(path, draws[:half], part), draws[half:]
    own = law.redraw(theirs, rng)
    of_q = expit(np.nan_to_num(law.log_density(theirs) - log_p[half:]))
    of_p = expit(-np.nan_to_num(law.log_density(own) - log_density(own), nan=np.inf))
    a, b = float(of_q.mean()), float(of_p.mean())
    both = (a + b) / 2
    if both == 0:
        return 0.0, 0.0
    error = np.sqrt(2 * both * (1 - both) / len(own))  # no values in [0, 1] vary more
    with np.errstate(divide="ignore"):
        return float(np.log(b) - np.log(a)), float(abs(b - a) / error)


SCREEN_Z, MAX_Z = 4.0, 5.0
"""Standard errors from which a coordinate is suspected at the first batch of draws, and from which
the second refuses it: one false alarm in 1e10 coordinates."""

N_SECOND = 4000
"""Draws of the second batch."""

MAX_STEPS, MIN_STEPS, SCREEN_WORK = 100_000, 100, 1_000_000_000
"""Values of the density that steps of all coordinates take at most, and of each at least; and the
elements that the screen of whole numbers computes at most: of a dear density it takes the first."""

WINDOWS = (0.01, 0.05)
"""Shares of the draws on each side of where scores are looked at."""

NEAR, FAR, FARTHEST = 0.1, 3.0, 1e6
"""Sizes of steps, over the spread of a coordinate; and what counts as no farther than that."""

DISTANCES = (1.0, 1e3, 1e6)
"""Steps, up and down, at which a density must change somewhere along each coordinate."""

FEW, N_NAMED = 5, 1000
"""Draws at which that is looked at, and draws by which a variable is named."""

MAX_EQUAL, ROUNDED, GAP = 5, 30.0, 1e-6
"""Equal draws that a real coordinate may have; the size of unconstrained values from which rounding
may make them equal; and the distance to the next draws, relative, above which it has not. Where a
scale vanishes the next ones are nearer."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Draws of a prior, (n, d), and what its density says there: values (n,), gradients (n, d)."""

    draws: np.ndarray
    log_p: np.ndarray
    scores: np.ndarray


@np.errstate(over="ignore", invalid="ignore")  # of draws near the end of floating point
def check_laws(prior: Prior, batch: Batch, deadline: Deadline = NEVER) -> None:
    """Refuse a prior whose draws have another law than its density says.

    Parameters
    ----------
    prior : Prior
    batch : Batch
        A first batch of draws, all with finite densities.
    deadline : Deadline, optional
        After which nothing more is tested.

    Raises
    ------
    ImproperPriorError
        The density does not depend on a coordinate.
    PriorDrawsError
        Draws and density disagree, at two batches of draws, or a real coordinate has draws that are
        equal.
    """
    path, rng = prior.path, np.random.default_rng(2)
    _check_proper(path, batch)
    _check_atoms(path, batch.draws)
    suspect = np.abs(_score_z(path, batch)).max(axis=0) > SCREEN_Z
    whole = np.flatnonzero(path.layout.whole_numbers)[: SCREEN_WORK // (MIN_STEPS * path.work)]
    suspect[whole] = _step_z(path, batch, whole, rng, deadline) > SCREEN_Z
    if deadline.late:
        return
    with one_thread():
        _, z = _missed(path, batch, rng)
    where = np.flatnonzero(suspect)
    if where.size or z > SCREEN_Z:
        second = _second_batch(prior)
        _check_steps(path, second, where, rng, deadline)
        if z > SCREEN_Z and not deadline.late:
            _check_constant(path, second, rng)


def _check_steps(
    path: Path, batch: Batch, where: np.ndarray, rng: np.random.Generator, deadline: Deadline
) -> None:
    """Refuse a prior with suspected coordinates whose law a Metropolis step changes."""
    z = _step_z(path, batch, where, rng, deadline)
    if z.size and z.max() > MAX_Z:
        raise PriorDrawsError(
            f"The prior's draws of {path.layout.label(int(where[z.argmax()]))} do not have the law "
            f"that its density says (off by {z.max():.0f} standard errors), so that a path which "
            "starts from these draws gives a wrong evidence. Check the `random` function, the "
            "density and the transform of the distribution."
        )


def _second_batch(prior: Prior) -> Batch:
    draws = prior.draw(N_SECOND, prior.spawn(np.random.default_rng(1)))
    draws = draws[np.isfinite(draws).all(axis=1)]
    log_p, _ = evaluate_draws(prior.path, draws)
    sound = np.isfinite(log_p)
    return Batch(draws[sound], log_p[sound], np.empty((0, prior.path.dim)))


def _check_proper(path: Path, batch: Batch) -> None:
    """Refuse coordinates on which the density does not depend, unless they are angles."""
    still = (batch.scores == 0).all(axis=0)
    still[path.circular] = False
    if not still.any():
        return
    draws = batch.draws[:FEW]
    before, _ = evaluate_draws(path, draws)
    for i in np.flatnonzero(still):
        axis = np.eye(path.dim)[i]
        steps = (sign * far * axis for far in DISTANCES for sign in (-1, 1))
        if all((evaluate_draws(path, draws + step)[0] == before).all() for step in steps):
            raise ImproperPriorError(
                f"Improper prior: no prior density depends on {path.layout.label(int(i))}, so the "
                "evidence does not exist. Give this variable a density that can be normalized, "
                "or leave it out."
            )


def _check_atoms(path: Path, draws: np.ndarray) -> None:
    """Refuse real coordinates with single values that have a probability of their own."""
    for i in np.flatnonzero(~path.layout.whole_numbers):
        values, counts = np.unique(draws[np.abs(draws[:, i]) < ROUNDED, i], return_counts=True)
        if counts.max(initial=0) <= MAX_EQUAL:
            continue
        value = values[counts.argmax()]
        others = np.abs(values[values != value] - value)
        if others.min(initial=np.inf) > GAP * max(1.0, abs(value)):
            share = counts.max() / len(draws)
            raise PriorDrawsError(
                f"{share:.1%} of the prior draws of {path.layout.label(int(i))} have one and the "
                f"same value ({value:.4g}): such a variable, as pm.Censored and "
                "hurdle distributions are, has no density that can be integrated. Write it as a "
                "discrete variable that says which part a value is of, and a continuous one."
            )


def _score_z(path: Path, batch: Batch) -> np.ndarray:
    """Return the errors by which means for each coordinate differ from zero, shape (4, d).

    For a density p, E[f' + f d log p / dx] = 0 if f falls to zero within the support. An even and
    an odd f do, between two pairs of quantiles, so that neither heavy tails nor edges of the
    support count; on a circle it is sine and cosine.
    """
    circular, found = path.circular, list[np.ndarray]()
    for share in WINDOWS:
        low, high = np.quantile(batch.draws, (share, 1 - share), axis=0)
        width = np.where(high > low, (high - low) / 2, 1.0)
        u = (batch.draws - (low + high) / 2) / width
        bump = np.maximum(1 - u**2, 0.0)
        for f, slope in ((bump, -2 * u), (u * bump, 1 - 3 * u**2)):
            slope = np.where(bump > 0, slope, 0.0) / width
            angle = batch.draws[:, circular] + len(found) * np.pi / 2
            f[:, circular], slope[:, circular] = np.sin(angle), np.cos(angle)
            found.append(_z(slope + np.where(f != 0, f * batch.scores, 0.0)))
    return np.array(found)


def _z(values: np.ndarray) -> np.ndarray:
    """Means of n values over their standard errors, along the first axis; infinite if undefined."""
    with np.errstate(divide="ignore", invalid="ignore"):
        z = values.mean(axis=0) / (values.std(axis=0) / np.sqrt(len(values)))
    return np.where(np.isnan(z), np.where((values == 0).all(axis=0), 0.0, np.inf), z)


def _step_z(
    path: Path, batch: Batch, where: np.ndarray, rng: np.random.Generator, deadline: Deadline
) -> np.ndarray:
    """Return the errors by which Metropolis steps move the law of some coordinates, (k,)."""
    most = min(MAX_STEPS, SCREEN_WORK // path.work) // max(len(where), 1)
    n = min(len(batch.draws), max(MIN_STEPS, most))
    draws, log_p = batch.draws[:n], batch.log_p[:n]
    whole, circular = path.layout.whole_numbers, set(path.circular.tolist())
    found = np.zeros(len(where))
    for k, i in enumerate(where):
        if deadline.late:
            break
        low, center, high = np.quantile(draws[:, i], (0.16, 0.5, 0.84))
        spread = (high - low) / 2 or draws[:, i].std() or 1.0
        step = spread * np.exp(rng.uniform(np.log(NEAR), np.log(FAR), n))
        if whole[i]:
            step = np.maximum(np.round(step), 1.0)
        moved = draws.copy()
        moved[:, i] += np.where(rng.random(n) < 0.5, step, -step)
        change = np.nan_to_num(evaluate_draws(path, moved)[0] - log_p, nan=-np.inf, posinf=np.inf)
        accepted = np.exp(np.minimum(change, 0.0))
        off = [np.clip((x[:, i] - center) / spread, -FARTHEST, FARTHEST) for x in (draws, moved)]
        if i in circular:
            bounded = [np.array([np.sin(u * spread), np.cos(u * spread)]) for u in off]
        else:
            bounded = [np.array([np.tanh(u), u**2 / (1 + u**2)]) for u in off]
        found[k] = np.abs(_z((accepted * (bounded[1] - bounded[0])).T)).max()
    return found


def _missed(path: Path, batch: Batch, rng: np.random.Generator) -> tuple[float, float]:
    def log_density(xs: np.ndarray) -> np.ndarray:
        return evaluate_draws(path, xs)[0]

    return missed_constant(path, batch.draws, batch.log_p, log_density, rng)


def _check_constant(path: Path, batch: Batch, rng: np.random.Generator) -> None:
    """Refuse a density that misses its constant, with the variable that misses it most."""
    log_factor, z = _missed(path, batch, rng)
    if z < MAX_Z:
        return
    found = {"": (log_factor, SCREEN_Z)}
    others = {*path.terms.wide, *imputed_parts(path.model)}
    for rv, part in zip(path.model.free_RVs, path.layout.slices, strict=True):
        if rv.name not in others and ordered_transform(path.model, rv) is None:
            found[rv.name] = _missed_by(path, rv, part, batch.draws[:N_NAMED], rng)
    name = max(found, key=lambda name: found[name][1])
    raise PriorDrawsError(
        f"The prior density of {repr(name) if name else 'the model'} is not normalized: it "
        f"integrates to about exp({found[name][0]:.2f}) in place of 1 (off by {z:.0f} standard "
        "errors), and the evidence would be off by as much. Add the constant that the density "
        "lacks."
    )


def _missed_by(
    path: Path, rv: Variable, part: slice, draws: np.ndarray, rng: np.random.Generator
) -> tuple[float, float]:
    """Do the same for the density of one variable, given the others."""
    term = compile_alone(path.model.value_vars, path.model.logp(vars=[rv]))

    def log_density(xs: np.ndarray) -> np.ndarray:
        return np.array([float(term(*path.layout.unravel(x).values())) for x in xs])

    return missed_constant(path, draws, log_density(draws), log_density, rng, part)
