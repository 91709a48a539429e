"""Sphinx extension that runs the code of a picture, and shows the code and the picture.

A ``picture`` directive holds a few lines of Python whose last one is a call that returns a
``PlotCollection``. The names that it may use are in ``NAMES``: made-up runs and results, small and
fixed. What the explanations show is in ``explained_runs``.
"""

import ast
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive, directives

FOLDER = "_build/pictures"


@cache
def names() -> dict[str, Any]:
    """Return what the code of pictures may use."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    import explained_runs
    import matplotlib
    from support import picture_runs

    import pymc_tempering as pmt

    matplotlib.use("Agg")
    fits = picture_runs.fits()
    return {
        "pmt": pmt,
        "idata": picture_runs.fitted_run(4, 400, strange=0),
        "missed": picture_runs.fitted_run(4, 400, strange=2),
        "from_prior": picture_runs.prior_run(4, 300),
        "check": picture_runs.estimates(),
        "runs": picture_runs.models(),
        "table": picture_runs.subsets(),
        "found": picture_runs.sensitivity(),
        "calibration": picture_runs.calibration(),
        "approx": fits["tempered"],
        "other": fits["advi"],
        "bridged": explained_runs.bridged(),
        "annealed": explained_runs.annealed(),
        "kernels": explained_runs.slow_kernels(),
    }


def draw(code: str, path: Path) -> None:
    """Run the code and save what its last line returns."""
    import matplotlib.pyplot as plt

    body = ast.parse(code).body
    assert isinstance(body[-1], ast.Expr), "the last line of a picture is a call"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # made-up runs are short on purpose
        scope = dict(names())
        exec(compile(ast.Module(body[:-1], []), "picture", "exec"), scope)
        collection = eval(compile(ast.Expression(body[-1].value), "picture", "eval"), scope)
    path.parent.mkdir(parents=True, exist_ok=True)
    collection.savefig(path, dpi=90)
    plt.close("all")


class Picture(Directive):
    """``picture``: its argument is the name of the file, an option the text for who cannot see."""

    has_content = True
    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"alt": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """Return the code and the image."""
        env = self.state.document.settings.env
        code = "\n".join(self.content)
        path = Path(env.srcdir) / FOLDER / f"{self.arguments[0]}.png"
        draw(code, path)
        block = nodes.literal_block(code, code, language="python")
        image = nodes.image(
            uri=f"/{FOLDER}/{path.name}", alt=self.options["alt"], classes=["picture"]
        )
        return [block, image]


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("picture", Picture)
    return {"parallel_read_safe": False}
