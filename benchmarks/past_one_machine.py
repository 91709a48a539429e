"""Executors: two workers against one, same bits, killed workers, and many regressions.

Parts, each a table of its own: `speed` (chunks of a second and of milliseconds, with one worker and
with two), `bits` (1, 2 and 4 workers, a pool of processes, threads and none), `kills` (a worker of
Dask killed midway), `regressions` (one regression with many data sets) and `selection` (all subsets
of covariates), both with exact log Z, `threads` (up to 200 worker threads and a task that sleeps).
"""

import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pymc as pm
from common import Row, parser, save
from distributed import Client, LocalCluster
from scipy import stats

import pymc_tempering as pmt
from pymc_tempering.executors.chunks import send_chunks
from pymc_tempering.executors.parcels import dumped

ROWS_OF_DATA = 20_000
PARTICLES, BETAS, KILL_BETAS = 512, 60, 500
"""16 blocks of 32 particles: of the slow model a block takes more than a second."""

COVARIATES, OBSERVATIONS, NOISE, PRIOR_SD = 10, 50, 1.0, 1.0
SLEEP, TASKS_A_THREAD = 0.5, 4


@contextmanager
def dask(workers: int) -> Iterator[Client]:
    """Start workers of one thread each on this machine."""
    cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        yield client


class Timed(Executor):
    """An executor that notes when the first of its tasks was sent and the last one ended."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.sent: list[float] = []
        self.ended: list[float] = []

    def submit(self, fn: Callable, /, *args: object, **kwargs: object) -> Future:
        self.sent.append(time.perf_counter())
        future = self.executor.submit(fn, *args, **kwargs)
        future.add_done_callback(lambda f: self.ended.append(time.perf_counter()))
        return future

    @property
    def seconds(self) -> float:
        return max(self.ended) - min(self.sent)


def slow_model() -> pm.Model:
    """Logistic regression with many rows: a gradient takes about a millisecond."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=ROWS_OF_DATA)
    y = rng.random(ROWS_OF_DATA) < 1 / (1 + np.exp(-0.05 - 0.03 * x))
    with pm.Model() as model:
        level = pm.Normal("level", 0, 1)
        slope = pm.Normal("slope", 0, 1)
        pm.Bernoulli("y", logit_p=level + slope * x, observed=y.astype(int))
    return model


def small_model() -> pm.Model:
    """The mean of two data: a gradient takes a microsecond."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        pm.Normal("y", mu, 1, observed=[0.5, 1.0])
    return model


def anneal(model: pm.Model, executor: Executor | None, betas: int = BETAS) -> pmt.Evidence:
    """Do the work of the first three parts."""
    settings = {"n_particles": PARTICLES, "betas": betas, "random_seed": 1, "progressbar": False}
    return pmt.ais(model, executor=executor, **settings)


def speed(workers: list[int]) -> list[Row]:
    """Time the work that is sent, and the whole call, with compiled models and warm workers."""
    rows: list[Row] = []
    for name, build in (("slow", slow_model), ("small", small_model)):
        model = build()
        for n in workers:
            with dask(n) as client:
                executor = client.get_executor()
                # Each worker compiles before the clock starts.
                for address in client.scheduler_info(n_workers=-1)["workers"]:
                    one = client.get_executor(workers=[address])
                    pmt.ais(model, n_particles=32, betas=3, executor=one, progressbar=False)
                timed = Timed(executor)
                began = time.perf_counter()
                anneal(model, timed)
                call = time.perf_counter() - began
            row: Row = {
                "model": name,
                "workers": n,
                "chunks": len(timed.sent),
                "work s": timed.seconds,
                "call s": call,
                "a chunk s": timed.seconds * n / len(timed.sent),
            }
            first = next((r for r in rows if r["model"] == name), row)
            row["work, times one"] = float(first["work s"]) / float(row["work s"])
            row["call, times one"] = float(first["call s"]) / float(row["call s"])
            rows.append(row)
            print(row, flush=True)
    return rows


def bits() -> list[Row]:
    """Compare the numbers of one call by several engines."""
    model = small_model()
    alone = anneal(model, None)
    rows: list[Row] = [{"engine": "none", "workers": 0, "log Z": repr(alone.log_z), "same": "yes"}]

    def add(engine: str, n: int, executor: Executor) -> None:
        found = anneal(model, executor)
        same = found.log_z == alone.log_z and found.mcse == alone.mcse
        rows.append({
            "engine": engine, "workers": n, "log Z": repr(found.log_z),
            "same": "yes" if same else "NO",
        })  # fmt: skip

    for n in (1, 2, 4):
        with dask(n) as client:
            add("Dask", n, client.get_executor())
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        add("ProcessPoolExecutor", 2, pool)
    with ThreadPoolExecutor(2) as threads:
        add("ThreadPoolExecutor", 2, threads)
    return rows


class KillsWhen(Executor):
    """An executor that kills a process as soon as so many of its tasks are done."""

    def __init__(self, executor: Executor, pid: int, n: int) -> None:
        self.executor, self.pid, self.n = executor, pid, n
        self.done, self.sent = 0, 0

    def submit(self, fn: Callable, /, *args: object, **kwargs: object) -> Future:
        self.sent += 1
        future = self.executor.submit(fn, *args, **kwargs)
        future.add_done_callback(self.count)
        return future

    def count(self, future: Future) -> None:
        self.done += 1
        if self.done == self.n:
            os.kill(self.pid, signal.SIGKILL)


def kills(repeats: int) -> list[Row]:
    """Kill one of two workers after so many chunks, each time after another number."""
    model = small_model()
    alone = anneal(model, None, KILL_BETAS)
    rows: list[Row] = []
    with dask(2) as client:
        for i in range(repeats):
            began = time.perf_counter()
            client.wait_for_workers(2)
            # Of the nannies: to ask a worker that is just gone can take minutes.
            pid = [nanny.pid for nanny in client.cluster.workers.values()][i % 2]
            executor = KillsWhen(client.get_executor(), pid, 1 + i % 12)
            found = anneal(model, executor, KILL_BETAS)
            died = pid not in [nanny.pid for nanny in client.cluster.workers.values()]
            same = found.log_z == alone.log_z and found.mcse == alone.mcse
            rows.append({
                "run": i, "killed after": executor.n, "of chunks": executor.sent,
                "died": "yes" if died else "NO", "same bits": "yes" if same else "NO",
                "seconds": time.perf_counter() - began,
            })  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def regression() -> tuple[pm.Model, np.ndarray]:
    """Regression with known noise and a weight of 0 or 1 for each covariate."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(OBSERVATIONS, COVARIATES))
    with pm.Model() as model:
        used = pm.Data("used", np.ones(COVARIATES))
        coef = pm.Normal("coef", 0, PRIOR_SD, shape=COVARIATES)
        pm.Normal("y", (x * used) @ coef, NOISE, observed=np.zeros(OBSERVATIONS))
    return model, x


def exact(x: np.ndarray, y: np.ndarray) -> float:
    """Log evidence of the regression of y on x."""
    cov = NOISE**2 * np.eye(OBSERVATIONS) + PRIOR_SD**2 * x @ x.T
    return float(stats.multivariate_normal(np.zeros(OBSERVATIONS), cov).logpdf(y))


def many(
    datasets: dict[str, dict[str, np.ndarray]], truth: np.ndarray, workers: int, path: Path | None
) -> Row:
    """Sample one regression with many data sets, and hold log Z against the exact ones."""
    model, _ = regression()
    settings = {"draws": 500, "random_seed": 1, "path": path, "save_draws": False}
    with dask(workers) as client:
        began = time.perf_counter()
        table = pmt.sample_many(model, datasets, executor=client.get_executor(), **settings)
        seconds = time.perf_counter() - began
    z = (table.log_z.to_numpy() - truth) / table.mcse.to_numpy()
    return {
        "runs": len(table), "workers": workers, "failed": int((table.verdict == "failed").sum()),
        "not ok": int((~table.verdict.isin(["ok", "failed"])).sum()),
        "mean |error|": float(np.nanmean(abs(table.log_z - truth))),
        "largest |error|": float(np.nanmax(abs(table.log_z - truth))),
        "sd of z": float(np.nanstd(z)), "in 95 %": float(np.mean(abs(z) < 1.96)),
        "least ESS": float(table.ess.min()), "median s a run": float(table.seconds.median()),
        "first s": float(table.seconds.iloc[0]), "call s": seconds,
    }, table  # fmt: skip


def regressions(n: int, workers: int) -> list[Row]:
    """The same covariates with n responses, drawn from the model."""
    _, x = regression()
    rng = np.random.default_rng(7)
    ys = [x @ rng.normal(0, PRIOR_SD, COVARIATES) + rng.normal(0, NOISE, OBSERVATIONS)
          for _ in range(n)]  # fmt: skip
    row, _ = many(
        {str(i): {"y": y} for i, y in enumerate(ys)}, np.array([exact(x, y) for y in ys]),
        workers, None,
    )  # fmt: skip
    return [row]


def selection(bits_used: int, workers: int) -> list[Row]:
    """All subsets of some covariates; the others are in no model."""
    _, x = regression()
    rng = np.random.default_rng(9)
    y = x[:, :3] @ [0.6, -0.4, 0.25] + rng.normal(0, NOISE, OBSERVATIONS)
    subsets = [np.arange(2**bits_used)[:, None] >> np.arange(bits_used) & 1][0].astype(float)
    used = np.zeros((len(subsets), COVARIATES))
    used[:, :bits_used] = subsets
    truth = np.array([exact(x * u, y) for u in used])
    names = ["".join(str(int(b)) for b in u[:bits_used]) for u in used]
    row, table = many(
        {n: {"used": u, "y": y} for n, u in zip(names, used, strict=True)}, truth, workers, None
    )

    def inclusion(log_z: np.ndarray) -> np.ndarray:
        weight = np.exp(log_z - log_z.max())
        return weight @ subsets / weight.sum()

    apart = inclusion(table.log_z.to_numpy()) - inclusion(truth)
    return [row | {"largest error of an inclusion probability": float(abs(apart).max())}]


def sleeps(shared: None, seconds: float) -> float:
    """Stand in for a chunk, without a processor."""
    time.sleep(seconds)
    return seconds


def threads(counts: tuple[int, ...] = (1, 10, 50, 100, 200)) -> list[Row]:
    """Seconds beyond the sleep, by number of threads, and the bytes of a task."""
    rows: list[Row] = []
    model = dumped("The model", small_model())
    for n in counts:
        cluster = LocalCluster(
            n_workers=1, threads_per_worker=n, processes=False, dashboard_address=None
        )
        with cluster, Client(cluster) as client:
            arguments = [SLEEP + 1e-6 * i for i in range(TASKS_A_THREAD * n)]
            began = time.perf_counter()
            send_chunks(client.get_executor(), sleeps, None, arguments, lambda i, result: None)
            seconds = time.perf_counter() - began
            began = time.perf_counter()
            client.gather(client.map(time.sleep, arguments, pure=False))
            bare = time.perf_counter() - began
        ideal = TASKS_A_THREAD * SLEEP
        rows.append({
            "threads": n, "tasks": len(arguments), "seconds": seconds, "Dask alone": bare,
            "ideal": ideal,
            "of ideal": ideal / seconds,
            "ms beyond, a task": 1000 * (seconds - ideal) / len(arguments),
            "bytes of a small model": len(model),
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    arguments = parser(__doc__, 20)
    parts = ("speed", "bits", "kills", "regressions", "selection", "threads")
    arguments.add_argument("--parts", nargs="+", choices=parts, default=list(parts))
    arguments.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    arguments.add_argument("--runs", type=int, default=200, help="regressions")
    arguments.add_argument("--covariates", type=int, default=COVARIATES, help="of the selection")
    args = arguments.parse_args()
    warnings.simplefilter("ignore", pmt.TemperingWarning)
    most = max(args.workers)
    do: dict[str, tuple[Callable[[], list[Row]], str]] = {
        "speed": (lambda: speed(args.workers), "One and two workers"),
        "bits": (bits, "The same bits by all engines"),
        "kills": (lambda: kills(args.repeats), "A worker of Dask killed midway"),
        "regressions": (lambda: regressions(args.runs, most), "Many regressions, exact log Z"),
        "selection": (lambda: selection(args.covariates, most), "All subsets of covariates"),
        "threads": (threads, "Worker threads and a task that sleeps"),
    }
    for part in args.parts:
        rows, title = do[part][0](), do[part][1]
        pinned = len(os.sched_getaffinity(0))
        settings = {
            "cores": f"{pinned} of this machine's were used by all workers together",
            "work s": "from the first chunk sent to the last one back; call s: the whole call",
        }
        save(f"past_one_machine_{part}", rows, args.out, title, settings)


if __name__ == "__main__":
    main()
