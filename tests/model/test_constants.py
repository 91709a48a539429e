"""PyMC's densities integrate to one, whatever their parameters; the exceptions are known by name.

A constant that is missing and depends on a parameter makes evidences and posteriors wrong where
that parameter is unknown. `benchmarks/errors/constants.py` integrates all densities, this
a fair sample.
"""

import numpy as np
import pymc as pm
import pytensor
import pytest
from pytensor.compile.mode import Mode
from scipy.integrate import tanhsinh
from scipy.special import logsumexp

TOLERANCE = 1e-6
"""Largest log integral (nats); those of these cases are below 1e-9 where nothing is missing."""

NAMES = """
AR AsymmetricLaplace Bernoulli Beta BetaBinomial Binomial Categorical Cauchy Censored ChiSquared
DiracDelta Dirichlet DirichletMultinomial DiscreteUniform DiscreteWeibull EulerMaruyama ExGaussian
Exponential Gamma GARCH11 GaussianRandomWalk Geometric Gumbel HalfCauchy HalfNormal HalfStudentT
HurdleGamma HurdleLogNormal HurdleNegativeBinomial HurdlePoisson HyperGeometric Interpolated
InverseGamma KroneckerNormal Kumaraswamy Laplace LKJCholeskyCov LKJCorr Logistic LogitNormal
LogNormal Lognormal MatrixNormal Mixture Moyal Multinomial MvGaussianRandomWalk MvNormal
MvStudentT MvStudentTRandomWalk NegativeBinomial Normal NormalMixture OrderedLogistic
OrderedMultinomial OrderedProbit Pareto Poisson RandomWalk Rice SkewNormal SkewStudentT
StickBreakingWeights StudentT Triangular Truncated TruncatedNormal Uniform VonMises Wald Weibull
Wishart WishartBartlett ZeroInflatedBinomial ZeroInflatedNegativeBinomial ZeroInflatedPoisson
ZeroSumNormal
"""
NORMALIZED = set(NAMES.split())
MENDED, IMPROPER, UNCHECKED = {"CAR", "ICAR"}, {"Flat", "HalfFlat"}, {"PolyaGamma"}
OF_THE_USER = {"CustomDist", "DensityDist", "Simulator"}
BASES = {"Continuous", "Discrete", "Distribution", "SymbolicRandomVariable"}

REAL, POSITIVE, UNIT = (-np.inf, np.inf), (0.0, np.inf), (0.0, 1.0)
DENSITIES = [
    ("Normal", "mu sigma", REAL, (0.0, 0.3), (2.0, 9.0)),
    ("Cauchy", "alpha beta", REAL, (0.0, 0.3), (2.0, 9.0)),
    ("Laplace", "mu b", REAL, (0.0, 0.3), (2.0, 9.0)),
    ("Logistic", "mu s", REAL, (0.0, 0.3), (2.0, 9.0)),
    ("Gumbel", "mu beta", REAL, (0.0, 0.3), (2.0, 9.0)),
    ("Moyal", "mu sigma", REAL, (0.0, 0.3), (2.0, 9.0)),
    ("StudentT", "nu mu sigma", REAL, (2.0, 0.0, 0.3), (30.0, 2.0, 9.0)),
    ("SkewNormal", "mu sigma alpha", REAL, (0.0, 0.3, -3.0), (2.0, 9.0, 1.0)),
    ("ExGaussian", "mu sigma nu", REAL, (0.0, 0.3, 1.0), (2.0, 9.0, 0.3)),
    ("AsymmetricLaplace", "b kappa mu", REAL, (0.3, 0.5, 0.0), (3.0, 2.0, 2.0)),
    ("HalfNormal", "sigma", POSITIVE, (0.3,), (9.0,)),
    ("HalfCauchy", "beta", POSITIVE, (0.3,), (9.0,)),
    ("HalfStudentT", "nu sigma", POSITIVE, (2.0, 0.3), (30.0, 9.0)),
    ("Exponential", "lam", POSITIVE, (0.3,), (9.0,)),
    ("Gamma", "alpha beta", POSITIVE, (0.6, 0.3), (9.0, 5.0)),
    ("InverseGamma", "alpha beta", POSITIVE, (1.5, 0.3), (9.0, 5.0)),
    ("Weibull", "alpha beta", POSITIVE, (0.8, 0.3), (3.0, 5.0)),
    ("LogNormal", "mu sigma", POSITIVE, (0.0, 0.3), (1.0, 1.5)),
    ("Rice", "nu sigma", POSITIVE, (0.3, 1.0), (3.0, 0.5)),
    ("Wald", "mu lam", POSITIVE, (0.5, 1.0), (2.0, 5.0)),
    ("Beta", "alpha beta", UNIT, (0.5, 0.7), (9.0, 2.0)),
    ("Kumaraswamy", "a b", UNIT, (0.5, 0.7), (9.0, 2.0)),
    ("VonMises", "mu kappa", (-np.pi, np.pi), (0.0, 0.1), (1.0, 9.0)),
    ("TruncatedNormal", "mu sigma lower upper", UNIT, (0.0, 0.3, 0.0, 1.0), (-5.0, 1.0, 0.0, 1.0)),
]
COUNTS = [
    ("Bernoulli", "p", (0.1,), (0.9,)),
    ("Binomial", "n p", (4, 0.1), (30, 0.9)),
    ("BetaBinomial", "n alpha beta", (4, 0.3, 2.0), (30, 9.0, 2.0)),
    ("Poisson", "mu", (0.1,), (30.0,)),
    ("NegativeBinomial", "mu alpha", (0.1, 0.3), (30.0, 9.0)),
    ("Geometric", "p", (0.1,), (0.9,)),
    ("DiscreteWeibull", "q beta", (0.2, 0.6), (0.9, 2.0)),
    ("DiscreteUniform", "lower upper", (0, 3), (2, 9)),
    ("HyperGeometric", "N k n", (10, 3, 5), (30, 20, 9)),
    ("ZeroInflatedPoisson", "psi mu", (0.1, 0.3), (0.9, 9.0)),
    ("HurdleNegativeBinomial", "psi mu alpha", (0.1, 0.3, 0.3), (0.9, 9.0, 3.0)),
]


def density_of(name, parameters, settings):
    """Function of values and parameters that holds the log density, compiled once."""
    inputs = [pytensor.tensor.scalar(dtype=np.asarray(s).dtype) for s in settings[0]]
    law = getattr(pm, name).dist(**dict(zip(parameters.split(), inputs, strict=True)))
    value = pytensor.tensor.vector(dtype=law.dtype)
    mode = Mode("py", "fast_run").excluding("fusion")
    f = pytensor.function([value, *inputs], pm.logp(law, value), mode=mode)
    return lambda x, setting: f(x.ravel(), *setting).reshape(x.shape)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("name", "parameters", "ends", "first", "second"), DENSITIES)
def test_densities_integrate_to_one(name, parameters, ends, first, second):
    log_p = density_of(name, parameters, (first, second))
    for setting in (first, second):
        low, high = ends
        middle = [0.0, 2.0] if ends[0] < 0.0 else [0.5]  # where the Laplace laws have a corner
        edges = np.array([low, *middle, high])
        found = tanhsinh(lambda x, s=setting: np.exp(log_p(x, s)), edges[:-1], edges[1:])
        assert abs(np.log(found.integral.sum())) < TOLERANCE, setting


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("name", "parameters", "first", "second"), COUNTS)
def test_probabilities_of_counts_sum_to_one(name, parameters, first, second):
    log_p = density_of(name, parameters, (first, second))
    for setting in (first, second):
        assert abs(logsumexp(log_p(np.arange(2000), setting))) < TOLERANCE, setting


def test_a_missing_constant_is_found():
    """PyMC leaves zero out of this law, and counts it in its constant."""
    law = pm.Truncated.dist(pm.Poisson.dist(1.3), lower=0.5)
    total = logsumexp(pm.logp(law, np.arange(100)).eval(mode="FAST_COMPILE"))
    assert total == pytest.approx(np.log(1.0 - np.exp(-1.3)))


def test_every_distribution_of_pymc_is_known():
    known = NORMALIZED | MENDED | IMPROPER | UNCHECKED | OF_THE_USER | BASES
    new = sorted(set(pm.distributions.__all__) - known)
    assert not new, (
        f"PyMC has new distributions: {new}. Add them to benchmarks/errors/constants.py, see if "
        "their density is normalized for all parameters, and add their names here."
    )
