"""Estimates of, and bounds on, the tempered partition function of LDA: Appendix B."""

import warnings
from typing import Any

import numpy as np
from scipy.special import logsumexp

from pymc_tempering.arguments import check_choice
from pymc_tempering.core.weighting import MIN_ESS, effective_number
from pymc_tempering.exceptions import TemperingWarning
from pymc_tempering.variational.conjugate.lda import LDA
from pymc_tempering.variational.conjugate.word_counts import n_tokens
from pymc_tempering.variational.temperatures import check_grid

ESTIMATES = ("monte_carlo", "jensen_log", "jensen_mean", "one_topic", "upper")
FORMS = ("joint", "marginal")


def lda_log_partition(
    model: LDA,
    data: Any,
    temperatures: Any,
    *,
    estimate: str = "jensen_mean",
    form: str = "joint",
    topic_draws: int = 50,
    document_draws: int = 100,
    random_seed: int | np.random.Generator | None = None,
) -> np.ndarray:
    """Estimate or bound log C(T) of LDA for the documents of a corpus.

    C(T) averages ``prod_d S_d^(N_d)`` over both priors. In the *joint* form, what `svi` tempers,
    S is ``sum_kv (theta_k beta_kv)^(1/T)``; in the *marginal* form of Appendix B of Mandt et al.
    (2016), ``sum_v (sum_k theta_k beta_kv)^(1/T)``: there z is summed over before tempering.

    Parameters
    ----------
    model : LDA
        The model.
    data : array_like or scipy.sparse array, shape (D, V)
        Counts; only the lengths N_d of the documents matter.
    temperatures : array_like, shape (M,)
        1 = T_1 < ... < T_M.
    estimate : str, default "jensen_mean"
        ``"monte_carlo"``: equation (18), with all N_d. ``"jensen_log"``: N_tot E[log S], the
        paper's lower bound, by Monte Carlo. ``"jensen_mean"``: N_tot log E[S], which the paper
        calls an upper bound; Jensen's inequality makes it a lower bound too, and the tighter
        one. ``"one_topic"``: lower bound, joint form only: the terms in which all words have one
        topic, exact. ``"upper"``: upper bound, S at even theta and beta.
    form : {"joint", "marginal"}, default "joint"
        What S is.
    topic_draws : int, default 50
        Draws of beta.
    document_draws : int, default 100
        Draws of theta for each of them.
    random_seed : int or numpy.random.Generator, optional
        Seed of the draws.

    Returns
    -------
    ndarray, shape (M,)
        Nats.

    Raises
    ------
    TemperatureError
        If the temperatures do not increase from 1.
    ValueError
        If an option is unknown, or ``"one_topic"`` is asked for in marginal form.

    Warns
    -----
    TemperingWarning
        If few draws dominate the Monte Carlo average, so that it is nearer to a lower bound.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> conjugate = pmt.variational.conjugate
    >>> counts = [[3, 1, 0], [0, 2, 2]]
    >>> conjugate.lda_log_partition(conjugate.LDA(2), counts, [1.0, 2.0]).round(2)
    array([0.  , 5.18])
    """
    grid = check_grid(temperatures)
    check_choice("estimate", estimate, ESTIMATES)
    check_choice("form", form, FORMS)
    if estimate == "one_topic" and form == "marginal":
        raise ValueError('estimate="one_topic" is for form="joint": the marginal form has no z.')
    counts, inv = model.check(data), 1.0 / grid
    if estimate == "one_topic":
        return model.log_one_topic(counts, inv)
    if estimate == "upper":
        cells = counts.shape[1] * (model.n_topics if form == "joint" else 1)
        return np.asarray(n_tokens(counts) * (1.0 - inv) * np.log(cells))
    if estimate == "jensen_mean" and form == "joint":
        return n_tokens(counts) * model.log_partition_per_word(counts.shape[1], inv)
    rng = np.random.default_rng(random_seed)
    log_s = draw_log_sums(model, counts.shape[1], inv, form, topic_draws, document_draws, rng)
    log_s[inv == 1.0] = 0.0
    if estimate == "jensen_log":
        return np.asarray(n_tokens(counts) * log_s.mean(axis=(1, 2)))
    if estimate == "jensen_mean":
        count = np.log(log_s[0].size)
        return np.asarray(n_tokens(counts) * (logsumexp(log_s, axis=(1, 2)) - count))
    return _monte_carlo(log_s, np.asarray(counts.sum(axis=1), dtype=float))


def draw_log_sums(
    model: LDA,
    n_words: int,
    inv: np.ndarray,
    form: str,
    n_beta: int,
    n_theta: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return log S at draws of beta and theta from their priors, shape (M, n_beta, n_theta)."""
    log_s = np.empty((inv.size, n_beta, n_theta))
    for i in range(n_beta):
        log_beta = log_dirichlet(model.word_prior, (model.n_topics, n_words), rng)
        log_theta = log_dirichlet(model.topic_prior, (n_theta, model.n_topics), rng)
        if form == "marginal":
            log_p = np.log(np.exp(log_theta) @ np.exp(log_beta))
            for m, s in enumerate(inv):
                log_s[m, i] = logsumexp(s * log_p, axis=1)
        else:
            for m, s in enumerate(inv):
                log_s[m, i] = logsumexp(s * log_theta + logsumexp(s * log_beta, axis=1), axis=1)
    return log_s


def log_dirichlet(
    concentration: float, shape: tuple[int, int], rng: np.random.Generator
) -> np.ndarray:
    """Draw logs of symmetric Dirichlets in rows; small concentrations do not underflow."""
    # Gamma(a) is Gamma(a + 1) times U^(1/a)
    log_gamma = np.log(rng.gamma(concentration + 1.0, size=shape))
    log_gamma -= rng.exponential(size=shape) / concentration
    return np.asarray(log_gamma - logsumexp(log_gamma, axis=1, keepdims=True))


def _monte_carlo(log_s: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return equation (18), and warn if a few draws of theta or beta make up the average."""
    n_temps, n_beta, n_theta = log_s.shape
    values, worst = np.zeros(n_temps), np.inf
    different, n_docs = np.unique(lengths, return_counts=True)
    for m in range(n_temps):
        if not log_s[m].any():
            continue
        log_c = np.zeros(n_beta)
        for length, n in zip(different, n_docs, strict=True):
            terms = length * log_s[m]
            log_c += n * (logsumexp(terms, axis=1) - np.log(n_theta))
            worst = min(
                worst,
                float(
                    np.median([effective_number(row) for row in terms.reshape(-1, terms.shape[-1])])
                ),
            )
        worst = min(worst, effective_number(log_c))
        values[m] = logsumexp(log_c) - np.log(n_beta)
    if worst < MIN_ESS:
        warnings.warn(
            f"the Monte Carlo average for log C(T) rests on {worst:.1f} effective draws, so it "
            "is too low: its terms are powers of the order of the number of words. Raise "
            'topic_draws and document_draws, or take estimate="jensen_mean", a bound in closed '
            "form",
            TemperingWarning,
            stacklevel=3,
        )
    return values
