"""Kernels of the user's own, and step methods of PyMC, under the tempered density."""

import pickle

import numpy as np
import pymc as pm
import pytest
from pymc.step_methods.compound import BlockedStep
from sampling.test_discrete_models import MODELS, z_scores
from scipy.special import expit, logsumexp
from support.boltzmann_machine import HIDDEN, LOG_Z, VISIBLE, WEIGHTS, machine

import pymc_tempering as pmt
from pymc_tempering.exceptions import TemperingWarning


def block_gibbs(state, beta, rng):
    """All hidden units given the visible ones, and the other way round."""
    h = rng.random(5) < expit(beta * (HIDDEN + state["v"] @ WEIGHTS))
    v = rng.random(8) < expit(beta * (VISIBLE + WEIGHTS @ h))
    return {"v": v, "h": h}


def forgets_beta(state, beta, rng):
    """The same at beta = 1, always."""
    return block_gibbs(state, 1.0, rng)


def run(model, kernel, draws=600):
    # On one core: chains share a step method, and some of PyMC's remember where others have been.
    return pmt.sample(draws, model=model, kernel=kernel, cores=1, random_seed=2, quiet=True)


def z_of_log_z(move):
    idata = run(machine(), pmt.kernels.CustomKernel(move))
    evidence = pmt.log_marginal_likelihood(idata, method="rts")
    return (evidence.log_z - LOG_Z) / evidence.mcse


@pytest.mark.slow("compiles models of its own")
def test_block_gibbs_finds_log_z_of_a_boltzmann_machine():
    # |z| < 4: false alarm 1e-4, seed fixed
    assert abs(z_of_log_z(block_gibbs)) < 4.0


@pytest.mark.slow("compiles models of its own")
def test_a_kernel_that_forgets_beta_is_wrong():
    # The planted bug: any move may ignore its beta. Draws at beta = 1 are right: a bridge tells.
    with pytest.warns(TemperingWarning, match="The chains and a bridge to their draws differ"):
        assert abs(z_of_log_z(forgets_beta)) > 6.0


@pytest.mark.slow("compiles models of its own")
def test_a_custom_kernel_beside_others_and_by_the_other_front_door():
    with pm.Model() as model:
        on = pm.Bernoulli("on", 0.3)
        pm.Normal("y", on + pm.Normal("mu"), 1.0, observed=1.0)

    def flip(state, beta, rng):
        """Gibbs sampling of `on`."""
        residual = 1.0 - state["mu"] - np.arange(2)
        log_odds = np.log(0.3 / 0.7) + beta * 0.5 * (residual[0] ** 2 - residual[1] ** 2)
        return {"on": rng.random() < expit(log_odds)}

    exact = logsumexp(
        [
            np.log(w) - 0.25 * (1.0 - k) ** 2 - 0.5 * np.log(4 * np.pi)
            for k, w in ((0, 0.7), (1, 0.3))
        ]
    )
    kernel = {"on": pmt.kernels.CustomKernel(flip)}
    with model:
        step = pmt.SimulatedTempering(kernel=kernel, random_seed=1)
        stepped = pm.sample(
            400, step=step, chains=2, cores=1, random_seed=2, progressbar=False, quiet=True
        )
    for idata in (run(model, kernel), stepped):
        evidence = pmt.log_marginal_likelihood(idata)
        assert abs(evidence.log_z - exact) < 4.0 * evidence.mcse
    assert step.plan.kernel.name == "hmc + flip"


def wrong_shape(state, beta, rng):
    return {"mu": np.zeros(3)}


def foreign(state, beta, rng):
    return {"mu": 0.0, "nu": 1.0}


def nowhere(state, beta, rng):
    return {"mu": np.nan}


def not_a_mapping(state, beta, rng):
    return 1.0


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize(
    ("move", "message"),
    [
        (wrong_shape, r"'wrong_shape' returned 'mu' with shape \(3,\); the model.*shape \(\)"),
        (foreign, r"'foreign' returned values of 'nu', which it was not given.*'mu'"),
        (nowhere, "'nowhere' returned a state whose density is zero or not a number"),
        (not_a_mapping, "'not_a_mapping' must return a mapping.*not float"),
    ],
)
def test_a_move_that_breaks_the_contract_is_named(move, message):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=1.0)
    with pytest.raises(pmt.exceptions.KernelError, match=message):
        run(model, {"mu": pmt.kernels.CustomKernel(move)})


@pytest.mark.slow("compiles models of its own")
def test_a_fitted_reference_is_refused_where_a_kernel_knows_the_prior_only():
    with pytest.raises(ValueError, match="'block_gibbs' only knows the path from the prior"):
        pmt.sample(
            model=machine(),
            kernel=pmt.kernels.CustomKernel(block_gibbs),
            reference="fitted",
            quiet=True,
        )


STEPS = {
    "ising": pm.BinaryGibbsMetropolis,
    "mixture with labels": {"z": pm.CategoricalGibbsMetropolis, "mu": pm.DEMetropolisZ},
    "changepoint": {"early": pm.Slice, "late": pm.Metropolis, "when": pm.Metropolis},
}


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("name", STEPS)
def test_step_methods_of_pymc_find_log_z_and_means(name):
    # |z| < 4 for log Z and |z| < 5 for up to 16 means: false alarm 1e-4 a case, seed fixed
    model, log_z, (variable, mean) = MODELS[name][0]()
    z, z_means, _ = z_scores(run(model, STEPS[name], draws=300), log_z, variable, mean)
    assert abs(z) < 4.0
    assert np.abs(z_means).max() < 5.0


class Wanderer(BlockedStep):
    """A step method with a density of its own."""

    def __init__(self, vars, model, rng=None, **kwargs):
        self.vars, self.rng = vars, rng
        self.logp = super(type(model), model).logp  # not the tempered one

    def step(self, point):
        return point, []


def test_a_step_method_that_ignores_beta_is_refused():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=1.0)
    with pytest.raises(pmt.exceptions.KernelError, match=r"Wanderer of mu ignores beta"):
        run(model, Wanderer)


def test_what_is_no_step_method_is_refused():
    with pytest.raises(pmt.exceptions.KernelError, match="step method class of PyMC"):
        pmt.kernels.StepKernel(dict)
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=1.0)
    with pytest.raises(pmt.exceptions.KernelError, match=r"Metropolis cannot be built for mu"):
        run(model, pmt.kernels.StepKernel(pm.Metropolis, no_such=1))


@pytest.mark.slow("other processes")
def test_kernels_travel_to_other_processes():
    for kernel in (
        pmt.kernels.CustomKernel(block_gibbs),
        pmt.kernels.StepKernel(pm.Metropolis, scaling=2.0),
    ):
        again = pickle.loads(pickle.dumps(kernel))
        assert again.name == kernel.name
        assert again.prior_only
