"""Rewrites of a model that could not be made: the model as it was written is used, with a note."""

import pymc as pm

from pymc_tempering.core.findings import Finding
from pymc_tempering.model.memory import remembered


class RewriteError(Exception):
    """A rewrite cannot be made; the message says why."""


class LongSumError(RewriteError):
    """A sum over a count without a largest value is too long."""


def give_up(
    model: pm.Model, code: str, about: str, why: RewriteError, severity: str = "note"
) -> None:
    """Note that a rewrite of a model was given up."""
    _notes(model)[code, about] = Finding(code, about, str(why), severity)


def given_up(model: pm.Model) -> tuple[Finding, ...]:
    """Return notes of the rewrites that were given up, of a model that chains run on."""
    return tuple(_notes(model).values())


def _notes(model: pm.Model) -> dict[tuple[str, str], Finding]:
    return remembered(model, "given up", dict)
