"""Mean log likelihood of image patches under learned models (HAIS paper, Figure 4 and Table 1).

Sohl-Dickstein & Culpepper (2011), sections 5.1 and 5.4, with the patches of `image_patches.py`:
complete products of Laplace and Student-t experts, of which log Z is one run of `pmt.hais`, and
linear generative models with a normal and a Laplace prior, of which each test patch has a run of
its own. Three of the four are known exactly. Figure 4 is the linear model with the normal prior
against the number of intermediate distributions.

    python benchmarks/image_likelihoods.py --rungs 30 100 300 1000 --patches 100
"""

import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from time import process_time

import image_experts
import image_generative
import matplotlib as mpl
import numpy as np
from common import Row, parser, save
from image_patches import patches

import pymc_tempering as pmt

MODELS = {
    "linear, normal prior": image_generative,
    "linear, Laplace prior": image_generative,
    "experts, Laplace": image_experts,
    "experts, Student-t": image_experts,
}
KINDS = dict(zip(MODELS, ("normal", "laplace", "laplace", "student_t"), strict=True))
PAPER = dict(zip(MODELS, (-49.15, -42.85, -41.54, -34.01), strict=True))
"""Table 1 of the paper, on its own patches; its experts were 144, four times complete."""


@cache
def model_of(name: str) -> image_generative.Generative | image_experts.Experts:
    """Learn a model."""
    return MODELS[name].learned(KINDS[name])


def of_experts(
    experts: image_experts.Experts, n_rungs: int, particles: int, seed: int, test: np.ndarray
) -> Row:
    """Mean log likelihood of the test patches by one estimate of log Z."""
    found = pmt.hais(
        experts.model(), n_particles=particles, betas=n_rungs, random_seed=seed, quiet=True,
        progressbar=False,
    )  # fmt: skip
    energy = experts.energy(test).mean()
    return {
        "estimate": float(-energy - found.log_z), "mcse": found.mcse,
        "no error": int(not np.isfinite(found.mcse)), "exact": float(-energy - experts.log_z()),
    }  # fmt: skip


def of_generative(
    model: image_generative.Generative, n_rungs: int, particles: int, seed: int, test: np.ndarray
) -> Row:
    """Mean log likelihood of the test patches by one run for each of them, compiled once."""
    compiled = pmt.compile(model.model(test[0]))
    found = [
        pmt.hais(
            compiled.with_data(patch=patch), n_particles=particles, betas=n_rungs,
            random_seed=np.random.default_rng([seed, k]), quiet=True, progressbar=False,
        )
        for k, patch in enumerate(test)
    ]  # fmt: skip
    exact = model.log_likelihood(test).mean() if model.prior == "normal" else float("nan")
    return {
        "estimate": float(np.mean([e.log_z for e in found])),
        "mcse": float(np.sqrt(np.sum([e.mcse**2 for e in found])) / len(found)),
        "no error": sum(not np.isfinite(e.mcse) for e in found),
        "exact": float(exact),
    }


def row_of(name: str, n_rungs: int, particles: int, seed: int, n_patches: int) -> Row:
    """Estimate the mean log likelihood under one model."""
    model, test = model_of(name), patches().test[:n_patches]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short schedules warn, and stand in the table for it
        began = process_time()
        if isinstance(model, image_generative.Generative):
            found = of_generative(model, n_rungs, particles, seed, test)
        else:
            found = of_experts(model, n_rungs, particles, seed, test)
    seconds = process_time() - began
    return {"model": name, "rungs": n_rungs, **found, "paper": PAPER[name], "cpu": seconds}


def picture(rows: Sequence[Row], path: Path) -> None:
    """Draw estimates against the number of distributions, beside the exact values."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(MODELS), figsize=(3.1 * len(MODELS), 3.2))
    for axis, name in zip(axes, MODELS, strict=True):
        mine = [row for row in rows if row["model"] == name]
        if not mine:
            continue
        bars = [2.0 * r["mcse"] if np.isfinite(r["mcse"]) else 0.0 for r in mine]
        axis.errorbar(
            [r["rungs"] for r in mine], [r["estimate"] for r in mine], bars,
            color="C0", marker="x", label="HAIS",
        )  # fmt: skip
        if np.isfinite(float(mine[0]["exact"])):
            axis.axhline(float(mine[0]["exact"]), color="black", linestyle="--", label="exact")
        axis.set(xscale="log", title=name, xlabel="intermediate distributions")
    axes[0].set_ylabel("mean log likelihood (nats)")
    axes[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    arguments = parser(__doc__, 1)
    arguments.add_argument("--rungs", nargs="+", type=int, default=[30, 100, 300, 1000])
    arguments.add_argument("--particles", type=int, default=200)
    arguments.add_argument("--patches", type=int, default=100, help="of the test, the same for all")
    args = arguments.parse_args()
    settings = {
        "run": f"{args.particles} particles; the same {args.patches} test patches for all, as many "
        "runs of `hais` for the generative models; 36 components, 36 filters or bases",
        "seed": str(args.seed),
        "mcse": "of the mean over these patches, by the scatter of particles alone; `no error`: "
        "runs whose particles are too few to state one",
        "paper": "Table 1, on other patches, and with 144 experts",
    }
    rows: list[Row] = []
    for name in MODELS:
        for n_rungs in args.rungs:
            rows.append(row_of(name, n_rungs, args.particles, args.seed, args.patches))
            save("image_likelihoods", rows, args.out, "Log likelihood of image patches", settings)
    picture(rows, args.out / "image_likelihoods.png")


if __name__ == "__main__":
    main()
