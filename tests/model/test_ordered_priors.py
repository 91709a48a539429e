"""Ordered priors whose elements differ: their constant, their draws, and their gradient.

The exact values come from SciPy: P(ordered) by cumulative sums on a fine grid of quantiles, or from
the distribution function of a bivariate normal.
"""

import itertools

import numpy as np
import pymc as pm
import pytest
from pymc.distributions import transforms
from scipy import stats
from scipy.special import logsumexp

import pymc_tempering as pmt
from pymc_tempering.model import ordered_priors as ordered_law
from pymc_tempering.model.density_change import density_change
from pymc_tempering.model.layout import unconstrained_shapes
from pymc_tempering.model.ordered_priors import log_orderings_of, said_of_orders, unknown_orders
from pymc_tempering.model.path import compile_path
from pymc_tempering.references import prior as prior_module
from pymc_tempering.references.prior import compile_prior, evaluate_draws

A, B, C = np.array([0.4, 1.0, 3.0]), np.array([0.0, 0.7, 0.3]), np.array([1.0, 0.5, 2.0])
S = np.array([1e-3, 2.0, 1e-4])
IN_ORDER = transforms.ordered

# name: (prior, the same laws in SciPy)
FAMILIES = {
    "normal": (lambda k: pm.Normal("x", B, C, **k), lambda i: stats.norm(B[i], C[i])),
    "cauchy": (lambda k: pm.Cauchy("x", B, C, **k), lambda i: stats.cauchy(B[i], C[i])),
    "student t": (
        lambda k: pm.StudentT("x", nu=C + 1.0, mu=B, sigma=A, **k),
        lambda i: stats.t(C[i] + 1.0, B[i], A[i]),
    ),
    "gamma": (lambda k: pm.Gamma("x", A, C, **k), lambda i: stats.gamma(A[i], scale=1 / C[i])),
    "beta": (lambda k: pm.Beta("x", A, C, **k), lambda i: stats.beta(A[i], C[i])),
    "exponential": (
        lambda k: pm.Exponential("x", C, **k, default_transform=None),
        lambda i: stats.expon(scale=1 / C[i]),
    ),
    "lognormal": (
        lambda k: pm.LogNormal("x", B, C, **k), lambda i: stats.lognorm(C[i], scale=np.exp(B[i])),
    ),
    "laplace": (lambda k: pm.Laplace("x", B, C, **k), lambda i: stats.laplace(B[i], C[i])),
    "narrow": (
        lambda k: pm.Normal("x", B, S, **k), lambda i: stats.norm(B[i], S[i]),
    ),
}  # fmt: skip
every_family = pytest.mark.parametrize("name", FAMILIES)


def model_of(name, **kwargs):
    """Three ordered elements of a family, and data that depend on them."""
    with pm.Model() as model:
        x = FAMILIES[name][0]({"shape": 3, "transform": IN_ORDER} | kwargs)
        pm.Normal("y", x.sum(), 5.0, observed=0.0)
    return model


def log_p_ordered(laws):
    """Log P(x_1 < x_2 < ...) of independent laws, by cumulative sums."""
    levels = stats.norm.cdf(np.linspace(-7.0, 7.0, 4001))
    x = np.unique(np.concatenate([law.ppf(levels) for law in laws]))
    x = x[np.isfinite(x)]
    below = np.ones(x.size)
    for law in laws:
        # E[below; x] over the mass of each interval, by its ends
        mass = np.diff(law.cdf(x), prepend=0.0)
        middle = (below + np.concatenate([below[:1], below[:-1]])) / 2.0
        below = np.cumsum(mass * middle)
    return np.log(below[-1])


@every_family
def test_log_p_ordered_is_that_of_another_quadrature(name):
    model = model_of(name)
    exact = -log_p_ordered([FAMILIES[name][1](i) for i in range(3)])
    found = log_orderings_of(model, unconstrained_shapes(model)).eval()
    assert abs(found - exact) < 1e-3
    assert not unknown_orders(model)


def draws_of(model, n=20_000):
    """Draws of the prior, in order, and their unconstrained values."""
    prior = compile_prior(compile_path(model))
    z = prior.draw(n, prior.spawn(np.random.default_rng(4)))
    rv = model["x"]
    x = model.rvs_to_transforms[rv].backward(z.reshape(n, -1, 3), *rv.owner.inputs).eval()
    return x, z, prior.path


def by_rejection(laws, n=200_000):
    """Independent draws that happen to be in order."""
    rng = np.random.default_rng(5)
    x = np.column_stack([law.rvs(n, random_state=rng) for law in laws])
    return x[(np.diff(x) > 0).all(axis=1)]


def least_pvalue(x, y):
    """Of the elements and their differences, by Kolmogorov and Smirnov."""
    columns = [(a[:, i], b[:, i]) for a, b in ((x, y), (np.diff(x), np.diff(y))) for i in range(2)]
    return min(stats.ks_2samp(*pair).pvalue for pair in [*columns, (x[:, 2], y[:, 2])])


@pytest.mark.slow("compiles models of its own")
@every_family
def test_draws_are_those_that_happen_to_be_in_order(name):
    # p > 1e-5 in five tests: false alarm 5e-5 a case, seed fixed
    x, z, _ = draws_of(model_of(name))
    assert np.isfinite(z).mean() > 0.9999
    assert least_pvalue(x[:, 0], by_rejection([FAMILIES[name][1](i) for i in range(3)])) > 1e-5


@pytest.mark.slow("repeats")
def test_planted_sorted_draws_are_not_of_the_ordered_law(monkeypatch):
    model = model_of("normal")
    sort = prior_module.draw_in_order
    monkeypatch.setattr(prior_module, "draw_in_order", lambda model, rv, fresh: fresh.sort())
    x, *_ = draws_of(model)
    assert sort is not prior_module.draw_in_order
    assert least_pvalue(x[:, 0], by_rejection([FAMILIES["normal"][1](i) for i in range(3)])) < 1e-9


@pytest.mark.slow("compiles models of its own")
def test_rows_and_descending_order():
    """Two rows, from the largest to the smallest; each row has its own constant."""
    order = transforms.Ordered(ascending=False)
    shift = np.array([[0.0, 0.0, 0.0], [1.0, -2.0, 1.0]])
    with pm.Model() as model:
        x = pm.Normal("x", B + shift, C, shape=(2, 3), transform=order)
        pm.Normal("y", x, 1.0, observed=np.zeros((2, 3)))
    laws = [[stats.norm(m, s) for m, s in zip(row, C, strict=True)][::-1] for row in B + shift]
    found = log_orderings_of(model, unconstrained_shapes(model)).eval()
    assert abs(found + sum(map(log_p_ordered, laws))) < 1e-3
    x, *_ = draws_of(model)
    for i, row in enumerate(laws):
        assert least_pvalue(x[:, i, ::-1], by_rejection(row, 400_000)) > 1e-5


@pytest.mark.slow("compiles models of its own")
def test_what_is_ordered_is_what_comes_before_in_a_chain():
    """PyMC orders the log odds of uniform elements within bounds: these are all of one law."""
    with pm.Model() as model:
        x = pm.Uniform("x", B, B + C, transform=IN_ORDER)
        pm.Normal("y", x, 1.0, observed=np.zeros(3))
    found = log_orderings_of(model, unconstrained_shapes(model)).eval()
    assert abs(found - np.log(6.0)) < 1e-4
    x, *_ = draws_of(model)
    rng = np.random.default_rng(3)
    assert least_pvalue((x[:, 0] - B) / C, np.sort(rng.random((50_000, 3)))) > 1e-5


def test_a_probability_of_order_near_0():
    """Means far apart, the wrong way round: 18 standard deviations; beyond that it is no number."""
    far = pm.Normal.dist([18.0, 0.0], 1.0)
    law = ordered_law.ordered_law(far, (2,), IN_ORDER)
    assert abs(law.log_probability.eval() - stats.norm.logcdf(-18.0 / np.sqrt(2.0))) < 1e-6
    beyond = pm.Normal.dist([40.0, 0.0], 1.0)
    assert np.isnan(ordered_law.ordered_law(beyond, (2,), IN_ORDER).log_probability.eval())


MEANS, SEEN, NOISE = np.array([-0.5, 0.2, 0.6]), np.array([-0.6, 0.1, 1.2]), 0.6
DIFFERENCES = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]])


def hierarchical(kind):
    """Ordered normals with a free spread, or a free mean of the second one, and the exact log Z.

    And that of a prior without P(ordered | parents).
    """
    with pm.Model() as model:
        if kind == "spread":
            spread, mean = pm.HalfNormal("spread", 1.0), MEANS
        else:
            spread = 0.8
            mean = pm.math.stack([MEANS[0], pm.Normal("middle", 0.0, 1.5), MEANS[2]])
        x = pm.Normal("x", mean, spread, shape=3, transform=IN_ORDER)
        pm.Normal("y", x, NOISE, observed=SEEN)
    edges = [1e-6, 0.1, 0.3, 1.0, 2.0, 4.0, 7.0] if kind == "spread" else [-7, -4, -1, 1, 4, 7]
    points, weights = np.polynomial.legendre.leggauss(40)
    totals = np.zeros(2)
    for low, high in itertools.pairwise(edges):
        for at, weight in zip((low + high) / 2 + (high - low) / 2 * points, weights, strict=True):
            totals += weight * (high - low) / 2 * np.array(_joint(kind, at))
    return model, *np.log(totals)


def _joint(kind, at):
    """Density of the parent and the data, with the order normalized and not."""
    if kind == "spread":
        mean, sd, density = MEANS, at, stats.halfnorm.pdf(at)
    else:
        mean, sd = np.array([MEANS[0], at, MEANS[2]]), 0.8
        density = stats.norm.pdf(at, 0.0, 1.5)
    precision = 1.0 / sd**2 + 1.0 / NOISE**2
    after = (mean / sd**2 + SEEN / NOISE**2) / precision
    likelihood = np.exp(stats.norm.logpdf(SEEN, mean, np.hypot(sd, NOISE)).sum())
    raw = density * likelihood * _p_of_three(after, precision**-0.5)
    return raw / _p_of_three(mean, sd), raw


def _p_of_three(mean, sd):
    """P(x_1 < x_2 < x_3) of normals of the same spread, by a sum over x_2."""
    x = mean[1] + sd * np.linspace(-9.0, 9.0, 2001)
    terms = stats.norm.cdf(x, mean[0], sd) * stats.norm.sf(x, mean[2], sd)
    return (terms * stats.norm.pdf(x, mean[1], sd)).sum() * (x[1] - x[0])


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("kind", ["spread", "mean"])
def test_free_parents_have_their_probability_of_order_in_the_density(kind):
    """By prior draws; |z| < 4, and more than 8 errors from the density without P(ordered)."""
    model, exact, raw = hierarchical(kind)
    _, z, path = draws_of_all(model)
    log_reference, log_ratio = evaluate_draws(path, z)
    assert np.isfinite(log_reference).all()
    weights = np.exp(log_ratio)
    found, error = np.log(weights.mean()), weights.std() / weights.mean() / np.sqrt(len(z))
    assert abs(found - exact) < 4.0 * error
    assert abs(raw - exact) > 8.0 * error
    # The density's own integral, by importance sampling from wider draws, is that of the draws
    rng = np.random.default_rng(7)
    wide = stats.multivariate_t(z.mean(axis=0), 1.5 * np.cov(z.T), df=3)
    points = wide.rvs(40_000, random_state=rng)
    terms = sum(evaluate_draws(path, points)) - wide.logpdf(points)
    terms = np.where(np.isfinite(terms), terms, -np.inf)
    weights = np.exp(terms - terms.max())
    error = weights.std() / weights.mean() / np.sqrt(len(points))
    assert error < 0.05
    assert abs(logsumexp(terms) - np.log(len(points)) - exact) < 4.0 * error


def draws_of_all(model, n=20_000):
    """Unconstrained draws of all variables."""
    prior = compile_prior(compile_path(model))
    return prior, prior.draw(n, prior.spawn(np.random.default_rng(4))), prior.path


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("kind", ["spread", "mean"])
def test_gradients_are_those_of_differences(kind):
    model, *_ = hierarchical(kind)
    _, z, path = draws_of_all(model, 20)
    for x in z:
        grads, step = np.empty((2, path.dim)), 1e-5
        path.density(x, np.empty(2), grads)
        for i in range(path.dim):
            shift = step * (np.arange(path.dim) == i)
            slopes = np.subtract(*evaluate_draws(path, np.stack([x + shift, x - shift]))[0]) / (
                2 * step
            )
            assert abs(slopes - grads[0, i]) < 1e-3 * (1.0 + abs(grads[0, i]))


@pytest.mark.slow("compiles models of its own")
def test_a_run_with_a_free_parent_has_the_exact_evidence():
    # |z| < 4, seed fixed
    model, exact, raw = hierarchical("spread")
    idata = pmt.sample(500, model=model, random_seed=1, quiet=True)
    evidence = pmt.log_marginal_likelihood(idata)
    assert evidence.verdict == "ok"
    assert abs(evidence.log_z - exact) < 4.0 * evidence.mcse < abs(raw - exact)
    # Draws of another sampler have the prior without P(ordered | parents), and that is seen
    [sentence] = said_of_orders(model)
    assert "P(ordered | parents) is a part of its density" in sentence


def correlated():
    """Ordered normals that are correlated: P(ordered), and log Z, by a bivariate normal."""
    cov = 0.3 + np.diag([0.7, 0.2, 0.5])
    with pm.Model() as model:
        x = pm.MvNormal("x", MEANS, cov, transform=IN_ORDER)
        pm.Normal("y", x, NOISE, observed=SEEN)
    total = cov + NOISE**2 * np.eye(3)
    gain = cov @ np.linalg.inv(total)
    after, rest = MEANS + gain @ (SEEN - MEANS), cov - gain @ cov

    def log_p(mean, cov):
        law = stats.multivariate_normal(np.zeros(2), DIFFERENCES @ cov @ DIFFERENCES.T)
        return np.log(law.cdf(-DIFFERENCES @ mean))

    log_z = stats.multivariate_normal(MEANS, total).logpdf(SEEN)
    return model, log_z + log_p(after, rest) - log_p(MEANS, cov)


@pytest.mark.slow("compiles models of its own")
def test_correlated_elements_take_a_run_for_their_constant():
    # |z| < 4, seed fixed
    model, exact = correlated()
    assert unknown_orders(model) == ("x",)
    assert "takes a run of its own" in said_of_orders(model)[0]
    idata = pmt.sample(1000, model=model, random_seed=2, quiet=True)
    evidence = pmt.log_marginal_likelihood(idata)
    assert evidence.verdict == "ok"
    assert abs(evidence.log_z - exact) < 4.0 * evidence.mcse
    assert evidence.mcse < 0.05
    with pytest.raises(pmt.exceptions.ModelError, match=r"'x' is ordered.*takes a run"):
        pmt.bridge_sampling(idata, model)


@pytest.mark.parametrize(
    "prior",
    [
        lambda m: pm.MvNormal("x", m, np.eye(3), transform=IN_ORDER),
        lambda m: pm.SkewNormal("x", mu=m, alpha=1.0, transform=IN_ORDER, shape=3),
    ],
    ids=["correlated", "no quantiles"],
)
def test_free_parents_of_an_order_without_a_constant_are_refused(prior):
    with pm.Model() as model:
        x = prior(pm.Normal("m", shape=3))
        pm.Normal("y", x, 1.0, observed=np.zeros(3))
    with pytest.raises(
        pmt.exceptions.ModelError, match=r"'x' is ordered.*not known.*positive differences"
    ):
        compile_path(model)


@pytest.mark.slow("compiles models of its own")
def test_a_change_of_the_prior_changes_the_probability_of_order():
    with pm.Model() as model:
        scale = pm.Data("scale", 1.0)
        x = pm.Normal("x", B, scale * C, shape=3, transform=IN_ORDER)
        pm.Normal("y", x.sum(), 1.0, observed=0.3)
    change = density_change(model, "scale")
    value = np.array([[0.2, -0.4, 0.1]])
    point = {model.rvs_to_values[model["x"]].name: value}
    at = model.rvs_to_transforms[model["x"]].backward(value).eval()
    for new in (0.5, 2.0):
        laws = [stats.norm(B[i], new * C[i]) for i in range(3)]
        exact = sum(law.logpdf(v) for law, v in zip(laws, at[0], strict=True))
        exact -= log_p_ordered(laws)
        assert abs(change.evaluate(point, np.array(new))[0] - exact) < 1e-3
