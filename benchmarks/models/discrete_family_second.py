"""Random models with discrete unknowns, second half: made without a look at the code for them.

Written as users write them: data augmentation, hidden Markov chains, masked data, wrong labels.
Run by itself, the file checks the truths: the joint density against PyMC's at random points, the
sums against lists of all values of the discrete unknowns in a few data, and the grids against
others. The models are then run, beside the first half, by discrete_family.py.
"""

import argparse
import itertools
import warnings
from collections.abc import Callable
from time import process_time

import numpy as np
import pymc as pm
import pytensor
from scipy.special import logsumexp

from benchmarks.models.discrete_family_chains import hidden_markov, markov_potential, two_switches
from benchmarks.models.discrete_family_labels import (
    blood_groups,
    classes_of_lines,
    imputed_covariate,
    label_noise,
)
from benchmarks.models.discrete_family_populations import (
    capture_recapture,
    dice,
    hidden_counts,
    noisy_counts,
)
from benchmarks.truths.discrete_family_truth import Problem, by_grid, exact

type Maker = Callable[[np.random.Generator, int | None], Problem]

SEED = 57
"""The first seed by which the first two models of each kind differ in form; nothing was run."""

SECOND: list[Maker] = [
    capture_recapture, hidden_counts, hidden_markov, markov_potential, imputed_covariate,
    label_noise, blood_groups, classes_of_lines, two_switches, dice, noisy_counts,
]  # fmt: skip
"""Kinds that the first half lacks."""

MAKERS = {make.__name__: make for make in SECOND}
FEW = {"hidden_markov": 6, "markov_potential": 6, "two_switches": 7, "capture_recapture": 5,
       "label_noise": 8, "classes_of_lines": 8, "dice": 3, "blood_groups": 3}  # fmt: skip
"""Data of the models whose discrete unknowns are listed; 2 of the other kinds."""


def problem_of(name: str, number: int, most: int | None = None) -> Problem:
    """Make one of the problems of a kind."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pm.exceptions.ImputationWarning)
        return MAKERS[name](np.random.default_rng([number, len(name), SEED]), most)


def made(name: str, number: int) -> tuple[pm.Model, float]:
    """Make a model and its log evidence."""
    problem = problem_of(name, number)
    return problem.model, exact(problem)


def prior_points(problem: Problem, number: int, seed: int) -> list[dict[str, np.ndarray]]:
    """Draw all unknowns from their prior laws, whatever the potentials."""
    free = problem.model.free_RVs
    columns = pm.draw(free, draws=number, random_seed=seed)
    return [
        {rv.name: np.asarray(column[i]) for rv, column in zip(free, columns, strict=True)}
        for i in range(number)
    ]


def against_pymc(problem: Problem, number: int = 60) -> tuple[float, int]:
    """Largest difference of the joint density from PyMC's, and at how many points it is finite."""
    model = problem.model
    log_p, start = model.compile_logp(jacobian=False), model.initial_point()
    if not np.isfinite(log_p(start)):
        raise ArithmeticError(f"{problem.form}: PyMC's initial point is impossible")
    moved = {}
    for rv in model.free_RVs:
        transform, value, change = model.rvs_to_transforms[rv], rv.type(), None
        if transform is not None:
            change = pytensor.function([value], transform.forward(value, *rv.owner.inputs))
        moved[rv.name] = model.rvs_to_values[rv].name, change
    faults = []
    for i, point in enumerate(prior_points(problem, number, 1)):
        if i % 2:
            # Half of the points have the discrete unknowns near the start, where data are possible.
            rng = np.random.default_rng(i)
            point |= {
                name: np.where(rng.random(start[name].shape) < 0.1, point[name], start[name])
                for name in problem.support
            }
        values = {
            name: point[rv] if change is None else change(point[rv])
            for rv, (name, change) in moved.items()
        }
        theirs = float(log_p(values))
        with np.errstate(divide="ignore"):
            ours = float(problem.log_joint(point))
        if np.isfinite(theirs) or np.isfinite(ours):
            faults.append(abs(theirs - ours))
    return float(np.max(faults)), len(faults)


def against_lists(problem: Problem, number: int = 3) -> float:
    """Largest difference of the sum from that of the joint density over all values."""
    faults = []
    for point in prior_points(problem, number, 2):
        sizes = {name: point[name].size for name in problem.support}
        ranges = [problem.support[name] for name in sizes for _ in range(sizes[name])]
        cuts = np.cumsum(list(sizes.values()))[:-1]
        terms = []
        for values in itertools.product(*ranges):
            parts = np.split(np.array(values), cuts)
            point |= {
                name: part.reshape(point[name].shape)
                for name, part in zip(sizes, parts, strict=True)
            }
            with np.errstate(divide="ignore"):
                terms.append(problem.log_joint(point))
        place = [np.asarray(value) for value in problem.at(point)]
        with np.errstate(divide="ignore"):
            found = float(np.squeeze(problem.log_sum(*place)))
        faults.append(abs(found - logsumexp(terms) - float(problem.log_volume(*place))))
    return float(np.max(faults))


def main() -> None:
    """Check the truths of the kinds that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=MAKERS, default=list(MAKERS))
    parser.add_argument("--models", type=int, default=4, help="of each kind")
    args = parser.parse_args()
    print("kind, model | what | log Z | other grid - it | joint - PyMC's (points) | sum - listed")
    for name, number in itertools.product(args.kinds, range(args.models)):
        began, problem = process_time(), problem_of(name, number)
        log_z = exact(problem)
        took = process_time() - began
        other = by_grid(problem, 1.2, 45.0) - log_z
        # Nothing is worth a compilation here.
        with pytensor.config.change_flags(mode="FAST_COMPILE"):
            joint, points = against_pymc(problem)
            listed = against_lists(problem_of(name, number, FEW.get(name, 2)))
        print(
            f"{name}, {number} | {problem.form} | {log_z:.5f} ({took:.0f} s) | {other:.1e}"
            f" | {joint:.1e} ({points}) | {listed:.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
