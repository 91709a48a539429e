"""Tests of work on threads."""

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from pymc_tempering.core.threads import run_tasks


def of_linear_algebra() -> set[int]:
    """Return how many threads the libraries of linear algebra may have."""
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_linear_algebra_has_one_thread_in_a_task_and_its_own_after_it() -> None:
    np.linalg.cholesky(np.eye(2))
    with threadpool_limits(2, "blas"):
        before = of_linear_algebra()
        inside, _ = run_tasks([lambda stop: of_linear_algebra()] * 3, cores=2)
        assert (before, of_linear_algebra()) == ({2}, {2})
    assert inside == [{1}] * 3
