"""Arguments of ``pm.sample`` that mean nothing to tempering, each refused with the reason."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pymc_tempering.exceptions import ArgumentError

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
