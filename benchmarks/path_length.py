"""HMC's trajectory lengths, and NUTS: the error of log Z per gradient.

The reference is the prior. A warm-up fixes ladder, step sizes and metrics; the same plan then runs
with each length. Per rung, a chain at fixed beta gives for each length the ESS of `log_ratio` per
gradient and its lag-1 measure (1 - rho) / gradients; two plans take at each rung the length that
is best by one of them, which is more than a tuning in the warm-up could know. NUTS has a warm-up of
its own, with the same seed, and so has the plan whose lengths the warm-up chooses.

The rule of the warm-up, that the longer trajectory must have an autocorrelation below 0.7 before it
is shortened, was chosen on the mixture and the hierarchical model: their rows are no independent
check of it. `path_length_fitted.py` has the lengths from a fitted reference.
"""

import os
from dataclasses import dataclass, replace
from typing import Any

import numba
import numpy as np
from common import Row, parser, prior, save
from numba import types
from nuts_bridge import autocorrelation_time

from pymc_tempering.chain.chains import run_chains, start_runs
from pymc_tempering.chain.loop import N_STEPS, Rungs
from pymc_tempering.chain.plan import Plan
from pymc_tempering.evidence.diagnostics import exploration_autocorrelation
from pymc_tempering.evidence.rts import rts
from pymc_tempering.exceptions import StuckChainError
from pymc_tempering.kernels import HMC, N_EVALUATIONS, N_INFO, NUTS
from pymc_tempering.kernels.contract import on_all
from pymc_tempering.kernels.hmc import PATH_LENGTH
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
from pymc_tempering.references.compiled_mixture import evaluate
from pymc_tempering.sampling.recorded import cycles_of
from pymc_tempering.warmup.warm_up import warm_up

DEFAULT_MODELS = ("hierarchical", "regression", "logistic", "mixture", "gaussian100")
LENGTHS = (0.6, 1.2, 2.4)
USUAL = 1.2


@dataclass(frozen=True)
class Varied(Plan):
    """A plan whose trajectories have a length of their own at each rung."""

    fixed: np.ndarray | float = USUAL

    @property
    def rungs(self) -> Rungs:
        rungs = super().rungs
        rungs.params[:, PATH_LENGTH] = self.fixed
        return rungs


@numba.njit(
    types.void(types.FunctionType(KERNEL_SIGNATURE), DENSITY, POINT, numba.float64, INDICES,
               VECTOR, MATRIX, RNG, VECTOR, MATRIX),
    nogil=True,
)  # fmt: skip
def at_rung(transition, density, point, beta, block, params, scratch, rng, ratios, infos):  # type: ignore[no-untyped-def]
    """Run a kernel at one beta; the log ratio after each transition."""
    evaluate(density, point)
    for i in range(ratios.size):
        transition(density, point, beta, block, params, scratch, rng, infos[i])
        ratios[i] = point.values[1]


def by_rung(plan: Varied, particles: np.ndarray, n: int, seed: int) -> tuple[Any, Any]:
    """ESS of `log_ratio` and 1 - rho_1, both per gradient, shape (lengths, K - 1)."""
    ess, jump = np.empty((2, len(LENGTHS), plan.ladder.n_rungs - 1))
    path, dim = plan.reference.path, plan.reference.path.dim
    kernel, block = plan.kernel.kernels[0], plan.kernel.blocks[0].indices
    rng = np.random.default_rng(seed)
    scratch = np.empty((kernel.n_scratch, dim))
    for i, length in enumerate(LENGTHS):
        rungs = replace(plan, fixed=length).rungs
        point = new_point(dim, plan.reference.mixture)
        point.x[:] = particles[0]
        for k in range(plan.ladder.n_rungs - 1, 0, -1):
            ratios, infos = np.empty(n), np.empty((n, N_INFO))
            at_rung(
                kernel.transition, path.density, point, rungs.betas[k], block, rungs.params[k],
                scratch, rng, ratios, infos,
            )  # fmt: skip
            kept, steps = ratios[n // 10 :], infos[n // 10 :, N_EVALUATIONS].mean()
            ess[i, k - 1] = 1.0 / autocorrelation_time(kept[None]) / steps
            with np.errstate(invalid="ignore"):  # a chain that did not move
                rho = np.nan_to_num(np.corrcoef(kept[1:], kept[:-1])[0, 1], nan=1.0)
            jump[i, k - 1] = (1.0 - rho) / steps
    return ess, jump


@dataclass(frozen=True)
class Cost:
    """Of one run: gradients, tours, mcse^2 x gradients, largest rho of an exploration."""

    gradients: float
    tours: int
    cost: float
    rho: float


def run_plan(plan: Plan, draws: int, chains: int, seed: int) -> Cost:
    """Run chains and estimate; at infinite cost if they get stuck."""
    runs = start_runs(plan, draws, np.random.default_rng(seed).spawn(chains), keep_trace=False)
    try:
        run_chains(plan, runs, draws, cores=1)
    except StuckChainError:
        return Cost(np.inf, 0, np.inf, 1.0)
    gradients = sum(run.record.scalars[:, N_STEPS].sum() for run in runs)
    stats = cycles_of(plan, runs)
    evidence = rts(stats)
    rho = float(np.nanmax(exploration_autocorrelation(stats)))
    return Cost(gradients, evidence.n_tours, evidence.mcse**2 * gradients, rho)


def plans_of(name: str, seed: int, n: int) -> tuple[dict[str, Plan], Any, Any]:
    """Plans to compare, and the measures by rung."""
    reference = prior(name)
    warmed, chosen, nuts = (
        warm_up(
            reference, on_all(kernel, reference.path.dim), np.random.default_rng(seed),
            ladder_move="metropolized_gibbs",
        )
        for kernel in (HMC(path_length=USUAL), HMC(path_length="auto"), NUTS())
    )  # fmt: skip
    fields = {f: getattr(warmed.plan, f) for f in warmed.plan.__dataclass_fields__}
    plan = Varied(**fields)
    ess, jump = by_rung(plan, warmed.annealed.particles, n, seed)
    plans: dict[str, Plan] = {f"{length}": replace(plan, fixed=length) for length in LENGTHS}
    lengths = np.array(LENGTHS)
    for label, measure in (("best ESS", ess), ("best 1 - rho", jump)):
        best = lengths[measure.argmax(axis=0)]
        plans[f"{label}, by rung"] = replace(plan, fixed=np.append(USUAL, best))
    plans["auto"] = chosen.plan
    plans["NUTS"] = nuts.plan
    return plans, ess, jump


def table_by_rung(name: str, seed: int, plan: Plan, ess: Any, jump: Any) -> list[Row]:
    """ESS of `log_ratio` per 1000 gradients by rung; in brackets 1000 (1 - rho_1) / gradients."""
    return [
        {"model": name, "seed": seed, "beta": float(beta)}
        | {f"{length}": f"{1e3 * ess[i, k]:.0f} ({1e3 * jump[i, k]:.0f})"
           for i, length in enumerate(LENGTHS)}
        for k, beta in enumerate(plan.ladder.betas[1:])
    ]  # fmt: skip


def main() -> None:
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = "1"
    arguments = parser(__doc__, 2, DEFAULT_MODELS)
    arguments.add_argument("--draws", type=int, default=4000)
    arguments.add_argument("--transitions", type=int, default=600, help="at each rung")
    args = arguments.parse_args()
    rows: list[Row] = []
    rungs: list[Row] = []
    for name in args.models:
        found: dict[str, list[Cost]] = {}
        for seed in range(args.seed, args.seed + args.repeats):
            plans, ess, jump = plans_of(name, seed, args.transitions)
            for label, plan in plans.items():
                found.setdefault(label, []).append(run_plan(plan, args.draws, 4, seed))
            rungs.extend(table_by_rung(name, seed, plans[f"{USUAL}"], ess, jump))
        base = np.array([run.cost for run in found[f"{USUAL}"]])
        for label, costs in found.items():
            cost = np.array([run.cost for run in costs])
            ratio = cost.sum() / base.sum()
            spread = np.log(cost / base).std(ddof=1) / np.sqrt(len(cost)) if len(cost) > 1 else 0.0
            tours = sum(run.tours for run in costs)
            gradients = sum(run.gradients for run in costs)
            rows.append({
                "model": name, "length": label, "mcse^2 x gradients": float(cost.mean()),
                f"/ that of {USUAL}": float(ratio), "its error": float(spread * ratio),
                "tours": tours,
                f"mcse^2, / that of {USUAL}": float(sum(r.cost / r.gradients for r in costs) / sum(
                    r.cost / r.gradients for r in found[f"{USUAL}"])),
                "tours per 1e6 gradients": float(1e6 * tours / gradients),
                "largest rho": max(run.rho for run in costs),
            })  # fmt: skip
            print(rows[-1], flush=True)
    settings = {
        "runs": f"{args.repeats} warm-ups from seed {args.seed}; of each and for each length 4 "
        f"chains of {args.draws} draws from the prior",
        "largest rho": "lag-1 autocorrelation of log_ratio across one exploration, worst rung",
    }  # fmt: skip
    save("path_length", rows, args.out, "Trajectory lengths of HMC", settings)
    save(
        "path_length_by_rung", rungs, args.out, "Trajectory lengths of HMC at each rung",
        settings | {"cells": "ESS of log_ratio per 1000 gradients (1000 (1 - rho_1) / gradients)"},
    )  # fmt: skip


if __name__ == "__main__":
    main()
