"""Quality of a fit: whether its ELBO is at rest, Pareto k-hat, and log Z from its draws."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
from pymc.model.transform.basic import remove_minibatched_nodes
from pymc.pytensorf import join_nonshared_inputs
from pymc.variational.opvi import Approximation
from pytensor.graph.traversal import ancestors
from scipy.special import gammaln, logsumexp

from pymc_tempering.borrowed.private import AnyMixtureRV
from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.core.weighting import khat_limit, kish
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.exceptions import ModelError
from pymc_tempering.model.check import improper_priors
from pymc_tempering.model.exactly import compile_exactly, one_thread_at_a_time, with_data_apart
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.ordered_priors import log_orderings_of
from pymc_tempering.variational.fit_step import sees_minibatch

N_BATCHES = 10
"""Batches in each half of the window."""

MIN_WINDOW = 1000
"""With fewer iterations at T = 1 convergence is not judged."""

TOLERANCE = 0.2
"""Change of the ELBO (nats) between the halves of the window that still passes."""

NOISE_SHARE = 0.3
"""The same as a share of the ELBO's standard deviation, where that is larger."""


@dataclass(frozen=True)
class Drift:
    """How much the ELBO moved between the two halves of a window.

    Attributes
    ----------
    change, error : float
        Second half less first half, and its standard error (nats).
    tolerance : float
        What passes (nats).
    window : int
        Iterations in both halves; 0 if there were too few to judge.
    """

    change: float
    error: float
    tolerance: float
    window: int

    @property
    def converged(self) -> bool:
        """Whether the change is below the tolerance by two standard errors.

        Noise that could hide a change counts against convergence, too. In both cases more
        iterations help.
        """
        return bool(abs(self.change) + 2.0 * self.error < self.tolerance)

    @property
    def in_words(self) -> str:
        """Say whether the ELBO is at rest; it may move by less than what passes."""
        if not self.converged:
            return "no"
        if abs(self.change) > 2.0 * self.error:
            return "nearly, still moving"
        return "yes" if self.error < TOLERANCE else "as far as its noise tells"

    def __str__(self) -> str:
        if not self.window:
            return f"fewer than {MIN_WINDOW} iterations at T = 1, too few to judge"
        return (
            f"the ELBO changed by {self.change:.2g} ± {self.error:.2g} nats between the halves of "
            f"the last {self.window} iterations; {self.tolerance:.2g} passes"
        )


NOT_JUDGED = Drift(np.nan, np.inf, TOLERANCE, 0)


def elbo_drift(elbo: FloatArray) -> Drift:
    """Measure the drift over the last half of a stage, or its last 1000 iterations if longer.

    Each half is cut into batches. Their medians are compared, so that single outliers of a
    heavy-tailed ELBO do not count. The scatter of the medians gives the error, so that correlation
    within a batch does not matter.

    Parameters
    ----------
    elbo : ndarray, shape (n,)
        One value an iteration, all at T = 1 (nats).

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_tempering.variational.assess import elbo_drift
    >>> noise = np.random.default_rng(1).normal(size=4000)
    >>> elbo_drift(noise).converged, elbo_drift(noise + 0.001 * np.arange(4000)).converged
    (True, False)
    """
    if elbo.size < MIN_WINDOW or not np.isfinite(elbo).all():
        return NOT_JUDGED
    size = max(elbo.size // 2, MIN_WINDOW) // (2 * N_BATCHES)
    window = elbo[-2 * N_BATCHES * size :].reshape(2, N_BATCHES, size)
    batches = np.median(window, axis=2)
    change = float(batches[1].mean() - batches[0].mean())
    error = float(np.sqrt(batches.var(axis=1, ddof=1).sum() / N_BATCHES))
    half = window[1].ravel()
    spread = 1.4826 * float(np.median(np.abs(half - np.median(half))))
    return Drift(change, error, max(TOLERANCE, NOISE_SHARE * spread), window.size)


ALIKE = 0.25
"""Components whose means differ by less, in standard deviations of the fit, have merged."""


def merged(approx: Approximation) -> list[str]:
    """Say which components of a mixture in the likelihood the fit has at the same place."""
    model = approx.model
    if not any(isinstance(rv.owner.op, AnyMixtureRV) for rv in model.observed_RVs):
        return []
    mean, sd = approx.mean.eval(), approx.std.eval()
    found = []
    for name, (_, place, shape, _) in approx.groups[0].ordering.items():
        value = next(v for v in model.value_vars if v.name == name)
        rv = model.values_to_rvs[value]
        part, width = mean[place], sd[place]
        if len(shape) != 1 or part.size < 2 or rv.owner.op.ndim_supp:
            continue
        if np.ptp(part) < ALIKE * width.min():
            found.append(
                f"All {part.size} elements of {rv.name!r} are at the same place: these components "
                "of the mixture have merged. Heat can merge them, and so can equal starts: compare "
                "with method='advi' and start= apart, or with pmt.sample."
            )
    return found


METHOD = "psis_vi"
"""Name of the estimator in ``Evidence.method``."""

DRAWS = 2000
"""Draws from q for the assessment, and as many from a Student t around it."""

DF = 2.0
"""Degrees of freedom of that t."""


@dataclass(frozen=True)
class UntemperedModel:
    """The untempered model on all of its data.

    Attributes
    ----------
    log_joint : callable
        x (d,) to log prior + log likelihood, Jacobians included (nats), in the order of the
        approximation.
    log_orderings : float
        Log of the factor that normalizes ``ordered`` priors (nats).
    no_evidence : str
        Why the model has no evidence, or "".
    """

    log_joint: Callable[[FloatArray], FloatArray]
    log_orderings: float
    no_evidence: str


@dataclass(frozen=True)
class Assessment:
    """ELBO at T = 1, k-hat, and the evidence, from fresh draws of the approximation."""

    elbo: float
    elbo_mcse: float
    khat: float
    evidence: Evidence | None
    warnings: tuple[str, ...]


def has_minibatch(model: pm.Model) -> bool:
    """Whether some term of the model sees a ``pm.Minibatch``."""
    terms = [*model.basic_RVs, *(model.rvs_to_values[rv] for rv in model.basic_RVs)]
    return sees_minibatch([*terms, *model.potentials])


def target_of(approx: Approximation) -> UntemperedModel:
    """Return the log joint density of an approximation's model, compiled once for all of them."""
    return remembered(approx.model, "fit target", lambda: compile_target(approx))


def compile_target(approx: Approximation) -> UntemperedModel:
    """Compile the log joint density of the model; minibatches are replaced by all data."""
    model = approx.model
    if has_minibatch(model):
        model = remove_minibatched_nodes(model)
    ordering = approx.groups[0].ordering
    values = {value.name: value for value in model.value_vars}
    point = {name: np.zeros(shape) for name, _, shape, _ in ordering.values()}
    outputs, x = join_nonshared_inputs(point, [model.logp()], [values[name] for name in ordering])
    with model:  # so that PyMC honors model.check_bounds
        log_joint = one_thread_at_a_time(compile_exactly([x], with_data_apart(outputs)[0]))
    log_orderings, reason = 0.0, ""
    if improper := improper_priors(model.free_RVs):
        reason = f"the prior of {', '.join(improper)} is improper"
    try:
        shapes = [point[value.name].shape for value in model.value_vars]
        orderings = log_orderings_of(model, shapes)
        if set(model.value_vars) & set(ancestors([orderings])):
            reason = "P(ordered | parents) of a prior is not a part of the density that it fits"
        else:
            log_orderings = float(orderings.eval())
    except ModelError as error:
        reason = str(error)
    return UntemperedModel(log_joint, log_orderings, reason)


def mean_and_cholesky(approx: Approximation) -> tuple[FloatArray, FloatArray]:
    """Mean (d,) and Cholesky factor (d, d) of the approximation, in the unconstrained space."""
    params = {name: p.get_value() for name, p in approx.groups[0].shared_params.items()}
    mean = np.asarray(params["mu"], dtype=float)
    if "rho" in params:
        return mean, np.diag(np.logaddexp(0.0, params["rho"]).astype(float))
    root = np.zeros((mean.size, mean.size))
    root[np.tril_indices(mean.size)] = params["L_tril"]
    np.fill_diagonal(root, np.logaddexp(0.0, np.diag(root)))
    return mean, root


def log_weights(
    approx: Approximation, target: UntemperedModel, draws: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Log importance weights of the model at fresh draws, shape (draws,) each, in nats.

    Returns
    -------
    own : ndarray
        log p(x, y) - log q(x) at draws from q.
    defensive : ndarray
        log p(x, y) - log of the mixture (q + t) / 2 at draws from q and from t, a Student t with
        the location and shape of q and 2 degrees of freedom.
    """
    mean, root = mean_and_cholesky(approx)
    d = mean.size
    z = rng.standard_normal((2 * draws, d))
    z[draws:] *= np.sqrt(DF / rng.chisquare(DF, size=draws))[:, None]
    square = (z**2).sum(axis=1)
    log_det = np.log(np.abs(np.diag(root))).sum()
    log_q = -0.5 * square - 0.5 * d * np.log(2.0 * np.pi) - log_det
    log_t = gammaln(0.5 * (DF + d)) - gammaln(0.5 * DF) - 0.5 * d * np.log(DF * np.pi) - log_det
    log_t = log_t - 0.5 * (DF + d) * np.log1p(square / DF)
    log_joint = np.array([float(target.log_joint(x)) for x in mean + z @ root.T])
    # Far out in the tail of the t a transform may overflow: such a draw gets weight zero.
    log_joint[draws:][np.isnan(log_joint[draws:])] = -np.inf
    own = (log_joint - log_q)[:draws]
    return own, log_joint - np.logaddexp(log_q, log_t) + np.log(2.0)


def assess(approx: Approximation, target: UntemperedModel, rng: np.random.Generator) -> Assessment:
    """Judge an approximation by fresh draws from it (nats).

    ELBO and k-hat are those of q itself. log Z takes the defensive weights (Hesterberg 1995): if
    the posterior has heavier tails than a Gaussian, the weights of q alone have infinite variance,
    and the k-hat of 2000 draws may not show it.
    """
    own, defensive = log_weights(approx, target, DRAWS, rng)
    full = isinstance(approx, pm.FullRank)
    advice = "more iterations" if full else 'approx="fullrank", more iterations'
    if np.isnan(own).any():
        share = np.isnan(own).mean()
        sentence = (
            f"The log density is not a number at {share:.1%} of the draws from the "
            "approximation; restrict the prior to where the model is defined."
        )
        return Assessment(np.nan, np.nan, np.nan, None, (sentence,))
    elbo, mcse = -np.inf, np.inf
    if np.isfinite(own).all():
        elbo = float(own.mean())
        mcse = float(own.std(ddof=1) / np.sqrt(DRAWS))
    *_, khat, _ = psis(own)
    sentences = []
    if not khat <= (limit := khat_limit(DRAWS)):
        sentences.append(
            f"Pareto k-hat is {khat:.2f}, above {limit:.2f}: the approximation is far from the "
            f"posterior; do not trust its spread. Try {advice}, or pmt.sample."
        )
    evidence = None
    if not target.no_evidence:
        evidence = _evidence(defensive, target.log_orderings, advice)
    return Assessment(elbo, mcse, khat, evidence, tuple(sentences))


def _evidence(log_weight: FloatArray, log_orderings: float, advice: str) -> Evidence:
    log_z, error, khat, ess = psis(log_weight)
    sentences = []
    if not khat <= (limit := khat_limit(log_weight.size)):
        error = np.inf
        sentences.append(
            f"The importance weights have a Pareto k-hat of {khat:.2f}, above {limit:.2f}: log Z "
            f"has no error. Use {advice}, or pmt.sample."
        )
    return Evidence(
        log_z=log_z + log_orderings,
        mcse=error,
        method=METHOD,
        # Draws around q do not see a mode that q missed, whatever k-hat says.
        verdict="unchecked",
        ess=ess,
        warnings=tuple(sentences),
        n_evaluations=log_weight.size,
        bias_direction="below" if sentences else "",
    )


def psis(log_weight: FloatArray) -> tuple[float, float, float, float]:
    """Pareto smoothed log Z, its standard error (nats), k-hat and Kish's effective size.

    Parameters
    ----------
    log_weight : ndarray, shape (draws,)
        log p(x, y) - log q(x) at independent draws from q; minus infinity is a legal weight.
    """
    from arviz_stats.base import array_stats  # slow to import

    n = log_weight.size
    finite = log_weight[np.isfinite(log_weight)]
    if finite.size < 0.1 * n:  # too few to look at a tail
        log_z = float(logsumexp(finite) - np.log(n)) if finite.size else -np.inf
        return log_z, np.inf, np.inf, 0.0
    if np.ptp(finite) < 1e-9:  # q is the posterior
        return float(finite.mean() + np.log(finite.size / n)), 0.0, -np.inf, float(n)
    smooth, khat = array_stats.psislw(-finite)
    # Smoothing changes the largest fifth of the weights and floors the smallest ones. The weight at
    # the upper quartile is not changed, so it shows the normalization.
    body = np.argsort(finite)[int(0.75 * finite.size)]
    log_sum = float(finite[body] - smooth[body])
    weight = np.concatenate([np.exp(smooth), np.zeros(n - finite.size)]) * n
    error = float(weight.std(ddof=1) / weight.mean() / np.sqrt(n))
    ess = float(kish(weight))
    return log_sum - np.log(n), error, float(khat), ess
