"""RTS, AIS and RAISE against sweeps, on RBMs of digits (RTS paper, Figure 3).

100 chains each. RTS counts the sweeps after its warm-up, whose own number is in the table; one run
a repeat is read after ever more sweeps. It runs twice: with even weights r, and with r proportional
to exp(2 beta), as the paper has it in its section 4.4. AIS has as many inverse temperatures as
sweeps, evenly spaced, and RAISE too: its estimate of log Z is the mean of log f(v) -
log p_annealing(v) over 100 rows of the data, with one particle each. Root mean squared errors are
about the true log Z, with 90 % intervals by the bootstrap over repeats.

    python benchmarks rts_figure3 --repeats 30 --ais-repeats 30 --longest 10000

Machines and methods can run in calls of their own, whose output `--kept` puts together.
"""

import argparse
import ast
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time

import numpy as np
from scipy.special import logsumexp

from benchmarks.common import RESULTS, Row, save
from benchmarks.models import rbm_data as machines
from benchmarks.private import rts_log_z, rung_probabilities
from pymc_tempering import TemperingWarning
from pymc_tempering.arrays import ArrayDensity, annealing, temper

MACHINES = ["784 x 500", "784 x 100"]
SLOPES = {"RTS": 0.0, "RTS, r = exp(2 beta)": 2.0}
"""log r of the two runs of RTS, by beta."""

METHODS = [*SLOPES, "AIS", "RAISE"]
LENGTHS = (100, 300, 1000, 3000, 10000)
PARTICLES = 1000
"""Of the annealed pass before RTS: its 100 chains start from these. In 1,000 sweeps a chain makes
less than one tour, so that what the pass left wrong still shows."""


def rts_runs(
    density: ArrayDensity, lengths: list[int], seed: int, slope: float = 0.0
) -> tuple[dict[int, float], int]:
    """Log Z after each number of sweeps of one run with r = exp(slope beta), and those before."""
    run = temper(
        density, lengths[-1], log_weights=lambda betas: slope * betas, n_particles=PARTICLES,
        keep_cold=False, random_seed=seed,
    )  # fmt: skip
    ladder, done, found = run.ladder, 0, {}
    total = np.zeros(ladder.n_rungs)
    for n in lengths:
        ratio = run.trace.log_ratio[done:n].ravel()
        for part in np.array_split(ratio, max(1, ratio.size // 100_000)):
            total += rung_probabilities(part, ladder.betas, ladder.offsets).sum(axis=0)
        found[n], done = float(rts_log_z(total, ladder.log_z, ladder.log_weights)[-1]), n
    return found, run.warm_sweeps


def ais_run(density: ArrayDensity, n: int, seed: int) -> float:
    """Log Z by AIS with n evenly spaced temperatures."""
    return annealing(density, np.linspace(0.0, 1.0, n + 1)).ais(100, random_seed=seed).log_z


def raise_run(rbm: machines.RBM, density: ArrayDensity, n: int, seed: int) -> float:
    """Log Z by RAISE on 100 rows of the digits."""
    rng = np.random.default_rng(seed)
    rows = machines.digits()[0]
    v = machines.drawn_bits(rows[rng.choice(len(rows), size=100, replace=False)], rng)
    ways = annealing(density, np.linspace(0.0, 1.0, n + 1))
    bounds = ways.raise_(v, rbm.complete, 1, random_seed=rng)
    return float(np.mean(rbm.log_marginal(v) - bounds.log_likelihood))


def summary(values: list[float], truth: float) -> Row:
    """Mean, root mean squared error and their intervals."""
    off = np.array(values) - truth
    rng = np.random.default_rng(0)
    again = off[rng.integers(len(off), size=(2000, len(off)))]
    low, high = np.quantile(np.sqrt(np.mean(again**2, axis=1)), [0.05, 0.95])
    error = float(np.std(off, ddof=1) / np.sqrt(len(off))) if len(off) > 1 else float("nan")
    if len(off) == 1:
        low = high = np.nan
    return {
        "repeats": len(values),
        "mean": float(np.mean(values)),
        "se of the mean": error,
        "RMSE": float(np.sqrt(np.mean(off**2))),
        "RMSE from": float(low),
        "RMSE to": float(high),
    }


def repeated(run: Callable[[int], float], repeats: int) -> tuple[list[float], float]:
    """Values of runs with seeds 1, 2, ..., and CPU seconds of each."""
    begin = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)  # short runs say that they are
        values = [run(seed) for seed in range(1, repeats + 1)]
    return values, (process_time() - begin) / repeats


def rts_rows(
    head: Row,
    slope: float,
    density: ArrayDensity,
    truth: float,
    lengths: list[int],
    most: list[int],
) -> list[Row]:
    """One row for each number of sweeps, of runs that are read after each of them."""
    found: dict[int, list[float]] = {n: [] for n in lengths}
    seconds, warm = dict.fromkeys(lengths, 0.0), 0
    for i in range(max(most)):
        own = [n for n, repeats in zip(lengths, most, strict=True) if i < repeats]
        begin = process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TemperingWarning)
            values, warm = rts_runs(density, own, i + 1, slope)
        for n, value in values.items():
            found[n].append(value)
        seconds[own[-1]] = process_time() - begin
    return [
        told(head | {"sweeps": n, "sweeps before": warm}, found[n], truth, seconds[n])
        for n in lengths
        if found[n]
    ]


def told(head: Row, values: list[float], truth: float, seconds: float) -> Row:
    """One row, which is printed too."""
    row = head | summary(values, truth) | {"CPU s": seconds}
    print(row, flush=True)
    return row


def compare(
    name: str,
    rbm: machines.RBM,
    reference: machines.BernoulliReference,
    truth: float,
    lengths: list[int],
    repeats: dict[str, list[int]],
) -> list[Row]:
    """One row for each method and number of sweeps."""
    density, rows = rbm.density(reference), []
    others: dict[str, Callable[[int, int], float]] = {
        "AIS": lambda n, seed: ais_run(density, n, seed),
        "RAISE": lambda n, seed: raise_run(rbm, density, n, seed),
    }
    for method, most in repeats.items():
        head: Row = {"machine": name, "method": method}
        if method in SLOPES:
            rows += rts_rows(head, SLOPES[method], density, truth, lengths, most)
            continue
        for n, times in zip(lengths, most, strict=True):
            if times:
                values, took = repeated(partial(others[method], n), times)
                rows.append(told(head | {"sweeps": n, "sweeps before": 0}, values, truth, took))
    return rows


def long_truth(rbm: machines.RBM, reference: machines.BernoulliReference, sweeps: int) -> float:
    """Log Z by long AIS and RTS, the mean of both."""
    density = rbm.density(reference)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        runs = [ais_run(density, sweeps, seed) for seed in (101, 102, 103)]
        rts = rts_runs(density, [sweeps], 101)[0][sweeps]
    ais = float(logsumexp(runs) - np.log(len(runs)))
    print("truth: AIS", ais, "RTS", rts, flush=True)
    return 0.5 * (ais + rts)


def rows_of_logs(paths: list[Path]) -> list[Row]:
    """Rows that other calls printed."""
    lines = [line for path in paths for line in path.read_text().splitlines()]
    rows = [ast.literal_eval(s.replace(": nan", ": None")) for s in lines if s[:1] == "{"]
    unknown = ("se of the mean", "RMSE from", "RMSE to")
    return [row | (dict.fromkeys(unknown, np.nan) if row["repeats"] == 1 else {}) for row in rows]


def picture(rows: list[Row], path: Path) -> None:
    """Draw RMSE against sweeps, a panel a machine."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(str(row["machine"]) for row in rows))
    size = (5 * len(names), 3.8)
    figure, axes = plt.subplots(1, len(names), figsize=size, squeeze=False, layout="constrained")
    for axis, name in zip(axes[0], names, strict=True):
        for method in METHODS:
            own = [row for row in rows if (row["machine"], row["method"]) == (name, method)]
            if own:
                x = [float(row["sweeps"]) for row in own]
                axis.plot(x, [float(row["RMSE"]) for row in own], "o-", label=method)
                low, high = ([float(r[k]) for r in own] for k in ("RMSE from", "RMSE to"))
                axis.fill_between(x, low, high, alpha=0.2)
        axis.set(xscale="log", yscale="log", title=name, xlabel="sweeps", ylabel="RMSE (nats)")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=70)
    plt.close(figure)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--repeats", type=int, default=30, help="of RTS up to 1,000 sweeps")
    arguments.add_argument("--ais-repeats", type=int, default=10, help="of AIS and RAISE")
    arguments.add_argument("--long-repeats", type=int, default=2, help="of RTS beyond 1,000 sweeps")
    arguments.add_argument("--longest", type=int, default=10000)
    arguments.add_argument("--machines", nargs="+", default=MACHINES, choices=MACHINES)
    arguments.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    arguments.add_argument("--updates", type=int, default=10000, help="of CD-1 for 784 x 100")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--kept", type=Path, nargs="+", help="what other calls printed")
    args = arguments.parse_args()
    lengths = [n for n in LENGTHS if n <= args.longest]
    rts = [args.repeats if n <= 1000 else args.long_repeats for n in lengths]
    ais = [args.ais_repeats] * len(lengths)
    raised = [max(1, args.ais_repeats // (2 if n <= 1000 else 10)) for n in lengths]
    every = {**dict.fromkeys(SLOPES, rts), "AIS": ais, "RAISE": raised}
    repeats = {method: every[method] for method in args.methods}
    begin = process_time()
    rows: list[Row] = rows_of_logs(args.kept) if args.kept else []
    for name in () if args.kept else args.machines:
        if name == "784 x 500":
            rbm, reference, truth, source = machines.large_machine()
            truth = long_truth(rbm, reference, args.longest) if np.isnan(truth) else truth
        else:
            (rbm, reference), source = machines.trained_machine(100, args.updates), "ours"
            truth = long_truth(rbm, reference, args.longest)
        rows += compare(f"{name} ({source})", rbm, reference, truth, lengths, repeats)
    settings = {
        "true log Z": "784 x 500: 451.27, of four long AIS runs (published 451.28); 784 x 100: "
        f"the mean of three AIS runs and one RTS run of {args.longest} sweeps",
        "784 x 100": f"CD-1, {args.updates} updates of 100 rows, on {machines.digits()[1]}",
        "seconds": "column: CPU seconds of one run (of the longest of a repeat for RTS); in all "
        + (
            "not known: parts ran in calls of their own"
            if args.kept
            else f"{process_time() - begin:.0f}"
        ),
        "sweeps before": "the warm-up's cost, in sweeps of 100 chains: an annealed pass of "
        f"{PARTICLES} particles, and rounds of sweeps",
        "seeds": "1, 2, ...",
    }
    if "784 x 100" not in {str(row["machine"])[:9] for row in rows}:
        del settings["784 x 100"]
    save("rts_figure3", rows, args.out, "RTS, AIS and RAISE against sweeps", settings)
    picture(rows, args.out / "rts_figure3.png")


if __name__ == "__main__":
    main()
