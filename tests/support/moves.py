"""A state under a kernel: single transitions from Python, and many in a compiled loop."""

import numpy as np
from numba import boolean, int64, types

from pymc_tempering.kernels import N_INFO
from pymc_tempering.model.compiled import KERNEL_SIGNATURE, MATRIX, new_point
from pymc_tempering.model.jit import njit

KERNEL = types.FunctionType(KERNEL_SIGNATURE)


@njit(types.void(KERNEL, *KERNEL_SIGNATURE.args, boolean, int64, MATRIX, MATRIX, MATRIX))
def _move(
    transition, density, point, beta, block, params, scratch, rng, info, anew, n, xs, told, known
):  # fmt: skip
    """Move n times for each row of `xs`: anew from it, or on from where the state is."""
    for i in range(xs.shape[0]):
        if anew:
            point.x[:] = xs[i]
            density.code(point.x, point.values, point.grads, density.data)
        for j in range(n):
            transition(density, point, beta, block, params, scratch, rng, info)
            told[i * n + j] = info
        xs[i] = point.x
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
        self.rng = np.random.default_rng(seed)
        self.point, self.info = new_point(dim), np.zeros(N_INFO)
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
        return self._move(np.array(xs, dtype=float), times, anew=True)

    def follow(self, n):
        """Move n times from where the state is; return the same of each transition."""
        return self._move(np.empty((n, self.point.x.size)), 1, anew=False)

    def _move(self, xs, times, *, anew):
        told, known = np.empty((len(xs) * times, N_INFO)), np.empty((len(xs), 2 + 2 * xs.shape[1]))
        _move(self.transition, *self._arguments, anew, times, xs, told, known)
        return xs, told, known
