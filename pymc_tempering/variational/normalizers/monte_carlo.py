"""Monte Carlo, the last resort: a tempered normalizer from draws, refused where that is useless."""

from dataclasses import dataclass

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_tempering.core.weighting import (
    FINITE_VARIANCE_KHAT,
    log_mean,
    log_mean_error,
    pareto_khat,
)
from pymc_tempering.exceptions import NormalizerError
from pymc_tempering.model.exactly import ALONE, compile_alone
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.variational.normalizers.dispatch import WITHOUT_NORMALIZER, label_of
from pymc_tempering.variational.normalizers.tempered_normalizer import as_temperature, check_random


@dataclass(frozen=True)
class MonteCarloNormalizer:
    """A tempered normalizer from draws.

    Attributes
    ----------
    log_c, mcse : float
        Value and standard error (nats).
    khat : float
        Pareto tail index of the weights.
    """

    log_c: float
    mcse: float
    khat: float


def monte_carlo_normalizer(
    rv: Variable, T: float, *, draws: int = 10_000, random_seed: int | None = None
) -> MonteCarloNormalizer:
    """Average p(x)^(1 / T - 1) over draws from p, for one variable with fixed parameters.

    The tail is where a temperature above 1 puts mass and draws from p are rare: the weights of a
    d-dimensional normal have infinite variance from T = 2 on. Where their Pareto index says so the
    number is refused.

    Parameters
    ----------
    rv : TensorVariable
        A scalar or multivariate random variable without batch dimensions.
    T : float
        Temperature, at least 1.
    draws : int, default 10000
    random_seed : int, optional

    Returns
    -------
    MonteCarloNormalizer

    Raises
    ------
    NormalizerError
        Batch dimensions, or weights without finite variance.
    """
    rv = check_random(rv)
    as_temperature(T)
    if rv.type.ndim != rv.owner.op.ndim_supp:
        raise NormalizerError(f"{label_of(rv)} has batch dimensions: give one element of it.")
    log_p = pm.logp(rv, value := rv.type(), warn_rvs=False)
    density = compile_alone([value], log_p, mode=python_mode())
    with ALONE:
        x = pm.draw(rv, draws=draws, random_seed=random_seed, mode=python_mode())
    log_weight = np.array([float(density(one)) for one in x]) * (1.0 / T - 1.0)
    khat = pareto_khat(log_weight)
    if not khat < FINITE_VARIANCE_KHAT:
        raise NormalizerError(
            f"The tempered normalizer of {label_of(rv)} at T = {T:g} cannot be had from draws: the "
            f"Pareto index of the weights is {khat:.2f}, above {FINITE_VARIANCE_KHAT}, so they "
            f"have no finite variance. Use a lower temperature; of the fits, {WITHOUT_NORMALIZER}."
        )
    return MonteCarloNormalizer(log_mean(log_weight), log_mean_error(log_weight), khat)
