"""Rendering of a summary as one HTML page that needs no other file."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from unbag._utils.pages import describe, environment
from unbag._utils.terminal import visible
from unbag.report.elements import Plot
from unbag.report.overview import make_overview
from unbag.report.plots import draw
from unbag.report.sections import make_sections
from unbag.report.summary import FORMAT


def render(summary: dict[str, Any]) -> str:
    """Render a report as one HTML page, which needs no network and no other file.

    The same summary gives the same page. Control characters, and characters that change the direction of text, are
    shown as escapes; names of files, columns and classes may contain them.
    """
    check_format(summary)
    try:
        sections = make_sections(summary)
        page = (
            environment("unbag.report")
            .get_template("report.html.j2")
            .render(
                title=summary["title"],
                overview=make_overview(summary),
                sections=[(section, [*map(_draw, section.plots)]) for section in sections],
                version=summary["versions"]["unbag"],
            )
        )
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"the summary is not one that unbag wrote: {error!r}; run unbag fit again") from error
    return visible(page, keep="\n")


def _draw(plot: Plot) -> tuple[Markup, str]:
    """Return a plot with its text alternative, and its caption."""
    return Markup(describe(draw(plot.kind, plot.arguments), plot.description)), plot.caption


def check_format(summary: Any) -> None:
    """Raise an error unless this is a summary in the form of this version."""
    written = summary.get("format") if isinstance(summary, dict) else None
    if not isinstance(written, int) or isinstance(written, bool) or written < 1:
        raise ValueError("this is not a summary of a run: it has no format")
    if written != FORMAT:
        what = "run unbag fit again" if written < FORMAT else "upgrade unbag"
        raise ValueError(f"the summary has format {written}, but this version of unbag reads format {FORMAT}; {what}")
