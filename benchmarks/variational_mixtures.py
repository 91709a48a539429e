"""Variational tempering on mixtures, zero-inflated counts and regressions with outliers.

All parameters are free. The same iterations, optimizer and starts (draws from the prior) for every
method; final ELBO at T = 1. One compiled step serves all fits of a model.
"""

import argparse
import json
import logging
import os
import warnings
from pathlib import Path
from time import process_time

import numpy as np
from common import RESULTS, Row, markdown, save
from variational_mixtures_fits import (
    ANNEALED,
    GRID,
    LARGEST,
    LAST_RATE,
    PAPER,
    PLAIN,
    POINTS,
    RATE,
    SEVERAL,
    SLOWS,
    START,
    VT,
    Fits,
    partition_of,
    request_of,
)
from variational_mixtures_models import LARGEST_OF, MODELS
from variational_mixtures_picture import draw_elbo, draw_temperatures

import pymc_tempering as pmt

METHODS = (PLAIN, SEVERAL, ANNEALED, VT)

DRAWS = 160
"""Particles for log C(T)."""

RESAMPLED = 2000
"""Resamples of the starts, for the standard error of a difference of medians."""


def run_model(name: str, methods: tuple[str, ...], repeats: int, n: int) -> dict:
    """Fit a model by every method from every start; all that tables and pictures need."""
    began = process_time()
    model = MODELS[name]()
    largest = LARGEST_OF.get(name, LARGEST)
    found = partition_of(model, DRAWS, largest)
    fits = Fits(model, n, largest)
    fits.log_c = (np.array(found["log_c"]), np.array(found["mcse"]))
    found |= {
        "elbo": {},
        "E[1/T]": {},
        "q": {},
        "history": {},
        "compiled s": process_time() - began,
    }
    print(name, {key: found[key] for key in ("C(T) s", "told s", "compiled s")}, flush=True)
    starts = fits.starts(repeats)
    for method in methods:
        ends, request = [], request_of(method, n, largest)
        for seed, start in enumerate(starts):
            run = fits.fit(method, start, seed, request)
            end = max(run.n_tempered - 1, 0)
            ends.append((fits.final_elbo(run), float(run.inverse_temperature[end])))
            if seed == 0:
                found["history"][method] = run.elbo[:n].reshape(200, -1).mean(axis=1).tolist()
                if method in (VT, PAPER):
                    found["q"][method] = [
                        q.round(5).tolist() for q in run.q[: run.n_tempered // 10]
                    ]
        found["elbo"][method], found["E[1/T]"][method] = map(list, zip(*ends, strict=True))
        print(method, np.sort(found["elbo"][method]).round(1).tolist(), flush=True)
    again = fits.fit(PLAIN, starts[0], 0, request_of(PLAIN, n, largest))
    if fits.final_elbo(again) != found["elbo"][PLAIN][0]:
        raise RuntimeError("a fit depends on those before it")
    return {**found, "all s": process_time() - began}


def gain_of(values: np.ndarray, plain: np.ndarray) -> tuple[float, float]:
    """Difference of two medians over the same starts, and its standard error by resampling them."""
    rng = np.random.default_rng(1)
    chosen = rng.integers(values.size, size=(RESAMPLED, values.size))
    # a fit that broke off is far below, whatever its ELBO
    both = [np.maximum(x, np.median(plain) - 1e4) for x in (values, plain)]
    gain = np.median(both[0]) - np.median(both[1])
    spread = np.median(both[0][chosen], axis=1) - np.median(both[1][chosen], axis=1)
    return float(gain), float(spread.std())


def rows_of(name: str, found: dict) -> list[Row]:
    """One row a method."""
    elbo = {method: np.array(values) for method, values in found["elbo"].items()}
    best = max(values.max() for method, values in elbo.items() if method not in (PLAIN, SEVERAL))
    plain = elbo[PLAIN]
    gains = {method: gain_of(values, plain) for method, values in elbo.items()}
    return [
        {
            "model": name,
            "method": method,
            "n": len(values),
            "median": float(np.median(values)),
            "gain": gains[method][0],
            "se": gains[method][1],
            "higher": int((values > plain + 1.0).sum()),
            "lower": int((values < plain - 1.0).sum()),
            "within_1": float(np.mean(values > best - 1.0)),
            "E[1/T]": float(np.median(found["E[1/T]"][method])),
            "C(T) s": found["C(T) s"],
            "told s": found["told s"],
            "mcse": max(found["mcse"]),
        }
        for method, values in elbo.items()
    ]


def report(found: dict[str, dict], options: argparse.Namespace, minutes: float) -> None:
    """Write the table and the pictures."""
    settings = {
        "iterations": f"{options.n}, half of them tempered at most; adam, rate {RATE}, lowered to "
        f"{LAST_RATE} over the last {1.0 - SLOWS:.0%}",
        "temperatures": f"from {START:g} on, evenly in log T; VT: a grid of {GRID} to {LARGEST:g}, "
        f"of negative_binomial_two to {LARGEST_OF['negative_binomial_two']:g}",
        "starts": "draws from the prior, the same for every method",
        SEVERAL: "the same trials of eight starts at T = 1, in all of the first half",
        "VT": "the default: two thirds of the first half go to trials from eight starts at T = 1, "
        "of which the better half goes on in each of four rounds; then the best end of these and "
        "of the tempered stage goes on",
        "median, gain": "final ELBO at T = 1 (nats), and less that of pm.fit: of the parameters "
        f"averaged over the last tenth of the iterations, by the same {POINTS} quasi-random draws",
        "se": f"standard error of gain ({RESAMPLED} resamples of the starts, the same for both)",
        "higher, lower": "starts that end more than 1 nat above, below pm.fit's",
        "within_1": "share of starts within 1 nat of the best of annealed and VT",
        "E[1/T]": "median at the end of the tempered stage",
        "C(T) s": "CPU seconds of log C(T), compilation included",
        "told s": "CPU seconds that messages told beforehand",
        "mcse": "largest standard error of log C(T) (nats)",
        "CPU minutes": f"{minutes:.1f}",
    }
    rows = [row for name in found for row in rows_of(name, found[name])]
    save("variational_mixtures", rows, options.out, "VT on mixtures, and the like", settings)
    draw_elbo(found, options.out / "variational_mixtures.png")
    path = options.out / "variational_mixtures_temperatures.png"
    draw_temperatures(found, path, LARGEST_OF, LARGEST)


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--repeats", type=int, default=20)
    args.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    args.add_argument("--n", type=int, default=2400, help="iterations of every fit")
    args.add_argument("--out", type=Path, default=RESULTS)
    args.add_argument(
        "--keep", type=Path, help="folder of finished models, which are not run again"
    )
    args.add_argument("--paper", action="store_true", help="the paper's form of VT, too")
    options = args.parse_args()
    methods = (*METHODS, PAPER) if options.paper else METHODS
    warnings.simplefilter("ignore", pmt.TemperingWarning)  # judged by the final ELBO here
    logging.getLogger("pymc").setLevel(logging.ERROR)
    found: dict[str, dict] = {}
    minutes = 0.0
    for name in options.models:
        kept = options.keep and options.keep / f"{name}.json"
        if kept and kept.exists():
            found[name] = json.loads(kept.read_text())
        else:
            began = sum(os.times()[:4])
            try:
                found[name] = run_model(name, methods, options.repeats, options.n)
            except pmt.NormalizerError as error:
                print(name, error, flush=True)
                continue
            found[name]["minutes"] = (sum(os.times()[:4]) - began) / 60
            if kept:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(found[name]))
        minutes += found[name]["minutes"]
        print(markdown(rows_of(name, found[name])), flush=True)
        report(found, options, minutes)


if __name__ == "__main__":
    main()
