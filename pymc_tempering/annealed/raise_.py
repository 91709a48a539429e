"""RAISE: a stochastic lower bound on the likelihood of data under an annealing model."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
from pymc.model.transform.conditioning import observe
from pytensor.graph.basic import Variable

from pymc_tempering.annealed.ais import MIN_PARTICLES
from pymc_tempering.annealed.bounds import N_SHARE, log_share_alive
from pymc_tempering.annealed.schedule import (
    Betas,
    BetaSchedule,
    CarriedParticles,
    Clock,
    Movers,
    Report,
    anneal_blocks,
    check_schedule,
    compile_movers,
    freeze,
    make_schedule,
    placed_blocks,
    prior_blocks,
    run_warnings,
)
from pymc_tempering.arguments import check_whole
from pymc_tempering.chain.sent_model import workers_of
from pymc_tempering.core.ladder import barrier_of, space_betas
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.particle_weights import evidence_of_weights
from pymc_tempering.evidence.result import emit_warnings
from pymc_tempering.exceptions import DataMismatchError
from pymc_tempering.executors.chunks import check_executor
from pymc_tempering.executors.crew import Workers
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.model.check import find_model
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.exactly import compile_alone
from pymc_tempering.model.handle import CompiledModel
from pymc_tempering.model.layout import Layout, is_discrete
from pymc_tempering.model.python_mode import python_mode
from pymc_tempering.model.unconstrain import unconstrained_graphs
from pymc_tempering.references.prior import Reference

FINER, MIN_FINE = 8, 100
"""Rungs of an automatic annealing model: so many times those that nearly equal weights need."""


def raise_(
    data: Mapping[str, Any],
    model: pm.Model | CompiledModel | None = None,
    *,
    n_particles: int = 500,
    betas: int | Sequence[float] | None = None,
    transition: KernelChoice = None,
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    quiet: bool = False,
) -> Evidence:
    """Bound the log likelihood of data under an undirected model from below, by reverse AIS.

    For a density p(v, h) = f(v, h) / Z that nobody normalized, log p(v) = log f(v) - log Z; with
    Z-hat from annealing upward this is overestimated in expectation, which flatters a model.
    RAISE errs on the other side. It takes as the model what annealing samples when it is run
    *once*: draw from the prior, make one transition at each rung, keep v. The likelihood of this
    annealing model, p_ann(v), is estimated without bias, so that the logarithm lies below
    log p_ann(v) in expectation. p_ann tends to p as rungs are added; on average over v from p it
    lies below p.

    The model is a PyMC model whose *free* variables are v and, if there are any, h, drawn from
    their prior at beta = 0, with `pm.Potential` terms that turn the prior into f. An estimate
    takes, for each particle: h given v with weight W, by AIS on the model with v observed (exact
    where there is no h, as in a model whose latent variables were summed out); then the path from
    (v, h) down to the prior with reversed transitions.

    Parameters
    ----------
    data : mapping of str to array_like
        Values of the variables v, by name, constrained; one data point.
    model : pymc.Model or CompiledModel, optional
        By default the model on the context stack.
    n_particles : int, default 500
    betas : int or sequence of float, optional
        Rungs of the annealing model, and of AIS on h; as in :func:`ais`. More rungs make another,
        better annealing model: by default it has eight times those of :func:`ais`, 100 at least.
    transition : str, Kernel, dict or None, optional
        As in :func:`ais`, with one more at beta = 1.
    cores : int, optional
        Threads; by default all cores.
    executor : concurrent.futures.Executor, optional
        Who does the work in place of threads: a pool of processes, or ``client.get_executor()``
        of Dask. Each worker compiles the model once. The pilot runs in this process.
    random_seed : int or numpy.random.Generator, optional
        Same seeds give the same estimate, whatever `cores` and
        `executor` are.
    progressbar : bool, default True
        Whether to show a line of progress.
    quiet : bool, default False
        No progress. Warnings are given all the same.

    Returns
    -------
    Evidence
        ``log_z`` is the estimate of log p_ann(v) in nats, ``mcse`` its bootstrap error. The
        distance of p_ann from p is not part of the error.

    Raises
    ------
    DataMismatchError
        ``data`` names a variable that is not free, or has another shape.
    ModelError, DiscreteVariableError, ImproperPriorError, LikelihoodError
        The model has no such path; binary units, for instance, cannot be moved by these kernels.
    LadderError
        ``betas`` do not increase from 0 to 1.
    ValueError
        An argument out of its range.

    Warns
    -----
    TemperingWarning
        The weights collapsed onto few particles (the mcse is then infinite).

    Notes
    -----
    Burda, Grosse & Salakhutdinov (2015), Accurate and conservative estimates of MRF
    log-likelihood using reverse annealing. With T_k the transition at beta_k, the forward
    path has density p_0(x_0) prod_k T_k(x_k | x_k-1), x_K = (v, h); its ratio to the reverse path
    from (v, h) is f(x_K) prod_k f_k-1(x_k-1) / f_k(x_k-1), since T_k / T~_k = f_k(x_k) /
    f_k(x_k-1). They draw h exactly; a weight W that is proper for f(v, h) does as well.

    Examples
    --------
    >>> import pymc as pm, pymc_tempering as pmt
    >>> with pm.Model() as model:
    ...     v = pm.Normal("v")
    ...     h = pm.Normal("h")
    ...     energy = pm.Potential("energy", 0.5 * v * h)
    >>> bound = pmt.raise_({"v": 1.0}, model, n_particles=100, random_seed=1, progressbar=False)
    >>> round(bound.log_z, 1)  # v ~ Normal(0, 1 / sqrt(0.75)): -1.44
    -1.4
    """
    check_whole(MIN_PARTICLES, n_particles=n_particles)
    check_whole(1, cores=cores)
    check_executor(executor)
    check_schedule(betas)
    model = found = find_model(model)
    if not data:
        raise DataMismatchError("data is empty: name at least one free variable of the model.")
    check_values(model, {name: np.shape(value) for name, value in data.items()}, "data")
    values = {name: as_values_of(found[name], value) for name, value in data.items()}
    rng = np.random.default_rng(random_seed)
    clamped = observe(model, values)
    with compiling_status(progressbar and not quiet) as report:
        movers = compile_movers(model, transition, report, reversal=True)
        reference = movers.reference
        inner = compile_movers(clamped, transition, report) if clamped.free_RVs else None
        workers = workers_of(executor, cores, reference, movers.kernel)
        clock = Clock()
        schedule, path = make_schedule(movers, betas, rng, cores=workers, report=report)
        if betas is None:
            n_fine = max(MIN_FINE, FINER * schedule.betas.size)
            fine = freeze(movers, path, space_betas(barrier_of(path.alive), n_fine))
            schedule = replace(fine, n_evaluations=schedule.n_evaluations)
        evaluations = schedule.n_evaluations
        said, n_undefined = tuple[str, ...](), 0
        if inner is None:
            log_w = np.full(n_particles, _log_density(clamped))
            states = whole_states(
                model, reference.path.layout, clamped, None, values, np.empty((n_particles, 0))
            )
        else:
            crew = workers_of(executor, cores, inner.reference, inner.kernel)
            inner_schedule, up = _up(inner, betas, n_particles, rng, crew, report)
            alive = up.log_w > -np.inf
            log_w = up.log_w[alive]
            latent = inner.reference.path.layout
            states = whole_states(
                model, reference.path.layout, clamped, latent, values, up.states[alive]
            )
            evaluations += inner_schedule.n_evaluations + up.n_evaluations
            said, n_undefined = run_warnings(up, n_particles), up.n_nan
        if not (len(states) and np.isfinite(states).all() and np.isfinite(log_w).all()):
            raise DataMismatchError(
                f"data {', '.join(map(repr, values))} have zero density in this model: they lie "
                "outside the support of a prior, or a potential excludes them."
            )
        log_share, share_error = log_share_alive(reference, rng)
        down = _down(reference, states, schedule, rng, workers, report)
        # Latent states of weight zero count, but need no path; as many as of those that have one.
        n_dead = (n_particles - len(states)) * len(down.log_w) // len(states)
        total = np.concatenate([log_w[down.index] + down.log_w, np.full(n_dead, -np.inf)])
        evidence = evidence_of_weights(
            total, rng,
            method="raise",
            share=(-log_share, share_error),  # the annealing model starts where it has a path
            n_evaluations=evaluations + down.n_evaluations + N_SHARE,
            seconds=clock(),
            n_undefined=n_undefined + down.n_nan,
            warnings=(*said, *run_warnings(down, len(states))),
        )  # fmt: skip
    return emit_warnings(evidence)


def as_values_of(rv: Variable, value: Any) -> np.ndarray:
    """Give data the type of their variable.

    Raises
    ------
    DataMismatchError
        The variable is discrete, and the data are no whole numbers.
    """
    array = np.asarray(value, dtype=float)
    if is_discrete(rv) and not np.array_equal(array, np.rint(array)):
        raise DataMismatchError(
            f"data of {rv.name!r} must be whole numbers, since it is discrete; it begins with "
            f"{array.ravel()[:5]}."
        )
    return array.astype(rv.type.dtype)


def _up(
    inner: Movers, betas: Betas, n: int, rng: np.random.Generator, workers: Workers, report: Report
) -> tuple[BetaSchedule, CarriedParticles]:
    """Carry the latent variables, given the data, up to the whole model."""
    schedule, _ = make_schedule(inner, betas, rng, cores=workers, report=report)
    starts = prior_blocks(inner.reference, n, rng)
    up = anneal_blocks(starts, schedule, workers, report=report)
    if up.interrupted:
        raise KeyboardInterrupt("Interrupted before the path of the whole model.")
    return schedule, up


def _down(
    reference: Reference, states: np.ndarray, schedule: BetaSchedule, rng: np.random.Generator,
    cores: Workers, report: Report,
) -> CarriedParticles:  # fmt: skip
    """Carry states of the whole model down to its prior."""
    starts = placed_blocks(reference, states, rng)
    return anneal_blocks(starts, schedule, cores, down=True, report=report)


def _log_density(model: pm.Model) -> float:
    """Log density of a model without free variables: what f is at the data."""
    graph = model.logp(jacobian=False)
    with model:
        return float(compile_alone([], graph, mode=python_mode())())


def whole_states(
    model: pm.Model,
    layout: Layout,
    clamped: pm.Model,
    inner: Layout | None,
    values: Mapping[str, np.ndarray],
    latent: np.ndarray,
) -> np.ndarray:
    """Unconstrained states of the whole model from data and latent states, shape (n, d)."""
    unconstrain = compile_unconstrain(model, layout)
    if inner is None:
        row = unconstrain(values)
        return np.tile(row, (len(latent), 1))
    model = clamped
    with model:
        constrain = compile_alone(
            model.value_vars, model.replace_rvs_by_values(model.free_RVs), mode=python_mode(),
            on_unused_input="ignore",
        )  # fmt: skip
    names = [rv.name for rv in model.free_RVs]
    rows = []
    for x in latent:
        h = dict(zip(names, constrain(*inner.unravel(x).values()), strict=True))
        rows.append(unconstrain({**values, **h}))
    return np.array(rows).reshape(-1, layout.dim)


def compile_unconstrain(
    model: pm.Model, layout: Layout
) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """Compile the map from constrained values of all free variables to the raveled vector."""
    given, outputs = unconstrained_graphs(model, model.free_RVs)
    function = compile_alone(
        list(given.values()), outputs, mode=python_mode(), on_unused_input="ignore"
    )

    def unconstrain(values: Mapping[str, np.ndarray]) -> np.ndarray:
        arguments = [np.asarray(values[rv.name], dtype=rv.type.dtype) for rv in model.free_RVs]
        by_name = dict(zip((model.rvs_to_values[rv].name for rv in model.free_RVs),
                           function(*arguments), strict=True))  # fmt: skip
        return layout.ravel(by_name)

    return unconstrain


def variable_shapes(model: pm.Model) -> dict[str, tuple[int, ...]]:
    """Constrained shapes of the free variables."""
    shapes = model.eval_rv_shapes()
    return {rv.name: tuple(int(n) for n in shapes[rv.name]) for rv in model.free_RVs}


def check_values(model: pm.Model, shapes: Mapping[str, tuple[int, ...]], source: str) -> None:
    """Refuse values whose names and shapes are not among those of a model's free variables.

    Parameters
    ----------
    model : pymc.Model
    shapes : mapping of str to tuple of int
        Shapes of the values, by name.
    source : str
        What the values are, for the message.
    """
    expected = variable_shapes(model)
    unknown = [name for name in shapes if name not in expected]
    if unknown:
        raise DataMismatchError(
            f"{source} names {', '.join(map(repr, unknown))}, which the model does not have among "
            f"its free variables: {', '.join(expected)}."
        )
    for name in shapes:
        if tuple(shapes[name]) != expected[name]:
            raise DataMismatchError(
                f"{source} has {name!r} with shape {tuple(shapes[name])}, the model has "
                f"{expected[name]}: pass the model that it was drawn from."
            )
