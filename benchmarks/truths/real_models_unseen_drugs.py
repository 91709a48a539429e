"""Theophylline in twelve persons: the data, and the log evidence person by person."""

import numpy as np
from scipy.optimize import least_squares
from scipy.special import logsumexp
from scipy.stats import qmc, t

from benchmarks.models.published import published
from benchmarks.truths.real_models_integrals import by_importance
from benchmarks.truths.real_models_unseen_truths import log_half_normal

DOSES = np.array([4.02, 4.4, 4.53, 4.4, 5.86, 4.0, 4.95, 4.53, 3.1, 5.5, 4.92, 5.3])
TIMES = np.array(published("TIMES")).reshape(12, 10)
LEVELS = np.array(published("LEVELS")).reshape(12, 10)
"""Doses (mg/kg), hours after them, and concentrations (mg/l) in the blood of twelve persons, after
time 0 (Boeckmann, Sheiner & Beal 1994)."""

CENTER = np.array([0.5, -3.2, -0.8])
"""Prior means of the logs of absorption, clearance and volume."""
DRAWS = 2048
"""Points of each person: a scrambled Sobol sequence."""
DOF = 5.0


def level(z: np.ndarray, person: int) -> np.ndarray:
    """Concentrations (n, 10) of a person with the logs of the rates (n, 3)."""
    absorbed, cleared, volume = np.exp(z.T)[..., None]
    lost = cleared / volume
    times = TIMES[person]
    gap = np.exp(-lost * times) - np.exp(-absorbed * times)
    return DOSES[person] * absorbed / (volume * (absorbed - lost)) * gap


def points_of(person: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points (n, 3) of a t around the person's own fit, sums of squares, and log densities."""

    def misfit(z: np.ndarray) -> np.ndarray:
        return np.r_[(level(z[None], person)[0] - LEVELS[person]) / 0.7, (z - CENTER) / 1.0]

    fit = least_squares(misfit, CENTER)
    root = np.linalg.cholesky(2.0 * np.linalg.inv(fit.jac.T @ fit.jac))
    u = qmc.Sobol(3, seed=seed).random(DRAWS)
    raw = t.ppf(np.clip(u, 1e-12, 1.0 - 1e-12), DOF)
    z = fit.x + raw @ root.T
    log_q = t.logpdf(raw, DOF).sum(axis=1) - np.log(np.diag(root)).sum()
    return z, ((level(z, person) - LEVELS[person]) ** 2).sum(axis=1), log_q


def drug_levels() -> tuple[float, float]:
    """Integrate `theophylline`: persons by their points, seven parameters by importance sampling.

    Twice, by other points, which tells what the points of the persons leave.
    """
    found = np.array([_with_points(seed) for seed in (1, 2)])
    log_z, error = found.mean(axis=0)
    return float(log_z), float(np.hypot(error / np.sqrt(2.0), np.ptp(found[:, 0]) / 2.0))


def _with_points(seed: int) -> tuple[float, float]:
    """Integrate with one set of points of the persons."""
    sets = [points_of(person, 100 * seed + person) for person in range(12)]
    z, squares, log_q = (np.stack(each) for each in zip(*sets, strict=True))
    powers = np.stack([np.ones(squares.shape), z[..., 0], z[..., 0] ** 2, z[..., 1],
                       z[..., 1] ** 2, z[..., 2], z[..., 2] ** 2, squares])  # fmt: skip
    powers = powers.reshape(8, -1)

    def at(point: np.ndarray) -> float:
        mean, log_s, log_sigma = point[:3], point[3:6], point[6]
        w = 0.5 * np.exp(-2.0 * log_s)
        constant = -(w * mean**2).sum() - log_s.sum() - 1.5 * np.log(2.0 * np.pi)
        constant -= 10.0 * (log_sigma + 0.5 * np.log(2.0 * np.pi))
        rows = np.r_[constant, np.column_stack([2.0 * w * mean, -w]).ravel()]
        rows = np.r_[rows, -0.5 * np.exp(-2.0 * log_sigma)]
        log_p = (rows @ powers).reshape(12, DRAWS) - log_q
        log_p = (logsumexp(log_p, axis=1) - np.log(DRAWS)).sum()
        prior = -0.5 * ((mean - CENTER) ** 2).sum() - 1.5 * np.log(2.0 * np.pi)
        prior += log_half_normal(log_s, 0.5).sum()
        return float(log_p + prior + log_half_normal(log_sigma, 2.0))

    return by_importance(
        lambda points: np.array([at(point) for point in points]),
        np.r_[CENTER, -0.5, -1.5, -1.5, -0.3],
        8_000,
        seed=seed,
    )
