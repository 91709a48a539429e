"""LDA: local step against plain NumPy and scikit-learn, and held-out words."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import entr, gammaln, logsumexp
from sklearn.decomposition import LatentDirichletAllocation
from support.conjugate_models import documents, expected_log

from pymc_tempering.exceptions import DataError
from pymc_tempering.variational.conjugate import LDA, document_completion, svi
from pymc_tempering.variational.conjugate.lda import split_documents
from pymc_tempering.variational.conjugate.protocol import log_moment


def plain_document(model, lam, counts, s, *, paper=False):
    """Local step of one document in plain NumPy: gamma, E[log p(w, z)], rest, E[t].

    `paper` puts n_dv into the exponent of q(z), as equation (19) is printed.
    """
    log_beta, gamma = expected_log(lam[0].T), np.ones(model.n_topics)
    power = np.where(counts > 0, counts, 1) if paper else 1.0
    for _ in range(5000):
        log_p = expected_log(gamma)[:, None] + log_beta
        phi = np.exp(s * power * (log_p - log_p.max(axis=0)))
        phi /= phi.sum(axis=0)
        new = model.topic_prior + s * (phi * counts).sum(axis=1)
        done, gamma = np.abs(new - gamma).max() < 1e-12, new
        if done:
            break
    log_theta, a = expected_log(gamma), model.topic_prior
    log_p = log_theta[:, None] + log_beta
    phi = np.exp(s * power * (log_p - log_p.max(axis=0)))
    phi /= phi.sum(axis=0)
    entropy = (counts * entr(phi)).sum()
    prior = gammaln(a * gamma.size) - gamma.size * gammaln(a) + (a - 1) * log_theta.sum()
    q = gammaln(gamma.sum()) - gammaln(gamma).sum() + ((gamma - 1) * log_theta).sum()
    return gamma, (counts * phi * log_p).sum(), entropy + prior - q, (counts * phi).T


@pytest.mark.parametrize("temperatures", ["one", "shared", "own"])
def test_local_step_is_that_of_plain_numpy(temperatures):
    counts, rng = documents(12), np.random.default_rng(1)
    model = LDA(4, alpha=0.3, eta=0.2, tol=1e-12, max_iter=5000)
    data = model.check(counts)
    lam = (rng.gamma(0.5, 2.0, size=(30, 4)) + 0.01,)
    inv_temp = {"one": np.ones(12), "shared": np.full(12, 0.4), "own": rng.uniform(0.1, 1.0, 12)}
    s, weights = inv_temp[temperatures], rng.uniform(size=12)
    local = model.local_step(lam, data, s, model.start_local(data))
    statistics, total = np.zeros((30, 4)), np.zeros((30, 4))
    local.add_statistics(weights, (statistics,))
    for d in range(12):
        gamma, joint, rest, t = plain_document(model, lam, counts[d], s[d])
        np.testing.assert_allclose(local.state[d], gamma, rtol=1e-8)
        assert local.log_joint[d] == pytest.approx(joint, rel=1e-9)
        assert local.rest[d] == pytest.approx(rest, rel=1e-8, abs=1e-8)
        total += weights[d] * t
    np.testing.assert_allclose(statistics, total, rtol=1e-8, atol=1e-12)


def test_counts_in_the_exponent_as_printed_do_not_give_the_optimum():
    """Planted: equation (19) with n_dv in the exponent of q(z) has a lower ELBO."""
    counts, rng = documents(12), np.random.default_rng(1)
    model, lam = LDA(4, alpha=0.3), (rng.gamma(0.5, 2.0, size=(30, 4)) + 0.01,)
    right, printed = (
        [sum(plain_document(model, lam, n, 1.0, paper=p)[1:3]) for n in counts]
        for p in (False, True)
    )
    assert (np.array(right) > np.array(printed) + 0.01).all()


def test_online_updates_are_those_of_scikit_learn():
    counts = documents(80)
    model = LDA(3, alpha=0.4, eta=0.3, tol=1e-7, max_iter=1000)
    theirs = LatentDirichletAllocation(
        3,
        doc_topic_prior=0.4,
        topic_word_prior=0.3,
        learning_offset=5.0,
        learning_decay=0.8,
        total_samples=80,
        mean_change_tol=1e-7,
        max_doc_update_iter=1000,
        random_state=0,
    )
    first = model.initialize(model.check(counts), np.random.default_rng(7))
    settings = {"batch_size": 20, "tau": 5.0, "kappa": 0.8, "initial": first, "random_seed": 3}
    mine = svi(model, counts, "vi", iterations=4, **settings)
    theirs._init_latent_vars(30, dtype=np.float64)
    theirs.components_ = first[0].T.copy()
    theirs.exp_dirichlet_component_ = np.exp(expected_log(theirs.components_))
    for rows in np.random.default_rng(3).permutation(80).reshape(4, 20):
        theirs.partial_fit(counts[rows])
    np.testing.assert_allclose(mine.lam[0].T, theirs.components_, rtol=2e-4)
    assert not np.allclose(mine.lam[0], first[0], rtol=0.1)
    other = svi(model, counts, "vi", iterations=4, **(settings | {"tau": 6.0}))
    assert not np.allclose(other.lam[0].T, theirs.components_, rtol=2e-3)  # planted: another rate


def test_held_out_halves_share_no_word_and_make_up_the_document():
    counts = LDA(2).check(documents(40))
    observed, held_out = split_documents(counts, np.random.default_rng(0))
    assert (observed + held_out != counts).nnz == 0
    assert observed.multiply(held_out).nnz == 0
    words = np.diff(counts.indptr)
    assert (np.diff(held_out.indptr) == words // 2).all()


def test_completion_with_one_topic_is_the_likelihood_of_its_words():
    counts, lam = documents(30), (np.random.default_rng(0).gamma(2.0, size=(30, 1)),)
    _, held_out = split_documents(LDA(1).check(counts), np.random.default_rng(4))
    words = np.asarray(held_out.sum(axis=0))
    exact = (words @ np.log(lam[0] / lam[0].sum()))[0] / words.sum()
    value = document_completion(LDA(1), lam, counts, random_seed=4)
    assert value == pytest.approx(exact, rel=1e-12)


def test_completion_prefers_the_topics_that_made_the_documents():
    counts = documents(300, length=60)
    fit = svi(LDA(2), counts[:200], "vi", iterations=100, random_seed=1)
    flat = (np.asarray(counts[:200].sum(axis=0), float)[:, None] + np.full((1, 2), 0.5),)
    right, wrong = (document_completion(LDA(2), lam, counts[200:]) for lam in (fit.lam, flat))
    assert right > wrong + 0.2
    log_p = fit.log_predictive(counts[200:])
    assert log_p.shape == (100,)
    assert log_p.sum() == pytest.approx(
        right * split_documents(LDA(2).check(counts[200:]), np.random.default_rng(0))[1].sum()
    )


def test_local_normalizers_are_the_bound_without_splines():
    counts, model = documents(5), LDA(3, alpha=0.3)
    data, rng = model.check(counts), np.random.default_rng(0)
    lam, gamma = (rng.gamma(0.3, 3.0, size=(30, 3)) + 0.01,), rng.gamma(1.0, 5.0, size=(5, 3))
    inv_temps = np.linspace(1.0, 0.01, 100)
    table = model.normalizer_table(lam, data, inv_temps)
    stated = model.log_normalizers(table, data, gamma, inv_temps)
    words = [logsumexp(log_moment(lam[0], lam[0].sum(axis=0), s), axis=0) for s in inv_temps]
    topics = [log_moment(gamma, gamma.sum(axis=1)[:, None], s) for s in inv_temps]
    exact = 25 * np.stack(
        [logsumexp(t + w, axis=1) for t, w in zip(topics, words, strict=True)], axis=1
    )
    np.testing.assert_allclose(stated, exact, atol=0.02)
    # not below the expectation of the log of the normalizer, by Monte Carlo
    beta = np.array([[rng.dirichlet(a) for a in lam[0].T] for _ in range(400)])
    theta = np.array([rng.dirichlet(gamma[0]) for _ in range(400)])
    log_c = 25 * np.log(np.einsum("ik,ikv->i", theta**0.5, beta**0.5))
    assert log_c.mean() < np.interp(0.5, inv_temps[::-1], stated[0, ::-1])


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ([[1, -2], [1, 1]], "document 0 has a count of -2 for word 1"),
        ([[1, 2], [0.5, 1]], "document 1 has a count of 0.5 for word 0"),
        ([[1, np.inf]], "count of inf"),
        ([[1, np.nan]], "count of nan"),
        ([[1, 2], [0, 0], [0, 0]], "2 of 3 documents are empty, the first is document 1"),
        ([1, 2], "matrix of numbers"),
        ([["a", "b"]], "matrix of numbers"),
        (np.empty((0, 3)), "shape"),
    ],
)
def test_bad_counts_are_refused(counts, words):
    with pytest.raises(DataError, match=words):
        svi(LDA(2), counts)
    if np.ndim(counts) == 2 and np.size(counts) and np.issubdtype(np.array(counts).dtype, float):
        with pytest.raises(DataError, match=words):
            svi(LDA(2), sp.csr_array(np.array(counts)))


def test_a_vocabulary_of_another_size_is_refused():
    with pytest.raises(DataError, match="vocabulary has 3 words and the counts 2"):
        svi(LDA(2, vocabulary=("a", "b", "c")), [[1, 2]])


def test_words_and_stored_zeros_are_kept_apart():
    counts = sp.csr_array(documents(20).astype(float))
    padded = counts.copy()
    padded.data = np.where(np.arange(padded.nnz) % 7 == 0, 0.0, padded.data)
    clean = padded.copy()
    clean.eliminate_zeros()
    a, b = (svi(LDA(2), x, "vi", iterations=300, random_seed=0) for x in (padded, clean))
    np.testing.assert_array_equal(a.lam[0], b.lam[0])
    named = svi(
        LDA(2, vocabulary=tuple(f"w{i}" for i in range(30))),
        clean,
        "vi",
        iterations=300,
        random_seed=0,
    )
    np.testing.assert_allclose(
        named.posterior["topics"].sel(word="w3"), b.posterior["topics"][:, 3]
    )
