"""Sphinx extension that links the words of the glossary where a page uses them first."""

import re
from typing import Any, ClassVar

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

WORDS = {
    "tour": r"tours?",
    "leg": r"legs?",
    "rung": r"rungs?",
    "cycle": r"cycles?",
    "barrier": r"barriers?",
    "ladder": r"ladders?",
    "scout": r"scouts?",
    "mcse": r"mcse",
    "nats": r"nats?",
}
"""Terms of the glossary, and the forms in which they are met in a text."""

HERE = re.compile(r"\b(?:" + "|".join(f"(?P<{t}>{w})" for t, w in WORDS.items()) + r")\b")
"""Any of them."""

NOT_INSIDE = (
    nodes.title,
    nodes.reference,
    nodes.literal,
    nodes.literal_block,
    nodes.math,
    nodes.math_block,
    nodes.comment,
    nodes.raw,
    nodes.citation,
    addnodes.glossary,
    addnodes.pending_xref,
    addnodes.desc_signature,
    addnodes.toctree,
    addnodes.highlightlang,
)
"""What a link would spoil."""

SKIPPED = ("start/glossary", "reference/", "developer/", "design")
"""Pages that explain the words, or are not meant to be read through."""


def link(term: str, word: str, docname: str) -> nodes.Node:
    """Return a link to a term, with the word that stands in the text."""
    reference = addnodes.pending_xref(
        "", refdomain="std", reftype="term", reftarget=term, refexplicit=True,
        refdoc=docname, refwarn=True,
    )  # fmt: skip
    reference += nodes.inline(word, word, classes=["glossary-word"])
    return reference


def pieces(text: nodes.Text, seen: set[str], docname: str) -> list[nodes.Node]:
    """Return the text with links in the place of words that the page has not used before."""
    found: list[nodes.Node] = []
    end = 0
    for match in HERE.finditer(str(text)):
        term = match.lastgroup
        if term is None or term in seen:
            continue
        seen.add(term)
        found += [nodes.Text(str(text)[end : match.start()]), link(term, match[0], docname)]
        end = match.end()
    return [*found, nodes.Text(str(text)[end:])] if found else []


def allowed(text: nodes.Text) -> bool:
    """Whether a text stands where a link does no harm."""
    node: Any = text.parent
    while node is not None:
        if isinstance(node, NOT_INSIDE):
            return False
        node = node.parent
    return True


class FirstUse(SphinxTransform):
    """Link each word once a page."""

    default_priority: ClassVar[int] = 400

    def apply(self, **kwargs: Any) -> None:
        """Change the page."""
        name = self.env.docname
        if name.startswith(SKIPPED):
            return
        seen: set[str] = set()
        for text in list(self.document.findall(nodes.Text)):
            if allowed(text) and (new := pieces(text, seen, name)):
                text.parent.replace(text, new)


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_transform(FirstUse)
    return {"parallel_read_safe": True}
