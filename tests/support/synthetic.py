"""Simulated tempering of a toy in plain NumPy, for examples and tests of estimators.

The toy here is x ~ N(0, 1), y ~ N(x, sigma^2) with one observation y. Every tempered density is a
Gaussian, so explorations can be exact draws and log Z(beta) is known. Nothing here shares code with
the compiled sampler. All chains take each step together, in one NumPy operation.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import xarray as xr

from pymc_tempering.core.cycles import LADDER_STATS, RUNG_STATS, SCALAR_STATS, BoolArray, FloatArray


class Toy(Protocol):
    """One number x, and a path of densities that can be sampled."""

    @property
    def y(self) -> float:
        """The observation."""

    def log_ratio(self, x: FloatArray) -> FloatArray:
        """Return log_ratio (nats) at ``x``; minus infinity is a legal number."""

    def log_z(self, beta: FloatArray) -> FloatArray:
        """Return the exact log Z(beta) in nats."""

    def reference_draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw n states from the reference."""

    def explore(
        self, x: FloatArray, beta: FloatArray, rho: float, rng: np.random.Generator
    ) -> FloatArray:
        """Move each state by a transition that leaves its density invariant."""


@dataclass(frozen=True)
class GaussianToy:
    """x ~ N(0, 1), y ~ N(x, sigma^2): normal at every beta, with known log Z(beta)."""

    y: float = 2.0
    sigma: float = 0.5

    def reference_draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw n states from the reference."""
        return rng.standard_normal(n)

    def explore(
        self, x: FloatArray, beta: FloatArray, rho: float, rng: np.random.Generator
    ) -> FloatArray:
        """Move each state with autocorrelation ``rho``; draw afresh at beta = 0."""
        mean, sd = self.moments(beta)
        keep = np.where(beta == 0.0, 0.0, rho)
        noise = np.sqrt(1.0 - keep**2) * sd * rng.standard_normal(x.size)
        return np.asarray(mean + keep * (x - mean) + noise)

    def log_ratio(self, x: FloatArray) -> FloatArray:
        """Return the log-likelihood (nats) at ``x``."""
        z = (self.y - x) / self.sigma
        return np.asarray(-0.5 * z**2 - np.log(self.sigma) - 0.5 * np.log(2 * np.pi))

    def moments(self, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and standard deviation of the tempered density at ``beta``."""
        precision = 1.0 + beta / self.sigma**2
        return beta * self.y / self.sigma**2 / precision, precision**-0.5

    def log_z(self, beta: FloatArray) -> FloatArray:
        """Return the exact log Z(beta) in nats."""
        mean, sd = self.moments(beta)
        quadratic = beta * self.y**2 / self.sigma**2 - (mean / sd) ** 2
        log_norm = beta * (np.log(self.sigma) + 0.5 * np.log(2 * np.pi))
        return np.asarray(np.log(sd) - 0.5 * quadratic - log_norm)


@dataclass(frozen=True, eq=False)
class Trace:
    """Record of every iteration of all chains: arrays of shape (iteration, chain)."""

    x: FloatArray
    rung: np.ndarray
    jump: FloatArray


def simulate(
    toy: Toy,
    betas: FloatArray,
    log_z_ladder: FloatArray,
    log_weight: FloatArray,
    *,
    draws: int,
    n_chains: int,
    rho: float,
    ladder_move: str,
    rng: np.random.Generator,
) -> Trace:
    """Run chains until each has visited beta = 1 ``draws`` times.

    ``rho`` is the autocorrelation of x across one exploration (0: exact draws; always 0 at
    beta = 0); ``ladder_move`` is "gibbs" or "nonreversible".
    """
    last, every = betas.size - 1, np.arange(n_chains)
    x, k = toy.reference_draw(n_chains, rng), np.zeros(n_chains, dtype=int)
    direction, cold = np.ones(n_chains, dtype=int), np.zeros(n_chains, dtype=int)
    records: tuple[list, list, list] = ([], [], [])
    while cold.min() < draws:
        old = toy.log_ratio(x)
        x = toy.explore(x, betas[k], rho, rng)
        ratio = toy.log_ratio(x)
        with np.errstate(invalid="ignore"):
            jump = np.where(k == 0, 0.0, ratio - old)
        for record, value in zip(records, (x, k, jump), strict=True):
            record.append(value)
        cold += k == last
        logits = _log_q(betas, log_z_ladder, log_weight, ratio)
        if ladder_move == "gibbs":
            gumbel = rng.gumbel(size=logits.shape)
            k = np.argmax(logits + gumbel, axis=1)
            continue
        inside = (k + direction >= 0) & (k + direction <= last)
        proposal = np.where(inside, k + direction, k)
        gain = np.where(inside, logits[every, proposal] - logits[every, k], 0.0)
        accept = inside & (np.log(rng.random(n_chains)) < gain)
        k, direction = np.where(accept, proposal, k), np.where(accept, direction, -direction)
    return Trace(*(np.array(record) for record in records))


def _log_q(
    betas: FloatArray, log_z_ladder: FloatArray, log_weight: FloatArray, ratio: FloatArray
) -> FloatArray:
    """Return log q(beta_k | x) up to a constant, shape (n, K); 0 * (-inf) = 0."""
    with np.errstate(invalid="ignore"):
        tilt = np.where(betas == 0.0, 0.0, betas * ratio[:, None])
    return np.asarray(log_weight - log_z_ladder + tilt)


def cycle_sums(
    toy: Toy,
    betas: FloatArray,
    log_z_ladder: FloatArray,
    log_weight: FloatArray,
    trace: Trace,
    chain: int,
    draws: int,
) -> dict[str, FloatArray | BoolArray]:
    """Return the statistics of one chain's cycles (`data_layout.md`), ``x`` and the trace."""
    last = betas.size - 1
    ends = np.flatnonzero(trace.rung[:, chain] == last)[:draws] + 1
    x, k, jump = (a[: ends[-1], chain] for a in (trace.x, trace.rung, trace.jump))
    starts = np.concatenate([[0], ends[:-1]])
    at = (k[:, None] == np.arange(last + 1)).astype(float)
    ratio = toy.log_ratio(x)
    logits = _log_q(betas, log_z_ladder, log_weight, ratio)
    q = np.exp(logits - np.logaddexp.reduce(logits, axis=1)[:, None])

    # A tour starts with the first visit to beta = 0 in a cycle, since a cycle ends at beta = 1.
    iteration, cycle = np.arange(k.size), np.repeat(np.arange(draws), ends - starts)
    first_zero = np.minimum.reduceat(np.where(k == 0, iteration, k.size), starts)
    tour_start = first_zero < k.size
    in_head = (iteration < first_zero[cycle]) & tour_start[cycle]

    per_rung = _rung_terms(at, q, ratio, jump, in_head)
    stats = {name: np.add.reduceat(values, starts, axis=0) for name, values in per_rung.items()}
    return stats | {
        "tempering_steps": ends - starts,
        "beta_min": np.minimum.reduceat(betas[k], starts),
        "tour_start": tour_start,
        "n_divergences": np.zeros(draws, dtype=int),
        "n_zero_likelihood": np.add.reduceat((ratio == -np.inf).astype(int), starts),
        "x": x[ends - 1],
        "trace_rung": k,
        "trace_log_ratio": ratio,
        "trace_x": x,
    }


def _rung_terms(
    at: FloatArray, q: FloatArray, ratio: FloatArray, jump: FloatArray, in_head: BoolArray
) -> dict[str, FloatArray]:
    """Return what each iteration adds to the statistics by rung, shape (n, K) each.

    ``at`` marks the rung that was explored, shape (n, K); ``q`` are the probabilities of the rungs.
    """
    up = np.minimum(1.0, q[:, 1:] / np.maximum(q[:, :-1], 1e-300))
    up = np.column_stack([up, np.zeros(ratio.size)])
    zero = ratio == -np.inf
    finite, q_finite = np.where(zero, 0.0, ratio), np.where(zero[:, None], 0.0, q)
    return {
        "rb_weight": q,
        "rb_weight_head": q * in_head[:, None],
        "visits": at,
        "log_ratio_sum": at * finite[:, None],
        "log_ratio_sqsum": at * finite[:, None] ** 2,
        "rb_log_ratio_sum": q_finite * finite[:, None],
        "rb_log_ratio_sqsum": q_finite * finite[:, None] ** 2,
        "jump_sqsum": at * jump[:, None] ** 2,
        "accept_sum": at,
        "up_accept_sum": at * up,
    }


def gaussian_run(
    draws: int = 500,
    chains: int = 4,
    *,
    toy: Toy | None = None,
    betas: FloatArray | None = None,
    log_z_ladder: FloatArray | None = None,
    log_weight: FloatArray | None = None,
    rho: float = 0.0,
    ladder_move: str = "gibbs",
    reference_draws: int = 0,
    random_seed: int = 0,
) -> xr.DataTree:
    """Sample the Gaussian toy by simulated tempering into a DataTree as ``pm.sample`` returns it.

    Parameters
    ----------
    draws : int, default 500
        Recorded draws in each chain.
    chains : int, default 4
        Chains.
    toy : GaussianToy, optional
        The model; by default y = 2 and sigma = 0.5, whose exact log Z is in ``GaussianToy.log_z``.
    betas : ndarray, shape (K,), optional
        The ladder.
    log_z_ladder, log_weight : ndarray, shape (K,), optional
        log Z-hat_k (nats; exact by default) and log r_k (uniform by default).
    rho : float, default 0.0
        Autocorrelation of x across one exploration; 0 for exact draws.
    ladder_move : {"gibbs", "nonreversible"}, default "gibbs"
        Move on the ladder.
    reference_draws : int, default 0
        Further draws of the reference, beside the chains.
    random_seed : int, default 0
        Seed.

    Returns
    -------
    DataTree
        Groups posterior, sample_stats, observed_data, tempering_trace and tempering_states, and
        tempering_reference where there are such draws.

    Examples
    --------
    >>> from support.synthetic import gaussian_run
    >>> idata = gaussian_run(draws=50, chains=2)
    >>> dict(idata["posterior"].sizes)
    {'chain': 2, 'draw': 50}
    """
    toy = toy or GaussianToy()
    betas = np.array([0.0, 0.03, 0.12, 0.4, 1.0]) if betas is None else np.asarray(betas)
    if log_z_ladder is None:
        log_z_ladder = toy.log_z(betas)
    log_weight = np.full(betas.size, -np.log(betas.size)) if log_weight is None else log_weight
    trace = simulate(
        toy,
        betas,
        log_z_ladder,
        log_weight,
        draws=draws,
        n_chains=chains,
        rho=rho,
        ladder_move=ladder_move,
        rng=np.random.default_rng(random_seed),
    )
    runs = [
        cycle_sums(toy, betas, log_z_ladder, log_weight, trace, chain, draws)
        for chain in range(chains)
    ]
    tree = synthetic_datatree(toy, betas, log_z_ladder, log_weight, runs)
    if reference_draws:
        rng = np.random.default_rng([random_seed, reference_draws])
        ratio = toy.log_ratio(toy.reference_draw(reference_draws, rng))
        tree["tempering_reference"] = xr.DataTree(xr.Dataset({"log_ratio": ("draw", ratio)}))
    return tree


def synthetic_datatree(
    toy: Toy,
    betas: FloatArray,
    log_z_ladder: FloatArray,
    log_weight: FloatArray,
    runs: list[dict[str, FloatArray | BoolArray]],
) -> xr.DataTree:
    """Put the cycle sums of chains of equal length into a DataTree, with PyMC's dimensions."""
    chains, draws = len(runs), len(runs[0]["x"])
    ladder = dict(zip(LADDER_STATS, (betas, log_z_ladder, log_weight), strict=True))
    vectors = {name: np.broadcast_to(v, (chains, draws, v.size)) for name, v in ladder.items()}
    vectors |= {name: np.stack([run[name] for run in runs]) for name in RUNG_STATS}
    scalars = (*SCALAR_STATS, "n_zero_likelihood")
    data: dict = {n: (("chain", "draw"), np.stack([r[n] for r in runs])) for n in scalars}
    data |= {n: (("chain", "draw", f"{n}_dim_0"), values) for n, values in vectors.items()}
    coords: dict = {"chain": np.arange(chains), "draw": np.arange(draws)}
    dims = {f"{name}_dim_0": np.arange(betas.size) for name in vectors}
    length = max(len(run["trace_rung"]) for run in runs)
    rung, iteration = np.full((2, chains, length), -1)
    ratio, x = np.full((2, chains, length), np.nan)
    for chain, run in enumerate(runs):
        n = len(run["trace_rung"])
        rung[chain, :n], ratio[chain, :n] = run["trace_rung"], run["trace_log_ratio"]
        iteration[chain, :n], x[chain, :n] = np.arange(n), run["trace_x"]
    flat = {"rung": (("chain", "iteration"), rung), "log_ratio": (("chain", "iteration"), ratio)}
    hot = {"x": x, "iteration": iteration, "keep_probability": np.where(iteration < 0, np.nan, 1.0)}
    states = {name: (("chain", "state"), values) for name, values in hot.items()}
    return xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset(
                {"x": (("chain", "draw"), np.stack([r["x"] for r in runs]))}, coords
            ),
            "sample_stats": xr.Dataset(data, coords | dims),
            "observed_data": xr.Dataset({"y": ("y_dim_0", np.array([toy.y]))}),
            "tempering_trace": xr.Dataset(flat, {"chain": np.arange(chains)}),
            "tempering_states": xr.Dataset(states, {"chain": np.arange(chains)}),
        }
    )
