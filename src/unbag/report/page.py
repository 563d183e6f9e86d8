"""Rendering of a summary as one HTML page that needs no other file."""

from __future__ import annotations

from typing import Any

from unbag._utils.pages import environment
from unbag._utils.terminal import visible
from unbag.report import sections
from unbag.report.column_sections import importance, unsure
from unbag.report.label_section import labels
from unbag.report.outcome_section import outcome
from unbag.report.overview import careful, overview
from unbag.report.page_elements import Section
from unbag.report.quality import quality
from unbag.report.summary import FORMAT


def render(summary: dict[str, Any]) -> str:
    """Return a report as one HTML page: no network, no other file; the same page for the same summary.

    Control characters and those that change the direction of text are written as escapes: names of files, columns and
    classes may hold them.

    Examples
    --------
    >>> import numpy as np
    >>> import unbag
    >>> from unbag.report import summarise
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> clf = unbag.AggregateClassifier(model="mlp", epochs=2, random_state=0).fit(X, X[:, 0] > 0)
    >>> page = render(summarise(clf, X, X[:, 0] > 0, title="Signs", inputs={}))
    >>> page[:15], "<title>Signs</title>" in page
    ('<!doctype html>', True)
    """
    check_format(summary)
    try:
        parts = _sections(summary)
        template = environment("unbag.report").get_template("report.html.j2")
        version = summary["versions"]["unbag"]
        page = template.render(title=summary["title"], overview=overview(summary), sections=parts, version=version)
        return visible(page, keep="\n")
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"the summary is not as unbag writes it: {error!r}; make it again with unbag fit") from error


def check_format(summary: Any) -> None:
    """Refuse what is no summary, or one of a later version."""
    written = summary.get("format") if isinstance(summary, dict) else None
    if not isinstance(written, int) or isinstance(written, bool) or written < 1:
        raise ValueError("this is no summary of a run: it names no format")
    if written > FORMAT:
        raise ValueError(
            f"the summary was written by a later version of unbag, in format {written}; this one reads up to {FORMAT}: "
            "upgrade unbag"
        )


def _sections(summary: dict[str, Any]) -> list[Section]:
    n_sets = len(summary["sets"])
    parts = [
        quality(summary),
        labels(summary),
        sections.comparison(summary),
        *(outcome(one, place, n_sets) for place, one in enumerate(summary["sets"])),
        sections.balance(summary),
        importance(summary),
        unsure(summary),
        careful(summary),
        sections.data(summary),
        sections.training(summary),
        sections.settings(summary),
    ]
    return [part for part in parts if part is not None]
