"""Overcomplete products of experts: learned by persistent chains, their log Z by several methods.

Sohl-Dickstein & Culpepper (2011), section 5.1, have four times as many experts as dimensions. Their
log Z is not known, and so the slope of the log likelihood is estimated: the mean slope of the
energy over the data less that over Hamiltonian chains which go on from update to update
(persistent contrastive divergence, Tieleman 2008). Complete products are learned in both ways, so
that it shows what the chains miss. Then log Z is found by `pmt.hais`, and by `pmt.sample` with its
fitted reference.

    python benchmarks/image_overcomplete.py
"""

import warnings
from collections.abc import Callable
from time import process_time

import image_experts
import numpy as np
from common import Row, parser, save
from image_experts import LEAST_SHAPE, Experts, Kind
from image_patches import patches

import pymc_tempering as pmt

CHAINS, LEAPS, ACCEPTED = 300, 6, 0.8
"""Chains, leapfrog steps between two updates, and the share of them that is to be accepted."""

ROUNDS, RATE, AVERAGED = 12_000, 0.02, 0.25
"""Updates, the first rate of Adam, and the last share of updates, whose mean is taken."""

KINDS: dict[str, Kind] = {"Laplace": "laplace", "Student-t": "student_t"}
PAPER = {"Laplace": -41.54, "Student-t": -34.01}
"""Table 1 of the paper, on its own patches, with 144 experts."""


def slope_of(experts: Experts, x: np.ndarray) -> np.ndarray:
    """Slope of the energy by the states (n, M)."""
    u = x @ experts.filters.T
    if experts.kind == "laplace":
        return np.sign(u) @ experts.filters
    return (2.0 * experts.shape * u / (1.0 + u**2)) @ experts.filters


def move(
    experts: Experts, x: np.ndarray, step: float, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """One Hamiltonian trajectory for each state (n, M), and the share that was accepted."""
    step = step * rng.uniform(0.8, 1.2)
    start = rng.normal(size=x.shape)
    place, momentum = x, start - 0.5 * step * slope_of(experts, x)
    for leap in range(LEAPS):
        place = place + step * momentum
        momentum = momentum - (0.5 if leap == LEAPS - 1 else 1.0) * step * slope_of(experts, place)
    gain = experts.energy(x) - experts.energy(place)
    gain += 0.5 * np.sum(start**2 - momentum**2, axis=1)
    accepted = np.log(rng.uniform(size=len(x))) < gain
    return np.where(accepted[:, None], place, x), float(accepted.mean())


def learn(kind: Kind, n: int, x: np.ndarray, rng: np.random.Generator, rounds: int) -> Experts:
    """Learn `n` experts from data (N, M), by Adam with persistent chains."""
    dim, size = x.shape[1], n * x.shape[1]
    shape = np.full(n, 1.0 if kind == "laplace" else 1.5 * dim / n)
    packed = np.r_[rng.normal(size=size) / np.sqrt(dim), np.log(np.maximum(shape, 0.6))]
    first, second, mean = np.zeros_like(packed), np.zeros_like(packed), np.zeros_like(packed)
    states, step, even = x[rng.integers(len(x), size=CHAINS)], 0.3, np.full(CHAINS, 1.0 / CHAINS)
    last = round(AVERAGED * rounds)
    for t in range(rounds):
        experts = unpacked(kind, packed, dim)
        states, accepted = move(experts, states, step, rng)
        step *= 1.02 if accepted > ACCEPTED else 0.98
        data = x[rng.integers(len(x), size=CHAINS)]
        pairs = zip(experts.slope(data, even), experts.slope(states, even), strict=True)
        slope = np.concatenate([(of_data - of_states).ravel() for of_data, of_states in pairs])
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        scale = np.sqrt(second / (1.0 - 0.999 ** (t + 1))) + 1e-8
        packed = packed - RATE * (1.0 - t / rounds) * first / (1.0 - 0.9 ** (t + 1)) / scale
        packed[size:] = np.maximum(packed[size:], np.log(LEAST_SHAPE)) if kind != "laplace" else 0.0
        mean += packed / last if t >= rounds - last else 0.0
    return unpacked(kind, mean, dim)


def unpacked(kind: Kind, packed: np.ndarray, dim: int) -> Experts:
    """Experts from filters and the logarithms of shapes in one vector."""
    n = packed.size // (dim + 1)
    return Experts(kind, packed[: n * dim].reshape(n, dim), np.exp(packed[n * dim :]))


def estimates(experts: Experts, n_rungs: int, seed: int) -> dict[str, tuple[float, float, float]]:
    """Log Z, its standard error and CPU seconds, by each method."""
    found = {}
    calls: dict[str, Callable[[], pmt.Evidence]] = {
        "HAIS": lambda: pmt.hais(
            experts.model(), n_particles=200, betas=n_rungs, random_seed=seed, quiet=True,
            progressbar=False,
        ),
        "tempering": lambda: pmt.log_marginal_likelihood(
            pmt.sample(model=experts.model(), random_seed=seed, quiet=True, progressbar=False)
        ),
    }  # fmt: skip
    for name, call in calls.items():
        began = process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # errors are in the table
            evidence = call()
        found[name] = evidence.log_z, evidence.mcse, process_time() - began
    return found


def main() -> None:
    arguments = parser(__doc__, 1)
    arguments.add_argument("--experts", nargs="+", type=int, default=[36, 72, 144])
    arguments.add_argument("--rounds", type=int, default=ROUNDS)
    arguments.add_argument("--rungs", type=int, default=3000, help="of HAIS")
    args = arguments.parse_args()
    rows: list[Row] = []
    data = patches()
    for label, kind in KINDS.items():
        oracle = image_experts.learned(kind)
        trained = {"likelihood, 36": oracle} | {
            f"chains, {n}": learn(
                kind, n, data.train, np.random.default_rng([args.seed, n]), args.rounds
            )
            for n in args.experts
        }
        for how, experts in trained.items():
            energy = float(experts.energy(data.test).mean())
            square = len(experts.shape) == data.train.shape[1]
            exact = -energy - experts.log_z() if square else float("nan")
            for method, (log_z, mcse, seconds) in estimates(experts, args.rungs, args.seed).items():
                rows.append(
                    {
                        "experts": label, "learned by": how, "method": method,
                        "log likelihood": -energy - log_z, "mcse": mcse, "exact": exact,
                        "paper": PAPER[label], "cpu": seconds,
                    }
                )  # fmt: skip
                print(rows[-1], flush=True)
            settings = {
                "learning": f"{args.rounds} updates, {CHAINS} chains, {LEAPS} leapfrog steps "
                "between two of them; 10,000 patches of 36 components",
                "log likelihood": f"mean over {len(data.test)} other patches, nats",
                "HAIS": f"200 particles, {args.rungs} distributions from a standard normal",
                "tempering": "`pmt.sample` by default",
                "cpu": "seconds, compiling included",
                "paper": "Table 1: 144 experts, other patches",
                "seed": str(args.seed),
            }
            save("image_overcomplete", rows, args.out, "Products of more experts", settings)


if __name__ == "__main__":
    main()
