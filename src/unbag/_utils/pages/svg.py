"""Figures of matplotlib as SVG: the same bytes for the same figure, text that stays text, colours of the page."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from html import escape

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure


def to_svg(figure: Figure) -> str:
    """Return a figure as SVG, without the prolog, dates and names of programs, and spaces at the ends of lines.

    Call it where matplotlib is set to ``svg.fonttype`` none and some ``svg.hashsalt``, from which ids are made.
    """
    file = io.StringIO()
    FigureCanvasSVG(figure).print_svg(file, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = re.sub(r" +\n", "\n", file.getvalue())
    return text[text.index("<svg ") :].rstrip() + "\n"


def recolour(svg: str, colours: Mapping[str, str]) -> str:
    """Replace colours of a plot by those of the page, which differ between light and dark.

    Examples
    --------
    >>> recolour('<path style="fill: #1a1a1a"/>', {"#1a1a1a": "currentColor"})
    '<path style="fill: currentColor"/>'
    """
    for drawn, shown in colours.items():
        svg = svg.replace(drawn, shown)
    return svg


def describe(svg: str, description: str) -> str:
    """Say in a plot what it shows, for those who cannot see it.

    Examples
    --------
    >>> describe("<svg></svg>", "four dots & a line")
    '<svg role="img" aria-label="four dots &amp; a line"></svg>'
    """
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(description)}"', 1)
