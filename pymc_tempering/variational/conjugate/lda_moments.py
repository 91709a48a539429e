"""Compiled moments of topics and of documents' topics, for the normalizers of LDA's documents."""

import numpy as np
from numba import float64, void

from pymc_tempering.model.jit import njit
from pymc_tempering.variational.conjugate.special import exp, log, log_gamma

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
