"""`calibrate`: whether posterior model probabilities are right, by data of known models."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np
import pymc as pm

from pymc_tempering.arguments import RandomSeed, check_whole, listed
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.evidence.calibration import Calibration
from pymc_tempering.exceptions import (
    ArgumentError,
    DataMismatchError,
    ModelError,
    TemperingError,
    UndrawableError,
    warn_user,
)
from pymc_tempering.many.folder import Row
from pymc_tempering.many.sample_many import (
    Builder,
    Case,
    by_name,
    found_model,
    generator_of,
    run_cases,
    table_of,
)
from pymc_tempering.model.check import check_model, check_proper
from pymc_tempering.model.layout import ordered_transform
from pymc_tempering.model.new_data import checked_data
from pymc_tempering.model.python_mode import python_mode

DRAWS = 250
"""Draws of each chain, unless other ones or a target are asked for."""


def calibrate(
    models: Sequence[pm.Model | Builder] | Mapping[str, pm.Model | Builder],
    n: int = 200,
    *,
    prior_odds: float | Mapping[str, float] | None = None,
    executor: Executor | None = None,
    random_seed: RandomSeed = None,
    path: str | os.PathLike[str] | None = None,
    progressbar: bool = True,
    quiet: bool = False,
    **sample_arguments: Any,
) -> Calibration:
    """Check posterior model probabilities and draws, by data whose model is known.

    For each data set a model is drawn by the prior odds, and then its parameters and data, in the
    place of the observed data. The evidences of all models are computed for all data sets. Nothing
    of the real data is used, but for their shapes. What this tells holds for the data that these
    priors expect.

    Parameters
    ----------
    models : list or dict of models or functions
        Two or more, whose observed variables have equal names and shapes. Functions without
        arguments build one, and are called here.
    n : int, default 200
        Data sets. With the same `path` a larger number goes on.
    prior_odds : float or mapping of str to float, optional
        Of two models the prior probability of the first over that of the second; otherwise a
        positive weight of each by its name. All are equally probable by default.
    executor : concurrent.futures.Executor, optional
        Who does the runs, as in :func:`sample_many`.
    random_seed : int or numpy.random.Generator, optional
        Of data and runs.
    path : path-like, optional
        A folder with an index of all runs, written as each run ends. Called again with the same
        path, it goes on where it stopped, as in :func:`sample_many`. Draws are not stored.
    progressbar : bool, default True
        Whether to show a line of progress.
    quiet : bool, default False
        No progress. Warnings are given all the same.
    **sample_arguments
        For each call of :func:`sample`. Without `draws` and targets each chain has 250 draws.

    Returns
    -------
    Calibration
        With a verdict, tables and tests (evidences in nats), for :func:`plot_calibration`. Runs
        that failed or have another verdict than "ok" are counted in it. After an interrupt it has
        the data sets that all models were done with.

    Raises
    ------
    ArgumentError
        There are no two models, or something is no argument of :func:`sample`. `tempered` is none
        here, since data are drawn from all of a model.
    ModelError
        A model has a `pm.Potential`, imputed data, an ordered prior, a minibatch or a simulator,
        which its random draws do not follow.
    ImproperPriorError, UndrawableError
        A prior is flat, or something has no random draws.
    DataMismatchError
        Models have other observed variables, or cannot take the data of another model; or `path`
        has something else in it.
    TemperingError
        After an interrupt there is no data set that all models were done with.
    WorkerError
        As :func:`sample_many`.
    ValueError
        `n` or `prior_odds` are out of their range.

    Warns
    -----
    TemperingWarning
        For each entry of ``Calibration.warnings``, and as :func:`sample_many`.

    Notes
    -----
    P(model | y), averaged over data of all models, is the prior; the Bayes factor over the model
    that generated the data has mean 1 (Schad et al. 2023; Sekulovski et al. 2024); and a
    parameter's rank among its posterior draws is uniform (Talts et al. 2018). :class:`Calibration
    <pymc_tempering.evidence.calibration.Calibration>` has the tests.

    Examples
    --------
    >>> import pymc as pm, pymc_tempering as pmt
    >>> def model(width):
    ...     with pm.Model() as built:
    ...         mu = pm.Normal("mu", 0, width)
    ...         y = pm.Normal("y", mu, 1, observed=[0.0, 0.0])
    ...     return built
    >>> models = {"narrow": model(0.5), "wide": model(2.0)}
    >>> found = pmt.calibrate(models, 3, draws=100, random_seed=1, quiet=True)
    >>> found.probability.shape
    (3, 2)
    """
    check_whole(1, n=n)
    if "tempered" in sample_arguments:
        raise ArgumentError("calibrate() does not take tempered: data are drawn from all terms.")
    built = {
        name: found_model(name, Case(name, model).build(None))
        for name, model in by_name("models", models).items()
    }
    if len(built) < 2:
        raise ArgumentError("models must be two or more: one model alone has no probability.")
    for name, model in built.items():
        _check(name, model, next(iter(built.values())))
    names = tuple(built)
    prior = prior_of_odds(names, prior_odds)
    if not {"draws", "target_ess", "target_mcse"} & set(sample_arguments):
        sample_arguments["draws"] = DRAWS
    chosen: list[int] = []
    cases: list[Case] = []

    def cases_at(root: int) -> list[Case]:
        chosen.extend(generator_of(root, "models").choice(len(names), n, p=prior).tolist())
        cases.extend(draw_cases(built, chosen, root))
        return cases

    rows, _ = run_cases(
        cases_at, executor=executor, path=path, save_draws=False, random_seed=random_seed,
        show=progressbar and not quiet, given=sample_arguments, caller="calibrate",
    )  # fmt: skip
    found = _assembled(names, prior, chosen, cases, rows)
    for sentence in found.warnings:
        warn_user(sentence)
    return found


def prior_of_odds(
    names: Sequence[str], prior_odds: float | Mapping[str, float] | None
) -> FloatArray:
    """Return the prior probabilities of models, by odds of two or by the weight of each.

    Raises
    ------
    ValueError
        They are not positive and finite, or not of these models.
    """
    weights = dict.fromkeys(names, 1.0) if prior_odds is None else prior_odds
    if not isinstance(weights, Mapping) and len(names) == 2:
        weights = {names[0]: weights, names[1]: 1.0}
    if not isinstance(weights, Mapping) or set(weights) != set(names):
        raise ValueError(
            f"prior_odds must be a number, where models are two, or a dict with a weight of each "
            f"of {[*names]}, not {prior_odds!r}."
        )
    try:
        found = np.array([float(weights[name]) for name in names])
    except (TypeError, ValueError):
        found = np.array([np.nan])
    if not np.all((found > 0.0) & np.isfinite(found)):
        raise ValueError(f"prior_odds must be positive and finite, not {prior_odds!r}.")
    return found / found.sum()


def _check(name: str, model: pm.Model, first: pm.Model) -> None:
    """Refuse a model whose random draws are not of its density, or with other data.

    Raises
    ------
    ModelError, ImproperPriorError, DataMismatchError
    """
    try:
        check_model(model)
        check_proper(model.free_RVs)
    except ModelError as error:
        error.add_note(f"This was models[{name!r}].")
        raise
    free = model.free_RVs
    own, other = (sorted(rv.name for rv in m.observed_RVs) for m in (model, first))
    missing = {name.removesuffix("_observed") + "_unobserved" for name in own}
    for what, found in {
        "a pm.Potential": model.potentials,
        "imputed data": [rv for rv in free if rv.name in missing],
        "an ordered prior": [rv for rv in free if ordered_transform(model, rv) is not None],
    }.items():
        if found:
            names = listed(variable.name for variable in found)
            raise ModelError(
                f"models[{name!r}] has {what}: {names}. Random draws of PyMC do not follow it, so "
                "that no data can be drawn: calibrate models without it."
            )
    if own != other:
        raise DataMismatchError(
            f"models[{name!r}] has the observed variables {own}, the first model {other}: give "
            "them equal names, for the data of each model go into all."
        )


def draw_cases(built: Mapping[str, pm.Model], chosen: Sequence[int], root: int) -> list[Case]:
    """Draw parameters and data from the chosen models; return the runs of all data sets.

    Raises
    ------
    UndrawableError
        Something has no random draws.
    DataMismatchError
        A model cannot take the data of another one.
    """
    drawn = [iter(_draws(name, built[name], chosen.count(j), root)) for j, name in enumerate(built)]
    cases = []
    for i, j in enumerate(chosen):
        truth, data = next(drawn[j])
        for k, (name, model) in enumerate(built.items()):
            try:
                values = checked_data(model, data)
            except DataMismatchError as error:
                source = [*built][j]
                raise DataMismatchError(
                    f"models[{name!r}] cannot take data of models[{source!r}]: {error}"
                ) from error
            cases.append(Case(f"{i} {name}", model, values, truth if k == j else {}))
    return cases


def _draws(name: str, model: pm.Model, n: int, root: int) -> list[tuple[dict, dict]]:
    """Draw from a model n times: values of its free variables, and of its observed ones."""
    if not n:
        return []
    variables = [*model.free_RVs, *model.observed_RVs]
    seed = int(generator_of(root, f"data of {name}").integers(2**31))
    try:
        # Of one draw alone PyMC leaves out the first dimension.
        arrays = pm.draw(variables, draws=n + 1, random_seed=seed, mode=python_mode())
    except NotImplementedError as error:
        odd = next(rv.name for rv in variables if not _has_draws(rv))  # parents come first
        raise UndrawableError(
            f"models[{name!r}]: {odd!r} has no random draws ({error}), so that no data can be "
            "drawn: give it a random= function.", (odd,)
        ) from error  # fmt: skip
    items = [(rv.name, array) for rv, array in zip(variables, arrays, strict=True)]
    k = len(model.free_RVs)
    return [({v: a[i] for v, a in items[:k]}, {v: a[i] for v, a in items[k:]}) for i in range(n)]


def _has_draws(rv: Any) -> bool:
    try:
        pm.draw(rv, random_seed=0, mode=python_mode())
    except NotImplementedError:
        return False
    return True


def _assembled(
    names: tuple[str, ...],
    prior: FloatArray,
    chosen: Sequence[int],
    cases: Sequence[Case],
    rows: Mapping[str, Row],
) -> Calibration:
    """Bring the rows of runs into a calibration of the data sets that all models were done with.

    Raises
    ------
    TemperingError
        There is none.
    """
    m = len(names)
    sets = [[case.name for case in cases[i : i + m]] for i in range(0, len(cases), m)]
    done = [i for i, runs in enumerate(sets) if all(run in rows for run in runs)]
    if not done:
        raise TemperingError(
            "The runs ended before a data set was done by all models. With path= the same call "
            "goes on from here."
        )
    ranks: dict[str, list[float]] = {}
    for i in done:
        name = names[chosen[i]]
        for scalar, share in rows[f"{i} {name}"].ranks.items():
            ranks.setdefault(f"{name}: {scalar}", []).append(share)
    return Calibration(
        names, prior, np.array(chosen)[done],
        np.array([[rows[run].log_z for run in sets[i]] for i in done]),
        {name: np.array(shares) for name, shares in ranks.items()}, table_of(rows, cases),
    )  # fmt: skip
