"""The versions that the bits of a run depend on."""

import sys
from importlib.metadata import version

from pymc_tempering.exceptions import CheckpointError

PACKAGES = ("pymc", "pytensor", "numba", "numpy")
"""What computes densities and draws, beside this package."""


def own_version() -> str:
    """Version of this package."""
    release: str = sys.modules["pymc_tempering"].__version__  # the front, which none here imports
    return release


def versions() -> dict[str, str]:
    """Versions of this package and of what it computes with."""
    return {"pymc_tempering": own_version()} | {name: version(name) for name in PACKAGES}


def check_versions(stored: dict[str, str]) -> None:
    """Compare stored versions with those here.

    Raises
    ------
    CheckpointError
        Some differ; the message has both.
    """
    now = versions()
    other = [
        f"{name} {stored.get(name)} (here {now[name]})"
        for name in now
        if stored.get(name) != now[name]
    ]
    if other:
        raise CheckpointError(
            f"The run was begun with {', '.join(other)}, and another version may give other "
            "draws: go on with it where these versions are installed."
        )
