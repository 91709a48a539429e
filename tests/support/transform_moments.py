"""Posterior means and squares of `all_transforms` from long NUTS runs, kept in a file.

NUTS has to compile this model for half a minute, which no test should wait for. To make the file
anew after a change of the model: ``PYTHONPATH=tests python -m support.transform_moments``.
"""

import json
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm

from support.small_models import all_transforms

FILE = Path(__file__).with_suffix(".json")


def statistics(name):
    """What of a variable is compared: an angle has no mean, but its cosine has."""
    return (np.cos, np.sin) if name == "angle" else (np.positive, np.square)


def moments(idata):
    """Mean and its standard error of each statistic of each variable, by name."""
    return {
        f"{name} {statistic.__name__}": [
            np.ravel(values.mean(("chain", "draw")).values).tolist(),
            np.ravel(az.mcse(values).values).tolist(),
        ]
        for name in idata.posterior.data_vars
        for statistic in statistics(name)
        for values in [statistic(idata.posterior[name])]
    }


def kept_moments():
    """Moments of the long runs."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def main():
    """Sample for long, and write the file."""
    started = all_transforms(cuts=[-0.5, 0.5, 1.5])  # NUTS needs an ordered point to start from
    nuts = pm.sample(
        10_000, tune=2000, model=started, chains=4, cores=1, random_seed=3, nuts_sampler="nutpie",
        progressbar=False,
    )  # fmt: skip
    print(az.rhat(nuts).max())
    FILE.write_text(json.dumps(moments(nuts)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
