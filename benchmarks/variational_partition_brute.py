"""log C(T) of the mixture of Fig. 1 of Mandt et al. (2016), with free means, by brute force.

c depends on the distance of the two means alone, so that C(T) is an integral over the distance of
an integral over x: both are done on fine grids here, and by `log_partition` beside them.
"""

import argparse
from pathlib import Path
from time import process_time

import numpy as np
import pymc as pm
from common import RESULTS, Row, save
from scipy.special import logsumexp
from scipy.stats import norm

import pymc_tempering as pmt

N, PRIOR = 20, 3.0
TEMPERATURES = (1.0, 2.0, 5.0, 20.0)


def brute_force(temperature: float) -> float:
    """Riemann sum over x and trapezoidal rule over the distance, which is a folded normal."""
    distance = np.linspace(0.0, 12.0 * PRIOR, 1201)
    x = np.linspace(-400.0, 440.0, 80_001)
    log_c = np.array([
        logsumexp(np.logaddexp(norm.logpdf(x), norm.logpdf(x, d)) / temperature)
        for d in distance
    ])  # fmt: skip
    log_c += np.log(x[1] - x[0]) - np.log(2.0) / temperature
    weight = np.full(distance.size, distance[1])
    weight[[0, -1]] *= 0.5
    density = np.log(2.0) + norm.logpdf(distance, 0.0, np.sqrt(2.0) * PRIOR)
    return float(logsumexp(N * log_c + density + np.log(weight)))


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--out", type=Path, default=RESULTS)
    options = args.parse_args()
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, PRIOR, shape=2)
        pm.NormalMixture("x", [0.5, 0.5], mu, 1.0, observed=np.zeros(N))
    began = process_time()
    found = pmt.variational.log_partition(model, TEMPERATURES, random_seed=1)
    seconds = process_time() - began
    exact = np.array([brute_force(T) for T in TEMPERATURES])
    rows: list[Row] = [
        {
            "T": T,
            "log C(T)": float(value),
            "mcse": float(error),
            "brute force": float(truth),
            "off, %": float(100.0 * abs(value / truth - 1.0)) if T > 1.0 else 0.0,
        }
        for T, value, error, truth in zip(TEMPERATURES, found.log_c, found.mcse, exact, strict=True)
    ]
    settings = {
        "model": f"NormalMixture, weights 0.5, sd 1, two means ~ Normal(0, {PRIOR:g}), {N} data",
        "CPU seconds of log_partition": f"{seconds:.0f}, compilation included",
    }
    save("variational_partition_brute", rows, options.out, "log C(T) of a normal mixture", settings)


if __name__ == "__main__":
    main()
