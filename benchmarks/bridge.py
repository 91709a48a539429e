"""NUTS (nutpie) and bridge sampling on published models: error, stated error, seconds.

Each repeat draws 4 x 1000 states with nutpie and gives the same draws to every method. `call` is
the CPU time in seconds of all that follows the draws, compilation with warm disk caches included.
`z` is the error against the reference value over both errors in quadrature.
"""

import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import nutpie
from common import Row, parser, save
from published import PUBLISHED, Published

import pymc_tempering as pmt

METHODS: dict[str, Callable[..., pmt.evidence.Evidence]] = {
    **{
        f"bridge, {proposal}": lambda *args, proposal=proposal, **kwargs: pmt.bridge_sampling(
            *args, proposal=proposal, **kwargs
        )
        for proposal in ("t", "normal", "warp", "mixture")
    },
    "importance": pmt.importance_sampling,
}


def sample(compiled: Any, known: Published, seed: int) -> tuple[Any, float]:
    """Draw with nutpie on one core; return draws and seconds."""
    started = time.process_time()
    idata = nutpie.sample(
        compiled, draws=1000, chains=4, cores=1, seed=seed, progress_bar=False, save_warmup=False
    )
    return idata, time.process_time() - started


def run(known: Published, seeds: range) -> list[Row]:
    """Repeat every method on the draws of each seed."""
    compiled = nutpie.compile_pymc_model(known.model)
    idata, _ = sample(compiled, known, 0)
    results: dict[str, list[tuple[float, float, float, bool]]] = {}
    for name, method in METHODS.items():  # compile, and fill the disk caches
        method(idata, known.model, cores=1, random_seed=0)
        results[name] = []
    nuts = []
    for seed in seeds:
        idata, seconds = sample(compiled, known, seed)
        nuts.append(seconds)
        for name, method in METHODS.items():
            started = time.process_time()
            found = method(idata, known.model, cores=1, random_seed=seed)
            call = time.process_time() - started
            results[name].append((found.log_z, found.mcse, call, found.verdict != "ok"))
    return [summarize(known, name, np.array(rows), nuts) for name, rows in results.items()]


def summarize(known: Published, method: str, rows: np.ndarray, nuts: list[float]) -> Row:
    """Compare what a method stated with what is known."""
    log_z, mcse, call, alarms = rows.T
    error = log_z - known.log_evidence
    z = error / np.hypot(mcse, known.mcse)
    return {
        "model": known.name + (" (simulated)" if known.simulated else ""),
        "method": method,
        "n": len(rows),
        "reference": f"{known.log_evidence:.5f}",
        "log_z": f"{log_z.mean():.5f}",
        "RMSE": float(np.sqrt(np.mean(error**2))),
        "mcse": float(mcse.mean()),
        "largest mcse": float(mcse.max()),
        "mean z": float(z.mean()),
        "sd z": float(z.std(ddof=1)) if len(rows) > 1 else float("nan"),
        "call": float(np.median(call)),
        "NUTS": float(np.median(nuts)),
        "alarms": int(alarms.sum()),
    }


def main() -> None:
    arguments = parser(__doc__, 20)
    arguments.add_argument("--data", nargs="+", choices=list(PUBLISHED), default=list(PUBLISHED))
    args = arguments.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore", pmt.TemperingWarning)
    rows: list[Row] = []
    for name in args.data:
        for row in run(PUBLISHED[name](), range(args.seed, args.seed + args.repeats)):
            print(" ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}"
                           for k, v in row.items()), flush=True)  # fmt: skip
            rows.append(row)
    settings = {
        "seeds": f"{args.seed} to {args.seed + args.repeats - 1}, of each model",
        "models": "benchmarks/published.py: radiata pine and Pima Indians, Friel & Wyse (2012)",
        "call, NUTS": "medians of CPU seconds; nutpie with its tuning, without compiling",
    }
    save("bridge", rows, args.out, "NUTS and bridge sampling on published models", settings)


if __name__ == "__main__":
    main()
