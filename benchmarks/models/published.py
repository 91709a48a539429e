"""Published data, by the names that the models give them, from published.json beside this file."""

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _all() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    return found


def published(name: str) -> Any:
    """Return numbers in lists, or a text; where they are from stands where they are used."""
    return _all()[name]
