"""Published Bayes factors of R: their figures by quadrature, and one of them by sampling."""

import sys
from pathlib import Path

import numpy as np
import pytest

import pymc_tempering as pmt

# For these imports alone: it has modules named as folders of tests are.
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import r_factors_data as data
from r_factors import r_error
from r_factors_models import MODELS, exact_log_bf

sys.path.pop()

NOT_STATED = 1e-4
"""Relative error of figures that R printed without one."""


@pytest.mark.parametrize(
    "of", data.PUBLISHED, ids=lambda of: f"{of.data}: {of.upper}, {of.factor:g}"
)
def test_figures_of_r_are_those_of_quadrature(of):
    """So the data and the models are those of R; |z| < 3 of its errors."""
    error = r_error(of) if np.isfinite(of.error) else NOT_STATED
    assert abs(np.log(of.factor) - exact_log_bf(of)) < 3.0 * error


def test_the_factor_of_the_sleep_data_is_that_of_r():
    """|z| < 4.5: a false alarm in 1 of 150,000 seeds."""
    runs = [
        pmt.sample(300, model=MODELS["sleep", side](), random_seed=1, quiet=True, progressbar=False)
        for side in ("effect", "none")
    ]
    found = pmt.bayes_factor(*runs)
    assert abs(found.log_bf - np.log(17.25888)) < 4.5 * found.mcse < 0.3
    # Planted: that of the one-sided test, about twice as large, would be found.
    assert abs(found.log_bf - np.log(34.41694)) > 4.5 * found.mcse
