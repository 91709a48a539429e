"""What a call asks for, checked before any work and in words that a file can hold; and its job."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from time import perf_counter
from typing import Any, Literal

import numpy as np
import pymc as pm

from pymc_tempering.arguments import check_choice, check_whole, listed
from pymc_tempering.chain.loop import LADDER_MOVES
from pymc_tempering.core.deadline import NEVER, Deadline
from pymc_tempering.core.ladder import Ladder, RungWeights, check_betas
from pymc_tempering.evidence.result import Evidence
from pymc_tempering.exceptions import ArgumentError, CheckpointError, LadderError
from pymc_tempering.executors.chunks import Crew
from pymc_tempering.kernels import Compound, Kernel
from pymc_tempering.kernels.assign import KERNELS, KernelChoice
from pymc_tempering.references.prior import Prior, probe
from pymc_tempering.sampling.recorded import LeastEss
from pymc_tempering.warmup.log_z_rounds import WEIGHT_ADAPTATIONS

PLAN_SHARE, CHECK_SHARE = 0.6, 0.1
"""Share of the time of a call after which its plan is frozen as it is, and what the check of the
model may take at most, as such a share, while it is compiled."""

REFERENCES = ("auto", "prior", "fitted")


@dataclass(frozen=True)
class Options:
    """Options of the sampler, checked before any work."""

    ladder_move: str = "metropolized_gibbs"
    reference: str = "auto"
    betas: Sequence[float] | None = None
    rungs_per_barrier: float = 1.5
    check_looks: int = 100
    weight_adaptation: str = "rts"
    rung_weights: RungWeights | None = None

    def __post_init__(self) -> None:
        check_choice("ladder_move", self.ladder_move, LADDER_MOVES)
        check_choice("weight_adaptation", self.weight_adaptation, WEIGHT_ADAPTATIONS)
        check_choice("reference", self.reference, REFERENCES)
        if self.betas is not None:
            check_betas(self.betas)
        _check_rung_weights(self.rung_weights, self.betas)
        each = self.rungs_per_barrier
        if not (isinstance(each, int | float | np.number) and each > 0):
            raise LadderError(f"rungs_per_barrier must be a positive number, not {each!r}.")
        check_whole(20, check_looks=self.check_looks)
        if self.betas is not None and self.reference != "prior":
            raise ValueError(
                "betas are those of the path from the prior; give reference='prior' with them."
            )


def _check_rung_weights(rung_weights: RungWeights | None, betas: Sequence[float] | None) -> None:
    """Raise a LadderError unless each rung gets a weight; a function is tried on some ladder."""
    if rung_weights is None:
        return
    if betas is None and not callable(rung_weights):
        raise LadderError(
            "rung_weights must be a function of beta where betas are not given, since the warm-up "
            "finds the number of rungs."
        )
    tried = np.array([0.0, 0.5, 1.0]) if betas is None else check_betas(betas)
    Ladder(tried, np.zeros(tried.size), np.zeros(tried.size)).with_weights(rung_weights)


DRAWS, TARGET_ESS, DEFAULT_MCSE, MOST_GROWTH = 1000, 400.0, 0.05, 8
"""Where the number of draws is left open: the first length of a chain, the least effective sample
size and the error of log Z (nats) that rounds go on for, and how many times the first length a
chain has at most for these."""


@dataclass(frozen=True)
class Goal:
    """What rounds go on for, and what they may take at most.

    Attributes
    ----------
    target_mcse : float, optional
        Error of log Z, in nats.
    max_time : float, optional
        Seconds, compiling apart, after which the chains stop, whatever the targets.
    max_steps : int, optional
        Density evaluations after which no further round starts.
    target_ess : float, optional
        Least bulk effective sample size of all free scalars.
    by_default : bool, default False
        Whether nobody asked for this `target_ess`, so that it is given up at `MOST_GROWTH`, as is
        an error of log Z of `DEFAULT_MCSE`.
    """

    target_mcse: float | None = None
    max_time: float | None = None
    max_steps: int | None = None
    target_ess: float | None = None
    by_default: bool = False

    def __post_init__(self) -> None:
        for name in ("target_mcse", "max_time", "max_steps", "target_ess"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float | np.number) and value > 0):
                raise ValueError(f"{name} must be a positive number, not {value!r}.")

    def spent(self, steps: int) -> bool:
        """Whether so many density evaluations are enough."""
        return self.max_steps is not None and steps >= self.max_steps

    @property
    def single(self) -> bool:
        """Whether one round of the asked length is all that is wanted."""
        return self.target_mcse is None and self.target_ess is None

    @property
    def ess_alone(self) -> bool:
        """Whether no error of log Z was asked for."""
        return self.target_ess is not None and self.target_mcse is None

    def goes_on_for(self, least: LeastEss | None, growth: float) -> bool:
        """Whether the draws are too few, with chains that are `growth` times the first length."""
        return least is not None and least.short and not (self.by_default and growth >= MOST_GROWTH)

    def wanted(self) -> str:
        """Words for the end of a line that tells of a round: what was asked for."""
        asked = {
            "mcse": self.target_mcse and f"{self.target_mcse:.2g}",
            "ESS": self.target_ess and f"{self.target_ess:.0f}",
            "within": self.max_time and f"{self.max_time:.0f} s",
            "evaluations": self.max_steps and f"{self.max_steps:,}",
        }
        words = [f"{name} {value}" for name, value in asked.items() if value]
        return f"; wanted: {', '.join(words)}" if words else ""

    def unmet(self, evidence: Evidence) -> str:
        """Say what is missing of log Z; empty if nothing is."""
        if evidence.verdict != "ok":
            return f"the verdict is {evidence.verdict!r}"
        first, second = evidence.halves
        if abs(first - second) > 4 * 2 * evidence.mcse:
            return "the first and the second half disagree"
        if self.target_mcse is not None and evidence.mcse > self.target_mcse:
            return f"the mcse is {evidence.mcse:.2g}, not {self.target_mcse:.2g}"
        return ""


def goal_of(
    draws: int | None,
    target_ess: float | None = None,
    target_mcse: float | None = None,
    max_time: float | None = None,
    max_steps: int | None = None,
) -> tuple[int, Goal]:
    """Return the first length of a chain and the goal, of the arguments of a call.

    Who asks for a number of draws gets it; where it is left open, draws have to suffice.
    """
    by_default = draws is None and target_ess is None
    goal = Goal(
        target_mcse, max_time, max_steps, TARGET_ESS if by_default else target_ess, by_default
    )
    return DRAWS if draws is None else draws, goal


@dataclass(eq=False)
class Tally:
    """What the stages of a call have taken so far. It grows as they go on.

    Attributes
    ----------
    work : Counter of str
        Density evaluations of each stage before the chains.
    seconds : dict of str to float
        Time of each stage of `core.deadline.STAGES` that there was.
    since : float
        When the present stage began, by `perf_counter`.
    """

    work: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    since: float = field(default_factory=perf_counter)

    def end(self, stage: str) -> None:
        """Count the time since the last stage for this one."""
        before, self.since = self.since, perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + self.since - before


def silence(line: object) -> None:
    """Say nothing."""


@dataclass(frozen=True, eq=False)
class Job:
    """What every stage of a call works with.

    Attributes
    ----------
    prior : Prior
        The compiled model.
    kernel : Compound
    options : Options
    rng : numpy.random.Generator
    cores : int
    report : callable
        Called with a line of progress.
    tell : callable
        Called with a line that stays.
    deadline : Deadline
        After which no further stage starts, and those that are under way come to an end.
    crew : Crew, optional
        Workers of an executor, for looks and chains in place of threads.
    tally : Tally
    """

    prior: Prior
    kernel: Compound
    options: Options
    rng: np.random.Generator
    cores: int = 1
    report: Callable[[object], None] = silence
    tell: Callable[[str], None] = silence
    deadline: Deadline = NEVER
    crew: Crew | None = None
    tally: Tally = field(default_factory=Tally)

    @property
    def value_cores(self) -> int:
        """Threads that share values of the density: all where one is dear, or they cost more."""
        return self.cores if self.prior.path.dear else 1

    @cached_property
    def probed(self) -> tuple[np.ndarray, np.ndarray]:
        """States by which another process knows the density: see `probe`."""
        return probe(self.prior)


@dataclass(frozen=True)
class Call:
    """What a run was asked for, as plain values.

    Attributes
    ----------
    draws, tune, chains : int
        Draws of the first round without those to throw away, those, and the chains.
    goal : Goal
    options : Options
    kernel : Any
        The choice of kernels, see `plain_choice`.
    target_accept : float
    tempered : tuple of str, optional
    reference_draws : int, optional
    keep : {"log_ratio", "states"} or None
    var_names : tuple of str, optional
    discard_tuned_samples : bool
    convergence_checks : bool
    idata_kwargs : dict
    """

    draws: int
    tune: int = 0
    chains: int = 4
    goal: Goal = field(default_factory=Goal)
    options: Options = field(default_factory=Options)
    kernel: Any = None
    target_accept: float = 0.8
    tempered: tuple[str, ...] | None = None
    reference_draws: int | None = None
    keep: Literal["log_ratio", "states"] | None = "log_ratio"
    var_names: tuple[str, ...] | None = None
    discard_tuned_samples: bool = True
    convergence_checks: bool = True
    idata_kwargs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_whole(1, draws=self.draws, chains=self.chains)
        none = self.reference_draws is None
        check_whole(0, tune=self.tune, reference_draws=0 if none else self.reference_draws)
        if self.keep not in ("log_ratio", "states", None):
            raise ValueError(f"keep must be 'log_ratio', 'states' or None, not {self.keep!r}.")

    @property
    def n_draws(self) -> int:
        """Draws of the first round with those to throw away."""
        return self.draws + self.tune


def plain_choice(choice: KernelChoice) -> Any:
    """Choice of kernels in words; a user's own become `{"given": name}`."""
    if choice is None or isinstance(choice, str):
        return choice
    if isinstance(choice, Mapping):
        return {"each": {str(name): plain_choice(item) for name, item in choice.items()}}
    if isinstance(choice, Kernel):
        make, arguments = choice.rebuild
        for name, row in KERNELS.items():
            if make is row.factory:  # numbers and words can make it again
                return {"make": name, "arguments": list(arguments)}
        return {"given": choice.name}
    return {"given": getattr(choice, "__name__", str(choice))}


def plain_options(options: Options) -> Options:
    """Options without a function of the user's, whose code is not stored.

    The weights of the rungs that it gives are in the frozen ladder.
    """
    return replace(options, rung_weights=None) if callable(options.rung_weights) else options


def choice_of(plain: Any, given: KernelChoice = None) -> KernelChoice:
    """Choice of kernels that `plain_choice` has put into words.

    Parameters
    ----------
    plain : Any
    given : str, Kernel or dict, optional
        What the user passes again.

    Raises
    ------
    CheckpointError
        There was a kernel of the user's own, and none is given now.
    """
    if given is not None:
        return given
    if plain is None or isinstance(plain, str):
        return plain
    if "each" in plain:
        found: Any = {name: choice_of(item) for name, item in plain["each"].items()}
        return found
    if plain.get("make") in KERNELS:
        return KERNELS[plain["make"]].factory(*plain["arguments"])
    raise CheckpointError(
        f"The run has a kernel of its own, {plain.get('given')!r}, whose code is not stored: pass "
        "kernel= as at first."
    )


def step_method_in(choice: KernelChoice) -> str:
    """Name of a kernel in a choice that keeps state in Python; empty if none does."""
    each = choice.values() if isinstance(choice, Mapping) else [choice]
    for item in each:
        if isinstance(item, type):
            return item.__name__
        if isinstance(item, Kernel) and item.keeps_state:
            return item.name
    return ""


def kernels_in_words(kernel: Compound) -> list[str]:
    """Kernels with the variables that they move, to compare two compounds by."""
    return [f"{each.name} for {', '.join(block.names)}" for each, block in kernel.pairs]


def as_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names as a tuple; one text is one name."""
    return (names,) if isinstance(names, str) else tuple(names)


def check_kept_names(model: pm.Model, var_names: Sequence[str] | None) -> None:
    """Raise an error for names that the posterior does not have."""
    known = [rv.name for rv in model.unobserved_RVs]
    unknown = [name for name in var_names or () if name not in known]
    if unknown:
        raise ValueError(
            f"var_names {listed(unknown)} are not among the model's unobserved "
            f"variables: {', '.join(known)}."
        )


_START = (
    "chains start at draws from the reference, so that nothing depends on a starting point; leave "
    "it out"
)
_NUTS = 'what moves the variables is chosen by kernel=, for instance kernel="nuts"'

REFUSED = {
    "step": "for step methods call pm.sample(step=pymc_tempering.SimulatedTempering()), or give "
    "what moves the variables as kernel=",
    "nuts_sampler": _NUTS,
    "nuts_sampler_kwargs": _NUTS + ", and its target by target_accept=",
    "nuts": _NUTS + ", and its target by target_accept=",
    "initvals": _START,
    "start": _START,
    "init": _START,
    "n_init": _START,
    "jitter_max_retries": _START,
    "trace": "draws are kept in memory; write the result by idata.to_netcdf or idata.to_zarr",
    "callback": "the loop is compiled and calls nothing; pm.sample(step=pymc_tempering."
    "SimulatedTempering()) takes a callback, and max_time= ends a run",
    "mp_ctx": "chains run on threads of one process; cores= says on how many",
    "blas_cores": "each chain is one thread; cores= says how many there are",
    "return_inferencedata": "the result is always a DataTree; leave it out",
    "keep_warning_stat": "warnings are given as TemperingWarning; leave it out",
    "backend": "the loop is always compiled by Numba; leave it out",
    "compile_kwargs": "the loop is always compiled by Numba; leave it out",
}
"""Names, and why they are refused or what stands in for them."""


def refuse(given: Mapping[str, Any], function: str, known: Mapping[str, Any]) -> None:
    """Raise an error for arguments that a function does not take.

    Parameters
    ----------
    given : mapping
        What came beside its own arguments.
    function : str
        Its name.
    known : mapping
        Its own arguments, of which one that is spelled nearly so is named.

    Raises
    ------
    ArgumentError
    """
    if not given:
        return
    sentences = []
    for name in given:
        why = REFUSED.get(name)
        if why is None:
            near = _near(name, [n for n in known if n not in REFUSED])
            why = f"there is no such argument{f'; perhaps {near!r} is meant' if near else ''}"
        sentences.append(f"{name}: {why}")
    raise ArgumentError(f"{function}() does not take {'; '.join(sentences)}.")


def _near(name: str, known: list[str]) -> str:
    """Return the name that is spelled nearly so, or ends in it (`seed`); empty if none is."""
    ends = [n for n in known if n.endswith(f"_{name}")]
    return next(iter(get_close_matches(name, known, 1) or ends), "")


def refuse_model(draws: Any, function: str) -> None:
    """Raise an error where a model stands in the place of the number of draws."""
    if hasattr(draws, "free_RVs") or hasattr(draws, "backend"):
        raise ArgumentError(
            f"{function}() takes the number of draws first: pass the model by name, "
            f"{function}(model=model)."
        )
