"""What the chain costs beyond its gradients: loop overhead, threads, memory, recompilation.

On a regression with 11 parameters, whose density is cheap enough to show any overhead.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import perf_counter

import numba
import numpy as np
from numba import int64, types
from numba.core import event

from benchmarks import private
from benchmarks.common import Row, parser, prior, save
from pymc_tempering.kernels import HMC

MODEL = "noisy_regression"
FREE = 1.9
"""Speed-up of plain arithmetic by two threads above which both cores were free."""


@numba.njit(
    types.void(private.DENSITY, private.MATRIX, private.VECTOR, private.MATRIX, int64), nogil=True
)
def call_density(density, xs, values, grads, n):  # type: ignore[no-untyped-def]
    """Evaluate the density and its gradient n times, and do nothing else."""
    for i in range(n):
        density.code(xs[i % xs.shape[0]], values, grads, density.data)


@numba.njit(types.float64(int64), nogil=True)
def arithmetic(n):  # type: ignore[no-untyped-def]
    """Keep a core busy without memory: what the machine itself gives two threads."""
    total = 0.0
    for i in range(n):
        total += np.sin(total + i)
    return total


def frozen_plan(seed: int) -> private.Plan:
    """Warm up once and freeze."""
    options = {"ladder_move": "metropolized_gibbs"}
    kernel = private.on_all(HMC(), prior(MODEL).path.dim)
    return private.warm_up(prior(MODEL), kernel, np.random.default_rng(seed), **options).plan


def chain_worker(
    plan: private.Plan, seed: int, n_iterations: int
) -> Callable[[], tuple[float, int]]:
    """Return a function that runs a chain on and says seconds and leapfrog steps."""
    advance = private.make_runner(plan)
    state = private.start_chain(plan, np.random.default_rng(seed))
    record = private.new_record(n_iterations, plan.ladder.n_rungs, plan.reference.path.dim)

    def work() -> tuple[float, int]:
        private.clear_record(state)
        unfinished = state.chain.scalars[private.N_STEPS]
        started = perf_counter()
        advance(state, record, n_iterations + 1, n_iterations)
        seconds = perf_counter() - started
        return seconds, leapfrogs(state, record) - int(unfinished)

    return work


def leapfrogs(state: private.ChainState, record: private.Record) -> int:
    """Density evaluations of the recorded cycles and of the unfinished one."""
    recorded = record.scalars[: state.n_draws, private.N_STEPS].sum()
    return int(recorded + state.chain.scalars[private.N_STEPS])


def loop_overhead(plan: private.Plan, repeats: int, n_iterations: int) -> list[Row]:
    """Seconds a leapfrog in the chain beside seconds a bare compiled gradient, interleaved."""
    path = plan.reference.path
    work = chain_worker(plan, 1, n_iterations)
    # States of a real chain: a density may cost more in one place than in another.
    advance, state = private.make_runner(plan), private.start_chain(plan, np.random.default_rng(2))
    visited = private.new_record(256, plan.ladder.n_rungs, path.dim)
    advance(state, visited, 256, 10**7)
    values, grads = np.zeros(2), np.zeros((2, path.dim))
    n_calls = work()[1]
    bare, chain = [], []
    for _ in range(repeats):
        started = perf_counter()
        call_density(path.density, visited.x, values, grads, n_calls)
        bare.append((perf_counter() - started) / n_calls)
        seconds, n_leapfrogs = work()
        chain.append(seconds / n_leapfrogs)
    ratios = [c / b for c, b in zip(chain, bare, strict=True)]
    wide = f"{min(ratios):.3f} to {max(ratios):.3f}"
    return [
        _row("bare compiled gradient (us)", 1e6 * median(bare), f"best {1e6 * min(bare):.3f}"),
        _row("chain, a leapfrog (us)", 1e6 * median(chain), f"best {1e6 * min(chain):.3f}"),
        _row("chain / bare, median of pairs", median(ratios), f"wanted <= 1.5; {wide}"),
        _row("chain / bare, of the best times", min(chain) / min(bare), "wanted <= 1.5"),
    ]


def thread_speedup(plan: private.Plan, repeats: int, n_iterations: int) -> list[Row]:
    """Leapfrogs a second of two chains on two threads, beside one chain on one."""
    workers = [chain_worker(plan, seed, n_iterations) for seed in (3, 4)]
    n = 50 * n_iterations
    single, double, ratios, controls = [], [], [], []
    with ThreadPoolExecutor(2) as pool:
        for i in range(repeats):
            started = perf_counter()
            arithmetic(n)
            alone = perf_counter() - started
            list(pool.map(arithmetic, (n, n)))
            controls.append(2 * alone / (perf_counter() - started - alone))
            seconds, n_leapfrogs = workers[i % 2]()
            single.append(n_leapfrogs / seconds)
            started = perf_counter()
            results = list(pool.map(lambda work: work(), workers))
            double.append(sum(n for _, n in results) / (perf_counter() - started))
            ratios.append(double[-1] / single[-1])
    wide = f"{min(ratios):.3f} to {max(ratios):.3f}"
    # Where another process held a core, two threads have nothing to gain.
    free = [r for r, control in zip(ratios, controls, strict=True) if control >= FREE]
    said = f"wanted >= 1.8; {len(free)} of {repeats} pairs with arithmetic >= {FREE}"
    return [
        _row("two threads / one, with both cores free", median(free) if free else np.nan, said),
        _row("two threads / one, median of all pairs", median(ratios), wide),
        _row("two threads / one, of the best rates", max(double) / max(single), "wanted >= 1.8"),
        _row("the same of plain arithmetic, median", median(controls), "what the machine gives"),
    ]


def resident_bytes() -> int:
    """Resident memory of this process (Linux)."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory(plan: private.Plan, n_iterations: int) -> list[Row]:
    """Growth of resident memory with iterations when nothing is recorded, and when draws are."""
    advance = private.make_runner(plan)
    state = private.start_chain(plan, np.random.default_rng(5))
    record = private.new_record(1000, plan.ladder.n_rungs, plan.reference.path.dim)

    def go_on(iterations: int) -> None:
        end = state.n_iterations + iterations
        while state.n_iterations < end:
            private.clear_record(state)
            advance(state, record, 1000, end - state.n_iterations)

    go_on(n_iterations)
    before = resident_bytes()
    go_on(n_iterations)
    once = resident_bytes() - before
    go_on(9 * n_iterations)
    ten = resident_bytes() - before
    rows = [
        _row(f"memory after {n_iterations:.1e} iterations, no draws kept (MiB)", once / 2**20, ""),
        _row(f"memory after {10 * n_iterations:.1e} iterations (MiB)", ten / 2**20, "wanted ~ 0"),
    ]
    for n_draws in (10_000, 100_000):
        before = resident_bytes()
        runs = private.start_runs(
            plan, n_draws, np.random.default_rng(6).spawn(2), keep_trace=False
        )
        private.run_chains(plan, runs, n_draws, cores=2)
        grown = resident_bytes() - before
        arrays = [run.record for run in runs]
        kept = sum(r.x.nbytes + r.per_rung.nbytes + r.scalars.nbytes for r in arrays)
        iterations = sum(run.state.n_iterations for run in runs)
        said = f"{iterations:.2e} iterations; records hold {kept / 2**20:.1f} MiB"
        beyond = (grown - kept) / 2**20
        rows.append(_row(f"keep=None, {n_draws} draws: beyond the draws (MiB)", beyond, said))
        del runs, arrays
    return rows


def recompilation(seed: int) -> list[Row]:
    """What a second model in the same session compiles."""
    before = len(private.loop_module.run.signatures)
    with event.install_recorder("numba:compile") as recorder:
        started = perf_counter()
        second = prior("gaussian")
        compiled = perf_counter() - started
        kernel = private.on_all(HMC(), second.path.dim)
        private.warm_up(
            second, kernel, np.random.default_rng(seed), ladder_move="metropolized_gibbs"
        )
    starts = [e for _, e in recorder.buffer if e.is_start]
    names = [e.data["dispatcher"].py_func.__qualname__ for e in starts]
    modules = [e.data["dispatcher"].py_func.__module__ for e in starts]
    ours = [n for n, m in zip(names, modules, strict=True) if m.startswith("pymc_tempering.")
            and m != "pymc_tempering.model.density"]  # fmt: skip
    after = len(private.loop_module.run.signatures)
    return [
        _row("signatures of the chain loop, before a second model", before, ""),
        _row("signatures of the chain loop, after it", after, "wanted: the same"),
        _row("compilations of loop or kernels for a second model", len(ours), f"wanted 0 {ours}"),
        _row("seconds to compile a second model", compiled, f"{len(starts)} Numba compilations"),
    ]


def _row(what: str, value: float, remark: str) -> Row:
    return {"what": what, "value": value, "remark": remark}


def main() -> None:
    arguments = parser(__doc__, 31)
    arguments.add_argument("--iterations", type=int, default=100_000, help="of a timed chain")
    args = arguments.parse_args()
    load = os.getloadavg()[0]
    plan = frozen_plan(args.seed)
    time.sleep(0.5)
    rows = loop_overhead(plan, args.repeats, args.iterations)
    rows += thread_speedup(plan, args.repeats, args.iterations)
    rows += memory(plan, args.iterations)
    rows += recompilation(args.seed)
    settings = {
        "model": f"{MODEL}, {plan.ladder.n_rungs} rungs, {plan.reference.path.dim} parameters",
        "seed": str(args.seed),
        "repeats": f"{args.repeats}, interleaved, {args.iterations} iterations each",
        "load average at the start": f"{load:.2f}",
    }
    save("overhead", rows, args.out, "Overhead of the compiled chain", settings)


if __name__ == "__main__":
    main()
