"""What a Python file imports from other libraries."""

import ast
from collections.abc import Iterator

PACKAGE = "pymc_tempering"


def foreign_imports(text: str) -> Iterator[str]:
    """Dotted names that a file imports from elsewhere."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] != PACKAGE)
