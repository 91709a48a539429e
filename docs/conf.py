"""Sphinx settings; the build needs no network, so other projects are not cross-referenced."""

import hashlib
import logging
import os
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parent / "tools")]

from address import address_in, page_links  # noqa: E402

# Sphinx lets every logger speak; these two tell of each option that they read.
for name in ("pytensor", "arviz"):
    logging.getLogger(name).setLevel(logging.WARNING)

project = "pymc_tempering"
author = "The pymc_tempering developers"
copyright = author
version = release = installed_version("pymc-tempering")

extensions = [
    "drawn_math",
    "estimator_table",
    "first_use",
    "myst_nb",
    "numpydoc",
    "picture_directive",
    "results_table",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb"}  # generated pages take the first

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3


def package_digest() -> str:
    """Return a fingerprint of the package: what notebooks showed is stale once it changes."""
    digest = hashlib.sha256()
    for path in sorted((HERE.parent / "pymc_tempering").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


# A page with a kernel in its head is a notebook: run at the build, again when it or the package
# has changed.
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "notebooks" / package_digest())
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_number_source_lines = False
# Kernels inherit this. The profile is our own, so that no setting of the builder's shows on a page.
# At this level a kernel keeps to itself that it talks to the builder over plain TCP. Warnings are
# shown without the builder's temporary file that a cell was stored in.
PROFILE = HERE / "_build" / "ipython" / "profile_default" / "ipython_kernel_config.py"
PROFILE.parent.mkdir(parents=True, exist_ok=True)
WARNING = "import warnings; warnings.formatwarning = lambda m, c, *a, **k: f'{c.__name__}: {m}\\n'"
PROFILE.write_text(
    "c.IPKernelApp.log_level = 40\nc.HistoryManager.enabled = False\n"
    f"c.InteractiveShellApp.exec_lines = [{WARNING!r}]\n"
)
os.environ["IPYTHONDIR"] = str(PROFILE.parents[1])
os.environ.setdefault("OMP_NUM_THREADS", "1")

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # numpydoc's type lines say more: shapes and units
autosummary_generate = True
autosummary_filename_map = {  # a function and a class of one name, on systems that ignore case
    "pymc_tempering.evidence.Bracket": "Bracket-class",
    "pymc_tempering.annealed.Sandwich": "Sandwich-class",
}
numpydoc_class_members_toctree = False
numpydoc_show_class_members = False

html_math_renderer = "drawn"  # at the build: a page needs no network to show a formula
html_theme = "pydata_sphinx_theme"
html_title = "pymc_tempering"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_show_sourcelink = False
html_sidebars = {"index": [], "gallery": []}
html_theme_options = {
    "logo": {"text": "pymc_tempering"},
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "navbar_center": ["navbar-nav"],
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher", "navbar-icon-links"],
    "icon_links": page_links(address_in((HERE.parent / "pyproject.toml").read_text("utf-8"))),
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
