"""`SimulatedTempering`, a PyMC step method like any other."""

import inspect
import logging
from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any

import numpy as np
import pymc as pm
from pymc.blocking import PointType, StatsType
from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator, get_value_vars_from_user_vars
from rich.console import Console
from rich.progress import TextColumn
from rich.table import Column

from pymc_tempering.arguments import RandomSeed, rng_of
from pymc_tempering.borrowed.private import BlockedStepWithBars
from pymc_tempering.chain.chains import (
    ChainState,
    clear_record,
    cycle_bound,
    make_runner,
    start_chain,
    stuck_message,
)
from pymc_tempering.chain.draw_statistics import Schema
from pymc_tempering.chain.loop import new_record
from pymc_tempering.chain.plan import Plan
from pymc_tempering.core.ladder import RungWeights
from pymc_tempering.core.status import logger
from pymc_tempering.exceptions import ModelError, StuckChainError, warn_user
from pymc_tempering.fields.whiten import sampled_model
from pymc_tempering.kernels.assign import KernelChoice, compile_with_kernels
from pymc_tempering.model.check import find_model
from pymc_tempering.model.compilations import compiling_status
from pymc_tempering.model.handle import ModelLike
from pymc_tempering.model.layout import model_layout
from pymc_tempering.model.origin import origin_of, whole_model, with_longer_sums
from pymc_tempering.model.terms import find_terms
from pymc_tempering.references.compile import compile_model
from pymc_tempering.references.prior import Fitted, Prior, Reference
from pymc_tempering.sampling.call import Job, Options
from pymc_tempering.sampling.choose_plan import ChosenPlan, choose_plan
from pymc_tempering.sampling.precompile import compile_prior_alone, with_prior_constant

ROOM = 110
"""Characters of a terminal that PyMC's table of progress needs for two columns more."""

CHUNK = 2000
"""Iterations between two looks at signals, so that Ctrl-C gets through."""


@dataclass_state
class SimulatedTemperingState(StepMethodState):
    """Sampling state of the step method: everything that a chain needs to go on."""

    state: ChainState | None = field(default=None)


class SimulatedTempering(BlockedStepWithBars, state_class=SimulatedTemperingState):
    """Simulated tempering over all free variables of a model, for `pm.sample(step=...)`.

    The warm-up (ladder, normalizing constants, step sizes and metrics) runs once, here in the
    constructor; every chain then starts at a fresh draw from the reference and runs with
    everything frozen. A step iterates until the chain is at beta = 1 again, so that each
    recorded draw is a draw from the posterior. Its statistics carry what
    `log_marginal_likelihood` needs.

    Parameters
    ----------
    vars : list of variables, optional
        All free variables of the model; it is an error to leave some out.
    model : pymc.Model or CompiledModel, optional
        By default the model on the context stack.
    kernel : str, Kernel or dict, optional
        What moves the variables at each temperature: a kernel, or its name, for all variables that
        it can move; or a mapping from the names of variables to kernels or their names. A step
        method class of PyMC may stand for a kernel. The names are:

        - "hmc": Hamiltonian Monte Carlo. Moves real variables.
        - "nuts": The No-U-Turn sampler. Moves real variables.
        - "slice": Slice sampling, without gradients. Moves real variables and integers.
        - "metropolis": Random-walk Metropolis with the covariance of each rung, without
          gradients. Moves real variables and integers.
        - "gibbs": Gibbs sampling. Moves binary variables and integers in known bounds.
        - "langevin": Discrete Langevin proposals, which flip many variables with one gradient.
          Moves binary variables.
        - "transfer": Transfer of units between two cells, by Metropolis. Moves vectors of
          counts with a fixed sum.

        What is left open gets a default: "hmc" for real variables ("slice" where the density has no
        gradient, "metropolis" where it is dear too), "slice" for integers without known bounds,
        "gibbs" for binary variables and integers in known bounds, "transfer" for vectors of counts
        with a fixed sum.
    target_accept : float, default 0.8
        Acceptance probability that the step size of each rung is tuned for.
        It is for "hmc" and "nuts", by name or by default; other kernels keep their own target.
    tempered : sequence of str, optional
        Likelihood terms and potentials that beta acts on; by default all. What is left out counts
        to the prior: log Z is then that of the named terms under the *normalized* product of the
        prior and the others. Its normalizing constant takes a run of its own, as it does for a
        prior without random draws, and its error is in the mcse.
    ladder_move : str, default "metropolized_gibbs"
        How the chain moves on the ladder: "gibbs" draws beta given x (Carlson et al. 2016,
        eq. 7), "metropolized_gibbs" the same without proposing to stay (Liu 1996),
        "nonreversible" keeps a direction until a rejection (Sakai & Hukushima 2016).
    weight_adaptation : {"rts", "wang_landau", "sams"}, default "rts"
        How the warm-up learns the weights of the ladder, log Z-hat, before they are frozen: by
        rounds of frozen weights with an RTS estimate after each (Carlson et al. 2016, section 2.4),
        or at every iteration, by the Wang-Landau algorithm with gains of 1 / t in the end
        (Belardinelli & Pereyra 2007) or by self-adjusted mixture sampling (Tan 2017; eq. 19 of
        Carlson et al.).
    reference : {"auto", "prior", "fitted"}, default "auto"
        Distribution at beta = 0: the prior; a mixture of t's fitted to tempered draws; or
        ("auto") the fitted one where looks from the prior find nothing else.
    betas : sequence of float, optional
        Inverse temperatures from 0 to 1; by default they are placed so that neighboring
        rejection rates are equal.
    rungs_per_barrier : float, default 1.5
        Intervals of an automatic ladder, per unit of the barrier.
    rung_weights : callable or sequence of float, optional
        Target occupancies of the rungs, as in `sample`; by default all are equal.
    check_looks : int, default 100
        Looks from the prior that must find nothing which a fitted reference does not cover: single
        trajectories from fresh prior draws to beta = 1, annealed once.
    cores : int, default 1
        Threads of the warm-up.
    random_seed : int or numpy.random.Generator, default 0
        Seed of the warm-up; the seed of `pm.sample` is that of the chains, and comes when the
        warm-up is over. So the warm-up has a fixed one, and two calls of `pm.sample` with one seed
        give the same draws. None: another warm-up each time.
    progressbar : bool, default True
        Whether to show a line of progress of the warm-up.
    quiet : bool, default False
        No progress, as in :func:`sample`; warnings are given all the same.
    rng : numpy.random.Generator, optional
        Generator of the chains when the step method is used without `pm.sample`.
    blocked : bool, default True
        Given by PyMC; the variables are always one block.
    initial_point, compile_kwargs : dict, optional
        Given by PyMC and not used: chains start at draws from the reference.

    Raises
    ------
    ModelError, DiscreteVariableError, ImproperPriorError, LikelihoodError
        The model cannot be tempered; the message says why and what to do.

    Examples
    --------
    >>> import pymc as pm, pymc_tempering as pmt
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 10)
    ...     y = pm.Normal("y", mu, 1, observed=[1.0, 2.0])
    ...     step = pmt.SimulatedTempering(random_seed=1)
    ...     idata = pm.sample(
    ...         100, step=step, chains=2, cores=1, random_seed=2, progressbar=False, quiet=True
    ...     )
    >>> "rb_weight" in idata.sample_stats
    True
    """

    name = "simulated_tempering"
    default_blocked = True
    # Chains start at a regeneration with everything frozen: there is nothing left to tune.
    default_tune_steps = 0

    def __new__(cls, *args: Any, **kwargs: Any) -> "SimulatedTempering":
        """Look for a model first, so that the error for a missing one is ours."""
        return super().__new__(cls, *args, **kwargs | {"model": find_model(kwargs.get("model"))})

    def __init__(
        self,
        vars: Any = None,
        *,
        model: ModelLike | None = None,
        kernel: KernelChoice = None,
        target_accept: float = 0.8,
        tempered: Any = None,
        ladder_move: str = "metropolized_gibbs",
        weight_adaptation: str = "rts",
        reference: str = "auto",
        betas: Any = None,
        rungs_per_barrier: float = 1.5,
        rung_weights: RungWeights | None = None,
        check_looks: int = 100,
        cores: int = 1,
        random_seed: RandomSeed = 0,
        progressbar: bool = True,
        quiet: bool = False,
        rng: Any = None,
        blocked: bool = True,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.model = find_model(model)
        self.vars = check_vars(self.model, vars)
        options = Options(
            ladder_move, reference, betas, rungs_per_barrier, check_looks, weight_adaptation,
            rung_weights,
        )  # fmt: skip
        warmup_rng = rng_of(random_seed)
        show = progressbar and not quiet and logger.isEnabledFor(logging.INFO)
        with compiling_status(show) as report:

            def planned() -> tuple[pm.Model, ChosenPlan]:
                inner = sampled_model(self.model, kernel, tempered, reference, report)
                terms = find_terms(inner, tempered)
                prior, compound = compile_with_kernels(
                    inner, kernel, target_accept, report, terms=terms
                )
                job = Job(prior, compound, options, warmup_rng, cores, report)
                alone = compile_prior_alone(prior, kernel, target_accept, report)
                job = with_prior_constant(job, alone, draws=1000, chains=4)
                return inner, choose_plan(job)

            self.inner, self.chosen = with_longer_sums(planned)
        if self.chosen.interrupted:
            raise KeyboardInterrupt("Interrupted before sampling began.")
        self.rng = get_random_generator(rng)
        self.tune = False
        self.state: ChainState | None = None
        self._bind(self.chosen.plan, self.chosen.schema)

    def _bind(self, plan: Plan, schema: Schema) -> None:
        """Derive from the plan what the steps use."""
        self.plan = plan
        self.layout = model_layout(whole_model(self.inner))
        self.schema = schema
        self.stats_dtypes = [schema.dtypes]
        self.stats_dtypes_shapes = schema.dtypes_and_shapes
        self._advance = make_runner(plan)
        self._record = new_record(1, plan.ladder.n_rungs, plan.reference.path.dim)

    def setup_chain(self, rng: np.random.Generator, tune: int, draws: int) -> None:
        """Start a chain at a fresh draw from the reference."""
        super().setup_chain(rng, tune, draws)
        self.state = start_chain(self.plan, self.rng)

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Iterate until the chain is at beta = 1 again."""
        if self.state is None:  # stepped by hand, without a sampling driver
            self.setup_chain(self.rng, 0, 1)
        assert self.state is not None
        state, bound = self.state, cycle_bound(self.plan)
        first = state.n_draws_ever == 0
        clear_record(state)
        warned = False
        while state.n_draws == 0:
            self._advance(state, self._record, 1, CHUNK)
            if state.n_draws == 0 and state.steps_in_cycle > bound and not warned:
                message = stuck_message(self.plan, state.rung)
                if first:
                    raise StuckChainError(message)
                warn_user(message)
                warned = True
        state.n_draws_ever += 1
        x, per_rung, scalars = (rows[0] for rows in self._record[:3])
        origin = origin_of(self.inner)
        whole = x if origin is None else origin.whole(x[None])[0]
        return self.layout.unravel(whole), [self.schema.statistics(per_rung.copy(), scalars, x)]

    def __getstate__(self) -> dict[str, Any]:
        """State without compiled functions, which do not travel between processes."""
        kept = ("vars", "rng", "tune", "state", "schema")
        plan = self.plan
        return {name: getattr(self, name) for name in kept} | {
            "model": self.model,
            "inner": self.inner,
            "terms": plan.reference.path.terms,
            "frozen": {
                f.name: getattr(plan, f.name) for f in fields(plan) if f.name != "reference"
            },
        }

    def __setstate__(self, values: dict[str, Any]) -> None:
        """Compile again (from the disk cache) what did not travel."""
        frozen, terms = values.pop("frozen"), values.pop("terms")
        self.__dict__.update(values)
        reference: Reference = compile_model(
            self.inner, check=False, terms=terms, **frozen["kernel"].needs
        )
        if self.schema.components is not None:
            assert isinstance(reference, Prior)
            reference = Fitted(reference, self.schema.components)
        self._bind(Plan(reference, **frozen), self.schema)

    @staticmethod
    def columns() -> list[TextColumn]:
        """Columns in PyMC's table of progress; none where they would cut the numbers of others."""
        if Console().width < ROOM:
            return []
        return [
            TextColumn("{task.fields[steps]}", table_column=Column("Steps/draw", ratio=1)),
            TextColumn("{task.fields[beta_min]:.2g}", table_column=Column("Lowest beta", ratio=1)),
        ]

    @staticmethod
    def shown(stats: Mapping[str, Any]) -> dict[str, Any]:
        """Return what they show of the statistics of a draw."""
        return {
            "steps": stats.get("tempering_steps", 0),
            "beta_min": stats.get("beta_min", 1.0),
        }


# PyMC's `__new__` takes anything; the arguments are those of `__init__`.
_signature = inspect.signature(SimulatedTempering.__init__)
SimulatedTempering.__signature__ = _signature.replace(
    parameters=list(_signature.parameters.values())[1:]
)


def check_vars(model: pm.Model, given: Any) -> list[Any]:
    """Return all value variables of the model; raise an error if only some are given.

    Raises
    ------
    ModelError
        Naming the variables that are missing.
    """
    if given is None:
        return list(model.value_vars)
    given = list(given) if isinstance(given, list | tuple) else [given]
    values = get_value_vars_from_user_vars(given, model)
    missing = [value.name for value in model.value_vars if value not in values]
    if missing:
        raise ModelError(
            "SimulatedTempering tempers the whole model and cannot leave variables to other step "
            f"methods; missing: {', '.join(missing)}."
        )
    return list(model.value_vars)
