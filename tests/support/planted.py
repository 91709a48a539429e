"""A compiled module of the package with a bug in its source, for checks that must see it."""

from pathlib import Path
from types import ModuleType
from typing import Any

from pytensor import config


def with_bug(module: ModuleType, right: str, wrong: str, after: str = "\n") -> dict[str, Any]:
    """Namespace of a module whose source has `wrong` in place of `right`.

    `right` stands there once behind the first `after`, by default the first line. None of the code
    is kept on disk: another process cannot read it, since no file tells the module's name.
    """
    before, mark, own = Path(str(module.__file__)).read_text().partition(after)
    assert own.count(right) == 1
    source = f"{before}{mark}{own.replace(right, wrong)}"
    namespace = {"__name__": "planted"}
    with config.change_flags(numba__cache=False):
        exec(compile(source, "planted", "exec"), namespace)
    return namespace
