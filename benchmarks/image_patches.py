"""Whitened patches of the two photographs that scikit-learn ships, as the HAIS paper made its own.

Sohl-Dickstein & Culpepper (2011), section 4: 16 x 16 patches, logarithm, mean subtracted, the
leading principal components, each scaled to unit variance. Their photographs were 4,112 of nature;
ours are a temple and a flower, so figures are not theirs, but orders of models can be compared.
Test patches come from stripes of each photograph that no training patch touches.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from sklearn.datasets import load_sample_images

SIDE, N_TRAIN, N_TEST = 16, 10_000, 100
STRIPE, EVERY = 40, 160
"""Width of the stripes for the test, and the distance from one to the next, in columns."""
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
"""Weights of linear red, green and blue (ITU-R BT.709)."""


@dataclass(frozen=True)
class Patches:
    """Whitened patches.

    Attributes
    ----------
    train : array, shape (10000, n_components)
    test : array, shape (100, n_components)
    """

    train: np.ndarray
    test: np.ndarray


@cache
def patches(n_components: int = 36, seed: int = 0) -> Patches:
    """Cut patches at random places and whiten them by the training patches."""
    rng = np.random.default_rng(seed)
    photographs = [_log_light(image) for image in load_sample_images().images]
    train = _cut([piece for light in photographs for piece in _pieces(light, False)], N_TRAIN, rng)
    test = _cut([piece for light in photographs for piece in _pieces(light, True)], N_TEST, rng)
    mean = train.mean(axis=0)
    _, scales, directions = np.linalg.svd(train - mean, full_matrices=False)
    whiten = directions[:n_components].T / (scales[:n_components] / np.sqrt(len(train)))
    return Patches((train - mean) @ whiten, (test - mean) @ whiten)


def _log_light(image: np.ndarray) -> np.ndarray:
    """Logarithm of the light of an sRGB image, with a floor of one level of 255."""
    value = np.maximum(image, 1) / 255.0
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    return np.log(linear @ LUMINANCE)


def _pieces(light: np.ndarray, test: bool) -> list[np.ndarray]:
    """Stripes of a photograph for the test, or those between them."""
    starts = range(0, light.shape[1], EVERY)
    if test:
        return [light[:, start : start + STRIPE] for start in starts]
    return [light[:, start + STRIPE : start + EVERY] for start in starts]


def _cut(photographs: list[np.ndarray], n: int, rng: np.random.Generator) -> np.ndarray:
    """Patches (n, 256) at random places of pieces of one size, each with mean zero."""
    cut = np.empty((n, SIDE * SIDE))
    for row, which in zip(cut, rng.integers(len(photographs), size=n), strict=True):
        light = photographs[which]
        top, left = (rng.integers(length - SIDE + 1) for length in light.shape)
        row[:] = light[top : top + SIDE, left : left + SIDE].ravel()
    return cut - cut.mean(axis=1, keepdims=True)
