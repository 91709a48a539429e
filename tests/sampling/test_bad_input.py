"""What bad input gets: an exception of a documented type with the cause and what to do."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.op import Op
from support.small_models import mean_only

import pymc_tempering as pmt
from pymc_tempering.kernels.hmc import Persistent
from pymc_tempering.model.check import check_model
from pymc_tempering.model.path import compile_path
from pymc_tempering.references.compile import check_reference
from pymc_tempering.references.prior import compile_prior

FRONT_DOORS = {
    "sample": lambda **kwargs: pmt.sample(quiet=True, **kwargs),
    "step": lambda **kwargs: pmt.SimulatedTempering(**kwargs),
}
both_doors = pytest.mark.parametrize("door", FRONT_DOORS)


def check(model):
    """Compile a model and check it at reference draws, as both front doors do first."""
    check_reference(compile_prior(compile_path(model)))


@both_doors
def test_no_model(door):
    with pytest.raises(pmt.exceptions.ModelError, match=r"No model.*`with model:`.*`model=`"):
        FRONT_DOORS[door]()


@both_doors
def test_nothing_observed(door):
    with pm.Model() as model:
        pm.Normal("mu")
    with pytest.raises(
        pmt.exceptions.ModelError, match=r"no observed data.*log evidence is 0.*`observed=`"
    ):
        FRONT_DOORS[door](model=model)


def test_no_free_variable():
    with pm.Model() as model:
        pm.Normal("y", 0.0, 1.0, observed=1.0)
    with pytest.raises(pmt.exceptions.ModelError, match="no free variables"):
        check_model(model)


@pytest.mark.slow("compiles models of its own", quick=["HalfFlat"])
@pytest.mark.parametrize("prior", [pm.Flat, pm.HalfFlat])
def test_an_improper_prior(prior):
    with pm.Model() as model:
        mu = prior("mu_improper")
        pm.Normal("y", mu, 1.0, observed=1.0)
    with pytest.raises(
        pmt.exceptions.ImproperPriorError, match=r"mu_improper.*does not exist.*proper priors"
    ):
        check(model)


class BlackBox(Op):
    """A function that PyTensor knows nothing of."""

    __props__ = ()
    itypes = (pt.dscalar,)
    otypes = (pt.dscalar,)

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(2.0 * inputs[0])


@both_doors
def test_discrete_vectors_that_no_kernel_moves(door):
    with pm.Model() as model:
        k = pm.CustomDist(
            "counts",
            3.0,
            logp=lambda k, mu: pm.logp(pm.Poisson.dist(mu), k[0]) + pt.log(pt.eq(k[0], k[1])),
            random=lambda mu, rng=None, size=None: np.repeat(rng.poisson(mu, size), 2),
            signature="()->(2)",
            dtype="int64",
        )
        pm.Normal("y", k[0] + pm.Normal("mu"), 1.0, observed=1.0)
    with pytest.raises(
        pmt.exceptions.DiscreteVariableError, match=r"'counts'.*Marginalize"
    ) as error:
        FRONT_DOORS[door](model=model)
    assert "mu" not in str(error.value)


@both_doors
def test_kernels_that_do_not_fit(door):
    with pm.Model() as model:
        on = pm.Bernoulli("on", 0.3)
        pm.Normal("y", on + pm.Normal("mu"), 1.0, observed=1.0)
    run = FRONT_DOORS[door]
    with pytest.raises(pmt.exceptions.ModelError, match=r"'hmc' cannot move 'on', which is binary"):
        run(model=model, kernel={"on": "hmc"})
    with pytest.raises(
        pmt.exceptions.ModelError, match=r"'gibbs' cannot move 'mu', which is continuous"
    ):
        run(model=model, kernel={"mu": pmt.kernels.Gibbs()})
    with pytest.raises(
        pmt.exceptions.ModelError, match=r"'nu', which is not a free variable.*'on', 'mu'"
    ):
        run(model=model, kernel={"nu": "slice"})
    with pytest.raises(ValueError, match=r"'hmc', .*not 'hcm'"):
        run(model=model, kernel="hcm")


def test_hmc_without_gradients():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", BlackBox()(mu), 1.0, observed=1.0)
    with pytest.raises(pmt.exceptions.GradientError, match="has no gradient"):
        pmt.sample(model=model, kernel="hmc")


def test_kernels_out_of_range():
    with pytest.raises(ValueError, match="width must be positive, not 0"):
        pmt.kernels.Slice(width=0.0)
    with pytest.raises(ValueError, match="renewal must be positive, not -1"):
        Persistent(renewal=-1.0)


def test_a_likelihood_that_is_not_a_number():
    with pm.Model() as model:
        b = pm.Normal("b", shape=2)
        pm.Normal("fine", b[0], 1.0, observed=2.0)
        pm.Normal("y", pt.stack([b[0], b[1]]).sum(), b[0], observed=np.ones(2))  # sd < 0: -inf
        pm.Potential("root", pt.log(b[1]))
    with pytest.raises(
        pmt.exceptions.LikelihoodError, match=r"not a number at [45]\d\.\d%.*'root'"
    ) as error:
        check(model)
    assert "100.0%" in str(error.value)
    assert "Restrict the prior" in str(error.value)
    assert "'fine'" not in str(error.value)
    assert "'y'" not in str(error.value)


def test_a_likelihood_that_is_zero_nearly_everywhere():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("wall", pt.switch(x > 4.5, 0.0, -np.inf))
        pm.Normal("fine", x, 1.0, observed=0.0)
    words = r"zero at 100\.0% of 1000 prior draws, in 'wall' .*nearer to the data"
    with pytest.raises(pmt.exceptions.LikelihoodError, match=words) as error:
        check(model)
    assert "fine" not in str(error.value)
    assert "not all finite" not in str(error.value)


def data_set_to(value):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x"), 1.0, observed=pm.Data("data", [1.0, 1.0]))
    pm.set_data({"data": [1.0, value]}, model=model)
    return model


def test_data_that_are_not_finite_are_named():
    with pytest.raises(
        pmt.exceptions.LikelihoodError, match=r"zero at 100\.0%.* data of 'y' are not all"
    ):
        check(data_set_to(np.inf))
    with pytest.raises(
        pmt.exceptions.ModelError, match=r"data 'data' have missing values.*leave them out"
    ):
        check(data_set_to(np.nan))


def test_a_potential_that_grows_faster_than_the_prior_falls():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("up", x**2)
    with pytest.raises(pmt.exceptions.LikelihoodError, match=r"beta = 0\.5, .* no finite integral"):
        pmt.sample(model=model, random_seed=1, quiet=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyMC's own, of its simulators
def test_a_simulator_has_no_density():
    with pm.Model() as model:
        pm.Simulator("s", lambda rng, x, size: rng.normal(x, size=size), pm.Normal("x"),
                     observed=np.ones(3))  # fmt: skip
    with pytest.raises(pmt.exceptions.ModelError, match=r"'s' is a pm\.Simulator.*pm\.sample_smc"):
        check_model(model)


def test_a_complex_potential_is_named():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("wave", pt.as_tensor(1j * x))
    with pytest.raises(pmt.exceptions.ModelError, match="'wave' is complex"):
        check_model(model)


@pytest.mark.slow("compiles models of its own")
def test_a_gradient_that_does_not_exist():
    with pm.Model() as model:
        x = pm.Normal("x", shape=3)
        ranks = pt.argsort(x).astype("float64")
        pm.Normal("y", pt.cumsum(ranks) + pm.math.floor(x), 1.0, observed=np.zeros(3))
    check_model(model)  # floor and ranks have a gradient: zero
    assert compile_path(model).dim == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"draws": 0}, "draws must be a whole number of at least 1, not 0"),
        ({"draws": -5}, "draws must be a whole number of at least 1, not -5"),
        ({"draws": 2.5}, "draws must be a whole number"),
        ({"tune": -1}, "tune must be a whole number of at least 0"),
        ({"chains": 0}, "chains must be a whole number of at least 1"),
        ({"cores": 0}, "cores must be a whole number of at least 1"),
        ({"keep": "everything"}, "keep must be 'log_ratio', 'states' or None, not 'everything'"),
        ({"var_names": ["mu", "nu"]}, "'nu' are not among.*mu"),
        ({"check_looks": 5}, "check_looks must be a whole number of at least 20"),
        ({"betas": [0.0, 0.5, 1.0]}, "betas are those of the path from the prior"),
    ],
)
def test_arguments_of_sample_out_of_range(arguments, words):
    with pytest.raises(ValueError, match=words):
        pmt.sample(model=mean_only(), quiet=True, **arguments)


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"ladder_move": "sideways"}, ValueError, "'metropolized_gibbs'.*not 'sideways'"),
        ({"reference": "posterior"}, ValueError, "'prior'.*not 'posterior'"),
        ({"target_accept": 0.0}, ValueError, "between 0 and 1, not 0.0"),
        ({"target_accept": 1.2}, ValueError, "between 0 and 1, not 1.2"),
        (
            {"rungs_per_barrier": 0.0},
            pmt.exceptions.LadderError,
            "rungs_per_barrier must be a positive number",
        ),
        (
            {"rungs_per_barrier": np.nan},
            pmt.exceptions.LadderError,
            "rungs_per_barrier must be a positive number",
        ),
        ({"betas": [0.0, 0.7, 0.3, 1.0]}, pmt.exceptions.LadderError, "increase strictly"),
        ({"betas": [0.1, 1.0]}, pmt.exceptions.LadderError, "from beta = 0 to beta = 1"),
        ({"betas": [0.0, 2.0]}, pmt.exceptions.LadderError, "from beta = 0 to beta = 1"),
    ],
)
@both_doors
def test_options_out_of_range(door, arguments, kind, words):
    with pytest.raises(kind, match=words):
        FRONT_DOORS[door](model=mean_only(), **arguments)


def test_a_step_for_a_part_of_the_variables():
    with pm.Model() as model:
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        pm.Normal("y", mu, tau, observed=1.0)
        for given in (mu, [mu]):
            with pytest.raises(
                pmt.exceptions.ModelError, match=r"the whole model.*missing: tau_log__"
            ):
                pmt.SimulatedTempering(given)
        with pytest.raises(pmt.exceptions.ModelError, match="missing: mu"):
            pmt.SimulatedTempering([model.value_vars[1]])


@pytest.mark.parametrize(
    "kind",
    [pmt.exceptions.LadderError, pmt.exceptions.NotTemperedError, pmt.exceptions.LikelihoodError],
)
def test_every_exception_is_a_tempering_error(kind):
    assert issubclass(kind, pmt.TemperingError)


def test_draws_that_were_not_tempered():
    with mean_only():
        idata = pm.sample(
            5, tune=5, step=pm.Metropolis(), chains=1, cores=1, progressbar=False, quiet=True,
            random_seed=1, compute_convergence_checks=False,
        )  # fmt: skip
    for function in (pmt.log_marginal_likelihood, pmt.convert, pmt.diagnose):
        with pytest.raises(pmt.exceptions.NotTemperedError, match=r"pymc_tempering\.sample"):
            function(idata)


@pytest.fixture(scope="module")
def two_runs():
    return [
        pmt.sample(200, model=mean_only(observed), random_seed=1, quiet=True, reference="prior")
        for observed in ((1.0, 2.5), (1.0, 2.6))
    ]


def test_models_of_different_data(two_runs):
    a, b = two_runs
    with pytest.raises(pmt.exceptions.DataMismatchError, match="y"):
        pmt.bayes_factor(a, b)
    with pytest.raises(pmt.exceptions.DataMismatchError, match="y"):
        pmt.compare({"a": a, "b": b})


def breaking(how):
    """A model whose likelihood fails in a corner that reference draws hardly meet."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0, shape=2)
        pm.Normal("y", x.sum(), 0.3, observed=-6.5)
        corner = x[0] < -4.4  # 5e-6 of the prior, and 3 per cent of the posterior
        if how == "nan":
            pm.Potential("hole", pt.switch(corner, np.nan, 0.0))
        elif how == "-inf":
            pm.Potential("hole", pt.switch(corner, -np.inf, 0.0))
        else:
            from pytensor.raise_op import Assert

            fine = Assert("a density that raises")(x[1], pt.invert(corner))
            pm.Potential("hole", -0.01 * fine**2)
    return model


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("how", ["nan", "-inf", "raises"])
def test_a_density_that_fails_inside_a_chain_is_counted_and_the_run_goes_on(how):
    idata = pmt.sample(
        1500, model=breaking(how), random_seed=1, quiet=True, cores=1, reference="prior"
    )
    x = idata.posterior["x"].values
    assert x.shape == (4, 1500, 2)
    assert np.isfinite(x).all()
    assert (x[..., 0] >= -4.4).all()
    assert int(idata.sample_stats["n_divergences"].sum()) > 0
    evidence = pmt.log_marginal_likelihood(idata)
    assert np.isfinite(evidence.log_z)


@pytest.mark.slow("compiles models of its own")
def test_a_prior_that_leaves_its_own_transform_is_refused_or_warned_about():
    with pm.Model() as model:
        p = pm.Kumaraswamy("p", 0.004, 0.004)  # most draws round to 0 or 1
        pm.Binomial("y", 10, p, observed=3)
    with pytest.raises(
        pmt.exceptions.PriorDrawsError, match=r"no finite unconstrained value.*p_logodds__"
    ):
        check(model)


@pytest.mark.slow("compiles models of its own")
def test_all_this_is_said_before_the_warm_up_begins(monkeypatch):
    def too_late(*args, **kwargs):
        raise AssertionError("the warm-up has begun")

    monkeypatch.setattr("pymc_tempering.sampling.choose_plan.make_passes", too_late)
    with pytest.raises(AssertionError, match="the warm-up has begun"):
        pmt.sample(model=mean_only(), quiet=True)
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("wall", pt.switch(x > 4.5, 0.0, -np.inf))
    for front_door in FRONT_DOORS.values():
        with pytest.raises(pmt.exceptions.LikelihoodError):
            front_door(model=model)
