"""Held-out words of LDA against passes over the corpus, as in Figure 2 of Mandt et al. (2016).

500 topics with the paper's alpha = eta = 1/K on the Associated Press corpus, which is smaller than
the paper's three by a factor of 340 and more. So the learning rate is that which its validation
documents chose (`variational.py lda`). Each tempered method is run with the paper's temperatures
and with milder ones.
"""

import argparse
import warnings
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from common import RESULTS, Row, save
from corpus import Text, split_text
from scipy.stats import sem
from threadpoolctl import threadpool_limits
from variational_runs import (
    BLUE,
    GRAY,
    GREEN,
    LVT,
    ORANGE,
    PURPLE,
    SKY,
    VT,
    Method,
    annealed,
    pictures,
)

from pymc_tempering.exceptions import TemperingWarning
from pymc_tempering.variational.conjugate import LDA, document_completion, svi

BATCH, RATE = 100, {"tau": 16.0, "kappa": 0.6}
SHOWN = 12
"""Points of a curve."""


def methods_of(passes: float) -> dict[str, Method]:
    """Return the methods by name; annealing and tempering last three quarters of the passes."""
    paper = np.geomspace(1.0, 10.0, 100)
    mild = np.geomspace(1.0, 1.5, 50)
    even = {"method": LVT, "update_every": 20}
    return {
        "SVI": Method({"method": "vi"}, GRAY),
        "AVI from 5": Method(annealed(0.75 * passes, 5.0), SKY),
        "AVI from 1.5": Method(annealed(0.75 * passes, 1.5), BLUE),
        "VT, T to 10": Method(
            {"method": VT, "temperatures": paper, "start": "uniform", "damping": 0.0}, GREEN
        ),
        "VT, T to 1.5": Method({"method": VT, "temperatures": mild, "damping": 0.95}, ORANGE),
        "LVT, 1/T to 0.01": Method(even, "#000000"),
        "LVT, 1/T to 0.5": Method(even | {"temperatures": 1.0 / np.linspace(1.0, 0.5, 50)}, PURPLE),
    }


def curve(
    model: LDA, text: Text, options: dict[str, Any], seed: int, passes: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Fit once; return passes, nats per held-out word after each, and CPU seconds of the fit."""
    a_pass = -(-text.train.shape[0] // BATCH)
    steps = round(passes * a_pass)
    at_one = steps // 4 if options["method"] in (VT, LVT) else 0
    at = set(np.unique(np.geomspace(a_pass, steps, SHOWN).round().astype(int)))
    found: list[tuple[float, float]] = []
    spent = 0.0

    def look(iteration: int, lam: tuple[np.ndarray, ...]) -> None:
        nonlocal spent
        if iteration in at:
            before = process_time()
            found.append((iteration / a_pass, document_completion(model, lam, text.test)))
            spent += process_time() - before

    started = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        svi(
            model, text.train, iterations=steps - at_one, untempered=at_one, batch_size=BATCH,
            random_seed=seed, elbo_every=0, callback=look, **RATE, **options,
        )  # fmt: skip
    x, y = np.array(found).T
    return x, y, process_time() - started - spent


def picture(curves: dict[str, tuple[np.ndarray, np.ndarray]], methods: dict[str, Method]) -> Any:
    """Draw the mean curve of each method, and its scatter over starts."""
    figure, ax = pictures().subplots(figsize=(7.0, 4.5), layout="constrained")
    for name, (x, values) in curves.items():
        mean, color = values.mean(axis=0), methods[name].color
        ax.plot(x, mean, color=color, label=name)
        if len(values) > 1:
            ax.fill_between(x, values.min(axis=0), values.max(axis=0), color=color, alpha=0.2, lw=0)
    ax.set(xscale="log", xlabel="passes over the corpus", ylabel="nats per held-out word")
    ax.legend(frameon=False, fontsize=8)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=500)
    parser.add_argument("--passes", type=float, default=30.0)
    parser.add_argument("--repeats", type=int, default=2, help="starts of every method")
    parser.add_argument("--seed", type=int, default=1, help="first of the consecutive seeds")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    text, model = split_text(), LDA(args.topics)
    methods = methods_of(args.passes)
    rows: list[Row] = []
    curves: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    with threadpool_limits(1):
        for name, method in methods.items():
            runs = []
            for seed in range(args.seed, args.seed + args.repeats):
                runs.append(curve(model, text, method.options, seed, args.passes))
                print(name, seed, np.round(runs[-1][1], 4), round(runs[-1][2]), flush=True)
            x, values = runs[0][0], np.array([y for _, y, _ in runs])
            curves[name] = x, values
            row: Row = {"method": name, "starts": len(runs)}
            row |= {f"after {n:.3g}": y for n, y in zip(x, values.mean(axis=0), strict=True)}
            row |= {"its se": sem(values[:, -1]), "CPU s": np.mean([s for *_, s in runs])}
            rows.append(row)
    picture(curves, methods).savefig(args.out / "variational_curves.png", dpi=130)
    save(
        "variational_curves",
        rows,
        args.out,
        "Held-out words of LDA against passes",
        {
            "corpus": f"{text.name}, {text.train.shape[0]} documents fitted, {text.test.shape[0]} "
            "others for the held-out words",
            "settings": f"K = {args.topics}, alpha = eta = 1/K, tau = {RATE['tau']:g}, kappa = "
            f"{RATE['kappa']}, minibatches of {BATCH}, {args.passes:g} passes; VT and LVT: the "
            "last fourth at T = 1; AVI: linear over three quarters",
            "after": "nats per held-out word after so many passes, document completion at T = 1",
            "its se": "of the last value, over starts",
            "seeds": f"{args.seed} to {args.seed + args.repeats - 1}",
        },
    )


if __name__ == "__main__":
    main()
