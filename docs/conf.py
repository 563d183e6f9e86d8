"""How Sphinx builds the site: ``python -m sphinx -W --keep-going -b html docs docs/_build``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import unbag

HERE = Path(__file__).parent

project = "unbag"
author = "the authors of unbag"
release = version = unbag.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown", ".ipynb": "markdown"}
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


def show_notebook(app: Sphinx, name: str, source: list[str]) -> None:
    """Turn a notebook into the Markdown of its cells and of the outputs that are kept in it; nothing is run."""
    path = Path(app.env.doc2path(name))
    if path.suffix == ".ipynb":
        cells = [_show_cell(cell) for cell in json.loads(source[0])["cells"]]
        source[0] = "\n\n".join([*cells, f"This page is a notebook: {{download}}`{path.name}`."])


def _show_cell(cell: dict[str, Any]) -> str:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return text
    return "\n\n".join([f"```python\n{text}\n```", *map(_show_output, cell["outputs"])])


def _show_output(output: dict[str, Any]) -> str:
    shown = {kind: "".join(content) for kind, content in output.get("data", {"text/plain": output.get("text")}).items()}
    if "image/png" in shown:
        return f"![What the code above draws](data:image/png;base64,{shown['image/png']})"
    if "text/html" in shown:
        return f"```{{raw}} html\n{shown['text/html']}\n```"
    return f"```text\n{shown['text/plain']}\n```"


def setup(app: Sphinx) -> None:
    """Connect the reader of notebooks."""
    app.connect("source-read", show_notebook)
