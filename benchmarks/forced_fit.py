"""Whether the search sees a fit that was forced onto one of two modes: a number or a warning?

The draws that a fit gets are robbed of the second of two 10-D Gaussians, in all fits of a run
("all") or in those before the first looks ("first", so that a repeated fit may be right). The
claim: where looks have seen both modes, no run ends in a number that is off by more than 4 stated
errors without a warning. A second table has the share of the work that each leg takes, on these
and on other models, with no fit forced.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from common import LEGS, MODELS, Row, Run, parser, run_once, save, shares, system

from pymc_tempering import testsystems
from pymc_tempering.references.mixture import Mixture
from pymc_tempering.sampling import fit_reference, search
from pymc_tempering.sampling.search import Looks

WEIGHTS = {"mixture_65": (0.65, 0.35), "mixture_90": (0.9, 0.1)}
for _name, _weights in WEIGHTS.items():
    MODELS[_name] = partial(testsystems.gaussian_mixture, 10, weights=_weights)
SHARE_MODELS = (
    *WEIGHTS, "regression", "hierarchical", "twenty_modes", "logistic", "schools", "shells",
)  # fmt: skip
FAR = 4.0
"""Stated errors that a run may be off by."""


@contextmanager
def one_mode(name: str, forced: str, seen: set[int]) -> Iterator[None]:
    """Hide the second mode from the fit; add to `seen` the modes that looks have met."""
    centers = np.asarray(system(name).mode_centers)
    fit, look = fit_reference.fit_mixture, search.take_looks
    looked: list[int] = []

    def mode_of(xs: np.ndarray) -> np.ndarray:
        return np.asarray(((xs[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1))

    def robbed(draws: np.ndarray, *args: Any, **kwargs: Any) -> Mixture:
        hidden = forced == "all" or not looked
        return fit(draws[mode_of(draws) == 0] if hidden else draws, *args, **kwargs)

    def watched(*args: Any, **kwargs: Any) -> Looks:
        looks = look(*args, **kwargs)
        looked.append(looks.n)
        seen.update(np.unique(mode_of(looks.ends.xs)).tolist())
        return looks

    with (
        patch.object(fit_reference, "fit_mixture", robbed),
        patch.object(search, "take_looks", watched),
    ):
        yield


def forced_run(name: str, seed: int, forced: str) -> tuple[Run, bool]:
    """Run with a forced fit; also whether the looks have seen both modes."""
    seen: set[int] = set()
    with one_mode(name, forced, seen):
        run = run_once(name, seed)
    return run, len(seen) == 2


def summarize(name: str, forced: str, runs: list[tuple[Run, bool]]) -> Row:
    """Count what the runs said, and those that were wrong in silence."""
    counted = [run for run, both in runs if both]
    error = np.array([run.log_z for run in counted]) - system(name).log_evidence
    stated = np.array([run.mcse for run in counted])
    warned = np.array([bool(run.warnings) for run in counted])
    off = np.abs(error) > FAR * stated
    return {
        "model": name,
        "forced": forced,
        "n": len(runs),
        "both seen": len(counted),
        "RMSE": float(np.sqrt(np.mean(error**2))),
        "stated": float(stated[np.isfinite(stated)].mean()),
        "off": int(off.sum()),
        "off, no warning": int((off & ~warned).sum()),
        "warned": int(warned.sum()),
        "answer from the prior": sum(not run.fitted for run in counted),
        **{leg: f"{part:.0%}" for leg, part in shares([run.work for run in counted]).items()},
    }


def main() -> None:
    arguments = parser(__doc__, 100)
    arguments.add_argument("--share-repeats", type=int, default=10)
    args = arguments.parse_args()
    warnings.simplefilter("ignore")
    seeds = range(args.seed, args.seed + args.repeats)
    rows: list[Row] = []
    for name in WEIGHTS:
        for forced in ("all", "first"):
            rows.append(summarize(name, forced, [forced_run(name, s, forced) for s in seeds]))
            print(rows[-1], flush=True)
    settings = {
        "seeds": f"{seeds.start} to {seeds.stop - 1}, of each row",
        "forced": "fits whose draws all come from the first mode: all, or those before any look",
        "both seen": "runs whose looks met both modes; the columns to the right are theirs",
        "off": f"by more than {FAR:.0f} stated errors",
        "legs": f"{', '.join(LEGS)}: mean share of the density evaluations, initial iterations "
        "left out",
    }
    save("forced_fit", rows, args.out, "A fit that was forced onto one of two modes", settings)
    work: list[Row] = []
    for name in SHARE_MODELS:
        runs = [run_once(name, args.seed + i) for i in range(args.share_repeats)]
        work.append({
            "model": name, "dim": system(name).dim, "n": len(runs),
            **{leg: f"{part:.0%}" for leg, part in shares([run.work for run in runs]).items()},
            "evaluations": float(np.mean([sum(run.work.values()) for run in runs])),
            "cpu": float(np.median([run.cpu for run in runs])),
        })  # fmt: skip
    settings = {"cpu": "CPU seconds, median", "legs": settings["legs"]}
    save("legs", work, args.out, "Share of the work of each leg, no fit forced", settings)


if __name__ == "__main__":
    main()
