"""Print draws of one process and of two that are spawned: to be run by itself.

A process that compiles a model for the first time gets other last bits from LLVM (PyTensor lets
it reorder sums) than those that load it from the disk cache, and the chains part after some
iterations. So run it twice, and believe the second time.
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
