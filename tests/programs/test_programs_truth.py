"""The truth of random programs: densities beside PyMC's, normalizers, closed forms, modes."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import special, stats

from benchmarks.models.random_programs_draw import SUBJECTS, attempts, write
from benchmarks.models.random_programs_families import CONSTANT, FAMILIES, MIXED
from benchmarks.models.random_programs_language import Dist, Link, Observed, Program, Unknown
from benchmarks.models.random_programs_sampling import sample
from benchmarks.models.random_programs_source import HELPERS, call, model_of
from benchmarks.models.random_programs_vectors import VECTORS, ZERO_SUM_STDEV, W
from benchmarks.models.random_programs_writer import Writer
from benchmarks.truths import random_programs_cubature as cubature
from benchmarks.truths.random_programs_densities import log_density
from benchmarks.truths.random_programs_images import is_image
from benchmarks.truths.random_programs_monte_carlo import checked, opinion_of
from benchmarks.truths.random_programs_places import draw_at
from benchmarks.truths.random_programs_states import counts_of, dimension_of
from benchmarks.truths.random_programs_truth import truth_of

NOT_ALONE = ("WishartBartlett", "LKJCholeskyCov", "MvNormal by chol", "CAR", "CAR of data", "ICAR")
"""Several variables of PyMC in one, or with an argument that is a variable; (I)CAR: see below."""
NAMES = [name for name in (*FAMILIES, *VECTORS) if name not in NOT_ALONE]


def constants(name, seed, long=False):
    """A distribution whose arguments are numbers."""
    while True:
        dist = Writer(np.random.default_rng(seed), 0).dist(name, 0.0, long=long)
        if not list(dist.links()):
            return dist
        seed += 100


def of_pymc(dist, x):
    """Graph of PyMC's log density, of which only the sum over elements is compared."""
    scope = {"np": np, "pm": pm, "pt": pt}
    for text in HELPERS.values():
        exec(text, scope)
    shaped = dist.core and (dist.parts or dist.family in ("GARCH11", "ZeroSumNormal"))
    rv = eval(call(dist, more=(f"shape={dist.core}",) if shaped else ()), scope)
    return pm.logp(rv, pt.as_tensor(x)).sum()


@pytest.mark.slow("compiles models of its own")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_densities_are_those_of_pymc():
    ours, theirs, labels = [], [], []
    for name in NAMES:
        for seed in (1, 2):
            dist = constants(name, seed, long=True)
            rng = np.random.default_rng(seed)
            x = sample(dist, () if name in VECTORS else (4,), {}, rng)
            family = FAMILIES.get(name)
            counts = family.discrete if family else VECTORS[name].space == "counts"
            x = x.astype(int) if counts else x
            ours.append(log_density(dist, x, {})[0])
            theirs.append(of_pymc(dist, x[0]))
            labels.append(f"{name} {seed}")
    found = pytensor.function([], theirs, mode="FAST_COMPILE")()
    far = {n: (a, float(b)) for n, a, b in zip(labels, ours, found, strict=True)
           if not np.isclose(a, b, rtol=1e-6, atol=1e-8)}  # fmt: skip
    assert not far


@pytest.mark.slow("compiles models of its own")
def test_a_density_off_by_a_constant_is_found():
    """PyMC leaves out a constant of CAR, which its draws do not know."""
    dist = constants("CAR", 1)
    x = np.array([0.3, -0.2, 0.9])
    exact = log_density(dist, x[None], {})[0]
    theirs = of_pymc(dist, x).eval()
    assert exact - theirs == pytest.approx(-0.5 * np.log(2 * np.pi / np.array([1, 2, 1])).sum())


@pytest.mark.slow("repeats")
@pytest.mark.parametrize("seed", [1, 2])
def test_the_constant_of_icar_is_that_of_a_normal_law(seed):
    """PyMC leaves out one that depends on the scale; what depends on x is the same."""
    dist = constants("ICAR", seed)
    sigma = dict(dist.args)["sigma"]
    x = np.array([[0.3, -0.2, 0.9], [1.0, 0.4, -0.3]])
    sums = np.diag(W.sum(axis=0)) - W
    precision = sums / sigma**2 + 1.0 / (len(W) * ZERO_SUM_STDEV) ** 2
    law = stats.multivariate_normal(np.zeros(len(W)), np.linalg.inv(precision))
    exact = log_density(dist, x, {})
    assert exact == pytest.approx(law.logpdf(x))
    theirs = [of_pymc(dist, row).eval() for row in x]
    assert np.ptp(exact - theirs) == pytest.approx(0, abs=1e-9)


IMPROPER = {each.name for each in (*CONSTANT, *MIXED)} | {
    name for name, each in VECTORS.items() if each.space == "improper"
}


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("name", [n for n in FAMILIES if n not in IMPROPER])
def test_single_values_have_probability_one(name):
    dist = constants(name, 3)
    if FAMILIES[name].discrete:
        values = np.array(counts_of(dist, {}))[:, None]
        assert special.logsumexp(log_density(dist, values, {})) == pytest.approx(0, abs=1e-6)
        return
    program = Program(0, (Unknown("x", dist, ()),))
    assert truth_of(program, 1e-4).log_value == pytest.approx(0, abs=1e-4)


NORMAL = Dist("Normal", (("mu", 0.5), ("sigma", 2.0)))
Y = (0.3, -1.2, 0.8)


def _normal(y, mu, variance):
    return stats.norm.logpdf(y, mu, np.sqrt(variance + 0.25))


def _over_scales(log_likelihood):
    """Mean over the scales of a Cauchy variable, given the likelihood of a variance."""
    u = (np.arange(200_000) + 0.5) / 200_000
    logs = log_likelihood(np.exp(np.clip(1.5 * stats.cauchy.ppf(u, 1.3, 0.8), -700, 600)))
    return special.logsumexp(logs) - np.log(len(u))


def conjugate():
    """Programs with a closed form, and its value."""
    link = Link("x")
    law = Dist("Normal", (("mu", link), ("sigma", 0.5)))
    cov = 0.25 * np.eye(3) + 4.0
    exact = stats.multivariate_normal.logpdf(Y, np.full(3, 0.5), cov)
    yield "normal", (Unknown("x", NORMAL), Observed("y", law, Y)), exact
    holed = (0.3, float("nan"), -1.2, 0.8)
    yield "imputed", (Unknown("x", NORMAL), Observed("y", law, holed)), exact
    beta = Dist("Beta", (("alpha", 1.5), ("beta", 2.5)))
    binomial = Dist("Binomial", (("n", 6), ("p", link)))
    yield (
        "beta",
        (Unknown("x", beta), Observed("y", binomial, (4,))),
        stats.betabinom.logpmf(4, 6, 1.5, 2.5),
    )
    gamma = Dist("Gamma", (("alpha", 2.0), ("beta", 0.7)))
    poisson = Dist("Poisson", (("mu", link),))
    yield (
        "gamma",
        (Unknown("x", gamma), Observed("y", poisson, (3,))),
        stats.nbinom.logpmf(3, 2.0, 0.7 / 1.7),
    )
    dirichlet = Dist("Dirichlet", (("a", (1.5, 0.8, 2.0)),), core=(3,))
    several = Dist("Multinomial", (("n", 5), ("p", link)), core=(3,))
    yield (
        "dirichlet",
        (Unknown("x", dirichlet), Observed("y", several, (2, 1, 2))),
        (stats.dirichlet_multinomial.logpmf([2, 1, 2], [1.5, 0.8, 2.0], 5)),
    )
    # Far out in the tails the two are equal but for a rounding of their sizes.
    chain = [
        Dist("Cauchy", (("alpha", c), ("beta", b)))
        for c, b in ((0.0, 1.0), (link, 0.3), (Link("z"), 0.5))
    ]
    yield (
        "tails",
        (Unknown("x", chain[0]), Unknown("z", chain[1]), Observed("y", chain[2], (2.5,))),
        (stats.cauchy.logpdf(2.5, 0.0, 1.8)),
    )
    # The data do not tell the two apart, so their order is no news.
    pair = Dist("Normal", (("mu", Link("x", index=0)), ("sigma", 0.5)))
    same = Dist("Normal", (("mu", Link("x", index=1)), ("sigma", 0.5)))
    one = stats.norm.logpdf(0.3, 0.5, np.sqrt(4.25))
    items = (
        Unknown("x", NORMAL, (2,), "ordered"),
        Observed("y", pair, (0.3,)),
        Observed("z", same, (0.3,)),
    )
    yield "ordered", items, 2 * one
    # Where the scale vanishes all values are one.
    far = Unknown("s", Dist("Cauchy", (("alpha", 1.3), ("beta", 0.8))))
    scale = Link("s", "exp", 0.0, 0.75)
    narrow = Dist("Normal", (("mu", 0.4), ("sigma", scale)))
    twice = (Unknown("x", narrow, (2,), "ordered"), items[1], items[2])
    yield "vanishing, ordered", (far, *twice), _over_scales(lambda v: 2 * _normal(0.3, 0.4, v))
    flat = Unknown("x", Dist("ZeroSumNormal", (("sigma", scale),), core=(3,)))
    mean = np.sum(Y) / np.sqrt(3)
    axes = (np.sqrt(np.sum(np.square(Y)) - mean**2), 0.0)
    rest = _over_scales(lambda v: sum(_normal(y, 0.0, v) for y in axes))
    yield "vanishing, plane", (far, flat, Observed("y", law, Y)), _normal(mean, 0.0, 0.0) + rest
    plane = 4.0 * (np.eye(3) - 1 / 3) + 0.25 * np.eye(3)
    exact = stats.multivariate_normal.logpdf(Y, np.zeros(3), plane)
    yield "zero sum", (Unknown("x", NORMAL, (3,), "zero_sum"), Observed("y", law, Y)), exact


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize(
    ("name", "items", "exact"), list(conjugate()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_closed_forms(name, items, exact):
    found = truth_of(Program(0, items))
    assert found.error < 2e-3
    assert found.log_value == pytest.approx(exact, abs=2e-3)


PROPER = [n for n in (*FAMILIES, *VECTORS) if n not in {*IMPROPER, "MvNormal by chol"}]
CHARTED = [name for name in PROPER if (is_image(constants(name, 3)) if name in VECTORS
                                       else not FAMILIES[name].discrete)]  # fmt: skip


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("name", CHARTED)
def test_coordinates_keep_densities(name):
    """What a prior's coordinates say of its density is the density times the volume."""
    item = Unknown("x", constants(name, 3))
    w = np.random.default_rng(3).normal(size=(1, dimension_of(item)))
    x, logs = draw_at(item, w, {})
    sides = [draw_at(item, w + side * np.eye(w.size), {})[0] for side in (1e-5, -1e-5)]
    slopes = ((sides[0] - sides[1]) / 2e-5).reshape(w.size, -1)
    volume = 0.5 * np.linalg.slogdet(slopes @ slopes.T)[1]
    assert logs[0] == pytest.approx(log_density(item.dist, x, {})[0] + volume, abs=1e-4)


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("name", PROPER)
def test_two_ways_agree(name):
    """Integrals, and draws of the prior; of 150,000 sound pairs one is beyond 4.5."""
    dist = constants(name, 3)
    mean = Link("x", index=(-1,) * len(dist.core) if dist.core else None)
    law = Dist("Laplace", (("mu", mean), ("b", 0.8)))
    program = Program(3, (Unknown("x", dist), Observed("y", law, (0.9, 0.4))))
    exact, drawn = truth_of(program, 0.01), opinion_of(program)
    assert drawn.error < 0.01
    error = np.hypot(exact.error, drawn.error)
    assert abs(exact.log_value - drawn.log_value) < 4.5 * error + 1e-9


@pytest.mark.slow("repeats")
def test_a_truth_that_the_draws_deny_has_their_distance_as_its_error():
    items = next(items for name, items, _ in conjugate() if name == "beta")
    program, exact = Program(0, items), truth_of(Program(0, items))
    assert checked(program, exact) == exact
    wrong = replace(exact, log_value=exact.log_value + 0.05)
    assert checked(program, wrong).error == pytest.approx(0.05, abs=0.01)


@pytest.mark.slow("compiles models of its own")
def test_something_is_observed():
    rng = np.random.default_rng(5)
    for _ in range(30):
        terms = [i for i in write(rng, "imputed", "MvNormal") if isinstance(i, Observed)]
        assert all(np.isfinite(np.asarray(term.data, float)).any() for term in terms)


@pytest.mark.slow("compiles models of its own")
def test_a_free_wishart_has_constants():
    """PyMC cannot write its density else."""
    rng = np.random.default_rng(5)
    items = [item for _ in range(150) for item in write(rng, "prior", "Wishart")]
    dists = [item.dist for item in items if isinstance(item, Unknown)]
    assert not any(list(dist.links()) for dist in dists if dist.family == "Wishart")


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_narrow_modes_are_met(dim):
    """Two states, each with a mode that is narrower than a hundredth of its distance from 0."""
    at = 3.37 * np.arange(1, dim + 1) - 8.1

    def log_f(w, state):
        x = np.sinh(w)
        side = np.where(state == 0, 1.0, -1.0)[:, None]
        found = stats.norm.logpdf(x, side * at, 0.05) + np.log(np.cosh(w))
        return found.sum(axis=1) + np.log(np.where(state == 0, 0.3, 0.7))

    found = cubature.integrate(log_f, dim, 2)
    assert found.log_value == pytest.approx(0, abs=max(3e-3, 2 * found.error))
    assert found.error < 0.02


@pytest.mark.slow("repeats")
def test_a_mode_that_is_lost_shows_in_the_error(monkeypatch):
    monkeypatch.setattr(cubature, "high_points", lambda log_f, starts, rng: starts)

    def log_f(w, state):
        return stats.norm.logpdf(np.sinh(w), [2.0, -5.0, 4.0], 0.01).sum(axis=1) + np.log(
            np.cosh(w)
        ).sum(axis=1)

    found = cubature.integrate(log_f, 3)
    assert found.error > 0.02 or abs(found.log_value) < 0.02


@pytest.mark.slow("compiles models of its own")
def test_a_seed_names_a_program():
    seeds = range(1, 1 + len(SUBJECTS))
    first = [repr(next(attempts(seed)).items) for seed in seeds]
    assert first == [repr(next(attempts(seed)).items) for seed in seeds]  # NaN is not NaN
    assert len(set(first)) == len(first)


@pytest.mark.slow("compiles models of its own")
def test_subjects_are_the_distributions_of_pymc():
    without = {
        "Continuous", "Discrete", "Distribution", "SymbolicRandomVariable",  # bases of others
        "Lognormal",  # another name
        "Simulator",  # has no density
        "PolyaGamma",  # needs a package that the project does not ask for
        "Censored", "Truncated", "Mixture",  # are made of the others
    }  # fmt: skip
    ours = {name.split(" ")[0] for name in SUBJECTS}
    assert set(pm.distributions.__all__) - without == ours - {"ordered", "zero"}


@pytest.mark.slow("compiles models of its own")
def test_a_program_is_a_model():
    program = next(attempts(1))
    model = model_of(program)
    assert {rv.name for rv in model.free_RVs} == {
        item.name for item in program.items if isinstance(item, Unknown)
    }
