"""Coverage of the 95 % intervals of `pmt.prior_sensitivity`, on two models with exact answers.

Each run is made once, with the states of all rungs kept, and its curve is made twice: from all
states, and from the draws at beta = 1 alone. With `--from chains` the draws are those of a Markov
chain that is exact: each draw is the one before with probability 0.6, else a fresh one from the
posterior; their log Z is that of bridge sampling. `log_z` and `log_bf` are the coverages of the
intervals of log Z and of the log Bayes factor over the default. A scale whose coverage is outside
of [0.91, 0.985] gets as many further runs, and is judged by all of them.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
import xarray as xr
from common import Row, parser, save
from scipy import stats

import pymc_tempering as pmt

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.scaled_priors import ScaledSystem, jzs_t_test, scaled_regression

FACTORS = {
    "scaled_regression": (0.4, 0.7, 2.0, 5.0, 10.0),
    "jzs_t_test": (0.15, 0.5, 2.0, 5.0, 10.0),
}
SYSTEMS = {
    "scaled_regression": scaled_regression,
    "jzs_t_test": jzs_t_test,
}
LOW, HIGH = 0.91, 0.985
HALF = 1.959963984540054
DRAWS = 300
CHAIN_DRAWS = 500
STAY = 0.6
"""Probability of staying, and so the autocorrelation of neighbors: 4 draws are worth one."""

type Draws = dict[str, np.ndarray]
type Results = dict[tuple[str, float], list[tuple[float, ...]]]


def curves(
    idata: xr.DataTree, system: ScaledSystem, seed: int
) -> Iterator[tuple[str, pmt.sensitivity.SensitivityCurve]]:
    """Return the curve from all states, and that from the draws."""
    bare = idata.copy()
    del bare["tempering_states"]
    for kind, tree in (("states", idata), ("draws", bare)):
        found = pmt.prior_sensitivity(
            tree,
            system.model,
            {system.variable: FACTORS[system.name]},
            random_seed=seed,
            quiet=True,
            sample_kwargs={"keep": "log_ratio"},
        )
        yield kind, found[system.variable]


def posterior_of(system: ScaledSystem) -> Callable[[np.random.Generator, int], Draws]:
    """Exact independent draws of a system's posterior, by name of the variable."""
    y = np.asarray(system.model.rvs_to_values[system.model["y"]].data)
    if system.name == "scaled_regression":  # its arguments are those of the default
        rng = np.random.default_rng(1)
        X = rng.normal(size=(y.size, 4))
        covariance = np.linalg.inv(X.T @ X + np.eye(4) / 4.0)
        mean, root = covariance @ X.T @ y, np.linalg.cholesky(covariance)
        return lambda rng, n: {"coef": mean + rng.normal(size=(n, 4)) @ root.T}
    delta = np.linspace(-2.0, 4.0, 3001)
    log_sigma = np.linspace(-1.5, 1.5, 1501)
    z = y[:, None] * np.exp(-log_sigma)
    fit = -0.5 * ((z**2).sum(0) - 2.0 * np.outer(delta, z.sum(0)) + y.size * delta[:, None] ** 2)
    log_p = fit - y.size * log_sigma - 0.5 * log_sigma**2
    log_p += stats.cauchy.logpdf(delta, 0.0, 0.5**0.5)[:, None]
    share = np.exp(log_p - log_p.max()).ravel()
    below = np.cumsum(share / share.sum())

    def draw(rng: np.random.Generator, n: int) -> Draws:
        i, j = np.unravel_index(np.searchsorted(below, rng.uniform(size=n)), log_p.shape)
        off = rng.uniform(-0.5, 0.5, size=(2, n)) * 0.002  # within a cell
        return {"delta": delta[i] + off[0], "sigma": np.exp(log_sigma[j] + off[1])}

    return draw


def chain_run(system: ScaledSystem, seed: int, draw: Callable[..., Draws]) -> xr.DataTree:
    """Four chains whose stationary law is the posterior, from which they start."""
    rng = np.random.default_rng([9, seed])
    fresh = draw(rng, 4 * CHAIN_DRAWS)
    moves = rng.uniform(size=(4, CHAIN_DRAWS)) >= STAY
    moves[:, 0] = True
    last = np.maximum.accumulate(np.where(moves, np.arange(CHAIN_DRAWS), 0), axis=1)
    place = last + CHAIN_DRAWS * np.arange(4)[:, None]
    found = {
        name: (("chain", "draw", *(f"{name}_{i}" for i in range(values.ndim - 1))), values[place])
        for name, values in fresh.items()
    }
    return xr.DataTree.from_dict({"posterior": xr.Dataset(found)})


def runs_of(
    system: ScaledSystem, kind: str, seeds: range
) -> Iterator[tuple[int, float, str, pmt.sensitivity.SensitivityCurve]]:
    """Seed, seconds of the run, kind and curve."""
    draw = posterior_of(system)
    for seed in seeds:
        started = perf_counter()
        if kind == "chains":
            idata = chain_run(system, seed, draw)
            found = pmt.prior_sensitivity(
                idata, system.model, {system.variable: FACTORS[system.name]}, random_seed=seed,
                quiet=True, sample_kwargs={"draws": DRAWS},
            )  # fmt: skip
            yield seed, perf_counter() - started, "chains", found[system.variable]
            continue
        idata = pmt.sample(
            DRAWS, model=system.model, random_seed=seed, quiet=True, keep="states", cores=1
        )
        seconds = perf_counter() - started
        for name, curve in curves(idata, system, seed):
            yield seed, seconds, name, curve


def run(system: ScaledSystem, kind: str, seeds: range) -> Results:
    """Make runs, and hold each value of their curves against the exact one."""
    exact = {factor: system.log_z(factor) for factor in (1.0, *FACTORS[system.name])}
    results: Results = {}
    for _, seconds, name, curve in runs_of(system, kind, seeds):
        for i, factor in enumerate(FACTORS[system.name]):
            off = curve.log_z[i] - exact[factor]
            off_bf = curve.log_bf[i] - (exact[factor] - exact[1.0])
            results.setdefault((name, factor), []).append(
                (
                    off / curve.mcse[i], off_bf / curve.log_bf_mcse[i], curve.mcse[i],
                    curve.log_bf_mcse[i], curve.khat[i], curve.source[i] == "rerun", seconds,
                )
            )  # fmt: skip
    return results


def coverage(values: list[tuple[float, ...]]) -> tuple[float, float]:
    """Shares of the intervals of log Z and of log BF that hold the exact value."""
    z = np.array(values)[:, :2]
    return tuple(np.mean(np.abs(z) < HALF, axis=0))


def outside(values: list[tuple[float, ...]]) -> bool:
    """Whether a coverage is outside of what is allowed."""
    return not all(LOW <= share <= HIGH for share in coverage(values))


def summarize(name: str, kind: str, factor: float, values: list[tuple[float, ...]]) -> Row:
    """One row of the table."""
    table = np.array(values)
    log_z, log_bf = coverage(values)
    return {
        "model": name,
        "from": kind,
        "scale": factor,
        "n": len(values),
        "coverage log_z": log_z,
        "coverage log_bf": log_bf,
        "sd z": float(table[:, 0].std(ddof=1)),
        "sd z bf": float(table[:, 1].std(ddof=1)),
        "mcse": float(np.median(table[:, 2])),
        "mcse bf": float(np.median(table[:, 3])),
        "k-hat": float(np.median(table[:, 4])),
        "reruns": int(table[:, 5].sum()),
        "ok": "no" if outside(values) else "yes",
    }


def main() -> None:
    arguments = parser(__doc__, 300)
    arguments.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    arguments.add_argument(
        "--from", dest="kind", choices=["tempering", "chains"], default="tempering"
    )
    args = arguments.parse_args()
    warnings.simplefilter("ignore", pmt.TemperingWarning)
    rows: list[Row] = []
    for name in args.systems:
        system = SYSTEMS[name]()
        results = run(system, args.kind, range(args.seed, args.seed + args.repeats))
        if any(outside(values) for values in results.values()):
            again = range(args.seed + args.repeats, args.seed + 2 * args.repeats)
            more = run(system, args.kind, again)
            for key, values in results.items():
                if outside(values):
                    values += more[key]
        rows += [summarize(name, *key, values) for key, values in sorted(results.items())]
    settings = {
        "seeds": f"from {args.seed} on, one a run",
        "runs": f"pmt.sample({DRAWS}, keep='states'), 4 chains; prior_sensitivity by default"
        if args.kind == "tempering"
        else f"4 chains of {CHAIN_DRAWS} exact draws, each kept with probability {STAY}; "
        f"prior_sensitivity by default, fresh runs of {DRAWS} draws",
        "sd z": "standard deviation of error over stated error, of log Z and of log BF",
        "k-hat, mcse": "medians; reruns: values for which a fresh run was made",
        "ok": f"coverages in [{LOW}, {HIGH}], of 95 % intervals",
    }
    names = {
        "tempering": ("prior_sensitivity", "Coverage of prior sensitivity"),
        "chains": ("prior_sensitivity_chains", "Coverage of prior sensitivity, draws of chains"),
    }
    name, title = names[args.kind]
    save(name, rows, args.out, title, settings)


if __name__ == "__main__":
    main()
