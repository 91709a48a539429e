"""Mean log likelihood of image patches under learned models (HAIS paper, Figure 4 and Table 1).

Sohl-Dickstein & Culpepper (2011), sections 5.1 and 5.4, with the patches of `image_patches.py`.
Products of experts and the mean and covariance RBM need one run of `pmt.annealed.hais` each, for
log Z; linear and bilinear generative models need one for each test patch. Complete products and the
linear model with the normal prior are known exactly. Figure 4 is the latter against the number of
intermediate distributions.

Complete products are annealed from a standard normal, as in the paper, and the Student-t ones also
from a reference with their tails (`Experts.matched`); those of 144 experts, which are less wide,
from a normal as wide as they are. The linear models are annealed from the prior of the latent
variables, as in the paper, and that with the Laplace prior also from the noise, which is far nearer
to the posterior (`from_noise`). For the bilinear model this is so for patches of some contrast,
while flat patches are nearly noise, and their coefficients nearly those of the prior: a short run
of other particles decides for each.

    python benchmarks/image_likelihoods.py --rungs 100 300 1000 3000 --patches 30
"""

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time
from typing import Literal

import image_bilinear
import image_experts
import image_generative
import image_mcrbm
import image_overcomplete
import numpy as np
import pymc as pm
from common import Row, earlier_rows, parser, save
from image_kept import kept
from image_patches import patches

import pymc_tempering as pmt
from pymc_tempering.model.handle import CompiledModel

type Learned = (
    image_experts.Experts
    | image_mcrbm.McRBM
    | image_generative.Generative
    | image_bilinear.Bilinear
)


PILOT = 1000
"""Distributions of the short run that chooses a path."""


UNITS = image_mcrbm.COVARIANCE + image_mcrbm.MEAN


@dataclass(frozen=True)
class Entry:
    """A line of Table 1.

    Attributes
    ----------
    learn : callable
        From the share of all rounds of learning, and a folder of learned models, to the model.
    size : int
        Experts, hidden units or latent variables, as the paper counts them.
    paper : float
        Log likelihood in the paper's table, in nats.
    path : {"normal", "matched", "fitted", "scales", "own", "prior", "noise", "either"}
        Where annealing begins; "either" is the prior or the noise, for each patch by a short run.
    """

    learn: Callable[[float, Path | None], Learned]
    size: int
    paper: float
    path: Literal["normal", "matched", "fitted", "scales", "own", "prior", "noise", "either"]


def _many(kind: image_experts.Kind, share: float, keep: Path | None) -> image_experts.Experts:
    rounds = max(1, round(share * image_overcomplete.ROUNDS))
    return image_overcomplete.learned(kind, 144, rounds, keep)


def _mcrbm(balanced: bool, share: float, keep: Path | None) -> image_mcrbm.McRBM:
    rounds = max(1, round(share * image_mcrbm.ROUNDS))
    machine = kept(keep, f"mcrbm_chains_{rounds}", lambda: image_mcrbm.by_chains(rounds))
    if not balanced:
        return machine
    data = patches().train
    return kept(keep, f"mcrbm_{rounds}", lambda: image_mcrbm.balanced(machine, data))


def _bilinear(share: float, keep: Path | None) -> image_bilinear.Bilinear:
    return kept(keep, f"bilinear_{share:g}", lambda: image_bilinear.learned(share=share))


ENTRIES = {
    "linear, normal prior": Entry(
        lambda share, keep: image_generative.learned("normal"), 36, -49.15, "prior"
    ),
    "linear, Laplace prior, from the prior": Entry(
        lambda share, keep: image_generative.learned("laplace"), 36, -42.85, "prior"
    ),
    "linear, Laplace prior": Entry(
        lambda share, keep: image_generative.learned("laplace"), 36, -42.85, "noise"
    ),
    "experts, Laplace": Entry(
        lambda share, keep: image_experts.learned("laplace"), 36, np.nan, "normal"
    ),
    "experts, Laplace, 144": Entry(partial(_many, "laplace"), 144, -41.54, "fitted"),
    "mcRBM, by chains alone, own path": Entry(partial(_mcrbm, False), UNITS, -36.01, "own"),
    "mcRBM, by chains alone": Entry(partial(_mcrbm, False), UNITS, -36.01, "scales"),
    "mcRBM": Entry(partial(_mcrbm, True), UNITS, -36.01, "scales"),
    "experts, Student-t, normal path": Entry(
        lambda share, keep: image_experts.learned("student_t"), 36, np.nan, "normal"
    ),
    "experts, Student-t": Entry(
        lambda share, keep: image_experts.learned("student_t"), 36, np.nan, "matched"
    ),
    "experts, Student-t, 144": Entry(partial(_many, "student_t"), 144, -34.01, "fitted"),
    "bilinear": Entry(_bilinear, 36 + image_bilinear.N_SCALES, -32.69, "either"),
}
"""Lines of the table, from the paper's least to its greatest log likelihood."""


def _target(model: image_experts.Experts | image_mcrbm.McRBM, path: str) -> pm.Model:
    if isinstance(model, image_mcrbm.McRBM):
        own = {"center": float(model.log_sd[0]), "width": 0.05} if path == "own" else {}
        return model.model(**own)
    if path == "fitted":
        return model.model(image_overcomplete.spread(model))
    return model.matched() if path == "matched" else model.model()


def of_analysis(
    model: image_experts.Experts | image_mcrbm.McRBM, path: str, test: np.ndarray, **options: int
) -> Row:
    """Mean log likelihood of the test patches by one estimate of log Z."""
    target = _target(model, path)
    seed = options.pop("seed")
    found = pmt.annealed.hais(target, random_seed=seed, quiet=True, progressbar=False, **options)
    energies = model.energy(test)
    exact = np.nan
    if isinstance(model, image_experts.Experts) and len(model.filters) == test.shape[1]:
        exact = -float(energies.mean()) - model.log_z()
    return {
        "estimate": -float(energies.mean()) - found.log_z, "mcse": found.mcse,
        "no error": int(not np.isfinite(found.mcse)), "exact": exact,
        "of patches": float(energies.std(ddof=1) / np.sqrt(len(test))),
    }  # fmt: skip


def of_generative(
    model: image_generative.Generative | image_bilinear.Bilinear,
    path: str,
    test: np.ndarray,
    **options: int,
) -> Row:
    """Mean log likelihood of the test patches by one run for each of them, compiled once."""
    seed = options.pop("seed")
    ways = {"prior": [model.model], "noise": [model.from_noise]}.get(
        path, [model.model, model.from_noise]
    )
    compiled = [pmt.compile(way(test[0])) for way in ways]
    found = []
    for k, patch in enumerate(test):
        best = compiled[0]
        if len(ways) > 1:
            best = max(compiled, key=lambda each: _pilot(each, patch, [seed, k, 1]).ess)
        found.append(
            pmt.annealed.hais(
                best.with_data(patch=patch), random_seed=np.random.default_rng([seed, k]),
                quiet=True, progressbar=False, **options,
            )
        )  # fmt: skip
    exact = np.nan
    if isinstance(model, image_generative.Generative) and model.prior == "normal":
        exact = float(model.log_likelihood(test).mean())
    values = np.array([e.log_z for e in found])
    return {
        "estimate": float(values.mean()),
        "mcse": float(np.sqrt(np.sum([e.mcse**2 for e in found])) / len(found)),
        "no error": sum(not np.isfinite(e.mcse) for e in found),
        "exact": exact,
        "of patches": float(values.std(ddof=1) / np.sqrt(len(found))),
    }


def _pilot(compiled: CompiledModel, patch: np.ndarray, seeds: list[int]) -> pmt.evidence.Evidence:
    """A short run that only says how good a path is."""
    return pmt.annealed.hais(
        compiled.with_data(patch=patch), n_particles=100, betas=PILOT,
        random_seed=np.random.default_rng(seeds), quiet=True, progressbar=False,
    )  # fmt: skip


def row_of(name: str, model: Learned, n_rungs: int, args: argparse.Namespace) -> Row:
    """Estimate the mean log likelihood under one model."""
    entry, test = ENTRIES[name], patches().test[: args.patches]
    options = {"n_particles": args.particles, "betas": n_rungs, "seed": args.seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short schedules warn, and stand in the table for it
        began = process_time()
        if isinstance(model, image_generative.Generative | image_bilinear.Bilinear):
            found = of_generative(model, entry.path, test, **options)
        else:
            found = of_analysis(model, entry.path, test, **options)
    return {
        "model": name, "size": entry.size, "path": entry.path, "rungs": n_rungs, **found,
        "paper": entry.paper, "cpu": process_time() - began,
    }  # fmt: skip


def picture(rows: Sequence[Row], path: Path) -> None:
    """Draw estimates against the number of distributions, beside the exact values."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(str(row["model"]) for row in rows))
    figure, axes = plt.subplots(
        -(-len(names) // 3), 3, figsize=(9.3, 2.7 * -(-len(names) // 3)), layout="constrained"
    )
    for axis, name in zip(np.ravel(axes), names, strict=False):
        mine = [row for row in rows if row["model"] == name]
        bars = [2.0 * float(r["mcse"]) if np.isfinite(float(r["mcse"])) else 0.0 for r in mine]
        axis.errorbar(
            [float(r["rungs"]) for r in mine], [float(r["estimate"]) for r in mine], bars,
            color="C0", marker="x", label="HAIS",
        )  # fmt: skip
        if np.isfinite(float(mine[0]["exact"])):
            axis.axhline(float(mine[0]["exact"]), color="black", linestyle="--", label="exact")
        axis.set(xscale="log", title=name)
        axis.set_xticks([float(r["rungs"]) for r in mine], [str(r["rungs"]) for r in mine])
        axis.minorticks_off()
    for axis in np.ravel(axes)[len(names) :]:
        axis.axis("off")
    figure.supxlabel("intermediate distributions")
    figure.supylabel("mean log likelihood (nats)")
    np.ravel(axes)[0].legend(frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    arguments = parser(__doc__, 1)
    arguments.add_argument("--rungs", nargs="+", type=int, default=[30, 100, 300, 1000])
    arguments.add_argument("--particles", type=int, default=200)
    arguments.add_argument("--patches", type=int, default=100, help="of the test, the same for all")
    arguments.add_argument("--share", type=float, default=1.0, help="of the rounds of learning")
    arguments.add_argument("--lines", nargs="+", default=list(ENTRIES), choices=list(ENTRIES))
    arguments.add_argument("--add", action="store_true", help="keep other lines of the table")
    arguments.add_argument("--keep", type=Path, help="folder of learned models")
    args = arguments.parse_args()
    settings = {
        "run": f"{args.particles} particles; the same {args.patches} test patches for all, as many "
        "runs of `hais` for the generative models; 36 components",
        "learning": f"the share {args.share:g} of all rounds of persistent chains and of the "
        "bilinear model",
        "seed": str(args.seed),
        "mcse": "of the mean over these patches, by the scatter of particles alone; `no error`: "
        "runs whose particles are too few to state one; `of patches`: by the scatter of patches",
        "path": "from a standard normal, a normal as wide as the states (fitted), normals of all "
        "scales, the normal part of the machine's own, a reference with the experts' tails "
        "(matched), the prior of the latent variables, the noise, or the better of these two "
        f"(either), as a run of 100 other particles and {PILOT} distributions says",
        "paper": "Table 1, on other patches",
    }
    table = args.out / "image_likelihoods.csv"
    rows = earlier_rows(table, "model", args.lines) if args.add and table.exists() else []
    for name in args.lines:
        began = process_time()
        model = ENTRIES[name].learn(args.share, args.keep)
        print(f"{name}: {process_time() - began:.0f} CPU seconds of learning", flush=True)
        for n_rungs in args.rungs:
            rows.append(row_of(name, model, n_rungs, args))
            save("image_likelihoods", rows, args.out, "Log likelihood of image patches", settings)
    order = list(ENTRIES)
    rows.sort(key=lambda row: (order.index(str(row["model"])), int(row["rungs"])))
    save("image_likelihoods", rows, args.out, "Log likelihood of image patches", settings)
    picture(rows, args.out / "image_likelihoods.png")


if __name__ == "__main__":
    main()
