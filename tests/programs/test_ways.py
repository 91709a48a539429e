"""A cell for each way of writing a model and for each kind of model, against its exact value."""

from dataclasses import replace

import pytest

from benchmarks.errors.ways import Run, cells, run_cell

DEAR = {
    "dims of ints": "labels", "dims of dates": "imputed", "pm.Data": "fields", "pickled": "counts",
    "pm.Data set again": "mixtures", "model in a model": "spike and slab", "bool": "angles",
    "potential": "switch points", "CustomDist with logp": "chained states", "pandas": "ordered",
    "two dimensions": "hierarchical", "Bambi": "group effects",
}  # fmt: skip
"""Kinds that take long are written in one way each; `benchmarks ways` has them in all."""


FEW = {"chained states": 3, "counts": 4}
"""Data of kinds whose graphs grow with them."""


def some_cells():
    """One cell for each way, so that each kind is there."""
    return [
        (door, way, replace(kind, y=kind.y[: FEW.get(kind.name)]))
        for door, way, kind in cells(doors=False)
        if kind.name == DEAR.get(way.name, "continuous")
    ]


CELLS = some_cells()


@pytest.mark.slow("many kinds of models")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cell", CELLS, ids=[f"{way.name}, {kind.name}" for _, way, kind in CELLS])
def test_a_way_gives_the_exact_value(cell):
    """One sound answer in 16,000 is beyond four errors, and most are within .02 nats then."""
    run = Run(seed=0, **{"status": "done"} | run_cell(*cell))
    assert run.status == "done", run.message
    assert run.verdict == "ok"
    assert run.right, run.off


def test_each_way_and_each_kind_is_there():
    every = cells(doors=False)
    assert {way.name for _, way, _ in CELLS} == {way.name for _, way, _ in every}
    assert len({way.name for _, way, _ in CELLS}) > 30
    assert {kind.name for _, _, kind in every if "Bambi" not in kind.name} >= {
        "continuous", "labels", "counts", "chained states", "switch points", "imputed",
        "mixtures", "fields", "angles", "ordered", "hierarchical", "spike and slab",
    }  # fmt: skip


@pytest.mark.slow("many kinds of models", quick=["0.03"])
@pytest.mark.parametrize("off", [0.03, -0.03])
def test_a_wrong_value_is_seen(off):
    assert not Run(0, "done", verdict="ok", off=off, mcse=0.004).right
    assert Run(0, "done", verdict="ok", off=off, mcse=0.01).right
