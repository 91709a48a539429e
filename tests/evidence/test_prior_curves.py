"""The result of a prior sensitivity: checked values, tables, trees and texts."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from pymc_tempering.evidence.prior_curves import PriorSensitivity, SensitivityCurve


def curve(name="b", n=3, **changes):
    values = {
        "name": name,
        "kind": "scale",
        "values": np.geomspace(0.5, 2.0, n),
        "default": np.array(1.0),
        "log_z": np.linspace(-1234.5, -1230.0, n),
        "mcse": np.full(n, 0.0123),
        "log_bf": np.linspace(-2.0, 2.0, n),
        "log_bf_mcse": np.where(np.arange(n) == n // 2, 0.0, 0.01),
        "ess": np.full(n, 4000.0),
        "khat": np.where(np.arange(n) == n // 2, -np.inf, 0.3),
        "khat_limit": 0.7,
        "source": ("reweighted",) * (n - 1) + ("rerun",),
    }
    return SensitivityCurve(**(values | changes))


def sensitivity(**changes):
    values = {"log_z": -1232.25, "mcse": 0.0123, "verdict": "ok", "curves": (curve(),)}
    return PriorSensitivity(**(values | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"mcse": np.ones(2)},
        {"source": ("reweighted",)},
        {"source": ("reweighted", "guessed", "rerun")},
        {"kind": "prior"},
        {"mcse": np.array([0.1, -0.1, 0.1])},
    ],
)
def test_a_curve_that_cannot_be_is_refused(changes):
    with pytest.raises(ValueError, match=r"another number|unknown kind|negative"):
        curve(**changes)


def test_names_of_curves_are_unique_and_unknown_ones_refused():
    with pytest.raises(ValueError, match="one curve a name"):
        sensitivity(curves=(curve(), curve()))
    with pytest.raises(ValueError, match="one curve a name"):
        sensitivity(curves=())
    with pytest.raises(KeyError, match="'c', only of"):
        sensitivity()["c"]


def test_the_frame_has_a_row_a_value_and_the_other_model_if_there_is_one():
    found = sensitivity(curves=(curve(), curve("c", 2))).to_dataframe()
    assert found["variable"].tolist() == ["b"] * 3 + ["c"] * 2
    assert "log_bf_against" not in found
    other = sensitivity(against=(-1233.0, 0.05)).to_dataframe()
    np.testing.assert_allclose(other["log_bf_against"], other["log_z"] + 1233.0)
    np.testing.assert_allclose(other["log_bf_against_mcse"], np.hypot(0.0123, 0.05))
    with pytest.raises(ValueError, match="against="):
        sensitivity().against_of(curve())


def test_the_tree_can_be_saved_and_holds_everything(tmp_path):
    summary = xr.Dataset({"b": (("value_index", "metric"), np.ones((3, 3)))})
    table = curve(
        "table", 2, kind="data", values=np.ones((2, 4)), default=np.zeros(4),
    )  # fmt: skip
    found = sensitivity(
        curves=(curve(posterior=summary), table), against=(-1.0, 0.1), warnings=("Say so.",)
    )
    found.to_datatree().to_netcdf(tmp_path / "s.nc")
    tree = xr.open_datatree(tmp_path / "s.nc")
    assert tree["table"]["value"].dims == ("value_index", "table_dim_0")
    np.testing.assert_array_equal(tree["b"]["log_z"], found["b"].log_z)
    assert tree["b"]["source"].values.tolist() == ["reweighted", "reweighted", "rerun"]
    assert "b" in tree["b/posterior"].data_vars
    assert (tree.attrs["log_z"], tree.attrs["against_mcse"]) == (-1232.25, 0.1)
    tree.close()


@pytest.mark.parametrize("against", [None, (-1233.0, 0.05)])
def test_texts_fit_into_eighty_columns(against):
    long = sensitivity(curves=(curve("a_rather_long_name", 100),), against=against)
    text = repr(long)
    assert max(map(len, text.splitlines())) <= 80
    assert "30 of 100 rows" in text
    assert ("other" in text) == (against is not None)


def test_the_default_shows_no_error_and_warnings_are_counted():
    found = sensitivity(warnings=("Sample more <draws>.",))
    [row] = [line for line in repr(found).splitlines() if line.split()[:1] == ["1"]]
    assert row.split()[4:] == ["0", "4000", "-", "reweighted"]
    assert "! 1 warning, see .warnings" in repr(found)
    assert "<li>1 warning, see .warnings</li>" in found._repr_html_()
    assert "nan" in repr(sensitivity(curves=(replace(curve(), log_z=np.full(3, np.nan)),)))
