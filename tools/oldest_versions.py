"""Print the oldest versions that pyproject.toml allows, as a constraints file for pip.

    python tools/oldest_versions.py > oldest.txt
    python -m pip install -c oldest.txt ".[test]"

The file is made anew each time, so that it cannot differ from the bounds.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]

NOT_BOUNDED = ("docs", "lint", "dev", "bench")
"""Extras of those who work on the project; they take the newest."""

BOUND = re.compile(r"^(?P<name>[\w.-]+)(?:\[[\w,-]+\])?\s*>=\s*(?P<oldest>[\w.]+)")


def oldest_versions(project: dict[str, Any]) -> Iterator[str]:
    """Lines of a constraints file from the `[project]` table of a pyproject.toml."""
    wanted = list(project["dependencies"])
    for extra, names in project["optional-dependencies"].items():
        wanted += [] if extra in NOT_BOUNDED else names
    lines = set()
    for requirement in wanted:
        if not requirement.startswith(project["name"]):
            found = BOUND.match(requirement)
            if found is None:
                raise SystemExit(f"{requirement!r} in pyproject.toml has no lower bound.")
            lines.add(f"{found['name']}=={found['oldest']}")
    yield from sorted(lines)


if __name__ == "__main__":
    content = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    print("\n".join(oldest_versions(content["project"])))
