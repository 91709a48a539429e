"""Averages over the weighted draws of a run: expectations, and the evidence of a changed model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_tempering.arguments import listed
from pymc_tempering.core.cycles import CycleStats, FloatArray
from pymc_tempering.core.weighting import MIN_ESS, effective_size, khat_limit, kish, pareto_khat
from pymc_tempering.evidence.datatree import KeptStates, read_states
from pymc_tempering.evidence.estimators import estimate_quietly
from pymc_tempering.evidence.pieces import (
    Pieces,
    errors,
    influence,
    split_pieces,
    split_weights,
    sum_at,
    sum_by,
)
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.exceptions import warn_user

ROUNDING = 1e-9
"""Nats by which densities that are the same may differ."""

METRICS = ("mean", "sd", "mcse", "ess")

type Function = Callable[[xr.Dataset], xr.DataArray]


@dataclass(frozen=True, eq=False)
class WeightedDraws:
    """Weighted draws of a run of simulated tempering, and where in the run they are.

    Attributes
    ----------
    stats : CycleStats
        Statistics of the run.
    pieces : Pieces
        Cycles, each cut where a tour starts.
    weight : ndarray, shape (n,)
    piece : ndarray of int, shape (n,)
        Piece of each draw; it does not decrease. All of these pieces count.
    copies : float
        How many draws are worth one independent draw: they are a cycle apart.
    """

    stats: CycleStats
    pieces: Pieces
    weight: FloatArray
    piece: NDArray[np.intp]
    copies: float = 1.0

    @property
    def chain(self) -> NDArray[np.intp]:
        """Chain of each draw, shape (n,)."""
        return self.pieces.chain[self.piece]

    @property
    def khat_limit(self) -> float:
        """Largest k-hat for which the draws suffice, by Kish's number of them."""
        return khat_limit(max(int(kish(self.weight)), 2))

    def _sums(self, values: FloatArray) -> FloatArray:
        """Sum numbers of the draws (n, V) by piece, shape (P, V)."""
        return sum_at(self.piece, values, self.pieces.chain.size)

    def errors(self, effects: FloatArray) -> FloatArray:
        """Errors over tours, and at least those over batches of draws."""
        used = self.pieces.used
        return errors(self._sums(effects)[used], self.pieces, used)

    def errors_with_log_z(self, effects: FloatArray) -> FloatArray:
        """Errors of the sums with log Z, whose effects are those of the Rao-Blackwell weights."""
        used = self.pieces.used
        own = influence(split_weights(self.stats)[used])[:, -1:]
        return errors(self._sums(effects)[used] + own, self.pieces, used)

    def tours(self, share: FloatArray) -> FloatArray:
        """Effective number of tours (V,) that hold shares (n, V)."""
        used = self.pieces.used
        return kish(sum_by(self.pieces.tour[used], self._sums(share)[used]))

    def few(self, share: FloatArray) -> NDArray[np.bool_]:
        """Whether few tours hold the weight."""
        return ~(self.tours(share) >= MIN_ESS)


@dataclass(frozen=True, eq=False)
class ChainDraws:
    """Posterior draws of any sampler, chain after chain, all of weight one.

    The error of an average is that of correlated draws, by the effective sample size of Vehtari et
    al. (2021) over all chains, which falls where the chains' means differ.

    Attributes
    ----------
    log_z_effects : ndarray, shape (chain, draw)
        First-order effect of each draw on log Z (nats); they sum to zero.
    other_variance : float
        Variance of log Z that does not come from these draws.
    ess : float
        Effective number of the draws for log Z.
    """

    log_z_effects: FloatArray
    other_variance: float
    ess: float

    @property
    def weight(self) -> FloatArray:
        """Ones, shape (n,)."""
        return np.ones(self.log_z_effects.size)

    @property
    def chain(self) -> NDArray[np.intp]:
        """Chain of each draw, shape (n,)."""
        n_chains, n_draws = self.log_z_effects.shape
        return np.repeat(np.arange(n_chains), n_draws)

    @property
    def khat_limit(self) -> float:
        """Largest k-hat for which as many independent draws suffice."""
        return khat_limit(max(int(min(self.ess, self.log_z_effects.size)), 2))

    @property
    def copies(self) -> float:
        """How many draws are worth one independent draw: the neighbors of a large one are large."""
        return max(self.log_z_effects.size / max(self.ess, 1.0), 1.0)

    def errors(self, effects: FloatArray) -> FloatArray:
        """Errors (V,) of numbers that each draw moves by its effects (n, V)."""
        size, terms = self._sizes(effects), effects * len(effects)
        return np.sqrt(terms.var(axis=0, ddof=1) / size)

    def errors_with_log_z(self, effects: FloatArray) -> FloatArray:
        """Errors (V,) of the sums of such numbers and log Z."""
        both = self.errors(effects + self.log_z_effects.reshape(-1, 1))
        return np.sqrt(both**2 + self.other_variance)

    def few(self, share: FloatArray) -> NDArray[np.bool_]:
        """Whether few draws hold the weight, or draws that are worth few independent ones."""
        return ~((kish(share) >= MIN_ESS) & (self._sizes(share) >= MIN_ESS))

    def _sizes(self, values: FloatArray) -> FloatArray:
        """Effective sample size of each column of numbers of the draws (n, V)."""
        return np.array([self._size(column) for column in values.T])

    def _size(self, values: FloatArray) -> float:
        if np.ptp(values) == 0.0:
            return float(values.size)
        return effective_size(values.reshape(self.log_z_effects.shape))


type Draws = WeightedDraws | ChainDraws
"""Weighted draws from a posterior, and how errors of averages over them are found."""


@dataclass(frozen=True, eq=False)
class Reweighted:
    """Evidence of V changed models; all logs and errors in nats.

    Attributes
    ----------
    log_ratio, log_ratio_mcse : ndarray, shape (V,)
        log Z of each over that of the run's model, and its error.
    mcse : ndarray, shape (V,)
        Error of log Z itself, with the covariance of its two parts.
    ess : ndarray, shape (V,)
        Kish's effective number of the weighted draws.
    khat : ndarray, shape (V,)
        Shape of the Pareto tail of the weights.
    """

    log_ratio: FloatArray
    log_ratio_mcse: FloatArray
    mcse: FloatArray
    ess: FloatArray
    khat: FloatArray


def state_draws(states: KeptStates) -> WeightedDraws:
    """Return the kept states of a run as weighted draws from the posterior."""
    run = states.run
    weight = states.weights([-1])[:, 0]
    return WeightedDraws(run.stats, run.pieces, weight, run.piece[states.place])


def posterior_draws(stats: CycleStats) -> tuple[WeightedDraws, NDArray[np.bool_]]:
    """Return the draws of a run as weighted ones, and a mask (chain, draw) of those that count.

    A draw ends its cycle, so it belongs to the tour that starts within the cycle, if one does.
    """
    pieces = split_pieces(stats)
    shape = stats.tour_start.shape
    piece = 2 * np.arange(stats.tour_start.size) + 1
    keep = pieces.used[piece]
    draws = WeightedDraws(stats, pieces, np.ones(int(keep.sum())), piece[keep])
    return draws, keep.reshape(shape)


def reweight(draws: Draws, change: FloatArray, evidence: Evidence) -> Reweighted:
    """Estimate the evidence of changed models from the draws of one run.

    With r_v the ratio of the joint densities, log Z_v = log Z + log E[r_v] and
    E[r_v] = sum_i w_i r_v(x_i) / sum_i w_i. A part b of the run moves the two, to first order, by
    its effect on log Z (for a tour C_bK / C_K - C_b1 / C_1, its Rao-Blackwell weights of the last
    and the first rung), and by A_b / A - B_b / B, its sums of w r_v and of w. Both come from the
    same draws, so the error of log Z_v is that of the sum of the two (delta method), and of
    :func:`unseen_tail`. Where reference draws are in the evidence, its error and that of the ratio
    are added up, which is right or too large whatever their covariance.

    Parameters
    ----------
    draws : Draws
    change : ndarray, shape (n, V)
        log r_v of the draws (nats); minus infinity where the changed model has no density.
    evidence : Evidence
        Of the same draws. What its error has beyond that of their scatter is added.

    Returns
    -------
    Reweighted
        Errors are infinite where that of the evidence is, and where few tours or draws hold the
        weight (effective number below 10).
    """
    share, log_ratio = shares(draws.weight, change)
    base = draws.weight / draws.weight.sum()
    effects = share - base[:, None]
    own = draws.errors_with_log_z(np.zeros((len(base), 1)))
    alone, joint = draws.errors(effects), draws.errors_with_log_z(effects)
    if evidence.verdict == "disagreed":
        alone = np.fmax(alone, _scatter_of_chains(draws, change))
    extra = max(evidence.mcse**2 - float(own[0]) ** 2, 0.0)  # infinite without an error
    if evidence.method == "pooled":  # with the reference draws the covariance is not known
        joint, extra = evidence.mcse + alone, 0.0
    unknown = draws.few(share) | ~np.isfinite(evidence.mcse)
    same = np.all(np.abs(change) < ROUNDING, axis=0)
    with np.errstate(divide="ignore"):
        log_weight = np.log(draws.weight)
    khats = [
        -np.inf if still else pareto_khat(log_weight + column)
        for still, column in zip(same, change.T, strict=True)
    ]
    khat = np.array(khats)
    beyond = unseen_tail(np.minimum(share.max(axis=0) * draws.copies, 1.0), khat)
    return Reweighted(
        log_ratio=np.where(same, 0.0, log_ratio),
        log_ratio_mcse=np.where(same, 0.0, np.where(unknown, np.inf, np.hypot(alone, beyond))),
        mcse=np.where(
            same, evidence.mcse, np.where(unknown, np.inf, np.sqrt(joint**2 + extra + beyond**2))
        ),
        ess=kish(share),
        khat=khat,
    )


def unseen_tail(largest: FloatArray, khat: FloatArray) -> FloatArray:
    """Return what a Pareto tail is expected to hold beyond the largest weight, as a share.

    One weight in n lies beyond the largest of n, by the mean excess k / (1 - k) times itself. That
    share is not in the sums, so no scatter between tours shows it. Infinite from k = 1 on.
    """
    k = np.maximum(khat, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(k < 1.0, largest * k / (1.0 - k), np.inf)


def shares(weight: FloatArray, change: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return each draw's share of the changed weights (n, V), and the log of E[r_v] (V,)."""
    highest = change.max(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        shift = np.where(np.isfinite(highest), highest, 0.0)
        changed = weight[:, None] * np.exp(change - shift)
        total = changed.sum(axis=0)
        log_ratio = shift + np.log(total) - np.log(weight.sum())
        return np.where(total > 0.0, changed / total, 0.0), log_ratio


def moments(draws: Draws, change: FloatArray, values: FloatArray) -> FloatArray:
    """Return mean, sd and mcse of numbers of the draws (n, M) under each change, (3, V, M)."""
    share, _ = shares(draws.weight, change)
    result = np.empty((3, share.shape[1], values.shape[1]))
    for v, column in enumerate(share.T):
        mean = column @ values
        off = values - mean
        result[:, v] = mean, np.sqrt(column @ off**2), draws.errors(column[:, None] * off)
    return result


def _scatter_of_chains(draws: Draws, change: FloatArray) -> FloatArray:
    """Return the standard error of the mean of the chains' own log ratios, shape (V,)."""
    chain = draws.chain
    names = np.unique(chain)
    if names.size < 2:
        return np.full(change.shape[1], np.inf)
    own = np.array([shares(draws.weight[chain == c], change[chain == c])[1] for c in names])
    with np.errstate(invalid="ignore"):
        return own.std(axis=0, ddof=1) / np.sqrt(names.size)


def expectation(
    idata: xr.DataTree,
    functions: Function | Mapping[str, Function] | None = None,
    *,
    var_names: Sequence[str] | None = None,
) -> xr.Dataset:
    """Estimate posterior expectations from the states of all rungs.

    E[h] = sum_i w_i h(x_i) / sum_i w_i over all iterations, with w_i = q(beta_K | x_i), the
    probability of beta = 1 given the state (Geyer & Thompson 1995; Carlson et al. 2016, section
    2.1).

    Parameters
    ----------
    idata : DataTree
        A run of :func:`pymc_tempering.sample` with ``keep="states"``.
    functions : callable or mapping of str to callable, optional
        Each takes a Dataset of the variables of ``posterior`` (constrained space, deterministics
        included) with dimensions (chain, state, ...) and returns a DataArray with (chain, state)
        among its dimensions. By default the variables themselves.
    var_names : sequence of str, optional
        Variables, where there are no ``functions``; by default all.

    Returns
    -------
    Dataset
        Each expectation with a dimension ``metric``: ``mean``, ``sd`` (of h under the posterior),
        ``mcse`` (over tours, at least that over batches of draws) and ``ess``, the number of
        independent posterior draws with the same mcse, (sd / mcse)^2. Attributes: ``weight_ess``,
        Kish's effective number of the weighted states, ``n_states`` and ``n_tours``.

    Raises
    ------
    NotTemperedError
        If ``idata`` holds no states, or a trace that is not of its draws.
    LadderError
        If its draws do not come from one ladder.
    ValueError
        If a name is unknown, a function returns something else than a DataArray by (chain, state),
        or a value is not finite.

    Warns
    -----
    TemperingWarning
        For each warning of the run's evidence, which concerns the states as well. Where that has
        no error (too few tours, an alarm) the mcse is infinite here, too.

    Examples
    --------
    >>> import pymc_tempering as pmt
    >>> found = pmt.expectation(idata, {"square": lambda draws: draws["x"] ** 2})["square"]
    >>> mean, mcse = found.sel(metric=["mean", "mcse"]).values
    >>> bool(abs(mean - 2.76) < 4 * mcse)
    True
    """
    states = read_states(idata)
    draws = state_draws(states)
    values = _values(states.variables, functions, var_names)

    evidence = estimate_quietly(idata)
    sentences = list(evidence.warnings)
    n_tours = float(draws.tours(draws.weight[:, None])[0])
    known = np.isfinite(evidence.mcse) and n_tours >= MIN_ESS
    if not known and not sentences:
        sentences.append(
            f"A few tours hold nearly all the weight (effective number {n_tours:.1f}), so "
            "the mcse of expectations is infinite: sample more draws."
        )
    result = {}
    for name, value in values.items():
        ordered = value.transpose("chain", "state", ...)
        table = _finite_table(name, ordered, states.keep)
        mean, sd, mcse = moments(draws, np.zeros((len(table), 1)), table)[:, 0]
        if not known:
            mcse = np.full_like(mcse, np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            ess = np.where(mcse > 0.0, (sd / mcse) ** 2, np.inf)
        rest = ordered.isel(chain=0, state=0, drop=True)
        result[name] = xr.concat(
            [rest.copy(data=row.reshape(rest.shape)) for row in (mean, sd, mcse, ess)], dim="metric"
        )
    for sentence in sentences:
        warn_user(sentence)
    attrs = {
        "weight_ess": float(kish(draws.weight)),
        "n_states": len(draws.weight),
        "n_tours": evidence.n_tours,
    }
    return xr.Dataset(result, {"metric": list(METRICS)}, attrs)


def known_names(names: str | Sequence[Any], known: xr.Dataset, whose: str) -> list[str]:
    """Return the names of variables, or raise an error if some are not there."""
    names = [names] if isinstance(names, str) else [str(name) for name in names]
    if unknown := [name for name in names if name not in known.data_vars]:
        raise ValueError(
            f"var_names {listed(unknown)} are not among {whose}: "
            f"{', '.join(map(str, known.data_vars))}"
        )
    return names


def _values(
    draws: xr.Dataset,
    functions: Function | Mapping[str, Function] | None,
    var_names: Sequence[str] | None,
) -> dict[str, xr.DataArray]:
    """Evaluate the functions, or pick the variables."""
    if functions is None:
        names = list(draws.data_vars) if var_names is None else var_names
        return {name: draws[name] for name in known_names(names, draws, "the states' variables")}
    if not isinstance(functions, Mapping):
        functions = {getattr(functions, "__name__", "expectation"): functions}
    values = {name: function(draws) for name, function in functions.items()}
    for name, value in values.items():
        if not isinstance(value, xr.DataArray) or not {"chain", "state"} <= set(value.dims):
            raise ValueError(
                f"{name!r} must return a DataArray with dimensions chain and state, got "
                f"{getattr(value, 'dims', type(value).__name__)}"
            )
    return values


def _finite_table(name: str, ordered: xr.DataArray, keep: np.ndarray) -> FloatArray:
    """Return the values at the kept states, shape (n, M)."""
    table = np.asarray(ordered.values, dtype=float)[keep]
    if not np.isfinite(table).all():
        raise ValueError(f"{name!r} is not finite at {int(np.sum(~np.isfinite(table)))} states")
    return table.reshape(len(table), -1)
