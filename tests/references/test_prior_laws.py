"""Draws that have another law than their density are refused, by name; others never are."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import pymc_tempering as pmt
from pymc_tempering.model.layout import is_discrete
from pymc_tempering.model.path import compile_path
from pymc_tempering.references import compile as compiling, prior_laws
from pymc_tempering.references.compile import DEAREST, N_CHECK, check_reference
from pymc_tempering.references.prior import compile_prior, evaluate_draws
from pymc_tempering.references.prior_laws import missed_constant


def prior_of(write):
    with pm.Model() as model:
        write()
        pm.Normal("y", 0.0, 1.0, observed=0.0)
    whole = any(is_discrete(rv) for rv in model.free_RVs)
    moved = [v.name for v in model.value_vars if v.dtype == "float64"] if whole else None
    return compile_prior(compile_path(model, gradient=moved))


def normal(v):
    return -0.5 * v**2 - 0.5 * np.log(2 * np.pi)


def custom(density, sample, **kwargs):
    def random(*_, rng=None, size=None):
        return sample(rng, size)

    return lambda: pm.CustomDist("x", logp=density, random=random, **kwargs)


def standard(rng, size):
    return rng.normal(size=size)


def of(dist):
    return lambda v: pm.logp(dist(), v)


angle = {"transform": pm.distributions.transforms.circular}
PLANTED = {
    "wide": custom(normal, lambda rng, size: 1.4 * rng.normal(size=size)),
    "narrow": custom(normal, lambda rng, size: 0.7 * rng.normal(size=size)),
    "shifted": custom(normal, lambda rng, size: 0.4 + rng.normal(size=size)),
    "one of a vector": custom(
        normal, lambda rng, size: rng.normal(size=size) * np.array([1.0, 0.6]), shape=2
    ),
    "density without a slope": custom(
        lambda v: pt.switch(pt.abs(v) < 10.0, np.log(0.05), -np.inf), standard
    ),
    "heavy tail": custom(
        of(lambda: pm.Cauchy.dist(0, 1)), lambda rng, size: 0.6 * rng.standard_cauchy(size)
    ),
    "counts": custom(
        of(lambda: pm.Poisson.dist(3.0)), lambda rng, size: rng.poisson(4.0, size), dtype="int64"
    ),
    "rare": custom(
        of(lambda: pm.Bernoulli.dist(0.3)), lambda r, size: r.binomial(1, 0.45, size), dtype="int64"
    ),
    "angle": custom(
        of(lambda: pm.VonMises.dist(1.0, 2.0)), lambda r, size: r.vonmises(1.5, 2.0, size), **angle
    ),
}  # fmt: skip


@pytest.mark.slow("repeats", quick=["shifted"])
@pytest.mark.parametrize("name", PLANTED)
def test_draws_of_another_law_are_refused_by_name(name):
    with pytest.raises(
        pmt.exceptions.PriorDrawsError, match=r"draws of x.* law .*off by \d+ standard errors"
    ):
        check_reference(prior_of(PLANTED[name]))


class Counted(Op):
    """A likelihood in Python, without gradient, that counts how often it is asked."""

    calls = 0

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        Counted.calls += 1
        outputs[0][0] = np.asarray(-0.5 * inputs[0] ** 2)


@pytest.mark.slow("repeats", quick=["None"])
@pytest.mark.parametrize("name", ["wide", "heavy tail", None])
def test_the_law_of_a_prior_is_checked_without_a_dear_likelihood(name, monkeypatch):
    monkeypatch.setattr(Counted, "calls", 0)
    with pm.Model() as model:
        pm.Normal("x") if name is None else PLANTED[name]()
        pm.Potential("y", Counted()(model["x"]))
    prior = compile_prior(compile_path(model, gradient=[]))
    if name is None:
        assert check_reference(prior) is prior
    else:
        with pytest.raises(pmt.exceptions.PriorDrawsError, match=r"draws of x.* law"):
            check_reference(prior)
    assert Counted.calls == N_CHECK


@pytest.mark.slow("compiles models of its own")
def test_a_prior_that_is_dear_itself_is_checked_at_fewer_draws_and_once(monkeypatch):
    evaluate, sizes = compiling.evaluate_rows, []
    monkeypatch.setattr(
        compiling, "evaluate_rows", lambda *args: sizes.append(len(args[1])) or evaluate(*args)
    )
    monkeypatch.setattr(Counted, "work", 3 * DEAREST, raising=False)
    with pm.Model() as model:
        pm.CustomDist("x", logp=lambda x: Counted()(x) - 0.5 * np.log(2 * np.pi), random=standard)
        pm.Normal("y", 0.0, 1.0, observed=0.0)
    prior = compile_prior(compile_path(model, gradient=[]))
    assert check_reference(prior) is prior
    assert sizes == [N_CHECK // 3]
    monkeypatch.setattr(compiling, "prior_alone", lambda path: replace(path, work=1))  # planted
    check_reference(prior)
    assert len(sizes) == 3


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("factor", [0.4, 2.0, 1e-30])
def test_a_density_off_by_a_factor_is_refused_with_its_size(factor):
    def two():
        pm.HalfCauchy("scale", 1.0)
        custom(lambda v: normal(v) + np.log(factor), standard)()

    with pytest.raises(
        pmt.exceptions.PriorDrawsError, match=r"density of 'x' is not normalized"
    ) as found:
        check_reference(prior_of(two))
    said = float(str(found.value).split("exp(")[1].split(")")[0])
    assert said == pytest.approx(np.log(factor), abs=0.2 if factor > 1e-9 else 3.0)


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("shape", [(), 3])
def test_a_coordinate_without_density_is_improper(shape):
    planted = custom(lambda v: pt.zeros_like(v), standard, shape=shape)
    with pytest.raises(pmt.exceptions.ImproperPriorError, match=r"no prior density depends on x"):
        check_reference(prior_of(planted))


def test_one_element_without_density_is_named():
    planted = custom(lambda v: normal(v) * np.array([1.0, 0.0, 1.0]), standard, shape=3)
    with pytest.raises(pmt.exceptions.ImproperPriorError, match=r"depends on x\[1\]"):
        check_reference(prior_of(planted))


def heavy():
    scale = pm.HalfCauchy("scale", 2.0)
    pm.Cauchy("a", 0.0, scale, shape=2)
    pm.StudentT("b", nu=0.7, sigma=pm.InverseGamma("g", 0.7, 1.0))
    pm.Pareto("c", 0.7, 1.0)


def edges():
    pm.Uniform("a", -1.0, 2.0, default_transform=None)
    pm.Exponential("b", 1.0, default_transform=None)
    boxes = [pm.Uniform.dist(0, 1), pm.Uniform.dist(2, 3)]
    pm.Mixture("c", [0.5, 0.5], boxes, default_transform=None)
    pm.NormalMixture("d", [0.3, 0.7], [-8.0, 1.0], [1.0, 0.1])


def on_circles():
    pm.VonMises("a", 1.0, 2.0)
    pm.VonMises("b", 0.0, 1e-9)


def whole_numbers():
    pm.Bernoulli("a", pm.Beta("p", 1.0, 2.0), shape=3)
    pm.Poisson("b", 40.0)
    pm.Categorical("c", [0.1, 0.6, 0.3])


def tied():
    pm.Dirichlet("a", [0.6, 1.0, 3.0])
    pm.ZeroSumNormal("b", 2.0, shape=4)
    pm.LKJCholeskyCov("c", eta=2.0, n=3, sd_dist=pm.Exponential.dist(1.0), compute_corr=False)
    pm.Normal("d", shape=3, transform=pm.distributions.transforms.ordered)


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("write", [heavy, edges, on_circles, whole_numbers, tied])
def test_right_priors_pass_though_all_coordinates_are_suspected(monkeypatch, write):
    """Both batches, and the second alone: 1e-6 of false alarms a coordinate, and seeds are fixed.

    Planted: a limit of half an error.
    """
    prior = prior_of(write)
    check_reference(prior)
    monkeypatch.setattr(prior_laws, "SCREEN_Z", 0.0)
    check_reference(prior)
    monkeypatch.setattr(prior_laws, "MAX_Z", 0.5)
    with pytest.raises(pmt.exceptions.PriorDrawsError):
        check_reference(prior)


@pytest.mark.slow("compiles models of its own")
def test_the_constant_is_known_in_many_dimensions_and_unknown_where_nothing_overlaps():
    prior = prior_of(lambda: pm.Normal("x", shape=60))
    rng = np.random.default_rng(1)
    draws = prior.draw(2000, prior.spawn(rng))

    def log_density(xs):
        return evaluate_draws(prior.path, xs)[0] + np.log(3.0)

    log_p = log_density(draws)
    log_factor, z = missed_constant(prior.path, draws, log_p, log_density, rng)
    assert z > 8
    assert log_factor == pytest.approx(np.log(3.0), abs=0.3)
    far = np.concatenate([draws[:1000], 1e6 + draws[1000:]])  # no two laws overlap
    assert missed_constant(prior.path, far, log_p, lambda xs: xs[:, 0] - 1e9, rng)[1] == 0.0


@pytest.mark.filterwarnings("ignore:No safe default transform")
@pytest.mark.parametrize(("name", "share"), [("Censored", 0.309), ("HurdleGamma", 0.4)])
def test_single_values_with_a_probability_are_refused_for_that(name, share):
    with pm.Model() as model:
        if name == "Censored":
            pm.Censored("x", pm.Normal.dist(0, 1), lower=-0.5, upper=None)
        else:
            pm.HurdleGamma("x", psi=0.6, alpha=2.0, beta=1.0)
        pm.Potential("data", pt.zeros(()))
    with pytest.raises(
        pmt.exceptions.PriorDrawsError, match="have one and the same value"
    ) as error:
        check_reference(compile_prior(compile_path(model)))
    assert "of x have" in str(error.value)
    assert float(str(error.value).split("%")[0]) / 100 == pytest.approx(share, abs=0.06)


@pytest.mark.slow("compiles models of its own")
def test_draws_that_rounding_makes_equal_where_a_scale_vanishes_are_no_such_values():
    with pm.Model() as model:
        c = pm.Cauchy("c", 1.7, 1.9)
        pm.Normal("x", 1.24, pm.math.exp(0.79 * pt.clip(c, -300.0, 3.0)))
        pm.Potential("data", pt.zeros(()))
    prior = compile_prior(compile_path(model))
    x = prior.draw(1000, prior.spawn(np.random.default_rng(0)))[:, 1]
    assert (x == 1.24).sum() > prior_laws.MAX_EQUAL
    check_reference(prior)


def without_number_above(limit):
    def log_density(value, mu):
        own = -0.5 * (value - mu) ** 2 - 0.5 * np.log(2 * np.pi)
        return pt.switch(value > limit, np.nan, own)

    def draw(mu, rng, size):
        return rng.normal(mu, 1.0, size)

    with pm.Model() as model:
        pm.Normal("other", 0, 1)
        pm.CustomDist("x", 0.0, logp=log_density, random=draw)
        pm.Potential("data", pt.zeros(()))
    return compile_prior(compile_path(model))


@pytest.mark.slow("compiles models of its own")
def test_a_prior_density_without_number_is_named():
    with pytest.raises(
        pmt.exceptions.PriorDrawsError, match=r"not finite at 1\d\.\d% of .* draws, in 'x'"
    ):
        check_reference(without_number_above(1.0))


@pytest.mark.slow("compiles models of its own")
def test_a_few_draws_without_a_density_are_told():
    with pytest.warns(pmt.TemperingWarning, match=r"not finite at 0\.\d% of .* draws, in 'x'"):
        check_reference(without_number_above(2.7))


@pytest.mark.slow("compiles models of its own")
def test_draws_that_raise_are_refused_with_the_variable():
    def draw(mu, rng, size):
        x = rng.normal(mu, 1.0, size)
        if np.any(x > 3.0):
            raise ArithmeticError("above 3")
        return x

    with pm.Model() as model:
        pm.Normal("other", 0, 1)
        pm.CustomDist("x", 0.0, logp=lambda value, mu: -0.5 * (value - mu) ** 2, random=draw)
        pm.Potential("data", pt.zeros(()))
    words = r"raise ArithmeticError: above 3\. It comes from 'x'"
    with pytest.raises(pmt.exceptions.PriorDrawsError, match=words):
        check_reference(compile_prior(compile_path(model)))


@pytest.mark.slow("compiles models of its own")
def test_a_zero_sum_transform_of_draws_that_do_not_sum_to_zero_is_refused():
    zero_sum = pm.distributions.transforms.ZeroSumTransform([-1])
    with pm.Model() as model:
        pm.ZeroSumNormal("right", shape=3)
        pm.Normal("x", 0.0, 1.0, shape=3, transform=zero_sum)
        pm.Potential("data", pt.zeros(()))
    with pytest.raises(pmt.exceptions.PriorDrawsError, match="'x' has a zero-sum transform"):
        check_reference(compile_prior(compile_path(model)))
