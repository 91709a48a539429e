"""Models of many kinds through both front doors, against their exact evidence and means."""

import numpy as np
import pymc as pm
import pytest
from pytensor import config
from support.model_kinds import MODEL_KINDS

import pymc_tempering as pmt

# What else a run must show, by model.
KERNELS = {"black_box": "metropolis", "hidden_markov": "gibbs"}


def z_of_means(idata, means):
    """z-scores of all posterior means that are known, by batches of draws."""
    z = []
    for name, exact in means.items():
        values = idata.posterior[name].values.astype(float)
        values = values.reshape(*values.shape[:2], -1)
        for j, mean in enumerate(np.broadcast_to(np.ravel(exact), values.shape[2])):
            parts = [part.mean() for c in values[:, :, j] for part in np.array_split(c, 8)]
            z.append((np.mean(parts) - mean) / (np.std(parts, ddof=1) / np.sqrt(len(parts))))
    return np.array(z)


def check(idata, log_z, means):
    evidence = pmt.log_marginal_likelihood(idata)
    assert evidence.verdict == "ok"
    assert abs(evidence.log_z - log_z) < 4.5 * evidence.mcse
    assert np.abs(z_of_means(idata, means)).max(initial=0.0) < 6.0
    return evidence


@pytest.mark.slow("many kinds of models")
@pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")
@pytest.mark.parametrize("name", MODEL_KINDS)
def test_models_of_many_kinds(name):
    # |z| < 4.5 for log Z and |z| < 6 (a t of 15 or more) for up to 6 means, at two front doors:
    # false alarm 3e-4 a model, seeds fixed
    model, log_z, means = MODEL_KINDS[name]()
    idata = pmt.sample(1000, model=model, random_seed=1, quiet=True)
    assert check(idata, log_z, means).mcse < 0.1
    assert idata["tempering"].attrs["kernel"] == KERNELS.get(name, "hmc")
    step = pmt.SimulatedTempering(model=model, random_seed=2)
    # PyMC's function that records the draws is long to compile for some.
    with model, config.change_flags(mode="FAST_COMPILE"):
        stepped = pm.sample(400, step=step, chains=2, cores=1, random_seed=3, progressbar=False,
                            quiet=True)  # fmt: skip
    check(stepped, log_z, means)
    assert dict(stepped.posterior.sizes) == dict(idata.posterior.sizes) | {"chain": 2, "draw": 400}
    for variable, values in stepped.posterior.data_vars.items():
        assert values.dims == idata.posterior[variable].dims
        assert values.dtype == idata.posterior[variable].dtype


@pytest.mark.slow("many kinds of models")
def test_minibatches_have_no_evidence():
    with pm.Model() as model:
        y = pm.Minibatch(np.random.default_rng(1).normal(size=100), batch_size=10)
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=y, total_size=100)
    with pytest.raises(pmt.exceptions.ModelError, match=r"'y' is a minibatch.*pmt\.fit"):
        pmt.sample(model=model, quiet=True)
