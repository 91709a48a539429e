"""LDA on corpora that grow: which method is best in held-out words with 10 and 100 times the text.

Topics are fitted to the Associated Press corpus, and documents of the same lengths are drawn from
them: as many as the corpus has, and more. So the truth is known: the held-out likelihood of the
topics themselves is what no fit can be expected to exceed, and a topic is found where its words are
nearly those of a fitted one. Settings are those that the validation documents of the corpus chose
(`variational.py lda`). Minibatches alone: no method ends with batch iterations.
"""

import argparse
import warnings
from pathlib import Path
from time import process_time

import numpy as np
import scipy.sparse as sp
from common import RESULTS, Row, save
from corpus import split_text
from scipy.optimize import linear_sum_assignment
from scipy.stats import sem
from threadpoolctl import threadpool_limits
from variational_runs import LVT, VT, annealed

from pymc_tempering.exceptions import TemperingWarning
from pymc_tempering.variational.conjugate import LDA, document_completion, svi

SIZE, PRIOR, BATCH = 50, 0.1, 100
RATE = {"tau": 4.0, "kappa": 0.6}
N_TEST, NEAR, USED = 500, 0.8, 0.005
METHODS = {
    "SVI": {"method": "vi"},
    "AVI 1.25": annealed(0.75, 1.25),
    "AVI 1.5": annealed(0.75, 1.5),
    "VT": {"method": VT, "temperatures": np.geomspace(1.0, 1.25, 50), "damping": 0.95},
    "LVT": {"method": LVT, "temperatures": 1.0 / np.linspace(1.0, 0.667, 50), "update_every": 20},
}
CORNERS = {"LVT to 0.5": METHODS["LVT"] | {"temperatures": 1.0 / np.linspace(1.0, 0.5, 50)}}


def fitted_topics(counts: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Topics (V, K) that a long annealed fit finds in the corpus, and how often each is used."""
    model = LDA(SIZE, alpha=PRIOR, eta=PRIOR)
    steps = 25 * -(-counts.shape[0] // BATCH)
    options = annealed(18.75, 1.25) | RATE
    fit = svi(
        model, counts, iterations=steps, batch_size=BATCH, random_seed=1, elbo_every=0, **options
    )
    size = fit.lam[0].sum(axis=0)
    return fit.lam[0] / size, size / size.sum()


def draw_documents(
    topics: np.ndarray, use: np.ndarray, lengths: np.ndarray, n: int, rng: np.random.Generator
) -> sp.csr_array:
    """Draw documents, shape (n, V), with lengths drawn from those of the corpus."""
    length = rng.choice(lengths, n).astype(int)
    shares = rng.dirichlet(SIZE * PRIOR * use, size=n)
    of_topics = rng.multinomial(length, shares)
    document, word = [], []
    for k in range(SIZE):
        edges = np.cumsum(topics[:, k])
        tokens = int(of_topics[:, k].sum())
        word.append(np.searchsorted(edges, edges[-1] * rng.random(tokens)))
        document.append(np.repeat(np.arange(n), of_topics[:, k]))
    where = np.concatenate(document), np.minimum(np.concatenate(word), len(topics) - 1)
    ones = np.ones(len(where[0]))
    return sp.csr_array(sp.coo_array((ones, where), shape=(n, len(topics))))


def n_found(fitted: tuple[np.ndarray, ...], topics: np.ndarray) -> int:
    """Count topics whose words overlap by `NEAR` with those of a fitted one, each used once."""
    own = fitted[0] / fitted[0].sum(axis=0)
    overlap = np.array(
        [np.minimum(topics[:, [k]], own).sum(axis=0) for k in range(topics.shape[1])]
    )
    return int((overlap[linear_sum_assignment(-overlap)] > NEAR).sum())


def one_corpus(
    topics: np.ndarray,
    use: np.ndarray,
    lengths: np.ndarray,
    times: int,
    passes: float,
    args: argparse.Namespace,
) -> list[Row]:
    """Fit one corpus with all methods, from several starts; a row each."""
    rng = np.random.default_rng(times)
    counts = draw_documents(topics, use, lengths, times * len(lengths), rng)
    test = draw_documents(topics, use, lengths, N_TEST, rng)
    model = LDA(SIZE, alpha=PRIOR, eta=PRIOR)
    truth = document_completion(model, (1e9 * topics + 1e-9,), test)
    steps = round(passes * counts.shape[0] / BATCH)
    rows, plain = [], {}
    for name, options in (METHODS | CORNERS).items():
        values, found, seconds = [], [], []
        if "anneal_passes" in options:
            options = options | {"anneal_passes": 0.75 * passes}
        at_one = steps // 4 if options["method"] in (VT, LVT) else 0
        for seed in range(args.seed, args.seed + args.repeats):
            before = process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TemperingWarning)
                fit = svi(
                    model, counts, iterations=steps - at_one, untempered=at_one, batch_size=BATCH,
                    random_seed=seed, elbo_every=0, **RATE, **options,
                )  # fmt: skip
            seconds.append(process_time() - before)
            values.append(document_completion(model, fit.lam, test))
            found.append(n_found(fit.lam, topics[:, use > USED]))
            print(times, name, seed, values[-1], found[-1], round(seconds[-1], 1), flush=True)
        plain.setdefault("SVI", np.array(values))
        less = np.array(values) - plain["SVI"]
        rows.append(
            {
                "documents": counts.shape[0], "passes": passes, "method": name, "starts": len(less),
                "held out": np.mean(values), "below the truth": truth - np.mean(values),
                "above SVI": less.mean(), "its se": sem(less),
                "topics found": np.mean(found), "CPU s": np.mean(seconds),
            }
        )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="starts of every method")
    parser.add_argument("--seed", type=int, default=1, help="first of the consecutive seeds")
    parser.add_argument("--times", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--passes", type=float, nargs="+", default=[25, 5, 1])
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    with threadpool_limits(1):
        text = split_text()
        topics, use = fitted_topics(text.train)
        lengths = np.asarray(text.train.sum(axis=1)).ravel()
        rows: list[Row] = []
        for times, passes in zip(args.times, args.passes, strict=True):
            rows += one_corpus(topics, use, lengths, times, passes, args)
            save(
                "variational_growth",
                rows,
                args.out,
                "LDA on documents drawn from the topics of a corpus",
                {
                    "documents": f"drawn from {SIZE} topics that were fitted to {text.name}, of "
                    "the same lengths",
                    "settings": f"K = {SIZE}, alpha = eta = {PRIOR}, tau = {RATE['tau']:g}, "
                    f"kappa = {RATE['kappa']}, minibatches of {BATCH}; "
                    "VT: T to 1.25; LVT: 1/T to 0.667, and to 0.5; AVI: linear over three quarters "
                    "of the passes",
                    "held out": f"nats per held-out word of {N_TEST} other documents",
                    "below the truth": "what the topics that the documents were drawn from have "
                    "more",
                    "topics found": f"of the {int((use > USED).sum())} that hold more than "
                    f"{USED:.1%} of the words: overlap of the words' probabilities above {NEAR}",
                    "seeds": f"{args.seed} to {args.seed + args.repeats - 1}",
                },
            )


if __name__ == "__main__":
    main()
