"""The folder of a checkpoint: parts, and a small head that names those which belong together.

Two heads take turns. Each is written under another name and renamed, so that the newest one is
whole whenever the process dies, and the one before it stays as a spare. A part is deleted when
neither names it any more.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from pymc_tempering.exceptions import CheckpointError
from pymc_tempering.storage.parts import (
    UNFINISHED,
    Part,
    check_part,
    read_part,
    to_disk,
    write_part,
    zarr_module,
)

HEADS, LOCK, GROUP = ("head-0.json", "head-1.json"), "lock", "zarr.json"
MARK = "a checkpoint of pymc_tempering"

FORMAT = 1
"""Of the files; raised when their layout changes."""


@dataclass(frozen=True)
class Head:
    """Which parts belong together.

    Attributes
    ----------
    number : int
        Grows with each checkpoint.
    parts : dict of list of Part
        By what they hold, in the order in which they were written.
    """

    number: int
    parts: dict[str, list[Part]]


@dataclass(frozen=True)
class CheckpointFolder:
    """A folder that this process alone writes to.

    Attributes
    ----------
    root : Path
    """

    root: Path

    def add(self, name: str, plain: Any, arrays: Mapping[str, np.ndarray]) -> Part:
        """Write a part, which counts once a head names it."""
        # No name is used twice: what a kill left behind may still be there.
        known = [int(p.name.split("-")[0]) for p in self.root.glob("[0-9]*-*")]
        return write_part(self.root, f"{max(known, default=0) + 1:06d}-{name}", plain, arrays)

    def commit(self, head: Head) -> None:
        """Make a head the newest, and delete what neither it nor the one before names."""
        to_disk(self.root)  # the names of the parts first
        path = self.root / HEADS[head.number % 2]
        new = path.with_name(path.name + UNFINISHED)
        new.write_text(_signed(head), encoding="utf-8")
        to_disk(new)
        new.replace(path)
        to_disk(self.root)
        self.tidy()

    def newest(self) -> tuple[Head, str]:
        """Return the newest head whose parts are all whole, and what was wrong with a newer one.

        Raises
        ------
        CheckpointError
            There is none; the message says whether nothing was stored or what is damaged.
        """
        heads, faults = self._heads()
        if not heads and not faults:
            raise CheckpointError(
                f"{self.root} holds no checkpoint: nothing was stored. The run ended before its "
                "plan was frozen, and no draw was lost with it: call pymc_tempering.sample again "
                "with this path."
            )
        for head in sorted(heads, key=lambda each: -each.number):
            try:
                for parts in head.parts.values():
                    for part in parts:
                        check_part(self.root, part)
            except CheckpointError as error:
                faults.append(str(error))
            else:
                # A damaged head may have been the newer one.
                return head, " ".join(faults)
        raise CheckpointError(
            f"The checkpoint in {self.root} cannot be used: {' '.join(faults)} Take a copy of the "
            "folder if you have one; else the run has to be made again."
        )

    def read(self, part: Part) -> tuple[Any, dict[str, np.ndarray]]:
        """JSON and arrays of a part."""
        return read_part(self.root, part)

    def _heads(self) -> tuple[list[Head], list[str]]:
        """Heads that are whole, and sentences about those that are not."""
        heads, faults = [], []
        for name in HEADS:
            path = self.root / name
            if not path.exists():
                continue
            try:
                heads.append(_unsigned(path))
            except (ValueError, KeyError, TypeError) as error:
                faults.append(f"{path} is damaged or cut short ({error}).")
        return heads, faults

    def tidy(self) -> None:
        """Delete what no head names: old parts, and those that a full disk has cut short."""
        heads, faults = self._heads()
        if faults:  # it may name what seems to be unnamed
            return
        named = {part.folder for head in heads for parts in head.parts.values() for part in parts}
        for path in self.root.glob("[0-9]*-*"):
            if path.name not in named:
                shutil.rmtree(path, ignore_errors=True)


def _signed(head: Head) -> str:
    body = json.dumps(asdict(head) | {"format": FORMAT}, sort_keys=True)
    return json.dumps({"sum": _sum(body), "head": body})


def _unsigned(path: Path) -> Head:
    """Read a head.

    Raises
    ------
    ValueError, KeyError, TypeError
        It is damaged.
    CheckpointError
        It is of another format.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    if _sum(content["head"]) != content["sum"]:
        raise ValueError("its checksum is another")
    body = json.loads(content["head"])
    if body["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has format {body['format']}, and this version reads format {FORMAT}: "
            "resume it with the version of pymc_tempering that wrote it."
        )
    parts = {name: [Part(**part) for part in parts] for name, parts in body["parts"].items()}
    return Head(body["number"], parts)


def _sum(body: str) -> str:
    return sha256(body.encode()).hexdigest()


@contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[CheckpointFolder]:
    """Make the folder of a checkpoint, and keep it locked.

    Raises
    ------
    CheckpointError
        Something else is there, another process writes to it, or the disk does not allow it.
    """
    zarr, root = zarr_module(), Path(path)
    with said_clearly(root):
        if root.exists() and not root.is_dir():
            raise CheckpointError(f"{root} is a file: checkpoint= needs a path for a new folder.")
        foreign = root.is_dir() and any(root.iterdir()) and not _is_ours(root)
        if foreign:
            raise CheckpointError(
                f"{root} is a folder with something else in it: give a path that is free."
            )
        root.mkdir(parents=True, exist_ok=True)
    with _locked(root):
        if any((root / name).exists() for name in HEADS):
            raise CheckpointError(
                f"{root} holds the checkpoint of a run already: go on with it by "
                "pymc_tempering.resume, delete it, or give another path."
            )
        with said_clearly(root):
            if not (root / GROUP).exists():
                zarr.open_group(root, mode="a", zarr_format=3).attrs["what"] = MARK
        yield CheckpointFolder(root)


@contextmanager
def known_folder(path: str | os.PathLike[str]) -> Iterator[CheckpointFolder]:
    """Open the folder of a checkpoint, and keep it locked.

    Raises
    ------
    CheckpointError
        It is no such folder, another process writes to it, or the disk does not allow it.
    """
    zarr_module()
    root = Path(path)
    with said_clearly(root):
        if not root.exists():
            raise CheckpointError(f"There is no checkpoint at {root}.")
        if not root.is_dir() or not _is_ours(root):
            raise CheckpointError(
                f"{root} is no checkpoint of pymc_tempering: resume takes what "
                "pymc_tempering.sample(checkpoint=...) has written."
            )
    with _locked(root):
        yield CheckpointFolder(root)


def _is_ours(root: Path) -> bool:
    """Whether a folder was made by `new_folder`; a kill may have come while it was made."""
    inside = {path.name for path in root.iterdir()}
    begun = all(name == LOCK or name.startswith("zarr.") for name in inside)  # or a part of it
    if begun and (LOCK in inside or not inside):
        return True
    if any((root / name).exists() for name in HEADS):
        return True
    with suppress(OSError, ValueError):
        found = json.loads((root / GROUP).read_text(encoding="utf-8"))
        return isinstance(found, dict) and found.get("attributes", {}).get("what") == MARK
    return False


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the lock of a folder, which the system gives back when the process dies."""
    lock = FileLock(root / LOCK, timeout=0)
    with said_clearly(root):
        try:
            lock.acquire()
        except Timeout as error:
            raise CheckpointError(
                f"Another process, or another call in this one, is writing to {root}: wait for "
                "it, or give another path."
            ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def said_clearly(root: Path) -> Iterator[None]:
    """Turn an error of the disk into one that says what to do."""
    try:
        yield
    except PermissionError as error:
        raise CheckpointError(
            f"No permission to write to {root} ({error.strerror}): give a path that is yours."
        ) from error
    except OSError as error:
        raise CheckpointError(
            f"{root} cannot be used ({error.strerror or error}): give another path, or make room "
            "on the disk."
        ) from error
