"""The Associated Press corpus, or documents drawn from LDA where it is missing."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class Text:
    """Documents to fit, to choose settings by, and to judge by; and the name of the corpus."""

    train: sp.csr_array
    validation: sp.csr_array
    test: sp.csr_array
    name: str


def corpus() -> tuple[sp.csr_array, str]:
    """Return the Associated Press corpus, or documents drawn from LDA where it is missing."""
    folder = Path(os.environ.get("PMT_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "ap.dat").exists():
        rng = np.random.default_rng(0)
        topics = rng.dirichlet(np.full(5000, 0.05), size=40)
        shares = rng.dirichlet(np.full(40, 0.1), size=2200)
        return sp.csr_array(np.array([rng.multinomial(150, s @ topics) for s in shares])), "drawn"
    indptr, indices, counts = [0], [], []
    for line in (folder / "ap.dat").read_text().splitlines():
        for pair in line.split()[1:]:
            word, count = pair.split(":")
            indices.append(int(word))
            counts.append(float(count))
        indptr.append(len(indices))
    matrix = sp.csr_array((counts, indices, indptr))
    return matrix[np.flatnonzero(matrix.sum(axis=1))], "Associated Press (ap.dat)"


def split_corpus() -> tuple[sp.csr_array, sp.csr_array, str]:
    """Return 2000 documents to fit, the others, and the name of the corpus."""
    matrix, name = corpus()
    order = np.random.default_rng(0).permutation(matrix.shape[0])
    return matrix[np.sort(order[:2000])], matrix[np.sort(order[2000:])], name


def split_text() -> Text:
    """Return 250 documents to choose settings by, 250 to judge by, and the others to fit."""
    matrix, name = corpus()
    order = np.random.default_rng(0).permutation(matrix.shape[0])
    validation, test, train = (
        matrix[np.sort(rows)] for rows in (order[:250], order[250:500], order[500:])
    )
    return Text(train, validation, test, name)
