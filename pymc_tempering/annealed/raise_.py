"""RAISE: a stochastic lower bound on the likelihood of data under an annealing model."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pymc.model.transform.conditioning import observe

from pymc_tempering.annealed.schedule import (
    Annealing,
    compile_annealing,
    freeze,
    make_schedule,
    opened,
)
from pymc_tempering.arguments import RandomSeed, check_whole, listed
from pymc_tempering.arrays.carried import (
    MIN_PARTICLES,
    N_SHARE,
    Betas,
    Carried,
    carried_evidence,
    check_schedule,
)
from pymc_tempering.core.ladder import barrier_of, space_betas
from pymc_tempering.evidence import Evidence
from pymc_tempering.evidence.result import emit_warnings
from pymc_tempering.exceptions import DataMismatchError
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.model.check import find_model
from pymc_tempering.model.constrain import compile_constrain
from pymc_tempering.model.handle import ModelLike
from pymc_tempering.model.layout import is_discrete, model_layout
from pymc_tempering.model.origin import whole_model
from pymc_tempering.model.python_mode import compile_alone
from pymc_tempering.model.unconstrain import unconstrained_values

FINER, MIN_FINE = 8, 100
"""Rungs of an automatic annealing model: so many times those that nearly equal weights need."""


def raise_(
    data: Mapping[str, Any],
    model: ModelLike | None = None,
    *,
    n_particles: int = 500,
    betas: int | Sequence[float] | None = None,
    transition: KernelChoice = None,
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: RandomSeed = None,
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
    >>> bound = pmt.annealed.raise_({"v": 1.0}, model, n_particles=100, random_seed=1, quiet=True)
    >>> round(bound.log_z, 1)  # v ~ Normal(0, 1 / sqrt(0.75)): -1.44
    -1.4
    """
    check_whole(MIN_PARTICLES, n_particles=n_particles)
    check_schedule(betas)
    model = find_model(model)
    values = checked_values(model, data)
    clamped = observe(model, values)
    show = progressbar and not quiet
    with opened(
        model, transition, betas, cores, executor, random_seed, show, reversal=True
    ) as call:
        layout = call.reference.path.layout
        inner = None
        if clamped.free_RVs:
            inner = compile_annealing(clamped, transition, call.rng, cores, executor, call.report)
        call = call.from_now()
        schedule, path = make_schedule(call, betas)
        if betas is None:
            n_fine = max(MIN_FINE, FINER * schedule.betas.size)
            fine = freeze(call.movers, path, space_betas(barrier_of(path.alive), n_fine))
            schedule = replace(fine, n_evaluations=schedule.n_evaluations)
        up = (
            _known(clamped, n_particles) if inner is None else _completed(inner, betas, n_particles)
        )
        alive = up.log_w > -np.inf
        log_w, states = up.log_w[alive], np.empty((0, layout.dim))
        if alive.any():
            latent = clamped if inner is None else inner.reference.path.model
            states = whole_states(call.reference.path.model, latent, values, up.states[alive])
        if not (len(states) and np.isfinite(states).all() and np.isfinite(log_w).all()):
            raise DataMismatchError(
                f"data {listed(values)} have zero density in this model: they lie "
                "outside the support of a prior, or a potential excludes them."
            )
        share, share_error = call.log_share_alive()
        down = call.down(schedule, states)
        # Latent states of weight zero count, but need no path; as many as of those that have one.
        n_dead = (n_particles - len(states)) * len(down.log_w) // len(states)
        total = np.concatenate([log_w[down.index] + down.log_w, np.full(n_dead, -np.inf)])
        evidence = carried_evidence(
            replace(down, log_w=total, n_nan=up.n_nan + down.n_nan),
            call.rng,
            method="raise",
            asked=len(states),
            share=(-share, share_error),  # the annealing model starts where it has a path
            n_evaluations=schedule.n_evaluations + up.n_evaluations + N_SHARE,
            seconds=call.seconds,
        )
        evidence = call.noted(evidence, states)
    return emit_warnings(evidence)


def checked_values(model: pm.Model, data: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Give data the types of their variables, and refuse such as do not fit them.

    Raises
    ------
    DataMismatchError
        There are none; one is of no free variable of the model, of another shape, or no whole
        number where the variable is discrete.
    """
    if not data:
        raise DataMismatchError("data is empty: name at least one free variable of the model.")
    shapes = model.eval_rv_shapes()
    expected = {rv.name: tuple(map(int, shapes[rv.name])) for rv in model.free_RVs}
    if unknown := [name for name in data if name not in expected]:
        raise DataMismatchError(
            f"data names {listed(unknown)}, which the model does not have among "
            f"its free variables: {', '.join(expected)}."
        )
    values = {}
    for name, value in data.items():
        if np.shape(value) != expected[name]:
            raise DataMismatchError(
                f"data has {name!r} with shape {np.shape(value)}, the model has {expected[name]}: "
                "pass the model that it was drawn from."
            )
        array = np.asarray(value, dtype=float)
        if is_discrete(model[name]) and not np.array_equal(array, np.rint(array)):
            raise DataMismatchError(
                f"data of {name!r} must be whole numbers, since it is discrete; it begins with "
                f"{array.ravel()[:5]}."
            )
        values[name] = array.astype(model[name].type.dtype)
    return values


def _completed(inner: Annealing, betas: Betas, n: int) -> Carried:
    """Carry the latent variables, given the data, up to the whole model."""
    schedule, _ = make_schedule(inner, betas)
    up = inner.up(schedule, n)
    if up.interrupted:
        raise KeyboardInterrupt("Interrupted before the path of the whole model.")
    return replace(up, n_evaluations=up.n_evaluations + schedule.n_evaluations)


def _known(model: pm.Model, n: int) -> Carried:
    """Weigh n particles by the log density of a model without free variables: f at the data."""
    graph = model.logp(jacobian=False)
    with model:
        log_f = float(compile_alone([], graph)())
    return Carried(np.full(n, log_f), np.empty((n, 0)))


def whole_states(
    model: pm.Model,
    clamped: pm.Model,
    values: Mapping[str, np.ndarray],
    latent: np.ndarray,
) -> np.ndarray:
    """Unconstrained states of the whole model from data and latent states, shape (n, d)."""
    n = len(latent)
    given = {name: np.broadcast_to(value, (n, *value.shape)) for name, value in values.items()}
    if clamped.free_RVs:
        names = [rv.name for rv in whole_model(clamped).free_RVs]
        given |= compile_constrain(clamped, model_layout(clamped), names)(latent)
    constrained = {
        name: (("chain", "draw", *(f"{name}_{i}" for i in range(value.ndim - 1))), value[None])
        for name, value in given.items()
    }
    idata = xr.DataTree.from_dict({"posterior": xr.Dataset(constrained)})
    layout = model_layout(model)
    found = unconstrained_values(idata, model, layout, model.free_RVs)
    return np.concatenate([found[name].reshape(n, -1) for name in layout.names], axis=1)
