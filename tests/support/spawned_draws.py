"""Print draws of one process, which may compile the model, and of two spawned ones, which load it.

To be run by itself.
"""

import hashlib

import numpy as np
import pymc as pm

import pymc_tempering as pmt
from support.compiled_systems import system


def fingerprint(cores, **context):
    model = system("gaussian").model
    step = pmt.SimulatedTempering(model=model, random_seed=1, reference="prior")
    idata = pm.sample(
        40,
        step=step,
        model=model,
        chains=2,
        cores=cores,
        random_seed=2,
        progressbar=False,
        quiet=True,
        compute_convergence_checks=False,
        **context,
    )
    draws = np.concatenate([idata.posterior["x"].values, idata.sample_stats["rb_weight"].values], 2)
    return hashlib.sha256(draws.tobytes()).hexdigest()


if __name__ == "__main__":
    print(fingerprint(1), fingerprint(2, mp_ctx="spawn"))
