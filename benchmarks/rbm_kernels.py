"""Discrete Langevin proposals beside coordinate-wise Gibbs sampling, on an RBM at several beta.

The machine is the 784 x 500 one of Salakhutdinov & Murray (2008), where its weights are at hand
($PMT_DATA or ../shared/data); otherwise a random one of the same size. Effective samples are
those of the energy, of the number of pixels that are on, and of random projections of the pixels;
seconds are those of the processor. At beta = 1 the machine has many modes: no chain of a minute
visits them all, so that each chain's own ESS, summed, stands beside that of all chains together.
"""

import os
import time
from pathlib import Path

import arviz as az
import numba
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from common import Row, parser, save
from numba import float64, types
from scipy.io import loadmat

from pymc_tempering.kernels import ACCEPTANCE, N_EVALUATIONS, N_INFO, DiscreteLangevin, Gibbs
from pymc_tempering.kernels.assign import assign_kernels
from pymc_tempering.model.compiled import (
    DENSITY,
    EXPLORE,
    MATRIX,
    PARTS,
    POINT,
    RNG,
    VECTOR,
    new_point,
)
from pymc_tempering.model.layout import model_layout
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.compiled_mixture import evaluate

DATA = Path(os.environ.get("PMT_DATA", Path(__file__).parents[2] / "shared" / "data"))


def machine() -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    """Weights (784, 500), visible and hidden biases of the machine, and where they come from."""
    file = DATA / "rbm_mnist_cd25.mat"
    if file.exists():
        found = loadmat(file)
        return found["vishid"], found["visbiases"].ravel(), found["hidbiases"].ravel(), file.name
    rng = np.random.default_rng(0)
    return rng.normal(0, 0.1, (784, 500)), rng.normal(-2, 1, 784), rng.normal(0, 1, 500), "random"


def rbm_model() -> tuple[pm.Model, str]:
    """Visible units from independent coin flips, hidden ones summed out."""
    weights, a, c, source = machine()
    p = np.clip(1 / (1 + np.exp(-a)), 0.02, 0.98)
    with pm.Model() as model:
        v = pm.Bernoulli("v", p, shape=a.size)
        energy = pt.dot(v, a) + pt.softplus(c + pt.dot(v, weights)).sum()
        pm.Potential("energy", energy - pt.dot(v, np.log(p / (1 - p))) - np.log(1 - p).sum())
    return model, source


@numba.njit(
    types.void(DENSITY, EXPLORE, float64, PARTS, POINT, VECTOR, MATRIX, RNG, MATRIX, MATRIX, MATRIX)
)
def walk(density, explore, beta, parts, point, params, scratch, rng, infos, xs, totals):
    """Fill the rows of `xs` with states at `beta`."""
    for i in range(xs.shape[0]):
        explore(density, point, beta, parts, params, scratch, rng, infos)
        totals += infos
        xs[i] = point.x


def features(xs: np.ndarray) -> np.ndarray:
    """Energy, pixels that are on, and five random projections of each state, (n, 7)."""
    weights, a, c, _ = machine()
    energy = xs @ a + np.logaddexp(0, c + xs @ weights).sum(axis=1)
    projections = np.random.default_rng(0).normal(size=(xs.shape[1], 5))
    return np.column_stack([energy, xs.sum(axis=1), xs @ projections])


def measure(
    name: str, factory, model: pm.Model, betas: list[float], seconds: float, chains: int, seed: int
) -> list[Row]:
    """At each beta: burn in for a quarter of the time, tune, and count effective samples."""
    kernel = assign_kernels(model, model_layout(model), factory())
    prior = compile_model(model, check=False, kernel=kernel)
    path = prior.path
    scratch = np.empty((max(kernel.n_scratch, 1), path.dim))

    def chain(beta: float, rng: np.random.Generator) -> tuple[np.ndarray, float, np.ndarray]:
        point = new_point(path.dim)
        point.x[:] = prior.draw(1, prior.spawn(rng))[0]
        evaluate(path.density, point)
        steps = np.array([0.3])

        def run(budget: float, tune: bool) -> tuple[np.ndarray, float, np.ndarray]:
            nonlocal steps
            kept, total, used = [], np.zeros((1, N_INFO)), 0.0
            while used < budget:
                xs, sums, infos = (
                    np.empty((5, path.dim)),
                    np.zeros((1, N_INFO)),
                    np.zeros((1, N_INFO)),
                )
                params = kernel.pack(steps, np.ones(path.dim), None)
                started = time.process_time()
                walk(path.density, kernel.explore, beta, kernel.parts, point, params, scratch, rng,
                     infos, xs, sums)  # fmt: skip
                used += time.process_time() - started
                kept.append(features(xs))
                total += sums
                if tune:
                    off = np.nan_to_num(sums[:, ACCEPTANCE] / 5 - kernel.targets)
                    steps = np.clip(steps * np.exp(0.3 * off), 1e-3, 10.0)
            return np.concatenate(kept), used, total

        run(0.25 * seconds, tune=True)
        return run(seconds, tune=False)

    rows = []
    for beta, rng in zip(betas, np.random.default_rng(seed).spawn(len(betas)), strict=True):
        runs = [chain(beta, own) for own in rng.spawn(chains)]
        used = sum(seconds for _, seconds, _ in runs)
        length = min(len(xs) for xs, _, _ in runs) // 2 * 2
        kept = np.array([xs[:length] for xs, _, _ in runs])
        # Two halves of each as chains: one chain that has not mixed shows it.
        halves = kept.reshape(2 * chains, length // 2, -1)
        together = [float(az.ess(halves[..., i])) for i in range(halves.shape[-1])]
        own = [
            sum(float(az.ess(half.reshape(2, length // 2, -1)[..., i])) for half in kept)
            for i in range(halves.shape[-1])
        ]
        total = sum(sums for _, _, sums in runs)
        rows.append(
            {
                "kernel": name,
                "beta": beta,
                "transitions": length * chains,
                "evaluations": int(total[0, N_EVALUATIONS]),
                "acceptance": float(total[0, ACCEPTANCE] / sum(len(xs) for xs, _, _ in runs)),
                "CPU seconds": used,
                "ESS of the energy / s": own[0] / used,
                "smallest ESS / s": min(own) / used,
                "smallest ESS": min(own),
                "of all chains / s": min(together) / used,
                "largest R-hat": max(float(az.rhat(kept[..., i])) for i in range(kept.shape[-1])),
            }
        )
        print(rows[-1], flush=True)
    return rows


KERNELS = {
    "gibbs": Gibbs,
    "langevin, 1 step": lambda: DiscreteLangevin(n_steps=1),
    "langevin, 5 steps": DiscreteLangevin,
    "langevin, 20 steps": lambda: DiscreteLangevin(n_steps=20),
}


def main() -> None:
    arguments = parser(__doc__, 1)
    arguments.add_argument("--seconds", type=float, default=45.0, help="CPU seconds of each chain")
    arguments.add_argument("--chains", type=int, default=4)
    arguments.add_argument("--betas", type=float, nargs="+", default=[0.3, 0.6, 1.0])
    arguments.add_argument(
        "--kernels", nargs="+", default=["gibbs", "langevin, 5 steps"], choices=KERNELS
    )
    args = arguments.parse_args()
    model, source = rbm_model()
    rows = [
        row
        for name in args.kernels
        for row in measure(
            name, KERNELS[name], model, args.betas, args.seconds, args.chains, args.seed
        )
    ]

    def ahead(beta: float) -> float:
        """Of the default Langevin kernel over Gibbs: smallest ESS a second."""
        of = {row["kernel"]: float(row["smallest ESS / s"]) for row in rows if row["beta"] == beta}
        return of.get("langevin, 5 steps", np.nan) / of.get("gibbs", np.nan)

    settings = {
        "model": f"784 visible, 500 hidden units, {source}",
        "run": f"{args.chains} chains of {args.seconds:g} seconds of the processor at each beta, "
        "after a quarter of that to burn in and tune, each from a draw at beta = 0",
        "ESS": "bulk, of each chain's two halves, summed over chains; `of all chains`: as one",
        "langevin, 5 steps (the default) / gibbs": ", ".join(
            f"{ahead(beta):.1f} at beta = {beta:g}" for beta in args.betas
        )
        + " times the smallest ESS a second",
        "seed": str(args.seed),
    }
    save("rbm_kernels", rows, args.out, "Kernels of binary variables on an RBM", settings)


if __name__ == "__main__":
    main()
