"""Checks of a model at draws from its prior, before the warm-up starts."""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_tempering.exceptions import LikelihoodError, PriorDrawsError, TemperingWarning
from pymc_tempering.model.compiled import NO_MIXTURE
from pymc_tempering.model.exactly import compile_alone
from pymc_tempering.model.path import Path
from pymc_tempering.model.rounding import rounded_draws
from pymc_tempering.references.compiled_mixture import evaluate_rows
from pymc_tempering.references.prior import Prior

N_CHECK = 1000
"""Draws of the prior that the model is checked at."""

MAX_ZERO_SHARE = 0.999
"""Largest share of the draws that may have zero likelihood."""

MAX_OVERFLOW_SHARE = 1e-3
"""Largest share of the draws that may have no finite unconstrained value."""

MAX_ROUNDED_SHARE = 1e-2
"""Largest share of the draws that may have no density because constrained values are rounded."""

MAX_UNDEFINED = 0.05
"""Largest share of the draws at which the likelihood may be no number."""

MAX_BLAMED = 200
"""Draws at which terms are looked at one by one, in Python."""

MAX_NAN_SHARE = 0.01
"""Largest share of the draws that may have a density but no gradient, without a warning."""

MAX_SCORE_Z = 8.0
"""Standard errors by which draws may miss an identity that the density implies."""


def _no_number(graph: Variable) -> Variable:
    return pt.isnan(graph) | pt.eq(graph, np.inf)


def _blame(
    model: pm.Model,
    path: Path,
    draws: np.ndarray,
    wrong: Callable[[Variable], Variable] = _no_number,
) -> str:
    """Name the terms that are wrong or raise an error at draws, with shares.

    Priors are looked at where no likelihood term or potential is to blame.
    """
    states = [path.layout.unravel(x).values() for x in draws[:MAX_BLAMED]]
    terms = model.observed_RVs + model.potentials
    return _bad_terms(model, terms, states, wrong) or _bad_terms(
        model, model.free_RVs, states, wrong
    )


def _bad_terms(
    model: pm.Model,
    terms: Sequence[Variable],
    states: list,
    wrong: Callable[[Variable], Variable],
) -> str:
    """Name those of some terms that are wrong at states, or raise an error there."""
    said = []
    for term in terms:
        [graph] = model.logp(vars=[term], sum=False)
        bad = pt.any(wrong(graph))
        with model:  # so that parameters out of their bounds mean -inf here too
            function = compile_alone(
                model.value_vars, bad, mode="FAST_COMPILE", on_unused_input="ignore"
            )
        n_bad, raised = 0, ""
        for state in states:
            try:
                n_bad += bool(function(*state))
            except Exception as error:
                n_bad += 1
                raised = raised or f", which raises {_in_one_line(error)}"
        if n_bad:
            said.append(f"{term.name!r} ({n_bad / len(states):.1%} of them{raised})")
    return ", ".join(said)


def _about_data(model: pm.Model) -> str:
    """Return a sentence that names the observed data that are not finite; empty if all are."""
    data = {rv.name: model.rvs_to_values[rv].eval() for rv in model.observed_RVs}
    bad = [name for name, values in data.items() if not np.isfinite(values).all()]
    if not bad:
        return ""
    return f" The data of {', '.join(map(repr, bad))} are not all finite: leave such values out."


def _in_one_line(error: Exception) -> str:
    """Type of an error and the first line of what it says; PyTensor adds pages behind."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _check_scores(path: Path, draws: np.ndarray, scores: np.ndarray) -> None:
    """Warn if draws of the prior do not follow its density.

    For any law on the line E[(x - a) d log p / dx] = -1, for any a; the mean over draws must agree.
    """
    products = (draws - np.median(draws, axis=0)) * scores
    known = np.isfinite(products).all(axis=0) & (scores != 0).any(axis=0)
    known[path.circular] = False
    for part, discrete in zip(path.layout.slices, path.layout.discrete, strict=True):
        if discrete:
            known[part] = False
    with np.errstate(divide="ignore", invalid="ignore"):
        error = products.std(axis=0) / np.sqrt(len(draws))
        z = np.where(known & (error > 0), np.abs(products.mean(axis=0) + 1.0) / error, 0.0)
    if z.size and z.max() > MAX_SCORE_Z:
        warnings.warn(
            f"The prior's draws of {path.layout.label(int(z.argmax()))} do not have the law that "
            f"its density says (off by {z.max():.0f} standard errors), so that a path which starts "
            "from these draws gives a wrong evidence. Check the `random` function or the density "
            "of the distribution.",
            TemperingWarning,
            stacklevel=4,
        )


def _check_gradients(path: Path, values: np.ndarray, grads: np.ndarray) -> None:
    """Warn if the gradient is NaN where the density is a number."""
    known = np.isfinite(values).all(axis=1)
    lost = np.isnan(grads[known]).any(axis=1)
    if known.any() and (share := lost.any(axis=1).mean()) > MAX_NAN_SHARE:
        warnings.warn(
            f"The gradient of the log density is not a number at {share:.1%} of the prior draws "
            f"where the density is one (worst: {path.layout.label(int(lost.sum(axis=0).argmax()))})"
            ": trajectories from there are rejected, and warm-up may not get away. Write the "
            'density so that it does not overflow, or use kernel="slice".',
            TemperingWarning,
            stacklevel=4,
        )


def _check_overflow(path: Path, draws: np.ndarray) -> np.ndarray:
    """Return the draws with finite unconstrained values; refuse a prior that loses many."""
    overflow = ~np.isfinite(draws)
    if (share := overflow.any(axis=1).mean()) > 0:
        worst = path.layout.label(int(overflow.mean(axis=0).argmax()))
        message = (
            f"{share:.1%} of the prior draws have no finite unconstrained value (worst: {worst}): "
            "the prior puts mass where floating point, or a transform narrower than the prior's "
            "own support, cannot follow."
        )
        if share > MAX_OVERFLOW_SHARE:
            raise PriorDrawsError(message + " Use a less extreme prior, or its own transform.")
        warnings.warn(message, TemperingWarning, stacklevel=4)
    return draws[~overflow.any(axis=1)]


def _warn_of_rounded(by_variable: dict[str, np.ndarray], n: int) -> None:
    """Warn of draws without a density whose constrained values are rounded; refuse many.

    Parameters
    ----------
    by_variable : dict of str to array of bool
        Where the value of each variable is rounded, of the draws without a density.
    n : int
        Number of draws, with and without a density.
    """
    share = np.any(list(by_variable.values()), axis=0).sum() / n
    if share == 0:
        return
    worst = max(by_variable, key=lambda name: by_variable[name].sum())
    message = (
        f"At {share:.1%} of the prior draws {worst!r} is too large for floating point, or too near "
        "the edge of its support, though its unconstrained value is finite, and the density is not "
        "a number there."
    )
    if share > MAX_ROUNDED_SHARE:
        raise PriorDrawsError(
            message + " Use a less extreme prior, or write what uses this variable in terms of its "
            "unconstrained value."
        )
    warnings.warn(
        message + " These draws count as states of zero likelihood.",
        TemperingWarning,
        stacklevel=4,
    )


def _tell_of_undefined(path: Path, draws: np.ndarray, bad: np.ndarray) -> None:
    """Warn of draws at which the likelihood is no number, and refuse many."""
    message = (
        f"The log-likelihood is not a number at {bad.mean():.1%} of the prior draws, in "
        f"{_blame(path.model, path, draws[bad]) or 'the sum of its terms'}."
    )
    advice = (
        "Restrict the prior to where the likelihood is defined, or make the likelihood return "
        f"-inf there.{_about_data(path.model)}"
    )
    if bad.mean() > MAX_UNDEFINED:
        raise LikelihoodError(f"{message} {advice}")
    warnings.warn(
        f"{message} These draws count as states of zero likelihood, which is wrong unless it is "
        f"zero there. {advice}",
        TemperingWarning,
        stacklevel=4,
    )


def _tell_of_zeros(path: Path, draws: np.ndarray, zero: np.ndarray) -> None:
    """Raise an error for draws that nearly all have no likelihood."""
    terms = _blame(path.model, path, draws[zero], lambda graph: pt.eq(graph, -np.inf))
    raise LikelihoodError(
        f"The likelihood is zero at {zero.mean():.1%} of {len(draws)} prior draws, in "
        f"{terms or 'the sum of its terms'}: the path from prior to posterior cannot be entered. "
        "Use a prior nearer to the data, or a likelihood with wider support, and look whether its "
        f"parameters are allowed (a scale above 0).{_about_data(path.model)}"
    )


def check_reference(prior: Prior) -> None:
    """Check a model at draws from its prior.

    Raises
    ------
    LikelihoodError
        The log-likelihood is NaN at many draws, or zero at nearly all of them.
    PriorDrawsError
        Draws of the prior have no finite unconstrained value, or no finite density.
    """
    path = prior.path
    draws = _check_overflow(path, prior.draw(N_CHECK, prior.spawn(np.random.default_rng(0))))
    values, grads = np.empty((len(draws), 2)), np.zeros((len(draws), 2, path.dim))
    evaluate_rows(path.density, draws, values, grads, NO_MIXTURE.copy())
    lost = ~np.isfinite(values[:, 0]) | np.isnan(values[:, 1]) | (values[:, 1] == np.inf)
    by_variable = rounded_draws(path.model, path.layout, draws[lost]) if lost.any() else {}
    lost[lost] = np.any(list(by_variable.values()), axis=0)
    n, draws, values, grads = len(draws), draws[~lost], values[~lost], grads[~lost]
    log_reference, log_ratio = values.T
    if path.has_gradient:
        _check_gradients(path, values, grads)
    if path.has_gradient and len(draws) == n and np.isfinite(log_reference).all():
        _check_scores(path, draws, grads[:, 0])
    if (bad := np.isnan(log_ratio) | (log_ratio == np.inf)).any():
        _tell_of_undefined(path, draws, bad)
    if by_variable:
        _warn_of_rounded(by_variable, n)
    if (log_ratio == -np.inf).mean() > MAX_ZERO_SHARE:
        _tell_of_zeros(path, draws, log_ratio == -np.inf)
    if (off := ~np.isfinite(log_reference) & ~bad).any():  # a density that raises has no numbers
        raise PriorDrawsError(
            f"The prior density is not finite at {off.mean():.1%} of its "
            "own draws: draws and density disagree. Check custom distributions and transforms."
        )
