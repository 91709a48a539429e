"""The evidence of a model as estimators return it: how it is shown, stored, and put in doubt."""

import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
import pandas as pd
import xarray as xr

from pymc_tempering.arguments import has_group
from pymc_tempering.core.cycles import FloatArray, FreshLooks
from pymc_tempering.core.findings import SPOILING, Finding, read_findings
from pymc_tempering.exceptions import TemperingError, warn_user

GROUP = "evidence"
"""Group of a DataTree that holds an ``Evidence``."""

TEXT = "evidence_json"
"""Attribute of that group with the whole value."""

ARRAYS = {
    "betas": "rung",
    "log_z_curve": "rung",
    "log_z_curve_mcse": "rung",
    "per_chain": "chain",
    "per_chain_mcse": "chain",
}
"""Fields that are arrays, with their dimension in that group."""

MAX_UNDEFINED_SHARE = 1e-3
"""Largest share of the reference draws without a density that leaves a verdict as it is."""

MAX_LISTED = 12
"""Chains up to which each is shown."""

SHORT = "{:.3g}".format
"""How the numbers of a table are written."""


type Part = str | Mapping[str, str] | pd.DataFrame
"""What a result shows: a line, rows of a label and a text, or a table."""

BY_SEVERITY = ("ok", "unchecked", "disagreed")
"""Verdicts, from the best to the worst."""

FAILED = "failed"
"""Verdict of a run that raised an error."""

DATA = "observed data"
"""Attribute of a table: a hash of the observed data of each run, by its name."""


def counted(warnings: Sequence[str]) -> list[str]:
    """Say how many warnings a result has; those were given when it was made, and once is enough."""
    many = "s" if len(warnings) > 1 else ""
    return [f"{len(warnings)} warning{many}, see .warnings"] if warnings else []


def as_text(parts: Sequence[Part], notes: Sequence[str]) -> str:
    """Lay out parts and notes as text."""
    return "\n".join([*map(_text_of, parts), *(f"  ! {sentence}" for sentence in notes)])


def _text_of(part: Part) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, pd.DataFrame):
        return part.to_string(float_format=SHORT, na_rep="-")
    width = max(map(len, part))
    return "\n".join(f"  {label:<{width}}  {text}" for label, text in part.items())


def as_html(parts: Sequence[Part], notes: Sequence[str]) -> str:
    """Lay out the same for notebooks."""
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in notes)
    listed = f"<ul>{items}</ul>" if items else ""
    return f"<div>{''.join(map(_html_of, parts))}{listed}</div>"


def _html_of(part: Part) -> str:
    if isinstance(part, str):
        return f"<p>{html.escape(part)}</p>"
    if isinstance(part, pd.DataFrame):
        return part.to_html(float_format=SHORT, na_rep="-")
    cells = (
        f"<tr><th style='text-align:left'>{html.escape(label)}</th>"
        f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
        for label, text in part.items()
    )
    return f"<table>{''.join(cells)}</table>"


class Shown:
    """A result that shows its parts and how many warnings it has: as text, and as HTML."""

    warnings: tuple[str, ...] = ()

    def _parts(self) -> list[Part]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return as_text(self._parts(), counted(self.warnings))

    def _repr_html_(self) -> str:
        return as_html(self._parts(), counted(self.warnings))


@dataclass(frozen=True)
class LookCheck(FreshLooks):
    """The check of a fitted reference by looks from the prior.

    The looks tell which modes a look would have found; they are no bound on the mass of what is
    missing.

    Attributes
    ----------
    difference, pass_difference : float
        log Z from the looks, and the mean log Z of the passes, minus that from the fitted
        reference (nats).
    verdict : {"agreed", "disagreed", "unchecked"}
    reasons : tuple of str
        Where they disagree.
    """

    difference: float = float("nan")
    pass_difference: float = float("nan")
    verdict: str = "unchecked"
    reasons: tuple[str, ...] = ()

    @property
    def missed(self) -> float:
        """A region that draws less than this share of the looks that arrive may be missed."""
        return 3.0 / self.n_arrived if self.n_arrived else 1.0

    def __str__(self) -> str:
        if self.n_looks == 0:
            return f"{self.verdict}: no looks from the prior were taken"
        if self.reasons:
            return f"{self.verdict}: {'; '.join(self.reasons)}"
        return (
            f"{self.verdict}: {self.n_arrived} of {self.n_looks} looks from the prior arrived; "
            f"a region that draws {min(self.missed, 1.0):.2g} of those that arrive would have been "
            "seen with 95 %; that is no bound on the mass of what they miss"
        )


@dataclass(frozen=True, repr=False, eq=False)
class Evidence(Shown):
    """Log marginal likelihood of a model, with its Monte Carlo standard error.

    Fields that do not apply to an estimator (tours, chains, a ladder) keep their defaults and are
    not shown.

    Attributes
    ----------
    log_z : float
        Log marginal likelihood (nats).
    mcse : float
        Monte Carlo standard error of ``log_z`` (nats); infinite where it is not known.
    method : str
        Estimator, for instance ``"rts"``.
    verdict : {"ok", "unchecked", "disagreed"}
        "unchecked": too few tours, an alarm, or a fitted reference that too few fresh tours
        checked. "disagreed": the chains disagree, or the fitted reference and the fresh tours.
    n_tours : int
        Complete tours in all chains; 0 for an estimator without tours.
    round_trips : tuple of int
        Complete tours of each chain.
    ess : float
        Kish's effective number of tours, or of weighted draws; NaN where there are no weights.
    per_chain, per_chain_mcse : ndarray, shape (chain,)
        Each chain's own log Z and its error (nats); infinite below five tours.
    log_z_curve, log_z_curve_mcse : ndarray, shape (K,)
        log Z at every rung and its error (nats).
    betas : ndarray, shape (K,)
        The ladder.
    halves : tuple of float
        log Z from the first and from the second half of the draws (nats).
    warnings : tuple of str
        One sentence each, saying what to do.
    bias : float
        Estimated bias of ``log_z`` (nats). It is reported and not subtracted.
    check : LookCheck, optional
        Verdict of fresh tours from the prior, where the reference was fitted.
    n_evaluations : int, optional
        Evaluations of the model's density, tuning included; None where they were not counted.
    bias_direction : {"", "below", "above"}
        Side on which ``log_z`` lies in expectation; "" where that is negligible or unknown.
    seconds : float
        Time that the estimate took, without compilation; NaN where it was not measured.
    details : dict of str to float
        Further numbers that a method reports, in nats where they are log Z or errors.
    prior_term : tuple of float, optional
        Log of the prior's normalizing constant and its error (nats), where the prior is not
        normalized; it is already subtracted from ``log_z``.
    findings : tuple of Finding
        What was noticed about the model, such as variables that could not be summed out.
    """

    log_z: float
    mcse: float
    method: str
    verdict: str
    n_tours: int = 0
    round_trips: tuple[int, ...] = ()
    ess: float = float("nan")
    per_chain: FloatArray = field(default_factory=lambda: np.empty(0))
    per_chain_mcse: FloatArray = field(default_factory=lambda: np.empty(0))
    log_z_curve: FloatArray = field(default_factory=lambda: np.empty(0))
    log_z_curve_mcse: FloatArray = field(default_factory=lambda: np.empty(0))
    betas: FloatArray = field(default_factory=lambda: np.empty(0))
    halves: tuple[float, float] = (float("nan"), float("nan"))
    warnings: tuple[str, ...] = ()
    bias: float = float("nan")
    check: LookCheck | None = None
    n_evaluations: int | None = None
    bias_direction: str = ""
    seconds: float = float("nan")
    details: dict[str, float] = field(default_factory=dict)
    prior_term: tuple[float, float] | None = None
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> str:
        """Return all fields as one JSON text."""
        return json.dumps(to_plain(asdict(self)), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Make the ``Evidence`` that :meth:`to_json` wrote; a ``TemperingError`` for others."""
        try:
            found = json.loads(text)
        except (TypeError, ValueError) as error:
            raise TemperingError(f"this is not the JSON text of a result: {error}") from error
        if not isinstance(found, dict):
            raise TemperingError("this is not the JSON text of a result: it holds no object")
        odd = sorted(set(found) - {item.name for item in fields(cls)})
        lacking = [name for name in ("log_z", "mcse", "method", "verdict") if name not in found]
        if odd or lacking:
            raise TemperingError(
                "this is not the JSON text of an Evidence"
                + (f": it lacks {lacking}" if lacking else f": {odd} are none of its fields")
            )
        found = from_plain(found)
        for name in ARRAYS:
            found[name] = np.array(found.get(name, []), dtype=float)
        for name in ("round_trips", "halves", "warnings", "prior_term"):
            if found.get(name) is not None:
                found[name] = tuple(found[name])
        if (check := found.get("check")) is not None:
            found["check"] = LookCheck(**check | {"reasons": tuple(check["reasons"])})
        found["findings"] = read_findings(found.get("findings", ()))
        return cls(**found)

    def to_datatree(self) -> xr.DataTree:
        """Put it into a DataTree, as the group ``evidence``."""
        data: dict[str, Any] = {name: ((), getattr(self, name)) for name in ("log_z", "mcse")}
        for name, dim in ARRAYS.items():
            if (values := getattr(self, name)).size:
                data[name] = (dim, values)
        for name in data.keys() - {"betas"}:
            data[name] = (*data[name], {"units": "nats"})
        attrs = {"method": self.method, "verdict": self.verdict, TEXT: self.to_json()}
        return xr.DataTree.from_dict({GROUP: xr.Dataset(data, attrs=attrs)})

    @classmethod
    def from_datatree(cls, tree: xr.DataTree) -> Self:
        """Read the group ``evidence``; a ``TemperingError`` if there is none."""
        if not has_group(tree, GROUP):
            raise TemperingError(
                f"this {type(tree).__name__} has no group {GROUP!r}: Evidence.to_datatree() makes "
                "one"
            )
        text = tree[GROUP].attrs.get(TEXT)
        if not isinstance(text, str):
            raise TemperingError(
                f"the group {GROUP!r} has no attribute {TEXT!r}: it was not written by "
                "Evidence.to_datatree()"
            )
        return cls.from_json(text)

    def _parts(self) -> list[Part]:
        rows = {
            "log marginal likelihood": f"{plus_minus(self.log_z, self.mcse)} nats",
            "method, verdict": f"{self.method}, {self.verdict}",
        }
        if self.round_trips:
            trips = in_few_words([str(n) for n in self.round_trips], self.round_trips)
            rows["tours"] = f"{self.n_tours} (effective {self.ess:.1f}; per chain {trips})"
        elif not np.isnan(self.ess):
            rows["effective draws"] = f"{self.ess:.1f}"
        if self.per_chain.size:
            pairs = zip(self.per_chain, self.per_chain_mcse, strict=True)
            texts = [plus_minus(v, error) for v, error in pairs]
            rows["per chain"] = in_few_words(texts, self.per_chain)
        if not np.isnan(self.halves).all():
            rows["first, second half"] = ", ".join(f"{v:.3f}" for v in self.halves)
        if self.check is not None:
            rows["check by the prior"] = str(self.check)
        if self.prior_term is not None:
            rows["normalizer of the prior"] = f"{plus_minus(*self.prior_term)} nats"
        if self.bias_direction:
            rows["in expectation"] = f"{self.bias_direction} log Z"
        if self.details:
            numbers = (f"{name} {_short(value)}" for name, value in self.details.items())
            rows["further numbers"] = ", ".join(numbers)
        if self.n_evaluations is not None:
            rows["density evaluations"] = f"{self.n_evaluations:,}"
        if not np.isnan(self.seconds):
            rows["seconds"] = f"{self.seconds:.2f}"
        notes = [finding for finding in self.findings if finding.severity == "note"]
        return ["Evidence", rows, *(f"  note: {finding}" for finding in notes)]


def plus_minus(value: float, error: float) -> str:
    """Format a value with its error to two digits of the error, as in '-1.234 ± 0.015'."""
    if not np.isfinite(error) or error <= 0.0:
        return f"{value:.3f} ± {error:.3g}"
    places = int(np.clip(1 - np.floor(np.log10(error)), 0, 8))
    return f"{value:.{places}f} ± {error:.{places}f}"


def in_few_words(texts: Sequence[str], values: Sequence[float] | FloatArray) -> str:
    """List what chains gave, or the least and the largest of it where chains are many."""
    if len(texts) <= MAX_LISTED:
        return ", ".join(texts)
    known = [i for i, value in enumerate(values) if not np.isnan(value)]
    low, high = (pick(known, key=lambda i: values[i], default=0) for pick in (min, max))
    return f"{texts[low]} to {texts[high]} in {len(texts)} chains"


def emit_warnings(evidence: Evidence, prefix: str = "") -> Evidence:
    """Emit the warnings of an evidence at the user's line, and return it."""
    for sentence in evidence.warnings:
        warn_user(prefix + sentence)
    return evidence


def _short(value: float) -> str:
    """Return a number in four digits, or all digits of a count."""
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.4g}"


def to_plain(value: Any) -> Any:
    """Put numbers, texts, lists and dicts in place of what JSON does not know."""
    if isinstance(value, Mapping):
        return {str(name): to_plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [to_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def from_plain(value: Any) -> Any:
    """Put numbers in place of the words for those that are not finite."""
    if isinstance(value, dict):
        return {name: from_plain(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [from_plain(entry) for entry in value]
    return float(value) if isinstance(value, str) and value in ("nan", "inf", "-inf") else value


def with_undefined(
    evidence: Evidence, n_undefined: float, n_draws: float, what: str = "reference draws"
) -> Evidence:
    """Return an evidence with its count of draws without a density, which leave it unchecked.

    Such draws count as zero likelihood. What the likelihood would be there is not known: if it is
    typical, log Z is off by the log of the share of the others.

    Parameters
    ----------
    evidence : Evidence
    n_undefined, n_draws : float
        Draws where the density was NaN, infinite or raised an error, and all draws.
    what : str, optional
        What these draws are.

    Returns
    -------
    Evidence
        With ``undefined_draws`` in its details if there are any; above ``MAX_UNDEFINED_SHARE``
        "unchecked", with an infinite error and a sentence.
    """
    if not n_undefined:
        return evidence
    details = evidence.details | {"undefined_draws": float(n_undefined)}
    share = n_undefined / n_draws
    if share <= MAX_UNDEFINED_SHARE:
        return replace(evidence, details=details)
    off = f"too low by about {-np.log1p(-share):.2g} nats" if share < 1.0 else "not known"
    sentence = (
        f"The log-likelihood was no number (NaN, +inf, or an error) at {n_undefined:,.0f} of "
        f"{n_draws:,.0f} {what} ({share:.2%}), which count as zero likelihood. If the likelihood "
        f"there is typical, log Z is {off}; otherwise its error has no bound, so the mcse is "
        "infinite: write the likelihood so that it is a number there, or -inf where it is truly "
        "zero, or restrict the prior to where it is defined."
    )
    return doubted(replace(evidence, details=details), "unchecked", np.inf, sentence)


def with_findings(evidence: Evidence, findings: Iterable[Finding]) -> Evidence:
    """Return an evidence with what was noticed, which its verdict and error are functions of."""
    findings = tuple(findings)
    for finding in findings:
        if finding.severity != "note":
            verdict = max(evidence.verdict, finding.severity, key=BY_SEVERITY.index)
            mcse = np.inf if finding.code in SPOILING else 0.0
            evidence = doubted(evidence, verdict, mcse, f"{finding}.")
    return replace(evidence, findings=(*evidence.findings, *findings))


def untold(evidence: Evidence, doubts: Sequence[str]) -> Evidence:
    """Return an evidence with doubts, if there are any: "unchecked" where it was "ok"."""
    for sentence in doubts:
        verdict = "unchecked" if evidence.verdict == "ok" else evidence.verdict
        evidence = doubted(evidence, verdict, 0.0, sentence)
    return evidence


def doubted(evidence: Evidence, verdict: str, mcse: float, sentence: str) -> Evidence:
    """Return an evidence with another verdict, an error of at least ``mcse``, and why."""
    curve = evidence.log_z_curve_mcse.copy()
    curve[1:] = np.fmax(curve[1:], mcse)
    return replace(
        evidence,
        mcse=float(np.fmax(evidence.mcse, mcse)),
        log_z_curve_mcse=curve,
        verdict=verdict,
        warnings=(sentence, *evidence.warnings),
    )
