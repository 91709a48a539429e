"""Compiled local step of latent Dirichlet allocation, and the moments for its normalizers."""

import math
from typing import NamedTuple

import numpy as np
from numba import float64, int64, types, void

from pymc_tempering.model.jit import njit
from pymc_tempering.variational.conjugate.protocol import LOCAL_ROWS

LOG2_E, LN2 = 1.4426950408889634, 0.6931471805599453
LN2_HIGH, LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # their sum is LN2, to 86 bits
ROUND = 6755399441055744.0  # 1.5 * 2^52: a number added to it is rounded to a whole one
ONE_BITS = 1023 << 52
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
HALF_LOG_2_PI = 0.9189385332046727
LOWEST = -708.0
"""Below this, exp is 0: its result would be subnormal."""


@njit(float64(float64), error_model="numpy", fastmath={"contract"})
def exp(x):  # type: ignore[no-untyped-def]
    """Return exp(x) for x up to 709, to about 1e-15 relatively; 0 below -708."""
    shifted = x * LOG2_E + ROUND
    power = shifted - ROUND
    r = (x - power * LN2_HIGH) - power * LN2_LOW
    p = 1.0 / 39916800 + r / 479001600
    p = 1.0 / 362880 + r * (1.0 / 3628800 + r * p)
    p = 1.0 / 5040 + r * (1.0 / 40320 + r * p)
    p = 1.0 / 120 + r * (1.0 / 720 + r * p)
    p = 1.0 / 6 + r * (1.0 / 24 + r * p)
    p = 1.0 + r * (1.0 + r * (0.5 + r * p))
    value = p * np.int64((np.float64(shifted).view(np.int64) << 52) + ONE_BITS).view(np.float64)
    return 0.0 if x < LOWEST else value


@njit(float64(float64), error_model="numpy", fastmath={"contract"})
def log(x):  # type: ignore[no-untyped-def]
    """Return log(x) for normal x > 0, to about 1e-15 of the larger of 1 and its size."""
    bits = np.float64(x).view(np.int64)
    power = (bits - SQRT_HALF_BITS) >> 52
    m = np.int64(bits - (power << 52)).view(np.float64)
    f = (m - 1.0) / (m + 1.0)
    z = f * f
    p = 1.0 / 15 + z * (1.0 / 17 + z / 19.0)
    p = 1.0 / 9 + z * (1.0 / 11 + z * (1.0 / 13 + z * p))
    p = 1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * p))
    return power * LN2 + 2.0 * f * (1.0 + z * p)


@njit(float64(float64), error_model="numpy", fastmath={"contract"})
def psi(x):  # type: ignore[no-untyped-def]
    """Digamma of x > 0: six steps of its recurrence in one division, then the asymptotic series."""
    a, b, c = x * (x + 5.0), (x + 1.0) * (x + 4.0), (x + 2.0) * (x + 3.0)
    # sum of 1 / (x + i), i = 0 to 5, paired so that each pair has the numerator 2 x + 5
    steps = (2.0 * x + 5.0) * (b * c + a * c + a * b) / (a * b * c)
    y = 1.0 / (x + 6.0)
    z = y * y
    series = 1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760)))
    series = z * (1.0 / 12 - z * (1.0 / 120 - z * series))
    return log(x + 6.0) - 0.5 * y - series - steps


@njit(float64(float64), error_model="numpy", fastmath={"contract"})
def log_gamma(x):  # type: ignore[no-untyped-def]
    """Log of the gamma function of 0 < x < 1e50: six steps of its recurrence, then Stirling."""
    product = x * (x + 5.0) * ((x + 1.0) * (x + 4.0)) * ((x + 2.0) * (x + 3.0))
    shifted = x + 6.0
    y = 1.0 / shifted
    z = y * y
    series = 1.0 / 1260 - z * (1.0 / 1680 - z * (1.0 / 1188 - z * (691.0 / 360360)))
    series = y * (1.0 / 12 - z * (1.0 / 360 - z * series))
    return (shifted - 0.5) * log(shifted) - shifted + HALF_LOG_2_PI + series - log(product)


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
