"""What was compiled ahead is used where all is as it was, gives the same bits, and else is not."""

import numba
import numpy as np
import pytest
from numba import float64
from numba.core.event import install_recorder

from pymc_tempering.model import ahead, disk_cache
from pymc_tempering.model.jit import compile_ahead, njit

OF_VECTOR = float64(float64[::1])
X = np.linspace(0.1, 3.0, 17)


@njit()
def wave(x):
    return np.sin(x) * np.exp(-x)


def sum_of_waves(x):
    total = 0.0
    for i in range(x.size):
        total += wave(x[i])
    return total


def product_of_waves(x):
    total = 1.0
    for i in range(x.size):
        total *= wave(x[i])
    return total


@pytest.fixture(autouse=True)
def folders(monkeypatch, tmp_path):
    """Folders of this test's own: of the user's cache, and of what was compiled ahead."""
    monkeypatch.setattr(ahead, "FOLDER", tmp_path / "ahead")
    return use_cache(monkeypatch, tmp_path / "first")


def use_cache(monkeypatch, folder):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(folder))
    return folder


def fresh(function=sum_of_waves):
    """A dispatcher as another process has it: it has the disk alone."""
    return njit(OF_VECTOR)(function)


def call(dispatcher):
    """Its result, and how many functions were compiled for it."""
    with install_recorder("numba:compile") as recorder:
        value = dispatcher(X)
    return value, len(recorder.buffer) // 2


@pytest.fixture
def entry(monkeypatch, tmp_path):
    """The file of an entry, and an empty cache."""
    file = compile_ahead(fresh())
    use_cache(monkeypatch, tmp_path / "empty")
    return file


def test_an_entry_is_used_once_and_gives_the_same_bits(entry, monkeypatch, tmp_path):
    found, n_compiled = call(fresh())
    assert n_compiled == 0
    # The machine code is in the user's cache now: nobody reads the entry a second time.
    monkeypatch.setattr(disk_cache, "read_ahead", None)
    assert call(fresh()) == (found, 0)
    monkeypatch.setattr(disk_cache, "read_ahead", lambda owner: None)
    use_cache(monkeypatch, tmp_path / "without")
    compiled, n_compiled = call(fresh())
    assert n_compiled > 0
    assert found == compiled
    assert found == pytest.approx(np.sum(np.sin(X) * np.exp(-X)))


def test_what_is_kept_is_of_no_processor(entry):
    data = ahead.read_ahead((sum_of_waves.__qualname__, *entry_key()))
    (_, kind, module), *_ = data
    assert kind == "bitcode"
    assert b"target-cpu" not in module


def entry_key():
    dispatcher = fresh()
    dispatcher.find_cache()
    return dispatcher.cache.owner(OF_VECTOR)[1:]


CHANGES = {
    "cut short": lambda content: content[:-1],
    "one bit": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
    "checksum": lambda content: bytes([content[0] ^ 1]) + content[1:],
    "empty": lambda content: b"",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_damaged_entry_is_not_used(entry, change):
    entry.write_bytes(CHANGES[change](entry.read_bytes()))
    value, n_compiled = call(fresh())
    assert n_compiled > 0
    assert value == pytest.approx(np.sum(np.sin(X) * np.exp(-X)))


@pytest.mark.parametrize("i", range(len(ahead.MADE_BY)))
def test_an_entry_of_other_versions_is_not_used(entry, monkeypatch, i):
    other = (*ahead.MADE_BY[:i], ahead.MADE_BY[i] + "1", *ahead.MADE_BY[i + 1 :])
    monkeypatch.setattr(ahead, "MADE_BY", other)
    assert call(fresh())[1] > 0


def test_an_entry_under_the_name_of_another_is_not_used(entry, monkeypatch, tmp_path):
    """As a folder that was put together by hand may have."""
    other = compile_ahead(fresh(product_of_waves))
    other.write_bytes(entry.read_bytes())
    use_cache(monkeypatch, tmp_path / "empty too")
    value, n_compiled = call(fresh(product_of_waves))
    assert n_compiled > 0
    assert value == pytest.approx(np.prod(np.sin(X) * np.exp(-X)))


def test_an_entry_of_other_sources_or_types_is_not_used(entry, monkeypatch):
    single = njit(numba.float32(numba.float32[::1]))(sum_of_waves)
    with install_recorder("numba:compile") as recorder:
        single(X.astype(np.float32))
    assert recorder.buffer
    from pymc_tempering.model import jit

    monkeypatch.setattr(jit, "hash_of_sources", lambda *files: "edited")
    assert call(fresh())[1] > 0


def test_where_no_folder_is_everything_compiles(monkeypatch, tmp_path):
    monkeypatch.setattr(ahead, "FOLDER", tmp_path / "nowhere")
    assert call(fresh())[1] > 0


def test_nothing_is_compiled_ahead_twice(entry):
    with install_recorder("numba:compile") as recorder:
        assert compile_ahead(fresh()) == entry
    assert not recorder.buffer


def test_what_is_not_kept_on_disk_is_not_compiled_ahead():
    namespace = {"np": np}
    exec("def typed_in(x): return x.sum()", namespace)  # it has no file
    assert compile_ahead(njit(OF_VECTOR)(namespace["typed_in"])) is None
    assert not ahead.FOLDER.exists()
