"""The versions that the bits of a run depend on."""

from pymc_tempering.core.installed import OWN, versions_of
from pymc_tempering.exceptions import CheckpointError

PACKAGES = (OWN, "pymc", "pytensor", "numba", "numpy")
"""What computes densities and draws."""


def versions() -> dict[str, str]:
    """Versions of this package and of what it computes with."""
    return versions_of(PACKAGES)


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
