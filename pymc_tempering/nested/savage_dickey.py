"""`savage_dickey`: the Bayes factor of a model over a point null, from draws of the model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
import xarray as xr

from pymc_tempering.arguments import (
    RandomSeed,
    called_as,
    check_choice,
    check_whole,
    listed,
    rng_of,
)
from pymc_tempering.bridge.bridge_sampling import mixing_warnings
from pymc_tempering.bridge.target import Target, check_log_density, check_states, find_target
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.weighting import (
    FINITE_VARIANCE_KHAT,
    MAX_KHAT,
    MIN_ESS,
    ROUGH_ESS,
    effective_size,
    kish,
    log_mean,
    pareto_khat,
)
from pymc_tempering.evidence.factor import SCALES, BayesFactor
from pymc_tempering.evidence.result import plus_minus
from pymc_tempering.exceptions import NullError, warn_user
from pymc_tempering.model.bambi import pymc_draws
from pymc_tempering.model.car import is_car
from pymc_tempering.model.check import find_model
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import ModelLike
from pymc_tempering.model.same_model import untold_model
from pymc_tempering.nested.conditional_density import conditional_density
from pymc_tempering.nested.null import NullPoint, find_null, given_prior, implied_prior
from pymc_tempering.summed.sum_out import without_sums

SIDES = ("the model", "the null")

MAX_RANK_Z = 5.0
"""Errors by which the ranks of the draws in their conditional density may be off."""

MIN_DRAWS = 20


@dataclass(frozen=True, repr=False)
class SavageDickey(BayesFactor):
    """Bayes factor of a model over a point null inside it, from draws of the model alone.

    It is a :class:`BayesFactor` whose first model is the full one and whose second is the null, so
    ``log_bf`` is log BF10 and ``reverse()`` gives BF01.

    Attributes
    ----------
    log_bf, mcse : float
        log BF10 and its Monte Carlo standard error (nats).
    interval : tuple of float
        95 % interval of ``log_bf`` under Monte Carlo error (nats).
    words : str
        Category of the factor, and whether it favors the model or the null.
    warnings : tuple of str
        What is to be said about the draws.
    scale : {"kass_raftery", "jeffreys"}, default "kass_raftery"
        Whose words they are.
    sides : tuple of str, default ("the first model", "the second model")
        Here "the model" and "the null".
    null : dict of str to ndarray
        The values that were held fixed, on the constrained space.
    log_posterior, log_posterior_mcse : float
        Log of the posterior density at the null, and its error (nats, unconstrained space).
    log_prior : float
        Log of the prior density at the null (nats, unconstrained space). Where it depends on other
        parameters, it is a mean over 2,000 prior draws, for information: ``log_bf`` does not use
        it. NaN where there are no such draws, and beside a null model with another prior.
    log_correction : float
        Log of the factor of Verdinelli & Wasserman (1995) on BF01 (nats), from ``log_prior``: 0
        where the null's prior of the other parameters is that of the model given the null; NaN
        where ``log_prior`` is. ``log_bf`` includes it in any case.
    n_terms : int
        Posterior draws whose terms were averaged.
    ess : float
        Effective number of independent equal terms, of the ``n_terms``.
    khat : float
        Pareto shape of the largest terms.
    seconds : float
        Time that the estimate took, compilation included.
    """

    null: dict[str, np.ndarray] = field(default_factory=dict)
    log_posterior: float = float("nan")
    log_posterior_mcse: float = float("nan")
    log_prior: float = float("nan")
    log_correction: float = 0.0
    n_terms: int = 0
    ess: float = float("nan")
    khat: float = float("nan")
    seconds: float = float("nan")

    def _rows(self) -> dict[str, str]:
        held = ", ".join(
            f"{name} = {np.array2string(np.asarray(value), threshold=8)}"
            for name, value in self.null.items()
        )
        posterior = plus_minus(self.log_posterior, self.log_posterior_mcse)
        return {
            "null": held,
            **super()._rows(),
            "log posterior density at the null": f"{posterior} nats",
            "log prior density at the null": f"{self.log_prior:.4f} nats",
            "correction to log BF01": f"{self.log_correction:.4f} nats",
            "terms": f"{self.n_terms}, worth {self.ess:.0f}; k-hat {self.khat:.2f}",
        }


@dataclass(frozen=True)
class Average:
    """Mean of positive terms over chains: its log, error (nats), effective number and k-hat."""

    log_mean: float
    mcse: float
    worth: float
    khat: float


def average_terms(log_terms: FloatArray) -> Average:
    """Average terms, shape (chain, draw), with an error that knows their autocorrelation.

    The relative variance of the mean is (n / K - 1) / E for n terms, with K Kish's effective
    number and E that of the autocorrelated terms; K E / n is what they are worth.
    """
    mean = log_mean(log_terms.ravel())
    if mean == -np.inf:
        return Average(mean, np.inf, 0.0, np.inf)
    terms = np.exp(log_terms - log_terms.max())
    n, even = terms.size, float(kish(terms.ravel()))
    size = float(n) if np.ptp(terms) <= 1e-9 * terms.max() else effective_size(terms)
    mcse = float(np.sqrt(max(n / even - 1.0, 0.0) / size))
    return Average(mean, mcse, even * size / n, pareto_khat(log_terms.ravel()))


def check_terms(terms: Average, n: int, available: int, outside: str) -> list[str]:
    """Refuse a null that the draws do not reach; warn where its error is rough.

    `n` of the available draws were used; `outside` says if the null is beyond their range.

    Raises
    ------
    NullError
    """
    least, most = (ROUGH_ESS, FINITE_VARIANCE_KHAT) if outside else (MIN_ESS, MAX_KHAT)
    if terms.worth < least or terms.khat > most:
        raise NullError(
            f"The null is out of reach of the draws{outside}: the {n} terms of the density ratio "
            f"are worth {terms.worth:.1f} independent ones (at least {least:.0f} are needed), and "
            f"their k-hat is {terms.khat:.2f} (at most {most}). {_more(n, available)}, or compare "
            "the evidences of the model and of the null with bayes_factor."
        )
    if terms.worth < ROUGH_ESS or terms.khat > FINITE_VARIANCE_KHAT:
        return [
            f"The terms of the density ratio are worth only {terms.worth:.0f} independent ones "
            f"(k-hat {terms.khat:.2f}), so the mcse is rough. {_more(n, available)}."
        ]
    return []


def rank_alarms(rank: FloatArray, label: str) -> list[str]:
    """Say if draws do not lie as their own conditional density says: their ranks are uniform."""
    for name, value in (("on one side", rank), ("at the ends", np.abs(2.0 * rank - 1.0))):
        error = value.std() / np.sqrt(effective_size(value))
        z = (value.mean() - 0.5) / error if error > 0.0 else np.inf
        if not abs(z) < MAX_RANK_Z:
            return [
                f"The draws of {label} do not follow the model's conditional density (too many or "
                f"too few {name}, {abs(z):.1f} errors), so the mcse is infinite: pass the model "
                "that they were drawn from, or sample longer if the chains have not mixed."
            ]
    return []


def _more(n: int, available: int) -> str:
    more = f"use all {available} draws (draws={available})"
    return f"If it is near, {more}" if n < available else "If it is near, sample more draws"


@called_as("savage_dickey(idata, model, null={'delta': 0.0})")
def savage_dickey(
    idata: xr.DataTree,
    model: ModelLike | None = None,
    *,
    null: Mapping[str, Any],
    null_model: ModelLike | None = None,
    draws: int = 2000,
    scale: str = "kass_raftery",
    cores: int | None = None,
    random_seed: RandomSeed = None,
    progressbar: bool = True,
    quiet: bool = False,
) -> SavageDickey:
    """Estimate the Bayes factor of a model over a point null inside it.

    The null holds parameters delta fixed at delta0. With p1 the model's prior and p0 the null's
    prior of the other parameters psi (Dickey 1971; Verdinelli & Wasserman 1995),

        BF01 = p(delta0 | y) / p1(delta0) * E[p0(psi) / p1(psi | delta0)],

    the mean over the posterior of psi at delta0. All of it is one mean over posterior draws,

        BF01 = mean of p(delta0 | psi, y) p0(psi) / p1(delta0, psi),

    whose conditional density is normalized by quadrature along the model's log density in the
    unconstrained space; no kernel estimate enters. Several parameters are held one after the
    other: the first given all others, the second given the first at its null and all others, ...

    Parameters
    ----------
    idata : DataTree
        Posterior draws of the full model, by any sampler.
    model : pymc.Model or CompiledModel, optional
        The full model; the one on the context stack by default.
    null : mapping of str to array_like
        Null values on the constrained space, by the name of a free variable or of an element of
        one: ``{"delta": 0.0}``, ``{"b[2]": 0.0}``, ``{"b[age]": 0.0}``.
    null_model : pymc.Model or CompiledModel, optional
        The null as a model, whose free variables are those of the full model without those of
        ``null``. By default the null is the model with them held fixed and all other priors as
        written, as ``pm.do(model, null)`` makes it.
    draws : int, default 2000
        Posterior draws, evenly spaced, at which the conditional density is normalized. Each takes
        about 100 evaluations of the model for each parameter of the null.
    scale : {"kass_raftery", "jeffreys"}, default "kass_raftery"
        Whose words the result has.
    cores : int, optional
        Threads that evaluate the model; all cores by default.
    random_seed : int or numpy.random.Generator, optional
        Seed of prior draws, needed where the prior of a nulled parameter depends on others.
    progressbar : bool, default True
        Whether to show a line of progress.
    quiet : bool, default False
        No progress. Warnings are given all the same.

    Returns
    -------
    SavageDickey
        A ``BayesFactor`` of the model over the null, log BF10. ``mcse`` comes from the
        scatter of the terms over their effective number, autocorrelation included. It is infinite
        where the draws do not follow the model's conditional density, where that cannot be
        normalized, and where the sampler stored another log density than the model's.

    Raises
    ------
    NullError
        The null is not inside the model (unknown name, outside of the support); or the draws
        cannot reach it: its terms are worth fewer than 10 independent ones or have a k-hat above
        0.7, or fewer than 50 and 0.5 where it lies outside of the range of the draws; or the
        null model is not the model at the null.
    DataMismatchError
        The posterior and the model have different variables, shapes or observed data.
    ModelError, ImproperPriorError, DiscreteVariableError
        The model has no evidence, or cannot be evaluated.
    ValueError
        ``draws`` is below 20, or ``scale`` is not known.

    Warns
    -----
    TemperingWarning
        Once for each entry of ``SavageDickey.warnings``.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> import xarray as xr
    >>> with pm.Model() as model:
    ...     delta, mu = pm.Normal("delta"), pm.Normal("mu")
    ...     y = pm.Normal("y", mu + delta, observed=1.0)
    >>> rng = np.random.default_rng(1)  # exact draws: mean 1/3, variance 2/3, covariance -1/3
    >>> x = rng.multivariate_normal([1 / 3, 1 / 3], [[2 / 3, -1 / 3], [-1 / 3, 2 / 3]], (4, 500))
    >>> posterior = {name: (("chain", "draw"), x[..., i]) for i, name in enumerate(["delta", "mu"])}
    >>> lp = -((x**2).sum(axis=-1) + (1 - x.sum(axis=-1)) ** 2) / 2
    >>> groups = {"posterior": posterior, "sample_stats": {"lp": (("chain", "draw"), lp)}}
    >>> idata = xr.DataTree.from_dict({name: xr.Dataset(group) for name, group in groups.items()})
    >>> found = pmt.savage_dickey(idata, model, null={"delta": 0.0})
    >>> exact = 0.5 * np.log(2 / 3) + 1 / 12  # y ~ N(0, 3) against N(0, 2)
    >>> bool(abs(found.log_bf - exact) < 4 * found.mcse < 0.1)
    True
    """
    check_choice("scale", scale, SCALES)
    check_whole(MIN_DRAWS, draws=draws)
    check_whole(1, cores=cores)
    idata, full = pymc_draws(idata, model), find_model(model)
    started = perf_counter()
    with compiling_status(progressbar and not quiet) as report:
        report("Savage-Dickey: the model at the draws")
        target, states = find_target(idata, full, cores)
        point = find_null(full, target.path.layout, null)
        _check_coordinates(target, point)
        alarms = check_states(idata, target, states)
        used = states[:, _spaced(states, draws)]
        flat = used.reshape(-1, states.shape[2])
        check_log_density(target.log_density(flat), target.path, flat)
        report("Savage-Dickey: conditional densities at the null")
        log_density, odd = _density_at_null(target, point, flat, used.shape[:2])
        alarms += odd
        held = point.hold(flat)
        report("Savage-Dickey: the prior of the null")
        if null_model is None:
            prior = implied_prior(target.path, point, held, rng_of(random_seed))
        else:
            prior = given_prior(target.path, point, held, without_sums(find_model(null_model)))
    zero = log_density == -np.inf  # also where the prior is zero given the other draws
    log_terms = np.where(zero, -np.inf, log_density + prior.log_weight)
    log_terms = log_terms.reshape(used.shape[:2])
    terms = average_terms(log_terms)
    outside = _outside(point, flat)
    messages = [
        *alarms,
        *check_terms(terms, log_terms.size, states[..., 0].size, outside),
        *mixing_warnings(states, target.path.layout.label),
        *untold_model(idata),
    ]
    mcse = np.inf if alarms else terms.mcse
    posterior = average_terms(log_density.reshape(used.shape[:2]))
    correction = terms.log_mean - posterior.log_mean + prior.log_prior
    for sentence in messages:
        warn_user(sentence)
    return SavageDickey(
        -terms.log_mean,
        mcse,
        tuple(messages),
        scale,
        SIDES,
        null=point.given,
        log_posterior=posterior.log_mean,
        log_posterior_mcse=posterior.mcse,
        log_prior=prior.log_prior,
        log_correction=0.0 if prior.matches else correction,
        n_terms=log_terms.size,
        ess=terms.worth,
        khat=terms.khat,
        seconds=perf_counter() - started,
    )


def _density_at_null(
    target: Target, point: NullPoint, x: FloatArray, shape: tuple[int, int]
) -> tuple[FloatArray, list[str]]:
    """Multiply the conditional densities of the coordinates of a null, held one after another.

    Their logs at the states, shape (n,), and why no error can be stated.
    """
    states, log_density, alarms = x.copy(), np.zeros(len(x)), []
    for n, (index, value) in enumerate(zip(point.index, point.value, strict=True)):
        found = conditional_density(target.log_density, states, int(index), float(value))
        if n == 0:  # only these states are draws from the posterior
            alarms += rank_alarms(found.rank.reshape(shape), point.labels[0])
        failed = float(np.mean(~found.converged))
        if failed > 0.0:
            alarms.append(
                f"The conditional density of {point.labels[n]} could not be normalized at "
                f"{failed:.2%} of the draws (a long tail, a narrow second mode, or a density with "
                "edges), so the mcse is infinite: compare evidences with bayes_factor."
            )
        log_density += found.log_density
        states[:, index] = value
    return log_density, alarms


def _outside(point: NullPoint, x: FloatArray) -> str:
    """Say which coordinates of the null lie outside of the range of the draws."""
    own = x[:, point.index]
    off = (point.value < own.min(axis=0)) | (point.value > own.max(axis=0))
    names = [label for label, is_off in zip(point.labels, off, strict=True) if is_off]
    return f" (outside of their range: {', '.join(names)})" if names else ""


def _check_coordinates(target: Target, point: NullPoint) -> None:
    """Refuse priors whose density is known only up to a constant, as PyMC has that of a CAR."""
    path = target.path
    wide = [n for n in point.elements if n in path.terms.wide or is_car(path.model[n])]
    if wide:
        raise NullError(
            f"The prior of {listed(wide)} is known only up to a constant, so its "
            "density at the null is not known: compare evidences with bayes_factor."
        )


def _spaced(states: FloatArray, draws: int) -> np.ndarray:
    """Evenly spaced draws of each chain, about `draws` in all."""
    chains, length = states.shape[:2]
    wanted = min(length, -(-draws // chains))
    return np.unique(np.linspace(0, length - 1, wanted).round().astype(int))
