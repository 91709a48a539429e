"""Log likelihoods tracked while an RBM is trained, with AIS beside (RTS paper, Figure 5).

180 x 500 on the dna data. CD-1 first; then tempered persistent chains, whose log ratios are all
that the tracker needs. Chains, sweeps and updates are fewer than the paper's 2,000, 25 and 8,000,
and steps are those of plain gradient ascent.

    python benchmarks/rts_figure5.py --updates 2000 --chains 200 --sweeps 10
"""

import argparse
import warnings
from pathlib import Path
from time import process_time

import numpy as np
from common import RESULTS, Row, save
from rbm_data import dna
from rbm_density import data_marginals
from rbm_training import TrainingStep, first_machine, train, train_tracked

from pymc_tempering import TemperingWarning
from pymc_tempering.arrays import annealing


def checkpoint(step: TrainingStep, data: np.ndarray, held: np.ndarray, rungs: int) -> Row:
    """One row: what the tracker says and what AIS says of the same parameters."""
    density = step.rbm.density(data_marginals(data))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        ais = annealing(density, np.linspace(0.0, 1.0, rungs)).ais(100, random_seed=step.update)
    return {
        "update": step.update,
        "log Z tracked": step.log_z,
        "its error": step.mcse,
        "log Z AIS": ais.log_z,
        "error of AIS": ais.mcse,
        "difference": step.log_z - ais.log_z,
        "train": step.train,
        "validation": step.validation,
        "train, AIS": step.rbm.log_likelihood(data, ais.log_z),
        "validation, AIS": step.rbm.log_likelihood(held, ais.log_z),
    }


def picture(rows: list[Row], path: Path) -> None:
    """Draw the log likelihoods against updates."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 3.5))
    x = [float(row["update"]) for row in rows]
    for name, style in (
        ("train", "C0-"),
        ("validation", "C1-"),
        ("train, AIS", "C0x"),
        ("validation, AIS", "C1x"),
    ):
        axis.plot(x, [float(row[name]) for row in rows], style, label=name)
    axis.set(xlabel="update", ylabel="mean log likelihood (nats)")
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=70)
    plt.close(figure)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--updates", type=int, default=2000)
    arguments.add_argument("--chains", type=int, default=200)
    arguments.add_argument("--sweeps", type=int, default=10)
    arguments.add_argument("--hidden", type=int, default=500)
    arguments.add_argument("--pretrain", type=int, default=1000, help="updates of CD-1")
    arguments.add_argument("--rate", type=float, default=0.01)
    arguments.add_argument("--checkpoints", type=int, default=20)
    arguments.add_argument("--ais-rungs", type=int, default=3000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--out", type=Path, default=RESULTS)
    args = arguments.parse_args()
    data, held, source = dna()
    rng, begin = np.random.default_rng(args.seed), process_time()
    start = first_machine(data, args.hidden, rng)
    start = train(start, data, args.pretrain, rate=0.05, random_seed=rng)
    every, rows = max(1, args.updates // args.checkpoints), []
    steps = train_tracked(
        start, data, args.updates, validation=held, chains=args.chains, sweeps=args.sweeps,
        rate=args.rate, random_seed=rng,
    )  # fmt: skip
    in_ais = 0.0
    for step in steps:
        if step.update % every == every - 1:
            before = process_time()
            rows.append(checkpoint(step, data, held, args.ais_rungs))
            in_ais += process_time() - before
            print(rows[-1], flush=True)
    late = [abs(float(row["difference"])) for row in rows[max(1, len(rows) // 10) :]]
    best = max(rows, key=lambda row: float(row["validation"]))
    settings = {
        "data": f"{source}, {len(data)} training and {len(held)} validation rows of 180 bits",
        "run": f"180 x {args.hidden}, 100 rungs, {args.chains} chains, {args.sweeps} sweeps an "
        f"update, rate {args.rate}, after {args.pretrain} updates of CD-1 (the paper: 2,000 chains "
        "x 25 sweeps, 8,000 updates)",
        "AIS": f"100 particles, {args.ais_rungs} rungs",
        "mean absolute difference after the first tenth": f"{np.mean(late):.3f} nats",
        "best validation": f"{float(best['validation']):.2f} at update {best['update']}",
        "seconds": f"{process_time() - begin - in_ais:.0f} CPU seconds of training with its "
        f"tracker, {in_ais:.0f} of AIS",
        "seed": str(args.seed),
    }
    save("rts_figure5", rows, args.out, "Log likelihoods tracked while training", settings)
    picture(rows, args.out / "rts_figure5.png")


if __name__ == "__main__":
    main()
