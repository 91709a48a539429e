"""Run a script by its name: `python benchmarks NAME [options]`; without a name, list them all."""

import ast
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def purpose(path: Path) -> str:
    """First line of a file's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n")[0]


def scripts() -> dict[str, Path]:
    """Files that can be run, by their names, in the order of their folders."""
    found = (p for p in sorted(HERE.glob("*/*.py")) if '__name__ == "__main__"' in p.read_text())
    return {path.stem: path for path in found}


def listing() -> str:
    """What there is, folder by folder."""
    lines, folder = [__doc__ or ""], None
    for name, path in scripts().items():
        if path.parent != folder:
            folder = path.parent
            lines += ["", f"{folder.name}: {purpose(folder / '__init__.py')}"]
        lines.append(f"  {name:18} {purpose(path)}")
    return "\n".join(lines)


def main() -> None:
    name, *options = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help"):
        print(listing())
        return
    if name.removesuffix(".py") not in scripts():
        sys.exit(f"There is no script {name!r}.\n{listing()}")
    path = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)  # for its processes, too
    script = str(scripts()[name.removesuffix(".py")])
    os.execv(sys.executable, [sys.executable, script, *options])


if __name__ == "__main__":
    main()
