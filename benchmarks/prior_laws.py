"""How often the check of draws against densities refuses a prior that is right: it must not.

Priors are written at random: one to three variables of any family, heavy tails among them, with
scales that are variables or not, with and without transforms. Each is checked at several pairs of
batches of draws. Planted faults (draws that are wider, a density off by a factor) tell what is
caught.

    python benchmarks/prior_laws.py 0 250 4
"""

import sys
import warnings
from collections import Counter

import numpy as np
import pymc as pm

import pymc_tempering as pmt
from pymc_tempering.model.layout import is_discrete
from pymc_tempering.model.path import compile_path
from pymc_tempering.references import prior_laws
from pymc_tempering.references.compiled_mixture import evaluate_rows
from pymc_tempering.references.prior import compile_prior, evaluate_draws

POSITIVE = {
    "HalfNormal": lambda n, s, r: pm.HalfNormal(n, s),
    "HalfCauchy": lambda n, s, r: pm.HalfCauchy(n, s),
    "HalfStudentT": lambda n, s, r: pm.HalfStudentT(n, nu=r.uniform(1, 4), sigma=s),
    "Exponential": lambda n, s, r: pm.Exponential(n, scale=s),
    "LogNormal": lambda n, s, r: pm.LogNormal(n, np.log(r.uniform(0.3, 3)), 0.7),
    "Gamma": lambda n, s, r: pm.Gamma(n, r.uniform(0.5, 5), 1 / s),
    "InverseGamma": lambda n, s, r: pm.InverseGamma(n, r.uniform(0.7, 5), s),
    "Weibull": lambda n, s, r: pm.Weibull(n, r.uniform(0.6, 3), s),
    "Pareto": lambda n, s, r: pm.Pareto(n, r.uniform(0.7, 4), s),
    "Wald": lambda n, s, r: pm.Wald(n, r.uniform(0.5, 3), s),
    "Rice": lambda n, s, r: pm.Rice(n, nu=r.uniform(0.2, 3), sigma=s),
    "ChiSquared": lambda n, s, r: pm.ChiSquared(n, r.uniform(1, 6)),
    "plain Exponential": lambda n, s, r: pm.Exponential(n, scale=s, default_transform=None),
}
REAL = {
    "Normal": lambda n, s, r: pm.Normal(n, r.normal(), s, shape=3),
    "StudentT": lambda n, s, r: pm.StudentT(n, nu=r.uniform(0.7, 6), sigma=s, shape=2),
    "Cauchy": lambda n, s, r: pm.Cauchy(n, r.normal(), s, shape=2),
    "Laplace": lambda n, s, r: pm.Laplace(n, r.normal(), s),
    "AsymmetricLaplace": lambda n, s, r: pm.AsymmetricLaplace(n, kappa=r.uniform(1, 2), mu=0, b=s),
    "Logistic": lambda n, s, r: pm.Logistic(n, r.normal(), s),
    "Gumbel": lambda n, s, r: pm.Gumbel(n, r.normal(), s),
    "Moyal": lambda n, s, r: pm.Moyal(n, r.normal(), s),
    "SkewNormal": lambda n, s, r: pm.SkewNormal(n, mu=r.normal(), sigma=s, alpha=r.normal(0, 3)),
    "ExGaussian": lambda n, s, r: pm.ExGaussian(n, mu=r.normal(), sigma=s, nu=r.uniform(0.3, 3)),
    "VonMises": lambda n, s, r: pm.VonMises(n, r.uniform(-3, 3), r.uniform(0.01, 6)),
    "Uniform": lambda n, s, r: pm.Uniform(n, -1, r.uniform(0, 3)),
    "plain Uniform": lambda n, s, r: pm.Uniform(n, -1, 2, default_transform=None),
    "Triangular": lambda n, s, r: pm.Triangular(n, lower=-1, c=r.uniform(-1, 2), upper=2),
    "Beta": lambda n, s, r: pm.Beta(n, r.uniform(0.4, 4), r.uniform(0.6, 4)),
    "Kumaraswamy": lambda n, s, r: pm.Kumaraswamy(n, r.uniform(0.6, 4), r.uniform(0.6, 4)),
    "LogitNormal": lambda n, s, r: pm.LogitNormal(n, r.normal(), 1.0),
    "TruncatedNormal": lambda n, s, r: pm.TruncatedNormal(n, r.normal(), 1.0, lower=-1, upper=2),
    "Truncated": lambda n, s, r: pm.Truncated(n, pm.StudentT.dist(3, mu=0, sigma=1), lower=-1),
    "two normals": lambda n, s, r: pm.NormalMixture(n, [0.3, 0.7], [-4, r.normal()], [1, 0.5]),
    "two boxes": lambda n, s, r: pm.Mixture(
        n, [0.5, 0.5], [pm.Uniform.dist(0, 1), pm.Uniform.dist(2, 3)], default_transform=None
    ),
    "MvNormal": lambda n, s, r: pm.MvNormal(n, np.zeros(3), np.eye(3) + r.uniform(0, 5)),
    "MvStudentT": lambda n, s, r: pm.MvStudentT(n, 3, mu=np.zeros(3), scale=np.eye(3) + 0.5),
    "Dirichlet": lambda n, s, r: pm.Dirichlet(n, r.uniform(0.5, 4, 4)),
    "LKJ": lambda n, s, r: pm.LKJCholeskyCov(
        n, eta=2.0, n=2, sd_dist=pm.Exponential.dist(1.0), compute_corr=False
    ),
    "walk": lambda n, s, r: pm.GaussianRandomWalk(
        n, sigma=s, init_dist=pm.Normal.dist(0, 1), shape=4
    ),
    "ZeroSumNormal": lambda n, s, r: pm.ZeroSumNormal(n, s, shape=4),
    "StickBreaking": lambda n, s, r: pm.StickBreakingWeights(n, alpha=r.uniform(0.5, 3), K=3),
}  # fmt: skip
WHOLE = {
    "Bernoulli": lambda n, s, r: pm.Bernoulli(n, r.uniform(0.02, 0.98), shape=3),
    "Binomial": lambda n, s, r: pm.Binomial(n, 8, r.uniform(0.1, 0.9)),
    "Poisson": lambda n, s, r: pm.Poisson(n, r.uniform(0.1, 50)),
    "NegativeBinomial": lambda n, s, r: pm.NegativeBinomial(n, r.uniform(1, 9), r.uniform(0.3, 4)),
    "Geometric": lambda n, s, r: pm.Geometric(n, r.uniform(0.05, 0.9)),
    "BetaBinomial": lambda n, s, r: pm.BetaBinomial(n, alpha=0.5, beta=1.5, n=12),
    "DiscreteUniform": lambda n, s, r: pm.DiscreteUniform(n, -2, 5),
    "Categorical": lambda n, s, r: pm.Categorical(n, r.dirichlet(np.ones(5))),
    "ZeroInflatedPoisson": lambda n, s, r: pm.ZeroInflatedPoisson(n, r.uniform(0.2, 0.9), 4.0),
    "DiscreteWeibull": lambda n, s, r: pm.DiscreteWeibull(n, 0.8, r.uniform(0.6, 2)),
}
KINDS = (POSITIVE, REAL, WHOLE)


def write(seed):
    """Model of a seed, and the names of its families."""
    rng, names = np.random.default_rng(seed), []
    with pm.Model() as model:
        pm.Normal("y", 0.0, 1.0, observed=0.0)
        scale = float(rng.uniform(0.2, 5))
        for k in range(rng.integers(1, 4)):
            kind = KINDS[rng.choice(3, p=(0.4, 0.45, 0.15))]
            name = str(rng.choice(list(kind)))
            variable = kind[name](f"x{k}", scale, rng)
            names.append(name)
            if kind is POSITIVE and rng.random() < 0.5:
                scale = variable
    return model, names


def check(prior, seed):
    """Check a prior at batches of a seed: what it says, or nothing; and whether it suspects."""
    second = []
    draws = prior.draw(1000, prior.spawn(np.random.default_rng([seed, 1])))
    draws = draws[np.isfinite(draws).all(axis=1)]
    values, grads = np.empty((len(draws), 2)), np.zeros((len(draws), 2, prior.path.dim))
    evaluate_rows(prior.path.density, draws, values, grads, prior.mixture.copy())
    keep = np.isfinite(values[:, 0])
    batch = prior_laws.Batch(draws[keep], values[keep, 0], grads[keep, 0])

    def counted(prior):
        second.append(1)
        more = prior.draw(prior_laws.N_SECOND, prior.spawn(np.random.default_rng([seed, 2])))
        more = more[np.isfinite(more).all(axis=1)]
        log_p = evaluate_draws(prior.path, more)[0]
        sound = np.isfinite(log_p)
        return prior_laws.Batch(more[sound], log_p[sound], batch.scores[:0])

    prior_laws._second_batch = counted
    try:
        prior_laws.check_laws(prior, batch)
    except pmt.exceptions.PriorDrawsError as error:
        return str(error), bool(second)
    return "", bool(second)


def main(first, n, repeats):
    """Check priors of seeds from `first` on, each at `repeats` pairs of batches."""
    warnings.simplefilter("ignore")
    counts = Counter()
    for seed in range(first, first + n):
        model, names = write(seed)
        whole = any(is_discrete(rv) for rv in model.free_RVs)
        moved = [v.name for v, rv in zip(model.value_vars, model.free_RVs, strict=True)
                 if not is_discrete(rv)]  # fmt: skip
        prior = compile_prior(compile_path(model, gradient=moved if whole else None))
        for repeat in range(repeats):
            said, suspected = check(prior, 1000 * seed + repeat)
            counts.update({"checks": 1, "suspected": suspected, "refused": bool(said)})
            if said or suspected:
                print(seed, repeat, names, "suspected", said, flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
