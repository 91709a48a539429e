"""Topics of the Associated Press corpus by SVI, AVI, VT and LVT: tuned, then judged on others.

Imported by `variational.py`, which has the command line.
"""

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
from common import Row, save
from corpus import Text, split_text
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
    Run,
    annealed,
    draw,
    run_all,
    summary,
)

from pymc_tempering.variational.conjugate import (
    LDA,
    Fit,
    document_completion,
    svi,
)

BATCH, TUNING_SEEDS = 100, (101, 102)
RATES = ((4.0, 0.6), (16.0, 0.6), (16.0, 0.7))
CONVERGE = {"iterations": 50, "tol": 2e-6}
"""Batch iterations at T = 1 that end every method."""


def fit_text(model: LDA, text: Text, options: dict[str, Any], seed: int, passes: int) -> Fit:
    """Fit by minibatches; VT and LVT make the last fourth of the passes at T = 1."""
    steps = passes * -(-text.train.shape[0] // BATCH)
    at_one = steps // 4 if options["method"] in (VT, LVT) else 0
    stages = {"iterations": steps - at_one} | ({"untempered": at_one} if at_one else {})
    return svi(
        model, text.train, random_seed=seed, batch_size=BATCH, elbo_every=0,
        **stages, **options,
    )  # fmt: skip


def converge(model: LDA, text: Text, fit: Fit) -> Fit:
    """Go on at T = 1, in batches, until the ELBO stands."""
    last = svi(model, text.train, "vi", initial=fit.lam, **CONVERGE)
    return replace(fit, lam=last.lam, elbo=last.elbo)


def elbo_at_one(model: LDA, text: Text, fit: Fit) -> float:
    """Return the ELBO at T = 1 after one local step."""
    start = model.start_local(text.train)
    local = model.local_step(fit.lam, text.train, np.ones(len(start)), start)
    return float((local.log_joint + local.rest).sum()) + model.global_elbo(fit.lam, text.train)


def candidates(passes: int, rate: dict[str, float]) -> dict[str, list[tuple[str, Method]]]:
    """Return the settings among which each method chooses, by their words for the table."""

    def avi(hottest: float, share: float, color: str, schedule: str = "linear"):  # type: ignore[no-untyped-def]
        options = annealed(share * passes, hottest, schedule) | rate
        return f"{schedule[:3]} {hottest:g}, {share:.0%}", Method(options, color)

    shares = (0.5, 0.75)
    return {
        "AVI 1": [avi(1.25, share, SKY) for share in shares],
        "AVI 2": [avi(1.5, share, BLUE) for share in shares],
        "AVI 3": [avi(1.5, share, GREEN, "exponential") for share in shares],
        "VT": [
            (
                f"T to {top:g}, damping {damping}",
                Method(
                    {
                        "method": VT, "temperatures": np.geomspace(1.0, top, 50),
                        "damping": damping, **rate,
                    },
                    ORANGE,
                ),
            )
            for top in (1.25, 1.5) for damping in (0.98, 0.95)
        ],
        "LVT": [
            (
                f"1/T to {low:g}",
                Method(
                    {
                        "method": LVT, "temperatures": 1.0 / np.linspace(1.0, low, 50),
                        "update_every": 20, **rate,
                    },
                    PURPLE,
                ),
            )
            for low in (0.667, 0.5, 0.4)
        ],
    }  # fmt: skip


def tune(text: Text, size: int, args: argparse.Namespace) -> tuple[float, dict[str, Method]]:
    """Choose settings by the validation documents: prior and rate by SVI, which all others share.

    Returns the prior's concentration and the methods, and saves all that was tried.
    """
    rows: list[Row] = []

    def attempt(method: str, words: str, prior: float, options: dict[str, Any]) -> float:
        model = LDA(size, alpha=prior, eta=prior)
        fits = [fit_text(model, text, options, seed, args.passes) for seed in TUNING_SEEDS]
        values = [document_completion(model, fit.lam, text.validation) for fit in fits]
        value, elbo = np.mean(values), np.mean([elbo_at_one(model, text, fit) for fit in fits])
        rows.append(
            {
                "method": method, "settings": words, "held out": f"{value:.4f}",
                "of each": ", ".join(f"{v:.4f}" for v in values), "ELBO": f"{elbo:.0f}",
                "chosen": "",
            }
        )  # fmt: skip
        print(rows[-1], flush=True)
        return float(value)

    def best(values: list[float]) -> int:
        chosen = int(np.argmax(values))
        rows[len(rows) - len(values) + chosen]["chosen"] = "yes"
        return chosen

    plain = [(prior, *rate) for prior in (1.0 / size, 0.1) for rate in RATES]
    values = [
        attempt(
            "SVI", f"alpha = eta = {prior:g}, tau = {tau:g}, kappa = {kappa:g}", prior,
            {"method": "vi", "tau": tau, "kappa": kappa},
        )
        for prior, tau, kappa in plain
    ]  # fmt: skip
    prior, tau, kappa = plain[best(values)]
    rate = {"tau": tau, "kappa": kappa}
    methods = {"SVI": Method({"method": "vi", **rate}, GRAY)}
    for method, tried in candidates(args.passes, rate).items():
        words, chosen = tried[
            best([attempt(method, words, prior, m.options) for words, m in tried])
        ]
        methods[f"AVI {words}" if method.startswith("AVI") else method] = chosen
    settings = {
        "corpus": f"{text.name}, {text.train.shape[0]} documents fitted",
        "settings": f"K = {size}, minibatches of {BATCH}, {args.passes} passes; seeds "
        f"{TUNING_SEEDS}, their mean",
        "held out": f"nats per held-out word of {text.validation.shape[0]} documents; those of the "
        "results are others",
        "SVI": "its prior and learning rate (tau, kappa) are those of all other methods",
        "ELBO": "at T = 1 after the minibatches, not converged",
    }
    title = f"LDA with {size} topics: what the settings were chosen among"
    save(f"variational_lda{size}_tuning", rows, args.out, title, settings)
    return prior, methods


def text_runs(
    model: LDA, text: Text, methods: dict[str, Method], args: argparse.Namespace
) -> tuple[list[Run], list[Row]]:
    """Fit with every method and converge at T = 1; return the runs and their table."""

    def fit(options: dict[str, Any], seed: int) -> Fit:
        return converge(model, text, fit_text(model, text, options, seed, args.passes))

    def judge(fit: Fit) -> tuple[float, int]:
        return document_completion(model, fit.lam, text.test), 0

    runs = run_all(methods, range(args.seed, args.seed + args.repeats), fit, judge)
    rows = summary(runs, methods)
    plain = {run.seed: run for run in runs if run.method == "SVI"}
    for row in rows:
        mine = [run for run in runs if run.method == row["method"]]
        less = np.array([run.held_out - plain[run.seed].held_out for run in mine])
        gain = np.array([run.fit.elbo - plain[run.seed].fit.elbo for run in mine])
        tempered = [document_completion(model, run.fit.tempered_lam, text.test) for run in mine]
        row |= {
            "above SVI": _with_error(less, 4), "ELBO above SVI's": _with_error(gain, 0),
            "before": f"{np.mean(tempered):.4f}",
        }  # fmt: skip
    return runs, rows


def _with_error(values: np.ndarray, digits: int) -> str:
    error = values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else np.nan
    return f"{values.mean():.{digits}f} +- {error:.{digits}f}"


def common_settings(text: Text) -> dict[str, str]:
    """Return the lines below every table of `lda` and `paper`."""
    return {
        "corpus": f"{text.name}, {text.train.shape[0]} documents fitted, {text.test.shape[0]} "
        "others for the held-out likelihood",
        "held out": "nats per held-out word, document completion at T = 1",
        "at T = 1": f"VT and LVT: the last fourth of the passes; then every method batch "
        f"iterations until the ELBO changes by less than {CONVERGE['tol']:g} of itself, at most "
        f"{CONVERGE['iterations']}",
        "above SVI": "mean and standard error over seeds of the difference from the same seed",
        "before": "held out before the batch iterations, for VT and LVT before all at T = 1",
        "seconds": "batch iterations and final ELBO included",
    }


def lda(args: argparse.Namespace) -> None:
    """Choose settings on validation documents, fit from many starts, judge by test documents."""
    text = split_text()
    for size in args.topics:
        report(text, size, *tune(text, size, args), args)


def report(
    text: Text, size: int, prior: float, methods: dict[str, Method], args: argparse.Namespace
) -> None:
    """Fit from many starts and save table and picture."""
    runs, rows = text_runs(LDA(size, alpha=prior, eta=prior), text, methods, args)
    rate = methods["SVI"].options
    settings = {
        "settings": f"K = {size}, alpha = eta = {prior:g}, tau = {rate['tau']:g}, kappa = "
        f"{rate['kappa']:g}, minibatches of {BATCH}, {args.passes} passes for every method; "
        f"seeds {args.seed} to {args.seed + args.repeats - 1}",
        "chosen": f"by 250 other documents: variational_lda{size}_tuning.md; AVI: "
        "linear or exponential, first temperature, share of the passes",
    }
    title = f"LDA with {size} topics"
    save(f"variational_lda{size}", rows, args.out, title, settings | common_settings(text))
    draw(f"variational_lda{size}", runs, methods, args.out, "held-out nats per word")


def paper(args: argparse.Namespace) -> None:
    """Fit with the settings of Section 4 of Mandt et al. (2016), but for K and the passes."""
    text, size = split_text(), args.topics[0]
    rate, grid = {"tau": 1024.0, "kappa": 0.7}, np.geomspace(1.0, 10.0, 100)
    shares = ((0.01, SKY), (0.1, BLUE), (1.0, GREEN))
    uniform = {"start": "uniform", "damping": 0.0}
    methods = {
        "SVI": Method({"method": "vi", **rate}, GRAY),
        **{
            f"AVI tA = {passes:g}": Method(annealed(passes, float(grid.mean())) | rate, color)
            for passes, color in shares
        },
        "VT": Method({"method": VT, **uniform, **rate}, ORANGE),
        "LVT": Method({"method": LVT, "update_every": 20, **rate}, PURPLE),
    }
    model = LDA(size)
    _, rows = text_runs(model, text, methods, args)
    settings = {
        "settings": f"K = {size}, alpha = eta = 1/K, tau = 1024, kappa = 0.7, minibatches of "
        f"{BATCH}, {args.passes} passes; VT: T from 1 to 10, uniform start; LVT: 100 even 1/T; "
        f"AVI: linear from {grid.mean():.2f} over tA passes; seeds {args.seed} to "
        f"{args.seed + args.repeats - 1}",
    }
    title = "LDA with the settings of Mandt et al. (2016)"
    save("variational_lda_paper", rows, args.out, title, settings | common_settings(text))
