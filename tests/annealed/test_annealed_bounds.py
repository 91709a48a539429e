"""Reverse AIS, the sandwich and RAISE: bounds in expectation, exact laws, and what is refused."""

import threading
from itertools import pairwise, product

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from pymc.model.transform.conditioning import observe
from support.compiled_systems import prior, system
from support.exact_posteriors import posterior_tree, with_density_of
from support.riemann_sums import riemann_log_weights
from support.small_models import all_transforms, mean_only

import pymc_tempering as pmt
from pymc_tempering.annealed import schedule as setup
from pymc_tempering.annealed.ais import (
    PosteriorStates,
    annealed_down,
    checked_states,
    posterior_states,
)
from pymc_tempering.annealed.raise_ import whole_states
from pymc_tempering.annealed.schedule import (
    Annealing,
    BetaSchedule,
    anneal_blocks,
    compile_movers,
    make_schedule,
    placed_blocks,
    prior_blocks,
)
from pymc_tempering.chain.particles import place, sweep
from pymc_tempering.chain.plan import Tuning
from pymc_tempering.core.threads import paced, run_tasks
from pymc_tempering.evidence.bracket import join_bounds
from pymc_tempering.kernels import HMC, on_all
from pymc_tempering.model.layout import model_layout
from pymc_tempering.references.compile import compile_model


def exact_draws(name, n, chains=4, seed=0):
    """Posterior draws of a Gaussian system as a DataTree."""
    mean, variance = system(name).moments(1.0)["x"]
    rng = np.random.default_rng(seed)
    x = mean + np.sqrt(variance) * rng.normal(size=(chains, n // chains, mean.size))
    return with_density_of(posterior_tree(x=x), system(name).model)


@pytest.mark.slow("compiles models of its own")
def test_states_are_those_that_pymc_transforms():
    """All kinds of transforms, against PyMC's own draws in both spaces."""
    model = all_transforms()
    path = model_layout(model)
    names = [rv.name for rv in model.free_RVs]
    inputs = model.replace_rvs_by_values(model.free_RVs)
    constrain = pm.pytensorf.compile(model.value_vars, inputs, mode="FAST_COMPILE")
    for x in np.random.default_rng(1).normal(size=(5, path.dim)):
        values = dict(zip(names, constrain(*path.unravel(x).values()), strict=True))
        [again] = whole_states(model, observe(model, values), values, np.empty((1, 0)))
        layout = dict(zip(path.names, path.slices, strict=True))
        for name, part in layout.items():
            off = again[part] - x[part]
            if "circular" in name:
                off = np.sin(0.5 * off)
            np.testing.assert_allclose(off, 0.0, atol=1e-8)


def test_a_transform_that_depends_on_another_variable():
    with pm.Model() as model:
        low = pm.Normal("low")
        pm.Uniform("x", low, low + 2.0)
        pm.Normal("y", 0.0, 1.0, observed=1.0)
    values = {"low": np.array(3.0), "x": np.array(3.5)}
    clamped = observe(model, values)
    [xs] = whole_states(model, clamped, values, np.empty((1, 0)))
    np.testing.assert_allclose(xs, [3.0, np.log(0.5 / 1.5)])


@pytest.mark.slow("compiles models of its own")
def test_draws_are_taken_at_equal_distances_with_their_chains():
    idata = exact_draws("gaussian", 400)
    states = posterior_states(idata, prior("gaussian").path, 40)
    flat = idata["posterior"]["x"].values.reshape(400, -1)
    rows = [np.flatnonzero((flat == x).all(axis=1))[0] for x in states.xs]
    assert np.all(np.abs(np.diff(rows) - 10) <= 1)
    assert (rows[0], rows[-1]) == (0, 399)
    np.testing.assert_array_equal(states.chain, np.array(rows) // 100)
    assert len(posterior_states(idata, prior("gaussian").path, 1000).xs) == 400


def exact_states(n, rng):
    mean, variance = system("gaussian").moments(1.0)["x"]
    xs = mean + np.sqrt(variance) * rng.normal(size=(n, mean.size))
    return PosteriorStates(xs, np.repeat(np.arange(4), n // 4))


@pytest.mark.slow("repeats")
def test_reverse_error_is_the_real_one_and_lies_above():
    """150 repeats from exact draws: sd of z at 2.6 standard errors; E[1 / Z-hat] = 1 / Z."""
    exact, rng = system("gaussian").log_evidence, np.random.default_rng(2)
    movers = compile_movers(system("gaussian").model, None, lambda line: None)
    call = Annealing(movers, rng, 1)
    plan, _ = make_schedule(call, 40)
    runs = [annealed_down(call, plan, exact_states(200, rng)) for _ in range(150)]
    z = np.array([(run.log_z - exact) / run.mcse for run in runs])
    assert 0.8 < z.std() < 1.15
    off = np.exp([exact - run.log_z for run in runs])
    assert abs(off.mean() - 1.0) < 4.0 * off.std() / np.sqrt(150)
    coarse, _ = make_schedule(call, 5)
    single = -call.down(coarse, exact_states(2000, rng).xs).log_w  # what one draw says of log Z
    assert single.mean() - exact > 10.0 * single.std() / np.sqrt(2000)


def test_sandwich_brackets_and_says_on_what_it_rests():
    idata = exact_draws("gaussian", 1000)
    exact = system("gaussian").log_evidence
    both = pmt.sandwich(idata, system("gaussian").model, random_seed=1, progressbar=False)
    assert both.verdict == "ok"
    assert abs(both.lower.log_z - exact) < 4.0 * both.lower.mcse
    assert abs(both.upper.log_z - exact) < 4.0 * both.upper.mcse
    assert both.gap == pytest.approx(both.upper.log_z - both.lower.log_z)
    assert both.gap_mcse == pytest.approx(np.hypot(both.lower.mcse, both.upper.mcse))
    assert (both.lower.bias_direction, both.upper.bias_direction) == ("below", "above")
    assert "true posterior draws" in both.words
    assert f"{both.lower.log_z:.3f}" in repr(both)


def unequal_modes(draws=1000):
    """A narrow mode of half the posterior, far out; draws that see the wide one alone."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 2.0)
        far, near = pm.Normal.dist(5.0, 0.01), pm.Normal.dist(0.0, 1.0)
        weights = [np.log(26.0), 0.0]
        terms = [pm.logp(far, x) + weights[0], pm.logp(near, x) + weights[1]]
        pm.Potential("modes", pm.math.logaddexp(*terms))
    log_n = [-0.5 * m**2 / (4.0 + s**2) - 0.5 * np.log(2.0 * np.pi * (4.0 + s**2))
             for m, s in ((5.0, 0.01), (0.0, 1.0))]  # fmt: skip
    parts = np.exp(np.array(weights) + log_n)
    sd = np.sqrt(1.0 / (1.0 + 0.25))
    wide = sd * np.random.default_rng(0).normal(size=(4, draws // 4))
    return model, posterior_of(x=wide), np.log(parts.sum()), parts[1] / parts.sum()


@pytest.mark.slow("compiles models of its own")
def test_draws_that_miss_a_mode_lower_the_upper_bound():
    """By log(share / reach), with the share of forward particles that end where the draws are."""
    model, idata, exact, share = unequal_modes()
    movers = compile_movers(model, "leapfrog", lambda line: None)
    call = Annealing(movers, np.random.default_rng(6), 1)
    plan, _ = make_schedule(call, 60)
    up = call.up(plan, 2000)
    reach = np.mean(up.states[:, 0] < 4.5)
    assert share < 0.7 < 0.9 < reach
    states = checked_states(idata, call.reference.path, 1000)
    upper = annealed_down(call, plan, states)
    expected = exact + np.log(share / reach)
    assert abs(upper.log_z - expected) < 4.0 * upper.mcse + 4.0 * np.sqrt((1 / reach - 1) / 2000)
    assert upper.log_z < exact - 4.0 * upper.mcse  # no upper bound at all
    # a lower bound that finds the mode gives it away; that both agree gives nothing away
    lower = pmt.evidence.Evidence(exact, 0.02, "ais", "ok")
    crossed = join_bounds(lower, upper)
    assert crossed.verdict == "crossed"
    assert "miss a mode" in crossed.words


@pytest.mark.slow("compiles models of its own")
def test_bounds_far_apart_are_said():
    idata = exact_draws("long_path", 1000)
    with pytest.warns(pmt.TemperingWarning, match="hold|count|heavy"):
        both = pmt.sandwich(
            idata, system("long_path").model, betas=20, random_seed=1, progressbar=False
        )
    assert both.verdict in ("wide", "unchecked")
    wide = join_bounds(
        pmt.evidence.Evidence(-2.0, 0.1, "ais", "ok"), pmt.evidence.Evidence(-1.0, 0.1, "x", "ok")
    )
    assert wide.verdict == "wide"
    assert "1 nats apart" in wide.words
    plain = join_bounds(
        pmt.evidence.Evidence(-1.0, np.inf, "ais", "unchecked"),
        pmt.evidence.Evidence(-1.0, 0.1, "x", "ok"),
    )
    assert plain.verdict == "unchecked"


def posterior_of(**variables):
    data = {n: (("chain", "draw", *(f"{n}_{i}" for i in range(np.ndim(v) - 2))), np.asarray(v))
            for n, v in variables.items()}  # fmt: skip
    return xr.DataTree.from_dict({"posterior": xr.Dataset(data)})


@pytest.mark.slow("compiles models of its own", quick=["idata0-with the group 'posterior'"])
@pytest.mark.parametrize(
    ("idata", "sentence"),
    [
        (xr.DataTree(), "with the group 'posterior'"),
        (posterior_of(other=np.zeros((2, 50))), "has 'mu' in their place"),
        (
            posterior_of(mu=np.zeros((2, 50, 3))),
            r"'mu' has the shape \(3,\) in the posterior and \(\)",
        ),
        (posterior_of(mu=np.full((2, 50), np.nan)), "no finite unconstrained value .worst: mu"),
        (posterior_of(mu=np.zeros((2, 5))), "has 10 draws, where 20 are needed"),
    ],
)
def test_a_posterior_that_does_not_fit_is_refused(idata, sentence):
    for method in (pmt.reverse_ais, pmt.sandwich):
        with pytest.raises(pmt.exceptions.DataMismatchError, match=sentence):
            method(idata, mean_only(), progressbar=False)


def test_a_posterior_of_other_data_is_refused():
    idata = posterior_of(mu=np.zeros((2, 50)))
    other = xr.Dataset({"y": (("y_dim_0",), np.array([1.0, 3.5]))})  # 2.5 in the model
    idata["observed_data"] = xr.DataTree(other)
    for method in (pmt.reverse_ais, pmt.sandwich):
        with pytest.raises(pmt.exceptions.DataMismatchError, match="observed data of"):
            method(idata, mean_only(), progressbar=False)


@pytest.mark.slow("compiles models of its own")
def test_draws_of_zero_density_are_refused():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("half", pm.math.switch(x > 0.0, 0.0, -np.inf))
    with pytest.raises(
        pmt.exceptions.DataMismatchError, match=r"50\.0% of the posterior draws have zero"
    ):
        pmt.reverse_ais(posterior_of(x=np.tile([-1.0, 1.0], (2, 25))), model, progressbar=False)


@pytest.mark.parametrize(
    ("method", "kwargs", "error", "sentence"),
    [
        ("ais", {"n_particles": 5}, ValueError, "n_particles must be a whole number of at least"),
        ("ais", {"n_particles": None}, ValueError, "not None"),
        ("ais", {"betas": [0.0, 0.5]}, pmt.exceptions.LadderError, "beta = 0 to beta = 1"),
        ("hais", {"betas": 1}, pmt.exceptions.LadderError, "number of rungs"),
        ("hais", {"betas": 2.5}, pmt.exceptions.LadderError, "number of rungs"),
        ("ais", {"cores": 0}, ValueError, "cores must be"),
        ("smc", {"islands": 3}, ValueError, "islands must be"),
        ("thermodynamic_integration", {"chains": 1}, ValueError, "chains must be"),
        ("thermodynamic_integration", {"rule": "simpson"}, ValueError, "rule must be one of"),
    ],
)
def test_bad_arguments_are_refused_before_any_work(method, kwargs, error, sentence):
    with pytest.raises(error, match=sentence):
        getattr(pmt.annealed, method)(None, **kwargs)


@pytest.mark.parametrize("method", ["ais", "hais", "smc", "thermodynamic_integration"])
def test_no_model(method):
    with pytest.raises(pmt.exceptions.ModelError, match="No model"):
        getattr(pmt.annealed, method)()


@pytest.mark.slow("compiles models of its own")
@pytest.mark.parametrize("method", [pmt.ais, pmt.annealed.hais, pmt.smc])
def test_a_prior_whose_constant_is_not_known_is_refused(method):
    """Annealing from another prior would lack its constant without a word."""
    with pm.Model() as model:
        beside = pm.Data("beside", np.ones((3, 3)) - np.eye(3))
        x = pm.CAR("x", np.zeros(3), W=beside, alpha=0.5, tau=1.0)
        pm.Normal("y", x, 1.0, observed=np.ones(3))
    with pytest.raises(
        pmt.exceptions.ModelError, match="x have no random draws that fit their densities"
    ):
        method(model, progressbar=False)


# RAISE


def gaussian_field(coupling=0.6, shift=0.5):
    """v and h with f(v, h) = exp(-(v^2 + h^2) / 2 - c v h + s v - h^2 / 2) over 2 pi."""
    with pm.Model() as model:
        v, h = pm.Normal("v"), pm.Normal("h")
        pm.Potential("energy", -coupling * v * h + shift * v - 0.5 * h**2)
    precision = np.array([[1.0, coupling], [coupling, 2.0]])
    mean = np.linalg.solve(precision, [shift, 0.0])
    variance = np.linalg.inv(precision)[0, 0]
    log_z = 0.5 * shift * mean[0] - 0.5 * np.linalg.slogdet(precision)[1]

    def log_f(v):
        """Log of f(v, h) summed over h: h given v is Normal(-c v / 2, 1 / 2)."""
        return (
            -0.5 * v**2 + shift * v + 0.25 * (coupling * v) ** 2
            - 0.5 * np.log(2.0 * np.pi) - 0.5 * np.log(2.0)
        )  # fmt: skip

    return model, mean[0], variance, log_z, log_f


def coarse_plan(dim=2):
    """Four rungs and small steps: the annealing model is far from the target."""
    betas = np.array([0.0, 0.3, 0.7, 1.0])
    ones = np.ones((4, 1))
    tuning = Tuning(betas, 0.4 * ones, np.ones((4, dim)), (None,), 1.2 * ones)
    return BetaSchedule(on_all(HMC(max_steps=1), dim), tuning)


@pytest.mark.slow("repeats")
def test_raise_is_unbiased_for_the_annealing_model():
    """Its density at v, in bins, against the share of forward paths that end there: |z| < 4."""
    model, mean, variance, _, log_f = gaussian_field()
    reference, plan, rng, n = compile_model(model), coarse_plan(), np.random.default_rng(4), 12_000
    up = anneal_blocks(prior_blocks(reference, n, rng), plan, 1)
    # one more transition at beta = 1, as the annealing model has it
    ends = place(reference, plan.kernel, up.states, rng)
    sweep(ends, 1.0, plan.params[-1])
    ends = ends.xs[:, 0]
    edges = np.array([-1.5, -0.5, 0.5, 1.5, 2.5])
    distance = []
    for low, high in pairwise(edges):
        share = np.mean((ends > low) & (ends < high))
        v = rng.uniform(low, high, size=n)
        h = -0.3 * v + np.sqrt(0.5) * rng.normal(size=n)
        starts = placed_blocks(reference, np.column_stack([v, h]), rng)
        w = np.exp(log_f(v) + anneal_blocks(starts, plan, 1, down=True).log_w) * (high - low)
        error = np.hypot(np.sqrt(share * (1.0 - share) / n), w.std() / np.sqrt(n))
        assert abs(w.mean() - share) < 4.0 * error
        z = (np.array([low, high]) - mean) / np.sqrt(variance)
        exact = np.diff(pm.math.erf(z / np.sqrt(2.0)).eval() / 2.0)[0]
        distance.append((w.mean() - exact) / error)
    # and it is the annealing model whose density it is, not the target
    assert np.max(np.abs(distance)) > 6.0


@pytest.mark.parametrize("v", [-1.0, 1.5])
def test_raise_with_many_rungs_is_the_likelihood(v):
    """The latent variable is annealed too; |z| < 4 and 0.02 for what is left of the distance."""
    model, _, _, log_z, log_f = gaussian_field()
    bound = pmt.annealed.raise_({"v": v}, model, random_seed=1, progressbar=False)
    assert abs(bound.log_z - (log_f(v) - log_z)) < 4.0 * bound.mcse + 0.02
    assert bound.bias_direction == "below"
    assert bound.verdict == "ok"


def test_raise_without_latent_variables_takes_f_as_it_is():
    model, _, _, log_z, _ = gaussian_field()
    bound = pmt.annealed.raise_({"v": 0.3, "h": 0.2}, model, random_seed=1, progressbar=False)
    log_f = -0.5 * 0.3**2 - 0.2**2 - 0.6 * 0.06 + 0.5 * 0.3 - np.log(2.0 * np.pi)
    assert abs(bound.log_z - (log_f - log_z)) < 4.0 * bound.mcse + 0.02


def test_states_of_data_and_latent_draws():
    with pm.Model() as model:
        pm.Gamma("v", 2.0, 1.0, shape=2)
        pm.Beta("h", 2.0, 2.0)
        pm.Potential("energy", model["v"].sum() * model["h"])
    values = {"v": np.array([1.0, 3.0])}
    clamped = observe(model, values)
    rows = whole_states(model, clamped, values, np.array([[0.4], [-1.0]]))
    np.testing.assert_allclose(rows, [[0.0, np.log(3.0), 0.4], [0.0, np.log(3.0), -1.0]])


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({}, "data is empty"),
        ({"w": 1.0}, "names 'w', which the model does not have among its free variables: v, h"),
        ({"v": [1.0, 2.0]}, r"'v' with shape \(2,\), the model has \(\)"),
    ],
)
def test_raise_refuses_data_that_do_not_fit(data, sentence):
    with pytest.raises(pmt.exceptions.DataMismatchError, match=sentence):
        pmt.annealed.raise_(data, gaussian_field()[0], progressbar=False)


@pytest.mark.slow("compiles models of its own")
def test_raise_refuses_data_of_zero_density():
    with pm.Model() as model:
        v = pm.Gamma("v", 2.0, 1.0)
        pm.Potential("energy", -v)
    with pytest.raises(pmt.exceptions.DataMismatchError, match="'v' have zero density"):
        pmt.annealed.raise_({"v": -1.0}, model, progressbar=False)


def test_raise_on_an_enumerable_boltzmann_machine():
    """An RBM of 2 + 2 units by matrices: E[w] is p_ann(v) exactly, and E[log w] lies below."""
    rng = np.random.default_rng(5)
    coupling, a, b = rng.normal(size=(2, 2)) * 2.0, rng.normal(size=2), rng.normal(size=2)
    states = np.array(list(product([0, 1], repeat=4)), dtype=float)
    v, h = states[:, :2], states[:, 2:]
    log_ratio = np.einsum("ni,ij,nj->n", v, coupling, h) + v @ a + h @ b
    betas = np.array([0.0, 0.4, 1.0])

    def gibbs(beta):
        """Draw h given v, then v given h: not its own reversal."""
        p = np.exp(beta * log_ratio)
        same_v = (v[:, None] == v[None]).all(axis=2)
        same_h = (h[:, None] == h[None]).all(axis=2)
        to_h = same_v * p / (same_v @ p)[:, None]
        to_v = same_h * p / (same_h @ p)[:, None]
        return to_h @ to_v

    forward = np.full(16, 1.0 / 16)
    for beta in betas[1:]:
        forward = forward @ gibbs(beta)
    f = np.exp(log_ratio) / 16  # the uniform reference is normalized
    total = np.zeros(4)
    mean_log = np.zeros(4)
    group = (v @ [2, 1]).astype(int)
    for x_end in range(16):
        for x1, x0 in product(range(16), repeat=2):
            prob = 1.0
            for here, there, beta in ((x_end, x1, 1.0), (x1, x0, betas[1])):
                p = np.exp(beta * log_ratio)
                prob *= gibbs(beta)[there, here] * p[there] / p[here]  # the reversal of T
            if prob == 0.0:
                continue
            # down: the increments are taken after the moves at beta = 1 and beta_1
            log_r = riemann_log_weights(betas[::-1], log_ratio[[x1, x0]])
            same = group == group[x_end]
            q = f[x_end] / f[same].sum()  # h is drawn exactly
            total[group[x_end]] += q * prob * f[same].sum() * np.exp(log_r)
            mean_log[group[x_end]] += q * prob * (np.log(f[same].sum()) + log_r)
    p_ann = np.bincount(group, weights=forward)
    np.testing.assert_allclose(total, p_ann)
    assert p_ann.sum() == pytest.approx(1.0)
    assert np.all(mean_log < np.log(p_ann))
    p = np.bincount(group, weights=f) / f.sum()
    assert p @ np.log(p_ann) < p @ np.log(p)  # below the likelihood, on average over its data
    assert np.max(np.abs(p_ann / p - 1.0)) > 0.05


# threads and Ctrl-C


def test_pieces_cover_the_work_once_and_stop_when_told():
    stop = threading.Event()
    pieces = list(paced(1000, stop))
    assert [i for begin, end in pieces for i in range(begin, end)] == list(range(1000))
    taken = []
    for begin, end in paced(1_000_000, stop):
        taken.append((begin, end))
        if len(taken) == 3:
            stop.set()
    assert len(taken) == 3


def test_an_interrupt_keeps_the_tasks_that_finished():
    looks = []

    def report(done):
        looks.append(done)
        if done >= 2:
            raise KeyboardInterrupt

    tasks = [lambda stop: 1, lambda stop: 2, lambda stop: None if stop.wait(20.0) else 3]
    assert run_tasks(tasks, 3, report) == ([1, 2], True)


def test_an_error_in_a_thread_is_raised():
    def fail(stop):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_tasks([fail, lambda stop: stop.wait(20.0)], 2)


@pytest.mark.slow("compiles models of its own")
def test_an_interrupted_run_says_how_many_particles_it_has(monkeypatch):
    original, calls = setup.run_work, []

    def interrupted(tasks, cores, report):
        calls.append(1)
        done, _ = original(tasks[: len(tasks) // 2], cores)
        return done, True

    monkeypatch.setattr(setup, "run_work", interrupted)
    with pytest.warns(pmt.TemperingWarning, match="Interrupted: 96 of 200 particles"):
        evidence = pmt.ais(
            system("gaussian").model, betas=60, n_particles=200, random_seed=1, progressbar=False
        )
    assert abs(evidence.log_z - system("gaussian").log_evidence) < 4.0 * evidence.mcse
    monkeypatch.setattr(setup, "run_work", lambda *args: ([], True))
    with pytest.raises(KeyboardInterrupt, match="before the first block"):
        pmt.ais(system("gaussian").model, betas=60, random_seed=1, progressbar=False)
