"""Plain, annealed and tempered variational inference on the conjugate models, from many starts.

Parts: `figure1`, the ELBO of a mixture of two Gaussians over their means; `factorial`, eight
images of 4 x 4 pixels switched on and off in 10,000 data; `patches`, a factorial mixture on patches
of photographs; `lda`, topics of the Associated Press corpus; `partition`, its log C(T); `speed`,
LDA beside scikit-learn. All seconds are CPU time of one core.
"""

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import RESULTS, Row, save
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits

from pymc_tempering.exceptions import TemperingWarning
from pymc_tempering.variational.conjugate import (
    LDA,
    FactorialMixture,
    Fit,
    GaussianMixture,
    document_completion,
    lda_log_partition,
    svi,
)

BLUE, ORANGE, GREEN, GRAY, PURPLE, SKY = (
    "#0072B2", "#D55E00", "#009E73", "#7F7F7F", "#CC79A7", "#56B4E9",
)  # fmt: skip
VT, LVT = "variational_tempering", "local_variational_tempering"
CLOSE = 0.2
"""A component is found if a fitted one is nearer than this share of its length."""


@dataclass(frozen=True)
class Method:
    """How one method is called, and its color in pictures."""

    options: dict[str, Any]
    color: str


@dataclass(frozen=True)
class Run:
    """What one fit gave; nats."""

    method: str
    seed: int
    fit: Fit
    held_out: float
    found: int
    seconds: float


def run_all(
    methods: dict[str, Method],
    seeds: range,
    fit: Callable[[dict[str, Any], int], Fit],
    judge: Callable[[Fit], tuple[float, int]],
) -> list[Run]:
    """Fit with every method from every seed, interleaved."""
    runs = []
    for seed in seeds:
        for name, method in methods.items():
            started = process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TemperingWarning)
                result = fit(method.options, seed)
            seconds = process_time() - started
            run = Run(name, seed, result, *judge(result), seconds)
            runs.append(run)
            print(
                f"{name:14s} seed {seed:3d}  ELBO {result.elbo:12.1f}  held out "
                f"{run.held_out:10.4f}  found {run.found}  {len(result.elbo_history)} iterations "
                f"{seconds:.1f} s",
                flush=True,
            )
    return runs


def summary(runs: list[Run], methods: dict[str, Method], n_parts: int = 0) -> list[Row]:
    """Return a row for each method: its ELBO, held-out likelihood and found components."""
    rows: list[Row] = []
    for name in methods:
        mine = [run for run in runs if run.method == name]
        values = np.array([run.fit.elbo for run in mine])
        held_out = np.array([run.held_out for run in mine])
        row: Row = {
            "method": name, "n": len(mine),
            "ELBO median": f"{np.median(values):.0f}", "ELBO best": f"{values.max():.0f}",
            "ELBO worst": f"{values.min():.0f}",
            "held out": f"{held_out.mean():.4f}",
            "its se": f"{held_out.std(ddof=1) / np.sqrt(len(mine)):.4f}" if len(mine) > 1 else "-",
        }  # fmt: skip
        if n_parts:
            found = np.array([run.found for run in mine])
            row |= {"all found": f"{np.mean(found == n_parts):.0%}", "mean found": found.mean()}
        row |= {
            "iterations": float(np.mean([len(run.fit.elbo_history) for run in mine])),
            "seconds": float(np.median([run.seconds for run in mine])),
        }
        rows.append(row)
    return rows


def pictures() -> Any:
    """Return pyplot without a window."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams |= {"axes.spines.top": False, "axes.spines.right": False, "font.size": 9}
    return plt


def draw(name: str, runs: list[Run], methods: dict[str, Method], out: Path, label: str) -> None:
    """Draw the final ELBO and held-out likelihood of all runs, and T over the iterations."""
    figure, axes = pictures().subplots(1, 3, figsize=(12.0, 3.8), layout="constrained")
    jitter = np.random.default_rng(0)
    for i, (method, look) in enumerate(methods.items()):
        mine = [run for run in runs if run.method == method]
        x = i + 0.15 * jitter.uniform(-1, 1, len(mine))
        axes[0].plot(x, [run.fit.elbo for run in mine], "o", ms=4, alpha=0.7, color=look.color)
        axes[1].plot(x, [run.held_out for run in mine], "o", ms=4, alpha=0.7, color=look.color)
        history = 1.0 / mine[0].fit.inverse_temperature
        axes[2].plot(np.arange(1, len(history) + 1), history, color=look.color, label=method)
    for ax, title in zip(
        axes, ("ELBO at T = 1 (nats)", label, "1 / E[1/T], first run"), strict=True
    ):
        ax.set_title(title, loc="left")
    for ax in axes[:2]:
        ax.set_xticks(range(len(methods)), list(methods), rotation=30, ha="right")
    axes[2].set(xlabel="iteration", xscale="log", yscale="log")
    axes[2].legend(frameon=False, fontsize=8, loc="upper right")
    figure.savefig(out / f"{name}.png", dpi=130)


# Figure 1 ---------------------------------------------------------------------------------------


def figure1(args: argparse.Namespace) -> None:
    """Draw the annealed ELBO over two means at T = 20, 13, 8.5 and 1, and fit from many starts."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-4.0, 1.0, 70), rng.normal(4.0, 1.0, 30)])[:, None]
    weights = np.array([0.7, 0.3])
    model = GaussianMixture(2, sd=1.0, prior_sd=10.0)
    grid = np.linspace(-8.0, 8.0, 81)
    figure, axes = pictures().subplots(1, 4, figsize=(12.0, 3.3), layout="constrained")
    for ax, temperature in zip(axes, (20.0, 13.0, 8.5, 1.0), strict=True):
        values = np.empty((len(grid), len(grid)))
        inv_temp = np.full(len(x), 1.0 / temperature)
        for i, first in enumerate(grid):
            for j, second in enumerate(grid):
                precision = model.prior_sd**-2 + len(x) * weights / temperature
                mean = np.array([[first], [second]])
                # weights known but for little, so that the two modes differ in height
                lam = (1e6 * weights, precision, mean * precision[:, None])
                local = model.local_step(lam, x, inv_temp, model.start_local(x), 1)
                values[i, j] = (inv_temp * local.log_joint + local.rest).sum()
                values[i, j] -= 0.5 * (mean**2).sum() / model.prior_sd**2
        levels = values.max() - np.geomspace(1e-3, 1.0, 20)[::-1] * np.ptp(values)
        ax.contour(grid, grid, values.T, levels=levels, cmap="viridis", linewidths=0.8)
        best = np.unravel_index(values.argmax(), values.shape)
        ax.plot(grid[best[0]], grid[best[1]], "o", color=ORANGE)
        ax.set_title(f"T = {temperature:g}", loc="left")
        ax.set(xlabel="mean of the component of weight 0.7")
    axes[0].set_ylabel("mean of the component of weight 0.3")
    figure.savefig(args.out / "variational_figure1.png", dpi=130)
    methods = {
        "VI": Method({"method": "vi"}, GRAY),
        "AVI lin 20": Method(annealed(20, 20.0), SKY),
        "AVI lin 60": Method(annealed(60, 20.0), BLUE),
        "AVI exp 60": Method(annealed(60, 20.0, "exponential"), GREEN),
        "VT": Method({"method": VT, "temperatures": np.geomspace(1.0, 20.0, 100)}, ORANGE),
        "LVT": Method({"method": LVT}, PURPLE),
    }
    held = np.concatenate([rng.normal(-4.0, 1.0, 700), rng.normal(4.0, 1.0, 300)])[:, None]

    def fit(options: dict[str, Any], seed: int) -> Fit:
        return svi(model, x, random_seed=seed, cores=1, **options)

    def judge(fit: Fit) -> tuple[float, int]:
        mean = np.sort(fit.posterior["mean"].values.ravel())
        return float(fit.log_predictive(held).mean()), int((np.abs(mean - [-4, 4]) < 1).sum())

    runs = run_all(methods, range(args.seed, args.seed + args.repeats), fit, judge)
    settings = {"settings": "N = 100, weights 0.7 and 0.3 at -4 and 4, sd 1, prior sd 10"}
    rows = summary(runs, methods, 2)
    save("variational_figure1", rows, args.out, "Two Gaussians in one dimension", settings)


# Factorial mixture: toy -------------------------------------------------------------------------


def shapes() -> np.ndarray:
    """Return eight black and white images of 4 x 4 pixels."""
    images = np.zeros((8, 4, 4))
    images[0, 0, :] = images[1, :, 0] = images[2, 3, :] = images[3, :, 3] = 1.0
    images[4, range(4), range(4)] = images[5, range(4), [3, 2, 1, 0]] = 1.0
    images[6, 1:3, 1:3] = images[7, :2, 2:] = 1.0
    return images.reshape(8, 16)


def toy(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return components, data and held-out data of Section 4: variances 0.1 and 0.35, pi 0.3."""
    rng = np.random.default_rng(seed)
    parts = shapes() * rng.uniform(0.5, 1.0, size=(8, 1))
    x = (rng.random((n + 1000, 8)) < 0.3) @ parts + 0.1**0.5 * rng.normal(size=(n + 1000, 16))
    return parts, x[:n], x[n:]


def annealed(passes: float, hottest: float, schedule: str = "linear") -> dict[str, Any]:
    """Return the options of AVI."""
    return {
        "method": "annealed", "hottest": hottest, "anneal_passes": passes, "schedule": schedule,
    }  # fmt: skip


def n_found(mean: np.ndarray, parts: np.ndarray) -> int:
    """Return how many components are found, matched one to one."""
    distance = np.linalg.norm(mean[:, None] - parts, axis=2) / np.linalg.norm(parts, axis=1)
    rows, columns = linear_sum_assignment(np.minimum(distance, 1.0))
    return int((distance[rows, columns] < CLOSE).sum())


def factorial(args: argparse.Namespace) -> None:
    """Fit the toy data from many starts."""
    parts, x, held = toy(args.n_data, 0)
    model = FactorialMixture(8, sd=0.1**0.5, prior_sd=0.35**0.5, probability=0.3)
    methods = {
        "VI": Method({"method": "vi"}, GRAY),
        "AVI lin 10": Method(annealed(10, 10.0), SKY),
        "AVI lin 100": Method(annealed(100, 10.0), BLUE),
        "AVI exp 100": Method(annealed(100, 10.0, "exponential"), GREEN),
        "VT": Method({"method": VT}, ORANGE),
        "VT as printed": Method({"method": VT, "start": "uniform", "damping": 1.0}, "#B8860B"),
        "LVT": Method({"method": LVT}, PURPLE),
    }

    def fit(options: dict[str, Any], seed: int) -> Fit:
        return svi(model, x, random_seed=seed, cores=1, **options)

    def judge(fit: Fit) -> tuple[float, int]:
        return float(fit.log_predictive(held).mean()), n_found(fit.posterior["mean"].values, parts)

    runs = run_all(methods, range(args.seed, args.seed + args.repeats), fit, judge)
    settings = {
        "data": f"{args.n_data} data of 8 components of 4 x 4 pixels, pi = 0.3, noise variance "
        "0.1, prior variance 0.35",
        "seeds": f"{args.seed} to {args.seed + args.repeats - 1}",
        "found": f"distance below {CLOSE} of the component's length, matched one to one",
        "held out": "ELBO per datum (nats) of 1000 others at T = 1, a lower bound",
        "VT": "from T = 10, damping 0.05; as printed: from uniform q(T), undamped",
    }
    save("variational_factorial", summary(runs, methods, 8), args.out,
         "Factorial mixture, toy data of Mandt et al. (2016), Section 4", settings)  # fmt: skip
    draw("variational_factorial", runs, methods, args.out, "held-out ELBO per datum (nats)")
    draw_parts(runs, ["VI", "VT"], parts, args.out)


def draw_parts(runs: list[Run], names: list[str], parts: np.ndarray, out: Path) -> None:
    """Draw the components of the median run of some methods, below the true ones."""
    figure, axes = pictures().subplots(
        len(names) + 1, 8, figsize=(8.0, 1.1 * len(names) + 1.4), layout="constrained"
    )
    lines = [("truth", parts)]
    for name in names:
        mine = sorted((r for r in runs if r.method == name), key=lambda r: r.fit.elbo)
        mean = mine[len(mine) // 2].fit.posterior["mean"].values
        distance = np.linalg.norm(mean[:, None] - parts, axis=2)
        order = linear_sum_assignment(distance.T)[1]
        lines.append((f"{name}, median run", mean[order]))
    for (title, images), row in zip(lines, axes, strict=True):
        row[0].set_title(title, loc="left")
        for image, ax in zip(images, row, strict=True):
            ax.imshow(image.reshape(4, 4), cmap="gray", vmin=-0.2, vmax=1.0)
            ax.axis("off")
    figure.savefig(out / "variational_factorial_parts.png", dpi=130)


# Factorial mixture: patches of photographs ------------------------------------------------------


def patches(args: argparse.Namespace) -> None:
    """Fit patches of scikit-learn's two photographs with K = 16 components."""
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(0)
    rows = []
    for image in load_sample_images().images:
        gray = image.mean(axis=2)
        for _ in range(1250):
            i, j = (int(rng.integers(side - 8)) for side in gray.shape)
            rows.append(gray[i : i + 8, j : j + 8].ravel())
    data = rng.permutation(np.array(rows))
    data = (data - data.mean()) / data.std()
    x, held = data[:2000], data[2000:]
    model = FactorialMixture(16, sd=0.5, prior_sd=0.5, probability=0.3)
    methods = {
        "VI": Method({"method": "vi"}, GRAY),
        "AVI lin 5": Method(annealed(5, 6.0), SKY),
        "AVI lin 50": Method(annealed(50, 6.0), BLUE),
        "AVI exp 50": Method(annealed(50, 6.0, "exponential"), GREEN),
        "VT": Method({"method": VT}, ORANGE),
        "LVT": Method({"method": LVT}, PURPLE),
    }

    def fit(options: dict[str, Any], seed: int) -> Fit:
        return svi(model, x, random_seed=seed, cores=1, **options)

    def judge(fit: Fit) -> tuple[float, int]:
        return float(fit.log_predictive(held).mean()), 0

    runs = run_all(methods, range(args.seed, args.seed + args.repeats), fit, judge)
    settings = {
        "data": "2000 patches of 8 x 8 gray pixels of scikit-learn's sample images, all pixels "
        "standardized; K = 16, sd 0.5 for noise and prior, pi = 0.3",
        "held out": "ELBO per datum (nats) of 500 others at T = 1, a lower bound",
    }
    save("variational_patches", summary(runs, methods), args.out,
         "Factorial mixture, patches of photographs", settings)  # fmt: skip
    draw("variational_patches", runs, methods, args.out, "held-out ELBO per datum (nats)")


# LDA --------------------------------------------------------------------------------------------


def corpus() -> tuple[sp.csr_array, str]:
    """Return the Associated Press corpus, or documents drawn from LDA where it is missing."""
    folder = Path(os.environ.get("PMT_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "ap.dat").exists():
        rng = np.random.default_rng(0)
        topics = rng.dirichlet(np.full(5000, 0.05), size=40)
        shares = rng.dirichlet(np.full(40, 0.1), size=2200)
        return sp.csr_array(np.array([rng.multinomial(150, s @ topics) for s in shares])), "drawn"
    indptr, indices, counts = [0], [], []
    for line in (folder / "ap.dat").read_text().splitlines():
        for pair in line.split()[1:]:
            word, count = pair.split(":")
            indices.append(int(word))
            counts.append(float(count))
        indptr.append(len(indices))
    matrix = sp.csr_array((counts, indices, indptr))
    return matrix[np.flatnonzero(matrix.sum(axis=1))], "Associated Press (ap.dat)"


def split_corpus() -> tuple[sp.csr_array, sp.csr_array, str]:
    """Return 2000 documents to fit, the others, and the name of the corpus."""
    matrix, name = corpus()
    order = np.random.default_rng(0).permutation(matrix.shape[0])
    return matrix[np.sort(order[:2000])], matrix[np.sort(order[2000:])], name


def lda_methods(iterations: int) -> dict[str, Method]:
    """Return SVI, AVI, VT and LVT, all of as many iterations."""
    passes, tempered = iterations / 20, {"iterations": iterations * 3 // 4}
    tempered |= {"untempered": iterations - tempered["iterations"]}
    mild = np.geomspace(1.0, 1.5, 50)
    return {
        "SVI": Method({"method": "vi", "iterations": iterations}, GRAY),
        **{
            f"AVI {hottest:g}, {share:.0%}": Method(
                {**annealed(share * passes, hottest), "iterations": iterations}, color
            )
            for hottest, share, color in ((1.5, 0.1, SKY), (1.5, 0.5, BLUE), (2.0, 0.5, GREEN))
        },
        "VT": Method({"method": VT, "temperatures": mild, "damping": 0.01, **tempered}, ORANGE),
        "LVT": Method(
            {
                "method": LVT, "temperatures": 1.0 / np.linspace(1.0, 0.5, 50),
                "update_every": 20, **tempered,
            },
            PURPLE,
        ),
    }  # fmt: skip


def lda(args: argparse.Namespace) -> None:
    """Fit topics by minibatches of 100 documents; judge by the words of held-out documents."""
    train, test, name = split_corpus()
    for size in args.topics:
        model = LDA(size, alpha=args.prior, eta=args.prior)
        methods = lda_methods(args.passes * 20)
        tempered: dict[str, list[float]] = {method: [] for method in methods}

        def fit(options: dict[str, Any], seed: int, model: LDA = model) -> Fit:
            settings = {"batch_size": 100, "tau": args.tau, "kappa": 0.7, "elbo_every": 0}
            result = svi(model, train, random_seed=seed, cores=1, **settings, **options)
            state = model.start_local(train)
            local = model.local_step(result.lam, train, np.ones(len(state)), state, 1)
            value = float((local.log_joint + local.rest).sum())
            return replace(result, elbo=value + model.global_elbo(result.lam, train))

        def judge(fit: Fit, model: LDA = model) -> tuple[float, int]:
            return document_completion(model, fit.lam, test), 0

        runs = run_all(methods, range(args.seed, args.seed + args.repeats), fit, judge)
        for run in runs:
            tempered[run.method].append(document_completion(model, run.fit.tempered_lam, test))
        rows = summary(runs, methods)
        for row in rows:
            row["tempered optimum"] = f"{np.mean(tempered[str(row['method'])]):.4f}"
        settings = {
            "corpus": f"{name}, {train.shape[0]} documents fitted, {test.shape[0]} held out",
            "settings": f"K = {size}, alpha = eta = {args.prior}, minibatches of 100, tau = "
            f"{args.tau:g}, kappa = 0.7, {args.passes} passes in all for every method",
            "AVI": "first temperature, linear; length of the annealing as share of the passes",
            "VT": "temperatures 1 to 1.5, damping 0.01, log C(T) by the closed-form Jensen bound",
            "LVT": "temperatures 1 to 2, 1/T in even steps; LVT and VT: the last fourth of the "
            "passes at T = 1",
            "held out": "nats per held-out word, document completion",
            "tempered optimum": "the same, with lambda before the passes at T = 1",
        }
        save(f"variational_lda{size}", rows, args.out, f"LDA with {size} topics", settings)
        draw(f"variational_lda{size}", runs, methods, args.out, "held-out nats per word")


def partition(args: argparse.Namespace) -> None:
    """Tabulate bounds and estimates of log C(T) of the corpus, in nats per word."""
    train, _, name = split_corpus()
    rows: list[Row] = []
    temperatures = [1.0, 1.1, 1.5, 2.0, 5.0]
    for size in args.topics:
        for estimate in ("jensen_log", "jensen_mean", "monte_carlo", "one_topic", "upper"):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                values = lda_log_partition(
                    LDA(size), train, temperatures, estimate=estimate, topic_draws=10,
                    document_draws=100, random_seed=args.seed,
                )  # fmt: skip
            per_word = values / train.sum()
            row: Row = {"K": size, "estimate": estimate}
            row |= {f"T = {t:g}": f"{v:.3f}" for t, v in zip(temperatures, per_word, strict=True)}
            rows.append(row | {"warned": "yes" if caught else "no"})
    settings = {
        "corpus": f"{name}, {train.shape[0]} documents, {train.sum():.0f} words",
        "settings": "alpha = eta = 1/K; 10 draws of the topics, 100 of theta for each",
        "which": "all but monte_carlo and upper are lower bounds (jensen_log up to its Monte Carlo "
        "error); upper is an upper bound",
    }
    save("variational_partition", rows, args.out, "log C(T) of LDA, nats per word", settings)


def speed(args: argparse.Namespace) -> None:
    """Run online LDA and scikit-learn's from one start, on the same minibatches."""
    import sklearn
    from scipy.special import digamma
    from sklearn.decomposition import LatentDirichletAllocation

    train, test, name = split_corpus()
    rows: list[Row] = []
    for size in args.topics:
        model = LDA(size)
        compiling = {"iterations": 1, "batch_size": 100, "elbo_every": 0, "cores": 1}
        svi(model, train[:100], "vi", **compiling)
        for seed in range(args.seed, args.seed + args.repeats):
            first = model.initialize(train, np.random.default_rng(seed))
            started = process_time()
            mine = svi(
                model, train, "vi", iterations=20 * args.passes, batch_size=100, tau=10.0,
                kappa=0.7, initial=first, random_seed=seed, elbo_every=0, cores=1,
            )  # fmt: skip
            ours = process_time() - started
            theirs = LatentDirichletAllocation(
                size, learning_decay=0.7, learning_offset=10.0, total_samples=train.shape[0],
                random_state=seed,
            )  # fmt: skip
            theirs._init_latent_vars(train.shape[1], dtype=np.float64)
            theirs.components_ = np.ascontiguousarray(first[0].T)
            expected = digamma(theirs.components_)
            expected -= digamma(theirs.components_.sum(axis=1, keepdims=True))
            theirs.exp_dirichlet_component_ = np.exp(expected)
            rng, seconds = np.random.default_rng(seed), 0.0
            for _ in range(args.passes):
                for rows_of_batch in rng.permutation(train.shape[0]).reshape(-1, 100):
                    batch = train[rows_of_batch]
                    started = process_time()
                    theirs.partial_fit(batch)
                    seconds += process_time() - started
            lam = (np.ascontiguousarray(theirs.components_.T),)
            ours_p, theirs_p = (
                float(np.exp(-document_completion(model, value, test))) for value in (mine.lam, lam)
            )
            rows.append(
                {
                    "K": size, "seed": seed, "seconds": ours, "scikit-learn": seconds,
                    "ratio": seconds / ours, "perplexity": f"{ours_p:.1f}",
                    "its perplexity": f"{theirs_p:.1f}",
                    "difference": f"{ours_p / theirs_p - 1.0:.2%}",
                }
            )  # fmt: skip
            print(rows[-1], flush=True)
    settings = {
        "corpus": f"{name}, {train.shape[0]} documents, {args.passes} passes, minibatches of 100",
        "scikit-learn": f"{sklearn.__version__}, partial_fit on the same minibatches from the same "
        "start; alpha = eta = 1/K, tau = 10, kappa = 0.7, 100 iterations or a mean change of 0.001 "
        "in the local step",
        "seconds": "CPU time, one core each",
    }
    save(
        "variational_lda_speed", rows, args.out, "Online LDA at T = 1 beside scikit-learn", settings
    )


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "figure1": figure1, "factorial": factorial, "patches": patches, "lda": lda,
    "partition": partition, "speed": speed,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--repeats", type=int, default=20, help="starts of every method")
    parser.add_argument("--seed", type=int, default=1, help="first of the consecutive seeds")
    parser.add_argument("--n-data", type=int, default=10_000, help="of the factorial toy")
    parser.add_argument("--topics", type=int, nargs="+", default=[50, 100])
    parser.add_argument("--passes", type=int, default=25, help="over the corpus")
    parser.add_argument("--tau", type=float, default=64.0)
    parser.add_argument("--prior", type=float, default=0.1, help="alpha and eta of `lda`")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        sys.exit(f"unknown parts: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    args.out.mkdir(parents=True, exist_ok=True)
    with threadpool_limits(1):
        for part in args.parts or PARTS:
            PARTS[part](args)


if __name__ == "__main__":
    main()
