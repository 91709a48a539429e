"""Checks of the truths of fields_truth.py on tiny models, by PyMC's own densities.

The log evidence of a model of a few dimensions is found by importance sampling of its compiled log
density, Jacobians and all. Hyperparameters are drawn from a Student-t law that is fitted to them,
and the field from one around its mode given these, so that a scale near zero does no harm. The
truth must agree within 4 standard errors.
"""

import argparse
import warnings
from collections.abc import Callable
from time import process_time

import numpy as np
import pymc as pm
from fields_quadrature import refitted, weighed
from fields_truth import both_halves, truth
from scipy.special import gammaln, logsumexp

FIELDS = {
    "x", "h", "f", "z", "u0", "u1", "v", "slope", "jumps", "season", "z_item", "theta", "coef",
}  # fmt: skip
"""Names of fields; what else is unknown is a hyperparameter."""
TINY = {"trend_and_season": 23, "crossed_normal": 8, "crossed_bernoulli": 10}
"""Dimensions of the tiny models, where they are not 6."""
STARTS = {"student_walk": 14}
"""Places where the search for modes of the field begins, where that may have more than one."""
ROUNDS = 6
SPREAD = 6.0
"""Degrees of freedom of the laws around the modes."""

type Vector = np.ndarray


def split(model: pm.Model) -> tuple[Callable[[Vector, Vector], tuple], int, int]:
    """Log density of a model at hyperparameters and a field, with the field's derivatives.

    Also how many hyperparameters and values of the field there are.
    """
    start = model.initial_point()
    values = {rv.name: model.rvs_to_values[rv].name for rv in model.free_RVs}
    fields = [rv for rv in model.free_RVs if rv.name in FIELDS]
    others = [rv for rv in model.free_RVs if rv.name not in FIELDS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log_p, slope = model.compile_logp(), model.compile_dlogp(vars=fields)
        bend = model.compile_d2logp(vars=fields, negate_output=False)

    def parts(rvs: list, x: Vector) -> dict[str, Vector]:
        if not rvs:
            return {}
        shapes = [np.shape(start[values[rv.name]]) for rv in rvs]
        cuts = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
        return {
            values[rv.name]: piece.reshape(shape)
            for rv, piece, shape in zip(rvs, np.split(x, cuts), shapes, strict=True)
        }

    def at(hyper: Vector, field: Vector, derivatives: bool = True) -> tuple:
        point = parts(others, hyper) | parts(fields, field)
        with np.errstate(all="ignore"):
            value = float(log_p(point))
            value = value if np.isfinite(value) else -1e300
            return (value, slope(point), bend(point)) if derivatives else (value,)

    sizes = [sum(int(np.size(start[values[rv.name]])) for rv in rvs) for rvs in (others, fields)]
    return at, *sizes


def around_mode(at: Callable, hyper: Vector, field: Vector) -> tuple[Vector, Vector]:
    """Place near a mode of the field given hyperparameters, and a root of a covariance there."""
    size = field.size
    for _ in range(25):
        _, slope, bend = at(hyper, field)
        if not (np.all(np.isfinite(slope)) and np.all(np.isfinite(bend))):
            return np.zeros(size), np.eye(size)
        values, vectors = np.linalg.eigh(-(bend + bend.T) / 2)
        root = vectors / np.sqrt(np.maximum(np.abs(values), 1e-6))
        move = root @ (root.T @ slope)
        move *= min(1.0, 3 / (1e-12 + np.abs(move).max()))
        field = field + move
        if np.abs(root.T @ slope).max() < 0.02:
            break
    return field, root


def log_student(x: Vector, mean: Vector, root: Vector) -> Vector:
    """Log density of the Student-t law with a root of its scale, at rows."""
    n, z = mean.size, np.linalg.solve(root, (x - mean).T)
    log_c = gammaln((SPREAD + n) / 2) - gammaln(SPREAD / 2) - n / 2 * np.log(SPREAD * np.pi)
    tail = (SPREAD + n) / 2 * np.log1p((z**2).sum(axis=0) / SPREAD)
    return log_c - tail - np.linalg.slogdet(root)[1]


def brute(
    model: pm.Model, draws: int, rng: np.random.Generator, starts: int = 1
) -> tuple[float, float]:
    """Log evidence of a small model and its standard error."""
    at, hypers, size = split(model)
    begins = np.vstack([np.zeros(size), rng.standard_normal((starts - 1, size))])

    def one(hyper: Vector) -> float:
        laws: list[tuple[Vector, Vector]] = []
        for begin in begins:
            mode, root = around_mode(at, hyper, begin)
            if all(np.abs(np.linalg.solve(r, mode - m)).max() > 0.5 for m, r in laws):
                laws.append((mode, root))
        x = []
        for k in rng.integers(len(laws), size=4 * len(laws)):
            mean, root = laws[k]
            stretch = np.sqrt(SPREAD / rng.chisquare(SPREAD))
            x.append(mean + stretch * (root @ rng.standard_normal(size)))
        log_q = logsumexp([log_student(np.array(x), *law) for law in laws], axis=0)
        log_w = np.array([at(hyper, row, False)[0] for row in x]) - log_q + np.log(len(laws))
        return float(logsumexp(log_w) - np.log(log_w.size))

    if hypers == 0:
        found = np.array([one(np.empty(0)) for _ in range(draws // 10)])
    else:
        mean, root = np.zeros(hypers), np.eye(hypers)
        for _ in range(ROUNDS):
            x, log_w = weighed(one, mean, root, draws // 8, rng, 4.0)
            mean, root = refitted(x, log_w)
        _, found = weighed(one, mean, 1.1 * root, draws, rng, 4.0)
    log_z = logsumexp(found) - np.log(found.size)
    return float(log_z), float(np.exp(found - log_z).std() / np.sqrt(found.size))


def main() -> None:
    """Check the kinds that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--draws", type=int, default=6000)
    args = parser.parse_args()
    models, laws = both_halves()
    for name in args.kinds or list(laws):
        for seed in args.seeds:
            began, dim = process_time(), TINY.get(name, 6)
            found = truth(name, dim, seed)
            assert found is not None
            rng, model = np.random.default_rng(seed), models[name](dim, seed)
            other, error = brute(model, args.draws, rng, STARTS.get(name, 1))
            z = (other - found[0]) / np.hypot(error, found[1])
            took = process_time() - began
            line = f"{name} {seed}: {found[0]:.4f} ± {found[1]:.0e}, {other:.4f} ± {error:.4f}"
            print(f"{line}, z {z:+.1f}, {took:.0f} s", flush=True)


if __name__ == "__main__":
    main()
