"""The tempered partition function C(T) of a PyMC model: the prior average of its normalizers."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import process_time

import numpy as np
import pymc as pm
from scipy.interpolate import BarycentricInterpolator

from pymc_tempering.arguments import RandomSeed, as_seed, listed
from pymc_tempering.core.status import logger, text_as_html
from pymc_tempering.core.weighting import log_mean, log_mean_error
from pymc_tempering.exceptions import NormalizerError, warn_user
from pymc_tempering.model.check import find_model
from pymc_tempering.model.handle import ModelLike
from pymc_tempering.model.memory import remembered
from pymc_tempering.variational.normalizers.averages import (
    MOVES,
    N_POPULATIONS,
    diverges,
    infinite_error,
    line_average,
    particle_average,
)
from pymc_tempering.variational.normalizers.dispatch import WITHOUT_NORMALIZER
from pymc_tempering.variational.normalizers.likelihood_terms import (
    FixedNormalizer,
    NormalizerGroup,
    build_groups,
    likelihood_terms,
)
from pymc_tempering.variational.normalizers.tempered_normalizer import (
    check_random,
    is_slow_to_compile,
)
from pymc_tempering.variational.temperatures import check_temperatures

N_NODES = 21
"""Temperatures of the interpolation."""

NEAREST = 1000.0
"""Range of log T over d."""

LEAPS, STEPS_MORE = 5, 15
"""Leapfrog steps of a move, and temperatures that the annealing inserts, as a rule."""

ON_LINE = 25_000
"""Evaluations of a quadrature over one scalar at a temperature."""

AIM = 30.0
"""CPU seconds that fewer draws are taken for."""

TOLD = 5.0
"""CPU seconds from which on a message says beforehand how long it takes."""

DRAWS = 4000
"""Draws where no number was asked for, and an evaluation is quick."""

FEWEST = 20 * N_POPULATIONS
"""Draws below which no average is annealed for the sake of time."""


def nodes_of_temperature(hot: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Temperatures to compute at, and the matrix that takes the values there to those at `hot`.

    Parameters
    ----------
    hot : array, shape (M,)
        Increasing, all above 1.

    Returns
    -------
    nodes : array, shape (m,)
        The temperatures themselves if they are few, else 21.
    matrix : array, shape (M, m)
        Polynomial interpolation through the nodes and through 0 at T = 1.
    """
    if hot.size <= N_NODES:
        return hot, np.eye(hot.size)
    place = 0.5 * (1.0 - np.cos(np.pi * np.arange(N_NODES + 1) / N_NODES))
    unit, top = np.log(hot[-1]) / NEAREST, np.log1p(NEAREST)
    through = BarycentricInterpolator(place, np.eye(N_NODES + 1))
    nodes = np.exp(unit * np.expm1(top * place[1:]))
    nodes[-1] = hot[-1]
    return nodes, through(np.log1p(np.log(hot) / unit) / top)[:, 1:]


def count_of_draws(
    group: NormalizerGroup,
    points: np.ndarray,
    nodes: np.ndarray,
    draws: int | None,
    max_time: float,
) -> int:
    """Return how many draws to take, from the time that some evaluations take.

    Raises
    ------
    NormalizerError
        It would take longer than `max_time` even so.
    """
    group.evaluate(points[:2], float(nodes[-1]))
    began, n = process_time(), 0
    while process_time() - began < 0.02 and n < len(points):
        group.evaluate(points[n : n + 10], float(nodes[-1]))
        n += 10
    one = (process_time() - began) / n
    if group.dim == 1:
        taken, seconds = 0, ON_LINE * len(nodes) * one
    else:
        of_draw = (MOVES * (LEAPS + 1) + 1) * (len(nodes) + STEPS_MORE) * one
        taken = draws or min(DRAWS, max(FEWEST, int(AIM / of_draw)))
        seconds = taken * of_draw
    if seconds > max_time:
        raise NormalizerError(
            f"log C(T) of {group.label()} would take about {seconds / 60:.0f} minutes of CPU "
            f"time, longer than max_time = {max_time:g} s: {1e3 * one:.2g} ms for each evaluation "
            "of its normalizers. Data with parameters of their own (a regression) cost an integral "
            f"or a sum each. Raise max_time; of the fits, {WITHOUT_NORMALIZER}."
        )
    if seconds > TOLD:
        fewer = draws is None and 0 < taken < DRAWS
        few = f", with {taken} draws in place of {DRAWS}" if fewer else ""
        logger.info(
            f"log C(T) of {group.label()}: about {seconds:.0f} s of CPU time at "
            f"{len(nodes)} temperatures{few}"
        )
    return taken


LARGE_ERROR = 0.5
"""Warn above this error, in nats: the delta method no longer holds."""

LOW_ACCEPTANCE = 0.4
"""Warn below this acceptance of the moves."""

SEARCH_DRAWS = 1000
"""Prior draws that say where the prior's bulk is."""


@dataclass(frozen=True, repr=False)
class LogPartition:
    """The tempered partition function at several temperatures.

    Attributes
    ----------
    temperatures : array, shape (M,)
    log_c : array, shape (M,)
        log C(T), in nats.
    mcse : array, shape (M,)
        Its Monte Carlo standard error (nats); 0 where nothing was drawn.
    ess : array, shape (M,)
        Effective sample size of the average, 1 / (mcse^2 + 1 / draws): Kish's for a plain average
        over prior draws; infinite where nothing was drawn.
    method : tuple of str
        How each entry was found: "exact" (the normalizers depend on no free variable, or T = 1),
        "quadrature" (on one scalar, or several apart), "annealed" (on several together).
    """

    temperatures: np.ndarray
    log_c: np.ndarray
    mcse: np.ndarray
    ess: np.ndarray
    method: tuple[str, ...]

    def __repr__(self) -> str:
        columns = zip(self.temperatures, self.log_c, self.mcse, self.method, strict=True)
        lines = [
            f"  {t:<8.4g} {value:<12.6g} {error:<10.2g} {how}" for t, value, error, how in columns
        ]
        return "\n".join(["LogPartition", "  T        log C(T)     mcse       method", *lines])

    _repr_html_ = text_as_html


def log_partition(
    model: ModelLike | None = None,
    temperatures: Sequence[float] | np.ndarray = (1.0,),
    *,
    draws: int | None = None,
    max_time: float = 300.0,
    random_seed: RandomSeed = None,
) -> LogPartition:
    r"""Log of the tempered partition function of a model.

    .. math:: C(T) = \int p(\theta) \prod_i \int p(x_i \mid \theta)^{1/T} \, dx_i \, d\theta

    Equation (13) of Mandt et al. (2016), with the likelihood terms of the model: the inner
    integrals are `log_tempered_normalizer`. Their product grows as a power of the number of data,
    so that the largest draw soon dominates an average over prior draws. Instead, terms that
    share no free variable are averaged apart; where nothing is free the value is exact; where one
    scalar is, quadrature is used; else particles are annealed from the prior up the temperatures.
    With `total_size` each datum's normalizer counts as often as its likelihood does, and the data
    behind a `pm.Minibatch` are all used.

    Where an evaluation is slow (mixtures, counts), fewer draws are taken, so that it stays at about
    half a minute of CPU time; a message of the log says so beforehand, from 5 s on. How many then
    depends on how fast the machine is, and so does the value, within its error; with a number for
    `draws` the same seed gives the same value. More than 21 temperatures are interpolated. What was
    compiled and computed is remembered with the model.

    Parameters
    ----------
    model : pymc.Model or CompiledModel, optional
        The model on the context stack by default.
    temperatures : array-like, shape (M,), default (1.0,)
        Increasing, none below 1.
    draws : int, optional
        Particles of the annealing, in 16 independent populations. By default 4000, or fewer where
        an evaluation is slow.
    max_time : float, default 300.0
        CPU seconds, by an estimate, above which nothing is computed.
    random_seed : int or numpy.random.Generator, optional
        Seed of the prior draws and the particles.

    Returns
    -------
    LogPartition
        Values and errors in nats.

    Raises
    ------
    NormalizerError
        A term without a normalizer (a potential, say); C(T) is infinite, which is tested
        on the tails of the prior before anything is averaged; it would take too long.
    ModelError
        Nothing observed; a prior that cannot be drawn from; discrete free variables.
    ValueError
        Temperatures that are below 1 or do not increase; too few draws.

    Warns
    -----
    TemperingWarning
        The error is large, or the moves of the particles are hardly ever accepted.

    Examples
    --------
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0.0, 10.0)
    ...     y = pm.Normal("y", mu, 2.0, observed=np.zeros(100))
    >>> pmt.variational.log_partition(model, [1.0, 2.0, 4.0]).log_c.round(3)
    array([  0.   , 115.262, 190.221])
    """
    model = find_model(model)
    grid = check_temperatures(temperatures)
    if draws is not None and draws < 10 * N_POPULATIONS:
        raise ValueError(f"draws must be at least {10 * N_POPULATIONS}, not {draws}.")
    seed = as_seed(random_seed)
    if seed is None:
        partition, sentences = _compute(model, grid, draws, max_time, None)
    else:
        partition, sentences = remembered(
            model,
            ("log_partition", tuple(grid), draws, max_time, seed),
            lambda: _compute(model, grid, draws, max_time, seed),
        )
    for sentence in sentences:
        warn_user(sentence)
    return partition


def _groups(model: pm.Model) -> tuple[list[FixedNormalizer], list[NormalizerGroup]]:
    """Compile the normalizers, and say so beforehand where that takes long."""
    slow = [rv.name for rv in likelihood_terms(model) if is_slow_to_compile(check_random(rv))]
    if slow:
        logger.info(
            f"Compiling the normalizer of {listed(slow)}, an integral: about 10 s of "
            "CPU time, the first time a minute"
        )
    return build_groups(model)


def _compute(
    model: pm.Model, grid: np.ndarray, draws: int | None, max_time: float, seed: int | None
) -> tuple[LogPartition, list[str]]:
    """Compute log C(T); returns sentences to warn with, too."""
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    constants, groups = remembered(model, "normalizer_groups", lambda: _groups(model))
    hot = grid[grid > 1.0]
    nodes, matrix = nodes_of_temperature(hot)
    log_c, variance, sentences = np.zeros(len(hot)), np.zeros(len(hot)), []
    fewest = draws or DRAWS
    for constant in constants:
        log_c += _constant_values(constant, hot)
    if not hot.size:
        groups = []
    searched = [_search(group, hot, int(rng.integers(2**31))) for group in groups]
    counts = [
        count_of_draws(group, found, nodes, draws, max_time)
        for group, found in zip(groups, searched, strict=True)
    ]
    kind = "exact"
    for group, found, count in zip(groups, searched, counts, strict=True):
        if group.dim == 1:
            kind = "quadrature" if kind == "exact" else kind
            log_c += matrix @ [line_average(group, found, T) for T in nodes]
            continue
        kind = "annealed"
        fewest = min(fewest, count)
        particles = group.sample(count, int(rng.integers(2**31)))
        by_population, accept = particle_average(group, particles, nodes, rng)
        by_population = matrix @ by_population  # each interpolated by itself
        error = np.array([log_mean_error(log_z) for log_z in by_population])
        log_c += [log_mean(log_z) for log_z in by_population]
        variance += error**2
        sentences += _doubts(group, hot, error, accept)
    n_cold = len(grid) - len(hot)
    mcse = np.r_[np.zeros(n_cold), np.sqrt(variance)]
    with np.errstate(divide="ignore"):
        ess = np.where(mcse > 0.0, 1.0 / (mcse**2 + 1.0 / fewest), np.inf)
    how = ("exact",) * n_cold + (kind,) * len(hot)
    return LogPartition(grid, np.r_[np.zeros(n_cold), log_c], mcse, ess, how), sentences


def _constant_values(constant: FixedNormalizer, hot: np.ndarray) -> np.ndarray:
    """Values of a normalizer without free variables; refused where it is infinite."""
    values = np.array([constant.value(T) for T in hot])
    infinite = hot[~np.isfinite(values)]
    if infinite.size:
        raise NormalizerError(
            f"The tempered normalizer of {constant.term!r} is infinite at T = "
            f"{infinite[0]:g}: its tails are too heavy. Only temperatures below "
            f"{constant.limit:g} work; of the fits, {WITHOUT_NORMALIZER}."
        )
    return values


def _search(group: NormalizerGroup, hot: np.ndarray, seed: int) -> np.ndarray:
    """Prior draws of a group, after a check that its average is finite at all temperatures.

    log C is convex in 1 / T (Hoelder), so what is finite at 1 and at the largest T is so between
    them; the others are looked at if it is not, to say which are.
    """
    draws = group.sample(SEARCH_DRAWS, seed)
    top = hot[-1:]
    if (group.evaluate(draws, top[0])[1] < np.inf).all() and not diverges(
        group, draws, top[0], seed
    ):
        return draws
    for place, T in enumerate(hot):
        log_prior, log_c, _ = group.evaluate(draws, T)
        if np.isposinf(log_c).any():
            share = f"{np.isposinf(log_c).mean():.1%} of the prior draws"
            why = f": the tails of the likelihood are too heavy at {share}, so C(T) is infinite"
            raise infinite_error(group, T, why, hot[:place])
        if (bad := np.isnan(log_c) | np.isnan(log_prior)).any():
            raise NormalizerError(
                f"The tempered normalizer of {group.label()} is not a number at T = {T:g} for "
                f"{bad.mean():.1%} of the prior draws: a sum gets too long, a quadrature fails its "
                "own check, or a parameter leaves its bounds. Evaluate log_tempered_normalizer at "
                f"such values to see which; of the fits, {WITHOUT_NORMALIZER}."
            )
        if along := diverges(group, draws, T, seed):
            raise infinite_error(group, T, f" for {along}", hot[:place])
    return draws


def _doubts(group: NormalizerGroup, hot: np.ndarray, mcse: np.ndarray, accept: float) -> list[str]:
    """Sentences that say why the annealing is not reliable."""
    sentences = []
    if (large := ~(mcse < LARGE_ERROR)).any():
        sentences.append(
            f"log C(T) has a standard error of {mcse[large][0]:.2g} nats at T = "
            f"{hot[large][0]:g} (normalizer of {group.label()}). Use more draws or lower "
            "temperatures."
        )
    if accept < LOW_ACCEPTANCE:
        sentences.append(
            f"The moves that anneal the normalizer of {group.label()} are accepted only "
            f"{accept:.0%} of the time; the stated error may be too small. Use more draws, or a "
            "smoother prior."
        )
    return sentences
