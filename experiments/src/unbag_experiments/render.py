"""The pages of results, in Markdown and in HTML, and their plots, from ``results/*.jsonl`` alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from markdown_it import MarkdownIt
from markupsafe import Markup

from unbag._utils.files import write_atomic
from unbag._utils.pages import environment
from unbag._utils.pages.tables import NONE, Table
from unbag_experiments import plots
from unbag_experiments.baselines import METHODS
from unbag_experiments.comparison import Comparison, compare
from unbag_experiments.paper import PAPER
from unbag_experiments.plan import select
from unbag_experiments.result_page import PAGES, Section, view
from unbag_experiments.results import read

NOTES = "NOTES.md"
TEMPLATES = Path(__file__).parent / "templates"

MADE = "Made by `unbag reproduce render`"
"""By these words of the page in Markdown, an earlier one is known."""


def write(results: Path, docs: Path) -> list[Path]:
    """Write the comparison with the paper as Markdown, as one HTML page and as plots, and return their paths.

    The same results give the same bytes. What ``NOTES.md`` beside the results says becomes part of both pages.
    """
    notes = results / NOTES
    for page in (docs / f"{name}.md" for name in ("results", "results_history", *PAGES)):
        if page.exists() and MADE not in page.read_text("utf-8", errors="replace"):
            raise FileExistsError(
                f"{page} was not made by unbag reproduce render and is not replaced; move it elsewhere"
            )
    pages = render(
        compare(read(results), PAPER, select()),
        titles={name: method.title for name, method in METHODS.items()},
        notes=notes.read_text("utf-8") if notes.exists() else "",
    )
    (docs / "results").mkdir(parents=True, exist_ok=True)
    written = {docs / name: text for name, text in pages.items()}
    for path, text in written.items():
        write_atomic(path, text.encode())
    return list(written)


def render(comparison: Comparison, titles: Mapping[str, str], notes: str = "") -> dict[str, str]:
    """Make the text of every file that shows a comparison, by its path.

    Examples
    --------
    >>> pages = render(Comparison((), ()), titles={}, notes="## Why")
    >>> "## Why" in pages["results_history.md"], "<h2>Why</h2>" in pages["results/tables.html"]
    (True, True)
    """
    shown = view(comparison, titles)
    reading = (TEMPLATES / "reading.md").read_text("utf-8")
    named: dict[str, list[Section]] = {name: [] for name in PAGES}
    for section in shown.sections:
        named[next(name for name, (_, tables) in PAGES.items() if section.name.startswith(tables))].append(section)
    return {
        "results.md": _markdown.get_template("results.md.j2").render(view=shown, pages=PAGES),
        "results_history.md": _markdown.get_template("results_history.md.j2").render(view=shown, notes=notes),
        **{
            f"{name}.md": _markdown.get_template("results_page.md.j2").render(title=PAGES[name][0], sections=sections)
            for name, sections in named.items()
        },
        "results/tables.html": _html.get_template("results.html.j2").render(
            title="unbag: results beside the paper's",
            view=shown,
            notes=Markup(_reader.render(notes)),
            reading=Markup(_reader.render(reading)),
        ),
    }


def markdown_table(table: Table) -> str:
    """Write a table in Markdown whose columns also line up for those who read it as plain text."""
    numeric = [table.is_number(place) for place in range(len(table.columns))]
    lines = [
        [
            _cell(cell.text, table.emphasis.get(place) == "strong" and not right)
            for cell, right in zip(row, numeric, strict=True)
        ]
        for place, row in enumerate(table.rows)
    ]
    widths = [max(map(len, column)) for column in zip(table.columns, *lines, strict=True)]
    rule = [
        "-" * (width + 1) + ":" if right else ":" + "-" * (width + 1)
        for width, right in zip(widths, numeric, strict=True)
    ]

    def join(texts: Iterable[str]) -> str:
        padded = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(texts, widths, numeric, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    return "\n".join([join(table.columns), f"|{'|'.join(rule)}|", *map(join, lines)])


def _cell(text: str, strong: bool) -> str:
    return f"**{_plain(text)}**" if strong and text != NONE else _plain(text)


def _plain(text: str) -> str:
    """Write text in Markdown; what comes from files must neither end a cell nor begin a tag, a link or a heading."""
    return re.sub(r"([\\|<\[\]*`])", r"\\\1", " ".join(text.split()))


# No raw HTML, and no pictures, which a page might have to fetch.
_reader = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
_markdown = environment("unbag_experiments", autoescape=False, table=markdown_table, plain=_plain)
_html = environment(
    "unbag_experiments", inline=lambda plot: Markup(plots.inline(plot.svg, plot.name, plot.description))
)
