"""`prior_sensitivity`: log Z and Bayes factors along the values of a prior's number."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from pymc_tempering.arguments import RandomSeed, check_kind, rng_of
from pymc_tempering.comparison.compare import check_same_data
from pymc_tempering.comparison.marginal_likelihood import Extras, evidence_of
from pymc_tempering.evidence.prior_curves import PriorSensitivity
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.reweight import known_names
from pymc_tempering.exceptions import warn_user
from pymc_tempering.model.bambi import pymc_draws
from pymc_tempering.model.check import find_model
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import ModelLike
from pymc_tempering.sensitivity.curve import (
    Default,
    change_of_data,
    change_of_scale,
    check_draws,
    read_default,
    reweighted_curve,
    warnings_of,
    with_reruns,
)


def prior_sensitivity(
    idata: xr.DataTree,
    model: ModelLike | None = None,
    scale: Mapping[str, ArrayLike] | None = None,
    *,
    data: Mapping[str, ArrayLike] | None = None,
    against: Any = None,
    var_names: Sequence[str] | None = None,
    rerun: bool = True,
    cores: int | None = None,
    random_seed: RandomSeed = None,
    progressbar: bool = True,
    quiet: bool = False,
    sample_kwargs: Mapping[str, Any] | None = None,
) -> PriorSensitivity:
    """Compute how the evidence depends on the priors of a model.

    Posterior draws are reweighted by the ratio of the changed prior to that of the model. They may
    be of :func:`sample`, all states of all rungs where ``keep="states"`` kept them, or of any other
    sampler, whose log Z is estimated by :func:`bridge_sampling`. Where the weights are too uneven
    for that, a fresh run of :func:`sample` takes their place. Each name is changed alone, with all
    others as they are.

    Parameters
    ----------
    idata : DataTree
        A run of simulated tempering, or posterior draws of NUTS, nutpie or any other sampler.
    model : pymc.Model or CompiledModel, optional
        The model that it was made with; the one on the context stack by default.
    scale : mapping of str to array_like, optional
        Positive factors by which the scale of a variable's prior is multiplied, by the name of
        the variable. With the factor c its prior is the law of location + c (b - location), where
        b has the prior of the model: of a normal, ``sigma`` times c; of a gamma or an exponential,
        the rate over c; of a lognormal, the median times c.
    data : mapping of str to array_like, optional
        Values of a ``pm.Data`` that priors depend on, by its name; the first dimension is that of
        the values.
    against : DataTree, Evidence, CrossCheck or Approximation, optional
        Another model of the same data: whatever :func:`log_marginal_likelihood` takes and needs no
        model for. The Bayes factor of each value's model over it is added.
    var_names : sequence of str, optional
        Variables whose posterior means and standard deviations are computed along the curve.
    rerun : bool, default True
        Make a fresh run where the Pareto k-hat of the weights is above its limit,
        min(1 - 1 / log10(S), 0.7) for S draws, where few tours hold the weight, or where the range
        of a variable depends on the value. If not, such values have an infinite error.
    cores : int, optional
        Threads of fresh runs, and of bridge sampling.
    random_seed : int or numpy.random.Generator, optional
        Seed of the fresh runs, where each value has its own part of it, and of bridge sampling.
    progressbar : bool, default True
        Whether to show a line of progress.
    quiet : bool, default False
        Neither progress nor warnings; these are in the result.
    sample_kwargs : mapping, optional
        Arguments of :func:`sample` for fresh runs; ``draws`` and ``chains`` are as in ``idata`` by
        default.

    Returns
    -------
    PriorSensitivity
        In nats: log Z along each curve, and the log Bayes factor against the default. Their errors
        are over tours, or by the autocorrelation of the draws of other samplers, and that of log Z
        has the covariance of the run's own log Z with the ratio, since both come from the same
        draws.

    Raises
    ------
    ModelError
        A name is unknown, or the prior has no scale.
    ImproperPriorError
        A prior is flat.
    DataMismatchError
        The model is not the one that the run was made with, or has no such ``pm.Data``.
    NotTemperedError, LadderError
        ``idata`` holds no complete tempering run and no draws of a Markov chain; the message says
        what to pass. Particles of ``pm.sample_smc`` and draws of a fit are refused.
    TemperingError
        Posterior draws are too few, or do not fit the model, as in :func:`bridge_sampling`.
    ValueError
        A factor is not positive and finite, or nothing is to be changed.

    Warns
    -----
    TemperingWarning
        Once for each entry of ``PriorSensitivity.warnings``.

    Notes
    -----
    Z(c) / Z = E[p_c(b) / p(b)] under the posterior (Geyer & Thompson 1995; Vehtari et al. 2024 for
    k-hat).

    Examples
    --------
    >>> import pymc as pm, pymc_tempering as pmt
    >>> with pm.Model() as model:
    ...     b = pm.Normal("b", 0, 1)
    ...     y = pm.Normal("y", b, 1, observed=1.5)
    ...     idata = pmt.sample(500, random_seed=1, quiet=True)
    >>> found = pmt.prior_sensitivity(idata, model, {"b": [0.5, 1.0, 2.0]}, quiet=True)
    >>> exact = -0.5 * (np.log(2 * np.pi * (1 + 2.0**2)) + 1.5**2 / (1 + 2.0**2))
    >>> bool(abs(found["b"].log_z[2] - exact) < 4 * found["b"].mcse[2] < 0.3)
    True
    """
    idata, chosen = pymc_draws(idata, model), find_model(model)
    check_draws(idata)
    scale, data = scale or {}, data or {}
    for argument, value in {"scale": scale, "data": data}.items():
        check_kind(argument, value, Mapping, "a dict from names to lists of values")
    changes = [change_of_scale(chosen, *item) for item in scale.items()]
    changes += [change_of_data(chosen, *item) for item in data.items()]
    _check_names([change.name for change in changes])
    names = known_names(
        var_names or (), idata["posterior"].to_dataset(), "the posterior's variables"
    )
    settings = _settings(idata, cores, sample_kwargs or {})
    seed = rng_of(random_seed)
    seeds, own = seed.spawn(len(changes)), seed.spawn(1)[0]
    with compiling_status(progressbar and not quiet) as report:
        report("Reading the draws")
        run, evidence = read_default(idata, chosen, own, cores)
        default = Default(chosen, run, evidence, tuple(names))
        sentences = [f"The default run: {sentence}" for sentence in evidence.warnings]
        other = None
        if against is not None:
            other, said = _other(idata, chosen, evidence, against)
            sentences += said
        curves = []
        for change, rng in zip(changes, seeds, strict=True):
            report(f"Reweighting the draws along {change.name}")
            curve, short = reweighted_curve(change, default)
            if rerun:
                curve, said = with_reruns(curve, short, change, default, rng, settings, report)
                sentences, short = [*sentences, *said], np.zeros_like(short)
            curves.append(curve)
            sentences += warnings_of(curve, short)
    if not quiet:
        for sentence in sentences:
            warn_user(sentence)
    return PriorSensitivity(
        evidence.log_z, evidence.mcse, evidence.verdict, tuple(curves), other, tuple(sentences)
    )


def _other(
    idata: xr.DataTree, model: pm.Model, evidence: Evidence, against: Any
) -> tuple[tuple[float, float], list[str]]:
    """Return log Z of the other model with its error, and its warnings.

    Raises
    ------
    DataMismatchError
        Its observed data are others.
    """
    check_same_data({"model 'this'": idata, "model 'against'": against}, {"model 'this'": model})
    other = evidence_of(against, Extras())
    said = [] if other is against else [f"Model 'against': {text}" for text in other.warnings]
    return (other.log_z, other.mcse), said


def _check_names(names: Sequence[str]) -> None:
    """Raise an error if nothing is changed, or a name comes twice."""
    if not names:
        raise ValueError(
            "Nothing to change: pass scale={'b': factors} for the scale of the prior of b, or "
            "data={'sigma_b': values} for a pm.Data."
        )
    if len(set(names)) < len(names):
        raise ValueError(f"scale and data name the same: {', '.join(sorted(names))}")


def _settings(idata: xr.DataTree, cores: int | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a fresh run: as many draws and chains as a run has, and what was given.

    Raises
    ------
    ValueError
        For an argument that is set elsewhere.
    """
    taken = sorted(
        {"model", "random_seed", "progressbar", "quiet", "tempered", "var_names", "cores"}
        & set(given)
    )
    if taken:
        raise ValueError(f"sample_kwargs may not hold {', '.join(taken)}")
    sizes = idata["posterior"].sizes
    return {"draws": sizes["draw"], "chains": sizes["chain"], "cores": cores} | dict(given)
