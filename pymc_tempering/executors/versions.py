"""Versions that a worker must share with the process that sends it work."""

import platform
from collections.abc import Mapping

from pymc_tempering.core.installed import OWN, versions_of
from pymc_tempering.exceptions import WorkerError

PACKAGES = (OWN, "pymc", "pytensor", "numba")
"""Packages of which another version can give other numbers, or cannot read what is sent."""


def versions_here() -> dict[str, str]:
    """Return the versions in this process, by package; that of Python without its last number."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python} | versions_of(PACKAGES)


def refusal(sent: Mapping[str, str], found: Mapping[str, str], where: str) -> WorkerError:
    """Return the error that names all versions in which a worker differs.

    Parameters
    ----------
    sent, found : mapping of str to str
        Versions of the process that sent work, and of the worker.
    where : str
        Which worker it is.
    """
    apart = [
        f"{name} {found.get(name, 'none')} there and {version} here"
        for name, version in sent.items()
        if found.get(name) != version
    ]
    return WorkerError(
        f"A worker ({where}) has other versions: {', '.join(apart)}. Its numbers could be others "
        "too, so nothing was computed there: install the same versions on all workers."
    )


def no_package(sent: Mapping[str, str], error: ImportError) -> WorkerError:
    """Return the error for a worker that lacks this package, or a module that is sent to it."""
    name = (error.name or "").split(".")[0]
    version = f"{name} {sent[name]}" if name in sent else f"the module {name!r}"
    return WorkerError(
        f"A worker has no {name or 'module that is needed'} ({error}), where this process has "
        f"{version}: install the same packages on all workers, and define models and functions "
        "in a file that they can import, or in the script itself."
    )
