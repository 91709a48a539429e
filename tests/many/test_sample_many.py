"""Many models: exact evidences, seeds by name, files and index, going on, failures and Ctrl-C."""

import json
import warnings
from functools import wraps

import numpy as np
import pytest
import xarray as xr
from support.small_runs import DATASETS, SHORT, exact_log_z, mean_of_two, same_numbers

import pymc_tempering as pmt
from pymc_tempering.exceptions import TemperingWarning
from pymc_tempering.many import sample_many as many
from pymc_tempering.many.sample_many import generator_of
from pymc_tempering.model.handle import CompiledModel

pytestmark = pytest.mark.filterwarnings("ignore:.*another verdict:UserWarning")

NAMES = [*DATASETS]


@pytest.fixture(scope="module")
def model():
    return mean_of_two()


@pytest.fixture(scope="module")
def table(model):
    return pmt.sample_many(model, DATASETS, **SHORT)


def fails(*args, **kwargs):
    raise AssertionError("nothing was to be sampled")


def test_evidences_are_exact(table):
    exact = np.array([exact_log_z(data["y"]) for data in DATASETS.values()])
    # Four errors of three runs: a false alarm in 5,000 seeds.
    assert (abs(table.log_z - exact) < 4 * table.mcse).all()
    assert list(table.index) == NAMES
    assert (table.seconds > 0).all()


def test_the_numbers_are_those_of_a_single_run(model, table):
    own = {k: v for k, v in SHORT.items() if k not in ("random_seed", "progressbar")}
    data = {k: np.asarray(v) for k, v in DATASETS["far"].items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        idata = pmt.sample(
            model=CompiledModel(model).with_data(**data),
            random_seed=generator_of(3, "far"),
            quiet=True,
            **own,
        )
    evidence = pmt.log_marginal_likelihood(idata)
    assert evidence.log_z == table.log_z["far"]
    assert evidence.mcse == table.mcse["far"]


def test_numbers_depend_neither_on_the_order_nor_on_the_others(model, table):
    back = pmt.sample_many(model, {name: DATASETS[name] for name in NAMES[:0:-1]}, **SHORT)
    assert same_numbers(back, table.loc[NAMES[:0:-1]])
    assert len(set(table.log_z)) == len(NAMES)


def test_each_name_and_each_seed_has_a_stream_of_its_own():
    first = {generator_of(seed, name).random() for seed in (1, 2) for name in ("a", "b", "1")}
    assert len(first) == 6
    assert generator_of(1, "a").random() == generator_of(1, "a").random()


def test_models_and_functions_that_build_them_give_the_same(table):
    models = {
        "near": mean_of_two(DATASETS["near"]["y"]),
        "far": lambda: mean_of_two(DATASETS["far"]["y"]),
    }
    found = pmt.sample_many(models, **SHORT)
    assert same_numbers(found, table.loc[["near", "far"]])
    listed = pmt.sample_many([*models.values()][:1], **SHORT)
    assert list(listed.index) == ["0"]


def test_runs_are_written_and_not_done_again(model, table, tmp_path, monkeypatch):
    path = tmp_path / "runs"
    two = {name: DATASETS[name] for name in NAMES[:2]}
    first = pmt.sample_many(model, two, path=path, **SHORT)
    idata = xr.open_datatree(first.file["far"])
    assert pmt.log_marginal_likelihood(idata).log_z == table.log_z["far"]
    idata.close()
    assert json.loads((path / "index.json").read_text("utf-8"))["random_seed"] == 3
    assert not [*path.glob("*.part")]
    done = []
    run_one = many.run_one

    def counted(shared, assignment):
        done.append(assignment.case.name)
        return run_one(shared, assignment)

    monkeypatch.setattr(many, "run_one", counted)
    whole = pmt.sample_many(model, DATASETS, path=path, **SHORT)
    assert done == ["apart"]
    assert same_numbers(whole, table)
    monkeypatch.setattr(many, "run_one", fails)
    unseeded = SHORT | {"random_seed": None}
    assert same_numbers(pmt.sample_many(model, DATASETS, path=path, **unseeded), table)


def test_a_failure_is_a_row_and_is_tried_again(model, table, tmp_path):
    broken = {"near": DATASETS["near"], "bad": {"y": [np.nan, 1.0]}}
    settings = {"path": tmp_path, "save_draws": False, **SHORT}
    for _ in range(2):
        with pytest.warns(TemperingWarning, match="1 of 2 runs failed: 'bad': LikelihoodError"):
            found = pmt.sample_many(model, broken, **settings)
        assert found.verdict["bad"] == "failed"
        assert np.isnan(found.log_z["bad"])
        assert same_numbers(found.loc[["near"]], table.loc[["near"]])
    mended = {"bad": DATASETS["far"]}
    assert pmt.sample_many(model, mended, **settings).verdict["bad"] != "failed"


@pytest.mark.parametrize("how", ["raised", "a run that was cut short"])
def test_ctrl_c_keeps_what_was_finished(model, table, tmp_path, monkeypatch, how):
    sample, calls = many.sample, []

    @wraps(sample)
    def interrupted(**arguments):
        calls.append(1)
        if len(calls) == 2 and how == "raised":
            raise KeyboardInterrupt
        idata = sample(**arguments)
        idata["tempering"].attrs["interrupted"] = int(len(calls) == 2)
        return idata

    monkeypatch.setattr(many, "sample", interrupted)
    with pytest.warns(TemperingWarning, match="Interrupted. 1 of 3 runs were finished"):
        found = pmt.sample_many(model, DATASETS, path=tmp_path, save_draws=False, **SHORT)
    assert same_numbers(found, table.loc[["near"]])
    monkeypatch.setattr(many, "sample", sample)
    whole = pmt.sample_many(model, DATASETS, path=tmp_path, save_draws=False, **SHORT)
    assert same_numbers(whole, table)


def test_the_index_is_whole_whenever_it_is_read(model, tmp_path, monkeypatch):
    """A process that ends while it writes leaves the index from before."""
    settings = {"path": tmp_path, "save_draws": False, **SHORT}
    pmt.sample_many(model, {"near": DATASETS["near"]}, **settings)
    before = (tmp_path / "index.json").read_text("utf-8")
    replace = type(tmp_path).replace

    def killed(self, target):
        if len(self.read_text("utf-8")) > len(before) + 50:  # the one with the second run
            raise SystemExit
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(type(tmp_path), "replace", killed)
        with pytest.raises(SystemExit):
            pmt.sample_many(model, DATASETS, **settings)
    assert list(json.loads((tmp_path / "index.json").read_text("utf-8"))["runs"]) == ["near"]
