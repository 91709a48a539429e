"""RMSE of the estimators from one run, by samples and by rungs: Figures 2 and 4 of RTS.

Carlson et al. (2016) compare on a mixture of two 10-D Gaussians (Figure 2) and on an RBM (Figure
4); here both are on the mixture. Details of theirs that the paper's main text does not give (the
mixture, K, the spacing of beta, initial log Z-hat) are chosen here and stated in the tables.
"""

import argparse
import importlib
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from time import perf_counter, process_time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from common import RESULTS, Row, save, system

import pymc_tempering as pmt
from pymc_tempering.core.weighting import softmax_rows, tilt
from pymc_tempering.evidence import integrate, mbar_log_z, rts_log_z
from pymc_tempering.evidence.bar import bar_step, stone_step
from pymc_tempering.evidence.rts import PSEUDO_COUNT
from pymc_tempering.exceptions import TemperingWarning

POWER = 5.0
"""Rungs are at (k / (K - 1))^5, the spacing of Friel & Pettitt (2008)."""

NOTES = {
    "RMSE": "root mean square of log Z less the exact value (nats); with n repeats it is known to "
    "1 / sqrt(2 n) of itself",
    "TI": "trapezoid; riemann: at the upper ends; corrected: with second moments; RB: equation "
    "(21); empty rungs: a straight line between their neighbors, as in the paper",
    "TS": "counts with 0.1 added to each",
    "MBAR": "BAR and stepping stone bridge over empty rungs",
}


def ladder(n_rungs: int) -> np.ndarray:
    return np.linspace(0.0, 1.0, n_rungs) ** POWER


def estimates(
    log_ratio: np.ndarray,
    rung: np.ndarray,
    betas: np.ndarray,
    log_z: np.ndarray,
    with_mbar: bool = True,
) -> dict[str, float]:
    """Estimate log Z by every method from samples (log_ratio, rung) of a run with even r."""
    n_rungs, even = betas.size, np.zeros(betas.size)
    q = softmax_rows(tilt(betas, log_ratio) - log_z)
    c = q.sum(axis=0)
    visits = np.bincount(rung, minlength=n_rungs).astype(float)
    sums = [np.bincount(rung, log_ratio**power, minlength=n_rungs) for power in (1, 2)]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean, second = sums[0] / visits, sums[1] / visits
    rb_mean, rb_second = q.T @ log_ratio / c, q.T @ log_ratio**2 / c
    variance, rb_variance = second - mean**2, rb_second - rb_mean**2
    curve = rts_log_z(c, log_z, even)
    found = {
        "RTS": curve[-1],
        "TS": rts_log_z(visits + PSEUDO_COUNT, log_z, even)[-1],
        "TI": integrate("trapezoid", betas, mean, variance)[-1],
        "TI riemann": integrate("riemann", betas, mean, variance)[-1],
        "TI corrected": integrate("corrected", betas, mean, variance)[-1],
        "TI simpson": integrate("simpson", betas, mean, variance)[-1],
        "TI RB": integrate("trapezoid", betas, rb_mean, rb_variance)[-1],
        "BAR": _steps(bar_step, log_ratio, rung, betas),
        "stepping stone": _steps(stone_step, log_ratio, rung, betas),
    }
    if with_mbar and visits[0] and visits[-1]:
        known = visits > 0
        start = curve[known]
        found["MBAR"] = mbar_log_z(log_ratio, visits[known], betas[known], start)[-1]
    return {name: float(value) for name, value in found.items()}


def _steps(step: Callable, log_ratio: np.ndarray, rung: np.ndarray, betas: np.ndarray) -> float:
    visited = np.unique(rung)
    if visited[0] != 0 or visited[-1] != betas.size - 1:
        return float("nan")
    parts = [log_ratio[rung == k] for k in visited]
    steps = zip(np.diff(betas[visited]), pairwise(parts), strict=True)
    return sum(step(width * low, width * high).increment for width, (low, high) in steps)


# Figure 2: samples of the real sampler.


def tempering_run(n_rungs: int, burn_in: int, per_chain: int, seed: int) -> tuple[np.ndarray, ...]:
    """Run the sampler from the prior and return log_ratio, rung by (chain, iteration), log Z-hat.

    log Z-hat is that of the automatic warm-up: an annealed pass and its initial iterations. The
    chains start at the bottom of the ladder, so that their first ``burn_in`` iterations, in which
    hot rungs are more occupied than q says, are left out.
    """
    draws = (burn_in + per_chain) // 10
    while True:
        idata = pmt.sample(
            draws, model=system("mixture").model, reference="prior", betas=ladder(n_rungs),
            random_seed=seed, cores=1, quiet=True, progressbar=False,
        )  # fmt: skip
        trace = idata["tempering_trace"].to_dataset()
        if int((trace["rung"] >= 0).sum("iteration").min()) >= burn_in + per_chain:
            break
        draws *= 2
    cut = slice(burn_in, burn_in + per_chain)
    log_z = idata["tempering"]["log_z"].values
    return trace["log_ratio"].values[:, cut], trace["rung"].values[:, cut], log_z


def annealed(n_samples: int, n_rungs: int, seed: int) -> dict[str, float]:
    """Run AIS with the same number of transitions, where the package has it."""
    try:
        ais = importlib.import_module("pymc_tempering.annealed").ais
    except (ImportError, AttributeError):
        return {}
    found = ais(
        system("mixture").model, n_particles=max(2, n_samples // n_rungs), betas=n_rungs, cores=1,
        random_seed=seed, progressbar=False,
    )  # fmt: skip
    return {"AIS": float(found.log_z)}


def by_samples(args: argparse.Namespace) -> list[Row]:
    """RMSE against the number of samples, all methods on the same samples."""
    exact, sizes = system("mixture").log_evidence, args.samples
    errors: dict[int, list[dict[str, float]]] = {n: [] for n in sizes}
    betas = ladder(args.rungs)
    for seed in range(args.seed, args.seed + args.repeats):
        log_ratio, rung, log_z = tempering_run(args.rungs, args.burn_in, max(sizes) // 4, seed)
        for n in sizes:
            part = slice(0, n // 4)
            found = estimates(log_ratio[:, part].ravel(), rung[:, part].ravel(), betas, log_z)
            found |= annealed(n, args.rungs, seed)
            errors[n].append({name: value - exact for name, value in found.items()})
    return [{"samples": n, **_rmse(errors[n])} for n in sizes]


# Figure 4: independent samples of the joint law, as a bootstrap from a long run gives them.


class ExactPath:
    """Exact draws of log_ratio at every beta, for the two Gaussians of equal scale.

    Across the line through the means the tempered density is Gaussian; along it a table of
    the distribution function is inverted.
    """

    def __init__(self, dim: int = 10, scale: float = 0.5, prior_sd: float = 5.0) -> None:
        self.dim, self.scale, self.prior_sd = dim, scale, prior_sd
        positions = (np.arange(2) - 0.4) * 12.0 * scale
        log_mixture = np.log([0.65, 0.35]) + 0.5 * positions**2 / (prior_sd**2 + scale**2)
        log_mixture -= np.logaddexp.reduce(log_mixture)
        self.t = np.linspace(-30.0, 30.0, 60001)
        along = -0.5 * ((self.t[:, None] - positions) / scale) ** 2 + log_mixture
        self.log_mixture = np.logaddexp.reduce(along, axis=1)
        self.log_prior = -0.5 * (self.t / prior_sd) ** 2
        self.constant = -0.5 * dim * np.log(2.0 * np.pi * scale**2)

    def log_z(self, betas: np.ndarray) -> np.ndarray:
        shrink = np.log1p(betas * (self.prior_sd / self.scale) ** 2)
        log_p = self.log_prior + np.multiply.outer(betas, self.log_mixture)
        along = np.logaddexp.reduce(log_p, axis=1) - np.logaddexp.reduce(self.log_prior)
        return np.asarray(along - 0.5 * (self.dim - 1) * shrink + betas * self.constant)

    def draw(self, betas: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw log_ratio, ``counts[k]`` at ``betas[k]``, one rung after another."""
        parts = []
        for beta, n in zip(betas, counts, strict=True):
            if n == 0:
                continue
            log_p = self.log_prior + beta * self.log_mixture
            cdf = np.cumsum(np.exp(log_p - log_p.max()))
            t = np.interp(rng.random(n) * cdf[-1], cdf, self.t)
            across = rng.chisquare(self.dim - 1, n) / (self.prior_sd**-2 + beta / self.scale**2)
            mixture = np.interp(t, self.t, self.log_mixture)
            parts.append(mixture - 0.5 * across / self.scale**2 + self.constant)
        return np.concatenate(parts)


def by_rungs(args: argparse.Namespace) -> list[Row]:
    """RMSE against K at a fixed number of independent samples; log Z-hat exact."""
    path, rows = ExactPath(), []
    exact = system("mixture").log_evidence
    difference = abs(float(path.log_z(np.ones(1))[0]) - exact)
    if difference > 1e-6:
        raise RuntimeError(f"the table's log Z is off by {difference}")
    for n_rungs in args.rungs_sweep:
        rng, errors = np.random.default_rng(args.seed), []
        betas = ladder(n_rungs)
        log_z = path.log_z(betas)
        started = process_time()
        for repeat in range(args.sweep_repeats):
            counts = rng.multinomial(args.sweep_samples, np.full(n_rungs, 1.0 / n_rungs))
            log_ratio = path.draw(betas, counts, rng)
            rung = np.repeat(np.arange(n_rungs), counts)
            mbar = n_rungs <= args.mbar_rungs and repeat < args.mbar_repeats
            found = estimates(log_ratio, rung, betas, log_z, mbar)
            errors.append({name: value - exact for name, value in found.items()})
        rows.append({"K": n_rungs, **_rmse(errors)})
        print(f"K = {n_rungs}: {process_time() - started:.0f} s of CPU", flush=True)
    return rows


def _rmse(errors: list[dict[str, float]]) -> dict[str, float | str]:
    names = list(dict.fromkeys(name for row in errors for name in row))
    result: dict[str, float | str] = {}
    for name in [*names, *(n for n in ("MBAR",) if n not in names)]:
        values = np.array([row[name] for row in errors if np.isfinite(row.get(name, np.nan))])
        result[name] = float(np.sqrt(np.mean(values**2))) if values.size else "-"
    return result


def draw_figure(rows: list[Row], by: str, path: Path, label: str, log_x: bool) -> None:
    """Draw RMSE of every method, one line a method, and label the lines at their ends."""
    figure, axis = plt.subplots(figsize=(7.5, 4.5))
    names = [name for name in rows[0] if name != by]
    markers = "osv^<>DPX*h"
    for name, marker in zip(names, markers, strict=False):
        points = [(row[by], row[name]) for row in rows if not isinstance(row[name], str)]
        wide = {"linewidth": 2.5, "color": "black", "zorder": 5} if name == "RTS" else {}
        axis.plot(*zip(*points, strict=True), marker=marker, markersize=5, label=name, **wide)
    axis.set_yscale("log")
    if log_x:
        axis.set_xscale("log")
    axis.set_xlabel(label)
    axis.set_ylabel("RMSE of log Z (nats)")
    axis.grid(alpha=0.3, which="both")
    axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def table_by_samples(args: argparse.Namespace, model: str, spacing: str) -> None:
    started, cpu = perf_counter(), process_time()
    rows = by_samples(args)
    save(
        "estimators_samples", rows, args.out, "RMSE of log Z by number of samples (RTS Figure 2)",
        {
            "model": model,
            "run": f"K = {args.rungs}, {spacing}; HMC from the prior, log Z-hat from the automatic "
            f"warm-up; samples are iterations of 4 chains after {args.burn_in} of burn-in each; "
            f"{args.repeats} repeats, seeds from {args.seed}",
            **NOTES,
            "time": f"{process_time() - cpu:.0f} s of CPU, {perf_counter() - started:.0f} s",
        },
    )  # fmt: skip
    draw_figure(rows, "samples", args.out / "estimators_samples.png", "samples", False)


def table_by_rungs(args: argparse.Namespace, model: str, spacing: str) -> None:
    started, cpu = perf_counter(), process_time()
    rows = by_rungs(args)
    save(
        "estimators_rungs", rows, args.out, "RMSE of log Z by number of rungs (RTS Figure 4)",
        {
            "model": model,
            "run": f"{args.sweep_samples} independent samples of (x, rung), drawn exactly (the "
            f"paper bootstraps a long run), log Z-hat exact; {spacing}; {args.sweep_repeats} "
            f"repeats, MBAR {args.mbar_repeats} and up to K = {args.mbar_rungs}; seed {args.seed}",
            **NOTES,
            "time": f"{process_time() - cpu:.0f} s of CPU, {perf_counter() - started:.0f} s",
        },
    )  # fmt: skip
    draw_figure(rows, "K", args.out / "estimators_rungs.png", "number of rungs K", True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20, help="runs behind Figure 2")
    parser.add_argument("--samples", type=int, nargs="+", default=[1000, 1500, 2000, 3000, 4000])
    parser.add_argument("--rungs", type=int, default=50, help="K of Figure 2")
    parser.add_argument("--burn-in", type=int, default=500, help="iterations of each chain")
    parser.add_argument(
        "--figures", nargs="+", choices=["samples", "rungs"], default=["samples", "rungs"]
    )
    parser.add_argument("--sweep-repeats", type=int, default=20, help="repeats behind Figure 4")
    parser.add_argument("--sweep-samples", type=int, default=10_000)
    parser.add_argument(
        "--rungs-sweep", type=int, nargs="+", default=[10, 20, 50, 100, 200, 500, 1000]
    )
    parser.add_argument("--mbar-repeats", type=int, default=5)
    parser.add_argument("--mbar-rungs", type=int, default=100, help="largest K for MBAR")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    warnings.simplefilter("ignore", TemperingWarning)  # so few samples are meant
    model = (
        "two 10-D Gaussians, sd 0.5, 6 apart, posterior shares 0.65 and 0.35; prior sd 5; exact "
        f"log Z {system('mixture').log_evidence:.4f}"
    )
    spacing = f"beta_k = (k / (K - 1))^{POWER:g}, r even"

    tables = {"samples": table_by_samples, "rungs": table_by_rungs}
    for name in args.figures:
        tables[name](args, model, spacing)


if __name__ == "__main__":
    main()
