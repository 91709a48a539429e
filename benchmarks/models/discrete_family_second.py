"""Random models with discrete unknowns, second half: made without a look at the code for them.

Written as users write them: data augmentation, hidden Markov chains, masked data, wrong labels.
They are run, beside the first half, by discrete_family.py.
"""

import warnings
from collections.abc import Callable

import numpy as np
import pymc as pm

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
from benchmarks.truths.discrete_family_truth import Problem, exact

type Maker = Callable[[np.random.Generator], Problem]

SEED = 57
"""The first seed by which the first two models of each kind differ in form; nothing was run."""

SECOND: list[Maker] = [
    capture_recapture, hidden_counts, hidden_markov, markov_potential, imputed_covariate,
    label_noise, blood_groups, classes_of_lines, two_switches, dice, noisy_counts,
]  # fmt: skip
"""Kinds that the first half lacks."""

MAKERS = {make.__name__: make for make in SECOND}


def problem_of(name: str, number: int) -> Problem:
    """Make one of the problems of a kind."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pm.exceptions.ImputationWarning)
        return MAKERS[name](np.random.default_rng([number, len(name), SEED]))


def made(name: str, number: int) -> tuple[pm.Model, float]:
    """Make a model and its log evidence."""
    problem = problem_of(name, number)
    return problem.model, exact(problem)
