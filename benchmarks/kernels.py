"""ESS per gradient of our kernels at beta = 1, beside nutpie's NUTS at the same mass matrix.

On a correlated Gaussian posterior in 50 dimensions. nutpie adapts as it likes; its diagonal mass
matrix, chain by chain, is then the metric of our kernels, and its last state their first. Step
sizes are tuned to the same target acceptance; NUTS runs with nutpie's step size too.
A gradient is one call of the density with its gradient: a leapfrog step.
"""

import logging
import warnings
from dataclasses import dataclass
from functools import partial
from time import process_time

import arviz as az
import numba
import numpy as np
import nutpie
import xarray as xr
from common import Row, parser, save
from numba import types

from pymc_tempering import testsystems
from pymc_tempering.kernels import ACCEPTANCE, HMC, N_EVALUATIONS, N_INFO, NUTS, Block, Kernel
from pymc_tempering.model.compiled import (
    DENSITY,
    INDICES,
    KERNEL_SIGNATURE,
    MATRIX,
    POINT,
    RNG,
    VECTOR,
    new_point,
)
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.compiled_mixture import evaluate
from pymc_tempering.testsystems import TestSystem

TARGET = 0.8
LENGTHS = (1.2, 2.4, 3.6, 4.8)
"""Mean trajectory lengths of HMC, in standard deviations; the first is the default."""


@numba.njit(
    types.void(types.FunctionType(KERNEL_SIGNATURE), DENSITY, POINT, INDICES, VECTOR, MATRIX, RNG,
               MATRIX, MATRIX),
    nogil=True,
)  # fmt: skip
def run_kernel(transition, density, point, block, params, scratch, rng, out, infos):  # type: ignore[no-untyped-def]
    """Run a kernel at beta = 1 for as many transitions as `out` has rows."""
    evaluate(density, point)
    for i in range(out.shape[0]):
        transition(density, point, 1.0, block, params, scratch, rng, infos[i])
        out[i] = point.x


@dataclass(frozen=True)
class Chains:
    """Draws (chain, draw, d), leapfrog steps and acceptance of each, step sizes, CPU seconds."""

    draws: np.ndarray
    steps: np.ndarray
    accept: np.ndarray
    step_sizes: np.ndarray
    seconds: float


class Runner:
    """Our kernels on one model from given states."""

    def __init__(self, system: TestSystem) -> None:
        self.path = compile_model(system.model).path
        ((self.mean, _),) = system.moments(1.0).values()

    def condition(self) -> float:
        """Condition number of the posterior's correlation, which no diagonal metric changes."""
        point, slopes = new_point(self.path.dim), []
        for x in np.vstack([np.zeros(self.path.dim), np.eye(self.path.dim)]):
            point.x[:] = x
            self.path.density(point.x, point.values, point.grads)
            slopes.append(point.grads.sum(axis=0))
        cov = np.linalg.inv(slopes[0] - np.array(slopes[1:]))
        sd = np.sqrt(np.diag(cov))
        return float(np.linalg.cond(cov / np.outer(sd, sd)))

    def run(
        self, kernel: Kernel, step: float, scale: np.ndarray, x: np.ndarray, n: int,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """Return draws (n, d) and what the kernel said (n, N_INFO)."""
        block, point = Block.real(x.size), new_point(x.size)
        point.x[:] = x
        out, infos = np.empty((n, x.size)), np.empty((n, N_INFO))
        scratch = np.empty((kernel.n_scratch, x.size))
        run_kernel(
            kernel.transition, self.path.density, point, block.indices,
            kernel.pack(step, scale, block), scratch, rng, out, infos,
        )  # fmt: skip
        return out, infos

    def tune(
        self, kernel: Kernel, step: float, scale: np.ndarray, x: np.ndarray,
        rng: np.random.Generator,
    ) -> float:  # fmt: skip
        """Step size whose acceptance is the target's: stochastic approximation, then its mean."""
        logs = []
        for i in range(150):
            out, infos = self.run(kernel, step, scale, x, 20, rng)
            x = out[-1]
            step *= np.exp((infos[:, ACCEPTANCE].mean() - TARGET) * (2.0 if i < 50 else 0.2))
            logs.append(np.log(step))
        return float(np.exp(np.mean(logs[50:])))

    def chains(
        self, kernel: Kernel, start: "Peer", draws: int, seed: int, *, tuned: bool
    ) -> Chains:
        """Run a chain from each last state of nutpie's, in its metric."""
        parts = []
        for c, rng in enumerate(np.random.default_rng(seed).spawn(len(start.last))):
            scale, x, step = start.scale[c], start.last[c], start.chains.step_sizes[c]
            if tuned:
                step = self.tune(kernel, step, scale, x, rng)
            started = process_time()
            out, infos = self.run(kernel, step, scale, x, draws, rng)
            parts.append((out, infos, step, process_time() - started))
        draws_, infos_, steps, seconds = zip(*parts, strict=True)
        infos = np.array(infos_)
        return Chains(
            np.array(draws_), infos[..., N_EVALUATIONS], infos[..., ACCEPTANCE],
            np.array(steps), sum(seconds),
        )  # fmt: skip


@dataclass(frozen=True)
class Peer:
    """What nutpie did, its metric (chain, d) and its last states (chain, d)."""

    chains: Chains
    scale: np.ndarray
    last: np.ndarray


def run_nutpie(system: TestSystem, draws: int, n_chains: int, seed: int) -> Peer:
    """Let nutpie adapt and sample."""
    compiled = nutpie.compile_pymc_model(system.model)
    started = process_time()
    idata = nutpie.sample(
        compiled, draws=draws, chains=n_chains, cores=1, seed=seed, progress_bar=False,
        save_warmup=True, store_unconstrained=True, store_mass_matrix=True, target_accept=TARGET,
    )  # fmt: skip
    seconds = process_time() - started
    stats = idata["sample_stats"]
    x = stats["unconstrained_draw"].values
    # Stored where it changes, NaN elsewhere. In spite of its name it holds standard deviations
    # (nutpie 0.16): those of the posterior times a factor, and with them its step size gives
    # our kernel the acceptance that it gives nutpie.
    if np.isfinite(stats["mass_matrix_inv"].values).any():
        raise RuntimeError("nutpie's mass matrix changed after its tuning.")
    inverse = idata["warmup_sample_stats"]["mass_matrix_inv"].values
    stored = [np.flatnonzero(np.isfinite(chain).all(axis=1))[-1] for chain in inverse]
    scale = np.array([chain[last] for chain, last in zip(inverse, stored, strict=True)])
    chains = Chains(
        x, stats["n_steps"].values, stats["mean_tree_accept"].values,
        stats["step_size_bar"].values[:, -1], seconds,
    )  # fmt: skip
    return Peer(chains, scale, x[:, -1])


def bulk_ess(draws: np.ndarray) -> np.ndarray:
    """Bulk ESS of each coordinate, shape (d,), by ArviZ."""
    values = xr.DataArray(draws, dims=("chain", "draw", "coordinate"))
    return az.ess(xr.Dataset({"x": values}), method="bulk")["x"].values


def measures(chains: Chains, mean: np.ndarray) -> dict[str, float]:
    """ESS per 1000 gradients, of coordinates and of the squares of their deviations."""
    per = 1000.0 / chains.steps.sum()
    ess, ess_square = bulk_ess(chains.draws), bulk_ess((chains.draws - mean) ** 2)
    return {
        "x, min": per * float(ess.min()),
        "x, median": per * float(np.median(ess)),
        "x^2, min": per * float(ess_square.min()),
        "x^2, median": per * float(np.median(ess_square)),
    }


def main() -> None:
    arguments = parser(__doc__, 3)
    arguments.add_argument("--draws", type=int, default=2000)
    arguments.add_argument("--chains", type=int, default=4)
    args = arguments.parse_args()
    logging.getLogger("nutpie").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    system = testsystems.conjugate_regression(dim=50, n=250)
    runner = Runner(system)
    mean = runner.mean
    ours = {"NUTS": NUTS(TARGET)} | {
        f"HMC, length {length}": HMC(TARGET, length) for length in LENGTHS
    }
    found: dict[str, list[tuple[Chains, dict[str, float]]]] = {}
    for seed in range(args.seed, args.seed + args.repeats):
        peer = run_nutpie(system, args.draws, args.chains, seed)
        found.setdefault("nutpie", []).append((peer.chains, measures(peer.chains, mean)))
        for name, kernel in ours.items():
            run = partial(runner.chains, kernel, peer, args.draws, seed)
            for how, tuned in (("nutpie's step", False), ("step tuned", True)):
                if kernel.name == "hmc" and not tuned:
                    continue
                chains = run(tuned=tuned)
                found.setdefault(f"{name}; {how}", []).append((chains, measures(chains, mean)))
    rows: list[Row] = []
    for name, results in found.items():
        row: Row = {"kernel": name}
        row["step"] = float(np.mean([c.step_sizes.mean() for c, _ in results]))
        row["acceptance"] = float(np.mean([c.accept.mean() for c, _ in results]))
        row["gradients a draw"] = float(np.mean([c.steps.mean() for c, _ in results]))
        for key in results[0][1]:
            values = np.array([m[key] for _, m in results])
            base = np.array([m[key] for _, m in found["nutpie"]])
            row[key] = float(values.mean())
            row[f"{key}, / nutpie"] = float(values.mean() / base.mean())
        gradients = sum(c.steps.sum() for c, _ in results)
        row["us a gradient"] = 1e6 * sum(c.seconds for c, _ in results) / gradients
        rows.append(row)
    save(
        "kernels", rows, args.out, "Kernels at beta = 1 beside nutpie",
        {
            "model": f"conjugate_regression(dim=50, n=250); condition number of the correlation "
            f"{runner.condition():.0f}",
            "repeats": f"{args.repeats}, {args.chains} chains of {args.draws} draws",
            "columns": "bulk ESS per 1000 gradients, of coordinates and of their squared "
            "deviations from the exact mean; beside it, divided by nutpie's; means over repeats",
            "nutpie": f"{nutpie.__version__}, its own metric; its step size is tuned for a "
            "symmetrized acceptance, so that of the table is larger than the target",
            "seconds": "CPU time of sampling over gradients; nutpie's with its tuning and output",
        },
    )  # fmt: skip


if __name__ == "__main__":
    main()
