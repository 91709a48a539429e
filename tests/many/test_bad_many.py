"""Broken input of `sample_many`: one table of calls, each with the error and its words."""

import json
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytest
from filelock import FileLock
from support.small_runs import DATASETS, SHORT, mean_of_two

import pymc_tempering as pmt
from pymc_tempering.exceptions import (
    ArgumentError,
    DataMismatchError,
    ModelError,
    TemperingWarning,
    WorkerError,
)
from pymc_tempering.many import folder

MODEL = mean_of_two()
OF_Y = {"a": {"y": [1.0, 2.0]}}


def shut_down():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    return pool


def holds(thing):
    """Build a function that holds something."""
    return lambda: (thing, mean_of_two())[1]


CALLS = {
    "an executor that is none": (
        (MODEL, OF_Y, {"executor": 4}), ArgumentError, r"executor must be .*, not 4"
    ),
    "an executor that is shut down": (
        (MODEL, OF_Y, {"executor": shut_down()}), WorkerError, "takes no work"
    ),
    "a function that cannot be sent": (
        ({"a": holds(threading.Lock())}, None, {"executor": ThreadPoolExecutor(1)}),
        WorkerError,
        r"A model cannot be sent .*lock.*Build it in the worker",
    ),
    "a name twice": (({1: MODEL, "1": MODEL}, None, {}), ArgumentError, "names '1' twice"),
    "no models": (([], None, {}), ArgumentError, "models is empty"),
    "no data sets": ((MODEL, {}, {}), ArgumentError, "datasets is empty"),
    "one model alone": ((MODEL, None, {}), ArgumentError, r"models must be a list.*pmt\.sample"),
    "several models with data sets": (
        ([MODEL], OF_Y, {}), ArgumentError, "With datasets=, models must be one model"
    ),
    "a model that is none": (
        ({"a": "model"}, None, {}), ModelError, r"models\['a'\]: model must be a pymc.Model"
    ),
    "no model": (([None], None, {}), ModelError, r"models\['0'\] is None"),
    "data of an unknown name": (
        (MODEL, {"a": {"x": [1.0]}}, {}), DataMismatchError, r"datasets\['a'\].*no data named 'x'"
    ),
    "data of another shape": (
        (MODEL, [{"y": [1.0]}], {}), DataMismatchError, r"datasets\['0'\].*shape \(1,\)"
    ),
    "data that are no numbers": (
        (MODEL, {"a": {"y": ["one", "two"]}}, {}), DataMismatchError, "are no numbers"
    ),
    "data without a name": ((MODEL, [[1.0, 2.0]], {}), ArgumentError, "must be a dict from"),
    "an argument that sample does not take": (
        (MODEL, OF_Y, {"drawz": 3}), ArgumentError, "perhaps 'draws' is meant"
    ),
    "an argument of each run": ((MODEL, OF_Y, {"model": MODEL}), ArgumentError, "model: "),
}  # fmt: skip


@pytest.mark.parametrize("case", CALLS)
def test_a_call_is_refused_before_any_work(case):
    (models, datasets, more), error, words = CALLS[case]
    with pytest.raises(error, match=words):
        pmt.sample_many(models, datasets, **SHORT | more)


def raises():
    raise RuntimeError("no such file")


ROWS = {
    "a function that raises": ({"a": raises}, {}, "RuntimeError: no such file"),
    "a function that wants an argument": ({"a": lambda x: x}, {}, "TypeError: .*argument"),
    "a function that returns no model": ({"a": lambda: 3}, {}, "ModelError: .* not int"),
    "a model without data": ({"a": pm.Model}, {}, "ModelError: .*no free variables"),
    "a value that sample refuses": ({"a": MODEL}, {"draws": -1}, "ValueError: draws must be"),
}


@pytest.mark.parametrize("case", ROWS)
@pytest.mark.parametrize("executor", [None, ThreadPoolExecutor(1)], ids=["here", "sent"])
def test_a_run_that_fails_is_a_row(case, executor):
    models, more, words = ROWS[case]
    with pytest.warns(TemperingWarning, match="1 of 1 runs failed"):
        table = pmt.sample_many(models, executor=executor, **SHORT | more)
    assert table.verdict["a"] == "failed"
    with pytest.raises(RuntimeError, match=words):
        raise RuntimeError(table.message["a"])


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """Write a folder with one run."""
    path = tmp_path_factory.mktemp("many") / "runs"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        pmt.sample_many(MODEL, {"near": DATASETS["near"]}, path=path, save_draws=False, **SHORT)
    return path


def damaged(path):
    (path / "index.json").write_text('{"form": "pymc_t', encoding="utf-8")


def of_another_program(path):
    (path / "index.json").write_text(json.dumps({"runs": []}), encoding="utf-8")


def with_other_files(path):
    (path / "index.json").rename(path / "notes.txt")


FOLDERS = {
    "another seed": (None, {"random_seed": 4}, "have random_seed=3, not 4"),
    "other arguments": (None, {"draws": 70}, r"other arguments of sample \(.*draws=60"),
    "other data": (None, {"datasets": {"near": {"y": [0.5, 1.1]}}}, "run 'near' of another model"),
    "a damaged index": (damaged, {}, "cannot be read .* damaged"),
    "an index of another program": (of_another_program, {}, "is not of pmt.sample_many"),
    "other files": (with_other_files, {}, "has files and no index.json"),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_folder_with_something_else_is_refused_and_left_alone(case, begun, tmp_path):
    change, more, words = FOLDERS[case]
    path = tmp_path / "runs"
    path.mkdir()
    (path / "index.json").write_bytes((begun / "index.json").read_bytes())
    if change is not None:
        change(path)
    before = {p.name: p.read_bytes() for p in path.iterdir()}
    settings = {"datasets": {"near": DATASETS["near"]}, "save_draws": False, **SHORT} | more
    with pytest.raises(DataMismatchError, match=words):
        pmt.sample_many(MODEL, path=path, **settings)
    after = {p.name: p.read_bytes() for p in path.iterdir() if p.name != ".lock"}
    assert before == after


def test_a_file_in_place_of_a_folder(tmp_path):
    file = tmp_path / "runs"
    file.write_text("text", encoding="utf-8")
    with pytest.raises(DataMismatchError, match="is a file: give a folder"):
        pmt.sample_many(MODEL, OF_Y, path=file, **SHORT)


def test_two_processes_on_one_path(tmp_path):
    with FileLock(tmp_path / ".lock"), pytest.raises(DataMismatchError, match="Another process"):
        pmt.sample_many(MODEL, OF_Y, path=tmp_path, **SHORT)


def test_draws_without_a_library_to_write_them(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "find_spec", lambda name: None)
    with pytest.raises(ArgumentError, match=r"h5netcdf.*save_draws=False"):
        pmt.sample_many(MODEL, OF_Y, path=tmp_path, **SHORT)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OSError, match="file"):
        pmt.sample_many(MODEL, OF_Y, path=tmp_path / "file" / "runs", **SHORT)


def test_names_that_look_alike_have_files_of_their_own():
    names = ["a/b", "a_b", "../a", "x" * 300, "x" * 301, "", "é"]
    files = {folder.file_name(name) for name in names}
    assert len(files) == len(names)
    assert all(len(f) < 120 and "/" not in f and not f.startswith(".") for f in files)
    assert np.all([f.isascii() for f in files])


def test_an_index_names_no_file_outside_its_folder(tmp_path):
    runs = {"a": {"file": "../../../etc/hostname"}, "b": {"file": None}}
    opened = folder.Folder(tmp_path, 1, {}, runs)
    assert opened.file_of("a") == str(tmp_path / folder.file_name("a"))
    assert opened.file_of("b") == opened.file_of("c") == ""
