"""Discrete Langevin proposals beside coordinate-wise Gibbs sampling, on an RBM at beta = 1.

The machine is the 784 x 500 one of Salakhutdinov & Murray (2008), where its weights are at hand
($PMT_DATA or ../shared/data); otherwise a random one of the same size. Effective samples are
those of the energy, of the number of pixels that are on, and of random projections of the pixels;
seconds are those of the processor.
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
from numba import types
from scipy.io import loadmat

from pymc_tempering import DiscreteLangevin, Gibbs
from pymc_tempering.assign import assign_kernels
from pymc_tempering.compiled import DENSITY, EXPLORE, MATRIX, PARTS, POINT, RNG, VECTOR, new_point
from pymc_tempering.kernels import ACCEPTANCE, N_EVALUATIONS, N_INFO
from pymc_tempering.layout import model_layout
from pymc_tempering.mixture import evaluate
from pymc_tempering.prepare import compile_model

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


@numba.njit(types.void(DENSITY, EXPLORE, PARTS, POINT, VECTOR, MATRIX, RNG, MATRIX, MATRIX, MATRIX))
def walk(density, explore, parts, point, params, scratch, rng, infos, xs, totals):
    """Fill the rows of `xs` with states at beta = 1."""
    for i in range(xs.shape[0]):
        explore(density, point, 1.0, parts, params, scratch, rng, infos)
        totals += infos
        xs[i] = point.x


def measure(name: str, factory, model: pm.Model, seconds: float, seed: int) -> Row:
    """Burn in for a quarter of the time, tune, and count effective samples a second."""
    kernel = assign_kernels(model, model_layout(model), factory())
    prior = compile_model(model, check=False, kernel=kernel)
    path, rng = prior.path, np.random.default_rng(seed)
    point = new_point(path.dim)
    point.x[:] = prior.draw(1, prior.spawn(rng))[0]
    evaluate(path.density, point)
    scratch = np.empty((max(kernel.n_scratch, 1), path.dim))
    steps = np.array([0.3])

    def run(budget: float, tune: bool) -> tuple[np.ndarray, float, np.ndarray]:
        nonlocal steps
        kept, total, used = [], np.zeros((1, N_INFO)), 0.0
        while used < budget:
            xs, sums, infos = np.empty((5, path.dim)), np.zeros((1, N_INFO)), np.zeros((1, N_INFO))
            params = kernel.pack(steps, np.ones(path.dim), None)
            started = time.process_time()
            walk(path.density, kernel.explore, kernel.parts, point, params, scratch, rng, infos,
                 xs, sums)  # fmt: skip
            used += time.process_time() - started
            kept.append(xs)
            total += sums
            if tune:
                off = np.nan_to_num(sums[:, ACCEPTANCE] / 5 - kernel.targets)
                steps = np.clip(steps * np.exp(0.3 * off), 1e-3, 10.0)
        return np.concatenate(kept), used, total

    run(0.25 * seconds, tune=True)
    xs, used, total = run(seconds, tune=False)
    projections = np.random.default_rng(0).normal(size=(path.dim, 5))
    _, a, c, _ = machine()
    weights = machine()[0]
    energy = xs @ a + np.logaddexp(0, c + xs @ weights).sum(axis=1)
    features = np.column_stack([energy, xs.sum(axis=1), xs @ projections])
    # Two halves as chains: one chain that has not mixed shows it.
    half = len(xs) // 2
    ess = [float(az.ess(np.array([f[:half], f[half : 2 * half]]))) for f in features.T]
    return {
        "kernel": name,
        "transitions": len(xs),
        "evaluations": int(total[0, N_EVALUATIONS]),
        "acceptance": float(total[0, ACCEPTANCE] / len(xs)),
        "ESS of the energy": ess[0],
        "smallest ESS": min(ess),
        "CPU seconds": used,
        "energy ESS / s": ess[0] / used,
        "smallest ESS / s": min(ess) / used,
    }


def main() -> None:
    arguments = parser(__doc__, 1)
    arguments.add_argument("--seconds", type=float, default=60.0, help="CPU seconds of each kernel")
    args = arguments.parse_args()
    model, source = rbm_model()
    kernels = {
        "gibbs": Gibbs,
        "langevin, 1 step": lambda: DiscreteLangevin(n_steps=1),
        "langevin, 5 steps": DiscreteLangevin,
        "langevin, 20 steps": lambda: DiscreteLangevin(n_steps=20),
    }
    rows = [
        measure(name, factory, model, args.seconds, args.seed) for name, factory in kernels.items()
    ]
    best = max(float(row["smallest ESS / s"]) for row in rows[1:])
    settings = {
        "model": f"784 visible, 500 hidden units, {source}",
        "langevin / gibbs": f"{best / float(rows[0]['smallest ESS / s']):.1f} times the smallest "
        "ESS a second",
        "seed": str(args.seed),
    }
    save("rbm_kernels", rows, args.out, "Kernels of binary variables on an RBM", settings)


if __name__ == "__main__":
    main()
