"""Print the `raise` statements of the package that no test has run; fail if there are any.

    COVERAGE_CORE=sysmon python -m pytest --cov --cov-report= --cov-fail-under=0
    python tools/unraised.py

Reads what `coverage` recorded. What the settings in pyproject.toml leave out is left out here, too:
functions that Numba compiles, and lines with `pragma: no cover`.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import coverage

PROJECT = Path(__file__).resolve().parents[1]


def messages(source: str, missing: set[int]) -> Iterator[tuple[int, str]]:
    """Line and text of each `raise` among the missing lines; one without an exception is none."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and node.exc is not None and node.lineno in missing:
            yield node.lineno, " ".join(ast.unparse(node).split())


def main() -> int:
    """Print file, line and beginning of each, and return how many there are."""
    data = coverage.Coverage(config_file=str(PROJECT / "pyproject.toml"))
    data.load()
    n = 0
    for path in sorted((PROJECT / "pymc_tempering").rglob("*.py")):
        missing = set(data.analysis2(str(path))[3])
        for line, text in sorted(messages(path.read_text(encoding="utf-8"), missing)):
            print(f"{path.relative_to(PROJECT)}:{line}: {text[:150]}")
            n += 1
    print(f"{n} raise statements that no test has run")
    return n


if __name__ == "__main__":
    sys.exit(main() > 0)
