"""Further draws of the reference beside the chains: how many, and log_ratio at each of them.

Such a draw costs one value of the density and no gradient, and all are independent. Their number is
frozen before the chains begin. Whether there are any is decided by draws that do not count.
"""

import threading
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil

import numpy as np

from pymc_tempering.chain.plan import Plan
from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.core.threads import paced, run_tasks
from pymc_tempering.core.weighting import effective_number
from pymc_tempering.references.prior import Reference, evaluate_draws
from pymc_tempering.sampling.call import Job
from pymc_tempering.sampling.effort import DRAWN_MCSE, WIDE_DRAWN_MCSE, is_wide

N_TRIAL, MIN_SHARE = 256, 0.05
"""Draws that decide whether further ones are worth their price, and the least effective share of
their weights. The trial draws never count."""

PER_DRAW, MOST_FIXED, MOST = 5, 30_000, 200_000
"""Reference draws for each draw of a chain, beside one for each evaluation that the plan took, but
no more than `MOST_FIXED`; and the number of all at most."""

CHEAP_DIM = 40
"""Dimensions up to which there are so many. In d dimensions a draw takes products of d x d
matrices, and above there are d / `CHEAP_DIM` times fewer."""

TIME_SHARE, TRIAL_SHARE = 0.3, 0.05
"""Shares of the time before a deadline in which these draws are made, and those of the trial."""

PER_LAW = 4
"""Evaluations of chains that share a law of a latent field, roughly. Reference draws share none."""

CHUNK, DEAR_CHUNK = 2000, 64
"""Draws of one generator, and where values are dear. More draws go on with further generators."""

NO_DRAWS = np.empty(0)
"""Of the reference, beside the chains."""

type Drawn = tuple[np.ndarray, int]
"""log_ratio at some draws, and the number of those where the target is no number."""


@dataclass(frozen=True, eq=False)
class Beside:
    """The reference draws beside the chains of one plan.

    Attributes
    ----------
    plan : Plan
    rng : numpy.random.Generator
        Of these draws alone.
    fixed, per_draw, most : int
        Their number: `fixed` and `per_draw` for each draw of all chains, but at most `most`.
    log_ratio : array, shape (n,)
        In nats, at those that there are; minus infinity where the target is zero or no number.
    n_undefined : int
        Where it is no number.
    """

    plan: Plan
    rng: np.random.Generator
    fixed: int
    per_draw: int
    most: int
    log_ratio: np.ndarray = field(default_factory=lambda: NO_DRAWS)
    n_undefined: int = 0

    def number(self, draws: int) -> int:
        """Return how many there are to be beside so many draws of all chains."""
        return min(self.fixed + self.per_draw * draws, self.most)


def begin_beside(
    plan: Plan,
    asked: int | None,
    spent: int,
    rng: np.random.Generator,
    deadline: Deadline = NEVER,
    cores: int = 1,
) -> Beside:
    """Choose how many reference draws a run of this plan gets.

    Parameters
    ----------
    plan : Plan
    asked : int, optional
        What the user wants; by default as many as the plan took evaluations, but at most
        `MOST_FIXED`, and some for each draw, if the reference is near enough; in many dimensions
        fewer of both. Where values are dear, as many as an error of `DRAWN_MCSE` takes, or in many
        dimensions of `WIDE_DRAWN_MCSE`.
    spent : int
        Density evaluations so far, those of scouts apart.
    rng : numpy.random.Generator
        Gives a generator for the trial draws and one for those that count.
    deadline : Deadline, optional
        The trial draws get `TRIAL_SHARE` of the time before it; without all of them there are no
        others.
    cores : int, default 1
    """
    trial, own = rng.spawn(2)
    if asked is not None:
        return Beside(plan, own, asked, 0, asked)
    by = deadline.rest(TRIAL_SHARE, 0.0)
    log_ratio, _ = draw_log_ratio(plan.reference, N_TRIAL, trial, deadline=by, cores=cores)
    near = log_ratio.size == N_TRIAL and effective_number(log_ratio) >= MIN_SHARE * N_TRIAL
    path = plan.reference.path
    price = max(1.0, path.dim / CHEAP_DIM)
    fixed, per_draw = int(min(spent, MOST_FIXED) / price), max(1, round(PER_DRAW / price))
    if near and path.dear:
        variance = N_TRIAL / effective_number(log_ratio) - 1.0
        most = spent // PER_LAW if path.n_white else spent
        error = WIDE_DRAWN_MCSE if is_wide(path) else DRAWN_MCSE
        fixed, per_draw = max(N_TRIAL, min(most, ceil(variance / error**2))), 0
    return Beside(plan, own, fixed, per_draw, MOST if near else 0)


def draw_beside(job: Job, beside: Beside, draws: int) -> tuple[Beside, bool]:
    """Go on to the number of reference draws beside so many draws of all chains, on threads.

    Before a deadline they get `TIME_SHARE` of the time that is left, so that chains have the rest.

    Returns
    -------
    beside : Beside
        With fewer draws after Ctrl-C or the deadline.
    interrupted : bool
        Whether it was Ctrl-C.
    """
    missing = beside.number(draws) - beside.log_ratio.size
    if missing <= 0:
        return beside, False
    chunk = DEAR_CHUNK if beside.plan.reference.path.dear else CHUNK
    sizes = [min(chunk, missing - start) for start in range(0, missing, chunk)]
    reference, deadline = beside.plan.reference, job.deadline.rest(TIME_SHARE, 0.0)

    def work(size: int, own: np.random.Generator, stop: threading.Event) -> Drawn | None:
        if stop.is_set() or deadline.late:
            return None
        return draw_log_ratio(reference, size, own, stop, deadline)

    rngs = beside.rng.spawn(len(sizes))
    tasks = [partial(work, *own) for own in zip(sizes, rngs, strict=True)]
    parts, interrupted = run_tasks(tasks, job.cores, deadline=deadline)
    log_ratio = np.concatenate([beside.log_ratio, *(one for one, _ in parts)])
    n_undefined = beside.n_undefined + sum(n for _, n in parts)
    return replace(beside, log_ratio=log_ratio, n_undefined=n_undefined), interrupted


def draw_log_ratio(
    reference: Reference,
    n: int,
    rng: np.random.Generator,
    stop: threading.Event | None = None,
    deadline: Deadline = NEVER,
    cores: int = 1,
) -> Drawn:
    """Return log_ratio (nats) at `n` fresh draws, and at how many the target is no number.

    It is minus infinity there, and where a draw overflows. Once it is to stop, or is late, the
    draws are fewer.
    """
    xs = reference.draw(n, reference.spawn(rng))
    if not deadline.limited:
        pieces = [evaluate_draws(reference.path, xs, reference.mixture, cores)]
    else:
        pieces = [
            evaluate_draws(reference.path, xs[begin:end], reference.mixture, cores)
            for begin, end in paced(n, stop or threading.Event(), deadline)
        ]
    if not pieces:
        return NO_DRAWS, 0
    log_reference, log_ratio = map(np.concatenate, zip(*pieces, strict=True))
    finite = np.isfinite(xs[: len(log_ratio)]).all(axis=1)
    sound = np.isfinite(log_reference) & (log_ratio < np.inf)
    return np.where(sound & finite, log_ratio, -np.inf), int(np.sum(~sound & finite))
