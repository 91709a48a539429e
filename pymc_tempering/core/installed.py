"""Versions of what is installed, this package among it."""

import sys
from collections.abc import Iterable
from importlib import import_module

OWN = "pymc_tempering"


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Versions of packages by name; those that are not loaded yet are imported.

    Raises
    ------
    ImportError
        One is not installed.
    """
    modules = {name: sys.modules.get(name) or import_module(name) for name in packages}
    return {name: str(module.__version__) for name, module in modules.items()}


def own_version() -> str:
    """Version of this package, which is loaded by the time that anything asks."""
    return versions_of([OWN])[OWN]
