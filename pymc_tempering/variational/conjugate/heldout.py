"""Held-out likelihood of a topic model by document completion (Hoffman et al. 2013)."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from pymc_tempering.variational.conjugate.arrays import check_width
from pymc_tempering.variational.conjugate.protocol import ConjugateModel, Globals
from pymc_tempering.variational.conjugate.word_counts import take_documents


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
