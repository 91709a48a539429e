"""Checks of the truths of fields_truth.py on tiny models, by PyMC's own densities.

The log evidence of a model of a few dimensions is found by importance sampling of its compiled log
density, Jacobians and all, and must agree with the truth within 4 standard errors; one of twenty
such checks fails by chance once in 800 times.
"""

import argparse
from collections.abc import Callable
from time import process_time

import numpy as np
import pymc as pm
from fields_quadrature import by_importance
from fields_truth import both_halves, truth

TINY = 6
"""Dimensions of a tiny model, of a kind without a number of its own."""
START_SD = 0.7


def flat(model: pm.Model) -> tuple[Callable[[np.ndarray], float], np.ndarray]:
    """Log density of a model at a vector, and its initial point."""
    start = model.initial_point()
    names = [value.name for value in model.value_vars]
    shapes = [np.shape(start[name]) for name in names]
    cuts = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    compiled = model.compile_logp()

    def log_f(x: np.ndarray) -> float:
        parts = np.split(x, cuts)
        point = {n: p.reshape(s) for n, p, s in zip(names, parts, shapes, strict=True)}
        with np.errstate(all="ignore"):
            found = float(compiled(point))
        return found if np.isfinite(found) else -1e300

    return log_f, np.concatenate([np.ravel(start[name]) for name in names])


def check(name: str, dim: int, seed: int, draws: int) -> tuple[float, float, float]:
    """Truth, its difference from importance sampling, and the standard error of that."""
    model = both_halves()[0][name](dim, seed)
    log_f, start = flat(model)
    found = truth(name, dim, seed)
    assert found is not None
    rng = np.random.default_rng(seed)
    rounds = [draws // 5] * 6
    root = START_SD * np.eye(start.size)
    other, error = by_importance(log_f, start, root, rng, draws, rounds, freedom=5.0)
    return found[0], other - found[0], float(np.hypot(error, found[1]))


def main() -> None:
    """Check the kinds that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+")
    parser.add_argument("--dim", type=int)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--draws", type=int, default=50_000)
    args = parser.parse_args()
    laws = both_halves()[1]
    for name in args.kinds or list(laws):
        for seed in args.seeds:
            began = process_time()
            log_z, off, error = check(name, args.dim or TINY, seed, args.draws)
            took = process_time() - began
            z = off / error
            print(
                f"{name} {seed}: {log_z:.4f}, {off:+.4f} ± {error:.4f}, z {z:+.1f}, {took:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
