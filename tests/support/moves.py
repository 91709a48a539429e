"""A state under a kernel: single transitions from Python, and many in a compiled loop."""

import numpy as np
from numba import float64, int64, types

from pymc_tempering.kernels import N_INFO
from pymc_tempering.model.compiled import (
    DENSITY,
    INDICES,
    KERNEL_SIGNATURE,
    MATRIX,
    POINT,
    RNG,
    VECTOR,
    new_point,
)
from pymc_tempering.model.jit import njit

KERNEL = types.FunctionType(KERNEL_SIGNATURE)
ARGUMENTS = (KERNEL, DENSITY, POINT, float64, INDICES, VECTOR, MATRIX, RNG, VECTOR)


RESULTS = (MATRIX, MATRIX, MATRIX)


@njit(types.void(*ARGUMENTS, int64, *RESULTS))
def _move_each(
    transition, density, point, beta, block, params, scratch, rng, info, times, xs, told, known
):
    for i in range(xs.shape[0]):
        point.x[:] = xs[i]
        density(point.x, point.values, point.grads)
        for j in range(times):
            transition(density, point, beta, block, params, scratch, rng, info)
            told[i * times + j] = info
        xs[i] = point.x
        known[i, :2] = point.values
        known[i, 2:] = point.grads.ravel()


@njit(types.void(*ARGUMENTS, *RESULTS))
def _follow(transition, density, point, beta, block, params, scratch, rng, info, xs, told, known):
    for i in range(xs.shape[0]):
        transition(density, point, beta, block, params, scratch, rng, info)
        xs[i], told[i] = point.x, info
        known[i, :2] = point.values
        known[i, 2:] = point.grads.ravel()


class Moves:
    """A state under a kernel at one beta.

    ``scales`` are those of the coordinates of ``block``, which the kernel moves; ``transition``
    stands in for that of the kernel, with a bug in it.
    """

    def __init__(self, kernel, density, dim, block, step, scales, *, beta, seed, transition=None):
        self.kernel, self.density, self.beta, self.block = kernel, density, beta, block
        self.transition = transition or kernel.transition
        self.params = kernel.pack(step, np.diag(scales) if kernel.dense else scales, block)
        self.rng, self.point, self.info = (
            np.random.default_rng(seed),
            new_point(dim),
            np.zeros(N_INFO),
        )
        # What lies in the scratch space must not matter.
        self.scratch = np.full((kernel.n_scratch, dim), np.nan)

    @property
    def _arguments(self):
        return (
            self.density, self.point, self.beta, self.block.indices, self.params, self.scratch,
            self.rng, self.info,
        )  # fmt: skip

    def start(self, x):
        """Put the state at x."""
        self.point.x[:] = x
        self.density(self.point.x, self.point.values, self.point.grads)

    def __call__(self):
        """Move once; return a copy of the state."""
        self.transition(*self._arguments)
        return self.point.x.copy()

    def each(self, xs, times):
        """Move each of n states.

        Returns
        -------
        ends : ndarray, shape (n, dim)
        told : ndarray, shape (n * times, N_INFO)
            What the kernel tells of each transition.
        known : ndarray, shape (n, 2 + 2 * dim)
            Values and gradients that the kernel has for the ends.
        """
        ends, known = np.array(xs, dtype=float), self._known(len(xs))
        told = np.empty((len(xs) * times, N_INFO))
        _move_each(self.transition, *self._arguments, times, ends, told, known)
        return ends, told, known

    def follow(self, n):
        """Move n times from where the state is; return the same of each transition."""
        xs, told, known = np.empty((n, self.point.x.size)), np.empty((n, N_INFO)), self._known(n)
        _follow(self.transition, *self._arguments, xs, told, known)
        return xs, told, known

    def _known(self, n):
        return np.empty((n, 2 + 2 * self.point.x.size))
