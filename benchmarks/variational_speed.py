"""LDA at T = 1 beside scikit-learn.

Imported by `variational.py`, which has the command line.
"""

import argparse
from time import process_time

import numpy as np
import scipy.sparse as sp
from common import Row, save
from corpus import split_corpus
from scipy.special import digamma

from pymc_tempering.variational.conjugate import LDA, document_completion, svi


def scikit_learn(
    train: sp.csr_array, first: np.ndarray, batch_seed: int, own_seed: int, passes: int
) -> tuple[np.ndarray, float]:
    """Return lambda, shape (V, K), of its online LDA from the start `first`, and CPU seconds."""
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(
        first.shape[1], learning_decay=0.7, learning_offset=10.0, total_samples=train.shape[0],
        random_state=own_seed,
    )  # fmt: skip
    model._init_latent_vars(train.shape[1], dtype=np.float64)
    model.components_ = np.ascontiguousarray(first.T)
    expected = digamma(model.components_)
    expected -= digamma(model.components_.sum(axis=1, keepdims=True))
    model.exp_dirichlet_component_ = np.exp(expected)
    rng, seconds = np.random.default_rng(batch_seed), 0.0
    for _ in range(passes):
        for rows in rng.permutation(train.shape[0]).reshape(-1, 100):
            batch = train[rows]
            started = process_time()
            model.partial_fit(batch)
            seconds += process_time() - started
    return np.ascontiguousarray(model.components_.T), seconds


def speed(args: argparse.Namespace) -> None:
    """Run online LDA and scikit-learn's from one start, on the same minibatches."""
    import sklearn

    train, test, name = split_corpus()
    rows: list[Row] = []
    for size in args.topics:
        model = LDA(size)
        for seed in range(args.seed, args.seed + args.repeats):
            first = model.initialize(train, np.random.default_rng(seed))
            started = process_time()
            mine = svi(
                model, train, "vi", iterations=20 * args.passes, batch_size=100, tau=10.0,
                kappa=0.7, initial=first, random_seed=seed, elbo_every=0,
            )  # fmt: skip
            ours = process_time() - started
            theirs, seconds = scikit_learn(train, first[0], seed, seed, args.passes)
            twin, _ = scikit_learn(train, first[0], seed, 10_000 + seed, args.passes)
            ours_p, theirs_p, twin_p = (
                float(np.exp(-document_completion(model, (lam,), test)))
                for lam in (mine.lam[0], theirs, twin)
            )
            rows.append(
                {
                    "K": size, "seed": seed, "seconds": ours, "scikit-learn": seconds,
                    "ratio": seconds / ours, "perplexity": f"{ours_p:.1f}",
                    "its perplexity": f"{theirs_p:.1f}",
                    "difference": f"{ours_p / theirs_p - 1.0:.2%}",
                    "its own": f"{twin_p / theirs_p - 1.0:.2%}",
                }
            )  # fmt: skip
            print(rows[-1], flush=True)
    settings = {
        "corpus": f"{name}, {train.shape[0]} documents, {args.passes} passes, minibatches of 100",
        "scikit-learn": f"{sklearn.__version__}, partial_fit on the same minibatches from the same "
        "start; alpha = eta = 1/K, tau = 10, kappa = 0.7, 100 iterations or a mean change of 0.001 "
        "in the local step",
        "seconds": "CPU time, one core each (its n_jobs is None)",
        "its own": "scikit-learn beside itself with another random_state, from which it "
        "draws the first gamma of each document; ours is 1",
    }
    for size in args.topics:
        mine = [row for row in rows if row["K"] == size]
        ours, theirs = (
            np.mean([float(row[name]) for row in mine]) for name in ("perplexity", "its perplexity")
        )
        settings[f"mean perplexity, K = {size}"] = (
            f"{ours:.1f}, scikit-learn {theirs:.1f}: {ours / theirs - 1.0:.2%}"
        )
    save(
        "variational_lda_speed", rows, args.out, "Online LDA at T = 1 beside scikit-learn", settings
    )
