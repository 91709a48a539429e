"""Running log Z of a density whose parameters change slowly, for use in a training loop.

Carlson, Stinson, Pakman & Paninski (2016), "Partition functions from Rao-Blackwellized tempered
sampling", ICML, Section 4.4; equation numbers are theirs.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from pymc_tempering.core.ladder import Ladder
from pymc_tempering.exceptions import LadderError, warn_user

MIN_CHAINS = 20
"""Fewest chains with which an error is stated; the same number as for tours in a run."""


def variance_of_mean(noise: np.ndarray) -> float:
    """Return the variance of the mean over chains, of noise that has mean 0."""
    return float(np.sum(noise**2) / (noise.size * max(noise.size - 1, 1)))


@dataclass(frozen=True, eq=False)
class Past:
    """Means over the updates of two kinds: with full shares, and with half of each share.

    The last axis of arrays is that of the two. `left` is the weight of the start in a mean,
    `value` that of the RTS estimates at beta = 1, `age` the number of updates since each, and
    `noise`, shape (chains, 2), the effect of each chain on them; all three are still to be divided
    by 1 - `left`. `start` is log Z before any update, and `bias` the weighted sum of biases.
    """

    n_updates: int
    start: float
    left: np.ndarray
    value: np.ndarray
    age: np.ndarray
    noise: np.ndarray
    bias: float

    @property
    def done(self) -> np.ndarray:
        """Weight of all updates in each mean, shape (2,)."""
        return 1.0 - self.left


def no_past(log_z: float, n_chains: int) -> Past:
    """Return the past before the first update."""
    nothing = np.zeros(2)
    return Past(0, log_z, np.ones(2), nothing, nothing, np.zeros((n_chains, 2)), 0.0)


def next_past(past: Past, ends: np.ndarray, alpha: float, log_z: float) -> Past:
    """Add an update: its RTS estimate, and q of each chain at beta = 0 and 1, shape (2, n)."""
    each = ends / ends.mean(axis=1, keepdims=True)
    noise = each[1] - each[0]  # by how much each chain moves log(c_K / c_1), to first order
    bias = 0.5 * (variance_of_mean(each[0] - 1.0) - variance_of_mean(each[1] - 1.0))
    share = alpha * np.array([1.0, 0.5])
    keep = 1.0 - share
    return Past(
        past.n_updates + 1,
        past.start,
        keep * past.left,
        keep * past.value + share * log_z,
        keep * (past.age + past.done),
        keep * past.noise + share * noise[:, None],
        keep[0] * past.bias + alpha * bias,
    )


@dataclass(frozen=True, eq=False)
class PartitionTracker:
    """Running log Z of a density that changes slowly, from persistent tempered chains.

    Between two changes of the parameters each chain moves its state at its rung, and its rung given
    its state (`draw_rungs`). `update` then takes the log ratios of the states, and returns a new
    tracker; the old one stays as it is. Each update takes a share `alpha` of a step of RTS
    (eq. 12)::

        log Z_k  <-  log Z_k + alpha * (log(c_k / c_1) - log(r_k / r_1))

    which is eq. (24), here for every rung, where `c_k` is the mean of q(beta_k | x)
    over the states.

    Parameters
    ----------
    betas : array, shape (K,)
        Inverse temperatures, increasing from 0 to 1.
    log_z : array, shape (K,)
        log Z of each rung, in nats, relative to rung 0: of the ladder of a tempering run with the
        parameters at the start. An error in it fades as (1 - alpha)^updates.
    log_weights : array, shape (K,), optional
        Log of the target occupancies r_k; by default all equal. `2 * betas` is the paper's choice
        where states at beta = 1 feed a gradient.
    alpha : float, default 0.2
        Share of each update, in (0, 1]. The paper found 0.05 to 0.5 to do equally well.

    Raises
    ------
    LadderError
        betas, log_z and log_weights are no ladder.
    ValueError
        alpha is not in (0, 1].

    Notes
    -----
    `log_z` is an average of the RTS estimates of the updates, with weights that fall by 1 - alpha
    from each update to the one before it. It varies as much as an average over
    `window` = (2 - alpha) / alpha updates with equal weights does, and follows a steady drift
    `lag` = (1 - alpha) / alpha updates behind.

    All this assumes that the chains are in equilibrium at each update: they have to move between
    rungs several times between two updates. Otherwise log Z swings about its value, or misses a
    mode, and `mcse` does not show it. More sweeps between updates, or a smaller alpha, help.

    A tracker holds only arrays and numbers, so pickle can save it.

    References
    ----------
    Carlson et al. (2016), "Partition functions from Rao-Blackwellized tempered sampling", ICML;
    Section 4.4, eqs. (12), (15) and (24).

    Examples
    --------
    The density exp(-a x^2) over a N(0, 1) as reference, with a parameter that grows from 1 to 2.

    >>> rng = np.random.default_rng(1)
    >>> betas = np.array([0.0, 0.3, 1.0])
    >>> tracker = pmt.arrays.PartitionTracker(betas, -0.5 * np.log1p(2 * betas))
    >>> x = rng.standard_normal(500)
    >>> for a in np.linspace(1.0, 2.0, 101):
    ...     for _ in range(5):
    ...         rung = tracker.draw_rungs(-a * x**2, rng)
    ...         x = rng.standard_normal(500) / np.sqrt(1 + 2 * a * betas[rung])
    ...     tracker = tracker.update(-a * x**2)
    >>> bool(abs(tracker.log_z[-1] - -0.5 * np.log(5)) < 4 * tracker.mcse)
    True
    """

    betas: np.ndarray
    log_z: np.ndarray
    log_weights: np.ndarray | None = None
    alpha: float = 0.2
    _past: Past | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)
        betas, log_z = np.array(self.betas, dtype=float), np.array(self.log_z, dtype=float)
        weights = np.zeros(betas.shape) if self.log_weights is None else self.log_weights
        ladder = Ladder(betas, log_z, weights)
        for name in ("betas", "log_z", "log_weights"):
            values = getattr(ladder, name)
            values.flags.writeable = False
            object.__setattr__(self, name, values)

    @cached_property
    def _ladder(self) -> Ladder:
        assert self.log_weights is not None
        return Ladder(self.betas, self.log_z, self.log_weights)

    @property
    def n_updates(self) -> int:
        """Number of updates so far."""
        return 0 if self._past is None else self._past.n_updates

    @property
    def start_share(self) -> float:
        """Weight of the starting value in log Z; 1 before the first update."""
        return 1.0 if self._past is None else float(self._past.left[0])

    @property
    def window(self) -> float:
        """Number of updates whose plain mean has the same variance, after many updates."""
        return (2.0 - self.alpha) / self.alpha

    @property
    def lag(self) -> float:
        """Mean age of the estimates in log Z, in updates; (1 - alpha) / alpha after many."""
        return float("nan") if self._past is None else float((self._past.age / self._past.done)[0])

    @property
    def drift(self) -> float:
        """Recent mean change of log Z at beta = 1 per update, in nats; NaN before two updates.

        From the difference to a mean of the updates with half the share, which has a larger lag.
        """
        if self._past is None or self._past.n_updates < 2:
            return float("nan")
        value, age = self._past.value / self._past.done, self._past.age / self._past.done
        return float((value[0] - value[1]) / (age[1] - age[0]))

    @property
    def bias(self) -> float:
        """Bias of log Z at beta = 1 from the small number of states per update, eq. (15), in nats.

        It is not subtracted, and later updates do not average it out.
        """
        return float("nan") if self._past is None else self._past.bias / (1.0 - self.start_share)

    @property
    def mcse(self) -> float:
        """Root mean square error of log Z at beta = 1, in nats.

        The root of the sum of four squares: the standard error between chains, which are
        independent; the part of the starting value that is left; the bias; and the lag times the
        drift. The drift is a noisy and late estimate. When a drift begins or grows, the error is
        larger than this for about `window` updates. Without a drift its noise makes this too large
        (15 % on a Gaussian, alpha = 0.2). Infinite before the first update and with fewer than 20
        chains.
        """
        past = self._past
        if past is None or len(past.noise) < MIN_CHAINS:
            return float("inf")
        pull = past.left[0] * (past.start - past.value[0] / past.done[0])
        behind = 0.0 if past.n_updates < 2 else self.lag * self.drift
        variance = variance_of_mean(past.noise[:, 0] / past.done[0])
        return float(np.sqrt(variance + pull**2 + self.bias**2 + behind**2))

    def probabilities(self, log_ratio: ArrayLike) -> np.ndarray:
        """q(beta_k | x), eq. (7), with the present log Z.

        Parameters
        ----------
        log_ratio : array
            log f(x) - log p_1(x) of states, in nats, in any space; -inf where f is zero.

        Returns
        -------
        array, shape (K, ...)
            Sums to 1 along the first axis.
        """
        return self._ladder.probabilities(_check_log_ratio(log_ratio))

    def draw_rungs(self, log_ratio: ArrayLike, rng: np.random.Generator) -> np.ndarray:
        """Draw a rung for each state from q(beta | x).

        Parameters
        ----------
        log_ratio : array
            As `probabilities` takes it.
        rng : numpy.random.Generator

        Returns
        -------
        array of int, the shape of log_ratio
            Index into `betas`.
        """
        below = np.cumsum(self.probabilities(log_ratio), axis=0)[:-1]
        return (rng.random(below.shape[1:]) >= below).sum(axis=0)

    def update(self, log_ratio: ArrayLike, *, alpha: float | None = None) -> "PartitionTracker":
        """Update log Z by the states of the chains under the present parameters, eq. (24).

        Parameters
        ----------
        log_ratio : array, shape (chains,) or (chains, states)
            log f(x) - log p_1(x) of the states since the last update, in nats. f has the parameters
            with which the states were drawn, and the rungs were drawn with this tracker. Give the
            same chains in the same order in every update.
        alpha : float, optional
            Share of this update; by default that of the tracker. With 1, 1/2, 1/3, ... log Z is the
            mean of all updates, and converges once the parameters no longer change.

        Returns
        -------
        PartitionTracker
            A new one.

        Raises
        ------
        ValueError
            If log_ratio is NaN or +inf, has no states, or another number of chains than in earlier
            updates; or alpha is not in (0, 1].
        LadderError
            If a rung has no weight at any state.

        Warns
        -----
        TemperingWarning
            At the first update, if there are fewer than 20 chains.
        """
        share = self.alpha if alpha is None else alpha
        _check_alpha(share)
        values = _check_log_ratio(log_ratio)
        if values.ndim not in (1, 2) or values.size == 0:
            raise ValueError(
                "log_ratio must have the shape (chains,) or (chains, states), with one state at "
                f"least, not {values.shape}."
            )
        past = self._past or no_past(float(self.log_z[-1]), len(values))
        if len(values) != len(past.noise):
            raise ValueError(
                f"log_ratio has {len(values)} chains, the updates before had {len(past.noise)}. "
                "Give the same chains in every update, or start a new tracker."
            )
        if self._past is None and len(values) < MIN_CHAINS:
            warn_user(
                f"{len(values)} chains are too few for an error of log Z: mcse stays infinite. "
                f"Run at least {MIN_CHAINS} chains."
            )
        q = self._ladder.probabilities(values).reshape(self.betas.size, len(values), -1)
        by_chain = q.mean(axis=2)
        step = _rts_step(by_chain.mean(axis=1), self._ladder)
        past = next_past(past, by_chain[[0, -1]], share, float(self.log_z[-1] + step[-1]))
        return replace(self, log_z=self.log_z + share * step, _past=past)


def _rts_step(c: np.ndarray, ladder: Ladder) -> np.ndarray:
    """log(c_k / c_1) - log(r_k / r_1), shape (K,): the update of eq. (12)."""
    empty = np.flatnonzero(c == 0.0)
    if empty.size:
        rung = empty[0]
        raise LadderError(
            f"No state has any weight at rung {rung} (beta = {ladder.betas[rung]:.3g}): log Z is "
            "far off, or the ladder has a gap below it. Start from the ladder of a tempering run "
            "with the present parameters, with more rungs."
        )
    off = np.log(c) - ladder.log_weights
    return off - off[0]


def _check_alpha(alpha: float) -> None:
    if not 0.0 < alpha <= 1.0:
        raise ValueError(f"alpha must be greater than 0 and at most 1, not {alpha!r}.")


def _check_log_ratio(log_ratio: ArrayLike) -> np.ndarray:
    """Return log ratios as an array; raise an error for NaN and plus infinity."""
    values = np.asarray(log_ratio, dtype=float)
    bad = np.isnan(values) | (values == np.inf)
    if bad.any():
        raise ValueError(
            f"log_ratio is NaN or +inf at {int(bad.sum())} of {values.size} states, the first at "
            f"index {tuple(int(i) for i in np.argwhere(bad)[0])}. Check the density at that state."
        )
    return values
