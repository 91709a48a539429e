"""Every file in benchmarks/results is written by a script of benchmarks."""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
STEMS = sorted({path.stem for path in (BENCHMARKS / "results").iterdir()})


def names_in(source):
    """Patterns of the stems that the strings of a script can name, docstrings left out."""
    tree = ast.parse(source)
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in alone | inside:
                yield re.escape(re.sub(r"\.(csv|md|png)$", "", node.value))
        elif isinstance(node, ast.JoinedStr):
            parts = [v.value if isinstance(v, ast.Constant) else None for v in node.values]
            if parts[0] and re.fullmatch(r"\w{4,}", parts[0]):  # f"calibration_{reference}"
                yield "".join(r"\w+?" if p is None else re.escape(p) for p in parts)


PATTERNS = [
    p for path in sorted(BENCHMARKS.rglob("*.py")) for p in names_in(path.read_text("utf-8"))
]


def is_written(stem, patterns):
    """Whether some script can write a file of that name."""
    return any(re.fullmatch(pattern, stem) for pattern in patterns)


@pytest.mark.parametrize("stem", STEMS)
def test_a_script_writes_it(stem):
    assert is_written(stem, PATTERNS)


def test_planted_files_are_found():
    assert not is_written("nobody", PATTERNS)
    assert not is_written("calibration", [*names_in('"""calibration"""\nsave(f"calibration_{x}")')])
    assert not is_written("calibration_by_hand_too", names_in('save("calibration_by_hand")'))


PAGES = [
    *(BENCHMARKS / "results").glob("*.md"),
    *(p for p in (BENCHMARKS.parent / "docs").rglob("*.md") if "_build" not in p.parts),
]


def broken_tables(text):
    """Heads of tables whose rule has another number of columns: these show as raw text."""
    for head, rule in pairwise(text.splitlines()):
        is_table = re.fullmatch(r"\|[-:| ]+\|", rule) and head.startswith("|")
        if is_table and len(re.findall(r"(?<!\\)\|", head)) != rule.count("|"):
            yield head


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_tables_have_the_columns_of_their_heads(path):
    assert not list(broken_tables(path.read_text("utf-8")))


def test_a_bar_in_the_head_of_a_table_is_found():
    assert list(broken_tables("| a | max |b| |\n|---|---|\n| 1 | 2 |"))
    assert not list(broken_tables("| a | max \\|b\\| |\n|---|---|\n| 1 | 2 |"))
