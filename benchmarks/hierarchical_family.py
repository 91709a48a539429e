"""Random hierarchical normals: are the stated errors right on a family, not on chosen models?

Groups, group sizes, scales, priors and the form (centered or not) of each model are drawn at
random. Given both standard deviations all else is normal, so log Z is a sum over a grid of their
logs.
The models of the first half may be looked at while the sampler is worked on; those of the second
half (`--unseen`) are run once the code is frozen.
"""

import argparse
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pymc as pm
from common import MODELS as KNOWN_MODELS, RESULTS, Row, Run, run_once, save, worker_pool
from scipy import stats
from scipy.special import logsumexp

from pymc_tempering.testsystems import TestSystem

N_MODELS = 50
"""Models of the family; the first half is the one that may be looked at."""

FAMILY_SEED = 2026
"""Model i is drawn by `numpy.random.default_rng([FAMILY_SEED, i])`."""

GRID = np.linspace(-14.0, 9.0, 1151)
"""Logs of tau and sigma over the scale of their priors."""

type Density = Callable[[np.ndarray], np.ndarray]

TAU_PRIORS: dict[str, tuple[Callable[[str, float], object], Callable[[float], Density]]] = {
    "half-normal": (
        lambda name, s: pm.HalfNormal(name, s),
        lambda s: lambda x: stats.halfnorm.logpdf(x, scale=s),
    ),
    "half-Cauchy": (
        lambda name, s: pm.HalfCauchy(name, s),
        lambda s: lambda x: stats.halfcauchy.logpdf(x, scale=s),
    ),
    "exponential": (
        lambda name, s: pm.Exponential(name, scale=s),
        lambda s: lambda x: stats.expon.logpdf(x, scale=s),
    ),
    "half-t4": (
        lambda name, s: pm.HalfStudentT(name, nu=4.0, sigma=s),
        lambda s: lambda x: stats.t.logpdf(x, 4.0, scale=s) + np.log(2.0),
    ),
}
"""Priors of tau: how PyMC builds them, and their log densities, for a scale."""


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """A hierarchical normal of the family, with its data.

    Attributes
    ----------
    group : array of int, shape (rows,)
    y : array, shape (rows,)
    sigma : float or None
        Standard deviation within groups; None where it has a half-normal prior.
    unit : float
        Scale of the prior of an unknown sigma.
    tau_prior : str
        A name in `TAU_PRIORS`.
    tau_scale, mean_sd : float
        Scale of the prior of tau, and standard deviation of that of the mean.
    centered : bool
    """

    group: np.ndarray
    y: np.ndarray
    sigma: float | None
    unit: float
    tau_prior: str
    tau_scale: float
    mean_sd: float
    centered: bool

    @property
    def sizes(self) -> np.ndarray:
        """Rows of each group."""
        return np.bincount(self.group)


def draw_hierarchy(index: int) -> Hierarchy:
    """Draw a model of the family, and its data from about its prior."""
    rng = np.random.default_rng([FAMILY_SEED, index])

    def log_uniform(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    n_groups = round(log_uniform(2.0, 50.0))
    rows = log_uniform(1.5, 30.0)
    sizes = 1 + rng.negative_binomial(2.0, 2.0 / (1.0 + rows), size=n_groups)
    unit, known = log_uniform(0.1, 10.0), bool(rng.random() < 0.5)
    if not known:
        sizes = sizes + 1
    tau_scale = unit * log_uniform(0.3, 5.0)
    tau, mean_sd = unit * log_uniform(0.05, 3.0), unit * log_uniform(1.0, 30.0)
    group = np.repeat(np.arange(n_groups), sizes)
    effects = mean_sd * rng.normal() + tau * rng.normal(size=n_groups)
    y = effects[group] + unit * rng.normal(size=group.size)
    names = list(TAU_PRIORS)
    return Hierarchy(
        group, y, unit if known else None, unit, names[rng.integers(len(names))], tau_scale,
        mean_sd, bool(rng.random() < 0.5),
    )  # fmt: skip


def build(hierarchy: Hierarchy) -> pm.Model:
    """Write the model in PyMC."""
    h = hierarchy
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, h.mean_sd)
        tau = TAU_PRIORS[h.tau_prior][0]("tau", h.tau_scale)
        sigma = pm.HalfNormal("sigma", 2.0 * h.unit) if h.sigma is None else h.sigma
        if h.centered:
            theta = pm.Normal("theta", mu, tau, shape=h.sizes.size)
        else:
            theta = mu + tau * pm.Normal("z", 0.0, 1.0, shape=h.sizes.size)
        pm.Normal("y", theta[h.group], sigma, observed=h.y)
    return model


def exact_log_z(hierarchy: Hierarchy) -> float:
    """Log evidence (nats): closed form given both standard deviations, then a sum over a grid."""
    h, sizes = hierarchy, hierarchy.sizes
    means = np.bincount(h.group, weights=h.y) / sizes
    within = float(np.sum((h.y - means[h.group]) ** 2))
    tau_log = np.log(h.tau_scale) + GRID
    tau, step = np.exp(tau_log)[:, None], GRID[1] - GRID[0]
    log_prior = TAU_PRIORS[h.tau_prior][1](h.tau_scale)(tau[:, 0]) + tau_log + np.log(step)
    totals = []
    if h.sigma is None:
        sigma_log = np.log(h.unit) + GRID[::3]
        of_sigma = stats.halfnorm.logpdf(np.exp(sigma_log), scale=2.0 * h.unit) + sigma_log
        of_sigma = of_sigma + np.log(3.0 * step)
    else:
        sigma_log, of_sigma = np.array([np.log(h.sigma)]), np.zeros(1)
    for log_sigma, log_weight in zip(sigma_log, of_sigma, strict=True):
        precision = 1.0 / (tau**2 + np.exp(2.0 * log_sigma) / sizes)
        total = precision.sum(axis=1) + h.mean_sd**-2.0
        pooled = precision @ means
        quadratic = precision @ means**2 - pooled**2 / total
        log_det = -np.log(precision).sum(axis=1) + np.log(total) + 2.0 * np.log(h.mean_sd)
        of_means = -0.5 * (sizes.size * np.log(2.0 * np.pi) + log_det + quadratic)
        free = h.y.size - sizes.size
        inside = -0.5 * (free * np.log(2.0 * np.pi) + np.log(sizes).sum())
        inside += -free * log_sigma - 0.5 * within * np.exp(-2.0 * log_sigma)
        totals.append(logsumexp(of_means + log_prior) + inside + log_weight)
    return float(logsumexp(totals))


@cache
def family_system(index: int) -> TestSystem:
    """Build a model with its exact evidence, as the other benchmarks take it."""
    h = draw_hierarchy(index)
    log_z = exact_log_z(h)
    return TestSystem(
        name=f"hierarchy{index}",
        model=build(h),
        exact_log_z=lambda beta: log_z,
        exact_moments=lambda beta: {},
    )


def register() -> None:
    """Let the runs of `common` find the models by name."""
    for index in range(N_MODELS):
        KNOWN_MODELS[f"hierarchy{index}"] = lambda index=index: family_system(index)


def run_model(index: int, seeds: Sequence[int]) -> tuple[int, list[Run]]:
    """Run one model once for each seed."""
    register()
    return index, [run_once(f"hierarchy{index}", seed) for seed in seeds]


def summarize(index: int, runs: Sequence[Run]) -> Row:
    """Compare what the runs of one model stated with what is true."""
    h = draw_hierarchy(index)
    error = np.array([run.log_z for run in runs]) - family_system(index).log_evidence
    mcse = np.array([run.mcse for run in runs])
    finite = np.isfinite(mcse)
    z = error[finite] / mcse[finite]
    return {
        "model": index,
        "half": "seen" if index < N_MODELS // 2 else "unseen",
        "dim": family_system(index).dim,
        "groups": h.sizes.size,
        "rows": h.y.size,
        "form": "centered" if h.centered else "non-centered",
        "sigma": "known" if h.sigma is not None else "unknown",
        "tau prior": h.tau_prior,
        "n": len(runs),
        "RMSE": float(np.sqrt(np.mean(error**2))),
        "median mcse": float(np.median(mcse)),
        "mean z": float(z.mean()) if z.size else float("nan"),
        "sd z": float(z.std()) if z.size else float("nan"),
        "max abs z": float(np.abs(z).max()) if z.size else float("nan"),
        "ok": float(np.mean([run.verdict == "ok" for run in runs])),
        "warned": float(np.mean([bool(run.warnings) for run in runs])),
        "fallback": float(np.mean([not run.fitted for run in runs])),
        "cpu": float(np.median([run.cpu for run in runs])),
    }


def overall(rows: Sequence[Row], runs: dict[int, list[Run]]) -> dict[str, str]:
    """Put all runs of a half together."""
    found: dict[str, str] = {}
    for half in ("seen", "unseen"):
        of_half = [int(row["model"]) for row in rows if row["half"] == half]
        if not of_half:
            continue
        z = np.concatenate([
            [(r.log_z - family_system(i).log_evidence) / r.mcse for r in runs[i]] for i in of_half
        ])  # fmt: skip
        z = z[np.isfinite(z)]
        ok = np.mean([run.verdict == "ok" for i in of_half for run in runs[i]])
        found[f"all of the {half} half"] = (
            f"{len(z)} runs with an error: mean z {z.mean():.3f}, sd of z {z.std(ddof=1):.3f}, "
            f"coverage {np.mean(np.abs(z) < 1.959964):.3f}, largest |z| {np.abs(z).max():.2f}; "
            f"ok {ok:.1%}"
        )
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--repeats", type=int, default=20)
    arguments.add_argument("--seed", type=int, default=1, help="first of the consecutive seeds")
    arguments.add_argument("--models", type=int, nargs="+", help="some of the seen half")
    arguments.add_argument("--unseen", action="store_true", help="the second half too")
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--runs", type=Path, help="file for a line of CSV a run")
    args = arguments.parse_args()
    register()
    indices = args.models or range(N_MODELS if args.unseen else N_MODELS // 2)
    seeds = range(args.seed, args.seed + args.repeats)
    runs: dict[int, list[Run]] = {}
    with worker_pool(args.workers) as pool:
        for future in as_completed([pool.submit(run_model, i, seeds) for i in indices]):
            index, of_model = future.result()
            runs[index] = of_model
            row = summarize(index, of_model)
            print(
                {k: f"{v:.3g}" if isinstance(v, float) else v for k, v in row.items()}, flush=True
            )
    rows = [summarize(index, runs[index]) for index in sorted(runs)]
    settings = {
        "seeds": f"{seeds.start} to {seeds.stop - 1}, of each model; family seed {FAMILY_SEED}",
        "run": "pmt.sample by default: 4 chains, one core",
        "z": "(log Z - exact) / mcse",
        "seen, unseen": "models that were looked at while the sampler was worked on, and models "
        "that were run once it was frozen",
        "cpu": "median CPU seconds after compiling",
        **overall(rows, runs),
    }
    save("hierarchical_family", rows, args.out, "Random hierarchical normals", settings)
    if args.runs:
        with args.runs.open("w") as file:
            file.write("model,seed,exact,log_z,mcse,verdict,cpu,warnings\n")
            for index in sorted(runs):
                for run in sorted(runs[index], key=lambda run: run.seed):
                    said = " / ".join(run.warnings).replace('"', "'")
                    exact = family_system(index).log_evidence
                    file.write(
                        f"{index},{run.seed},{exact},{run.log_z},{run.mcse},{run.verdict},"
                        f'{run.cpu},"{said}"\n'
                    )


if __name__ == "__main__":
    main()
