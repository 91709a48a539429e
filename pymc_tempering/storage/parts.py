"""One part of a checkpoint: a zarr group in a folder of its own, written whole and checked whole.

A part is never changed. Its files are written under another name and brought to the disk, then the
folder is renamed. A list with the checksums of its files lies beside them; who names the part keeps
the checksum of that list.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from pymc_tempering.exceptions import CheckpointError

LIST = "files.json"
"""The list of the files of a part, with their checksums."""

UNFINISHED = ".unfinished"
"""Ending of a folder or file that is still being written."""


@dataclass(frozen=True)
class Part:
    """Where a part lies, and the checksum of its list of files."""

    folder: str
    checksum: str


def zarr_module() -> Any:
    """Import zarr, which only checkpoints need.

    Raises
    ------
    CheckpointError
        It is not installed, or is older than its third format.
    """
    try:
        import zarr
    except ImportError as error:
        raise CheckpointError(
            "checkpoint= and resume need zarr: pip install 'pymc-tempering[checkpoint]'."
        ) from error
    if int(zarr.__version__.split(".")[0]) < 3:
        raise CheckpointError(
            f"checkpoint= and resume need zarr 3.1 or newer, and this is {zarr.__version__}: "
            "pip install 'pymc-tempering[checkpoint]'."
        )
    return zarr


def write_part(root: Path, folder: str, plain: Any, arrays: Mapping[str, np.ndarray]) -> Part:
    """Write JSON and arrays as a new part.

    Raises
    ------
    OSError
        The disk does not take it; the folder then has an unfinished name, which nobody reads.
    """
    zarr = zarr_module()
    unfinished, final = root / f"{folder}{UNFINISHED}", root / folder
    group = zarr.open_group(unfinished, mode="w", zarr_format=3)
    group.attrs.update({"value": plain, "arrays": list(arrays)})
    for name, values in arrays.items():
        # Chunks of zeros are written too: one that is left out comes back without its signs.
        group.create_array(
            name, data=np.ascontiguousarray(values), config={"write_empty_chunks": True}
        )
    sums = {}
    for path in _files_in(unfinished):
        to_disk(path)
        sums[path.relative_to(unfinished).as_posix()] = _sum_of(path.read_bytes())
    content = json.dumps(sums, sort_keys=True).encode()
    (unfinished / LIST).write_bytes(content)
    to_disk(unfinished / LIST)
    for within, _, _ in os.walk(unfinished):
        to_disk(Path(within))
    unfinished.rename(final)
    return Part(folder, _sum_of(content))


def check_part(root: Path, part: Part) -> None:
    """Compare all files of a part with their checksums.

    Raises
    ------
    CheckpointError
        One is missing, damaged or cut short.
    """
    folder = root / part.folder
    listed = _read(folder / LIST)
    if _sum_of(listed) != part.checksum:
        raise CheckpointError(f"{folder / LIST} is damaged or cut short.")
    for name, checksum in json.loads(listed).items():
        if _sum_of(_read(folder / name)) != checksum:
            raise CheckpointError(f"{folder / name} is damaged or cut short.")


def read_part(root: Path, part: Part) -> tuple[Any, dict[str, np.ndarray]]:
    """JSON and arrays of a part that was checked."""
    group = zarr_module().open_group(root / part.folder, mode="r")
    # By name: a listing would come upon files that are none of zarr's, and warn of them.
    names = group.attrs["arrays"]
    return group.attrs["value"], {name: np.asarray(group[name][...]) for name in names}


def to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if path.is_dir() and os.name == "nt":  # folders cannot be opened there
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _files_in(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing.") from error


def _sum_of(content: bytes) -> str:
    return sha256(content).hexdigest()
