"""Fits at T = 1 that compete with the tempered stage, from its start and others; the best goes on.

Heat helps where a start is bad, and harms where it merges parts of a model that have to find
different places: as they cool, all may take the largest one. Which of the two it was, the ELBO
tells.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from pymc.variational.opvi import Approximation
from pytensor.tensor.random.type import RandomGeneratorType

from pymc_tempering.core.cycles import FloatArray
from pymc_tempering.variational.fit_loop import FitState, advance
from pymc_tempering.variational.objective import FitStep
from pymc_tempering.variational.stage_temperature import ColdTemperature

COMPARED = 100
"""Last iterations of a fit, over which the median of its ELBO is taken."""

Moving = list[FloatArray | None]
"""Values of what a step changes; none for generators, which run on."""


@dataclass(frozen=True)
class ColdTrials:
    """What the trials found.

    Attributes
    ----------
    starts : int
        How many fits began.
    n : int
        Iterations of all of them.
    elbo, tempered_elbo : float
        Untempered ELBO of the best trial and of the tempered stage, medians over the last
        iterations of each (nats).
    """

    starts: int
    n: int
    elbo: float
    tempered_elbo: float

    @property
    def won(self) -> bool:
        """Whether the fit went on from where the best trial had ended."""
        return self.elbo > self.tempered_elbo


def moving_values(step: FitStep) -> Moving:
    """Copy what a step changes."""
    return [
        None if isinstance(shared.type, RandomGeneratorType) else np.array(shared.get_value())
        for shared in step.moving
    ]


def put_moving(step: FitStep, values: Moving) -> None:
    """Put copies back."""
    for shared, value in zip(step.moving, values, strict=True):
        if value is not None:
            shared.set_value(value.astype(shared.dtype))


def moved_to(location: FloatArray, start: Moving, step: FitStep, approx: Approximation) -> Moving:
    """Values of a start, with another mean of the approximation."""
    mean = approx.groups[0].shared_params["mu"]
    return [location if v is mean else value for v, value in zip(step.moving, start, strict=True)]


def halvings(starts: int, n: int) -> Iterator[tuple[int, int]]:
    """Yield how many fits go on in each round, half of those before, and the iterations of each.

    All rounds have about as many iterations; the last one has the rest.
    """
    n_round = n // ((starts - 1).bit_length() + 1)
    while starts > 1:
        yield starts, n_round // starts
        starts, n = (starts + 1) // 2, n - n_round // starts * starts
    yield 1, n


def run_trials(
    run: FitState,
    starts: Sequence[Moving],
    cold: ColdTemperature,
    n: int,
    block: int,
    callbacks: Sequence[Callable[..., None]],
    show: Callable[[FitState], None],
) -> ColdTrials:
    """Run ``n`` iterations at T = 1 from all starts; keep the best of all ends, the present too."""
    hot, begin = (_median(run.elbo[: run.n]), moving_values(run.step)), run.n
    pool = [(0.0, start) for start in starts]
    for count, n_each in halvings(len(starts), n):
        ended: list[tuple[float, Moving]] = []
        for _, values in sorted(pool, key=lambda fit: -fit[0])[:count]:
            put_moving(run.step, values)
            run.last = None  # the copies before this are not on the way to what follows
            first = run.n
            advance(run, cold, n_each, cold=True, block=block, callbacks=callbacks, show=show)
            lost = run.stopped == "not finite"
            elbo = -np.inf if lost else _median(run.elbo[first : run.n])
            ended.append((elbo, moving_values(run.step)))
            if run.stopped == "interrupted":
                break
        pool = ended
        if run.stopped == "interrupted":
            break
    best = max(pool, key=lambda fit: fit[0])
    trials = ColdTrials(len(starts), run.n - begin, best[0], hot[0])
    put_moving(run.step, (best if trials.won else hot)[1])
    run.last = None
    run.stopped = "" if run.stopped == "not finite" else run.stopped
    return trials


def _median(elbo: FloatArray) -> float:
    """Median over the last iterations: single values of an ELBO may be far down."""
    return float(np.median(elbo[-COMPARED:])) if elbo.size else -np.inf
