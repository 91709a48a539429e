"""How a result is shown in a notebook."""

import html
from typing import Any


def text_as_html(value: Any) -> str:
    """Return the text of a result, as `print` shows it, as HTML."""
    return f"<pre>{html.escape(repr(value))}</pre>"
