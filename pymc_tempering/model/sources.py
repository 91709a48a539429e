"""Which source files a compiled function can call into, and a hash of them all."""

import re
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from time import time

PACKAGE = Path(__file__).resolve().parents[1]

NO_CODE = re.compile(
    r'"""(?:\\.|[^\\])*?"""|' r"'''(?:\\.|[^\\])*?'''|"
    r'"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])*'|#[^\n]*|\\\n",
    re.S,
)  # fmt: skip
"""Strings, comments, and ends of lines that are none."""

IMPORTS = re.compile(
    rf"^[ \t]*(?:from[ \t]+({PACKAGE.name}[\w.]*)[ \t]+import\b[ \t]*(?:\(([^)]*)\)|([^\n]*))"
    rf"|import[ \t]+([^\n]*\b{PACKAGE.name}\b[^\n]*))",
    re.M,
)
"""An import from the package, wherever in a file it stands: of several names in parentheses, of
names in a line, or of modules."""

IMPORTED_AT = time()
"""Every module with compiled functions imports this one first."""


def hash_text(text: str) -> str:
    """Stable short hash of a source text."""
    return sha256(text.encode()).hexdigest()[:16]


def sources_of(file: Path) -> set[Path]:
    """Every file of the package that a module reaches by its imports, itself among them."""
    reached: set[Path] = set()
    waiting = [file.resolve()]
    while waiting:
        source = waiting.pop()
        if source not in reached:
            reached.add(source)
            waiting += imports_of(source)
    return reached


def hash_of_sources(*files: Path) -> str | None:
    """Hash of the texts of some modules and of all that they import from the package.

    Compiled code is cached under it. A function can call only what its module imports. So an
    edit of anything that it calls gives another hash, and stale code is never loaded.

    Returns
    -------
    str or None
        None where one of the files has changed since this process began to import them: what
        runs here may not be what the text says, and must not be kept under its hash.
    """
    reached = sorted(set[Path]().union(*map(sources_of, files)))
    if any(_changed_at(source) > IMPORTED_AT for source in reached):
        return None
    return hash_text("".join(f"{source.name}\n{_text(source)}" for source in reached))


@cache
def imports_of(file: Path) -> tuple[Path, ...]:
    """Files of the package that one file imports, wherever in it the import stands."""
    names = _imported_names(_text(file))
    return tuple(dict.fromkeys(source for name in names if (source := _file_of(name)) is not None))


@cache
def _text(file: Path) -> str:
    """Text of a file, read once: a later edit is not what this process has imported."""
    return file.read_text(encoding="utf-8")


def _changed_at(file: Path) -> float:
    """Time of the last change; a file that was put in its place keeps an old time of its text."""
    stat = file.stat()
    return max(stat.st_mtime, stat.st_ctime)


def _imported_names(text: str) -> Iterator[str]:
    """Dotted names of the package that a text imports, and the modules that it imports them from.

    By the lines alone: to parse all files takes longer than to import them.
    """
    for module, several, one, plain in IMPORTS.findall(NO_CODE.sub(" ", text)):
        if module:
            yield module
            yield from (
                f"{module}.{name}" for name in re.findall(r"(?:^|,)\s*(\w+)", several or one)
            )
        else:
            yield from re.findall(r"[\w.]+", plain)


def _file_of(name: str) -> Path | None:
    """File of a dotted name if it is a module of the package; a package stands for `__init__`."""
    top, *parts = name.split(".")
    if top != PACKAGE.name:
        return None
    place = PACKAGE.joinpath(*parts)
    files = (place / "__init__.py", place.with_suffix(".py"))
    return next((file for file in files if file.is_file()), None)
