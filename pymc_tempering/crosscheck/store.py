"""A cross-check in a DataTree: written to a group and read back."""

import json
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
import xarray as xr

from pymc_tempering.crosscheck.check_text import html_of, text_of
from pymc_tempering.crosscheck.draw_check import DrawCheck
from pymc_tempering.exceptions import TemperingError

GROUP = "cross_check"
COLUMNS = (
    *("log_z", "mcse", "bias_direction", "n_evaluations"),
    *("seconds", "agrees", "draws", "verdict", "agreement"),
)
"""Columns of the table, in order."""
TEXT = ("bias_direction", "draws", "verdict", "agreement")
"""Those that hold text."""
NUMBERS = ("log_z", "mcse", "n_evaluations", "seconds")
"""Those that hold numbers."""


@dataclass(frozen=True, eq=False, repr=False)
class CrossCheck:
    """The same evidence by several estimators, side by side.

    Attributes
    ----------
    table : DataFrame
        One row a method: ``log_z`` and ``mcse`` (nats); ``bias_direction``, "below" or "above"
        for a bound; ``n_evaluations`` of the model's density, 0 for methods that read the run;
        ``seconds``; ``agrees`` with the reference method (missing where no error is stated);
        ``draws``, the draws that it rests on: "run", "posterior", or "own" (independent of all
        other methods); the method's ``verdict``; ``agreement``, which says in words what
        ``agrees`` cannot: "yes", "NO", "too wide" (an error above a nat confirms nothing),
        "no error", or "as rts" (made of its sums, so no check of it). The reference comes first,
        then what is independent of it.
    verdict : {"agree", "disagree", "unchecked"}
        "unchecked": fewer than two estimates have an error of at most a nat.
    words : str
        Whether they agree within their errors, whether the bounds hold log Z between them, which
        method to believe and why.
    believe : str or None
        Method whose number to take.
    reference : str or None
        Method that ``agrees`` refers to.
    left_out : dict of str to str
        Methods that could not be used, and why.
    warnings : tuple of str
        What the estimates warn about, each with the name of its method.
    draws : DrawCheck, optional
        Shares of looks from the prior beyond the quantiles of the run; None where draws were not
        compared.
    """

    table: pd.DataFrame
    verdict: str
    words: str
    believe: str | None
    reference: str | None
    left_out: dict[str, str]
    warnings: tuple[str, ...] = ()
    draws: DrawCheck | None = None

    @property
    def _kept(self) -> tuple[str | None, str | None]:
        return self.reference, self.believe

    def __repr__(self) -> str:
        return text_of(self.table, self._kept, self.words, self.warnings)

    def _repr_html_(self) -> str:
        return html_of(self.table, self._kept, self.words, self.warnings)


def to_dataset(check: CrossCheck) -> xr.Dataset:
    """Return a cross-check as a Dataset with the dimension ``method``.

    Text columns become one JSON string in the attributes, which every file format keeps.
    """
    table = check.table
    numbers = {
        name: ("method_index", table[name].to_numpy(dtype=float, na_value=np.nan))
        for name in NUMBERS
    }
    agrees = table["agrees"].map({True: 1, False: 0}).astype(float).fillna(-1).to_numpy(dtype=int)
    data: dict[str, tuple] = numbers | {"agrees": ("method_index", agrees)}
    for name in ("log_z", "mcse"):
        data[name] = (*data[name], {"units": "nats"})
    attrs = {
        "verdict": check.verdict,
        "words": check.words,
        "believe": check.believe or "",
        "reference": check.reference or "",
        "methods": json.dumps(list(table.index)),
        "texts": json.dumps({name: list(table[name]) for name in TEXT}),
        "left_out": json.dumps(check.left_out),
        "warnings": json.dumps(check.warnings),
        "looks": "" if check.draws is None else json.dumps(asdict(check.draws)),
    }
    return xr.Dataset(data, {"method_index": np.arange(len(table))}, attrs)


def read_cross_check(idata: xr.DataTree) -> CrossCheck:
    """Read the cross-check that :func:`cross_check` stored in a DataTree.

    Raises
    ------
    TemperingError
        If there is none.
    """
    if not isinstance(idata, xr.DataTree) or GROUP not in idata.children:
        raise TemperingError(
            "this DataTree holds no cross-check: run pymc_tempering.cross_check(idata, model) first"
        )
    data = idata[GROUP].to_dataset()
    attrs = data.attrs
    columns = {name: data[name].values for name in NUMBERS}
    agrees = {1: True, 0: False}
    table = make_table(
        json.loads(attrs["methods"]),
        columns
        | {"agrees": [agrees.get(int(value)) for value in data["agrees"].values]}
        | json.loads(attrs["texts"]),
    )
    return CrossCheck(
        table=table,
        verdict=attrs["verdict"],
        words=attrs["words"],
        believe=attrs["believe"] or None,
        reference=attrs["reference"] or None,
        left_out=json.loads(attrs["left_out"]),
        warnings=tuple(json.loads(attrs["warnings"])),
        draws=DrawCheck(**json.loads(looks)) if (looks := attrs.get("looks")) else None,
    )


def make_table(methods: list[str], columns: dict) -> pd.DataFrame:
    """Return the table of a cross-check, with ordered columns of the right types."""
    table = pd.DataFrame(
        {name: columns[name] for name in COLUMNS}, index=pd.Index(methods, name="method")
    )
    whole = pd.array([pd.NA if np.isnan(n) else int(n) for n in table["n_evaluations"]], "Int64")
    table["n_evaluations"] = whole
    table["agrees"] = pd.array(list(columns["agrees"]), dtype="boolean")
    return table
