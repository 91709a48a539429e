"""Compiled local step of latent Dirichlet allocation, and the moments for its normalizers."""

import math
from typing import NamedTuple

import numpy as np
from numba import float64, int64, types, void

from pymc_tempering.model.jit import njit
from pymc_tempering.variational.conjugate.protocol import LOCAL_ROWS
from pymc_tempering.variational.conjugate.special import exp, log, log_gamma, psi

VECTOR, MATRIX, INDICES = float64[::1], float64[:, ::1], int64[::1]
SUMS = {"reassoc", "contract"}  # sums in any order, so that they use vector instructions


class Documents(NamedTuple):
    """Counts of words in some documents.

    Those of document d are `counts[indptr[d] : indptr[d + 1]]`, and `words` has their rows in a
    `WordTable`.
    """

    counts: np.ndarray
    words: np.ndarray
    indptr: np.ndarray


class WordTable(NamedTuple):
    """E[log beta] of the R words that occur in some documents.

    `vocabulary` (R,) holds their columns in the corpus, `log_beta` (R, K) is E[log beta], `top`
    (R,) its largest value over topics. `softened` (R, K) is exp((log_beta - top) / T) at the
    temperature that all documents share; it has no rows if each document has its own.
    """

    vocabulary: np.ndarray
    log_beta: np.ndarray
    top: np.ndarray
    softened: np.ndarray


class Document(NamedTuple):
    """One of them, n words long: its softened words (n, K) and its part of the other arrays."""

    words: np.ndarray
    counts: np.ndarray
    ratio: np.ndarray
    softened: np.ndarray


class TopicFactors(NamedTuple):
    """q(z) of a token: `theta` of its document (n, K) times `ratio` of its word times softened."""

    theta: np.ndarray
    ratio: np.ndarray


class LocalRule(NamedTuple):
    """The concentration `alpha` of theta's prior, and where the iterations of gamma stop."""

    alpha: float
    max_iter: int
    tol: float


DOCUMENTS = types.NamedTuple((VECTOR, INDICES, INDICES), Documents)
WORD_TABLE = types.NamedTuple((INDICES, MATRIX, VECTOR, MATRIX), WordTable)
DOCUMENT = types.NamedTuple((INDICES, VECTOR, VECTOR, MATRIX), Document)
TOPIC_FACTORS = types.NamedTuple((MATRIX, VECTOR), TopicFactors)
LOCAL_RULE = types.NamedTuple((float64, int64, float64), LocalRule)


@njit(
    float64(VECTOR),
    error_model="numpy",
    fastmath={"nnan", "nsz", "reassoc"},
)
def _largest(values):  # type: ignore[no-untyped-def]
    top = -np.inf
    for k in range(values.size):
        top = max(top, values[k])
    return top


@njit(void(MATRIX, VECTOR, float64, WORD_TABLE, int64, int64), error_model="numpy")
def fill_word_table(lam, psi_total, s, table, first, last):  # type: ignore[no-untyped-def]
    """Write rows `first` to `last` of a table, at the inverse temperature `s` of all documents."""
    words, out, top, softened = table.vocabulary, table.log_beta, table.top, table.softened
    for i in range(first, last):
        row, own = lam[words[i]], out[i]
        for k in range(row.size):
            own[k] = psi(row[k]) - psi_total[k]
        top[i] = _largest(own)
        if softened.shape[0]:
            soft = softened[i]
            for k in range(row.size):
                soft[k] = exp(s * (own[k] - top[i]))


@njit(void(VECTOR, VECTOR), error_model="numpy", fastmath=SUMS)
def _expected_log(gamma, out):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(gamma.size):
        total += gamma[k]
    shift = psi(total)
    for k in range(gamma.size):
        out[k] = psi(gamma[k]) - shift


@njit(float64(VECTOR, float64, VECTOR), error_model="numpy")
def _soften(log_theta, s, out):  # type: ignore[no-untyped-def]
    """Write exp(s * (log_theta - top)); return top, so that nothing underflows."""
    top = _largest(log_theta)
    for k in range(log_theta.size):
        out[k] = exp(s * (log_theta[k] - top))
    return top


@njit(void(DOCUMENT, WORD_TABLE, float64), error_model="numpy", fastmath=SUMS)
def _soften_words(document, word_table, s):  # type: ignore[no-untyped-def]
    """Write exp(s * (E[log beta] - top)) of the words of a document."""
    log_beta, top, softened = word_table.log_beta, word_table.top, word_table.softened
    size = log_beta.shape[1]
    for w in range(document.words.size):
        row, soft = document.words[w], document.softened[w]
        if softened.shape[0]:
            shared = softened[row]
            for k in range(size):
                soft[k] = shared[k]
        else:
            for k in range(size):
                soft[k] = exp(s * (log_beta[row, k] - top[row]))


@njit(void(VECTOR, DOCUMENT, VECTOR), error_model="numpy", fastmath=SUMS)
def _assign_words(theta, document, out):  # type: ignore[no-untyped-def]
    """Sum q(z) over words without its factor theta: sum_v n_v table_vk / (theta . table_v).

    Also writes the ratios n_v / (theta . table_v).
    """
    count, table, ratio = document.counts, document.softened, document.ratio
    size, n_words = theta.size, count.size
    for k in range(size):
        out[k] = 0.0
    whole = n_words - n_words % 4
    for w in range(0, whole, 4):  # four rows at a time: fewer passes over theta and out
        a, b, c, d = table[w], table[w + 1], table[w + 2], table[w + 3]
        sum_a, sum_b, sum_c, sum_d = 0.0, 0.0, 0.0, 0.0
        for k in range(size):
            sum_a += theta[k] * a[k]
            sum_b += theta[k] * b[k]
            sum_c += theta[k] * c[k]
            sum_d += theta[k] * d[k]
        r_a, r_b = count[w] / sum_a, count[w + 1] / sum_b
        r_c, r_d = count[w + 2] / sum_c, count[w + 3] / sum_d
        ratio[w], ratio[w + 1], ratio[w + 2], ratio[w + 3] = r_a, r_b, r_c, r_d
        for k in range(size):
            out[k] += (r_a * a[k] + r_b * b[k]) + (r_c * c[k] + r_d * d[k])
    for w in range(whole, n_words):
        norm = 0.0
        for k in range(size):
            norm += theta[k] * table[w, k]
        ratio[w] = count[w] / norm
        for k in range(size):
            out[k] += ratio[w] * table[w, k]


@njit(
    types.UniTuple(float64, 2)(DOCUMENT, WORD_TABLE, VECTOR, float64, float64),
    error_model="numpy",
    fastmath=SUMS,
)
def _word_terms(document, word_table, theta, s, best):  # type: ignore[no-untyped-def]
    """Return E[log beta] of the tokens of a document, and the sum of log normalizers of q(z).

    `theta` is softened, and `best` the largest E[log theta], which it was divided by.
    """
    joint, bound = 0.0, 0.0
    for w in range(document.words.size):
        row, soft, ratio = document.words[w], document.softened[w], document.ratio[w]
        count, expected, inner = document.counts[w], word_table.log_beta[row], 0.0
        for k in range(theta.size):
            inner += theta[k] * soft[k] * expected[k]
        joint += ratio * inner
        bound += count * (log(count / ratio) + s * (word_table.top[row] + best))
    return joint, bound


@njit(
    void(DOCUMENTS, WORD_TABLE, VECTOR, LOCAL_RULE, TOPIC_FACTORS, LOCAL_ROWS, int64, int64),
    error_model="numpy",
    fastmath=SUMS,
)
def update_documents(  # type: ignore[no-untyped-def]
    documents, word_table, inv_temp, rule, factors, rows, first, last
):
    """Iterate q(z) and q(theta) of documents `first` to `last` until the mean change is below tol.

    Equations (19) of Mandt et al. (2016), for a word at a time: there is no n_dv in the exponent
    of q(z), since every one of the n_dv tokens has its own z.

    The state of `rows` is gamma, from which the iterations start; `factors` are written for
    `add_word_statistics`.
    """
    counts, indptr, alpha = documents.counts, documents.indptr, rule.alpha
    gamma, size = rows.state, rows.state.shape[1]
    longest = 0
    for d in range(first, last):
        longest = max(longest, indptr[d + 1] - indptr[d])
    table = np.empty((longest, size))
    log_theta, total = np.empty(size), np.empty(size)
    constant = math.lgamma(size * alpha) - size * math.lgamma(alpha)
    for d in range(first, last):
        here, s, own = slice(indptr[d], indptr[d + 1]), inv_temp[d], factors.theta[d]
        document = Document(
            documents.words[here], counts[here], factors.ratio[here], table[: counts[here].size]
        )
        _soften_words(document, word_table, s)
        for _ in range(rule.max_iter):
            _expected_log(gamma[d], log_theta)
            _soften(log_theta, s, own)
            _assign_words(own, document, total)
            change = 0.0
            for k in range(size):
                new = alpha + s * own[k] * total[k]
                change += abs(new - gamma[d, k])
                gamma[d, k] = new
            if change < rule.tol * size:
                break
        _expected_log(gamma[d], log_theta)
        best = _soften(log_theta, s, own)
        _assign_words(own, document, total)
        joint, bound = _word_terms(document, word_table, own, s, best)
        prior, gamma_total = constant, 0.0
        for k in range(size):
            joint += own[k] * total[k] * log_theta[k]
            prior += (alpha - gamma[d, k]) * log_theta[k] + log_gamma(gamma[d, k])
            gamma_total += gamma[d, k]
        rows.log_joint[d] = joint
        rows.rest[d] = bound - s * joint + prior - math.lgamma(gamma_total)


@njit(
    void(DOCUMENTS, WORD_TABLE, VECTOR, TOPIC_FACTORS, VECTOR, MATRIX),
    error_model="numpy",
)
def add_word_statistics(  # type: ignore[no-untyped-def]
    documents, word_table, inv_temp, factors, weights, out
):
    """Add sum_d weight_d n_dv q(z_dvk) to `out`, shape (V, K)."""
    words, indptr, vocabulary = documents.words, documents.indptr, word_table.vocabulary
    log_beta, top, softened = word_table.log_beta, word_table.top, word_table.softened
    theta, ratio = factors.theta, factors.ratio
    size = theta.shape[1]
    partial = np.zeros((vocabulary.size, size))
    for d in range(weights.size):
        for w in range(indptr[d], indptr[d + 1]):
            row, factor = words[w], weights[d] * ratio[w]
            if softened.shape[0]:
                for k in range(size):
                    partial[row, k] += factor * theta[d, k]
            else:
                for k in range(size):
                    soft = exp(inv_temp[d] * (log_beta[row, k] - top[row]))
                    partial[row, k] += factor * theta[d, k] * soft
    for row in range(vocabulary.size):
        for k in range(size):
            soft = softened[row, k] if softened.shape[0] else 1.0
            out[vocabulary[row], k] += soft * partial[row, k]


VECTOR, MATRIX = float64[::1], float64[:, ::1]


@njit(void(MATRIX, VECTOR, MATRIX), error_model="numpy")
def add_word_moments(lam, powers, out):  # type: ignore[no-untyped-def]
    """Add sum_v Gamma(lam_vk + s) / Gamma(lam_vk) to `out`, shape (S, K), for each power s."""
    size = lam.shape[1]
    base = np.empty(size)
    for v in range(lam.shape[0]):
        row = lam[v]
        for k in range(size):
            base[k] = log_gamma(row[k])
        for i in range(powers.size):
            s, own = powers[i], out[i]
            for k in range(size):
                own[k] += exp(log_gamma(row[k] + s) - base[k])


@njit(void(MATRIX, VECTOR, MATRIX, MATRIX), error_model="numpy", fastmath={"reassoc", "contract"})
def log_topic_moments(gamma, powers, table, out):  # type: ignore[no-untyped-def]
    """Write log sum_k exp(table_sk) Gamma(gamma_dk + s) / Gamma(gamma_dk), shape (n, S)."""
    size = gamma.shape[1]
    base = np.empty(size)
    for d in range(gamma.shape[0]):
        row = gamma[d]
        for k in range(size):
            base[k] = log_gamma(row[k])
        for i in range(powers.size):
            s, own, total = powers[i], table[i], 0.0
            for k in range(size):
                total += exp(log_gamma(row[k] + s) - base[k] + own[k])
            out[d, i] = log(total)
