"""Every file and module of this project that a text names exists."""

import re
from importlib import import_module, util
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = "pymc_tempering"
FOLDERS = (PACKAGE, "tests", "benchmarks", "docs", "examples", "tools", "conda")

PATTERNS = ("*.md", "docs/**/*.md", "docs/**/*.rst", *(f"{folder}/**/*.py" for folder in FOLDERS))
NOT_READ = {"CHANGELOG.md", "tests/project/test_mentions.py", "tests/model/test_sources.py"}
"""The first names what is gone, the others plant what never was."""

BUILT_FOLDERS = {"_build", "generated"}

TEXTS = {
    str(path.relative_to(PROJECT)): path.read_text(encoding="utf-8")
    for pattern in PATTERNS
    for path in sorted(PROJECT.glob(pattern))
    if not BUILT_FOLDERS & set(path.parts) and str(path.relative_to(PROJECT)) not in NOT_READ
}

BUILT = ("docs/_build",)
"""Where files are only after a build."""

# From the root of the project; or in backquotes the end of a path, as in `evidence/bar.py`.
FULL_PATH = re.compile(rf"(?<![\w./*-])(?:{'|'.join(FOLDERS)})/[\w./*-]*")
END_OF_PATH = re.compile(r"`((?:\w+/)*\w+\.(?:py|md|rst|csv))(?:`| )")
DOTTED = re.compile(rf"(?<![\w./-]){PACKAGE}(?:\.[A-Za-z_]\w*)+")

FILES = sorted(
    f"/{path.relative_to(PROJECT)}"
    for path in [*PROJECT.glob("*.*"), *(p for f in FOLDERS for p in (PROJECT / f).rglob("*.*"))]
)


def is_file(path):
    """Whether a path from the root of the project, or a pattern of such, is there."""
    path = path.rstrip("./")
    return path.startswith(BUILT) or any(PROJECT.glob(path))


def is_name(dotted):
    """Whether a dotted name is a module of the package, or something in one."""
    parts = dotted.split(".")
    place = next(n for n in range(len(parts), 0, -1) if _is_module(".".join(parts[:n])))
    value = import_module(".".join(parts[:place]))
    for part in parts[place:]:
        if not hasattr(value, part):
            return part in getattr(value, "__annotations__", {})
        value = getattr(value, part)
    return True


def _is_module(name):
    try:
        return util.find_spec(name) is not None
    except ModuleNotFoundError:  # the name before the last dot is no package
        return False


def missing(text):
    """Names in a text of which there is no file or module."""
    yield from (path for path in FULL_PATH.findall(text) if not is_file(path))
    for end in END_OF_PATH.findall(text):
        if not any(file.endswith(f"/{end}") for file in FILES):
            yield end
    yield from (name for name in set(DOTTED.findall(text)) if not is_name(name))


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_text_names_is_there(name):
    assert not list(missing(TEXTS[name]))


@pytest.mark.parametrize(
    "text",
    [
        "see `pymc_tempering/core/nowhere.py`",
        "run tests/nowhere/test_it.py.",
        "benchmarks/nobody.py --draws 3",
        "the table is `benchmarks/results/nobody.md`",
        "`nowhere.py` holds it",
        "`core/bar.py` is in another folder",
        ":func:`pymc_tempering.nowhere`",
        "pymc_tempering.core.ladder.Nobody",
        "pymc_tempering.nowhere.Ladder.betas",
    ],
)
def test_a_planted_wrong_name_is_found(text):
    assert list(missing(text))


@pytest.mark.parametrize(
    "text",
    [
        "`pymc_tempering/core/`, docs/explanation/kernels.md.",
        "tests/core/test_*.py",
        "`evidence/bar.py` and `test_ladder.py`",
        "pymc_tempering.core.ladder.Ladder.betas",
        "pip install git+https://example.org/pymc_tempering/nowhere.py",
    ],
)
def test_right_names_pass(text):
    assert not list(missing(text))
