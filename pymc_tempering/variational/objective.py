"""The tempered objective as an operator of ``pm.variational``, and its compiled step.

The likelihood term alone is tempered, the prior and the entropy of q never (Section 2.2 of Mandt et
al. 2016).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pymc.pytensorf import (
    collect_default_updates,
    reseed_rngs,
    resolve_backend_compile_kwargs,
)
from pymc.variational.opvi import Approximation, ObjectiveFunction, Operator
from pytensor.compile.executor import Function
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pymc_tempering.model.exactly import compile_alone, compile_exactly
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.python_mode import python_mode


@dataclass(frozen=True)
class Likelihood:
    """The tempered likelihood term of an objective, and how its temperatures are set.

    Attributes
    ----------
    tempered : Variable
        E_q of the tempered log-likelihood, its normalizers subtracted where they depend on the
        parameters (nats).
    energies : Variable or None
        What the update of q(y) needs.
    weights : SharedVariable
        Holds an inverse temperature, or weights of temperatures.
    updates : dict
        Shared variables that the compiled step updates itself.
    log_q : dict of SharedVariable
        log q(y_i) of each datum, by observed variable, where the step updates it.
    mean_q : SharedVariable, optional
        q(T) averaged over data, shape (M,), likewise.
    """

    tempered: Variable
    energies: Variable | None
    weights: SharedVariable
    updates: dict[SharedVariable, Variable] = field(default_factory=dict)
    log_q: dict[str, SharedVariable] = field(default_factory=dict)
    mean_q: SharedVariable | None = None


@dataclass(frozen=True, eq=False)
class FitStep:
    """One compiled iteration of a fit.

    Attributes
    ----------
    function : callable
        () to loss, untempered ELBO (nats), and energies if any.
    moving : tuple of SharedVariable
        What it changes: parameters, the optimizer's sums, temperatures, generators.
    generators : tuple of SharedVariable
        Those of them that draw, in the order in which they are seeded.
    weights, log_q, mean_q
        Of its :class:`Likelihood`.
    """

    function: Function
    moving: tuple[SharedVariable, ...]
    generators: tuple[SharedVariable, ...]
    weights: SharedVariable
    log_q: dict[str, SharedVariable]
    mean_q: SharedVariable | None

    def __call__(self) -> list[np.ndarray]:
        """Do it."""
        found: list[np.ndarray] = self.function()
        return found

    def set_weights(self, weights: Any) -> None:
        """Set an inverse temperature, or weights of temperatures."""
        self.weights.set_value(np.asarray(weights, dtype=self.weights.dtype), borrow=True)


class TemperedObjective(ObjectiveFunction):
    """PyMC's objective, with further outputs at the same draws as the loss."""

    extra_outputs: Sequence[Variable] = ()
    updated: Mapping[SharedVariable, Variable] = MappingProxyType({})

    def __call__(self, nmc: int | None, **kwargs: Any) -> Variable:
        """Put the same draws from q into the loss and into ``extra_outputs``."""
        op, approx = self.op, self.op.approx
        likelihood = op.likelihood
        elbo = approx.varlogp + approx.datalogp - approx.logq
        updated = list(likelihood.updates.values())
        energies = [] if likelihood.energies is None else [likelihood.energies]
        nodes = [op.apply(self.tf), elbo, *energies, *updated]
        drawn = approx.set_size_and_deterministic(nodes, nmc, 0, kwargs.get("more_replacements"))
        n = 2 + len(energies)
        self.extra_outputs = drawn[1:n]
        self.updated = dict(zip(likelihood.updates, drawn[n:], strict=True))
        return drawn[0]


class TemperedKL(Operator):
    """log q - log prior - tempered log-likelihood, normalized as PyMC's ``KL`` is.

    At T = 1 this is ``pm.operators.KL``. Equations (4) and (5) of Mandt et al. (2016), without the
    terms that depend on q(y) alone.
    """

    objective_class = TemperedObjective

    def __init__(self, approx: Approximation, likelihood: Likelihood) -> None:
        super().__init__(approx)
        self.likelihood = likelihood

    def apply(self, f: Any) -> Variable:
        """Symbolic loss, in PyMC's scaling: divided by total size over minibatch size."""
        scale = self.approx.symbolic_normalizing_constant
        return -self.likelihood.tempered / scale + (self.logq_norm - self.varlogp_norm)


def compile_step(
    approx: Approximation,
    likelihood: Likelihood,
    *,
    obj_n_mc: int,
    obj_optimizer: Callable[..., Any],
    total_grad_norm_constraint: float | None = None,
    backend: str | None = None,
    compile_kwargs: dict[str, Any] | None = None,
) -> FitStep:
    """Compile one function that steps: () -> [loss, untempered ELBO (nats), energies if any].

    Temperatures are shared variables, so that no stage of a fit compiles again.
    """
    objective = TemperedKL(approx, likelihood)()
    updates = objective.updates(
        obj_n_mc=obj_n_mc,
        obj_optimizer=obj_optimizer,
        total_grad_norm_constraint=total_grad_norm_constraint,
    )
    loss = updates.loss
    updates.update(objective.updated)
    options = resolve_backend_compile_kwargs(backend, compile_kwargs)
    with approx.model:  # so that PyMC honors model.check_bounds
        step = compile_exactly([], [loss, *objective.extra_outputs], updates=updates, **options)
    # PyMC's own step returns the loss alone. Seed the generators in the order in which it finds
    # them, so that the same seed gives the same draws as pm.fit.
    generators = list(collect_default_updates([loss]))
    seed_generators(approx, generators)
    return FitStep(
        function=step,
        moving=(*updates, *generators),
        generators=tuple(generators),
        weights=likelihood.weights,
        log_q=likelihood.log_q,
        mean_q=likelihood.mean_q,
    )


def seed_generators(approx: Approximation, generators: Sequence[SharedVariable]) -> None:
    """Seed the generators of a step as ``pm.fit`` does."""
    reseed_rngs(generators, approx.rng.randint(2**30, dtype=np.int64))


def global_likelihood(approx: Approximation) -> Likelihood:
    """E[1/T] times the log-likelihood: annealed VI, and VT with normalizers C(T).

    The energy is the log-likelihood itself, at full scale (nats).
    """
    shared = pytensor.shared(np.asarray(1.0, dtype=pytensor.config.floatX), "inverse_temperature")
    return Likelihood(shared * approx.datalogp, approx.datalogp, shared)


def batches_per_pass(model: pm.Model) -> float:
    """Total size over minibatch size, the largest of all terms; 1 without minibatches."""

    def find() -> float:
        scale = pm.MeanField(model=model).symbolic_normalizing_constant
        return float(compile_alone([], scale, mode=python_mode())())

    return remembered(model, "batches per pass", find)


FAMILIES: dict[str, Callable[..., Approximation]] = {
    "meanfield": pm.MeanField,
    "fullrank": pm.FullRank,
}
"""Variational families by name."""
