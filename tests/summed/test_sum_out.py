"""Sums over discrete variables against enumeration, and draws of them against exact laws."""

import warnings
from itertools import product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_base import from_dict
from arviz_stats.base import array_stats
from scipy.special import gammaln, logsumexp
from scipy.stats import chisquare, norm

import pymc_tempering as pmt
from pymc_tempering.exceptions import ModelError, TemperingWarning
from pymc_tempering.model.layout import is_discrete, model_layout
from pymc_tempering.model.origin import origin_of
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.summed import groups
from pymc_tempering.summed.sum_out import sum_out, without_sums

Y = np.array([-1.1, 0.4, 1.3, 2.2])


def labels():
    """Three labels for each of four data, with unknown shares."""
    w = pm.Dirichlet("w", np.ones(3))
    mu = pm.Normal("mu", 0, 2, shape=3)
    z = pm.Categorical("z", w, shape=4)
    pm.Normal("y", mu[z], 0.5, observed=Y)


def switch_point():
    """Place where a rate changes, and a deterministic variable that depends on it."""
    rate = pm.Gamma("rate", 2, 1, shape=2)
    s = pm.DiscreteUniform("s", 3, 27)
    pm.Deterministic("year", 1900 + s)
    pm.Poisson("y", pm.math.switch(np.arange(30) < s, rate[0], rate[1]), observed=[2, 0, 1] * 10)


def hidden_states():
    """Chain of four states with three values, whose rows of probabilities are unknown."""
    rows = pm.Dirichlet("rows", np.ones((3, 3)))
    mu = pm.Normal("mu", 0, 2, shape=3)
    states = [pm.Categorical("z0", [0.5, 0.3, 0.2])]
    states += [pm.Categorical(f"z{t}", rows[states[0]] if t == 1 else rows[1]) for t in (1, 2)]
    states += [pm.Categorical("z3", rows[states[2]])]
    pm.Potential("tie", 0.7 * pt.eq(states[1], states[2]))
    pm.Normal("y", mu[pt.stack(states)], 0.5, observed=Y)


def neighbors():
    """Five sites in a ring, and one that hangs on it: a cycle is summed exactly, too."""
    a = pm.Normal("a")
    z = pm.Bernoulli("z", pm.math.sigmoid(a), shape=6)
    left, right = np.array([0, 1, 2, 3, 4, 0]), np.array([1, 2, 3, 4, 0, 5])
    pm.Potential("tie", (a * pt.eq(z[left], z[right])).sum())
    pm.Normal("y", z[:4] * a, 1.0, observed=Y)


def unequal_ranges():
    """A count below a switch, of other ranges, one of which depends on the element."""
    p = pm.Beta("p", 1, 1)
    on = pm.Bernoulli("on", p)
    k = pm.Binomial("k", [3, 5], pt.switch(on, p, 0.2))
    pm.Normal("y", k[np.array([0, 1, 1, 0])] * p, 1.0, observed=Y)


def invalid_where_zero():
    """A scale that is invalid at one value of the sum alone."""
    mu = pm.Normal("mu")
    k = pm.Binomial("k", 4, 0.5, shape=4)
    pm.Normal("y", mu, k * 1.0, observed=Y)


def two_groups():
    """Two groups that no term joins, and a variable that nothing depends on."""
    p = pm.Beta("p", 2, 2, shape=2)
    a = pm.Bernoulli("a", p[0], shape=4)
    b = pm.Bernoulli("b", p[1])
    pm.Bernoulli("leaf", 0.3 + 0.4 * b)
    pm.Normal("y", a * 2.0, 1.0, observed=Y)
    pm.Normal("x", b * p[0], 1.0, observed=0.3)


def absent():
    """Animals that are away cannot be seen; which rate they have is unknown too."""
    p = pm.Beta("p", 1, 2, shape=2)
    z = pm.Bernoulli("z", 0.6, shape=4)
    g = pm.Bernoulli("g", 0.3, shape=4)
    pm.Binomial("y", 5, z * (z * p[g]), observed=[0, 2, 0, 4])


def missing_groups():
    """Groups of which three are missing: each datum sees its own."""
    level = pm.Normal("level", 0, 2, shape=3)
    known = np.ma.masked_array([0, 1, 2, 1], [True, False, True, True])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyMC's of what is imputed
        group = pm.Categorical("group", [0.5, 0.3, 0.2], observed=known)
    pm.Normal("y", level[group], 0.5, observed=Y)


def tied_of_unequal_ranges():
    """Three elements of different ranges that meet in one term."""
    scale = pm.HalfNormal("scale", 1)
    kind = pm.Categorical("kind", [0.2, 0.5, 0.3])
    on = pm.Bernoulli("on", 0.4)
    n = pm.DiscreteUniform("n", 1, 4)
    pm.Normal("x", n, scale, observed=2.3)
    pm.Normal("y", kind * on - n / (1.0 + kind), 1.0 + on, observed=Y)


def rows_of_a_table():
    """A category whose probabilities are a row of a table, for each datum another."""
    rows = pm.Dirichlet("rows", np.ones((2, 3)))
    z = pm.Bernoulli("z", 0.4, shape=4)
    pm.Categorical("y", rows[z], observed=[0, 2, 1, 2])


def either_of_two_laws():
    """Three counts, whose data are near or far: PyMC's own sum of densities in a potential."""
    spread = pm.HalfNormal("spread", 2)
    n = pm.Binomial("n", 5, 0.4, shape=3)
    near, far = (pm.logp(pm.Normal.dist(y, 1 + spread), n) for y in (Y[:3], Y[1:]))
    pm.Potential("seen", pm.math.logaddexp(near, far))


def means_one_by_one():
    """Means that are stacked from numbers, each of its own label."""
    mu = pm.Normal("mu", 0, 2)
    z = pm.Bernoulli("z", 0.3, shape=3)
    pm.Normal("y", pt.stack([mu * z[0], mu * z[1], 0.5 * z[2]]), 1, observed=Y[:3])


MODELS = [
    labels, switch_point, hidden_states, neighbors, unequal_ranges, invalid_where_zero, two_groups,
    absent, missing_groups, rows_of_a_table, tied_of_unequal_ranges, either_of_two_laws,
    means_one_by_one,
]  # fmt: skip


def built(make):
    with pm.Model() as model:
        make()
    return model


def values_of(model):
    """All values of the discrete variables of a model, as points."""
    with model:
        rvs = [rv for rv in model.free_RVs if is_discrete(rv)]
    draws = pm.draw(rvs, 1, mode=python_mode(), random_seed=1)
    columns = []
    for rv, draw in zip(rvs, draws, strict=True):
        low, high = (np.broadcast_to(end, np.shape(draw)) for end in groups.known_range(rv))
        ranges = [range(int(a), int(b) + 1) for a, b in zip(low.flat, high.flat, strict=True)]
        columns.append([np.reshape(v, np.shape(draw)).astype("int64") for v in product(*ranges)])
    for values in product(*columns):
        yield {model.rvs_to_values[rv].name: v for rv, v in zip(rvs, values, strict=True)}


def log_terms_of(model, point):
    """Log density at all discrete values, and these."""
    log_p = model.compile_logp(mode=python_mode())
    every = list(values_of(model))
    with np.errstate(all="ignore"):
        return np.array([float(log_p(point | values)) for values in every]), every


def random_point(model, seed):
    """Values of the real variables of a model without sums."""
    rng = np.random.default_rng(seed)
    start = model.initial_point()
    names = [v.name for v in model.value_vars]
    return {name: start[name] + rng.normal(size=np.shape(start[name])) for name in names}


@pytest.mark.slow("compiles models of its own", every=3)
@pytest.mark.parametrize("make", MODELS)
def test_a_model_without_sums_has_the_sum_of_all_values_as_its_density(make):
    model = built(make)
    short = sum_out(model)
    assert not any(is_discrete(rv) for rv in short.free_RVs)
    log_p = short.compile_logp(mode=python_mode())
    for seed in range(2):
        point = random_point(short, seed)
        exact = logsumexp(log_terms_of(model, point)[0])
        assert float(log_p(point)) == pytest.approx(exact, abs=1e-8)


@pytest.mark.slow("compiles models of its own", every=3)
@pytest.mark.parametrize("make", MODELS)
def test_gradients_of_a_sum_are_numbers(make):
    """Where a value is impossible, it has no part in the gradient."""
    short = sum_out(built(make))
    slopes = short.compile_dlogp(mode=python_mode())(random_point(short, 1))
    assert np.isfinite(slopes).all()


def test_values_that_an_element_does_not_have_must_not_count(monkeypatch):
    """Planted: without the mask, the last value of the shorter range counts twice."""
    monkeypatch.setattr(groups, "LOWEST", 0.0)
    model = built(unequal_ranges)
    short = sum_out(model)
    point = random_point(short, 0)
    exact = logsumexp(log_terms_of(model, point)[0])
    found = float(short.compile_logp(mode=python_mode())(point))
    assert abs(found - exact) > 0.01


@pytest.mark.slow("repeats")
@pytest.mark.parametrize(
    "make", [hidden_states, neighbors, unequal_ranges, two_groups, tied_of_unequal_ranges]
)
def test_draws_have_their_exact_law_given_the_real_variables(make):
    model = built(make)
    short = sum_out(model)
    point = random_point(short, 3)
    log_p, every = log_terms_of(model, point)
    p = np.exp(log_p - logsumexp(log_p))
    x = np.concatenate([np.ravel(point[v.name]) for v in short.value_vars])
    noise = np.random.default_rng(4).uniform(-1e-9, 1e-9, (4000, x.size))
    rows = origin_of(short).whole(x + noise)
    drawn = model_layout(model).unravel(rows)
    names = list(every[0])
    keys = [tuple(np.ravel(v[n]).tolist() for n in names) for v in every]
    place = {str(key): i for i, key in enumerate(keys)}
    found = [str(tuple(np.ravel(drawn[n][i]).tolist() for n in names)) for i in range(4000)]
    counts = np.bincount([place[key] for key in found], minlength=len(keys))
    assert counts[p == 0].sum() == 0
    often = p > 5 / 4000
    observed = np.append(counts[often], counts[~often].sum())
    expected = 4000 * np.append(p[often], p[~often].sum())
    keep = expected > 1
    share = observed[keep].sum() / expected[keep].sum()
    assert chisquare(observed[keep], expected[keep] * share).pvalue > 1e-3


def latent_counts(n=3):
    """Counts of animals, of which each visit sees some."""
    lam = pm.Gamma("lam", 2, 0.5)
    p = pm.Beta("p", 1, 1)
    count = pm.Poisson("count", lam, shape=n)
    pm.Binomial("y", count[:, None], p, observed=np.array([[2, 1], [3, 4], [0, 1]])[:n])


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("seed", range(3))
def test_counts_without_a_bound_are_summed_far_enough(seed):
    """Against one site after the other, up to 400."""
    model = built(latent_counts)
    short = sum_out(model)
    point = random_point(short, seed)
    lam, p = np.exp(point["lam_log__"]), 1 / (1 + np.exp(-point["p_logodds__"]))
    k = np.arange(400)
    terms = [
        pm.logp(pm.Poisson.dist(lam), k).eval()
        + sum(pm.logp(pm.Binomial.dist(k, p), y).eval() for y in row)
        for row in [[2, 1], [3, 4], [0, 1]]
    ]
    rest = float(short.compile_logp(vars=short.free_RVs, mode=python_mode())(point))
    exact = rest + sum(logsumexp(term) for term in terms)
    assert float(short.compile_logp(mode=python_mode())(point)) == pytest.approx(exact, abs=1e-7)


@pytest.mark.parametrize("law", [pm.math.logaddexp, pm.math.maximum])
def test_elements_that_meet_in_no_operation_are_summed_one_by_one(law):
    """36 counts of 400 values: all pairs of values of two would be 160,000."""
    with pm.Model() as model:
        spread = pm.HalfNormal("spread", 2)
        n = pm.DiscreteUniform("n", 0, 399, shape=36)
        pm.Potential("seen", law(pm.logp(pm.Normal.dist(9, 1 + spread), n), -0.5 * n))
    assert not any(is_discrete(rv) for rv in sum_out(model).free_RVs)


def test_a_count_that_follows_another_is_summed_with_it():
    """A pair costs the values of both; planted, that of what a chain takes."""

    def left(most):
        with pm.Model() as model, pytest.MonkeyPatch.context() as patch:
            patch.setattr(groups, "MOST_CELLS", most)
            births = pm.Gamma("births", 5, 1)
            first = pm.Poisson("first", 12)
            second = pm.Poisson("second", 1.5 * first + births)
            pm.Normal("y", second, 5, observed=95)
            return [rv.name for rv in sum_out(model).free_RVs if is_discrete(rv)]

    assert left(200_000) == []
    assert left(20_000) == ["first", "second"]


def spike_and_slab():
    """Indicators that meet in each datum."""
    on = pm.Bernoulli("on", 0.5, shape=4)
    b = pm.Normal("b", 0, 1, shape=4)
    pm.Normal("y", np.eye(4)[:, ::-1] @ (on * b) + on.sum(), 1.0, observed=Y)


def parent_of_a_real_one():
    """An indicator on which the prior of a real variable depends."""
    on = pm.Bernoulli("on", 0.5)
    b = pm.Normal("b", 0, 1 + on)
    pm.Normal("y", b, 1.0, observed=Y)


@pytest.mark.parametrize("make", [spike_and_slab, parent_of_a_real_one])
def test_what_cannot_be_summed_stays(make):
    model = built(make)
    assert sum_out(model) is model


def test_a_variable_with_a_kernel_stays():
    model = built(two_groups)
    left = without_sums(model, {"a": "gibbs"})
    assert [rv.name for rv in left.free_RVs if is_discrete(rv)] == ["a"]
    assert without_sums(model, "gibbs") is model
    assert without_sums(model, None, ["y"]) is model
    assert not any(is_discrete(rv) for rv in without_sums(model, "hmc").free_RVs)


def test_a_short_way_that_is_wrong_where_the_draws_are_is_refused():
    """Beyond 9 the rate is another function of a, which no draw of the prior shows."""
    with pm.Model() as model:
        a = pm.Normal("a")
        s = pm.DiscreteUniform("s", 0, 29)
        after = pt.switch(a > 9, 1 + 0.5 * pt.sin(s), pt.exp(0.1 * a))
        rate = pm.math.switch(np.arange(30) < s, 1.0, after)
        pm.Poisson("y", rate, observed=[2, 0, 1] * 10)
    short = sum_out(model)
    origin_of(short).check(np.zeros((5, 1)))
    with pytest.raises(ModelError, match=r"sum over 's' is off by .*kernel=\{'s': 'slice'\}"):
        origin_of(short).check(np.full((5, 1), 9.5))


def exact_coal():
    """Log evidence, and law of the switch point, of two exponential rates."""
    y = np.array([5, 4, 6, 4, 5, 3, 4, 1, 0, 2, 1, 1, 0, 1, 2, 0, 1, 1, 0, 1, 0, 2, 1, 0, 1])
    before = np.cumsum(np.r_[0, y])[:-1]
    n, total = y.size, y.sum()
    s = np.arange(n)
    parts = [(before, s), (total - before, n - s)]
    log_p = sum(gammaln(k + 1) - (k + 1) * np.log(m + 1) for k, m in parts)
    log_p = log_p - np.log(n) - gammaln(y + 1).sum()
    return y, logsumexp(log_p), np.exp(log_p - logsumexp(log_p))


def coal(y):
    with pm.Model() as model:
        s = pm.DiscreteUniform("s", 0, y.size - 1)
        rate = pm.Exponential("rate", 1, shape=2)
        pm.Deterministic("when", s + 1900)
        pm.Poisson("y", pm.math.switch(np.arange(y.size) < s, rate[0], rate[1]), observed=y)
    return model


@pytest.mark.slow("compiles models of its own")
def test_a_run_is_as_precise_as_without_discrete_variables():
    y, log_z, p = exact_coal()
    model = coal(y)
    idata = pmt.sample(model=model, random_seed=1, quiet=True, cores=1)
    found = pmt.log_marginal_likelihood(idata)
    assert found.verdict == "ok"
    assert found.mcse < 0.005
    assert abs(found.log_z - log_z) < 4 * found.mcse
    posterior = idata.posterior
    assert set(posterior.data_vars) == {"s", "rate", "when"}
    assert (posterior["when"] == posterior["s"] + 1900).all()
    assert posterior["s"].dtype == np.int64
    counts = np.bincount(posterior["s"].values.ravel(), minlength=p.size)
    often = p > 0.01
    n_effective = 4000 / 2
    z = (counts[often] / 4000 - p[often]) / np.sqrt(p[often] * (1 - p[often]) / n_effective)
    assert np.abs(z).max() < 4
    assert "y" in idata.observed_data
    longer = pmt.extend(idata, draws=100, model=model, quiet=True)
    assert longer.posterior.sizes["draw"] == posterior.sizes["draw"] + 100


@pytest.mark.slow("compiles models of its own")
def test_the_step_method_sums_out_too():
    y, log_z, _ = exact_coal()
    with coal(y):
        step = pmt.SimulatedTempering(quiet=True, random_seed=2)
        idata = pm.sample(
            500, step=step, chains=2, cores=1, random_seed=3, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    found = pmt.log_marginal_likelihood(pmt.convert(idata))
    assert set(idata.posterior.data_vars) == {"s", "rate", "when"}
    assert abs(found.log_z - log_z) < 4 * found.mcse


@pytest.mark.slow("compiles models of its own")
def test_a_given_posterior_is_read_without_its_discrete_variables():
    y, log_z, p = exact_coal()
    rng = np.random.default_rng(4)
    s = rng.choice(p.size, p=p, size=(2, 1000))
    before = np.cumsum(np.r_[0, y])[s]
    rate = np.stack(
        [rng.gamma(before + 1, 1 / (s + 1)), rng.gamma(y.sum() - before + 1, 1 / (y.size - s + 1))],
        axis=2,
    )
    idata = from_dict({"posterior": {"s": s, "rate": rate}})
    with pytest.warns(TemperingWarning, match="come without their log density"):
        found = pmt.bridge_sampling(idata, coal(y), random_seed=5)
    assert abs(found.log_z - log_z) < 4 * found.mcse
    assert found.mcse < 0.02


@pytest.mark.slow("compiles models of its own")
def test_raise_sums_out_what_is_not_given():
    """The labels of two data are summed out; the bound is on the evidence of a value of theta."""
    with pm.Model() as model:
        theta = pm.Normal("theta")
        mu = pm.Normal("mu", theta, 1.0)
        z = pm.Bernoulli("z", 0.4, shape=2)
        pm.Potential("energy", -0.5 * ((mu + z - np.array([0.3, 1.2])) ** 2).sum())
    bound = pmt.annealed.raise_(
        {"theta": 0.5}, model, n_particles=400, random_seed=1, quiet=True, progressbar=False
    )
    grid, step = np.linspace(-8, 8, 801, retstep=True)
    likelihood = sum(
        np.logaddexp(np.log(0.6) - 0.5 * (grid - y) ** 2, np.log(0.4) - 0.5 * (grid + 1 - y) ** 2)
        for y in (0.3, 1.2)
    )
    both = norm.logpdf(grid[:, None]) + norm.logpdf(grid, grid[:, None], 1.0) + likelihood
    given = norm.logpdf(0.5) + norm.logpdf(grid, 0.5, 1.0) + likelihood
    exact = logsumexp(given) + np.log(step) - logsumexp(both) - 2 * np.log(step)
    assert bound.log_z - 4 * bound.mcse < exact
    assert bound.log_z > exact - 0.2


def test_labels_have_their_exact_probabilities():
    """Eight data of two normals with unknown means: 256 labelings in closed form.

    Within 4.5 errors by the effective sample size, of eight labels (5e-5).
    """
    y, sd, wide, share = np.array([-1.3, -0.9, -0.4, 0.1, 0.6, 1.1, 1.9, 2.4]), 0.7, 2.0, 0.35
    with pm.Model() as model:
        mu = pm.Normal("mu", [-1.0, 1.0], wide, shape=2)
        z = pm.Bernoulli("z", share, shape=8)
        pm.Normal("y", mu[z], sd, observed=y)
    every = np.array(list(product([0, 1], repeat=8)))
    log_p = every @ np.log([share] * 8) + (1 - every) @ np.log([1 - share] * 8)
    for label, center in enumerate([-1.0, 1.0]):
        mine = every == label
        n, total = mine.sum(axis=1), (mine * (y - center)).sum(axis=1)
        squares = (mine * (y - center) ** 2).sum(axis=1)
        v = sd**2 + n * wide**2
        log_p -= 0.5 * ((squares - wide**2 * total**2 / v) / sd**2 + np.log(v / sd**2))
        log_p -= n * np.log(sd * np.sqrt(2 * np.pi))
    exact = np.exp(log_p - logsumexp(log_p)) @ every
    idata = pmt.sample(model=model, random_seed=4, quiet=True, progressbar=False)
    evidence = pmt.log_marginal_likelihood(idata)
    assert abs(evidence.log_z - logsumexp(log_p)) < 4 * evidence.mcse < 0.05
    drawn = idata["posterior"]["z"]
    errors = np.sqrt(exact * (1 - exact) / array_stats.ess(drawn.values, chain_axis=0, draw_axis=1))
    assert (np.abs(drawn.mean(("chain", "draw")).values - exact) < 4.5 * errors).all()


@pytest.mark.slow("compiles models of its own")
def test_a_recursion_that_starts_at_what_a_label_selects_is_summed():
    """The end of a slice in its loop has the shape of that start: MissingInputError before."""
    with pm.Model() as model:
        label = pm.Bernoulli("label", 0.4)
        start = pt.as_tensor([0.4, 1.5])[label]
        pm.GARCH11("y", omega=1.0, alpha_1=pm.Beta("a", 2, 2), beta_1=0.4, initial_vol=start,
                   observed=np.array([0.2, 0.3, -1.3, 0.9]))  # fmt: skip
    short = sum_out(model)
    assert [rv.name for rv in short.free_RVs] == ["a"]
    point = random_point(short, 1)
    exact = logsumexp(log_terms_of(model, point)[0])
    assert float(short.compile_logp(mode=python_mode())(point)) == pytest.approx(exact, abs=1e-8)
