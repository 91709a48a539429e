"""Sphinx settings; the build needs no network, so other projects are not cross-referenced."""

import logging
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for estimator_table and picture_directive

# Sphinx lets every logger speak; these two tell of each option that they read.
for name in ("pytensor", "arviz"):
    logging.getLogger(name).setLevel(logging.WARNING)

project = "pymc_tempering"
author = "The pymc_tempering developers"
copyright = author
version = release = installed_version("pymc-tempering")

extensions = [
    "estimator_table",
    "myst_parser",
    "numpydoc",
    "picture_directive",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # numpydoc's type lines say more: shapes and units
numpydoc_class_members_toctree = False
numpydoc_show_class_members = False

html_theme = "furo"
html_title = "pymc_tempering"
