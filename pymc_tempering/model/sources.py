"""Which source files a compiled function can call into, and a hash of them all."""

import re
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]

_IMPORT = re.compile(
    rf"^[ \t]*(?:from[ \t]+({PACKAGE.name}[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)"
    rf"|import[ \t]+({PACKAGE.name}[\w.]*))",
    re.MULTILINE,
)


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


def hash_of_sources(*files: Path) -> str:
    """Hash of what modules and all that they import from the package say.

    Compiled code is cached under it. A function can call only what its module imports, so that an
    edit of anything that it calls gives another hash, and stale code is never loaded.
    """
    reached = sorted(set[Path]().union(*map(sources_of, files)))
    return hash_text("".join(f"{source.name}\n{source.read_text()}" for source in reached))


@cache
def imports_of(file: Path) -> tuple[Path, ...]:
    """Files of the package that one file imports, wherever in it the import stands."""
    return tuple(_imports_in(file.read_text(encoding="utf-8")))


def _imports_in(text: str) -> Iterator[Path]:
    for match in _IMPORT.finditer(text):
        module, names, plain = match.groups()
        if plain:
            yield from _file_of(plain)
            continue
        yield from _file_of(module)
        for name in re.findall(r"(\w+)(?:[ \t]+as[ \t]+\w+)?", names):
            yield from _file_of(f"{module}.{name}")


def _file_of(module: str) -> Iterator[Path]:
    """File of a dotted name, if it is a module; a package stands for its own file."""
    place = PACKAGE.joinpath(*module.split(".")[1:])
    if place.with_suffix(".py").is_file() and module.count("."):
        yield place.with_suffix(".py")
    elif module.count(".") and (place / "__init__.py").is_file():
        yield place / "__init__.py"
