"""What pymbar says of the states of a run: log Z of every rung, and its own error of the last."""

import warnings

import numpy as np
import pytest


def pymbar_answers(log_ratio, rung, betas):
    """log Z_k (K,) and the error of the last one (nats), which takes states for independent."""
    pymbar = pytest.importorskip("pymbar")
    counts = np.bincount(rung, minlength=betas.size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of options of its own
        solved = pymbar.MBAR(
            -np.multiply.outer(betas, log_ratio),
            counts,
            relative_tolerance=1e-12,
            maximum_iterations=500,
            solver_protocol="robust",
        )
    error = solved.compute_free_energy_differences()["dDelta_f"][0, -1]
    return solved.f_k[0] - solved.f_k, float(error)


def pymbar_error(run):
    """pymbar's own error from the states of a run that count."""
    used = run.pieces.counted[run.piece]
    return pymbar_answers(run.trace.log_ratio[used], run.trace.rung[used], run.stats.beta)[1]
