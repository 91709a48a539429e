"""The arguments of a call that another process needs to go on with its run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pymc as pm

from pymc_tempering import kernels
from pymc_tempering.exceptions import CheckpointError
from pymc_tempering.kernels import Compound, Kernel
from pymc_tempering.kernels.assign import KernelChoice
from pymc_tempering.sampling.goal import Goal
from pymc_tempering.sampling.setup import Options

OWN_KERNELS = ("HMC", "NUTS", "Slice", "RandomWalkMetropolis", "Gibbs", "DiscreteLangevin")
"""Kernels of the package, which numbers and words can make again."""


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
    tune: int
    chains: int
    goal: Goal
    options: Options
    kernel: Any
    target_accept: float
    tempered: tuple[str, ...] | None
    reference_draws: int | None
    keep: Literal["log_ratio", "states"] | None
    var_names: tuple[str, ...] | None
    discard_tuned_samples: bool
    convergence_checks: bool
    idata_kwargs: dict[str, Any]

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
        name = getattr(make, "__name__", "")
        if name in OWN_KERNELS and make is getattr(kernels, name):
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
    if "make" in plain and plain["make"] in OWN_KERNELS:
        made: Kernel = getattr(kernels, plain["make"])(*plain["arguments"])
        return made
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
    pairs = zip(kernel.kernels, kernel.blocks, strict=True)
    return [f"{each.name} for {', '.join(block.names)}" for each, block in pairs]


def as_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names as a tuple; one text is one name."""
    return (names,) if isinstance(names, str) else tuple(names)


def check_kept_names(model: pm.Model, var_names: Sequence[str]) -> None:
    """Raise an error for names that the posterior does not have."""
    known = [rv.name for rv in model.unobserved_RVs]
    unknown = [name for name in as_names(var_names) if name not in known]
    if unknown:
        raise ValueError(
            f"var_names {', '.join(map(repr, unknown))} are not among the model's unobserved "
            f"variables: {', '.join(known)}."
        )
