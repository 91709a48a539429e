"""A run that is gone on with has the draws of one that nothing ended, or an error says why not."""

import _thread
import json
import os
import shutil
import signal
import threading
import warnings
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from support.kept_checkpoints import assert_same, run, run_and_keep_all, short_chunks

import pymc_tempering as pmt
from pymc_tempering.chain.pieces import ROWS, piece_since
from pymc_tempering.core.installed import versions_of
from pymc_tempering.sampling import kept as keeping
from pymc_tempering.sampling.call import choice_of, plain_choice
from pymc_tempering.sampling.restart import check_versions
from pymc_tempering.storage import checkpoint_folder
from pymc_tempering.storage.plain_values import pack, unpack

pytestmark = pytest.mark.filterwarnings("ignore:The draws tell too little")

CASES = {
    "prior": {"draws": 700, "reference": "prior", "keep": "states", "tune": 7},
    "auto": {"draws": 700, "chains": 3, "random_seed": np.random.default_rng(3).spawn(1)[0]},
    "target": {"draws": 150, "target_mcse": 0.006, "reference": "auto", "keep": None},
    "suffice": {"target_ess": 900, "draws": 200, "reference": "prior"},
}


def case(name):
    kwargs = dict(CASES[name])
    if name == "auto":
        kwargs["random_seed"] = np.random.default_rng(3).spawn(1)[0]
    return kwargs


@pytest.fixture(scope="module")
def kept(model, tmp_path_factory):
    """Run, its uninterrupted twin without a checkpoint, and copies of all its checkpoints."""
    made = {}

    def make(name):
        if name not in made:
            with pytest.MonkeyPatch.context() as patch:
                folder = tmp_path_factory.mktemp(name)
                recorded, copies = run_and_keep_all(patch, folder, model, **case(name))
            made[name] = run(model, **case(name)), recorded, copies
        return made[name]

    return make


def resume(path, model, **kwargs):
    """Go on with a copy, since a checkpoint is written on."""
    copy = shutil.copytree(path, path.with_name(f"{path.name}.copy"))
    try:
        return pmt.resume(copy, model=model, quiet=True, **kwargs)
    finally:
        shutil.rmtree(copy)


def some(copies, n=4):
    """First and last checkpoints, and some between."""
    at = np.unique(np.linspace(0, len(copies) - 1, n).astype(int))
    return [copies[i] for i in at]


@pytest.mark.slow("interrupts and restarts")
@pytest.mark.parametrize("name", CASES)
def test_from_each_checkpoint_the_same_draws_come(kept, model, name):
    whole, recorded, copies = kept(name)
    assert_same(whole, recorded)
    assert len(copies) >= 3  # how many there are the clock decides
    for path in some(copies):
        again = resume(path, model, cores=1)
        assert_same(whole, again)
        assert again["tempering"].sizes == whole["tempering"].sizes
    assert pmt.log_marginal_likelihood(again).log_z == pmt.log_marginal_likelihood(whole).log_z


@pytest.mark.parametrize("forgotten", ["rng", "reference_rngs", "references", "per_rung", "hot"])
def test_whatever_is_forgotten_is_noticed(monkeypatch, kept, model, forgotten):
    """Planted: a checkpoint that lacks a part of where the chains stand."""
    whole, _, copies = kept("prior")
    path = copies[len(copies) // 2]
    restore = keeping.read_chains

    def forgetful(*args):
        runs, more = restore(*args)
        for chain in runs:
            state = chain.state
            if forgotten == "rng":
                state.rng = np.random.default_rng(0)
            elif forgotten == "reference_rngs":
                state.reference_rngs = np.random.default_rng(0).spawn(len(state.reference_rngs))
            elif forgotten == "references":
                state.references = state.references[:0]
            elif forgotten == "per_rung":  # sums that are doubled
                state.chain.per_rung[:] *= 2
            else:
                chain.hot.n_seen += 1
        return runs, more

    monkeypatch.setattr(keeping, "read_chains", forgetful)
    with pytest.raises(AssertionError):
        assert_same(whole, resume(path, model))


def test_rows_that_are_counted_twice_are_refused(model, monkeypatch, tmp_path):

    def twice(run, since):
        piece = piece_since(run, since)
        rows = {name: np.repeat(getattr(piece.record, name), 2, axis=0) for name in ROWS}
        return replace(piece, record=piece.record._replace(**rows))

    with monkeypatch.context() as patch:
        patch.setattr(keeping, "piece_since", twice)
        _, copies = run_and_keep_all(patch, tmp_path, model, **case("auto"))
    with pytest.raises(pmt.exceptions.CheckpointError, match="contradicts itself: a piece of"):
        resume(copies[3], model)


def flip_in(folder, pattern):
    path = next(p for p in sorted(folder.glob(pattern), reverse=True) if p.is_file())
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(bytes(whole))
    return path


@pytest.mark.slow("interrupts and restarts")
def test_a_damaged_newest_checkpoint_is_replaced_by_the_one_before(kept, model, tmp_path):
    whole, _, copies = kept("auto")
    path = shutil.copytree(copies[3], tmp_path / "run.zarr")
    newest = max(path.glob("*-chains.npz"))
    flip_in(path, newest.name)
    with pytest.warns(pmt.TemperingWarning, match=r"damaged.*from the checkpoint before it"):
        assert_same(whole, resume(path, model))


def rewritten(path, change):
    """Write the part "about" of a checkpoint anew, with valid checksums, changed."""
    from pymc_tempering.storage.checkpoint_folder import Head, known_folder

    with known_folder(path) as folder:
        head, found, _ = folder.newest()
        plain, arrays = unpack(found["about"][0])
        change(plain)
        parts = head.parts | {"about": [folder.add("about", pack(plain, arrays))]}
        folder.commit(Head(head.number + 1, parts))
    return path


def with_version(package):
    def change(plain):
        plain["dict"]["versions"]["dict"][package] = "9.9"

    return change


def as_own_kernel(plain):
    plain["dict"]["call"]["fields"]["kernel"] = {"dict": {"given": "exact"}}


def broken(name, path, model, other):
    """Break something; return the path and the model to resume with."""
    here = path.parent
    actions = {
        "no path": lambda: (here / "nowhere.zarr", model),
        "a file": lambda: ((here / "file").write_text("x") and here / "file", model),
        "another folder": lambda: (_folder(here / "stuff", "notes.txt"), model),
        "an empty folder": lambda: (_folder(here / "empty"), model),
        "nothing stored": lambda: (_unhead(path), model),
        "another zarr": lambda: (_zarr(here / "other.zarr"), model),
        "both heads cut": lambda: (_each(path, "head-*.json", _cut), model),
        "plan cut": lambda: (_each(path, "*-plan.npz", _cut), model),
        "plan flipped": lambda: (flip_in(path, "*-plan.npz") and path, model),
        "about gone": lambda: (_each(path, "*-about.npz", os.unlink), model),
        "first rows gone": lambda: (os.unlink(min(path.glob("*-chains.npz"))) or path, model),
        "chains cut": lambda: (_each(path, "*-chains.npz", _cut), model),
        "chains emptied": lambda: (_each(path, "*-chains.npz", _emptied), model),
        "other data": lambda: (path, other((1.0, 2.5, 0.4))),
        "other shape": lambda: (path, other((1.0, 2.5))),
        "other prior": lambda: (path, other(scale=2.1)),
        "other variables": lambda: (path, _two_means()),
        "no data": lambda: (path, _unobserved()),
        "no model": lambda: (path, None),
        "not a model": lambda: (path, "model"),
        "own version": lambda: (rewritten(path, with_version("pymc_tempering")), model),
        "numba": lambda: (rewritten(path, with_version("numba")), model),
        "own kernel": lambda: (rewritten(path, as_own_kernel), model),
    }  # fmt: skip
    return actions[name]()


def _folder(path, *names):
    path.mkdir()
    for name in names:
        (path / name).write_text("x")
    return path


def _unhead(path):
    for head in path.glob("head-*.json"):
        head.unlink()
    return path


def _zarr(path):
    import zarr

    zarr.open_group(path, mode="w", zarr_format=3).create_array("x", data=np.ones(3))
    return path


def _each(path, pattern, action):
    found = [p for p in path.glob(pattern) if p.is_file()]
    assert found
    for each in found:
        action(each)
    return path


def _cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def _emptied(path):
    path.write_bytes(b"")


def _two_means():
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        pm.Normal("y", a + b, observed=[1.0, 2.5, 0.3])
    return model


def _unobserved():
    with pm.Model() as model:
        pm.Normal("mu", 0.0, 2.0)
        pm.HalfNormal("sd", 1.0)
    return model


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no path", "There is no checkpoint at"),
        ("a file", "is no checkpoint of pymc_tempering"),
        ("another folder", "is no checkpoint of pymc_tempering"),
        ("another zarr", "is no checkpoint of pymc_tempering"),
        ("an empty folder", "nothing was stored"),
        ("nothing stored", r"nothing was stored.*call pymc_tempering\.sample again"),
        ("both heads cut", r"cannot be used: .*head-0\.json is damaged .*head-1\.json is damaged"),
        ("plan cut", "cannot be used: .*-plan.* is damaged or cut short"),
        ("plan flipped", "cannot be used: .*-plan.* is damaged or cut short"),
        ("about gone", "cannot be used: .*-about.npz is missing"),
        ("first rows gone", "cannot be used: .*-chains.npz is missing"),
        ("chains cut", "cannot be used: .*-chains.npz is damaged or cut short"),
        ("chains emptied", "cannot be used: .*-chains.npz is damaged or cut short"),
        ("other data", "not the one of the run: the data 'y' are others here"),
        ("other shape", "not the one of the run: the data 'y' are others here"),
        ("other prior", "not the one of the run: the terms 'mu', 'y' are others here"),
        ("other variables", "free variables were 'mu', 'sd_log__', and those here are 'a', 'b'"),
        ("no data", "its data were 'y', and those here are none"),
        ("no model", "No model: call this inside `with model:`"),
        ("not a model", "model must be a pymc.Model"),
        ("own version", r"begun with pymc_tempering 9\.9 \(here "),
        ("numba", r"begun with numba 9\.9 \(here "),
        ("own kernel", "a kernel of its own, 'exact', whose code is not stored: pass kernel="),
    ],
)
def test_broken_checkpoints_get_a_clear_error(
    kept, model, other_model, tmp_path, monkeypatch, name, words
):
    _, _, copies = kept("auto")
    path = shutil.copytree(copies[3], tmp_path / "run.zarr")
    path, given = broken(name, path, model, other_model)
    with pytest.raises(
        (pmt.exceptions.CheckpointError, pmt.exceptions.ModelError), match=f"(?s){words}"
    ):
        pmt.resume(path, model=given, quiet=True)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: _folder(p, "thesis.tex"), "with something else in it: give a path that is free"),
        (lambda p: p.write_text("x"), "is a file: checkpoint= needs a path"),
        (lambda p: _zarr(p), "with something else in it"),
        (lambda p: p.symlink_to("/dev/null/x"), "cannot be used"),
    ],
)  # fmt: skip
def test_a_run_does_not_write_over_anything(model, tmp_path, make, words):
    make(tmp_path / "run.zarr")
    with pytest.raises(pmt.exceptions.CheckpointError, match=words):
        run(model, tmp_path / "run.zarr", draws=10)


@pytest.mark.parametrize(
    ("kwargs", "error", "words"),
    [
        ({"checkpoint_every": 0.0}, ValueError, "checkpoint_every must be a positive number"),
        ({"checkpoint_every": -1.0}, ValueError, "checkpoint_every must be a positive number"),
        (
            {"idata_kwargs": {"coords": object()}},
            pmt.exceptions.ArgumentError,
            "idata_kwargs.coords is a obj",
        ),
        ({"rung_weights": np.exp}, pmt.exceptions.ArgumentError, "a function as rung_weights"),
        (
            {"kernel": pm.Metropolis},
            pmt.exceptions.ArgumentError,
            "what the step method Metropolis keeps",
        ),
    ],
)
def test_calls_that_cannot_have_a_checkpoint(model, tmp_path, kwargs, error, words):
    options = {"checkpoint_every": 60.0, "reference": "prior", "quiet": True} | kwargs
    with pytest.raises(error, match=words):
        pmt.sample(10, model=model, checkpoint=tmp_path / "run.zarr", **options)


def test_a_path_in_use_is_refused(kept, model, tmp_path):
    _, _, copies = kept("auto")
    with pytest.raises(pmt.exceptions.CheckpointError, match=r"already: go on with it by .*resume"):
        run(model, copies[3], draws=10)
    from pymc_tempering.storage.checkpoint_folder import known_folder

    with (
        known_folder(copies[3]),
        pytest.raises(pmt.exceptions.CheckpointError, match="is writing to"),
    ):
        pmt.resume(copies[3], model=model, quiet=True)


def test_a_density_of_another_machine_is_said_and_one_of_another_model_refused(
    kept, model, tmp_path, monkeypatch
):
    _, _, copies = kept("auto")
    probe = "pymc_tempering.sampling.call.probe"
    from pymc_tempering.references.prior import probe as original

    for factor, expected in ((1 + 1e-14, "last digits"), (1.01, None)):
        path = shutil.copytree(copies[3], tmp_path / f"{factor}.zarr")

        def changed(prior, factor=factor):
            xs, values = original(prior)
            return xs, values * factor

        monkeypatch.setattr(probe, changed)
        if expected:
            with pytest.warns(pmt.TemperingWarning, match=expected):
                resume(path, model)
        else:
            with pytest.raises(
                pmt.exceptions.CheckpointError, match="not the one of the run: its density"
            ):
                resume(path, model)


@pytest.mark.slow("interrupts and restarts")
def test_a_full_disk_is_said_and_the_run_goes_on(kept, model, monkeypatch, tmp_path):
    whole, _, _ = kept("auto")
    calls, write = [], checkpoint_folder.to_disk

    def fills_up(path):
        calls.append(path)
        if len(calls) > 12:  # some time after the first checkpoint, which takes 7
            raise OSError(28, "No space left on device")
        write(path)

    with short_chunks(monkeypatch) as patch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        patch.setattr(checkpoint_folder, "to_disk", fills_up)
        idata = run(model, tmp_path / "run.zarr", **case("auto"))
    assert_same(whole, idata)
    said = [str(w.message) for w in caught if "could not be written" in str(w.message)]
    assert len(said) == 1
    assert not list((tmp_path / "run.zarr").glob("*.unfinished"))
    assert "No space left on device" in said[0]
    assert_same(whole, resume(tmp_path / "run.zarr", model))


def at_save(monkeypatch, number, action):
    """Do something while the checkpoint of that number is written."""
    save, count = keeping.CheckpointRecorder._save, []

    def saving(self, job, standing):
        count.append(1)
        save(self, job, standing)
        if len(count) == number:
            action()

    monkeypatch.setattr(keeping.CheckpointRecorder, "_save", saving)


@pytest.mark.slow("interrupts and restarts")
@pytest.mark.parametrize("number", [1, 3])
def test_ctrl_c_while_it_is_written(kept, model, monkeypatch, tmp_path, number):
    """It waits until the checkpoint is whole; then it ends the run as ever."""
    whole, _, _ = kept("auto")
    with short_chunks(monkeypatch) as patch:
        at_save(patch, number, lambda: signal.raise_signal(signal.SIGINT))
        if number == 1:
            with pytest.raises(KeyboardInterrupt, match="before the first draw"):
                run(model, tmp_path / "run.zarr", **case("auto"))
        else:
            with pytest.warns(pmt.TemperingWarning, match="Interrupted: the chains had drawn"):
                run(model, tmp_path / "run.zarr", **case("auto"))
    assert_same(whole, resume(tmp_path / "run.zarr", model))


@pytest.mark.slow("other processes")
def test_sigterm_ends_the_process_with_a_checkpoint(kept, model, monkeypatch, tmp_path):
    whole, _, _ = kept("auto")
    handler = signal.getsignal(signal.SIGTERM)
    with short_chunks(monkeypatch) as patch:
        at_save(patch, 3, lambda: signal.raise_signal(signal.SIGTERM))
        with pytest.raises(SystemExit) as ended:
            run(model, tmp_path / "run.zarr", **case("auto"))
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == handler
    assert_same(whole, resume(tmp_path / "run.zarr", model))


@pytest.mark.slow("interrupts and restarts")
def test_ctrl_c_while_the_chains_run(model, monkeypatch, tmp_path):
    kwargs = {"draws": 40_000, "reference": "prior", "random_seed": 4}
    timer = threading.Timer(0.3, _thread.interrupt_main)
    with monkeypatch.context() as patch:
        at_save(patch, 2, timer.start)  # the chains begin
        with pytest.warns(pmt.TemperingWarning, match="Interrupted: the chains had drawn"):
            part = run(model, tmp_path / "run.zarr", **kwargs)
    timer.join()
    n = part.posterior.sizes["draw"]
    assert 0 < n < 40_000
    again = resume(tmp_path / "run.zarr", model)
    assert again.posterior.sizes["draw"] == 40_000
    for name in ("mu", "sd"):
        whole = again.posterior[name].values[:, :n]
        for chain in part.posterior[name].values:  # a chain without a draw yet is left out
            assert any(np.array_equal(chain, other) for other in whole)


@pytest.mark.slow("interrupts and restarts")
def test_what_max_time_decided_stays(model, tmp_path):
    with pytest.warns(pmt.TemperingWarning):
        part = run(model, tmp_path / "run.zarr", draws=10**6, max_time=0.5, reference="prior")
    with pytest.warns(pmt.TemperingWarning):
        again = resume(tmp_path / "run.zarr", model)
    assert_same(part, again)


def test_choices_of_kernels_in_words():
    choice = {"a": pmt.kernels.HMC(target_accept=0.7), "b": "slice"}
    plain = json.loads(json.dumps(plain_choice(choice)))
    back = choice_of(plain)
    assert back["b"] == "slice"
    assert back["a"].rebuild == choice["a"].rebuild
    for own in (
        pm.Metropolis,
        pmt.kernels.StepKernel(pm.Metropolis),
        pmt.kernels.CustomKernel(lambda *a: {}),
    ):
        with pytest.raises(pmt.exceptions.CheckpointError, match="pass kernel= as at first"):
            choice_of(plain_choice(own))
        assert choice_of(plain_choice(own), own) is own


def test_versions_are_those_installed():
    here = versions_of(keeping.PACKAGES)
    check_versions(here, keeping.PACKAGES)
    with pytest.raises(pmt.exceptions.CheckpointError, match=r"numpy 1\.0 \(here"):
        check_versions(here | {"numpy": "1.0"}, keeping.PACKAGES)


def test_a_checkpoint_every_no_seconds_is_refused(tmp_path):
    with pytest.raises(ValueError, match="checkpoint_every must be positive, not 0"):
        pmt.resume(tmp_path / "run", checkpoint_every=0)
