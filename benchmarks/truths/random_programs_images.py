"""Vectors of normal laws and series as images of independent noise, as they are defined.

Their coordinates in the integrals are those of the noise: where a scale vanishes, the image of the
noise does, and nothing else.
"""

import numpy as np

from benchmarks.models.random_programs_families import Values
from benchmarks.models.random_programs_language import Dist
from benchmarks.models.random_programs_vectors import DT, VECTORS, W, kron, plane
from benchmarks.truths.random_programs_densities import value_of

type Array = np.ndarray

STANDARD = Dist("Normal", (("mu", 0.0), ("sigma", 1.0)))


def noise_of(dist: Dist) -> list[tuple[Dist, int]]:
    """Laws of the noise, and how many elements have each; a student's last two are still normal."""
    size = int(np.prod(dist.core)) - (dist.family == "ZeroSumNormal")
    if not dist.parts or dist.family.startswith("Mv"):
        return [(STANDARD, size)]
    order = 2 if dist.family == "AR of order 2" else 1
    return [(dist.parts[0], order), ((*dist.parts, STANDARD)[1], size - order)]


def is_image(dist: Dist) -> bool:
    """Whether a distribution is of real vectors."""
    return dist.family in VECTORS and VECTORS[dist.family].space in ("real", "zero_sum")


def is_student(dist: Dist) -> bool:
    """Whether the last two elements of the noise have a joint Student law."""
    return dist.family.startswith("MvStudentT")


def image_of(dist: Dist, e: Array, env: Values) -> Array:
    """Draws (n, *core) that noise (n, size) becomes."""
    a = {name: value_of(value, env) for name, value in dist.args}
    match dist.family:
        case "MvGaussianRandomWalk" | "MvStudentTRandomWalk":
            first = image_of(dist.parts[0], e[:, :2], env)
            return np.stack([first, first + _vector(a, e[:, 2:])], axis=1)
        case "MatrixNormal":
            x = (_root(kron(a["rowcov"], a["colcov"])) @ e[..., None]).reshape(-1, 2, 2)
            return a["mu"] + x
        case "ZeroSumNormal":
            return a["sigma"].reshape(-1, 1) * (e @ plane(3).T)
        case "MvNormal by chol":
            return a["mu"] + (a["chol"] @ e[..., None])[..., 0]
        case "MvNormal" | "MvStudentT" | "KroneckerNormal" | "CAR":
            return _vector(a, e)
    return _series(dist.family, {k: v.reshape(len(v), -1) for k, v in a.items()}, e)


def _vector(a: Values, e: Array) -> Array:
    """Noise times the root of whichever covariance is given, about mu."""
    if "cov0" in a:
        cov = kron(a["cov0"], a["cov1"]) + a["sigma"][:, None, None] ** 2 * np.eye(4)
    elif "tau" in a:
        cov = np.linalg.inv(np.diag(W.sum(axis=0)) - a["alpha"][:, None, None] * W)
        e = e / np.sqrt(a["tau"])[:, None]
    else:
        cov = a["cov"] if "cov" in a else a["scale"]
    return a["mu"] + (_root(cov) @ e[..., None])[..., 0]


def _root(cov: Array) -> Array:
    """Cholesky factors of covariances, of which some may have vanished or overflowed."""
    sd = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    corr = cov / (sd[:, :, None] * sd[:, None, :])
    sound = np.isfinite(corr).all(axis=(1, 2), keepdims=True)
    return sd[:, :, None] * np.linalg.cholesky(np.where(sound, corr, np.eye(cov.shape[1])))


def _series(name: str, a: Values, e: Array) -> Array:
    """Series step by step, each from those before it and its noise."""
    x = [e[:, :1]]
    sd = a.get("initial_vol", np.zeros((1, 1)))
    if name == "GARCH11":
        x = [sd * e[:, :1]]
    elif name == "AR of order 2":
        x.append(e[:, 1:2])
    for t in range(len(x), e.shape[1]):
        last, z = x[-1], e[:, t : t + 1]
        match name:
            case "RandomWalk":
                new = last + z
            case "GaussianRandomWalk":
                new = last + a["mu"] + a["sigma"] * z
            case "EulerMaruyama":
                new = last * (1 - DT * a["theta"]) + np.sqrt(DT) * a["g"] * z
            case "GARCH11":
                sd = np.sqrt(a["omega"] + a["alpha_1"] * last**2 + a["beta_1"] * sd**2)
                new = sd * z
            case _:
                back = np.concatenate(x[::-1], axis=1)[:, : a["rho"].shape[1]]
                new = np.sum(a["rho"] * back, axis=1, keepdims=True) + a["sigma"] * z
        x.append(new)
    n = max(len(each) for each in x)
    return np.concatenate([np.broadcast_to(each, (n, 1)) for each in x], axis=1)
