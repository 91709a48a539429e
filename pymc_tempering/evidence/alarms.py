"""What is wrong with a run, and what to do: sentences, and the tests behind them."""

import numpy as np

from pymc_tempering.core.cycles import BoolArray, CycleStats, FloatArray
from pymc_tempering.core.weighting import MIN_ESS, error_of_influence
from pymc_tempering.evidence.pieces import Tours, tour_labels

ROUNDING = 1e-10
"""Error of any estimate by rounding, relative to its size and at least to one nat."""

MIN_TOURS = 20
"""Complete tours below which no error is stated."""

MIN_CHAIN_TOURS = 5
"""Complete tours below which a chain is not compared with the others."""

MAX_WEIGHT_EXCESS = 7.0
"""The largest of n tours may weigh log(n) + 7 means; a share of e^-7 of the runs exceeds this."""

MIN_LONE_EXCESS, MIN_LONE_DRAWS = 2.0, 3
"""One tour is an alarm if it surpasses all others by 2 nats, in 3 draws."""

LARGEST_TOURS, MIN_LONE_PVALUE = 20, np.exp(-7.0)
"""The largest so many tours show the scale of the tail; a lone one is beyond what it explains."""

MAX_LONE_TOURS = 8
"""So many tours may be alone together: each chain may have met the region, and met it again."""

MAX_REJECTION = 0.7
"""Rejection rate between neighboring rungs above which the ladder has a gap."""

MAX_LOG_OCCUPANCY = 1.5
"""|log(c_k / r_k)| above which occupancy is far from r."""


def homogeneity_pvalue(estimate: FloatArray, error: FloatArray, df: FloatArray) -> float:
    """Test whether independent estimates with estimated errors have one mean.

    The chi-square statistic sum((estimate - weighted mean)^2 / error^2), referred to the F
    distribution with Welch's (1951) correction for errors that are themselves estimated; with
    ``df`` to infinity it is the plain chi-square test with C - 1 degrees of freedom. The inverse
    variances weight the *test* alone, never an estimate.

    Parameters
    ----------
    estimate, error : ndarray, shape (C,)
        One estimate a chain, and its standard error (nats); those with an error that is not
        positive and finite are left out.
    df : ndarray, shape (C,)
        Degrees of freedom of each error: the effective number of tours less one.

    Returns
    -------
    float
        p-value; 1.0 where fewer than two chains can be compared.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_tempering.evidence import homogeneity_pvalue
    >>> error, df = np.array([0.1, 0.1, 0.1]), np.array([50.0, 50.0, 50.0])
    >>> round(homogeneity_pvalue(np.array([1.0, 1.05, 0.9]), error, df), 2)
    0.56
    >>> homogeneity_pvalue(np.array([1.0, 1.0, 3.0]), error, df) < 1e-3
    True
    """
    from scipy.special import fdtrc  # scipy.stats takes half a second to import

    usable = np.isfinite(estimate) & np.isfinite(error) & (error > 0.0)
    if usable.sum() < 2:
        return 1.0
    value, df = estimate[usable], np.maximum(df[usable], 1.0)
    rounding = ROUNDING * np.maximum(np.abs(value), 1.0)
    weight = np.maximum(error[usable], rounding) ** -2.0
    n, share = value.size, weight / weight.sum()
    chi2 = float(np.sum(weight * (value - np.sum(share * value)) ** 2))
    spread = float(np.sum((1.0 - share) ** 2 / df))
    f_stat = chi2 / (n - 1) / (1.0 + 2.0 * (n - 2) / (n**2 - 1) * spread)
    return float(fdtrc(n - 1, (n**2 - 1) / (3.0 * spread), f_stat))


def identical_chains(rb_weight: FloatArray) -> list[list[int]]:
    """Return the groups of chains whose sums of ``rb_weight`` (chain, draw, K) are equal.

    Independent chains never agree to the last bit. Equal ones had the same seed or state.
    """
    sums = rb_weight.sum(axis=1)
    _, inverse = np.unique(sums, axis=0, return_inverse=True)
    label = inverse.reshape(-1)
    groups = [np.flatnonzero(label == which) for which in range(int(label.max()) + 1)]
    return [group.tolist() for group in groups if group.size > 1]


def chain_alarms(stats: CycleStats, sound: BoolArray) -> list[str]:
    """Name chains with non-finite numbers (``sound`` marks the others), and identical chains."""
    messages = []
    if not sound.all():
        bad = _names("chain", np.flatnonzero(~sound).tolist())
        messages.append(
            f"{bad} hold{'s' if (~sound).sum() == 1 else ''} non-finite Rao-Blackwell weights. "
            "The estimate leaves them out and has no error: look for NaN in the model's "
            "log-likelihood and sample again."
        )
    where = np.flatnonzero(sound)
    for group in identical_chains(stats.rb_weight[sound]) if where.size else []:
        messages.append(
            f"{_names('chain', where[group].tolist())} are identical, which is not agreement: "
            "sample again with a different random seed for each chain."
        )
    return messages


def tour_warnings(n_tours: int, ess: float, round_trips: tuple[int, ...]) -> list[str]:
    """Warn of too few tours for an error, or in some chain for a comparison."""
    if n_tours < MIN_TOURS:
        more = f"about {np.ceil(2 * MIN_TOURS / n_tours):.0f} times as many" if n_tours else "more"
        return [
            f"Only {n_tours} tours were completed and an error needs {MIN_TOURS}, so the mcse "
            f"is infinite: sample {more} draws, or look at diagnose() for what slows the chain."
        ]
    if ess < MIN_ESS:
        return [
            f"A few long tours hold nearly all the weight (effective number {ess:.1f} of "
            f"{n_tours}), so the mcse is infinite: sample more draws, or explore better at the "
            "rungs that diagnose() shows."
        ]
    idle = [chain for chain, trips in enumerate(round_trips) if trips < MIN_CHAIN_TOURS]
    if idle:
        return [
            f"{_names('chain', idle)} completed fewer than {MIN_CHAIN_TOURS} tours and could not "
            "be compared with the others: sample more draws."
        ]
    return []


def lone_tour_warnings(
    top_weight: FloatArray, cold_log_ratio: FloatArray, tour_start: BoolArray
) -> list[str]:
    """Warn if one tour alone holds far more weight, or far better draws, than all others.

    A first-order transition looks like this: a tour that entered the region rarely leaves it, and
    one tour does not show how rarely tours enter it. Unfinished tours count.

    Parameters
    ----------
    top_weight : ndarray, shape (F,)
        Sum of q(beta_K | x) of each tour, unfinished ones included.
    cold_log_ratio : ndarray, shape (chain, draw)
        log_ratio of the draws at beta = 1 (nats).
    tour_start : ndarray of bool, shape (chain, draw)
        Whether a tour starts in the draw's cycle.
    """
    if top_weight.size < 2:
        return []
    # Weights of tours have exponential tails: the largest of n is about log(n) means. Where slow
    # tails of the posterior have a larger scale of their own, the largest tours show it.
    largest = float(top_weight.max() / top_weight.mean())
    usual = np.log(top_weight.size) + MAX_WEIGHT_EXCESS
    if largest > usual and lone_pvalue(top_weight) < MIN_LONE_PVALUE:
        return [
            f"One tour holds {largest:.0f} times the mean weight at beta = 1, so the mcse is "
            "infinite: it met a region that few others find, or cannot leave; sample many more "
            "draws, or use more rungs."
        ]
    tour = tour_labels(tour_start).ravel()
    log_ratio = cold_log_ratio.ravel()
    best = tour[np.argmax(log_ratio)]
    others = log_ratio[tour != best]
    if others.size == 0:
        return []
    by_tour = np.maximum.reduceat(log_ratio, np.flatnonzero(np.diff(tour, prepend=-1)))
    above = int(np.sum(log_ratio > others.max() + MIN_LONE_EXCESS))
    if above < MIN_LONE_DRAWS or lone_pvalue(by_tour) >= MIN_LONE_PVALUE:
        return []
    return [
        f"One tour alone found {above} draws whose log_ratio exceeds that of all others by more "
        f"than {MIN_LONE_EXCESS:.0f} nats, so the mcse is infinite: how often that region is found "
        "cannot be told from one tour; sample many more draws."
    ]


def lone_pvalue(values: FloatArray) -> float:
    """Return the p-value of the largest of i.i.d. values, one or a few, in an exponential tail.

    Of k ordered values in such a tail, w_1 the largest, the j (w_j - w_(j+1)) are independent and
    exponential with one scale (Renyi 1953). So with S the sum of those after the r-th, the r-th
    over S is larger than c with probability (1 + c)^-(k - 1 - r). Each r up to
    ``MAX_LONE_TOURS`` is asked, and the least is multiplied by their number: several chains that
    are caught in one region hide each other from a test of the largest alone.
    """
    tail = np.sort(values[np.isfinite(values)])[::-1][:LARGEST_TOURS]
    n_gaps = min(MAX_LONE_TOURS, tail.size - 2)
    if n_gaps < 1:
        return 0.0
    spacings = np.arange(1, tail.size) * -np.diff(tail)
    later = np.cumsum(spacings[::-1])[::-1][1 : n_gaps + 1]
    apart = spacings[:n_gaps] > 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.where(apart, spacings[:n_gaps] / later, 0.0)
    least = np.min((1.0 + excess) ** -np.arange(tail.size - 2.0, tail.size - 2 - n_gaps, -1))
    return min(1.0, n_gaps * float(least))


def disagreement_warning(pvalue: float) -> str:
    """Warn that the chains disagree."""
    return (
        f"The chains disagree about log Z (p = {pvalue:.1g}), so the mcse is at least their "
        "scatter: some mode is found by some chains only; sample many more draws."
    )


def occupancy_warnings(stats: CycleStats, tours: Tours) -> list[str]:
    """Warn if the time spent at a rung differs from r by far more than noise explains."""
    if len(tours.sums) < 2:
        return []
    length = tours.sums.sum(axis=1, keepdims=True)
    total = tours.sums.sum(axis=0)
    log_r = stats.log_weight - np.logaddexp.reduce(stats.log_weight)
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.log(total / total.sum()) - log_r
        influence = tours.sums / total - length / total.sum()
        noise = error_of_influence(influence)
        far = (np.abs(excess) > MAX_LOG_OCCUPANCY) & ~(np.abs(excess) < 3.0 * noise)
    if not far.any():
        return []
    worst = int(np.argmax(np.where(far, np.abs(excess), -1.0)))
    return [
        f"Occupancy is far from r at rung {worst} (log(c/r) = {excess[worst]:.1f}): the ladder's "
        "log Z had not converged when sampling began, so sample again with another random seed, "
        "or with more draws."
    ]


def neighbor_rejection(stats: CycleStats) -> FloatArray:
    """Return the rejection rate of the move between rungs k and k + 1, shape (K - 1,).

    A move up is accepted at the mean rate a_k of min(1, w_{k+1} / w_k) over the visits to rung k,
    with w_k proportional to q(beta_k | x). The returned rate is that of the move out of the less
    occupied of the two rungs, 1 - a_k max(1, c_k / c_{k+1}), which by detailed balance needs the
    moves up alone. At equal occupancy it is 1 - a_k, the rate r(beta_k, beta_{k+1}) of Syed et
    al. (2022). If r_k is not uniform, or log Z-hat is off, 1 - a_k is also large because of the
    weights and not of the spacing. NaN where rung k was never visited.
    """
    visits = stats.visits.sum(axis=(0, 1))[:-1]
    accepted = stats.up_accept_sum.sum(axis=(0, 1))[:-1]
    share = np.nansum(stats.rb_weight, axis=(0, 1))
    rate = np.full(visits.shape, np.nan)
    np.divide(accepted, visits, out=rate, where=visits > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate *= np.maximum(1.0, share[:-1] / share[1:])
    return np.clip(1.0 - rate, 0.0, 1.0)


def ladder_warnings(stats: CycleStats) -> list[str]:
    """Warn if two neighboring rungs are too far apart."""
    rejection = neighbor_rejection(stats)
    known = np.nan_to_num(rejection, nan=0.0)
    worst = int(np.argmax(known))
    if known[worst] <= MAX_REJECTION:
        return []
    return [
        f"The ladder has a gap between rungs {worst} and {worst + 1} (rejection "
        f"{rejection[worst]:.2f} > {MAX_REJECTION}): sample again with more rungs there."
    ]


def empty_warnings(visits: FloatArray, rests_on: str) -> list[str]:
    """Warn of rungs that were never visited, and say what their log Z_k rests on."""
    empty = np.flatnonzero(visits == 0.0)
    if empty.size == 0:
        return []
    which = ", ".join(str(k) for k in empty[:8]) + (", ..." if empty.size > 8 else "")
    many = empty.size > 1
    return [
        f"Rung{'s' if many else ''} {which} {'were' if many else 'was'} never visited, so that log "
        f"Z there rests on {rests_on} and has no error: sample more draws, use fewer rungs, or "
        'method="rts", which needs no visits.'
    ]


def _names(noun: str, which: list[int]) -> str:
    plural = "" if len(which) == 1 else "s"
    return f"{noun.capitalize()}{plural} {', '.join(str(i) for i in which)}"
