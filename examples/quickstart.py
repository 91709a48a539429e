"""Which measurements predict the progress of diabetes? Three regressions, compared by evidence.

The models are conjugate, so that the exact log evidence can be printed beside ours.
Run with `make example`.
"""

import warnings
from time import perf_counter

import arviz as az
import numpy as np
from sklearn.datasets import load_diabetes

import pymc_tempering as pmt

COVARIATES = {
    "body mass": ["bmi"],
    "body mass, pressure, lipids": ["bmi", "bp", "s5"],
    "all ten": ["age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"],
}


def standardize(values: np.ndarray) -> np.ndarray:
    """Center each column and scale it to unit variance."""
    return (values - values.mean(axis=0)) / values.std(axis=0)


def main() -> None:
    """Sample each model, print the evidence beside the exact one, and compare."""
    data = load_diabetes()
    y = standardize(data.target)
    runs, exact = {}, {}
    for name, columns in COVARIATES.items():
        X = standardize(data.data[:, [data.feature_names.index(column) for column in columns]])
        # coef ~ Normal(0, sigma), sigma2 ~ InverseGamma(3, 2); any PyMC model would do here.
        system = pmt.testsystems.normal_inverse_gamma_regression(X, y, prior_scale=1.0)
        started = perf_counter()
        with system.model:
            runs[name] = pmt.sample(draws=5000, random_seed=20, progressbar="combined")
        evidence = pmt.log_marginal_likelihood(runs[name])
        exact[name] = system.log_evidence
        z = (evidence.log_z - exact[name]) / evidence.mcse
        print(
            f"{name}: log evidence {evidence.log_z:.3f} ± {evidence.mcse:.3f}, "
            f"exact {exact[name]:.3f}, off by {z:+.1f} standard errors "
            f"({perf_counter() - started:.1f} s)\n"
        )
        if abs(z) > 3 or evidence.mcse > 0.05:
            raise SystemExit("The estimate is not within 3 standard errors, or not precise.")

    print(pmt.compare(runs).to_string(float_format="{:.3f}".format), "\n")
    middle, full = runs["body mass, pressure, lipids"], runs["all ten"]
    print(pmt.bayes_factor(middle, full), "\n")
    print(pmt.diagnose(middle), "\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        print(az.summary(middle, var_names=["coef", "sigma2"]))


if __name__ == "__main__":
    main()
