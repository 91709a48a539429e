"""Latent Dirichlet allocation on sparse counts, its held-out likelihood, and its log C(T)."""

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import xarray as xr
from scipy.interpolate import CubicSpline
from scipy.special import digamma, gammaln, logsumexp

from pymc_tempering.arguments import check_choice, check_whole
from pymc_tempering.core.weighting import MIN_ESS, effective_number
from pymc_tempering.exceptions import DataError, TemperingWarning
from pymc_tempering.variational.conjugate.lda_kernels import (
    Documents,
    LocalRule,
    TopicFactors,
    WordTable,
    add_word_moments,
    add_word_statistics,
    fill_word_table,
    log_topic_moments,
    update_documents,
)
from pymc_tempering.variational.conjugate.moments import log_tempered_moment
from pymc_tempering.variational.conjugate.protocol import (
    ConjugateModel,
    Globals,
    Local,
    check_positive,
    check_width,
    dirichlet_kl,
    over_rows,
    rows_from,
)
from pymc_tempering.variational.conjugate.word_counts import (
    check_counts,
    n_tokens,
    row_totals,
    take_documents,
)
from pymc_tempering.variational.temperatures import check_grid


def split_documents(
    counts: sp.csr_array, rng: np.random.Generator
) -> tuple[sp.csr_array, sp.csr_array]:
    """Split every document into two halves that share no word: observed, held out.

    Its different words are dealt out in random order; a document of one word has nothing held
    out.
    """
    counts = take_documents(counts, np.arange(counts.shape[0]))
    hidden = np.zeros(counts.nnz, dtype=bool)
    for d in range(counts.shape[0]):
        begin, end = counts.indptr[d], counts.indptr[d + 1]
        order = rng.permutation(end - begin)
        hidden[begin + order[: (end - begin) // 2]] = True
    observed, held_out = counts.copy(), counts.copy()
    observed.data = np.where(hidden, 0.0, counts.data)
    held_out.data = np.where(hidden, counts.data, 0.0)
    observed.eliminate_zeros()
    held_out.eliminate_zeros()
    return observed, held_out


def complete_documents(
    model: ConjugateModel,
    lam: Globals,
    counts: sp.csr_array,
    *,
    random_seed: Any = 0,
    cores: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Return log-likelihood, shape (D,), in nats, and number of held-out words, shape (D,)."""
    check_width(lam[0].shape[0], counts, model.name)
    observed, held_out = split_documents(counts, np.random.default_rng(random_seed))
    start = model.start_local(observed)
    gamma = model.local_step(lam, observed, np.ones(len(start)), start, cores).state
    share = gamma / gamma.sum(axis=1, keepdims=True)
    topics = lam[0] / lam[0].sum(axis=0)
    document = np.repeat(np.arange(len(start)), np.diff(held_out.indptr))
    log_p = np.log((share[document] * topics[held_out.indices]).sum(axis=1))
    n_docs = len(start)
    return (
        np.bincount(document, held_out.data * log_p, minlength=n_docs),
        np.bincount(document, held_out.data, minlength=n_docs),
    )


def document_completion(
    model: ConjugateModel, lam: Globals, data: Any, *, random_seed: Any = 0, cores: int = 1
) -> float:
    """Return the predictive log-likelihood per held-out word of new documents.

    Half of the different words of each document, with all their counts, give q(theta_d) at T = 1;
    the others are predicted with ``sum_k E[theta_dk] E[beta_kv]`` (Hoffman et al. 2013, Section
    4). The exponential of its negative is the predictive perplexity.

    Parameters
    ----------
    model : LDA
        The model.
    lam : tuple of ndarray
        Its global parameters, ``fit.lam`` or ``fit.tempered_lam``: one array of shape (V, K).
    data : array_like or scipy.sparse array, shape (D, V)
        Counts of documents that were not fitted.
    random_seed : int or numpy.random.Generator, default 0
        Seed of the split into halves; the same splits make fits comparable.
    cores : int, default 1
        Threads.

    Returns
    -------
    float
        Nats per word.

    Raises
    ------
    DataError
        If counts are negative or not whole, or a document is empty.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_tempering as pmt
    >>> conjugate = pmt.variational.conjugate
    >>> model, even = conjugate.LDA(2), (np.ones((5, 2)),)
    >>> value = conjugate.document_completion(model, even, [[1, 1, 2, 0, 1]])
    >>> round(float(np.exp(-value)), 3)
    5.0
    """
    log_p, n_words = complete_documents(
        model, lam, model.check(data), random_seed=random_seed, cores=cores
    )
    return float(log_p.sum() / n_words.sum())


MIN_NODES, MORE_NODES = 5, 8
"""Inverse temperatures at which moments are computed, and how many more if they span a factor of
100; splines between them."""


@dataclass(frozen=True)
class LDA:
    """Latent Dirichlet allocation (Blei et al. 2003).

    ``beta_k ~ Dirichlet(eta)`` over the words, ``theta_d ~ Dirichlet(alpha)`` over the topics, a
    topic z and then a word for every token. The tempered term is log p(w, z | theta, beta), as in
    Appendix B.2 of Mandt et al. (2016): neither Dirichlet prior is tempered. The global parameter
    is lambda, shape (V, K).

    Parameters
    ----------
    n_topics : int
        Number K of topics.
    alpha, eta : float, optional
        Concentrations of the priors of theta and beta; 1 / K by default, as in the paper.
    max_iter : int, default 100
        Largest number of iterations of the local step.
    tol : float, default 0.001
        The local step stops where gamma changes by less on average.
    vocabulary : tuple of str, optional
        The words, to label columns.

    Notes
    -----
    log C(T) has no closed form; the model's `log_partition` is the larger of two lower bounds in
    closed form, "jensen_mean" and "one_topic" of :func:`lda_log_partition`.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_tempering as pmt
    >>> conjugate = pmt.variational.conjugate
    >>> counts = np.repeat([[9, 8, 0, 0], [0, 0, 7, 9]], 20, axis=0)
    >>> fit = conjugate.svi(conjugate.LDA(2), counts, random_seed=1)
    >>> topics = fit.posterior["topics"].values
    >>> np.abs(topics[np.argsort(-topics[:, 0])].round(1))
    array([[0.5, 0.5, 0. , 0. ],
           [0. , 0. , 0.4, 0.6]])
    """

    n_topics: int
    alpha: float | None = None
    eta: float | None = None
    max_iter: int = 100
    tol: float = 1e-3
    vocabulary: tuple[str, ...] | None = None
    name = "LDA"

    def __post_init__(self) -> None:
        check_whole(1, n_topics=self.n_topics, max_iter=self.max_iter)
        check_positive(alpha=self.topic_prior, eta=self.word_prior, tol=self.tol)

    @property
    def topic_prior(self) -> float:
        """Concentration of the prior of theta."""
        return 1.0 / self.n_topics if self.alpha is None else self.alpha

    @property
    def word_prior(self) -> float:
        """Concentration of the prior of beta."""
        return 1.0 / self.n_topics if self.eta is None else self.eta

    def check(self, data: Any) -> sp.csr_array:
        """Return the counts as a CSR array, documents in rows."""
        counts = check_counts(data)
        if self.vocabulary is not None and len(self.vocabulary) != counts.shape[1]:
            raise DataError(
                f"vocabulary has {len(self.vocabulary)} words and the counts {counts.shape[1]}"
            )
        return counts

    def n_data(self, data: sp.csr_array) -> int:
        """Return the number of documents."""
        return int(data.shape[0])

    def take(self, data: sp.csr_array, rows: np.ndarray) -> sp.csr_array:
        """Return some documents, read from disk where they are there."""
        return take_documents(data, rows)

    def prior(self, data: sp.csr_array) -> Globals:
        """Return eta, for every word and topic, shape (1, 1)."""
        return (np.array([[self.word_prior]]),)

    def initialize(self, data: sp.csr_array, rng: np.random.Generator) -> Globals:
        """Draw lambda from Gamma(100, 0.01), as Hoffman et al. (2013) do and scikit-learn does."""
        return (rng.gamma(100.0, 0.01, size=(data.shape[1], self.n_topics)),)

    def perturb(
        self, lam: Globals, data: sp.csr_array, share: float, rng: np.random.Generator
    ) -> None:
        """Multiply by log-normal factors of standard deviation `share`."""
        lam[0][...] *= np.exp(share * rng.normal(size=lam[0].shape))

    def start_local(self, data: sp.csr_array) -> np.ndarray:
        """Return gamma of ones, shape (n, K)."""
        return np.ones((data.shape[0], self.n_topics))

    def local_step(
        self, lam: Globals, data: sp.csr_array, inv_temp: np.ndarray, state: np.ndarray, cores: int
    ) -> Local:
        """Iterate q(z) and q(theta) of each document to convergence."""
        documents, vocabulary = word_rows(data)
        # softened words serve all documents only if these share a temperature
        shared = bool((inv_temp == inv_temp[0]).all())
        table = empty_word_table(vocabulary, self.n_topics, shared)
        topics = np.ascontiguousarray(lam[0], dtype=float)
        psi_total = digamma(topics.sum(axis=0))
        fill = partial(fill_word_table, topics, psi_total, inv_temp[0], table)
        over_rows(fill, vocabulary.size, cores)
        rule = LocalRule(float(self.topic_prior), int(self.max_iter), float(self.tol))
        factors = TopicFactors(np.empty_like(state), np.empty(documents.counts.size))
        rows = rows_from(state)
        update = partial(update_documents, documents, table, inv_temp, rule, factors, rows)
        over_rows(update, len(state), cores)

        def add_statistics(weights: np.ndarray, out: Globals) -> None:
            add_word_statistics(documents, table, inv_temp, factors, weights, out[0])

        return Local(add_statistics, rows.log_joint, rows.rest, rows.state)

    def global_elbo(self, lam: Globals, data: sp.csr_array) -> float:
        """Return minus the divergence of q(beta) from its prior."""
        return -dirichlet_kl(lam[0], self.word_prior)

    def log_partition(self, data: sp.csr_array, temperatures: np.ndarray) -> np.ndarray:
        """Return the larger of two lower bounds in closed form.

        Jensen's N_tot log E[sum_kv (theta_k beta_kv)^(1/T)], and `log_one_topic`.
        """
        inv_temps = 1.0 / np.asarray(temperatures, dtype=float)
        jensen = n_tokens(data) * self.log_partition_per_word(data.shape[1], inv_temps)
        return np.maximum(jensen, self.log_one_topic(data, inv_temps))

    def log_one_topic(self, data: sp.csr_array, inv_temps: np.ndarray) -> np.ndarray:
        """Return the log of the part of C(T) in which all words of a corpus have one topic."""
        lengths, size, n_words = row_totals(data), self.n_topics, data.shape[1]
        values = []
        for s in inv_temps:
            theta = log_moment(self.topic_prior, size * self.topic_prior, s * lengths).sum()
            beta = log_tempered_moment(self.word_prior, n_words, int(lengths.sum()), float(s))
            values.append(np.log(size) + theta + beta)
        return np.array(values)

    def log_partition_per_word(self, n_words: int, inv_temps: np.ndarray) -> np.ndarray:
        """Return log E[sum_kv (theta_k beta_kv)^s] over the priors of theta and beta."""
        size = self.n_topics
        value = np.log(size) + log_moment(self.topic_prior, size * self.topic_prior, inv_temps)
        value += np.log(n_words) + log_moment(self.word_prior, n_words * self.word_prior, inv_temps)
        return np.asarray(value)

    def normalizer_table(
        self, lam: Globals, data: sp.csr_array, inv_temps: np.ndarray
    ) -> np.ndarray:
        """Return log sum_v E[beta_kv^s] at a few s between the extremes, shape (nodes, K)."""
        total, nodes = lam[0].sum(axis=0), _nodes(inv_temps)
        sums = np.zeros((nodes.size, self.n_topics))
        add_word_moments(np.ascontiguousarray(lam[0], dtype=float), nodes, sums)
        return np.asarray(np.log(sums) + gammaln(total) - gammaln(total + nodes[:, None]))

    def log_normalizers(
        self, table: np.ndarray, data: sp.csr_array, state: np.ndarray, inv_temps: np.ndarray
    ) -> np.ndarray:
        """Return N_d log sum_kv E[theta_k^s] E[beta_kv^s], not below the expected normalizer.

        Computed at a few s = 1/T, and by cubic splines in log s between them.
        """
        total, nodes = state.sum(axis=1)[:, None], _nodes(inv_temps)
        per_word = np.empty((len(state), nodes.size))
        log_topic_moments(state, nodes, table, per_word)
        per_word += gammaln(total) - gammaln(total + nodes)
        if len(nodes) > 1:
            per_word = CubicSpline(np.log(nodes), per_word, axis=1)(np.log(inv_temps))
        return np.asarray(data.sum(axis=1))[:, None] * per_word

    def describe(self, lam: Globals) -> xr.Dataset:
        """Return lambda and the expected topics, by topic and word."""
        words = np.arange(lam[0].shape[0]) if self.vocabulary is None else list(self.vocabulary)
        concentration = lam[0].T
        return xr.Dataset(
            {
                "concentration": (("topic", "word"), concentration),
                "topics": (
                    ("topic", "word"),
                    concentration / concentration.sum(axis=1, keepdims=True),
                ),
            },
            coords={"topic": np.arange(self.n_topics), "word": words},
        )

    def log_predictive(self, lam: Globals, data: sp.csr_array, cores: int) -> np.ndarray:
        """Return the log-likelihood of the held-out half of each document, by completion.

        :func:`document_completion` gives it per word.
        """
        return complete_documents(self, lam, data, cores=cores)[0]


def word_rows(data: sp.csr_array) -> tuple[Documents, np.ndarray]:
    """Return documents whose words are numbered by those that occur, and the columns of these."""
    present = np.zeros(data.shape[1], dtype=bool)
    present[data.indices] = True
    words = (np.cumsum(present) - 1)[data.indices]
    indptr, counts = data.indptr.astype(np.int64), np.asarray(data.data, dtype=float)
    keep = counts > 0.0
    if not keep.all():  # stored zeros
        indptr = np.concatenate([[0], np.cumsum(keep)])[indptr]
        counts, words = counts[keep], words[keep]
    return Documents(counts, words, indptr), np.flatnonzero(present)


def empty_word_table(vocabulary: np.ndarray, n_topics: int, shared: bool) -> WordTable:
    """Return space for a table; with softened words if all documents share a temperature."""
    log_beta = np.empty((vocabulary.size, n_topics))
    softened = np.empty_like(log_beta) if shared else np.empty((0, n_topics))
    return WordTable(vocabulary, log_beta, np.empty(vocabulary.size), softened)


def _nodes(inv_temps: np.ndarray) -> np.ndarray:
    """Return the s, increasing, at which the moments of theta and beta are computed."""
    if len(inv_temps) == 1:
        return np.asarray(inv_temps, dtype=float)
    low, high = inv_temps.min(), inv_temps.max()
    return np.geomspace(low, high, MIN_NODES + int(MORE_NODES * np.log(high / low) / np.log(100.0)))


def log_moment(a: Any, total: Any, power: Any) -> Any:
    """Return log E[p^power] for p ~ Beta(a, total - a), an element of a Dirichlet."""
    return gammaln(a + power) - gammaln(a) + gammaln(total) - gammaln(total + power)


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
