"""Overcomplete products of experts: learned by persistent chains, their log Z by several methods.

Sohl-Dickstein & Culpepper (2011), section 5.1, have four times as many experts as dimensions. Their
log Z is not known, and so they are learned by chains that persist (`image_chains.py`). These move
by Gibbs draws: an expert is a normal density of a random width, so that widths given the state and
the state given the widths are both drawn exactly, however heavy the tails are (Welling, Hinton &
Osindero 2003). Learning begins at the complete product of greatest likelihood with further experts
that are nearly flat, or, for complete ones, at random filters, which shows what the chains miss.
Figure 5 is the log likelihood against the number of experts. Log Z of complete products is exact;
that of others is by `pmt.annealed.hais`, and by `pmt.sample`, from a normal as wide as the chains'
states.

    python benchmarks/image_overcomplete.py
"""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time

import image_experts
import numpy as np
from common import Row, parser, save
from image_bilinear import inverse_gaussian
from image_chains import CHAINS, learn
from image_experts import Experts, Kind
from image_kept import kept
from image_patches import patches

import pymc_tempering as pmt

ROUNDS, FROM_RANDOM = 2000, 2
SWEEPS = 100
"""Sweeps that find how wide the states are."""
KINDS: dict[str, Kind] = {"Laplace": "laplace", "Student-t": "student_t"}
PAPER = {"Laplace": -41.54, "Student-t": -34.01}
"""Table 1 of the paper, on its own patches, with 144 experts."""


def gibbs(
    experts: Experts, x: np.ndarray, step: float, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Draw the width of each expert given the states (n, M), then the states given the widths."""
    u = x @ experts.filters.T
    if experts.kind == "laplace":
        precision = inverse_gaussian(1.0 / np.maximum(np.abs(u), 1e-12), rng)
    else:
        precision = 2.0 * rng.gamma(experts.shape, size=u.shape) / (1.0 + u**2)
    return draw_normal(experts.filters, precision, rng), 1.0


def draw_normal(filters: np.ndarray, precision: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw states whose filters' answers have such precisions (n, L), as if they were apart.

    In the coordinates of the first M filters, scaled to unit precision, the matrices are near the
    unit matrix even where a width is 10^8 times another.
    """
    dim = filters.shape[1]
    inverse = np.linalg.inv(filters[:dim])
    along = filters @ inverse
    pairs = (along[:, :, None] * along[:, None, :]).reshape(len(filters), dim * dim)
    full = (precision @ pairs).reshape(-1, dim, dim)
    scale = 1.0 / np.sqrt(np.einsum("nii->ni", full))
    full *= scale[:, :, None] * scale[:, None, :]
    lower = np.linalg.cholesky(full + 1e-12 * np.eye(dim))
    noise = rng.normal(size=(len(precision), dim, 1))
    drawn = np.linalg.solve(np.swapaxes(lower, 1, 2), noise)[:, :, 0]
    return (drawn * scale) @ inverse.T


def begin(kind: Kind, n: int, rng: np.random.Generator, dim: int = 36) -> Experts:
    """Return experts before learning: random filters if complete, else the best complete ones."""
    if n == dim:
        return image_experts.start(kind, dim, rng)
    best = image_experts.learned(kind, dim)
    more = rng.normal(size=(n - dim, dim)) / np.sqrt(dim)
    if kind == "laplace":
        return Experts(kind, np.vstack([best.filters, 0.05 * more]), np.ones(n))
    return Experts(kind, np.vstack([best.filters, more]), np.r_[best.shape, np.full(n - dim, 0.02)])


def learned(kind: Kind, n: int, rounds: int = ROUNDS, keep: Path | None = None) -> Experts:
    """Learn experts from image patches by persistent chains, or take those of a folder.

    Complete ones, which begin at random filters, get `FROM_RANDOM` times the rounds.
    """
    rounds *= FROM_RANDOM if n == 36 else 1

    def anew() -> Experts:
        rng, data = np.random.default_rng([1, n]), patches().train
        first = begin(kind, n, rng)
        states = data[rng.integers(len(data), size=CHAINS)]
        return learn(first, data, rng, rounds, gibbs, states)

    return kept(keep, f"experts_{kind}_{n}_{rounds}", anew)


def spread(experts: Experts) -> float:
    """Root mean square of the elements of states that Gibbs sweeps end at, the widest tenth cut."""
    rng, data = np.random.default_rng(0), patches().train
    states = data[rng.integers(len(data), size=CHAINS)]
    for _ in range(SWEEPS):
        states, _ = gibbs(experts, states, 0.0, rng)
    squares = np.sort(np.mean(states**2, axis=1))
    return float(np.sqrt(squares[: round(0.9 * CHAINS)].mean()))


def estimates(
    experts: Experts, n_rungs: int, particles: int, seed: int, tempering: bool
) -> dict[str, tuple[float, float, float]]:
    """Log Z, its standard error and CPU seconds, by each method."""
    if len(experts.filters) == experts.filters.shape[1]:
        return {"exact": (experts.log_z(), 0.0, 0.0)}
    found, target = {}, experts.model(spread(experts))
    calls: dict[str, Callable[[], pmt.evidence.Evidence]] = {
        "HAIS": lambda: pmt.annealed.hais(
            target, n_particles=particles, betas=n_rungs, random_seed=seed, quiet=True,
            progressbar=False,
        ),
        "tempering": lambda: pmt.log_marginal_likelihood(
            pmt.sample(model=target, random_seed=seed, quiet=True, progressbar=False)
        ),
    }  # fmt: skip
    for name, call in list(calls.items())[: 1 + tempering]:
        began = process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # errors are in the table
            evidence = call()
        found[name] = evidence.log_z, evidence.mcse, process_time() - began
    return found


def picture(rows: Sequence[Row], path: Path) -> None:
    """Draw the log likelihood of test patches against the number of experts."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(5.4, 3.8), layout="constrained")
    for color, label in zip(("C0", "C3"), KINDS, strict=True):
        mine = [r for r in rows if r["kind"] == label and r["method"] != "tempering"]
        chains = [r for r in mine if r["learned by"] == "chains"]
        bars = [2.0 * float(r["mcse"]) if np.isfinite(float(r["mcse"])) else 0.0 for r in chains]
        axis.errorbar(
            [float(r["experts"]) for r in chains], [float(r["log likelihood"]) for r in chains],
            bars, color=color, marker="x", label=f"{label}, by chains",
        )  # fmt: skip
        best = [r for r in mine if r["learned by"] == "likelihood"]
        axis.plot(
            [float(r["experts"]) for r in best], [float(r["log likelihood"]) for r in best], "o",
            color=color, fillstyle="none", label=f"{label}, by likelihood",
        )  # fmt: skip
    axis.set(xlabel="experts", ylabel="log likelihood of test patches (nats)")
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    arguments = parser(__doc__, 1)
    arguments.add_argument("--experts", nargs="+", type=int, default=[36, 72, 144])
    arguments.add_argument("--rounds", type=int, default=ROUNDS)
    arguments.add_argument("--rungs", type=int, default=3000, help="of HAIS")
    arguments.add_argument("--particles", type=int, default=200, help="of HAIS")
    arguments.add_argument("--keep", type=Path, help="folder of learned models")
    arguments.add_argument("--tempering", action="store_true", help="log Z by pmt.sample, too")
    args = arguments.parse_args()
    rows: list[Row] = []
    data = patches()
    settings = {
        "learning": f"{args.rounds} updates of {CHAINS} chains, one Gibbs sweep each, and "
        f"{FROM_RANDOM} times as many for 36 experts; 10,000 patches of 36 components",
        "log likelihood": f"mean over {len(data.test)} other patches, nats; mcse: that of log Z",
        "HAIS": f"{args.particles} particles, {args.rungs} distributions, from a normal",
        "tempering": "`pmt.sample` by default",
        "cpu": "seconds, compiling included; learning: seconds too",
        "paper": "Table 1: 144 experts, other patches",
        "seed": str(args.seed),
    }
    for label, kind in KINDS.items():
        for how, n in [("likelihood", 36), *(("chains", n) for n in args.experts)]:
            began = process_time()
            by_chains = how == "chains"
            experts = (
                learned(kind, n, args.rounds, args.keep) if by_chains
                else image_experts.learned(kind)
            )  # fmt: skip
            spent = process_time() - began
            energy = float(experts.energy(data.test).mean())
            found = estimates(experts, args.rungs, args.particles, args.seed, args.tempering)
            for method, (log_z, mcse, seconds) in found.items():
                rows.append(
                    {
                        "kind": label, "experts": n, "learned by": how, "method": method,
                        "log likelihood": -energy - log_z, "mcse": mcse,
                        "train": -float(experts.energy(data.train).mean()) - log_z,
                        "paper": PAPER[label], "learning": spent, "cpu": seconds,
                    }
                )  # fmt: skip
                print(rows[-1], flush=True)
            save("image_overcomplete", rows, args.out, "Products of more experts", settings)
    picture(rows, args.out / "image_overcomplete.png")


if __name__ == "__main__":
    main()
