"""The folder of a checkpoint: parts, and a small head that names those which belong together.

A part is a file that is never changed; a head has its name and checksum. Two heads take turns. All
files are written under another name and renamed, so that the newest head is whole whenever the
process dies, and the one before it stays as a spare. A part is deleted when neither names it any
more.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from filelock import FileLock, Timeout

from pymc_tempering.exceptions import CheckpointError

HEADS, LOCK, UNFINISHED = ("head-0.json", "head-1.json"), "lock", ".unfinished"
PART = re.compile(r"[0-9]+-\w+\.npz", re.ASCII)
OURS = re.compile(rf"(lock|head-[01]\.json|{PART.pattern})({UNFINISHED})?")
"""Names of the files in such a folder; the ending is of one that is still being written."""

FORMAT = 2
"""Of the files; raised when their layout changes."""


@dataclass(frozen=True)
class Part:
    """Name of a file, and the checksum of its content."""

    file: str
    checksum: str


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

    def add(self, name: str, content: bytes) -> Part:
        """Write a part, which counts once a head names it.

        Raises
        ------
        OSError
            The disk does not take it; the file then has an unfinished name, which nobody reads.
        """
        # No name is used twice: what a kill left behind may still be there.
        known = [int(path.name.split("-")[0]) for path in self._parts()]
        part = Part(f"{max(known, default=0) + 1:06d}-{name}.npz", _sum(content))
        _write(self.root / part.file, content)
        return part

    def commit(self, head: Head) -> None:
        """Make a head the newest, and delete what neither it nor the one before names."""
        to_disk(self.root)  # the names of the parts first
        body = json.dumps(asdict(head) | {"format": FORMAT}, sort_keys=True)
        signed = json.dumps({"sum": _sum(body.encode()), "head": body})
        _write(self.root / HEADS[head.number % 2], signed.encode())
        to_disk(self.root)
        self.tidy()

    def newest(self) -> tuple[Head, dict[str, list[bytes]], str]:
        """Return the newest head whose parts are all whole, what these hold, and what was damaged.

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
                found = {name: [*map(self._read, parts)] for name, parts in head.parts.items()}
            except CheckpointError as error:
                faults.append(str(error))
            else:
                # A damaged head may have been the newer one.
                return head, found, " ".join(faults)
        raise CheckpointError(
            f"The checkpoint in {self.root} cannot be used: {' '.join(faults)} Take a copy of the "
            "folder if you have one; else the run has to be made again."
        )

    def _read(self, part: Part) -> bytes:
        path = self.root / part.file
        if not path.exists():
            raise CheckpointError(f"{path} is missing.")
        content = path.read_bytes()
        if _sum(content) != part.checksum:
            raise CheckpointError(f"{path} is damaged or cut short.")
        return content

    def _heads(self) -> tuple[list[Head], list[str]]:
        """Heads that are whole, and sentences about those that are not."""
        heads, faults = [], []
        for path in (self.root / name for name in HEADS):
            try:
                heads += [_head_in(path)] if path.exists() else []
            except (ValueError, KeyError, TypeError) as error:
                faults.append(f"{path} is damaged or cut short ({error}).")
        return heads, faults

    def _parts(self) -> Iterator[Path]:
        return self.root.glob("[0-9]*-*.npz*")

    def tidy(self) -> None:
        """Delete what no head names: old parts, and those that a full disk has cut short."""
        heads, faults = self._heads()
        if faults:  # it may name what seems to be unnamed
            return
        named = {part.file for head in heads for parts in head.parts.values() for part in parts}
        for path in self._parts():
            if path.name not in named:
                path.unlink(missing_ok=True)


def _head_in(path: Path) -> Head:
    """Read a head.

    Raises
    ------
    ValueError, KeyError, TypeError
        It is damaged.
    CheckpointError
        It is of another format.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    if _sum(content["head"].encode()) != content["sum"]:
        raise ValueError("its checksum is another")
    body = json.loads(content["head"])
    if body["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has format {body['format']}, and this version reads format {FORMAT}: "
            "resume it with the version of pymc_tempering that wrote it."
        )
    parts = {name: [Part(**part) for part in parts] for name, parts in body["parts"].items()}
    for part in (part for each in parts.values() for part in each):
        if not PART.fullmatch(part.file):  # or files outside the folder would be opened
            raise ValueError(f"it names {part.file!r}, which is no part of a checkpoint")
    return Head(body["number"], parts)


def _sum(content: bytes) -> str:
    return sha256(content).hexdigest()


def _write(path: Path, content: bytes) -> None:
    """Write a file that is there as a whole or not at all."""
    new = path.with_name(path.name + UNFINISHED)
    new.write_bytes(content)
    to_disk(new)
    new.replace(path)


def to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if path.is_dir() and os.name == "nt":  # folders cannot be opened there
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[CheckpointFolder]:
    """Make the folder of a checkpoint, and keep it locked.

    Raises
    ------
    CheckpointError
        Something else is there, another process writes to it, or the disk does not allow it.
    """
    root = Path(path)
    with said_clearly(root):
        if root.exists() and not root.is_dir():
            raise CheckpointError(f"{root} is a file: checkpoint= needs a path for a new folder.")
        if root.is_dir() and not _is_ours(root):
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
        yield CheckpointFolder(root)


@contextmanager
def known_folder(path: str | os.PathLike[str]) -> Iterator[CheckpointFolder]:
    """Open the folder of a checkpoint, and keep it locked.

    Raises
    ------
    CheckpointError
        It is no such folder, another process writes to it, or the disk does not allow it.
    """
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
    """Whether a folder is that of a checkpoint; a kill may have come while it was made."""
    inside = [path.name for path in root.iterdir()]
    return any(name in HEADS for name in inside) or all(map(OURS.fullmatch, inside))


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
