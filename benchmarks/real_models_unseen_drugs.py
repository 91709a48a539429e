"""Theophylline in twelve persons: the data, and the log evidence person by person."""

import numpy as np
from real_models_integrals import by_importance
from real_models_unseen_truths import log_half_normal
from scipy.optimize import least_squares
from scipy.special import logsumexp
from scipy.stats import qmc, t

DOSES = np.array([4.02, 4.4, 4.53, 4.4, 5.86, 4.0, 4.95, 4.53, 3.1, 5.5, 4.92, 5.3])
TIMES = np.array([
    0.25, 0.57, 1.12, 2.02, 3.82, 5.10, 7.03, 9.05, 12.12, 24.37,
    0.27, 0.52, 1.00, 1.92, 3.50, 5.02, 7.03, 9.00, 12.00, 24.30,
    0.27, 0.58, 1.02, 2.02, 3.62, 5.08, 7.07, 9.00, 12.15, 24.17,
    0.35, 0.60, 1.07, 2.13, 3.50, 5.02, 7.02, 9.02, 11.98, 24.65,
    0.30, 0.52, 1.00, 2.02, 3.50, 5.02, 7.02, 9.10, 12.00, 24.35,
    0.27, 0.58, 1.15, 2.03, 3.57, 5.00, 7.00, 9.22, 12.10, 23.85,
    0.25, 0.50, 1.02, 2.02, 3.48, 5.00, 6.98, 9.00, 12.05, 24.22,
    0.25, 0.52, 0.98, 2.02, 3.53, 5.05, 7.15, 9.07, 12.10, 24.12,
    0.30, 0.63, 1.05, 2.02, 3.53, 5.02, 7.17, 8.80, 11.60, 24.43,
    0.37, 0.77, 1.02, 2.05, 3.55, 5.05, 7.08, 9.38, 12.10, 23.70,
    0.25, 0.50, 0.98, 1.98, 3.60, 5.02, 7.03, 9.03, 12.12, 24.08,
    0.25, 0.50, 1.00, 2.00, 3.52, 5.07, 7.07, 9.03, 12.05, 24.15,
]).reshape(12, 10)  # fmt: skip
LEVELS = np.array([
    2.84, 6.57, 10.50, 9.66, 8.58, 8.36, 7.47, 6.89, 5.94, 3.28,
    1.72, 7.91, 8.31, 8.33, 6.85, 6.08, 5.40, 4.55, 3.01, 0.90,
    4.40, 6.90, 8.20, 7.80, 7.50, 6.20, 5.30, 4.90, 3.70, 1.05,
    1.89, 4.60, 8.60, 8.38, 7.54, 6.88, 5.78, 5.33, 4.19, 1.15,
    2.02, 5.63, 11.40, 9.33, 8.74, 7.56, 7.09, 5.90, 4.37, 1.57,
    1.29, 3.08, 6.44, 6.32, 5.53, 4.94, 4.02, 3.46, 2.78, 0.92,
    0.85, 2.35, 5.02, 6.58, 7.09, 6.66, 5.25, 4.39, 3.53, 1.15,
    3.05, 3.05, 7.31, 7.56, 6.59, 5.88, 4.73, 4.57, 3.00, 1.25,
    7.37, 9.03, 7.14, 6.33, 5.66, 5.67, 4.24, 4.11, 3.16, 1.12,
    2.89, 5.22, 6.41, 7.83, 10.21, 9.18, 8.02, 7.14, 5.68, 2.42,
    4.86, 7.24, 8.00, 6.81, 5.87, 5.22, 4.45, 3.62, 2.69, 0.86,
    1.25, 3.96, 7.82, 9.72, 9.75, 8.57, 6.59, 6.11, 4.57, 1.17,
]).reshape(12, 10)  # fmt: skip
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
