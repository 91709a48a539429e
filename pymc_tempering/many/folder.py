"""What many runs have come to, and their folder: a file of draws for each, and an index.

The index is whole at any moment.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from filelock import FileLock, Timeout

from pymc_tempering.evidence.result import FAILED, from_plain, to_plain
from pymc_tempering.exceptions import ArgumentError, DataMismatchError
from pymc_tempering.executors.chunks import versions_here

INDEX, LOCK, FORM = "index.json", ".lock", "pymc_tempering.sample_many 1"
MOST_LETTERS = 80
"""Letters of a run's name in that of its file."""


@dataclass(frozen=True)
class Row:
    """What the table says of a run.

    Attributes
    ----------
    log_z, mcse : float
        In nats; not a number where the run failed.
    verdict : str
        Of log Z, or "failed".
    ess : float
        Least bulk effective sample size of all free scalars that were kept.
    seconds : float
        From the model to the row, compiling included.
    message : str
        What the run warned of, or the error that ended it.
    data : str
        Hash of the observed data, up to rounding; empty where there are none.
    ranks : dict of str to float
        Of the values that the data came from, by scalar, where they are known.
    """

    log_z: float = np.nan
    mcse: float = np.nan
    verdict: str = FAILED
    ess: float = np.nan
    seconds: float = np.nan
    message: str = ""
    data: str = ""
    ranks: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Done:
    """One run that has ended.

    Attributes
    ----------
    row : Row
    content : str
        Hash of its model and data; empty where there was no model.
    tree : DataTree, optional
        The draws, where they are kept.
    """

    row: Row
    content: str = ""
    tree: xr.DataTree | None = None


@dataclass(frozen=True, eq=False)
class Folder:
    """An open folder. Only `runs` changes, and the files with it.

    Attributes
    ----------
    path : Path
    root : int
        The number that all seeds come from.
    arguments : dict of str to str
        Of `sample`, as text.
    runs : dict
        By name: the hash of the model, the file of the draws or None, and the numbers of the row.
    """

    path: Path
    root: int
    arguments: dict[str, str]
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)

    def finished(self, name: str) -> Row | None:
        """Row of a run that was done before; failed ones are to be tried again."""
        run = self.runs.get(name)
        if run is None or run["row"]["verdict"] == FAILED:
            return None
        return Row(**from_plain(run["row"]))

    def file_of(self, name: str) -> str:
        """Path of the draws of a run; empty where there are none.

        The index says whether there are some. What else it names would be opened by who reads them.
        """
        written = self.runs.get(name, {}).get("file")
        return str(self.path / file_name(name)) if written else ""

    def check_content(self, name: str, content: str) -> None:
        """Refuse a run that was done before with another model or other data.

        Raises
        ------
        DataMismatchError
        """
        if self.runs[name]["model"] != content:
            raise DataMismatchError(
                f"{self.path} has a run {name!r} of another model or other data, and nothing in it "
                "is written over: give the run another name, or another path."
            )

    def add(self, name: str, done: Done) -> None:
        """Write a run that has ended: first its draws, then the index."""
        file = None
        if done.tree is not None:
            file = file_name(name)
            part = self.path / f".{file}.part"
            done.tree.to_netcdf(part)
            part.replace(self.path / file)
        self.runs[name] = {"model": done.content, "file": file, "row": to_plain(asdict(done.row))}
        self.write_index()

    def write_index(self) -> None:
        """Write the index anew; who reads meanwhile finds the old one or the new one."""
        content = {
            "form": FORM,
            "versions": versions_here(),
            "random_seed": self.root,
            "arguments": self.arguments,
            "runs": self.runs,
        }
        part = self.path / f".{INDEX}.part"
        part.write_text(json.dumps(content, indent=1), encoding="utf-8")
        part.replace(self.path / INDEX)


@contextmanager
def open_folder(
    path: str | os.PathLike[str],
    random_seed: int | None,
    fresh: int,
    arguments: Mapping[str, Any],
    *,
    draws: bool,
) -> Iterator[Folder]:
    """Open the folder of a call, new or from an earlier one, for this process alone.

    Parameters
    ----------
    path : path-like
    random_seed : int, optional
        As given; without one an earlier call's goes on.
    fresh : int
        The number that seeds come from in a new folder.
    arguments : mapping
        Of `sample`.
    draws : bool
        Whether draws are to be written.

    Raises
    ------
    ArgumentError
        Draws cannot be written without h5netcdf or netCDF4.
    DataMismatchError
        The folder has something else in it, or runs with other arguments or another seed.
    OSError
        It cannot be made or written to.
    """
    path = Path(path)
    if draws and not (find_spec("h5netcdf") or find_spec("netCDF4")):
        raise ArgumentError(
            "The draws of a run are written as netCDF, which h5netcdf is needed for: pip install "
            '"pymc-tempering[netcdf]", or give save_draws=False.'
        )
    if path.exists() and not path.is_dir():
        raise DataMismatchError(
            f"path {str(path)!r} is a file: give a folder, new or of such runs."
        )
    path.mkdir(parents=True, exist_ok=True)
    if not (path / INDEX).exists() and any(p.name != LOCK for p in path.iterdir()):
        raise DataMismatchError(
            f"path {str(path)!r} has files and no {INDEX}, so it is no folder of such runs: give a "
            "new or an empty one."
        )
    lock = FileLock(path / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise DataMismatchError(
            f"Another process is at work in {str(path)!r}: wait for it, or give another path."
        ) from error
    try:
        words = {k: re.sub(r"0x[0-9a-f]+", "0x", repr(v)) for k, v in sorted(arguments.items())}
        folder = _read(path, random_seed, words) or Folder(path, fresh, words)
        folder.write_index()
        yield folder
    finally:
        lock.release()


def _read(path: Path, random_seed: int | None, arguments: dict[str, str]) -> Folder | None:
    """Return the folder as an earlier call left it, or None where there was none."""
    try:
        stored = json.loads((path / INDEX).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise DataMismatchError(
            f"{path / INDEX} cannot be read ({error}): it is damaged, or of another program. Give "
            "another path."
        ) from error
    if not isinstance(stored, dict) or stored.get("form") != FORM:
        raise DataMismatchError(f"{path / INDEX} is not of pmt.sample_many: give another path.")
    root = int(stored["random_seed"])
    if random_seed is not None and random_seed != root:
        raise DataMismatchError(
            f"The runs in {str(path)!r} have random_seed={root}, not {random_seed}: give that one "
            "or none to go on with them, or another path."
        )
    if stored["arguments"] != arguments:
        before = ", ".join(f"{k}={v}" for k, v in stored["arguments"].items()) or "none"
        raise DataMismatchError(
            f"The runs in {str(path)!r} were made with other arguments of sample ({before}): give "
            "the same ones to go on with them, or another path."
        )
    return Folder(path, root, arguments, stored["runs"])


def file_name(name: str) -> str:
    """File of the draws of a run: letters of its name, and a hash where names look alike."""
    letters = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:MOST_LETTERS].lstrip(".")
    return f"{letters}-{sha256(name.encode()).hexdigest()[:8]}.nc"
