"""Machines and data of the RTS paper's figures: those of the data folder, or ones made up.

The folder is $PMT_DATA, or ../shared/data. Without it the machine of Salakhutdinov & Murray (2008)
is replaced by a random one of its size, and digits by strokes: the scripts run, and say so.
"""

import gzip
import os
import sys
from functools import cache
from pathlib import Path

import numpy as np
from scipy.io import loadmat

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from rbm_density import RBM, BernoulliReference, data_marginals
from rbm_training import drawn_bits, first_machine, train
from rts_initial_iterations import initial_iterations

__all__ = [  # what scripts take from examples through this module, which knows the folder
    "RBM",
    "BernoulliReference",
    "digits",
    "drawn_bits",
    "initial_iterations",
    "large_machine",
    "trained_machine",
]  # fmt: skip

DATA = Path(os.environ.get("PMT_DATA", Path(__file__).parents[3] / "shared" / "data"))
TRUE_LOG_Z = 451.27
"""Log Z of the 784 x 500 machine: four long AIS runs gave 451.26 +- 0.05, published is 451.28."""


@cache
def digits() -> tuple[np.ndarray, str]:
    """Digits as means of bits, shape (n, 784), and where they come from."""
    file = DATA / "mnist_t10k_images_idx3.gz"
    if file.exists():
        raw = np.frombuffer(gzip.decompress(file.read_bytes()), np.uint8, offset=16)
        return raw.reshape(-1, 784).astype(np.float32) / 255.0, "the 10,000 MNIST test digits"
    rng = np.random.default_rng(0)
    pictures = np.zeros((2000, 28, 28), np.float32)
    for picture in pictures:
        row, column = rng.integers(4, 20, size=2)
        picture[row : row + 3, 4:24] = picture[4:24, column : column + 3] = 1.0
    return pictures.reshape(-1, 784), "made-up strokes"


@cache
def large_machine() -> tuple[RBM, BernoulliReference, float, str]:
    """The 784 x 500 machine, its reference, true log Z (NaN if not known), and its source."""
    reference, file = data_marginals(digits()[0]), DATA / "rbm_mnist_cd25.mat"
    if file.exists():
        found = loadmat(file)
        weights, a, b = found["vishid"], found["visbiases"].ravel(), found["hidbiases"].ravel()
        return RBM(weights, a, b), reference, TRUE_LOG_Z, file.name
    rng = np.random.default_rng(0)
    weights = 0.05 * rng.standard_normal((784, 500))
    return RBM(weights, reference.log_odds, np.zeros(500)), reference, float("nan"), "random"


def trained_machine(n_hidden: int, updates: int, seed: int = 1) -> tuple[RBM, BernoulliReference]:
    """A machine that CD-1 trains on the digits, and its reference."""
    data, rng = digits()[0], np.random.default_rng(seed)
    start = first_machine(data, n_hidden, rng)
    rbm = train(start, data, updates, rate=lambda i: 0.05 * (1 - i / updates), random_seed=rng)
    return rbm, data_marginals(data)
