"""Latent Dirichlet allocation on sparse counts, and its held-out likelihood."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
import xarray as xr
from scipy.interpolate import CubicSpline
from scipy.special import digamma, gammaln, logsumexp

from pymc_tempering.arguments import check_whole, rng_of
from pymc_tempering.exceptions import DataError
from pymc_tempering.variational.conjugate.moments import log_tempered_moment
from pymc_tempering.variational.conjugate.protocol import (
    ConjugateModel,
    Globals,
    Local,
    check_positive,
    check_width,
    dirichlet_kl,
    log_moment,
)


def check_counts(counts: Any) -> sp.csr_array:
    """Return documents in rows and words in columns as a CSR array without stored zeros.

    Raises
    ------
    DataError
        If a count is negative, not whole or not finite, or a document is empty: with its place.
    """
    if not sp.issparse(counts):
        counts = np.asarray(counts)
        if counts.ndim != 2 or counts.dtype.kind not in "biuf":
            raise DataError(
                "counts must be a matrix of numbers, documents in rows and words in columns; got "
                f"shape {counts.shape} of {counts.dtype}"
            )
    if 0 in counts.shape:
        raise DataError(f"the counts have shape {counts.shape}: there must be documents and words")
    matrix = sp.csr_array(counts, dtype=float, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    values = matrix.data
    bad = ~(np.isfinite(values) & (values > 0.0) & (values == np.floor(values)))
    if bad.any():
        at = int(np.argmax(bad))
        row = int(np.searchsorted(matrix.indptr, at, side="right")) - 1
        raise DataError(
            f"document {row} has a count of {values[at]:g} for word {matrix.indices[at]}: "
            "counts must be whole and not negative (LDA takes no tf-idf weights)"
        )
    empty = np.flatnonzero(np.diff(matrix.indptr) == 0)
    if empty.size:
        raise DataError(
            f"{empty.size} of {matrix.shape[0]} documents are empty, the first is document "
            f"{empty[0]}: drop them, X[X.sum(axis=1) > 0]"
        )
    return matrix


def split_documents(
    counts: sp.csr_array, rng: np.random.Generator
) -> tuple[sp.csr_array, sp.csr_array]:
    """Split every document into two halves that share no word: observed, held out.

    Its different words are dealt out in random order; a document of one word has nothing held
    out.
    """
    hidden = np.zeros(counts.nnz, dtype=bool)
    for begin, end in pairwise(counts.indptr):
        order = rng.permutation(end - begin)
        hidden[begin + order[: (end - begin) // 2]] = True
    observed, held_out = counts.copy(), counts.copy()
    for half, words in ((observed, ~hidden), (held_out, hidden)):
        half.data *= words
        half.eliminate_zeros()
    return observed, held_out


def complete_documents(
    model: ConjugateModel,
    lam: Globals,
    counts: sp.csr_array,
    *,
    random_seed: Any = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return log-likelihood, shape (D,), in nats, and number of held-out words, shape (D,)."""
    check_width(lam[0].shape[0], counts, model.name)
    observed, held_out = split_documents(counts, rng_of(random_seed))
    start = model.start_local(observed)
    gamma = model.local_step(lam, observed, np.ones(len(start)), start).state
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
    model: ConjugateModel, lam: Globals, data: Any, *, random_seed: Any = 0
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
    log_p, n_words = complete_documents(model, lam, model.check(data), random_seed=random_seed)
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
    closed form: Jensen's inequality, and the terms in which all words have one topic.

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
        self, lam: Globals, data: sp.csr_array, inv_temp: np.ndarray, state: np.ndarray
    ) -> Local:
        """Iterate q(z) and q(theta) of each document until gamma changes by less than `tol`."""
        words, place = np.unique(data.indices, return_inverse=True)
        log_beta = digamma(lam[0][words]) - digamma(lam[0].sum(axis=0))
        gamma, tokens = state.copy(), np.empty((data.nnz, self.n_topics))
        log_joint, rest = np.empty(len(state)), np.empty(len(state))
        for d, s in enumerate(inv_temp):
            here = slice(data.indptr[d], data.indptr[d + 1])
            gamma[d], tokens[here], log_joint[d], rest[d] = update_document(
                self, data.data[here], log_beta[place[here]], s, gamma[d]
            )

        def add_statistics(weights: np.ndarray, out: Globals) -> None:
            weighted = np.repeat(weights, np.diff(data.indptr))
            indptr = np.arange(data.nnz + 1)
            matrix = sp.csr_array((weighted, data.indices, indptr), shape=(data.nnz, len(out[0])))
            out[0][...] += matrix.T @ tokens

        return Local(add_statistics, log_joint, rest, gamma)

    def global_elbo(self, lam: Globals, data: sp.csr_array) -> float:
        """Return minus the divergence of q(beta) from its prior."""
        return -dirichlet_kl(lam[0], self.word_prior)

    def log_partition(self, data: sp.csr_array, temperatures: np.ndarray) -> np.ndarray:
        """Return the larger of two lower bounds in closed form.

        Jensen's N_tot log E[sum_kv (theta_k beta_kv)^(1/T)], and `log_one_topic`.
        """
        inv_temps = 1.0 / np.asarray(temperatures, dtype=float)
        jensen = data.sum() * self.log_partition_per_word(data.shape[1], inv_temps)
        return np.maximum(jensen, self.log_one_topic(data, inv_temps))

    def log_one_topic(self, data: sp.csr_array, inv_temps: np.ndarray) -> np.ndarray:
        """Return the log of the part of C(T) in which all words of a corpus have one topic."""
        lengths, size, n_words = data.sum(axis=1), self.n_topics, data.shape[1]
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
        return value

    def normalizer_table(
        self, lam: Globals, data: sp.csr_array, inv_temps: np.ndarray
    ) -> np.ndarray:
        """Return log sum_v E[beta_kv^s] at a few s between the extremes, shape (nodes, K)."""
        total = lam[0].sum(axis=0)
        moments = (log_moment(lam[0], total, s) for s in _nodes(inv_temps))
        return np.stack([logsumexp(moment, axis=0) for moment in moments])

    def log_normalizers(
        self, table: np.ndarray, data: sp.csr_array, state: np.ndarray, inv_temps: np.ndarray
    ) -> np.ndarray:
        """Return N_d log sum_kv E[theta_k^s] E[beta_kv^s], not below the expected normalizer.

        Computed at a few s = 1/T, and by cubic splines in log s between them.
        """
        total, nodes = state.sum(axis=1)[:, None], _nodes(inv_temps)
        per_word = np.stack(
            [
                logsumexp(log_moment(state, total, s) + words, axis=1)
                for s, words in zip(nodes, table, strict=True)
            ],
            axis=1,
        )
        if len(nodes) > 1:
            per_word = CubicSpline(np.log(nodes), per_word, axis=1)(np.log(inv_temps))
        return data.sum(axis=1)[:, None] * per_word

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

    def log_predictive(self, lam: Globals, data: sp.csr_array) -> np.ndarray:
        """Return the log-likelihood of the held-out half of each document, by completion.

        :func:`document_completion` gives it per word.
        """
        return complete_documents(self, lam, data)[0]


def update_document(
    model: "LDA", counts: np.ndarray, log_beta: np.ndarray, inv_temp: float, gamma: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Iterate q(z) and q(theta) of a document of W different words.

    Equations (19) of Mandt et al. (2016), for a word at a time: there is no n_dv in the exponent
    of q(z), since every one of the n_dv tokens has its own z.

    Parameters
    ----------
    model : LDA
    counts : ndarray, shape (W,)
    log_beta : ndarray, shape (W, K)
        E[log beta] of the words.
    inv_temp : float
    gamma : ndarray, shape (K,)
        Where the iterations start.

    Returns
    -------
    gamma : ndarray, shape (K,)
    tokens : ndarray, shape (W, K)
        Counts times q(z).
    log_joint, rest : float
        See `Local`.
    """
    alpha, size = model.topic_prior, model.n_topics
    best = log_beta.max(axis=1)
    beta = np.exp(inv_temp * (log_beta - best[:, None]))  # over its largest: nothing underflows
    for _ in range(model.max_iter):
        log_theta = digamma(gamma)  # up to a constant, which theta does not need
        theta = np.exp(inv_temp * (log_theta - log_theta.max()))
        old, gamma = gamma, alpha + inv_temp * theta * ((counts / (beta @ theta)) @ beta)
        if np.abs(gamma - old).sum() < model.tol * size:
            break
    log_theta = digamma(gamma) - digamma(gamma.sum())
    top = log_theta.max()
    theta = np.exp(inv_temp * (log_theta - top))
    norm = beta @ theta
    tokens = (counts / norm)[:, None] * beta * theta
    log_joint = (tokens * log_beta).sum() + tokens.sum(axis=0) @ log_theta
    entropy = counts @ (np.log(norm) + inv_temp * (best + top)) - inv_temp * log_joint
    prior = gammaln(size * alpha) - size * gammaln(alpha) + (alpha - gamma) @ log_theta
    return gamma, tokens, log_joint, entropy + prior + gammaln(gamma).sum() - gammaln(gamma.sum())


def _nodes(inv_temps: np.ndarray) -> np.ndarray:
    """Return the s, increasing, at which the moments of theta and beta are computed."""
    if len(inv_temps) == 1:
        return np.asarray(inv_temps, dtype=float)
    low, high = inv_temps.min(), inv_temps.max()
    return np.geomspace(low, high, MIN_NODES + int(MORE_NODES * np.log(high / low) / np.log(100.0)))
