"""Models with a latent field: what is followed, and whether log Z is right."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from numpy.testing import assert_allclose
from scipy.special import logsumexp
from scipy.stats import halfnorm, multivariate_normal, norm

import pymc_tempering as pmt
from pymc_tempering.exceptions import PriorDrawsError
from pymc_tempering.fields import conditional, find, whiten
from pymc_tempering.fields.arrow import Root
from pymc_tempering.fields.conditional import PER_LAW, Field
from pymc_tempering.fields.find import find_field
from pymc_tempering.fields.summing import Sum, along_sums, differenced, summed
from pymc_tempering.fields.whiten import sampled_model
from pymc_tempering.model.origin import origin_of

D = 210
WALK = np.cumsum(0.3 * np.random.default_rng(1).normal(size=D))
NOISY = WALK + 0.5 * np.random.default_rng(2).normal(size=D)
COUNTS = np.random.default_rng(3).poisson(np.exp(1.0 + 0.3 * WALK))


def walk(sigma, noise):
    x = pm.GaussianRandomWalk("x", sigma=sigma, init_dist=pm.Normal.dist(0, 1), shape=D)
    pm.Normal("y", x, noise, observed=NOISY)


def known_scales():
    walk(0.3, 0.5)


def unknown_scales():
    walk(pm.HalfNormal("sigma", 1), pm.HalfNormal("noise", 1))


def counts():
    sigma = pm.HalfNormal("sigma", 0.5)
    x = pm.GaussianRandomWalk("x", sigma=sigma, init_dist=pm.Normal.dist(0, 2), shape=D)
    pm.Poisson("y", pt.exp(x), observed=COUNTS)


def not_centered():
    sigma = pm.HalfNormal("sigma", 1)
    z = pm.Normal("z", shape=D)
    pm.Normal("y", sigma * pt.cumsum(z), 0.5, observed=NOISY)


def measured_with_error():
    mean, slope = pm.Normal("mean"), pm.Normal("slope", 0, 2)
    x = pm.Normal("x", mean, 1.2, shape=D)
    pm.Normal("w", x, 0.6, observed=WALK)
    pm.Normal("y", slope * x, 0.5, observed=NOISY)


def correlated_lines():
    line = pm.MvNormal(
        "line",
        np.zeros(2),
        chol=pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1))[0],
        shape=(D // 2, 2),
    )
    pm.Deterministic("total", line.sum())
    pm.Normal("y", line, 0.5, observed=NOISY.reshape(-1, 2))


def responses():
    ability, discrimination = pm.Normal("ability", shape=D), pm.LogNormal("a", 0, 0.5, shape=20)
    answers = np.random.default_rng(4).integers(2, size=(D, 20))
    pm.Bernoulli("y", logit_p=discrimination * ability[:, None], observed=answers)


def two_modes():
    x = pm.Normal("x", 0, 1, shape=D)
    apart = pt.logaddexp(-0.5 * ((x - 1.0) ** 2).sum(), -0.5 * ((x + 1.0) ** 2).sum())
    pm.Potential("y", 4.0 * apart)


def dense_of_few():
    scale, places = pm.HalfNormal("scale", 1), np.linspace(0, 1, 180)
    apart = (places[:, None] - places) ** 2
    root = np.linalg.cholesky(np.exp(-apart / 0.02) + 1e-4 * np.eye(180))
    z = pm.Normal("z", 0, 1, shape=180)
    pm.Normal("y", scale * pt.dot(root, z), 0.5, observed=NOISY[:180])


N, FEWER = 60, 50
APART = np.abs(np.subtract.outer(np.linspace(0, 3, N), np.linspace(0, 3, N)))


def squared_exponential(length):
    return np.exp(-0.5 * (APART / length) ** 2) + 1e-3 * np.eye(N)


SMOOTH = (
    0.8 * np.linalg.cholesky(squared_exponential(0.7)) @ np.random.default_rng(9).normal(size=N)
)


def process(noise=None):
    length, scale = pm.LogNormal("length", -0.5, 0.5), pm.HalfNormal("scale", 1)
    cov = pt.exp(-0.5 * (APART / length) ** 2) + 1e-3 * np.eye(N)
    f = pm.MvNormal("f", np.zeros(N), cov=scale**2 * cov, shape=N)
    if noise is None:
        pm.Poisson(
            "y", pt.exp(1.0 + f), observed=np.random.default_rng(3).poisson(np.exp(1 + SMOOTH))
        )
    else:
        pm.Normal("y", f, noise, observed=SMOOTH + noise * ERRORS)


ERRORS = np.random.default_rng(10).normal(size=N)


def small():
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("y", pm.Normal("x", 0, sigma, shape=159), 1, observed=NOISY[:159])


def build(kind):
    with pm.Model() as model:
        kind()
    return model


def covariance(sigma, noise, first=1.0):
    steps = np.arange(D)
    walk = first**2 + sigma**2 * np.minimum.outer(steps, steps)
    return walk + noise**2 * np.eye(D)


def log_z_of_unknown_scales():
    """By the normal law of the data given the scales, and a grid of their logs."""
    log_sigma, log_noise = np.linspace(-2.2, -0.2, 41), np.linspace(-1.2, -0.2, 41)
    terms = [
        multivariate_normal.logpdf(NOISY, cov=covariance(np.exp(s), np.exp(n)))
        + halfnorm.logpdf(np.exp(s)) + s + halfnorm.logpdf(np.exp(n)) + n
        for s in log_sigma for n in log_noise
    ]  # fmt: skip
    return logsumexp(terms) + np.log(np.ptp(log_sigma) * np.ptp(log_noise) / 40**2)


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize(
    ("kind", "others"),
    [
        (known_scales, []),
        (unknown_scales, ["sigma", "noise"]),
        (counts, ["sigma"]),
        (not_centered, ["sigma"]),
        (measured_with_error, ["slope"]),
        (process, ["length", "scale"]),
    ],
)
def test_fields_are_found_with_what_they_depend_on(kind, others, monkeypatch):
    monkeypatch.setattr(find, "LEAST_DIM", FEWER)
    model = build(kind)
    inner = sampled_model(model)
    assert [rv.name for rv in inner.free_RVs[:-1]] == others
    n_white = origin_of(inner).n_white
    assert n_white + len(others) == sum(rv.size.eval() for rv in model.free_RVs)


@pytest.mark.slow("compiles models of its own", quick=["small"])
@pytest.mark.parametrize("kind", [responses, small, dense_of_few, two_modes])
def test_what_cannot_be_followed_or_need_not_stays_as_it_is(kind):
    model = build(kind)
    assert sampled_model(model) is model


@pytest.mark.slow("repeats")
def test_a_prior_that_draws_another_law_is_refused():
    with pm.Model() as model:
        pm.CustomDist(
            "x", 0.0, logp=lambda value, mu: pm.logp(pm.Normal.dist(mu, 1), value),
            random=lambda mu, rng=None, size=None: rng.normal(mu, 2.0, size), shape=D,
        )  # fmt: skip
        pm.Normal("y", model["x"], 1, observed=NOISY)
    with pytest.raises(PriorDrawsError, match="do not have the law"):
        pmt.sample(model=model, random_seed=1, quiet=True, progressbar=False)


def test_a_model_with_kernels_of_the_users_own_stays_as_it_is():
    model = build(unknown_scales)
    assert sampled_model(model, "hmc") is model
    assert sampled_model(model, None, ["y"]) is model
    assert sampled_model(model, None, None, "prior") is model


SLOW = [
    pytest.param(kind, marks=pytest.mark.slow("compiles models of its own"))
    for kind in (unknown_scales, counts, process)
]


@pytest.fixture(scope="module", params=[not_centered, *SLOW])
def field(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(find, "LEAST_DIM", FEWER)
        return find_field(build(request.param))


def test_white_states_come_back(field):
    rng = np.random.default_rng(5)
    others = field.start[field.others] + 0.3 * rng.normal(size=field.others.size)
    u = rng.normal(size=field.inside.size)
    back, again = field.forward(field.inverse(others, u))
    assert_allclose(back, others)
    assert_allclose(again, u, atol=1e-8)


def test_the_slope_of_the_white_density_is_that_of_its_values(field):
    rng, others = np.random.default_rng(6), field.start[field.others]
    u, along = rng.normal(size=(2, field.inside.size))
    _, slope = field.white(others, u)
    step = 1e-4
    ends = [field.white(others, u + sign * step * along)[0] for sign in (-1.0, 1.0)]
    assert slope @ along == pytest.approx((ends[1] - ends[0]) / (2 * step), rel=1e-5)


def test_the_change_of_variables_is_exact(field):
    # Log density by the map at two others differs by the log determinant of its derivative alone.
    rng, others = np.random.default_rng(7), field.start[field.others]
    u = rng.normal(size=field.inside.size)
    x = field.inverse(others, u)
    eye = np.eye(u.size)
    columns = np.array([field.inverse(others, u + each) for each in eye]) - x
    _, log_det = np.linalg.slogdet(columns[:, field.inside])
    value, _ = field.evaluate(others, field.inner(x)[None])
    assert field.white(others, u)[0] == pytest.approx(value[0] + log_det, abs=1e-6)


def test_modes_are_climbed_from_where_they_lean_to(field):
    there = field.start[field.others]
    near = there + 0.3 * np.random.default_rng(7).standard_normal((20, there.size))
    blunt = replace(field, lean=None, is_scaled=False)  # planted: always from one state
    leaning, fixed = (
        np.mean([each.given(others).n_roots for others in near]) for each in (field, blunt)
    )
    assert leaning <= fixed
    off = [
        np.abs(each.begin(others) - field.given(others).mode).max()
        for each in (field, blunt)
        for others in near
    ]
    most = 1.0 if field.is_staged else 0.5  # a mode moves less in a line with a length
    assert np.mean(off[:20]) < most * np.mean(off[20:])


def test_the_map_is_made_where_the_others_are_likely(field):
    others = field.start[field.others]
    edges = np.vstack([np.eye(others.size), -np.eye(others.size)])
    around = max(field.log_marginal(others + 0.3 * edge) for edge in edges)
    assert field.log_marginal(others) > around - find.NEAR_TOP
    poor = find._settled(replace(field.begun_at(others + 1.5), lean=None))
    assert poor.log_marginal(poor.start[poor.others]) > field.log_marginal(others) - 1.0


def test_the_count_of_a_law_has_its_steps(field):
    assert field.n_roots >= 1.0
    twice = replace(field, n_roots=2.0 * field.n_roots)
    once = PER_LAW + (field.path.work if field.is_staged else 0)
    assert twice.work - once == pytest.approx(2.0 * (field.work - once), abs=2)


@pytest.fixture(scope="module")
def normal():
    return find_field(build(unknown_scales))


def off_from_normal(field):
    """Largest difference of the white density and the exact one, where the field is normal."""
    rng, off = np.random.default_rng(8), []
    for shift in (-0.4, 0.0, 0.4):
        t = field.start[field.others] + shift
        u = rng.normal(size=D)
        scales = np.exp(t)
        exact = multivariate_normal.logpdf(NOISY, cov=covariance(*scales))
        exact += halfnorm.logpdf(scales).sum() + t.sum()
        normal = -0.5 * (u @ u + D * np.log(2.0 * np.pi))
        off.append(abs(field.white(t, u)[0] - normal - exact))
    return max(off)


def test_a_normal_field_is_exactly_white(normal):
    assert off_from_normal(normal) < 1e-4


def test_a_missing_log_determinant_is_seen(normal, monkeypatch):
    monkeypatch.setattr(Root, "log_det", 0.0)
    assert off_from_normal(normal) > 1.0


def test_a_precision_of_other_scales_is_seen(normal, monkeypatch):
    given = Field.given
    monkeypatch.setattr(Field, "given", lambda self, others: given(self, others.round(0)))
    assert off_from_normal(normal) > 1.0


@pytest.mark.slow("compiles models of its own")
def test_log_z_of_a_walk_with_unknown_scales():
    idata = pmt.sample(
        1000, model=build(unknown_scales), random_seed=1, quiet=True, progressbar=False
    )  # of 500 draws the largest R-hat of 212 values is above 1.01 by chance
    evidence = pmt.log_marginal_likelihood(idata)
    assert evidence.verdict == "ok"
    assert evidence.mcse < 0.02
    assert abs(evidence.log_z - log_z_of_unknown_scales()) < 4.0 * evidence.mcse + 1e-3
    posterior = idata["posterior"]
    assert posterior["x"].shape == (4, posterior.sizes["draw"], D)
    assert np.corrcoef(posterior["x"].mean(("chain", "draw")), WALK)[0, 1] > 0.95
    bridged = pmt.bridge_sampling(idata, build(unknown_scales), random_seed=2)
    assert bridged.mcse < 0.02
    assert abs(bridged.log_z - log_z_of_unknown_scales()) < 4.0 * bridged.mcse + 1e-3


def log_z_of_process(noise):
    """By the normal law of the data given length and scale, and a grid of their logs."""
    log_length, log_scale = np.linspace(-2.2, 1.2, 41), np.linspace(-2.2, 1.2, 41)
    y, terms = SMOOTH + noise * ERRORS, []
    for a in log_length:
        values, vectors = np.linalg.eigh(squared_exponential(np.exp(a)))
        along = (vectors.T @ y) ** 2
        for b in log_scale:
            var = np.exp(2 * b) * values + noise**2
            log_p = -0.5 * (along / var + np.log(2 * np.pi * var)).sum()
            terms.append(log_p + norm.logpdf(a, -0.5, 0.5) + halfnorm.logpdf(np.exp(b)) + b)
    return logsumexp(terms) + np.log(np.ptp(log_length) * np.ptp(log_scale) / 40**2)


@pytest.mark.slow("compiles models of its own")
def test_log_z_of_a_process_of_unknown_length(monkeypatch):
    monkeypatch.setattr(find, "LEAST_DIM", FEWER)
    model = build(lambda: process(0.4))
    assert find_field(model).is_staged
    idata = pmt.sample(300, model=model, random_seed=1, quiet=True, progressbar=False)
    evidence = pmt.log_marginal_likelihood(idata)
    assert evidence.verdict == "ok"
    assert evidence.mcse < 0.05
    assert abs(evidence.log_z - log_z_of_process(0.4)) < 4.0 * evidence.mcse + 1e-3


@pytest.mark.slow("compiles models of its own")
def test_what_is_derived_from_a_field_is_in_the_draws():
    idata = pmt.sample(100, model=build(correlated_lines), random_seed=1, quiet=True, chains=2)
    posterior = idata["posterior"]
    assert idata["tempering"].attrs["reference"] == "fitted"
    assert_allclose(posterior["total"], posterior["line"].sum(("line_dim_0", "line_dim_1")))
    assert (posterior["chol_corr"][..., 0, 1] ** 2 < 1.0).all()


def test_the_density_of_many_variables_is_not_compiled_once_more(monkeypatch):
    monkeypatch.setattr(find, "LEAST_DIM", 3)
    monkeypatch.setattr(conditional, "MOST_PIECES", 5)
    monkeypatch.setattr(conditional, "staged", lambda *_: pytest.fail("compiled once more"))
    with pm.Model() as model:
        x = [pm.Normal(f"x{i}") for i in range(6)]
        pm.Normal("y", sum(x), 1.0, observed=NOISY[:3])
    field = find_field(model)
    assert field.dense
    at = np.random.default_rng(5).normal(size=(2, 6))
    values, slopes = field.evaluate(np.empty(0), at)
    rests = NOISY[:3] - at.sum(axis=1, keepdims=True)
    assert_allclose(values, norm.logpdf(at).sum(axis=1) + norm.logpdf(rests).sum(axis=1))
    assert_allclose(slopes, rests.sum(axis=1, keepdims=True) - at)


def test_log_z_of_a_field_without_others_is_exact():
    idata = pmt.sample(200, model=build(known_scales), random_seed=1, quiet=True, progressbar=False)
    exact = multivariate_normal.logpdf(NOISY, cov=covariance(0.3, 0.5))
    assert pmt.log_marginal_likelihood(idata).log_z == pytest.approx(exact, abs=1e-3)
    assert idata["tempering"].attrs["reference"] == "white"


@pytest.mark.slow("compiles models of its own")
@pytest.mark.filterwarnings("ignore:R-hat")  # of 211 values, two chains of 500 draws
def test_counts_by_chains_and_by_a_bridge_agree():
    model = build(counts)
    with model:
        idata = pm.sample(
            step=pmt.SimulatedTempering(quiet=True, progressbar=False, random_seed=1),
            draws=500, chains=2, cores=1, random_seed=1, progressbar=False,
        )  # fmt: skip
    chains = pmt.log_marginal_likelihood(idata)
    bridge = pmt.bridge_sampling(idata, model, random_seed=2)
    assert abs(chains.log_z - bridge.log_z) < 4.0 * np.hypot(chains.mcse, bridge.mcse)
    assert bridge.mcse < 0.05


def test_a_walk_that_is_written_by_its_steps_has_neighbors_along_their_sums():
    field = find_field(build(not_centered))
    [walk] = field.sums
    assert (walk.part.stop - walk.part.start, field.curvature.arrow.width) == (D, 1)
    assert len(field.curvature.moves) < 10


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("axis", [0, 1])
def test_sums_come_back_and_carry_slopes_over(axis):
    rng, n = np.random.default_rng(8), 14
    sums = (Sum(slice(1, 13), (4, 3), axis), Sum(slice(1, 13), (4, 3), axis))
    x, v, slope = rng.normal(size=(3, 2, n))
    assert_allclose(differenced(sums, summed(sums, x)), x, atol=1e-12)
    expected = np.cumsum(np.cumsum(x[:, 1:13].reshape(2, 4, 3), axis=axis + 1), axis=axis + 1)
    assert_allclose(summed(sums, x)[:, 1:13].reshape(2, 4, 3), expected)
    # A slope goes with its values as a product: g . x = h . v for all v.
    along = (along_sums(sums, slope) * v).sum(axis=1)
    assert_allclose(along, (slope * differenced(sums, v)).sum(axis=1))


def quiet_returns():
    mean, step = pm.Normal("mean", 0, 10), pm.HalfNormal("step", 1)
    h = pm.GaussianRandomWalk("h", sigma=step, init_dist=pm.Normal.dist(0, 1), shape=D)
    pm.Normal(
        "y", 0, pt.exp((mean + h) / 2), observed=1e-6 * np.random.default_rng(5).normal(size=D)
    )


@pytest.mark.slow("compiles models of its own")
def test_a_curvature_that_is_none_at_the_initial_point_is_seen(monkeypatch):
    """Where log variances begin, such returns tell as good as nothing of them."""
    found = find_field(build(quiet_returns))
    law, others = found.given(found.start[found.others]), found.start[found.others]
    ridge = np.append(1.0, -np.ones(D))  # along which the likelihood stays
    slopes = [found._at(others, law.mode + x * ridge)[1] for x in (-1e-3, 1e-3)]
    true = (slopes[0] - slopes[1]) @ ridge / 2e-3
    assert (law.root.whiten(ridge) ** 2).sum() == pytest.approx(true, rel=0.1)
    # Planted: the curvature is looked for at the initial point alone.
    once = find._field_of
    monkeypatch.setattr(find, "_field_of", lambda path, others, known=None: once(path, others))
    assert find_field(build(quiet_returns)) is None  # climbs do not come to one mode then


@pytest.mark.slow("repeats")
def test_a_sparse_field_whose_law_is_dear_serves_bridges_and_not_chains(monkeypatch):
    model, field = build(counts), find_field(build(counts))
    monkeypatch.setattr(whiten, "WORTH_WORK", field.work - 1)
    assert sampled_model(model) is model
    assert find_field(model) is not None
    monkeypatch.setattr(whiten, "WORTH_WORK", field.work)
    assert sampled_model(model) is not model
