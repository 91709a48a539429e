"""Plain, annealed and tempered variational inference on the conjugate models, from many starts.

Parts: `figure1`, the ELBO of a mixture of two Gaussians over their means; `factorial`, eight
images of 4 x 4 pixels switched on and off in 10,000 data; `patches`, a factorial mixture on patches
of photographs. All seconds are CPU time of one core.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits

from benchmarks.common import RESULTS, save
from benchmarks.papers import variational_runs as shared
from pymc_tempering.variational.conjugate import FactorialMixture, Fit, GaussianMixture, svi

CLOSE = 0.2
"""A component is found if a fitted one is nearer than this share of its length."""

# Figure 1 ---------------------------------------------------------------------------------------


def figure1(args: argparse.Namespace) -> None:
    """Draw the annealed ELBO over two means at T = 20, 13, 8.5 and 1, and fit from many starts."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-4.0, 1.0, 70), rng.normal(4.0, 1.0, 30)])[:, None]
    weights = np.array([0.7, 0.3])
    model = GaussianMixture(2, sd=1.0, prior_sd=10.0)
    grid = np.linspace(-8.0, 8.0, 81)
    figure, axes = shared.pictures().subplots(1, 4, figsize=(12.0, 3.3), layout="constrained")
    for ax, temperature in zip(axes, (20.0, 13.0, 8.5, 1.0), strict=True):
        values = np.empty((len(grid), len(grid)))
        inv_temp = np.full(len(x), 1.0 / temperature)
        for i, first in enumerate(grid):
            for j, second in enumerate(grid):
                precision = model.prior_sd**-2 + len(x) * weights / temperature
                mean = np.array([[first], [second]])
                # weights known but for little, so that the two modes differ in height
                lam = (1e6 * weights, precision, mean * precision[:, None])
                local = model.local_step(lam, x, inv_temp, model.start_local(x))
                values[i, j] = (inv_temp * local.log_joint + local.rest).sum()
                values[i, j] -= 0.5 * (mean**2).sum() / model.prior_sd**2
        levels = values.max() - np.geomspace(1e-3, 1.0, 20)[::-1] * np.ptp(values)
        ax.contour(grid, grid, values.T, levels=levels, cmap="viridis", linewidths=0.8)
        best = np.unravel_index(values.argmax(), values.shape)
        ax.plot(grid[best[0]], grid[best[1]], "o", color=shared.ORANGE)
        ax.set_title(f"T = {temperature:g}", loc="left")
        ax.set(xlabel="mean of the component of weight 0.7")
    axes[0].set_ylabel("mean of the component of weight 0.3")
    figure.savefig(args.out / "variational_figure1.png", dpi=130)
    methods = {
        "VI": shared.Method({"method": "vi"}, shared.GRAY),
        "AVI lin 20": shared.Method(shared.annealed(20, 20.0), shared.SKY),
        "AVI lin 60": shared.Method(shared.annealed(60, 20.0), shared.BLUE),
        "AVI exp 60": shared.Method(shared.annealed(60, 20.0, "exponential"), shared.GREEN),
        "VT": shared.Method(
            {"method": shared.VT, "temperatures": np.geomspace(1.0, 20.0, 100)}, shared.ORANGE
        ),
        "LVT": shared.Method({"method": shared.LVT}, shared.PURPLE),
    }
    held = np.concatenate([rng.normal(-4.0, 1.0, 700), rng.normal(4.0, 1.0, 300)])[:, None]

    def fit(options: dict[str, Any], seed: int) -> Fit:
        return svi(model, x, random_seed=seed, **options)

    def judge(fit: Fit) -> tuple[float, int]:
        mean = np.sort(fit.posterior["mean"].values.ravel())
        return float(fit.log_predictive(held).mean()), int((np.abs(mean - [-4, 4]) < 1).sum())

    runs = shared.run_all(methods, range(args.seed, args.seed + args.repeats), fit, judge)
    settings = {"settings": "N = 100, weights 0.7 and 0.3 at -4 and 4, sd 1, prior sd 10"}
    rows = shared.summary(runs, methods, 2)
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
        "VI": shared.Method({"method": "vi"}, shared.GRAY),
        "AVI lin 10": shared.Method(shared.annealed(10, 10.0), shared.SKY),
        "AVI lin 100": shared.Method(shared.annealed(100, 10.0), shared.BLUE),
        "AVI exp 100": shared.Method(shared.annealed(100, 10.0, "exponential"), shared.GREEN),
        "VT": shared.Method({"method": shared.VT}, shared.ORANGE),
        "VT as printed": shared.Method(
            {"method": shared.VT, "start": "uniform", "damping": 0.0}, "#B8860B"
        ),
        "LVT": shared.Method({"method": shared.LVT}, shared.PURPLE),
    }

    def fit(options: dict[str, Any], seed: int) -> Fit:
        return svi(model, x, random_seed=seed, **options)

    def judge(fit: Fit) -> tuple[float, int]:
        return float(fit.log_predictive(held).mean()), n_found(fit.posterior["mean"].values, parts)

    runs = shared.run_all(methods, range(args.seed, args.seed + args.repeats), fit, judge)
    settings = {
        "data": f"{args.n_data} data of 8 components of 4 x 4 pixels, pi = 0.3, noise variance "
        "0.1, prior variance 0.35",
        "seeds": f"{args.seed} to {args.seed + args.repeats - 1}",
        "found": f"distance below {CLOSE} of the component's length, matched one to one",
        "held out": "ELBO per datum (nats) of 1000 others at T = 1, a lower bound",
        "VT": "from T = 10, damping 0.95; as printed: from uniform q(T), undamped",
    }
    save("variational_factorial", shared.summary(runs, methods, 8), args.out,
         "Factorial mixture, toy data of Mandt et al. (2016), Section 4", settings)  # fmt: skip
    shared.draw("variational_factorial", runs, methods, args.out, "held-out ELBO per datum (nats)")
    draw_parts(runs, ["VI", "VT"], parts, args.out)


def draw_parts(runs: list[shared.Run], names: list[str], parts: np.ndarray, out: Path) -> None:
    """Draw the components of the median run of some methods, below the true ones."""
    figure, axes = shared.pictures().subplots(
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
    """Fit patches of scikit-learn's two photographs with K = 16 components.

    The paper's sigma_n = sigma_mu = 0.5 are variances: its equations (21) and (22) have 2 sigma_n
    below the square, and sigma_n under the root of the constant.
    """
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
    model = FactorialMixture(16, sd=0.5**0.5, prior_sd=0.5**0.5, probability=0.3)
    methods = {
        "VI": shared.Method({"method": "vi"}, shared.GRAY),
        "AVI lin 5": shared.Method(shared.annealed(5, 6.0), shared.SKY),
        "AVI lin 50": shared.Method(shared.annealed(50, 6.0), shared.BLUE),
        "AVI exp 50": shared.Method(shared.annealed(50, 6.0, "exponential"), shared.GREEN),
        "VT": shared.Method({"method": shared.VT}, shared.ORANGE),
        "LVT": shared.Method({"method": shared.LVT}, shared.PURPLE),
    }

    def fit(options: dict[str, Any], seed: int) -> Fit:
        return svi(model, x, random_seed=seed, **options)

    def judge(fit: Fit) -> tuple[float, int]:
        return float(fit.log_predictive(held).mean()), 0

    runs = shared.run_all(methods, range(args.seed, args.seed + args.repeats), fit, judge)
    settings = {
        "data": "2000 patches of 8 x 8 gray pixels of scikit-learn's sample images, all pixels "
        "standardized; K = 16, variance 0.5 of noise and prior, pi = 0.3",
        "held out": "ELBO per datum (nats) of 500 others at T = 1, a lower bound",
    }
    save("variational_patches", shared.summary(runs, methods), args.out,
         "Factorial mixture, patches of photographs", settings)  # fmt: skip
    shared.draw("variational_patches", runs, methods, args.out, "held-out ELBO per datum (nats)")


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "figure1": figure1, "factorial": factorial, "patches": patches,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--repeats", type=int, default=20, help="starts of every method")
    parser.add_argument("--seed", type=int, default=1, help="first of the consecutive seeds")
    parser.add_argument("--n-data", type=int, default=10_000, help="of the factorial toy")
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
