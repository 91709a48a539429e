"""`savage_dickey`: the Bayes factor of a model over a point null, from draws of the model."""

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any
from warnings import warn

import numpy as np
import pymc as pm
import xarray as xr

from pymc_tempering.arguments import check_choice, check_whole
from pymc_tempering.bridge.draw_alarms import mixing_warnings
from pymc_tempering.bridge.target import (
    Target,
    check_log_density,
    find_target,
    stored_density_warnings,
)
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.evidence.factor import SCALES, factor_fields
from pymc_tempering.exceptions import NullError, TemperingWarning
from pymc_tempering.model.check import find_model
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.nested.conditional_density import conditional_density
from pymc_tempering.nested.density_ratio import SIDES, SavageDickey
from pymc_tempering.nested.null_point import NullPoint, find_null
from pymc_tempering.nested.null_prior import given_prior, implied_prior
from pymc_tempering.nested.term_average import average_terms, check_terms, rank_alarms

N_CHECKED = 100
"""Draws of each chain at which the model's density is checked."""
MIN_DRAWS = 20


def savage_dickey(
    idata: xr.DataTree,
    model: pm.Model | CompiledModel | None = None,
    *,
    null: Mapping[str, Any],
    null_model: pm.Model | CompiledModel | None = None,
    draws: int = 2000,
    scale: str = "kass_raftery",
    cores: int | None = None,
    random_seed: int | np.random.Generator | None = None,
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
    >>> idata = xr.DataTree.from_dict({"posterior": xr.Dataset(posterior)})
    >>> found = pmt.savage_dickey(idata, model, null={"delta": 0.0})
    >>> exact = 0.5 * np.log(2 / 3) + 1 / 12  # y ~ N(0, 3) against N(0, 2)
    >>> bool(abs(found.log_bf - exact) < 4 * found.mcse < 0.1)
    True
    """
    check_choice("scale", scale, SCALES)
    check_whole(MIN_DRAWS, draws=draws)
    check_whole(1, cores=cores)
    full = find_model(model)
    started = perf_counter()
    with compiling_status(progressbar and not quiet) as report:
        report("Savage-Dickey: the model at the draws")
        target, states = find_target(idata, full, cores)
        point = find_null(full, target.path.layout, null)
        _check_coordinates(target, point)
        alarms = _check_states(idata, target, states)
        used = states[:, _spaced(states, draws)]
        flat = used.reshape(-1, states.shape[2])
        check_log_density(target.log_density(flat), target.path, flat)
        report("Savage-Dickey: conditional densities at the null")
        density = _density_at_null(target, point, flat, used.shape[:2])
        held = point.hold(flat)
        report("Savage-Dickey: the prior of the null")
        if null_model is None:
            prior = implied_prior(target.path, point, held, np.random.default_rng(random_seed))
        else:
            prior = given_prior(target.path, point, held, find_model(null_model))
    zero = density.log_density == -np.inf  # also where the prior is zero given the other draws
    log_terms = np.where(zero, -np.inf, density.log_density + prior.log_weight)
    log_terms = log_terms.reshape(used.shape[:2])
    terms = average_terms(log_terms)
    outside = _outside(point, flat)
    messages = check_terms(terms, log_terms.size, states[..., 0].size, outside)
    messages += mixing_warnings(states, target.path.layout.label)
    alarms += density.alarms
    messages = [*alarms, *messages]
    mcse = np.inf if alarms else terms.mcse
    posterior = average_terms(density.log_density.reshape(used.shape[:2]))
    correction = terms.log_mean - posterior.log_mean + prior.log_prior
    for sentence in messages:
        warn(sentence, TemperingWarning, stacklevel=2)
    return SavageDickey(
        **factor_fields(-terms.log_mean, mcse, tuple(messages), scale, SIDES),
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


@dataclass(frozen=True)
class DensityAtNull:
    """Log conditional densities at the null, shape (n,), and why no error can be stated."""

    log_density: FloatArray
    alarms: list[str]


def _density_at_null(
    target: Target, point: NullPoint, x: FloatArray, shape: tuple[int, int]
) -> DensityAtNull:
    """Multiply the conditional densities of the coordinates of a null, held one after another."""
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
    return DensityAtNull(log_density, alarms)


def _outside(point: NullPoint, x: FloatArray) -> str:
    """Say which coordinates of the null lie outside of the range of the draws."""
    own = x[:, point.index]
    off = (point.value < own.min(axis=0)) | (point.value > own.max(axis=0))
    names = [label for label, is_off in zip(point.labels, off, strict=True) if is_off]
    return f" (outside of their range: {', '.join(names)})" if names else ""


def _check_coordinates(target: Target, point: NullPoint) -> None:
    """Refuse angles, and priors whose density is known only up to a constant."""
    circular = set(target.path.circular.tolist())
    odd = [name for name, i in zip(point.labels, point.index, strict=True) if int(i) in circular]
    if odd:
        raise NullError(
            f"{', '.join(odd)} is an angle, whose density has no tails to integrate: compare "
            "evidences with bayes_factor."
        )
    if wide := [name for name in point.elements if name in target.path.terms.wide]:
        raise NullError(
            f"The prior of {', '.join(map(repr, wide))} is known only up to a constant, so its "
            "density at the null is not known: compare evidences with bayes_factor."
        )


def _check_states(idata: xr.DataTree, target: Target, states: FloatArray) -> list[str]:
    """Check that the draws are of this model; warn where the sampler stored another density."""
    some = states[:, :N_CHECKED]
    flat = some.reshape(-1, states.shape[2])
    log_density = target.log_density(flat)
    check_log_density(log_density, target.path, flat)
    return stored_density_warnings(idata, log_density.reshape(some.shape[:2]))


def _spaced(states: FloatArray, draws: int) -> np.ndarray:
    """Evenly spaced draws of each chain, about `draws` in all."""
    chains, length = states.shape[:2]
    wanted = min(length, -(-draws // chains))
    return np.unique(np.linspace(0, length - 1, wanted).round().astype(int))
