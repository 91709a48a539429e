"""Compile a PyMC model into its path and its prior, and check both at draws from the prior."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from scipy.special import logsumexp

from pymc_tempering.arguments import listed
from pymc_tempering.core.cycles import OVERFLOWS
from pymc_tempering.core.deadline import NEVER, Deadline, deadline_in, in_round_seconds
from pymc_tempering.core.threads import Pace
from pymc_tempering.exceptions import LikelihoodError, PriorDrawsError, warn_user
from pymc_tempering.model.compiled import NO_MIXTURE
from pymc_tempering.model.layout import not_of_sum_zero
from pymc_tempering.model.path import Path, compile_path, prior_alone
from pymc_tempering.model.python_mode import compile_alone
from pymc_tempering.model.terms import Terms
from pymc_tempering.model.unconstrain import rounded_draws
from pymc_tempering.references.compiled_mixture import evaluate_rows
from pymc_tempering.references.prior import Prior, compile_prior, evaluate_draws
from pymc_tempering.references.prior_laws import Batch, check_laws

MAX_OVERFLOW_SHARE, MAX_ZERO_OVERFLOW = 1e-3, 0.05
"""Largest shares of the draws that may have no finite unconstrained value: without a further look,
and as states of zero likelihood."""

N_TAIL, TAIL_SEED, N_LARGEST = 10_000, 1, 20
"""Draws among which the largest are looked for, their seed, and how many these are."""

MAX_CARRIED = 1e-3
"""Largest share of the evidence that draws may carry which count as none."""

N_CHECK, DEAREST = 1000, 1_500_000
"""Draws of the prior that the model is checked at, and the elements of a value above which there
are fewer, down to `FEW`: those of a Gaussian process of 1,000 values took minutes."""

DEAR_TO_CHECK = 300_000
"""Elements of a value from which on the law of the prior is checked without the likelihood, where
that takes most of them."""

MAX_ZERO_SHARE = 0.999
"""Largest share of the draws that may have zero likelihood."""

MAX_ROUNDED_SHARE = 1e-2
"""Largest share of the draws that may have no density because constrained values are rounded."""

MAX_UNDEFINED = 0.05
"""Largest share of the draws at which the likelihood may be no number."""

FEW = 200
"""Draws below which a check that had no time for all does not compare draws and density."""

MAX_BLAMED = 200
"""Draws at which terms are looked at one by one, in Python."""

MAX_NAN_SHARE = 0.01
"""Largest share of the draws that may have a density but no gradient, without a warning."""


def kept_draws(path: Path, draws: np.ndarray) -> np.ndarray:
    """Return which draws (n, d) have finite unconstrained values; refuse where many have none."""
    overflow = ~np.isfinite(draws)
    if (share := overflow.any(axis=1).mean()) > 0:
        worst = path.layout.label(int(overflow.mean(axis=0).argmax()))
        _refuse_or_warn(
            bool(share > MAX_ZERO_OVERFLOW),
            PriorDrawsError,
            f"{share:.1%} of the prior draws have no finite unconstrained value (worst: {worst}): "
            "the prior puts mass where floating point, or a transform narrower than the prior's "
            "own support, cannot follow.",
            " Use a less extreme prior, or its own transform.",
        )
    return ~overflow.any(axis=1)


def carry_none(prior: Prior, log_ratio: np.ndarray, deadline: Deadline = NEVER) -> bool:
    """Whether the likelihood falls to nothing over the largest finite draws, toward the overflow.

    The draws that are lost must have an infinite coordinate, which says in which direction they
    lie. If their likelihood were as large as the largest one of the finite draws that lie farthest
    in that direction, they would carry `MAX_CARRIED` of the evidence at most.

    Parameters
    ----------
    prior : Prior
    log_ratio : ndarray, shape (n,)
        Log-likelihood at finite draws (nats).
    deadline : Deadline, optional
        After which nothing is known.
    """
    known = log_ratio[np.isfinite(log_ratio)]
    if deadline.late or not known.size:
        return False
    draws = prior.draw(N_TAIL, prior.spawn(np.random.default_rng(TAIL_SEED)))
    lost = ~np.isfinite(draws).all(axis=1)
    infinite = np.isinf(draws[lost])
    if not infinite.any(axis=1).all():
        return False
    finite = draws[~lost]
    limit = np.log(MAX_CARRIED) + logsumexp(known) - np.log(log_ratio.size)
    for i in np.flatnonzero(infinite.any(axis=0)):  # the farthest of one are not those of another
        for sign in np.unique(np.sign(draws[lost, i][infinite[:, i]])):
            largest = finite[np.argsort(sign * finite[:, i])[-N_LARGEST:]]
            _, level = evaluate_draws(prior.path, largest)
            level = np.where(np.isnan(level), np.inf, level)
            if not np.log(max(lost.mean(), 1.0 / N_TAIL)) + level.max() < limit:
                return False
    return True


def _blame(
    path: Path,
    draws: np.ndarray,
    deadline: Deadline,
    wrong: Callable[[Variable], Variable] = lambda graph: pt.isnan(graph) | pt.eq(graph, np.inf),
) -> str:
    """Name the terms that are wrong or raise an error at draws, with shares.

    Priors are looked at where no likelihood term or potential is to blame.
    """
    model = path.model
    terms = _bad_terms(path, model.observed_RVs + model.potentials, draws, wrong, deadline)
    return terms or _bad_terms(path, model.free_RVs, draws, wrong, deadline)


def _bad_terms(
    path: Path,
    terms: Sequence[Variable],
    draws: np.ndarray,
    wrong: Callable[[Variable], Variable],
    deadline: Deadline,
) -> str:
    """Name those of some terms that are wrong at draws, or raise an error there.

    After a deadline one draw alone is looked at.
    """
    model, states = path.model, [path.layout.unravel(x).values() for x in draws[:MAX_BLAMED]]
    said = []
    for term in terms:
        [graph] = model.logp(vars=[term], sum=False)
        bad = pt.any(wrong(graph))
        with model:  # so that parameters out of their bounds mean -inf here too
            function = compile_alone(model.value_vars, bad)
        found, raised = list[bool](), ""
        for state in states:
            try:
                found.append(bool(function(*state)))
            except Exception as error:
                found.append(True)
                raised = raised or f", which raises {_in_one_line(error)}"
            if deadline.late:
                break
        if any(found):
            said.append(f"{term.name!r} ({sum(found) / len(found):.1%} of them{raised})")
    return ", ".join(said)


def _about_data(model: pm.Model) -> str:
    """Return a sentence that names the observed data that are not finite; empty if all are."""
    data = {rv.name: model.rvs_to_values[rv].eval() for rv in model.observed_RVs}
    bad = [name for name, values in data.items() if not np.isfinite(values).all()]
    if not bad:
        return ""
    return f" The data of {listed(bad)} are not all finite: leave such values out."


def _in_one_line(error: Exception) -> str:
    """Type of an error and the first line of what it says; PyTensor adds pages behind."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _exceeds(bad: np.ndarray, share: float, whole: bool) -> bool:
    """Whether more than a share of n draws is bad, shape (n,); of a few beyond their noise."""
    slack = 0.0 if whole else 2.0 * np.sqrt(bad.sum()) / bad.size
    return bool(bad.mean() - slack > share)


def _refuse_or_warn(
    many: bool,
    error: type[Exception],
    message: str,
    advice: str,
    said: str = " These draws count as states of zero likelihood.",
) -> None:
    """Refuse a model for a fault at many draws; at few of them say what it means."""
    if many:
        raise error(message + advice)
    warn_user(message + said)


def _evaluate(
    path: Path, draws: np.ndarray, deadline: Deadline
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the draws (n, d) whose density there was time for, its values and its gradients."""
    n, began, done = len(draws), perf_counter(), 0
    values, grads = np.empty((n, 2)), np.zeros((n, 2, path.dim))
    mixture, pace = NO_MIXTURE.copy(), Pace(1 if deadline.limited else n)
    for begin, end in pace.pieces(n, lambda: deadline.late, least=1):
        evaluate_rows(path.density, draws[begin:end], values[begin:end], grads[begin:end], mixture)
        done = end
    if done < n:
        needed = in_round_seconds((perf_counter() - began) * n / done)
        warn_user(
            f"max_time left time to check the model at {done} of {n} draws from its prior, which "
            f"needs about {needed} for itself."
        )
    return draws[:done], values[:done], grads[:done]


def _check_gradients(path: Path, values: np.ndarray, grads: np.ndarray, whole: bool) -> None:
    """Warn if the gradient is NaN where the density is a number."""
    known = np.isfinite(values).all(axis=1)
    lost = np.isnan(grads[known]).any(axis=1)
    bad = lost.any(axis=1)
    if known.any() and _exceeds(bad, MAX_NAN_SHARE, whole):
        worst = path.layout.label(int(lost.sum(axis=0).argmax()))
        warn_user(
            f"The gradient of the log density is not a number at {bad.mean():.1%} of the prior "
            f"draws where the density is one (worst: {worst}): trajectories from there are "
            "rejected, and warm-up may not get away. Write the density so that it does not "
            'overflow, or use kernel="slice".'
        )


def _warn_of_rounded(by_variable: dict[str, np.ndarray], n: int, whole: bool) -> None:
    """Warn of draws without a density whose constrained values are rounded; refuse many.

    Parameters
    ----------
    by_variable : dict of str to array of bool
        Where the value of each variable is rounded, of the draws without a density.
    n : int
        Number of draws, with and without a density.
    whole : bool
        Whether these are all.
    """
    rounded = np.any(list(by_variable.values()), axis=0)
    if (share := rounded.sum() / n) == 0:
        return
    worst = max(by_variable, key=lambda name: by_variable[name].sum())
    _refuse_or_warn(
        _exceeds(np.arange(n) < rounded.sum(), MAX_ROUNDED_SHARE, whole),
        PriorDrawsError,
        f"At {share:.1%} of the prior draws {worst!r} is too large for floating point, or too near "
        "the edge of its support, though its unconstrained value is finite, and the density is not "
        "a number there.",
        " Use a less extreme prior, or write what uses this variable in terms of its unconstrained "
        "value.",
    )


def _tell_of_undefined(
    path: Path, draws: np.ndarray, bad: np.ndarray, whole: bool, deadline: Deadline
) -> None:
    """Warn of draws at which the likelihood is no number, and refuse many."""
    terms = _blame(path, draws[bad], deadline) or "the sum of its terms"
    advice = (
        " Restrict the prior to where the likelihood is defined, or make the likelihood return "
        f"-inf there.{_about_data(path.model)}"
    )
    _refuse_or_warn(
        _exceeds(bad, MAX_UNDEFINED, whole),
        LikelihoodError,
        f"The log-likelihood is not a number at {bad.mean():.1%} of the prior draws, in {terms}.",
        advice,
        " These draws count as states of zero likelihood, which is wrong unless it is zero there."
        + advice,
    )


def _tell_of_infinite(
    path: Path, draws: np.ndarray, off: np.ndarray, whole: bool, deadline: Deadline
) -> None:
    """Warn of draws that have no finite prior density, as at the edge of a support; refuse many."""
    terms = _bad_terms(
        path, path.model.free_RVs, draws[off], lambda g: pt.isnan(g) | pt.isinf(g), deadline
    )
    _refuse_or_warn(
        _exceeds(off, MAX_ROUNDED_SHARE, whole),
        PriorDrawsError,
        f"The prior density is not finite at {off.mean():.1%} of its own draws, in "
        f"{terms or 'the probability of an order'}",
        ": draws and density disagree. Check custom distributions and transforms.",
        ". These draws count as states of zero likelihood.",
    )


def _tell_of_zeros(path: Path, draws: np.ndarray, zero: np.ndarray, deadline: Deadline) -> None:
    """Raise an error for draws that nearly all have no likelihood."""
    terms = _blame(path, draws[zero], deadline, lambda graph: pt.eq(graph, -np.inf))
    raise LikelihoodError(
        f"The likelihood is zero at {zero.mean():.1%} of {len(draws)} prior draws, in "
        f"{terms or 'the sum of its terms'}: the path from prior to posterior cannot be entered. "
        "Use a prior nearer to the data, or a likelihood with wider support, and look whether its "
        f"parameters are allowed (a scale above 0).{_about_data(path.model)}"
    )


def _without_likelihood(prior: Prior, batch: Batch) -> tuple[Prior, Batch]:
    """Return a prior and draws of it whose density does without the likelihood, if that is dear."""
    if prior.path.work <= DEAR_TO_CHECK:
        return prior, batch
    path = prior_alone(prior.path)
    if path.work > prior.path.work / 2:
        return prior, batch
    draws, values, grads = _evaluate(path, batch.draws, NEVER)
    return replace(prior, path=path), Batch(draws, values[:, 0], grads[:, 0])


def check_reference(prior: Prior, deadline: Deadline = NEVER) -> Prior:
    """Check a model at draws from its prior.

    Parameters
    ----------
    prior : Prior
    deadline : Deadline, optional
        After which no further draw is looked at, which is said. Of few draws only what they show
        beyond their noise is held against the model.

    Returns
    -------
    Prior
        With an unknown constant where draws overflow that may carry evidence.

    Raises
    ------
    LikelihoodError
        The log-likelihood is NaN at many draws, or zero at nearly all of them.
    PriorDrawsError
        Draws of the prior have no finite unconstrained value, no finite density, or another law
        than their density.
    ImproperPriorError
        No density depends on a coordinate.
    """
    path = prior.path
    if names := not_of_sum_zero(path.model):
        raise PriorDrawsError(
            f"{listed(names)} has a zero-sum transform, and a distribution whose "
            "draws do not sum to zero: draws and density disagree. Use pm.ZeroSumNormal."
        )
    number = max(FEW, N_CHECK * DEAREST // max(DEAREST, path.work))
    draws = prior.draw(number, prior.spawn(np.random.default_rng(0)))
    kept = kept_draws(path, draws)
    draws = draws[kept]
    n_wanted = len(draws)
    draws, values, grads = _evaluate(path, draws, deadline)
    whole = len(draws) == n_wanted
    lost = ~np.isfinite(values[:, 0]) | np.isnan(values[:, 1]) | (values[:, 1] == np.inf)
    by_variable = rounded_draws(path.model, path.layout, draws[lost]) if lost.any() else {}
    lost[lost] = np.any(list(by_variable.values()), axis=0)
    n, draws, values, grads = len(draws), draws[~lost], values[~lost], grads[~lost]
    log_reference, log_ratio = values.T
    if path.has_gradient:
        _check_gradients(path, values, grads, whole)
    sound = len(draws) == n and np.isfinite(log_reference).all()
    if sound and (whole or n >= FEW):
        check_laws(*_without_likelihood(prior, Batch(draws, log_reference, grads[:, 0])), deadline)
    if (bad := np.isnan(log_ratio) | (log_ratio == np.inf)).any():
        _tell_of_undefined(path, draws, bad, whole, deadline)
    if by_variable:
        _warn_of_rounded(by_variable, n, whole)
    if whole and (log_ratio == -np.inf).mean() > MAX_ZERO_SHARE:
        _tell_of_zeros(path, draws, log_ratio == -np.inf, deadline)
    if (off := ~np.isfinite(log_reference) & ~bad).any():  # a density that raises has no numbers
        _tell_of_infinite(path, draws, off, whole, deadline)
    few = 1.0 - kept.mean() <= MAX_OVERFLOW_SHARE
    if few or carry_none(prior, log_ratio, deadline):
        return prior
    return replace(prior, prior_constant=OVERFLOWS)


def compile_model(
    model: pm.Model,
    report: Callable[[str], None] = lambda line: None,
    *,
    check: bool = True,
    gradient: Collection[str] | None = None,
    values: bool = False,
    terms: Terms | None = None,
    check_for: float | None = None,
) -> Prior:
    """Compile the path of a model and its prior, and check both at draws from the prior.

    Parameters
    ----------
    model : pymc.Model
    report : callable, optional
        Called with a line of progress.
    check : bool, default True
        Whether to check.
    gradient : collection of str, optional
        Value variables that gradients are needed of; by default all, which must be continuous.
    values : bool, default False
        Whether some kernel evaluates the density without its gradients.
    terms : Terms, optional
        Which terms of the model are tempered; by default all.
    check_for : float, optional
        Seconds that the check takes at most.

    Raises
    ------
    ModelError, DiscreteVariableError, ImproperPriorError, LikelihoodError
        The model cannot be tempered; see their messages.
    """
    report("Preparing the model")
    prior = compile_prior(compile_path(model, gradient=gradient, values=values, terms=terms))
    if check and not prior.path.n_white:  # else the whole model was checked
        report("Checking the model at draws from the prior")
        prior = check_reference(prior, deadline_in(check_for))
    return prior
