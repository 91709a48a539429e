"""What is noticed about a model at the end of a run: whether it is the one that was written."""

from collections.abc import Callable

import numpy as np

from pymc_tempering.arguments import listed
from pymc_tempering.core.findings import Finding
from pymc_tempering.exceptions import LikelihoodError
from pymc_tempering.model.car import log_density_of
from pymc_tempering.model.given_up import given_up
from pymc_tempering.model.layout import model_layout
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.origin import Origin, origin_of
from pymc_tempering.model.path import Path
from pymc_tempering.model.python_mode import compile_alone
from pymc_tempering.references.prior import evaluate_draws

N_CHECKED, N_WHITE = 100, 20
"""States at which it is checked what a model was rewritten to; few where each takes a field."""

LARGEST_OFF, ROUNDED = 1e-3, 1e-8
"""Largest difference of log densities (nats), and a share of their size."""


def findings_at(path: Path, xs: np.ndarray) -> tuple[Finding, ...]:
    """Return what was noticed about the model that chains run on, at states of its target.

    Parameters
    ----------
    path : Path
    xs : array, shape (n, d)
        Unconstrained.
    """
    model, origin = path.model, origin_of(path.model)
    xs = xs[np.isfinite(xs).all(axis=1)]
    if origin is None or not len(xs):
        return given_up(model)
    n = N_WHITE if origin.n_white else N_CHECKED
    xs = xs[np.unique(np.linspace(0, len(xs) - 1, n).astype(int))]
    try:
        return (*given_up(model), *origin.check(xs), *_as_written(path, origin, xs))
    except LikelihoodError as error:  # a call hangs
        names = listed(rv.name for rv in origin.model.free_RVs)
        return (*given_up(model), Finding("not_compared", names, str(error), "unchecked"))


def _as_written(path: Path, origin: Origin, xs: np.ndarray) -> list[Finding]:
    """Compare the density that chains run on with that of the model as the user wrote it.

    The joint density of all that the user named is that of what is left, times the probability of
    what was summed out given that, or the volume that a change of variables has. That of `pm.CAR`
    and `pm.ICAR` is as :mod:`pymc_tempering.model.car` writes it.
    """
    here = np.sum(evaluate_draws(path, xs), axis=0)
    density = remembered(origin.model, "density as written", lambda: _density_of(origin))
    layout = model_layout(origin.model)
    columns = layout.unravel(origin.whole(xs))
    with np.errstate(all="ignore"):
        there = np.array([density(*row) for row in zip(*columns.values(), strict=True)]).ravel()
        off = np.abs(there - here - origin.log_change(xs)) - ROUNDED * np.abs(there)
    used = np.isfinite(here)
    worst = float(np.max(np.nan_to_num(off[used], nan=np.inf), initial=0.0))
    if worst <= LARGEST_OFF:
        return []
    names = [rv.name for rv in origin.model.free_RVs if rv.name not in origin.leaves]
    return [Finding("not_as_written", listed(names), f"{worst:.2g}", "disagreed")]


def _density_of(origin: Origin) -> Callable[..., np.ndarray]:
    """Compile the log density of the whole model, of a value for each of its unknowns."""
    model = origin.model
    terms = [v for v in [*model.basic_RVs, *model.potentials] if v.name not in origin.leaves]
    return compile_alone(model.value_vars, log_density_of(model, terms))
