"""Whatever happens to a folder of checkpoints, one that was written is read, or an error says."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pymc_tempering.exceptions import CheckpointError
from pymc_tempering.storage import checkpoint_folder
from pymc_tempering.storage.checkpoint_folder import Head, known_folder, new_folder


def commit(folder, number, before):
    """Commit number n: a plan written once, a row more, and a state that replaces the last."""
    kept = dict(before.parts)
    if not kept:
        kept = {"plan": [folder.add("plan", b"of all")], "rows": []}
    kept["rows"] = [*kept["rows"], folder.add("rows", b"rows %d" % number)]
    kept["state"] = [folder.add("state", b"state %d" % number)]
    head = Head(number, kept)
    folder.commit(head)
    return head


def write(path, n=3):
    with new_folder(path) as folder:
        head = Head(0, {})
        for number in range(1, n + 1):
            head = commit(folder, number, head)


def content(path):
    """Number of the checkpoint that is read, and what was wrong; all its parts must be of it."""
    with known_folder(path) as folder:
        head, found, fault = folder.newest()
    n = head.number
    rows = [b"rows %d" % number for number in range(1, n + 1)]
    assert found == {"plan": [b"of all"], "rows": rows, "state": [b"state %d" % n]}
    return n, fault


def content_or_error(path):
    try:
        return content(path)
    except CheckpointError as error:
        return str(error)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("folder") / "run.zarr"
    write(path)
    return path


@pytest.fixture
def copy(written, tmp_path):
    target = tmp_path / "run.zarr"
    for source in [p for p in written.rglob("*") if p.is_file() and p.name != "lock"]:
        place = target / source.relative_to(written)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(source.read_bytes())
    return target


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(bytes(whole))


def empty(path):
    path.write_bytes(b"")


def swap(path):
    """Put the file of another checkpoint in its place, which is whole in itself."""
    others = [p for p in path.parent.iterdir() if p != path and p.suffix == path.suffix]
    other = next((p for p in others if p.read_bytes() != path.read_bytes()), None)
    if other is not None:
        path.write_bytes(other.read_bytes())


def test_it_is_read_as_it_was_written(written):
    assert content(written) == (3, "")


@pytest.mark.parametrize("damage", [cut, flip, empty, swap, Path.unlink], ids=lambda d: d.__name__)
def test_damage_to_any_file_is_found(written, tmp_path, damage):
    """Each file in turn: the newest checkpoint or the one before is read whole, or refused."""
    files = [p.relative_to(written) for p in written.rglob("*") if p.is_file() and p.name != "lock"]
    outcomes = {}
    for i, name in enumerate(files):
        target = tmp_path / str(i)
        for each in files:
            place = target / each
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes((written / each).read_bytes())
        before = (target / name).read_bytes()
        damage(target / name)
        outcomes[name] = content_or_error(target)
        if isinstance(outcomes[name], str):
            assert name.parts[0] in outcomes.pop(name)
            outcomes[name] = None
        same = (target / name).exists() and (target / name).read_bytes() == before
        if not same and name.parts[0] in newest_parts(written):
            assert outcomes[name] is None or outcomes[name][0] == 2
            assert outcomes[name] is None or name.name in outcomes[name][1]
    assert len(outcomes) == 8  # a plan, three rows, two states and two heads
    # Damage to the last rows or the last state is repaired by the checkpoint before.
    assert damage is swap or any(found and found[0] == 2 for found in outcomes.values())


def newest_parts(path):
    with known_folder(path) as folder:
        head, _, _ = folder.newest()
    return {part.file for each in head.parts.values() for part in each}


def test_a_damaged_head_is_replaced_by_the_one_before(copy):
    flip(copy / checkpoint_folder.HEADS[1])  # of number 3
    number, fault = content(copy)
    assert number == 2
    assert "head-1.json is damaged" in fault
    flip(copy / checkpoint_folder.HEADS[0])
    with pytest.raises(CheckpointError, match=r"cannot be used.*head-0.*head-1"):
        content(copy)


def test_a_stale_part_under_a_known_name_is_not_taken(copy):
    """A file that is whole in itself, in the place of another."""
    old, new = sorted(copy.glob("*-state.npz"))[-2:]
    new.write_bytes(old.read_bytes())
    number, fault = content(copy)
    assert number == 2
    assert f"{new.name} is damaged" in fault


class Killed(BaseException):
    """Stands for a process that ends at once."""


def die_at(monkeypatch, count):
    """End at the n-th step that reaches the disk, by turns before and after it."""
    steps = [0]

    def counted(original):
        def step(*args, **kwargs):
            steps[0] += 1
            if steps[0] == count:
                raise Killed
            return original(*args, **kwargs)

        return step

    monkeypatch.setattr(checkpoint_folder, "to_disk", counted(checkpoint_folder.to_disk))
    for name in ("replace", "write_bytes"):
        monkeypatch.setattr(Path, name, counted(getattr(Path, name)))
    return steps


def test_an_end_at_any_step_leaves_the_last_checkpoint(monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        steps = die_at(patch, -1)
        write(tmp_path / "whole", 2)
    assert steps[0] > 20
    found = []
    for count in range(1, steps[0] + 1):
        path = tmp_path / str(count)
        with monkeypatch.context() as patch:
            die_at(patch, count)
            with pytest.raises(Killed):
                write(path, 2)
        now = content_or_error(path)
        found.append(0 if isinstance(now, str) else now[0])
        assert found[-1] or "nothing was stored" in now
    assert found == sorted(found)
    assert set(found) == {0, 1, 2}


def test_what_an_end_left_behind_is_no_obstacle(monkeypatch, tmp_path):
    path = tmp_path / "run.zarr"
    write(path, 1)
    with known_folder(path) as folder, monkeypatch.context() as patch:
        head, _, _ = folder.newest()
        die_at(patch, 5)
        with pytest.raises(Killed):
            commit(folder, 2, head)
    assert any(".unfinished" in p.name for p in path.iterdir())
    with known_folder(path) as folder:
        head, _, _ = folder.newest()
        commit(folder, 2, head)
    assert content(path) == (2, "")
    assert not any(".unfinished" in p.name for p in path.iterdir())


def test_old_states_are_deleted(written):
    assert len(list(written.glob("*-state.npz"))) == 2  # of the newest, and of the one before
    assert len(list(written.glob("*-rows.npz"))) == 3


def test_a_new_run_does_not_take_a_folder_in_use(written, tmp_path):
    with pytest.raises(CheckpointError, match=r"already: go on with it by pymc_tempering\.resume"):
        write(written)
    with new_folder(tmp_path / "a"), pytest.raises(CheckpointError, match="Another process"):
        write(tmp_path / "a")
    with new_folder(tmp_path / "a") as folder, pytest.raises(CheckpointError, match="is writing"):
        content(folder.root)


def test_the_lock_goes_with_its_process(tmp_path):
    """A process that is killed leaves no lock behind; while it lives, nobody else gets in."""
    path = tmp_path / "run.zarr"
    script = (
        "import sys, time\n"
        "from pymc_tempering.storage.checkpoint_folder import new_folder\n"
        "with new_folder(sys.argv[1]):\n"
        "    print('locked', flush=True)\n"
        "    time.sleep(60)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    try:
        assert child.stdout.readline() == "locked\n"
        with pytest.raises(CheckpointError, match="Another process"):
            write(path)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    write(path)
    assert content(path) == (3, "")


def full(*args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


def forbidden(*args, **kwargs):
    raise PermissionError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize(
    ("error", "words"),
    [(full, "No space left on device.*make room"), (forbidden, "No permission to write")],
)
def test_a_disk_that_refuses_is_named_before_anything_is_done(monkeypatch, tmp_path, error, words):
    monkeypatch.setattr(Path, "mkdir", error)
    with pytest.raises(CheckpointError, match=words):
        write(tmp_path / "run.zarr")


def test_a_disk_that_fills_up_leaves_the_last_checkpoint(monkeypatch, tmp_path):
    path = tmp_path / "run.zarr"
    with new_folder(path) as folder:
        head = commit(folder, 1, Head(0, {}))
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint_folder, "to_disk", full)
            with pytest.raises(OSError, match="No space"):
                commit(folder, 2, head)
        commit(folder, 2, head)
    assert content(path) == (2, "")


def test_another_format_is_refused(monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_folder, "FORMAT", 99)
        write(tmp_path / "run.zarr")
    with pytest.raises(CheckpointError, match="has format 99, and this version reads format 2"):
        content(tmp_path / "run.zarr")
