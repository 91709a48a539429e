"""Models with discrete free variables: log Z and the posterior against enumeration."""

import itertools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import logsumexp

import pymc_tempering as pmt


def rbm():
    """Hidden units summed out, visible ones enumerated the other way round (20 x 8)."""
    rng = np.random.default_rng(0)
    weights, a, c = rng.normal(0, 0.6, (20, 8)), rng.normal(0, 0.5, 20), rng.normal(0, 0.5, 8)
    p = rng.uniform(0.3, 0.7, 20)
    with pm.Model() as model:
        v = pm.Bernoulli("v", p, shape=20)
        energy = pt.dot(v, a) + pt.softplus(c + pt.dot(v, weights)).sum()
        pm.Potential("energy", energy - pt.dot(v, np.log(p / (1 - p))) - np.log(1 - p).sum())
    hidden = np.array(list(itertools.product([0, 1], repeat=8)))
    on = a + hidden @ weights.T
    log_z = hidden @ c + np.log1p(np.exp(on)).sum(axis=1)
    mean = np.exp(log_z - logsumexp(log_z)) @ (1 / (1 + np.exp(-on)))
    return model, logsumexp(log_z), ("v", mean)


def mixture_with_labels():
    """Explicit labels of six points, component means free: labels enumerated, means exact."""
    y, weights = np.array([-2.1, -1.6, 0.3, 1.8, 2.2, 2.9]), np.array([0.5, 0.3, 0.2])
    with pm.Model() as model:
        mu = pm.Normal("mu", [-2.0, 0.0, 2.0], 1.0, shape=3)
        z = pm.Categorical("z", weights, shape=6)
        pm.Normal("y", mu[z], 0.7, observed=y)
    labels = np.array(list(itertools.product(range(3), repeat=6)))
    log_p = np.log(weights)[labels].sum(axis=1)
    for k, center in enumerate((-2.0, 0.0, 2.0)):
        on = labels == k
        n, total = on.sum(axis=1), on @ (y - center)
        square = on @ (y - center) ** 2
        log_p += -0.5 * n * np.log(2 * np.pi * 0.49) - 0.5 * np.log1p(n / 0.49)
        log_p -= 0.5 * (square - total**2 / (0.49 + n)) / 0.49
    share = np.exp(log_p - logsumexp(log_p))
    return model, logsumexp(log_p), ("z", share @ labels)


def ising():
    """A 4 x 4 lattice at a temperature near to the critical one, with a weak field."""
    size, coupling, field = 4, 0.44, 0.05
    with pm.Model() as model:
        s = 2.0 * pm.Bernoulli("up", 0.5, shape=(size, size)) - 1.0
        pairs = (s[1:] * s[:-1]).sum() + (s[:, 1:] * s[:, :-1]).sum()
        pm.Potential("energy", coupling * pairs + field * s.sum())
    spins = 2.0 * np.array(list(itertools.product([0, 1], repeat=size**2))) - 1.0
    spins = spins.reshape(-1, size, size)
    pairs = (spins[:, 1:] * spins[:, :-1]).sum(axis=(1, 2))
    pairs += (spins[:, :, 1:] * spins[:, :, :-1]).sum(axis=(1, 2))
    log_p = coupling * pairs + field * spins.sum(axis=(1, 2)) - size**2 * np.log(2)
    share = np.exp(log_p - logsumexp(log_p))
    return model, logsumexp(log_p), ("up", np.tensordot(share, (spins + 1) / 2, axes=1))


def changepoint():
    """Poisson counts with a change of rate at an integer time; rates integrated by gamma laws."""
    y = np.array([4, 5, 3, 6, 4, 5, 1, 0, 2, 1, 1, 0])
    with pm.Model() as model:
        when = pm.DiscreteUniform("when", 1, 11)
        early, late = pm.Gamma("early", 2.0, 0.5), pm.Gamma("late", 2.0, 0.5)
        pm.Poisson("y", pt.switch(np.arange(12) < when, early, late), observed=y)

    def marginal(counts):
        a, b = 2.0 + counts.sum(), 0.5 + counts.size
        constant = stats.gamma.logpdf(1.0, 2.0, scale=2.0) - stats.gamma.logpdf(1.0, a, scale=1 / b)
        return constant + stats.poisson.logpmf(counts, 1.0).sum()

    log_p = np.array([marginal(y[:k]) + marginal(y[k:]) for k in range(1, 12)]) - np.log(11)
    share = np.exp(log_p - logsumexp(log_p))
    return model, logsumexp(log_p), ("when", share @ np.arange(1, 12))


def unbounded():
    """How many trials there were: a Poisson number, of which some were seen."""
    y = np.array([3, 5, 4])
    with pm.Model() as model:
        n = pm.Poisson("n", 8.0)
        pm.Binomial("y", n, 0.5, observed=y)
    counts = np.arange(200)
    log_p = stats.poisson.logpmf(counts, 8.0)
    log_p = log_p + stats.binom.logpmf(y[:, None], counts, 0.5).sum(axis=0)
    share = np.exp(log_p - logsumexp(log_p))
    return model, logsumexp(log_p), ("n", share @ counts)


def splits(total, cells):
    """All vectors of counts with this sum."""
    grid = itertools.product(range(total + 1), repeat=cells)
    return np.array([row for row in grid if sum(row) == total])


def two_tables():
    """Two multinomial vectors at once, each with shares and a sum of its own, seen through sums."""
    p, n = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]), (6, 4)
    with pm.Model() as model:
        counts = pm.Multinomial("counts", n=np.array(n), p=p, shape=(2, 3))
        pm.Normal("y", counts.sum(axis=0), 0.8, observed=[2.0, 3.5, 4.4])
    first, second = (splits(total, 3) for total in n)
    log_p = (
        stats.multinomial.logpmf(first, 6, p[0])[:, None]
        + stats.multinomial.logpmf(second, 4, p[1])
        + stats.norm.logpdf([2.0, 3.5, 4.4], first[:, None] + second, 0.8).sum(axis=-1)
    )
    share = np.exp(log_p - logsumexp(log_p))
    mean = np.array([share.sum(axis=1) @ first, share.sum(axis=0) @ second])
    return model, logsumexp(log_p), ("counts", mean)


def urn():
    """A Dirichlet-multinomial vector whose sum is itself a binomial number."""
    a, y = np.array([0.6, 1.5, 0.9]), np.array([1.3, 0.2])
    with pm.Model() as model:
        n = pm.Binomial("n", 5, 0.6)
        counts = pm.DirichletMultinomial("counts", n=n, a=a, shape=3)
        pm.Normal("y", counts[:2], 0.7, observed=y)
    rows, log_p = [], []
    for total in range(6):
        cells = splits(total, 3)
        law = stats.dirichlet_multinomial.logpmf(cells, a, total) if total else np.zeros(1)
        seen = stats.norm.logpdf(y, cells[:, :2], 0.7).sum(axis=1)
        rows.append(cells)
        log_p.append(stats.binom.logpmf(total, 5, 0.6) + law + seen)
    log_p = np.concatenate(log_p)
    share = np.exp(log_p - logsumexp(log_p))
    return model, logsumexp(log_p), ("counts", share @ np.concatenate(rows))


# name: (model, kernels for it)
MODELS = {
    "rbm": (rbm, (None, "langevin")),
    "mixture with labels": (mixture_with_labels, (None,)),
    "ising": (ising, (None, "langevin")),
    "changepoint": (changepoint, (None, {"early": "slice", "when": "metropolis"})),
    "unbounded": (unbounded, (None, "metropolis")),
    "two tables": (two_tables, (None,)),
    "urn": (urn, (None,)),
}
CASES = [(name, kernel) for name, (_, kernels) in MODELS.items() for kernel in kernels]


def z_scores(idata, log_z, name, mean):
    """z of log Z, and of the posterior means by their own autocorrelation."""
    evidence = pmt.log_marginal_likelihood(idata)
    draws = idata.posterior[name].values.reshape(*idata.posterior[name].shape[:2], -1)
    flat = np.ravel(mean)
    z = []
    for j, exact in enumerate(flat):
        chains = draws[:, :, j].astype(float)
        batches = np.array([b.mean() for c in chains for b in np.array_split(c, 12)])
        z.append((batches.mean() - exact) / (batches.std(ddof=1) / np.sqrt(batches.size)))
    return (evidence.log_z - log_z) / evidence.mcse, np.array(z), evidence


@pytest.mark.slow("compiles models of its own", quick=["unbounded, metropolis"])
@pytest.mark.parametrize(("name", "kernel"), CASES, ids=[f"{n}, {k}" for n, k in CASES])
def test_log_z_and_means_are_those_of_enumeration(name, kernel):
    # |z| < 4 for log Z and |z| < 5 for up to 20 means: false alarm 1e-4 a case, seed fixed
    model, log_z, (variable, mean) = MODELS[name][0]()
    idata = pmt.sample(
        1500, model=model, kernel=kernel, random_seed=3, quiet=True, reference="prior"
    )
    z, z_means, evidence = z_scores(idata, log_z, variable, mean)
    assert evidence.verdict == "ok"
    assert evidence.mcse < 0.2
    assert abs(z) < 4.0
    assert np.abs(z_means).max() < 5.0
    assert np.issubdtype(idata.posterior[variable].dtype, np.integer)
