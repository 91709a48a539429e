"""Run every Python block of README.md and of the pages, each page as a script of its own.

``make snippets`` runs all, ``python docs/snippets.py README howto/report`` those with such names.
The blocks of a page follow each other in one namespace. It begins with the names that
``snippet_names.py`` has for the page: what a reader of it has already. A comment
``<!-- not run: the reason -->`` before a block leaves it out. Pages that are notebooks run when
the documentation is built.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>.+?) -->\n+)?^```python\n(?P<code>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
TIMEOUT = 1200  # seconds a page


def pages(names: list[str]) -> list[Path]:
    """Return the pages that have blocks, or those of them that are named."""
    docs = PROJECT / "docs"
    built = docs / "_build"
    files = [
        PROJECT / "README.md",
        *(p for p in sorted(docs.rglob("*.md")) if built not in p.parents),
    ]
    return [
        path
        for path in files
        if BLOCK.search(path.read_text("utf-8"))
        and (not names or any(n in str(path) for n in names))
    ]


def script(text: str, page: str) -> tuple[str, list[str]]:
    """Return the blocks of a page, each at the lines where it stands there, and what is not run."""
    lines = [""] * text.count("\n")
    lines[0] = f"from snippet_names import names; globals().update(names({page!r}))"
    skipped = []
    for match in BLOCK.finditer(text):
        if match["reason"]:
            skipped.append(match["reason"])
            continue
        first = text.count("\n", 0, match.start("code"))
        code = match["code"].splitlines()
        lines[first : first + len(code)] = code
    return "\n".join(lines), skipped


def run(path: Path) -> bool:
    """Run one page, and say how it went."""
    page = str(path.relative_to(PROJECT))
    code, skipped = script(path.read_text("utf-8"), page)
    places = [str(PROJECT / "docs"), str(PROJECT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "MPLBACKEND": "Agg",
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
    }
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{path.stem}.py"  # a file, since processes may import it
        file.write_text(code, encoding="utf-8")
        try:
            done = subprocess.run(
                [sys.executable, file.name],
                cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT,
            )  # fmt: skip
            fault = done.stderr if done.returncode else ""
        except subprocess.TimeoutExpired:
            fault = f"not done after {TIMEOUT} seconds\n"
    print(f"{'FAILED' if fault else 'ok':<7}{page}, {time.monotonic() - start:.0f} s", flush=True)
    for reason in skipped:
        print(f"       a block not run: {reason}")
    print(fault[-3000:], end="")  # line numbers are those of the page
    return not fault


def main(names: list[str]) -> int:
    """Return how many pages failed."""
    return sum(not run(path) for path in pages(names))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
