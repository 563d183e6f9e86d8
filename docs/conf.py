"""How Sphinx builds the site: ``python -m sphinx -W --keep-going -b html docs docs/_build``."""

from __future__ import annotations

import unbag

project = "unbag"
author = "the authors of unbag"
release = version = unbag.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"unbag {version}"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["unbag.css"]

# Types stand in the signature; members come in the order of the source, which is meant to be read.
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_rtype = False
# Parameters as they are written in the docstrings, without a link for every word of a type.
napoleon_use_param = False
napoleon_use_ivar = True
