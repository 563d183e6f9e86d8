"""Rendering of a summary as one HTML page that needs no other file."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from unbag._utils.pages import describe, environment
from unbag._utils.terminal import visible
from unbag.report.overview import make_overview
from unbag.report.plots import draw
from unbag.report.sections import make_sections
from unbag.report.summary import FORMAT


def render(summary: dict[str, Any]) -> str:
    """Render a report as one HTML page, which needs no network and no other file.

    The same summary gives the same page. Control characters, and characters that change the direction of text, are
    shown as escapes; names of files, columns and classes may contain them.

    Examples
    --------
    >>> import numpy as np
    >>> import unbag
    >>> from unbag.report import summarise
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> clf = unbag.AggregateClassifier(model="linear", random_state=0).fit(X, X[:, 0] > 0)
    >>> page = render(summarise(clf, X, X[:, 0] > 0, title="Signs", inputs={}))
    >>> page[:15], "<title>Signs</title>" in page
    ('<!doctype html>', True)
    """
    check_format(summary)
    try:
        sections = make_sections(summary)
        pictures = {
            section.id: [
                (Markup(describe(draw(plot.kind, f"{section.id}-{n}", plot.arguments), plot.description)), plot.caption)
                for n, plot in enumerate(section.plots)
            ]
            for section in sections
        }
        page = (
            environment("unbag.report")
            .get_template("report.html.j2")
            .render(
                title=summary["title"],
                overview=make_overview(summary),
                sections=sections,
                pictures=pictures,
                version=summary["versions"]["unbag"],
            )
        )
        return visible(page, keep="\n")
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(
            f"the summary does not have the form that unbag writes: {error!r}; run unbag fit again"
        ) from error


def check_format(summary: Any) -> None:
    """Raise an error unless this is a summary in the form of this version."""
    written = summary.get("format") if isinstance(summary, dict) else None
    if not isinstance(written, int) or isinstance(written, bool) or written < 1:
        raise ValueError("this is not a summary of a run: it has no format")
    if written != FORMAT:
        what = "run unbag fit again" if written < FORMAT else "upgrade unbag"
        raise ValueError(f"the summary has format {written}, but this version of unbag reads format {FORMAT}; {what}")
