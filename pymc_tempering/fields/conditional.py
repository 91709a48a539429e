"""A field given the other unknowns: nearly normal, about its mode, with the curvature there.

Mode and curvature are found by Newton's steps. They need not be exact: whatever they are, they are
functions of the other unknowns alone, and the change of variables that they make is exact.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any

import numba
import numpy as np
import pymc as pm

from pymc_tempering.fields.arrow import Root
from pymc_tempering.fields.curvature import Curvature
from pymc_tempering.fields.staged import Evaluate, is_staged, staged
from pymc_tempering.fields.summing import Sum, along_sums, differenced, summed
from pymc_tempering.model.memory import remembered
from pymc_tempering.model.path import Path, compile_path

STEP = 1e-3
"""Steps of the curvature, in standard deviations of the field."""

MAX_STEPS, NEAR = 30, 0.05
"""Newton's steps at most, and how many nats may be left to gain."""

LEAST_RISE, SHORTEST = 1e-4, 1e-3
"""Least rise of the density in a step, as a share of the promised one, and the shortest step."""

RAY, TRIED, N_RAY = 0.25, (0, -1, 1), 8
"""Step of the log of a factor by which a start is scaled, steps that are tried, and most steps."""

LEANS = 0.7
"""Distance of the others (unconstrained units) up to which the mode is taken to move in a line."""

PER_LAW, PER_MOVE = 20_000, 10
"""Elements that what Python does for a law is worth, and for each element of a gradient, where many
are computed together."""

MOST_PIECES = 50
"""Variables up to which a density is compiled once more for many values of a dense field. Each of
200 scalar ones took half a CPU s."""

KEPT_BYTES = 100_000_000
"""Memory for conditionals that were computed last."""


@dataclass(frozen=True, eq=False)
class FieldLaw:
    """The normal law of a field given the others.

    Attributes
    ----------
    mode : array, shape (n,)
    root : Root
        Of its precision.
    n_roots : int
        How many were computed on the way there.
    """

    mode: np.ndarray
    root: Root
    n_roots: int


@dataclass(frozen=True, eq=False)
class Field:
    """A field of a model, and the others that it depends on.

    Attributes
    ----------
    model : pymc.Model
    others, inside : array of int
        Where the others and the field lie in the raveled vector.
    start : array, shape (d,)
        State from which modes are searched for.
    curvature : Curvature
    dense : bool
        Whether gradients at many values of the field are computed at once.
    sums : tuple of Sum
        Running sums of the model's values that are the coordinates of the field.
    is_scaled : bool
        Whether the band of the start is scaled to the others: a field that is written without its
        scale is shorter where that is larger.
    lean : array, shape (len(others), n), optional
        How much the mode moves with each of the others, near those of the start.
    n_roots : float
        How many roots a law takes where the others are away from those of the start.
    """

    model: pm.Model
    others: np.ndarray
    inside: np.ndarray
    start: np.ndarray
    curvature: Curvature
    dense: bool = False
    sums: tuple[Sum, ...] = ()
    is_scaled: bool = False
    lean: np.ndarray | None = None
    n_roots: float = 1.0

    def __getstate__(self) -> dict[str, Any]:
        """State without compiled functions, and without what is kept."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def path(self) -> Path:
        """The compiled model."""
        return compile_path(self.model)

    @property
    def work(self) -> int:
        """Elements that are computed for one law of the field, roughly.

        Gradients that are computed together hardly cost more than one.
        """
        moves, one = self.curvature.moves, self.path.work
        many, cost = moves.size * PER_MOVE, self.curvature.arrow.cost
        if self.is_staged:
            return int(PER_LAW + one + self.n_roots * (many + cost))
        gradients = one + many if self.together else len(moves) * one
        return int(PER_LAW + self.n_roots * (gradients + cost))

    @property
    def together(self) -> bool:
        """Whether gradients at many values are computed together, which has to be compiled."""
        return self.dense and len(self.path.layout.names) <= MOST_PIECES

    @cached_property
    def is_staged(self) -> bool:
        """Whether most of its density depends on the others alone, and is kept for them."""
        return is_staged(self.path, self.inside)

    @cached_property
    def evaluator(self) -> Evaluate:
        """Its density, compiled for values of the field."""
        return (staged if self.together else evaluator_of)(self.path, self.inside)

    @cached_property
    def _law(self) -> Callable[[bytes], FieldLaw]:
        """Its law, by the bytes of the others."""

        @lru_cache(max(1, KEPT_BYTES // (8 * self.curvature.arrow.numbers)))
        def law(key: bytes) -> FieldLaw:
            others = np.frombuffer(key)
            return self.climb(others, self.begin(others))

        return law

    def evaluate(self, others: np.ndarray, xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log density, shape (k,), and its gradient, (k, n), at states of the field, (k, n)."""
        values, slopes = self.evaluator(self.state(others, xs[0]), differenced(self.sums, xs))
        return values, along_sums(self.sums, slopes)

    def state(self, others: np.ndarray, inside: np.ndarray) -> np.ndarray:
        """Raveled state, shape (d,)."""
        x = np.empty(self.path.dim)
        x[self.others], x[self.inside] = others, differenced(self.sums, inside)
        return x

    def inner(self, xs: np.ndarray) -> np.ndarray:
        """Return the field, shape (..., n), of raveled states, shape (..., d)."""
        return summed(self.sums, xs[..., self.inside])

    def given(self, others: np.ndarray) -> FieldLaw:
        """Return the law of the field given the others; those asked for last are kept.

        Raises
        ------
        ArithmeticError
            The density is not finite where the search begins.
        numpy.linalg.LinAlgError
            There is no positive curvature.
        """
        return self._law(others.tobytes())

    def scaled(self, others: np.ndarray, powers: Sequence[int]) -> tuple[int, np.ndarray]:
        """Scale the band of the start by powers of a factor; return the best one, and its state."""
        start, arrow = self.inner(self.start), self.curvature.arrow
        rays = np.repeat(start[None], len(powers), axis=0)
        rays[:, arrow.order[: arrow.n_band]] *= np.exp(RAY * np.asarray(powers))[:, None]
        values, _ = self.evaluate(others, rays)
        best = int(np.nan_to_num(values, nan=-np.inf).argmax())
        return powers[best], rays[best]

    def begin(self, others: np.ndarray) -> np.ndarray:
        """Return the state of the field, shape (n,), from which its mode is climbed."""
        away = others - self.start[self.others]
        if self.lean is not None and np.abs(away).max(initial=0.0) <= LEANS:
            return self.inner(self.start) + away @ self.lean
        if not self.is_scaled:
            return self.inner(self.start)
        toward, x = self.scaled(others, TRIED)
        return self.scaled(others, [toward * k for k in range(1, N_RAY + 1)])[1] if toward else x

    def climb(self, others: np.ndarray, x: np.ndarray) -> FieldLaw:
        """Find the law at the mode that Newton's steps from a state of the field lead to.

        They are shortened where they do not lead up.

        Raises
        ------
        ArithmeticError
            The density is not finite where they begin.
        numpy.linalg.LinAlgError
            There is no positive curvature.
        """
        value, slope = self._at(others, x)
        if not np.isfinite(value):
            raise ArithmeticError("The density is not finite where the search for a mode begins.")
        for n_roots in range(1, MAX_STEPS + 1):  # noqa: B007
            root = self.root_at(others, x, slope)
            step = root.solve(slope)
            promised, length = float(slope @ step), 1.0
            while length >= SHORTEST:
                new, there = self._at(others, x + length * step)
                if new >= value + LEAST_RISE * length * promised:
                    break
                length *= 0.5
            else:
                break
            x, rise, value, slope = x + length * step, new - value, new, there
            # As promised by a parabola, and at its top: the curvature is that of the mode.
            left = float(slope @ root.solve(slope))
            if left < NEAR and abs(rise - 0.5 * promised) < NEAR:
                break
        return FieldLaw(x, root, n_roots)

    def _at(self, others: np.ndarray, inside: np.ndarray) -> tuple[float, np.ndarray]:
        [value], [slope] = self.evaluate(others, inside[None])
        return float(value), slope

    def log_marginal(self, others: np.ndarray, law: FieldLaw | None = None) -> float:
        """Log density of the others, the field integrated out by Laplace's method (nats).

        It is that of one mode, by default the one that `given` finds.
        """
        law = self.given(others) if law is None else law
        value, _ = self._at(others, law.mode)
        return value + 0.5 * len(law.mode) * np.log(2.0 * np.pi) - law.root.log_det

    def white(self, others: np.ndarray, u: np.ndarray) -> tuple[float, np.ndarray]:
        """Log density of the others and of the whitened field, and its gradient along that, (n,).

        Where a field is exactly normal given the others, it is a standard normal here.
        """
        law = self.given(others)
        value, slope = self._at(others, law.mode + law.root.color(u))
        return value - law.root.log_det, law.root.whiten_slope(slope)

    def inverse(self, others: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Raveled state, shape (d,), of a whitened one."""
        law = self.given(others)
        return self.state(others, law.mode + law.root.color(u))

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Others, and the whitened field, of a raveled state, shape (d,)."""
        others = x[self.others]
        law = self.given(others)
        return others, law.root.whiten(self.inner(x) - law.mode)

    def root_at(self, others: np.ndarray, inside: np.ndarray, slope: np.ndarray) -> Root:
        """Root of the precision at a state whose gradient along the field is `slope`."""
        return self.curvature.root_at(lambda xs: self.evaluate(others, xs)[1], inside, slope)

    def begun_at(self, others: np.ndarray) -> "Field":
        """Return the same with another start, and steps in shares of the field's deviations."""
        law = self.given(others)
        curvature = self.curvature.with_steps(STEP * law.root.deviations)
        start = self.state(others, law.mode)
        return replace(self, start=start, curvature=curvature)

    def bend(self, i: int) -> float:
        """Return how the curvature changes with element i of the field.

        It is the change of the log determinant of the precision's root over one standard deviation
        of the element, the others of the field following it.
        """
        others = self.start[self.others]
        law, unit = self.given(others), np.zeros(self.inside.size)
        unit[i] = 1.0
        along = law.root.solve(unit)
        along /= np.sqrt(along[i])
        log_dets = []
        for x in (law.mode - along, law.mode + along):
            log_dets.append(self.root_at(others, x, self._at(others, x)[1]).log_det)
        change, turn = log_dets[1] - log_dets[0], sum(log_dets) - 2.0 * law.root.log_det
        return max(abs(0.5 * change), abs(turn))


def evaluator_of(path: Path, inside: np.ndarray) -> Evaluate:
    """Compile the evaluation of a density at values of a field."""
    if is_staged(path, inside):
        return staged(path, inside)
    key = "field density", inside.tobytes()
    return remembered(path.model, key, lambda: _one_by_one(path, inside))


def _one_by_one(path: Path, inside: np.ndarray) -> Evaluate:
    """Compile the evaluation of one density at values of a field.

    It takes a tenth of the time of a call that serves all densities.
    """
    code, data = path.density.code, int(path.density.data)

    @numba.njit(nogil=True)
    def fill(state, xs, values, slopes):  # type: ignore[no-untyped-def]
        x, pair, grads = state.copy(), np.empty(2), np.zeros((2, state.size))
        for k in range(xs.shape[0]):
            for i in range(inside.size):
                x[inside[i]] = xs[k, i]
            code(x, pair, grads, data)
            values[k] = pair[0] + pair[1]
            for i in range(inside.size):
                slopes[k, i] = grads[0, inside[i]] + grads[1, inside[i]]

    def evaluate(state: np.ndarray, xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, slopes = np.empty(len(xs)), np.empty(xs.shape)
        fill(state, xs, values, slopes)
        return values, slopes

    return evaluate
