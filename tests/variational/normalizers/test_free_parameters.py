"""Every distribution that PyMC can observe, with all parameters free: a normalizer, or why not."""

import inspect
from time import process_time

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc import distributions as every
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

import pymc_tempering as pmt
from pymc_tempering.variational.normalizers.likelihood_terms import parameters_needed, term_totals

SECONDS = 20.0
"""CPU time for one distribution, that of a slow and busy machine."""

N = 4
COUNTS, REALS, SHARES = (
    np.array([1, 2, 0, 3]),
    np.array([0.3, 0.6, 0.2, 0.7]),
    np.full((2, 3), 1 / 3),
)
TWO = np.zeros((N, 2))


def mixture(kind):
    """Mixture of two components, one a HalfNormal or of the same kind, with free weights."""

    def make(a, b, **kwargs):
        w = pm.Dirichlet("w", np.ones(2))
        if kind == "along an axis":
            parts = pm.Normal.dist(pt.stack([a, -a]), pt.stack([b, 2 * b]), shape=(N, 2))
        else:
            parts = [pm.Normal.dist(a, b), pm.Normal.dist(-a, 2.0)]
        return pm.Mixture("y", w, parts, **kwargs)

    return make


def two(dist, *args):
    """Function that makes an observed variable whose parameters are the first of a and b."""
    return lambda a, b, **kwargs: dist("y", *[a, b][: len(args) or 2], **kwargs)


def with_base(dist, base, **bounds):
    return lambda a, b, **kwargs: dist("y", base(a, b), **bounds, **kwargs)


R, C = {"observed": REALS}, {"observed": COUNTS}
# name: (how to make it from two positive free scalars, data)
FREE = {
    **{
        name: (two(getattr(pm, name)), R)
        for name in [
            "Beta",
            "Cauchy",
            "Gamma",
            "Gumbel",
            "HalfStudentT",
            "InverseGamma",
            "Kumaraswamy",
            "Laplace",
            "LogNormal",
            "Logistic",
            "LogitNormal",
            "Moyal",
            "Normal",
            "Rice",
            "VonMises",
            "Wald",
            "Weibull",
        ]
    },
    **{
        name: (two(getattr(pm, name), "a"), R)
        for name in ["ChiSquared", "Exponential", "HalfCauchy", "HalfNormal"]
    },
    "AsymmetricLaplace": (
        lambda a, b, **k: pm.AsymmetricLaplace("y", kappa=a, mu=0.0, b=b, **k),
        R,
    ),
    "ExGaussian": (lambda a, b, **k: pm.ExGaussian("y", mu=0.1, sigma=a, nu=b, **k), R),
    "PolyaGamma": (lambda a, b, **k: pm.PolyaGamma("y", h=a, z=b, **k), R),
    "Pareto": (lambda a, b, **k: pm.Pareto("y", alpha=a, m=b / 100, **k), R),
    "SkewNormal": (lambda a, b, **k: pm.SkewNormal("y", mu=0.0, sigma=a, alpha=b, **k), R),
    "SkewStudentT": (lambda a, b, **k: pm.SkewStudentT("y", a=a, b=b, mu=0, sigma=1, **k), R),
    "StudentT": (lambda a, b, **k: pm.StudentT("y", nu=a, mu=0.0, sigma=b, **k), R),
    "Triangular": (lambda a, b, **k: pm.Triangular("y", 0.0, b + 1, c=b, **k), R),
    "TruncatedNormal": (lambda a, b, **k: pm.TruncatedNormal("y", a, b, lower=-1, upper=2, **k), R),
    "Uniform": (lambda a, b, **k: pm.Uniform("y", -a, b, **k), R),
    "HurdleGamma": (lambda a, b, **k: pm.HurdleGamma("y", psi=a / 9, alpha=a, beta=b, **k), R),
    "HurdleLogNormal": (
        lambda a, b, **k: pm.HurdleLogNormal("y", psi=a / 9, mu=a, sigma=b, **k),
        R,
    ),
    "Mixture": (mixture("along an axis"), R),
    "NormalMixture": (
        lambda a, b, **k: pm.NormalMixture("y", [0.3, 0.7], pt.stack([a, -a]), b, **k),
        R,
    ),
    "Mixture of two": (mixture("listed"), R),
    "Mixture of counts": (
        lambda a, b, **k: pm.Mixture(
            "y",
            pm.Dirichlet("w", np.ones(2)),
            pm.NegativeBinomial.dist(mu=pt.stack([a, 2 * a]), alpha=b, shape=(N, 2)),
            **k,
        ),
        C,
    ),
    "Interpolated": (
        lambda a, b, **k: pm.Interpolated("y", np.array([-2.0, 0.0, 2.0]), np.eye(3)[1], **k),
        R,
    ),
    "Truncated": (with_base(pm.Truncated, pm.Gamma.dist, upper=3.0), R),
    "Truncated counts": (with_base(pm.Truncated, lambda a, b: pm.Poisson.dist(a), upper=9), C),
    "Censored": (with_base(pm.Censored, pm.Normal.dist, lower=-1.0, upper=2.0), R),
    "Censored counts": (
        with_base(pm.Censored, lambda a, b: pm.Poisson.dist(a), lower=None, upper=9),
        C,
    ),
    "CustomDist": (
        lambda a, b, **k: pm.CustomDist(
            "y", a, logp=lambda x, s: -x / s - pt.log(s) - 2 * pt.softplus(-x / s), **k
        ),
        R,
    ),
    "Bernoulli": (lambda a, b, **k: pm.Bernoulli("y", a / 9, **k), {"observed": [0, 1]}),
    "BetaBinomial": (lambda a, b, **k: pm.BetaBinomial("y", a, b, n=5, **k), C),
    "Binomial": (lambda a, b, **k: pm.Binomial("y", 5, a / 9, **k), C),
    "Categorical": (lambda a, b, **k: pm.Categorical("y", logit_p=pt.stack([a, b, 0.0]), **k), C),
    "DiracDelta": (lambda a, b, **k: pm.DiracDelta("y", a, **k), R),
    "DiscreteUniform": (lambda a, b, **k: pm.DiscreteUniform("y", -a, b, **k), C),
    "DiscreteWeibull": (lambda a, b, **k: pm.DiscreteWeibull("y", a / 9, b, **k), C),
    "Geometric": (lambda a, b, **k: pm.Geometric("y", a / 9, **k), C),
    "HyperGeometric": (lambda a, b, **k: pm.HyperGeometric("y", 9 + a, 5, 4, **k), C),
    "NegativeBinomial": (lambda a, b, **k: pm.NegativeBinomial("y", mu=a, alpha=b, **k), C),
    "OrderedLogistic": (lambda a, b, **k: pm.OrderedLogistic("y", a, pt.stack([0, b]), **k), C),
    "OrderedProbit": (lambda a, b, **k: pm.OrderedProbit("y", a, pt.stack([0, b]), **k), C),
    "Poisson": (lambda a, b, **k: pm.Poisson("y", a, **k), C),
    "ZeroInflatedPoisson": (lambda a, b, **k: pm.ZeroInflatedPoisson("y", a / 9, b, **k), C),
    "ZeroInflatedBinomial": (
        lambda a, b, **k: pm.ZeroInflatedBinomial("y", a / 9, 5, b / 9, **k),
        C,
    ),
    "ZeroInflatedNegativeBinomial": (
        lambda a, b, **k: pm.ZeroInflatedNegativeBinomial("y", a / 9, mu=a, alpha=b, **k),
        C,
    ),
    "HurdlePoisson": (lambda a, b, **k: pm.HurdlePoisson("y", a / 9, b, **k), C),
    "HurdleNegativeBinomial": (
        lambda a, b, **k: pm.HurdleNegativeBinomial("y", a / 9, mu=a, alpha=b, **k),
        C,
    ),
    "MvNormal": (lambda a, b, **k: pm.MvNormal("y", [a, a], b * np.eye(2), **k), {"observed": TWO}),
    "MvStudentT": (
        lambda a, b, **k: pm.MvStudentT("y", nu=9 + a, mu=np.zeros(2), scale=b * np.eye(2), **k),
        {"observed": TWO},
    ),
}
REFUSED = {
    "OrderedMultinomial": (
        lambda a, b, **k: pm.OrderedMultinomial("y", a, pt.stack([0, b]), n=3, **k),
        {"observed": [1, 2, 0]},
    ),
    "Dirichlet": (
        lambda a, b, **k: pm.Dirichlet("y", pt.stack([a, b, 1.0]), **k),
        {"observed": SHARES},
    ),
    "DirichletMultinomial": (
        lambda a, b, **k: pm.DirichletMultinomial("y", 3, pt.stack([a, b, 1.0]), **k),
        {"observed": [1, 2, 0]},
    ),
    "Multinomial": (
        lambda a, b, **k: pm.Multinomial("y", 3, pt.special.softmax(pt.stack([a, b, 1.0])), **k),
        {"observed": [1, 2, 0]},
    ),
    "MatrixNormal": (
        lambda a, b, **k: pm.MatrixNormal(
            "y", np.zeros((2, 2)), rowcov=a * np.eye(2), colcov=b * np.eye(2), **k
        ),
        {"observed": np.zeros((2, 2))},
    ),
    "AR": (lambda a, b, **k: pm.AR("y", [a], sigma=b, init_dist=pm.Normal.dist(), **k), R),
    "GaussianRandomWalk": (
        lambda a, b, **k: pm.GaussianRandomWalk("y", a, b, init_dist=pm.Normal.dist(), **k),
        R,
    ),
    "GARCH11": (
        lambda a, b, **k: pm.GARCH11("y", a, b / 30, b / 30, initial_vol=b, **k),
        R,
    ),
    "EulerMaruyama": (
        lambda a, b, **k: pm.EulerMaruyama(
            "y", 0.1, lambda x, r, s: (r * x, s), (a, b), init_dist=pm.Normal.dist(), **k
        ),
        R,
    ),
    "CAR": (
        lambda a, b, **k: pm.CAR("y", np.zeros(2), np.ones((2, 2)) - np.eye(2), a / 9, b, **k),
        {"observed": np.zeros(2)},
    ),
    "ICAR": (
        lambda a, b, **k: pm.ICAR("y", np.ones((2, 2)) - np.eye(2), sigma=b, **k),
        {"observed": np.zeros(2)},
    ),
    "KroneckerNormal": (
        lambda a, b, **k: pm.KroneckerNormal("y", np.zeros(4), [a * np.eye(2), b * np.eye(2)], **k),
        {"observed": np.zeros(4)},
    ),
    "StickBreakingWeights": (
        lambda a, b, **k: pm.StickBreakingWeights("y", a, K=2, **k),
        {"observed": np.full(3, 1 / 3)},
    ),
    "ZeroSumNormal": (lambda a, b, **k: pm.ZeroSumNormal("y", b, **k), {"observed": np.zeros(3)}),
    "Wishart": (lambda a, b, **k: pm.Wishart("y", 9, b * np.eye(2), **k), {"observed": np.eye(2)}),
    "RandomWalk": (
        lambda a, b, **k: pm.RandomWalk(
            "y", innovation_dist=pm.Normal.dist(a, b), init_dist=pm.Normal.dist(), steps=3, **k
        ),
        R,
    ),
    "MvGaussianRandomWalk": (
        lambda a, b, **k: pm.MvGaussianRandomWalk(
            "y", [a, a], cov=b * np.eye(2), init_dist=pm.MvNormal.dist(TWO[0], np.eye(2)), **k
        ),
        {"observed": TWO},
    ),
    "MvStudentTRandomWalk": (
        lambda a, b, **k: pm.MvStudentTRandomWalk(
            "y",
            nu=9 + a,
            mu=[a, a],
            scale=b * np.eye(2),
            init_dist=pm.MvNormal.dist(TWO[0], np.eye(2)),
            **k,
        ),
        {"observed": TWO},
    ),
    "LKJCorr": (lambda a, b, **k: pm.LKJCorr("y", n=2, eta=a, **k), {"observed": np.eye(2)}),
    "Flat": (lambda a, b, **k: pm.Flat("y", **k), R),
    "HalfFlat": (lambda a, b, **k: pm.HalfFlat("y", **k), R),
}
NO_LIKELIHOODS = {
    *["Continuous", "Discrete", "Distribution", "SymbolicRandomVariable"],  # no distributions
    *["DensityDist", "Lognormal"],  # other names of some
    *["Simulator", "LKJCholeskyCov"],  # no density; a prior that takes no data
}


def model_of(entry):
    make, data = entry
    with pm.Model() as model:
        make(pm.HalfNormal("a"), pm.HalfNormal("b"), **data)
    return model


def normalizer(model):
    """Log normalizer of the model's one term, and the free variables that it depends on."""
    with pytensor.config.change_flags(traceback__limit=0):  # half of the time went into these
        [(rv, total)] = term_totals(model, pt.constant(2.0))
    return total, parameters_needed(model, total, rv.name)


def test_no_distribution_of_pymc_is_left_out():
    known = {name for name, value in vars(every).items() if inspect.isclass(value)}
    known &= set(every.__all__)
    assert known <= {*FREE, *REFUSED, *NO_LIKELIHOODS}


@pytest.mark.parametrize("name", FREE)
def test_free_parameters(name):
    began = process_time()
    model = model_of(FREE[name])
    total, needed = normalizer(model)
    assert process_time() - began < SECONDS
    assert needed <= set(model.free_RVs)
    strangers = {v for v in ancestors([total]) if v.owner and v.name in ("a", "b", "w")}
    assert strangers == needed  # the model's own variables, no copies


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_reason(name):
    with pytest.raises(pmt.exceptions.NormalizerError, match=r"'y'.*annealed"):
        normalizer(model_of(REFUSED[name]))


def line_with(outliers_at):
    """Regression with a narrow and a wide normal, the wide one about another line or not."""
    with pm.Model() as model:
        slope, sd = pm.Normal("slope"), pm.HalfNormal("sd")
        line = slope * np.arange(N)
        other = line + outliers_at if outliers_at else line
        parts = [pm.Normal.dist(line, sd), pm.Normal.dist(other, 5.0)]
        pm.Mixture("y", [0.8, 0.2], parts, observed=REALS)
    return model


@pytest.mark.slow("compiles models of its own")
def test_a_common_location_costs_one_integral_for_all_data():
    def value(model, slope):
        total, needed = normalizer(model)
        graph = graph_replace([total], {model["slope"]: slope, model["sd"]: 0.5}, strict=False)
        mode = "FAST_COMPILE"
        return {rv.name for rv in needed}, float(pytensor.function([], graph[0], mode=mode)())

    needed, found = value(line_with(0.0), pt.constant(0.7))
    assert needed == {"sd"}
    alone = pm.NormalMixture.dist([0.8, 0.2], [3.0, 3.0], [0.5, 5.0])
    assert found == pytest.approx(
        N * float(pmt.variational.log_tempered_normalizer(alone, 2.0).eval())
    )
    # two lines: the distance between them matters (planted: as if they were one)
    needed, apart = value(line_with(4.0), pt.constant(0.7))
    assert needed == {"slope", "sd"}
    assert abs(apart - found) > 0.01
