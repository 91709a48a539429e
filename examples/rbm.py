"""An RBM trained on small pictures: its log Z, its likelihood of test data, and its training.

Run it with `python examples/rbm.py`; it takes about half a minute. Bars and stripes are 6 x 6
pictures in which whole rows, or whole columns, are on. With 12 hidden units log Z is known exactly.
"""

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # small products are slower on many threads

import numpy as np  # noqa: E402
from rbm_density import RBM, data_marginals  # noqa: E402
from rbm_training import train, train_tracked  # noqa: E402

import pymc_tempering as pmt  # noqa: E402

SIDE, HIDDEN = 6, 12


def bars_and_stripes(n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw n pictures with a little noise, shape (n, 36)."""
    lines = rng.random((n, SIDE, 1)) < 0.5
    pictures = np.where(rng.random((n, 1, 1)) < 0.5, lines, np.swapaxes(lines, 1, 2))
    pictures = np.broadcast_to(pictures, (n, SIDE, SIDE))
    flips = rng.random((n, SIDE, SIDE)) < 0.02
    return (pictures ^ flips).reshape(n, -1).astype(np.float32)


def main() -> None:
    rng = np.random.default_rng(1)
    data, test = bars_and_stripes(1000, rng), bars_and_stripes(500, rng)
    reference = data_marginals(data)
    start = RBM(0.05 * rng.normal(size=(SIDE**2, HIDDEN)), reference.log_odds, np.zeros(HIDDEN))

    print("Mean log likelihood of test data, after training by")
    machines = {}
    for name, settings in {
        "CD-1": {"method": "cd"},
        "CD-10": {"method": "cd", "sweeps": 10},
        "PCD": {"method": "pcd", "sweeps": 5},
    }.items():
        rbm = train(start, data, 4000, rate=0.05, random_seed=1, **settings)
        machines[name] = rbm
        print(f"  {name:<12} {rbm.log_likelihood(test, rbm.exact_log_z()):.2f} nats")

    # Tempered chains, whose log ratios follow log Z on the way; stop when validation gets worse.
    steps = list(
        train_tracked(
            machines["CD-1"], data, 1000, validation=test, n_rungs=20, chains=100, sweeps=5,
            rate=0.05, patience=300, random_seed=1,
        )
    )  # fmt: skip
    best = max(steps, key=lambda step: step.validation)
    exact = best.rbm.log_likelihood(test, best.rbm.exact_log_z())
    # The best of many noisy values flatters: judge the machine that it picks by a fresh log Z.
    tracked = f"{best.validation:.2f} ± {best.mcse:.2f}"
    print(f"  tempered PCD {exact:.2f} nats at update {best.update}, tracked there as {tracked}")

    rbm = best.rbm
    density = rbm.density(reference)
    run = pmt.arrays.temper(density, 2000, random_seed=1)
    print(f"\nExact log Z of that machine: {rbm.exact_log_z():.3f}\n\n{run.evidence()}\n")
    print(run.diagnose().verdict)

    ways = pmt.arrays.annealing(density, random_seed=1)
    states, chain = run.cold_states()
    print(f"\n{ways.sandwich(states[-2000:], chain[-2000:], random_seed=1)}")
    bounds = ways.raise_(test[:100], rbm.complete, random_seed=1)
    exact = rbm.log_likelihood(test[:100], rbm.exact_log_z())
    print(f"\nRAISE of 100 test pictures: {bounds.mean:.2f} nats, exactly {exact:.2f}")


if __name__ == "__main__":
    main()
