"""Write the repository's address, which pyproject.toml holds, wherever it is needed.

    python tools/address.py

These are the links of the package's page (`[project.urls]`), a badge and the links of the README,
which lead nowhere on the package's page unless they are absolute, and CITATION.cff. Without an
address they are taken out again. docs/conf.py reads the setting at each build, for `page_links`.
"""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
BRANCH = "main"


def address_in(pyproject: str) -> str:
    """Return the address, without a slash at its end; an empty one where there is none."""
    address: str = tomllib.loads(pyproject)["tool"]["pymc_tempering"]["address"]
    return address.rstrip("/")


def urls(text: str, address: str) -> str:
    """Return pyproject.toml with the links of the package's page."""
    pages = {
        "Source": "",
        "Changelog": f"/blob/{BRANCH}/CHANGELOG.md",
        "Issues": "/issues",
    }
    lines = [f'{name} = "{address}{page}"\n' for name, page in pages.items()] if address else []
    return re.sub(r"(?<=^\[project\.urls\]\n)(\w+ = .*\n)*", "".join(lines), text, flags=re.M)


def readme(text: str, address: str) -> str:
    """Return the README with a badge and absolute links, or with neither."""
    text = re.sub(r"\]\(https?://[^)\s]+?/blob/\w+/([^)]+)\)", r"](\1)", text)
    text = re.sub(r"^\[!\[tests\].*\n\n", "", text, flags=re.M)
    if not address:
        return text
    text = re.sub(r"\]\((?!https?:|#)([^)]+)\)", rf"]({address}/blob/{BRANCH}/\1)", text)
    flow = f"{address}/actions/workflows/tests.yml"
    title, rest = text.split("\n\n", 1)
    return f"{title}\n\n[![tests]({flow}/badge.svg)]({flow})\n\n{rest}"


def citation(text: str, address: str) -> str:
    """Return CITATION.cff with the address."""
    text = re.sub(r"^repository-code: .*\n", "", text, flags=re.M)
    line = f"repository-code: {address}\n" if address else ""
    return text.replace("abstract:", f"{line}abstract:", 1)


def page_links(address: str) -> list[dict[str, str]]:
    """Return the links at the head of each page of the documentation."""
    if not address:
        return []
    return [{"name": "Source", "url": address, "icon": "fa-solid fa-code-branch"}]


WRITERS = {"pyproject.toml": urls, "README.md": readme, "CITATION.cff": citation}
"""What changes each file."""


def main() -> None:
    """Write the files."""
    address = address_in((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    for name, write in WRITERS.items():
        path = PROJECT / name
        path.write_text(write(path.read_text(encoding="utf-8"), address), encoding="utf-8")


if __name__ == "__main__":
    main()
