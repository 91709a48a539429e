"""LVT on LDA by enumeration: q(z_d) and q(T_d) of small documents whose topics are known."""

import itertools

import numpy as np
import pytest

from pymc_tempering.variational.conjugate import LDA, svi

TOPICS = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
DOCUMENTS = np.array([[3, 1, 0], [1, 0, 3], [0, 6, 0], [2, 2, 2], [0, 1, 0]])
GRID = np.geomspace(1.0, 4.0, 9)


def log_sum_of_states(n_words, inv_temps):
    """Log of the sum of p(w, z)^s over all sequences of words and of topics, theta even."""
    state = np.log(0.5 * TOPICS.ravel())
    log_p = np.array([sum(s) for s in itertools.product(state, repeat=n_words)])
    return np.array([np.log(np.exp(s * log_p).sum()) for s in inv_temps])


def enumerated(document, inv_temps, log_c):
    """E[1/T] of mean-field inference with q(z) a table over all sequences of topics."""
    words = np.repeat(np.arange(3), document)
    z = np.array(list(itertools.product(range(2), repeat=words.size)))
    log_p, inv_temp = np.log(0.5 * TOPICS[z, words]).sum(axis=1), inv_temps.mean()
    for _ in range(500):
        q = np.exp(inv_temp * (log_p - log_p.max()))
        logits = inv_temps * (q / q.sum() @ log_p) - log_c
        r = np.exp(logits - logits.max())
        inv_temp = r / r.sum() @ inv_temps
    return inv_temp


def fitted(documents):
    """E[1/T_d] of `svi` where theta is even and the topics stay where they start."""
    fit = svi(
        LDA(2, alpha=1e9, tol=1e-12, max_iter=1000),
        documents,
        "local_variational_tempering",
        temperatures=GRID,
        initial=(1e9 * TOPICS.T,),
        batch_size=len(documents),
        tau=1e14,
        kappa=1.0,
        iterations=200,
        untempered=0,
    )
    return fit.local_inverse_temperature


def test_local_temperatures_are_those_of_enumeration():
    exact = [enumerated(d, 1.0 / GRID, log_sum_of_states(d.sum(), 1.0 / GRID)) for d in DOCUMENTS]
    assert np.ptp(exact) > 0.1
    np.testing.assert_allclose(fitted(DOCUMENTS), exact, rtol=1e-4)


@pytest.mark.parametrize("n_words", [0, 1])
def test_temperatures_tell_a_wrong_normalizer(n_words):
    """Planted: no normalizer at all, and that of a document of one word."""
    wrong = enumerated(DOCUMENTS[0], 1.0 / GRID, n_words * log_sum_of_states(1, 1.0 / GRID))
    assert abs(fitted(DOCUMENTS[:1])[0] / wrong - 1.0) > 0.03
