"""Initial iterations with and without Rao-Blackwellization (RTS paper, Figure 1).

A 784 x 10 machine that CD-1 trains on digits; exact log Z at every beta by enumeration; Z-hat = 1,
100 chains, 50 sweeps a round, betas drawn anew between rounds, as in section 2.4.

    python benchmarks rts_figure1 --updates 20000
"""

import argparse
import warnings
from pathlib import Path
from time import process_time

import numpy as np

from benchmarks.common import RESULTS, Row, save
from benchmarks.models.rbm_data import (
    RBM,
    BernoulliReference,
    digits,
    initial_iterations,
    trained_machine,
)
from pymc_tempering import TemperingWarning
from pymc_tempering.arrays import LearnedRounds

SHOWN = (1, 2, 4, 6, 8)
"""Rounds of the figure."""


def exact_curve(rbm: RBM, reference: BernoulliReference, betas: np.ndarray) -> np.ndarray:
    """Exact log Z at each beta, shape (K,): that of a machine with tempered parameters."""
    none = reference.log_none - rbm.n_hidden * np.log(2.0)
    found = []
    for beta in betas:
        bias = beta * rbm.visible_bias + (1.0 - beta) * reference.log_odds
        tempered = RBM(beta * rbm.weights, bias, beta * rbm.hidden_bias)
        found.append(tempered.exact_log_z() + (1.0 - beta) * none)
    return np.array(found)


def learn(
    rbm: RBM, reference: BernoulliReference, n_rungs: int, rounds: int, seed: int
) -> dict[str, LearnedRounds]:
    """Rounds by both ways, from the same seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)  # the rule fails by noise
        return {
            name: initial_iterations(
                rbm.density(reference), n_rungs, max_rounds=rounds, rao_blackwell=rao_blackwell,
                random_seed=seed,
            )
            for name, rao_blackwell in (("Rao-Blackwell", True), ("counts", False))
        }  # fmt: skip


def table(found: dict[str, LearnedRounds], exact: np.ndarray) -> list[Row]:
    """How far log Z-hat is off after each round, and the occupancies from even ones."""
    rows: list[Row] = []
    for name, learned in found.items():
        for i in range(learned.n_rounds):
            off = learned.log_z[i + 1] - exact
            share = learned.occupancy[i] * len(exact)
            rows.append(
                {
                    "way": name,
                    "round": i + 1,
                    "log Z off": float(off[-1]),
                    "RMSE over rungs": float(np.sqrt(np.mean(off**2))),
                    "max |r - c| K": float(np.abs(share - 1.0).max()),
                }
            )
    return rows


def picture(found: dict[str, LearnedRounds], exact: np.ndarray, path: Path) -> None:
    """Draw the curves of the figure: log Z-hat by rung, a panel a way."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 3.5), sharey=True)
    for axis, (name, learned) in zip(axes, found.items(), strict=True):
        for i in SHOWN:
            if i <= learned.n_rounds:
                axis.plot(learned.log_z[i], label=f"round {i}")
        axis.plot(exact, "k--", label="exact")
        axis.set(title=name, xlabel="rung", ylabel="log Z-hat (nats)")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=70)
    plt.close(figure)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--updates", type=int, default=20000, help="of CD-1")
    arguments.add_argument("--rungs", type=int, default=100)
    arguments.add_argument("--rounds", type=int, default=8)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--out", type=Path, default=RESULTS)
    args = arguments.parse_args()
    begin = process_time()
    rbm, reference = trained_machine(10, args.updates)
    exact = exact_curve(rbm, reference, np.linspace(0.0, 1.0, args.rungs))
    found = learn(rbm, reference, args.rungs, args.rounds, args.seed)
    settings = {
        "model": f"784 visible, 10 hidden units, CD-1, {args.updates} updates of 100 rows, on "
        f"{digits()[1]}; exact log Z {exact[-1]:.3f}",
        "run": f"{args.rungs} rungs, 100 chains, 50 sweeps a round",
        "seconds": f"{process_time() - begin:.0f} CPU seconds in all",
        "seed": str(args.seed),
    }
    save("rts_figure1", table(found, exact), args.out, "Initial iterations", settings)
    picture(found, exact, args.out / "rts_figure1.png")


if __name__ == "__main__":
    main()
