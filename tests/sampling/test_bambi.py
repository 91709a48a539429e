"""Draws of Bambi models: as its `predict` needs them, and from its `fit` to every door."""

import re

import bambi as bmb
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy import integrate, stats
from support.exact_posteriors import with_log_density

import pymc_tempering as pmt
from pymc_tempering.exceptions import ArgumentError, DataMismatchError, ModelError
from pymc_tempering.model.bambi import pymc_draws

RNG = np.random.default_rng(7)
N = 24
DATA = pd.DataFrame(
    {
        "x": RNG.normal(5.0, 1.0, N),
        "w": RNG.normal(-2.0, 1.0, N),
        "k": pd.Categorical(np.tile(["a", "b", "c"], N // 3)),
        "g": pd.Categorical(np.repeat(["p", "q", "r", "s"], N // 4)),
        "three": pd.Categorical(np.tile(["u", "v", "v", "w"], N // 4)),
    }
)
DATA["y"] = 1.0 + 0.5 * DATA["x"] + RNG.normal(0.0, 1.0, N)
DATA["hit"] = (DATA["y"] > 3.5).astype(int)
NEW = pd.DataFrame({"x": [0.0, 5.0, 9.0]})
QUIET = {"chains": 2, "cores": 1, "random_seed": 1, "progressbar": False, "quiet": True}
FITTED = {"chains": 2, "cores": 1, "random_seed": 2, "progressbar": False}


def normal(scale):
    return bmb.Prior("Normal", mu=0.0, sigma=scale)


PRIORS = {"Intercept": normal(3.0), "x": normal(1.0), "sigma": 1.0}
GROUPS = bmb.Prior("Normal", mu=0.0, sigma=bmb.Prior("HalfNormal", sigma=1.0))


def built(formula="y ~ x", priors=PRIORS, alias=None, **settings):
    model = bmb.Model(formula, DATA, priors=priors, **settings)
    if alias:
        model.set_alias(alias)
    model.build()
    return model


def without(idata, *names):
    """The same DataTree with some variables of its posterior left out."""
    result = idata.copy()
    result["posterior"] = xr.DataTree(idata["posterior"].to_dataset().drop_vars(names))
    return result


def prior_draws(model):
    """Draws of the PyMC model inside, whatever their law: what is shifted is algebra."""
    tree = pm.sample_prior_predictive(20, model=model.backend.model, random_seed=3)
    return xr.DataTree.from_dict({"posterior": tree["prior"].to_dataset()})


@pytest.mark.slow(
    "compiles models of its own", quick=["{'formula': 'y ~ x', 'center_predictors': False}"]
)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"formula": "y ~ x", "center_predictors": False},
        {"formula": "y ~ 0 + x", "priors": {}},
        {"formula": "y ~ x:k + w + offset(w)", "priors": {}},
        {"formula": "y ~ poly(x, 2) + (k | g)", "priors": {}},
        {"formula": bmb.Formula("y ~ x", "sigma ~ w"), "priors": {}},
        {"formula": "hit ~ x + k", "family": "bernoulli", "priors": {}},
        {"formula": "three ~ x", "family": "categorical", "priors": {}},
        {"formula": "y ~ x + hsgp(w, m=5, c=2)", "priors": {}},
        {
            "formula": "y ~ k + (x | g)",
            "priors": {},
            "alias": {"Intercept": "a", "k": "kind", "1|g": "level", "sigma": "s"},
        },
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_predictions_are_those_that_pymc_makes_of_the_same_draws(settings):
    """`predict` at the data computes what the PyMC model has as deterministics, to rounding."""
    model = built(**settings)
    idata = prior_draws(model)
    before = idata["posterior"].to_dataset()
    fitted = pmt.to_bambi(idata, model)
    back = pymc_draws(without(fitted, *[v for v in before if str(v).endswith("_offset")]), model)
    model.predict(fitted)
    for name, component in model.conditional_parameters.items():
        mean = component.alias or name
        ours = fitted["posterior"][mean].transpose(*before[mean].dims)
        np.testing.assert_allclose(ours, before[mean], rtol=1e-8, atol=1e-8)
    for rv in model.backend.model.free_RVs:  # and back, with the offsets
        again = back["posterior"][rv.name].transpose(*before[rv.name].dims)
        np.testing.assert_allclose(again, before[rv.name], rtol=1e-8, atol=1e-8)
    assert before.identical(idata["posterior"].to_dataset())  # a copy


@pytest.mark.slow("compiles models of its own")
@pytest.mark.filterwarnings(
    "ignore:'sample_new_groups' is deprecated:FutureWarning",
    "ignore:Constructing a Categorical:DeprecationWarning",  # by formulae, with pandas 3
)
def test_a_new_group_is_predicted_by_one_of_those_in_the_draws():
    """`predict` looks for its draws by the place of dimensions."""
    model = built("y ~ (k | g)", {})
    fitted = pmt.to_bambi(prior_draws(model), model)
    found = []
    for group in ("new", *"pqrs"):
        data = pd.DataFrame({"k": ["b", "c"], "g": [group] * 2})
        model.predict(fitted, data=data, sample_new_groups=True, random_seed=1)
        found.append(fitted["posterior"]["mu"].values)
    new, known = found[0], np.array(found[1:])
    assert np.isclose(new, known, rtol=1e-9).all(axis=-1).any(axis=0).all()


@pytest.mark.slow("compiles models of its own")
def test_predictions_equal_those_after_a_fit_by_bambi():
    """|z| < 4 for the mean at three points, with 200 draws counted as independent: 2e-4."""
    model = built()
    idata = pmt.sample(400, model=model, **QUIET)
    fit = model.fit(draws=1000, tune=500, **FITTED)
    assert "to_bambi" in idata["posterior"].attrs["bambi"]
    mean, sd = {}, {}
    for name, draws in (("raw", idata.copy()), ("ours", pmt.to_bambi(idata, model)), ("fit", fit)):
        model.predict(draws, data=NEW)
        mean[name] = draws["posterior"]["mu"].mean(("chain", "draw")).values
        sd[name] = draws["posterior"]["mu"].std(("chain", "draw")).values
    error = sd["fit"] * np.sqrt(2.0 / 200.0)
    assert np.all(np.abs(mean["ours"] - mean["fit"]) < 4.0 * error)
    assert np.all(np.abs(mean["raw"] - mean["fit"]) > 10.0 * error)  # the test can fail
    np.testing.assert_allclose(sd["ours"], sd["fit"], rtol=0.3)


def exact(model, groups):
    """log Z of y ~ x, or of y ~ x + (1|g) by quadrature over the scale of the groups (nats)."""
    x = DATA["x"].to_numpy()
    x = x - x.mean() if model.center_predictors else x
    cov = np.eye(N) + 9.0 + np.outer(x, x)
    which = np.asarray(DATA["g"])
    same = (which[:, None] == which).astype(float)

    def likelihood(scale):
        return stats.multivariate_normal(np.zeros(N), cov + scale**2 * same).logpdf(DATA["y"])

    if not groups:
        return likelihood(0.0)
    top = likelihood(0.0)
    law = stats.halfnorm()
    return top + np.log(
        integrate.quad(lambda s: np.exp(likelihood(s) - top) * law.pdf(s), 0.0, 8.0)[0]
    )


@pytest.fixture(scope="module")
def grouped():
    """A model with groups, and draws of its `fit` with all that it can leave in."""
    model = built("y ~ x + (1|g)", PRIORS | {"1|g": GROUPS})
    nuts = {"target_accept": 0.95}
    return model, model.fit(draws=1500, tune=1000, omit_offsets=False, nuts=nuts, **FITTED)


@pytest.mark.slow("compiles models of its own")
@pytest.mark.filterwarnings("ignore::pymc_tempering.TemperingWarning")
def test_evidence_of_a_fit_by_bambi(grouped):
    """|z| < 4 beside quadrature, with the offsets and without: false alarm 6e-5 each."""
    model, fit = grouped
    for draws in (fit, without(fit, "1|g_offset")):
        found = pmt.log_marginal_likelihood(draws, model, random_seed=1)
        assert abs(found.log_z - exact(model, groups=True)) < 4.0 * found.mcse < 0.4
    with pytest.raises(DataMismatchError, match=r"omit_offsets=False.*center_predictors=False"):
        pmt.log_marginal_likelihood(without(fit, "1|g_offset"), model.backend.model)
    found = pmt.log_marginal_likelihood(fit, model.backend.model, random_seed=1)
    assert (found.verdict, found.mcse) == ("unchecked", np.inf)
    assert re.search(r"omit_offsets=False.*center_predictors=False", " ".join(found.warnings))


def exact_fit(model, n=500):
    """Independent draws of y ~ x as `fit` returns them, and as PyMC has them."""
    x = DATA["x"].to_numpy()
    design = np.column_stack([np.ones(N), x - x.mean()])
    cov = np.linalg.inv(design.T @ design + np.diag([1.0 / 9.0, 1.0]))
    rng = np.random.default_rng(11)
    b = rng.multivariate_normal(cov @ design.T @ DATA["y"].to_numpy(), cov, (4, n))
    law = stats.norm([0.0, 0.0], [3.0, 1.0]).logpdf(b).sum(axis=-1)
    law += stats.norm(b @ design.T, 1.0).logpdf(DATA["y"].to_numpy()).sum(axis=-1)
    pair = {"Intercept": (("chain", "draw"), b[..., 0]), "x": (("chain", "draw"), b[..., 1])}
    raw = with_log_density(xr.DataTree.from_dict({"posterior": xr.Dataset(pair)}), law)
    return pmt.to_bambi(raw, model), raw


DOORS = {
    "log_marginal_likelihood": lambda d, m, **o: pmt.log_marginal_likelihood(d, m, **o).log_z,
    "importance": lambda d, m, **o: pmt.importance_sampling(d, m, draws=500, **o).log_z,
    "bridge": lambda d, m, **o: pmt.bridge_sampling(d, m, **o).log_z,
    "compare": lambda d, m, **o: pmt.compare({"a": d}, models={"a": m}, **o)["log_z"].iloc[0],
    "bayes_factor": lambda d, m, **o: pmt.bayes_factor(d, d, models=(m, m), **o).log_bf,
    "average": lambda d, m, **o: pmt.average([d, d], models=[m, m], **o).attrs["weights"],
    "cross_check": lambda d, m, **o: pmt.cross_check(
        d, m, ["bridge_sampling", "importance_sampling"], **o
    ).table["log_z"],
    "reverse_ais": lambda d, m, **o: pmt.reverse_ais(d, m, n_particles=100, betas=20, **o).log_z,
    "sandwich": lambda d, m, **o: pmt.sandwich(d, m, n_particles=100, betas=20, **o).upper.log_z,
    "savage_dickey": lambda d, m, **o: (
        pmt.savage_dickey(d, m, null={"x": 0.0}, draws=200, **o).log_bf
    ),
    "prior_sensitivity": lambda d, m, **o: (
        pmt.prior_sensitivity(d, m, {"x": [0.9]}, rerun=False, **o)["x"].log_z
    ),
}


@pytest.fixture(scope="module")
def straight():
    model = built()
    return (model, *exact_fit(model))


@pytest.mark.slow("compiles models of its own", quick=["bridge"])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.filterwarnings("ignore::pymc_tempering.TemperingWarning")
def test_every_door_takes_draws_of_a_fit_as_it_takes_those_of_pymc(door, straight):
    model, fit, raw = straight
    options = {"random_seed": 1, "cores": 1, "quiet": True}
    ours = DOORS[door](fit, model, **options)
    np.testing.assert_allclose(ours, DOORS[door](raw, model, **options), rtol=1e-5, atol=1e-7)


def test_a_stored_cross_check_goes_into_what_was_given(straight):
    model, fit, _ = straight
    given = fit.copy()
    methods = ["bridge_sampling", "importance_sampling"]
    pmt.cross_check(given, model, methods, random_seed=1, quiet=True, extend_inferencedata=True)
    assert "cross_check" in given.children


@pytest.mark.slow("compiles models of its own")
def test_uncentered_predictors_and_kept_offsets_go_with_the_model_inside():
    """|z| < 4 beside the exact log Z."""
    model = built(center_predictors=False)
    fit = model.fit(draws=500, tune=500, omit_offsets=False, **FITTED)
    for given in (model, model.backend.model):
        with np.errstate(all="ignore"):
            found = pmt.importance_sampling(fit, given, draws=2000, random_seed=1, quiet=True)
        assert found.verdict == "ok"
        assert abs(found.log_z - exact(model, groups=False)) < 4.0 * found.mcse < 0.2


def test_what_is_not_of_the_model_is_refused(straight):
    model, fit, raw = straight
    assert pmt.to_bambi(fit, model)["posterior"].identical(fit["posterior"])
    other = built(priors=PRIORS | {"x": normal(0.2)})
    with pytest.raises(DataMismatchError, match="log density"):
        pmt.to_bambi(raw, other)
    with pytest.raises(DataMismatchError, match=r"differ by .*center_predictors=False"):
        pmt.cross_check(fit, model.backend.model, ["bridge_sampling"])
    with pytest.raises(DataMismatchError, match="lacks 'w', a variable of the Bambi model"):
        pmt.bridge_sampling(fit, built("y ~ x + w", {}), quiet=True)
    for thing in (model.backend.model, 3.0):
        with pytest.raises(ModelError, match="needs the Bambi model itself"):
            pmt.to_bambi(raw, thing)
    old = type("Model", (), {"backend": model.backend, "response_term": model.response_term})()
    old.center_predictors = True
    with pytest.raises(ModelError, match=r"Bambi 0\.21 or newer"):
        pmt.to_bambi(raw, old)


def test_draws_of_a_fit_and_of_a_run_are_not_averaged(straight):
    _, fit, raw = straight
    run = raw.copy()
    run["posterior"].attrs["bambi"] = "a note"
    with pytest.raises(ArgumentError, match="to_bambi"):
        pmt.average([fit, run], weights=[0.5, 0.5])


@pytest.mark.slow("compiles models of its own")
@pytest.mark.filterwarnings("ignore::pymc_tempering.TemperingWarning")
def test_every_run_on_a_bambi_model_has_the_note(tmp_path):
    model = built()
    run = pmt.sample(50, model=model, **QUIET)
    approx = pmt.fit(200, model=model, random_seed=1, progressbar=False)
    pmt.sample_many({"a": model}, path=tmp_path / "many", draws=50, random_seed=1, quiet=True)
    found = [
        run,
        pmt.extend(run, draws=20, model=model, quiet=True, progressbar=False),
        pmt.to_datatree(approx, 20),
        *(xr.open_datatree(path) for path in (tmp_path / "many").rglob("*.nc")),
    ]
    assert len(found) == 4
    assert all("to_bambi" in one["posterior"].attrs["bambi"] for one in found)
    plain = pmt.sample(50, model=model.backend.model, **QUIET)
    assert "bambi" not in plain["posterior"].attrs
