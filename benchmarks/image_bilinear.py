"""The bilinear generative model of patches: joint density, learning, and a patch as a PyMC model.

Sohl-Dickstein & Culpepper (2011), equations (30) and (33) to (35), after Culpepper et al. (2011):
x = bases ((mix c) * (scales d)) + noise of standard deviation 0.1, where c has a Laplace prior and
d >= 0 an exponential one. The normalizer of the prior of c is 2^Kc, where the paper prints 2.

Learned are bases and scales, with as many bases as dimensions, and the unit matrix as the mix: a =
c * (scales d) is then Laplace with widths that go together. First without noise, where a is the
inverse of the bases times x: chains of d, one a patch, persist, and the bases and scales climb the
slope of the log joint, which is that of the likelihood (Fisher's identity). Then with noise, by
expectation maximization with Gibbs draws of a.
"""

from dataclasses import dataclass, replace
from functools import cache

import image_experts
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from image_chains import adam
from image_generative import KEPT, NOISE
from image_patches import patches

N_SCALES = 18
"""Elements of d."""
ROUNDS, NOISY_ROUNDS, BATCH, RATE = 2000, 40, 2000, 0.01
LEAPS, STEP = 5, 0.25


@dataclass(frozen=True)
class Bilinear:
    """A bilinear generative model.

    Attributes
    ----------
    bases : array, shape (M, L)
    mix : array, shape (L, Kc)
    scales : array, shape (L, Kd)
    """

    bases: np.ndarray
    mix: np.ndarray
    scales: np.ndarray

    def log_joint(self, x: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Log p(x, c, d) in nats for patches (n, M)."""
        rest = (x - ((c @ self.mix.T) * (d @ self.scales.T)) @ self.bases.T) / NOISE
        constant = x.shape[1] * np.log(np.sqrt(2.0 * np.pi) * NOISE) + c.shape[1] * np.log(2.0)
        prior = np.sum(np.abs(c), axis=1) + np.sum(d, axis=1)
        return -0.5 * np.sum(rest**2, axis=1) - prior - constant

    def slope(self, x: np.ndarray, c: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slopes of log p(x, c, t) by c and by t = log d, whose density has a factor d."""
        d = np.exp(t)
        mixed, scaled = c @ self.mix.T, d @ self.scales.T
        towards = (x - (mixed * scaled) @ self.bases.T) @ self.bases / NOISE**2
        by_c = (towards * scaled) @ self.mix - np.sign(c)
        return by_c, d * ((towards * mixed) @ self.scales - 1.0) + 1.0

    def model(self, x: np.ndarray) -> pm.Model:
        """Return the model of one patch, whose evidence is its likelihood; of d it has the log."""
        with pm.Model() as model:
            patch = pm.Data("patch", x)
            c = pm.Laplace("c", 0.0, 1.0, shape=self.mix.shape[1])
            d = pm.Exponential("d", 1.0, shape=self.scales.shape[1])
            a = pt.dot(self.mix, c) * pt.dot(self.scales, d)
            pm.Normal("x", pt.dot(self.bases, a), NOISE, observed=patch)
        return model

    def from_noise(self, x: np.ndarray) -> pm.Model:
        """Return the same integral over the noise z in place of c, for square bases and mix.

        With z = (x - bases a) / 0.1 the noise has its own normal density, and the rest is
        p(a | d) / |det bases| at a = bases^-1 (x - 0.1 z). Nearly all z are likely, while few c of
        the prior are.
        """
        inverse, unmix = np.linalg.inv(self.bases), np.linalg.inv(self.mix)
        constant = np.linalg.slogdet(inverse)[1] + np.linalg.slogdet(unmix)[1]
        with pm.Model() as model:
            patch = pm.Data("patch", x)
            z = pm.Normal("z", 0.0, 1.0, shape=len(inverse))
            d = pm.Exponential("d", 1.0, shape=self.scales.shape[1])
            width = pt.dot(self.scales, d)
            c = pt.dot(unmix, pt.dot(inverse, patch - NOISE * z) / width)
            log_width = pt.sum(pt.log(pt.abs(width)))
            log_laplace = -pt.sum(pt.abs(c)) - self.mix.shape[1] * np.log(2.0)
            pm.Potential("coefficients", log_laplace - log_width + constant)
        return model


def log_widths(a: np.ndarray, t: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Log p(a, t), up to a constant, with Laplace a of widths scales d, and d = exp(t)."""
    d = np.exp(t)
    width = d @ scales.T
    return np.sum(t - d, axis=1) - np.sum(np.log(width) + np.abs(a) / width, axis=1)


def slope_by_widths(a: np.ndarray, t: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Slope of `log_widths` by the widths, (n, L)."""
    width = np.exp(t) @ scales.T
    return (np.abs(a) / width - 1.0) / width


def move_widths(
    a: np.ndarray, t: np.ndarray, scales: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """One Hamiltonian trajectory of t given a, for each patch."""

    def slope(t: np.ndarray) -> np.ndarray:
        return 1.0 + np.exp(t) * (slope_by_widths(a, t, scales) @ scales - 1.0)

    step = STEP * rng.uniform(0.3, 1.0, size=(len(t), 1))
    start = rng.normal(size=t.shape)
    place, momentum = t, start + 0.5 * step * slope(t)
    for leap in range(LEAPS):
        place = np.clip(place + step * momentum, -30.0, 30.0)
        momentum = momentum + (0.5 if leap == LEAPS - 1 else 1.0) * step * slope(place)
    gain = log_widths(a, place, scales) - log_widths(a, t, scales)
    gain += 0.5 * np.sum(start**2 - momentum**2, axis=1)
    inside = np.abs(place).max(axis=1) < 30.0
    accepted = (np.log(rng.uniform(size=len(a))) < gain) & inside
    return np.where(accepted[:, None], place, t)


def draw_coefficients(
    model: Bilinear, x: np.ndarray, a: np.ndarray, t: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Gibbs draws of a given x and t: first the normal widths within the Laplace ones."""
    width = np.exp(t) @ model.scales.T
    precision = inverse_gaussian(width / np.maximum(np.abs(a), 1e-12), rng) / width**2
    gram = model.bases.T @ model.bases / NOISE**2
    full = gram + precision[:, :, None] * np.eye(a.shape[1])
    lower = np.linalg.cholesky(full)
    mean = np.linalg.solve(full, (x @ model.bases / NOISE**2)[:, :, None])[:, :, 0]
    noise = rng.normal(size=(*a.shape, 1))
    return mean + np.linalg.solve(np.swapaxes(lower, 1, 2), noise)[:, :, 0]


def inverse_gaussian(mean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws with given means and shape 1, exact also where the mean is large."""
    half = 0.5 * mean * rng.chisquare(1.0, size=mean.shape)
    low = mean / (1.0 + half + np.sqrt(half * (half + 2.0)))
    return np.where(rng.uniform(size=mean.shape) * (mean + low) <= mean, low, mean**2 / low)


def fit_without_noise(
    x: np.ndarray, n_scales: int, rng: np.random.Generator, rounds: int = ROUNDS
) -> tuple[Bilinear, np.ndarray]:
    """Learn bases and scales as if there were no noise; also the chains of t = log d."""
    dim = x.shape[1]
    filters = image_experts.fit(image_experts.start("laplace", dim, rng), x).filters
    log_scales = np.log(rng.dirichlet(np.full(n_scales, 0.5), size=dim) + 1e-3)
    t = np.log(rng.exponential(size=(len(x), n_scales)))
    size = min(BATCH, len(x))
    of_filters, of_scales = adam(filters), adam(log_scales)
    for k in range(rounds):
        rows = rng.permutation(len(x))[:size]
        a, scales = x[rows] @ filters.T, np.exp(log_scales)
        t[rows] = move_widths(a, t[rows], scales, rng)
        d = np.exp(t[rows])
        pull = (np.sign(a) / (d @ scales.T)).T @ x[rows] / size
        by_scales = scales * (slope_by_widths(a, t[rows], scales).T @ d) / size
        rate = RATE * (1.0 - k / rounds)
        step, of_filters = of_filters.step(np.linalg.inv(filters).T - pull, rate)
        filters = filters + step
        step, of_scales = of_scales.step(by_scales, 2.0 * rate)
        log_scales = log_scales + step
    return Bilinear(np.linalg.inv(filters), np.eye(dim), np.exp(log_scales)), t


def fit_with_noise(
    model: Bilinear, x: np.ndarray, t: np.ndarray, rng: np.random.Generator, rounds: int
) -> Bilinear:
    """Go on with the noise that the model has."""
    size = min(BATCH, len(x))
    a = np.linalg.solve(model.bases, x.T).T
    cross, squares = x.T @ a / len(x), a.T @ a / len(x)
    of_scales = adam(model.scales)
    for k in range(rounds):
        rows = rng.permutation(len(x))[:size]
        a[rows] = draw_coefficients(model, x[rows], a[rows], t[rows], rng)
        t[rows] = move_widths(a[rows], t[rows], model.scales, rng)
        cross = KEPT * cross + (1.0 - KEPT) * x[rows].T @ a[rows] / size
        squares = KEPT * squares + (1.0 - KEPT) * a[rows].T @ a[rows] / size
        by_scales = slope_by_widths(a[rows], t[rows], model.scales).T @ np.exp(t[rows]) / size
        step, of_scales = of_scales.step(model.scales * by_scales, RATE * (1.0 - k / rounds))
        scales = model.scales * np.exp(step)
        model = replace(model, bases=np.linalg.solve(squares, cross.T).T, scales=scales)
    return model


def fit(x: np.ndarray, n_scales: int, rng: np.random.Generator, share: float = 1.0) -> Bilinear:
    """Learn without noise, then with it, for a share of all rounds."""
    model, t = fit_without_noise(x, n_scales, rng, max(1, round(share * ROUNDS)))
    return fit_with_noise(model, x, t, rng, max(1, round(share * NOISY_ROUNDS)))


@cache
def learned(dim: int = 36, n_scales: int = N_SCALES, seed: int = 0, share: float = 1.0) -> Bilinear:
    """Learn a model from image patches."""
    return fit(patches(dim).train, n_scales, np.random.default_rng(seed), share)
