"""A model's unnormalized posterior, which a bridge leads to, and whether draws are of it."""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering.arguments import listed
from pymc_tempering.exceptions import DataMismatchError, ModelError
from pymc_tempering.model.check import check_proper
from pymc_tempering.model.compiled import NO_MIXTURE, Mixing
from pymc_tempering.model.layout import is_binary, is_discrete
from pymc_tempering.model.ordered_priors import unknown_orders
from pymc_tempering.model.origin import check_ends, origin_of, with_longer_sums
from pymc_tempering.model.path import Path, compile_path
from pymc_tempering.model.same_model import stored_density_warnings
from pymc_tempering.model.unconstrain import unconstrained_draws
from pymc_tempering.references.prior import evaluate_draws, evaluate_terms
from pymc_tempering.summed.sum_out import without_sums

N_FIRST = 100
"""Posterior draws of each chain at which the model's density is checked."""


@dataclass(frozen=True)
class Target:
    """A model's log prior plus log likelihood, without what is summed out, and with circles cut.

    Attributes
    ----------
    path : Path
    cores : int
        Number of threads that evaluate it.
    """

    path: Path
    cores: int

    @property
    def binary(self) -> np.ndarray:
        """Which raveled elements are binary, shape (d,); the others are continuous."""
        return self.path.layout.whole_numbers

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """Log of prior times likelihood, shape (n,), at states of shape (n, d); may be NaN."""
        reference, ratio = self.parts(x, NO_MIXTURE)
        with np.errstate(invalid="ignore"):
            return np.where(reference == -np.inf, -np.inf, reference + ratio)

    def gradients(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log density, shape (n,), and its gradient, shape (n, d), zero for discrete variables."""
        values, grads = evaluate_terms(self.path, x)
        return values.sum(axis=1), grads.sum(axis=1)

    def parts(self, x: np.ndarray, mixture: Mixing) -> tuple[np.ndarray, np.ndarray]:
        """Log reference and log ratio at states, shape (n, d)."""
        return evaluate_draws(self.path, x, mixture, min(self.cores, len(x) // 100))


def find_target(
    idata: xr.DataTree, model: pm.Model, cores: int | None
) -> tuple[Target, np.ndarray]:
    """Compile a model, and return its target with its posterior draws, shape (chain, draw, d).

    Raises
    ------
    ModelError, ImproperPriorError, DiscreteVariableError
        The model has no evidence, or cannot be evaluated.
    DataMismatchError, TemperingError
        The posterior is not one of this model; see :func:`unconstrained_draws`.
    """
    check_proper(model.free_RVs)
    if unknown := unknown_orders(model):
        raise ModelError(
            f"The prior of {listed(unknown)} is ordered, and its probability of that "
            "order, which normalizes it, takes a run of its own: pymc_tempering.sample makes one."
        )
    return with_longer_sums(lambda: _summed_target(idata, without_sums(model), cores))


def _summed_target(
    idata: xr.DataTree, model: pm.Model, cores: int | None
) -> tuple[Target, np.ndarray]:
    """Compile a model whose sums may be too short for the draws."""
    discrete = [rv for rv in model.free_RVs if is_discrete(rv)]
    if discrete and all(map(is_binary, discrete)):
        others = [model.rvs_to_values[rv].name for rv in model.free_RVs if rv not in discrete]
        path = compile_path(model, gradient=others, values=True)
    else:  # others than binary ones are refused
        path = compile_path(model)
    draws = unconstrained_draws(idata, model, path.layout)
    origin = origin_of(model)
    if origin is not None:
        check_ends(origin.check(draws.reshape(-1, path.dim)[:N_FIRST]))
    return Target(path, cores or os.cpu_count() or 1), draws


def check_log_density(log_density: np.ndarray, path: Path, draws: np.ndarray) -> None:
    """Raise an error if the model's density, shape (n,), is not finite at draws, shape (n, d).

    Raises
    ------
    DataMismatchError
    """
    bad = ~np.isfinite(log_density)
    if bad.any():
        where = path.layout.unravel(draws[int(bad.argmax())])
        raise DataMismatchError(
            f"the model's density is zero or not a number at {bad.mean():.2%} of the posterior "
            f"draws (unconstrained, the first: {where}): pass the model that the posterior was "
            "drawn from, with the data it was drawn with."
        )


def check_states(idata: xr.DataTree, target: Target, states: np.ndarray) -> list[str]:
    """Check at some draws that they are of this model; warn if the sampler stored another density.

    Raises
    ------
    DataMismatchError
    """
    some = states[:, :N_FIRST]
    flat = some.reshape(-1, states.shape[2])
    log_density = target.log_density(flat)
    check_log_density(log_density, target.path, flat)
    return stored_density_warnings(idata, log_density.reshape(some.shape[:2]))


def without_lost(log_ratio: np.ndarray) -> tuple[np.ndarray, float]:
    """Give states with a ratio of NaN or +inf zero density, and return their share as well."""
    lost = np.isnan(log_ratio) | (log_ratio == np.inf)
    return np.where(lost, -np.inf, log_ratio), float(lost.mean())


type Ratio = tuple[np.ndarray, float]


class Normalized(ABC):
    """A normalized density that can be drawn from, and is known at every state.

    Attributes
    ----------
    evaluations : tuple of int
        Of the model for a state, and for a state with known log target.
    """

    evaluations = (1, 0)

    @property
    def spent(self) -> int:
        """Further evaluations, which the proposal itself took."""
        return 0

    @abstractmethod
    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw independent states, shape (n, d)."""

    @abstractmethod
    def log_density(self, x: np.ndarray) -> np.ndarray:
        """Log density, shape (n,), at states of shape (n, d)."""

    def log_ratio(
        self, target: Target, x: np.ndarray, log_target: np.ndarray | None = None
    ) -> Ratio:
        """Log of target over proposal, shape (n,), at states of shape (n, d) (nats).

        Also the share of lost states: those where the target is NaN, taken as zero density.
        """
        known, lost = without_lost(target.log_density(x) if log_target is None else log_target)
        return known - self.log_density(x), lost
