"""Sphinx extension that draws formulas at the build, so that no page needs a network for them.

Each becomes an SVG in the color of the text around it, with its LaTeX for those who cannot see it.
"""

import html
from functools import cache
from typing import Any

import ziamath
from docutils import nodes

SIZE = 18
"""Of the letters, in pixels: that of the text."""


@cache
def drawing(latex: str, inline: bool) -> str:
    """Return a formula as SVG, which stands on the line of the text where it is inline."""
    ziamath.config.svg2 = False  # each drawing by itself, without names that a page has twice
    formula = ziamath.Latex(latex, size=SIZE, inline=inline, color="currentColor")
    place = f"vertical-align:{formula.getyofst():.2f}px" if inline else ""
    spoken = html.escape(" ".join(latex.split()), quote=True)
    svg = formula.svg().replace('"black"', '"currentColor"')  # lines above letters
    return svg.replace("<svg ", f'<svg role="img" aria-label="{spoken}" style="{place}" ', 1)


def inline_formula(translator: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    translator.body.append(f'<span class="formula">{drawing(node.astext(), True)}</span>')
    raise nodes.SkipNode


def block_formula(translator: Any, node: nodes.math_block) -> None:
    """Write a formula that has lines of its own."""
    parts = [drawing(part, False) for part in node.astext().split("\n\n") if part.strip()]
    translator.body.append(f'<div class="formula">{"<br>".join(parts)}</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_html_math_renderer("drawn", (inline_formula, None), (block_formula, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
