"""Executors: two workers against one, same bits, killed workers, and many regressions.

Parts, each a table of its own: `speed` (chunks of a second and of milliseconds, with one worker and
with two), `bits` (1, 2 and 4 workers, a pool of processes, threads and none), `kills` (a worker of
Dask killed midway, or stopped), `regressions` (one regression with many data sets) and `selection`
(all subsets of covariates), both with exact log Z, `threads` (up to 200 worker threads and a task
that sleeps, with a picture).
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
from dask import config
from distributed import Client, LocalCluster
from past_one_machine_many import COVARIATES, regressions, selection
from past_one_machine_picture import picture

import pymc_tempering as pmt
from pymc_tempering.annealed.schedule import BLOCK
from pymc_tempering.executors.chunks import dumped, send_chunks

ROWS_OF_DATA = 2_000
PARTICLES, BETAS, KILL_BETAS = 512, 600, 5000
"""16 blocks of 32 particles: of the slow model a block takes more than a second."""

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


def anneal(model: pm.Model, executor: Executor | None, betas: int = BETAS) -> pmt.evidence.Evidence:
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


class SignalsWhen(Executor):
    """An executor that sends a signal to a process as soon as so many of its tasks are done."""

    def __init__(self, executor: Executor, pid: int, n: int, what: signal.Signals) -> None:
        self.executor, self.pid, self.n, self.what = executor, pid, n, what
        self._client = executor._client  # so that it is known as an executor of Dask
        self.done, self.sent = 0, 0

    def submit(self, fn: Callable, /, *args: object, **kwargs: object) -> Future:
        self.sent += 1
        future = self.executor.submit(fn, *args, **kwargs)
        future.add_done_callback(self.count)
        return future

    def count(self, future: Future) -> None:
        self.done += 1
        if self.done == self.n:
            os.kill(self.pid, self.what)


def kills(repeats: int, stops: int) -> list[Row]:
    """Kill or stop one of two workers after so many chunks, each time after another number."""
    model = small_model()
    alone = anneal(model, None, KILL_BETAS)
    rows: list[Row] = []
    chunks = PARTICLES // BLOCK
    # On a busy machine a new worker takes longer to start than the cluster waits for it.
    config.set({"distributed.deploy.lost-worker-timeout": "10 minutes"})
    with dask(2) as client:
        for i in range(repeats + stops):
            began = time.perf_counter()
            client.wait_for_workers(2)
            # Of the nannies: to ask a worker that is just gone can take minutes.
            pid = [nanny.pid for nanny in client.cluster.workers.values()][i % 2]
            what = signal.SIGKILL if i < repeats else signal.SIGSTOP
            executor = SignalsWhen(client.get_executor(), pid, 1 + i % 12, what)
            found = anneal(model, executor, KILL_BETAS)
            same = found.log_z == alone.log_z and found.mcse == alone.mcse
            rows.append({
                "run": i, "signal": what.name, "after": executor.n, "of chunks": chunks,
                "sent": "yes" if executor.done >= executor.n else "NO",
                "copies": executor.sent - chunks, "same bits": "yes" if same else "NO",
                "seconds": time.perf_counter() - began,
            })  # fmt: skip
            print(rows[-1], flush=True)
            if what == signal.SIGSTOP:
                os.kill(pid, signal.SIGKILL)  # its nanny starts another one
                client.wait_for_workers(2)
    return rows


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
    arguments.add_argument("--path", type=Path, help="keeps the runs of the selection, to go on")
    arguments.add_argument("--stops", type=int, default=2, help="workers that are stopped")
    arguments.add_argument("--covariates", type=int, default=COVARIATES, help="of the selection")
    args = arguments.parse_args()
    warnings.simplefilter("ignore", pmt.TemperingWarning)

    def on_dask(work: Callable[[Client], list[Row]]) -> list[Row]:
        with dask(max(args.workers)) as client:
            return work(client)

    do: dict[str, tuple[Callable[[], list[Row]], str]] = {
        "speed": (lambda: speed(args.workers), "One and two workers"),
        "bits": (bits, "The same bits by all engines"),
        "kills": (lambda: kills(args.repeats, args.stops), "A worker of Dask killed or stopped"),
        "regressions": (
            lambda: on_dask(lambda client: regressions(args.runs, client)),
            "Many regressions, exact log Z",
        ),
        "selection": (
            lambda: on_dask(lambda client: selection(args.covariates, client, args.path)),
            "All subsets of covariates",
        ),
        "threads": (threads, "Worker threads and a task that sleeps"),
    }
    for part in args.parts:
        rows, title = do[part][0](), do[part][1]
        pinned = len(os.sched_getaffinity(0))
        notes = {
            "work s": "from the first chunk sent to the last one back; call s: the whole call",
            "signal": "to one of two workers: SIGKILL ends it, with SIGSTOP it is there and silent",
            "copies": "chunks that were sent once more, since nothing came back for a minute",
        }
        settings = {"cores": f"{pinned} of this machine's were used by all workers together"}
        settings |= {name: note for name, note in notes.items() if name in rows[0]}
        save(f"past_one_machine_{part}", rows, args.out, title, settings)
        if part == "threads":
            picture(args.out)


if __name__ == "__main__":
    main()
