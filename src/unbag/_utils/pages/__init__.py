"""Pages of one file: templates, plots as SVG in the colours of the page, and tables that sort."""

import io
import re
from collections.abc import Mapping
from html import escape
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure


def environment(package: str, *, autoescape: bool = True, **filters: Any) -> Environment:
    """Return an environment for the templates of a package, which may include those that all pages share."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("unbag._utils.pages")]),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(filters)
    return made


def to_svg(figure: Figure) -> str:
    """Return a figure as SVG, without the prolog, dates, names of programs, and spaces at the ends of lines.

    Set ``svg.fonttype`` to none, and ``svg.hashsalt``, from which ids are made.
    """
    file = io.StringIO()
    FigureCanvasSVG(figure).print_svg(file, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = re.sub(r" +\n", "\n", file.getvalue())
    return text[text.index("<svg ") :].rstrip() + "\n"


def recolour(svg: str, colours: Mapping[str, str]) -> str:
    """Replace colours of a plot by those of the page, which differ between light and dark mode."""
    for drawn, shown in colours.items():
        svg = svg.replace(drawn, shown)
    return svg


def describe(svg: str, description: str) -> str:
    """Add a text alternative to a plot."""
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(description)}"', 1)
