"""Which way to learn the weights of a ladder is best: RMSE of log Z-hat at equal work.

The rounds of the warm-up on a ladder that stays, from flat weights (log Z-hat = 0) and from those
of an annealed pass, whose own error stands in the first column of figures. A second table has the
whole warm-up as users get it, from the annealed pass to the round that its stopping rule accepts,
and the evidence from a run of 4 x 1,000 draws with the weights that it froze.
"""

from collections.abc import Callable
from functools import partial
from time import process_time

import numpy as np
from common import MODELS, Row, parser, prior, save, system

from pymc_tempering import testsystems
from pymc_tempering.chain.chains import run_chains, start_chain, start_runs
from pymc_tempering.chain.plan import Plan
from pymc_tempering.core.ladder import Ladder
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.evidence.rts import rts
from pymc_tempering.kernels import HMC, on_all
from pymc_tempering.sampling.recorded import cycles_of
from pymc_tempering.warmup.annealed_pass import anneal
from pymc_tempering.warmup.log_z_rounds import WEIGHT_ADAPTATIONS, Learner
from pymc_tempering.warmup.warm_up import ITERATIONS_PER_RUNG, MAX_LOG_OFF, warm_up

N_CHAINS = 4
MODELS["spike"] = partial(testsystems.spike, dim=2, spike_scale=0.05)  # a first-order transition


def fixed_plan(name: str) -> Plan:
    """Return the plan of one warm-up with its ladder and tuning, for all repeats."""
    compiled = prior(name)
    kernel = on_all(HMC(), compiled.path.dim)
    return warm_up(
        compiled, kernel, np.random.default_rng(0), ladder_move="metropolized_gibbs"
    ).plan


def first_log_z(plan: Plan, start: str, rng: np.random.Generator) -> np.ndarray:
    """Log Z-hat (K,) to begin with."""
    betas = plan.ladder.betas
    if start == "flat":
        return np.zeros(betas.size)
    return anneal(plan.reference, plan.kernel, rng).sample.log_z_at(betas)


def errors(
    plan: Plan, make: Callable[..., Learner], exact: np.ndarray, rounds: int, seed: int, start: str
) -> np.ndarray:
    """Error of log Z-hat at beta = 1 before and after each round, shape (rounds + 1,)."""
    rng = np.random.default_rng(seed)
    ladder = plan.ladder
    log_z = first_log_z(plan, start, rng)
    now = plan.with_ladder(Ladder(ladder.betas, log_z, ladder.log_weights))
    learn = make([start_chain(now, child) for child in rng.spawn(N_CHAINS)], 1)
    out = [log_z[-1]]
    for i in range(rounds):
        learned = learn(now, ITERATIONS_PER_RUNG * ladder.n_rungs * 2**i)
        near = (np.abs(learned.off) < MAX_LOG_OFF) | (np.abs(learned.off) < 2 * learned.error)
        learn.place(bool(near.all()))
        if np.isfinite(learned.log_z).all():
            now = now.with_ladder(ladder.with_log_z(learned.log_z))
        out.append(now.ladder.log_z[-1])
    return np.array(out) - exact[-1]


def estimate(plan: Plan, seed: int) -> Evidence:
    """Estimate log Z by chains of 1,000 draws on a plan."""
    runs = start_runs(plan, 1000, np.random.default_rng(seed).spawn(N_CHAINS), False)
    run_chains(plan, runs, 1000, cores=1)
    return rts(cycles_of(plan, runs))


def warm_ups(name: str, method: str, repeats: int, seed: int) -> Row:
    """Run the warm-up as users get it: what it costs, how good its weights are, and a run."""
    compiled, exact = prior(name), system(name)
    kernel = on_all(HMC(), compiled.path.dim)
    found = [
        warm_up(
            compiled, kernel, np.random.default_rng(seed + i), ladder_move="metropolized_gibbs",
            weight_adaptation=method,
        )
        for i in range(repeats)
    ]  # fmt: skip
    ladders = [one.plan.ladder for one in found]
    off = [ladder.log_z - exact.log_z(ladder.betas) for ladder in ladders]
    evidence = [estimate(one.plan, seed + i) for i, one in enumerate(found)]
    error = np.array([each.log_z - exact.log_evidence for each in evidence])
    return {
        "model": name, "method": method,
        "settled": f"{sum(one.converged for one in found)} of {repeats}",
        "rounds": float(np.mean([len(one.rounds) for one in found])),
        "iterations": float(np.mean([sum(r.n_iterations for r in one.rounds) for one in found])),
        "RMSE log Z-hat": float(np.sqrt(np.mean([each[-1] ** 2 for each in off]))),
        "worst rung": float(max(np.abs(each).max() for each in off)),
        "RMSE of run": float(np.sqrt((error**2).mean())),
        "median mcse": float(np.median([each.mcse for each in evidence])),
    }  # fmt: skip


def main() -> None:
    """Run all methods on all models and write both tables."""
    command = parser(__doc__, 30, ("mixture", "regression", "hierarchical", "spike"))
    command.add_argument("--rounds", type=int, default=4)
    args = command.parse_args()
    rows: list[Row] = []
    whole: list[Row] = []
    for name in args.models:
        plan = fixed_plan(name)
        exact = np.asarray(system(name).log_z(plan.ladder.betas))
        for start in ("annealed", "flat"):
            for method, make in WEIGHT_ADAPTATIONS.items():
                began = process_time()
                off = np.array([
                    errors(plan, make, exact, args.rounds, args.seed + i, start)
                    for i in range(args.repeats)
                ])  # fmt: skip
                cpu = (process_time() - began) / args.repeats
                rmse = np.sqrt((off**2).mean(axis=0))
                row: Row = {"model": name, "rungs": plan.ladder.n_rungs, "start": start}
                row |= {"method": method, "before": float(rmse[0])}
                row |= {f"round {i + 1}": float(value) for i, value in enumerate(rmse[1:])}
                rows.append(row | {"CPU s": cpu})
                print(rows[-1], flush=True)
        for method in WEIGHT_ADAPTATIONS:
            whole.append(warm_ups(name, method, args.repeats, args.seed))
            print(whole[-1], flush=True)
    settings = {
        "command": f"benchmarks/weights.py --repeats {args.repeats} --rounds {args.rounds}",
        "work": f"{N_CHAINS} chains of {ITERATIONS_PER_RUNG} iterations a rung in round 1, "
        "twice as many in each further round",
        "figures": "RMSE of log Z-hat at beta = 1 (nats) before and after each round",
    }
    save("weights", rows, args.out, "Learning the weights of a ladder", settings)
    del settings["work"]
    settings["figures"] = "means over the repeats; RMSE at beta = 1, largest error, mcse (nats)"
    save("weights_warmup", whole, args.out, "The whole warm-up", settings)


if __name__ == "__main__":
    main()
