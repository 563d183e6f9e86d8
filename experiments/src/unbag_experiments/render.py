"""The pages of results, in Markdown and in HTML, and their plots, from ``results/*.jsonl`` alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup

from unbag._utils.files import write_atomic
from unbag._utils.pages import describe, environment
from unbag._utils.pages.tables import NONE, Table
from unbag_experiments import plots
from unbag_experiments.baselines import METHODS
from unbag_experiments.comparison import Comparison, compare
from unbag_experiments.paper import PAPER
from unbag_experiments.plan import select
from unbag_experiments.result_page import view
from unbag_experiments.results import read

NOTES = "NOTES.md"
BEFORE = "before"
TEMPLATES = Path(__file__).parent / "templates"

CLAIMS = ("<!-- the first lines of docs/results.md -->", "<!-- end of these lines -->")
"""Between these marks, README quotes the results."""

MADE = "Made by `unbag reproduce render`"
"""By these words of the page in Markdown, an earlier one is known."""


def write(results: Path, docs: Path) -> list[Path]:
    """Write the comparison with the paper as Markdown, as one HTML page and as plots, and return their paths.

    The same results give the same bytes. What ``NOTES.md`` beside the results says becomes part of both pages.
    """
    notes, page = results / NOTES, docs / "results.md"
    if page.exists() and MADE not in page.read_text("utf-8", errors="replace"):
        raise FileExistsError(f"{page} was not made by unbag reproduce render, and is not replaced; move it elsewhere")
    pages = render(
        compare(read(results), PAPER, select()),
        before=read_before(results),
        titles={name: method.title for name, method in METHODS.items()},
        notes=notes.read_text("utf-8") if notes.exists() else "",
    )
    (docs / "results").mkdir(parents=True, exist_ok=True)
    written = {docs / name: text for name, text in pages.items()}
    if (readme := docs.parent / "README.md").exists():
        written[readme] = quote_claims(readme.read_text("utf-8"), pages["results.md"])
    for path, text in written.items():
        write_atomic(path, text.encode())
    return list(written)


def quote_claims(readme: str, page: str) -> str:
    r"""Put the numbered lines that a page of results begins with between two marks of another page, if that has them.

    Examples
    --------
    >>> quote_claims(f"{CLAIMS[0]}\nold\n{CLAIMS[1]}", "# Results\n\n1. One.\n\n1. Not.").splitlines()[1:-1]
    ['1. One.']
    """
    lines = [line for line in page.split("\n\n")[1].splitlines() if re.match(r"\d\. ", line)]
    pattern = f"(?<={CLAIMS[0]}\n).*?(?={CLAIMS[1]})"
    return re.sub(pattern, lambda _: "".join(f"{line}\n" for line in lines), readme, flags=re.DOTALL)


def read_before(results: Path) -> list[dict[str, Any]]:
    """Return the trials from before the plan, whatever their form."""
    paths = sorted((results / BEFORE).glob("*.jsonl"))
    return [json.loads(text) for path in paths for text in path.read_text("utf-8").splitlines()]


def render(
    comparison: Comparison, titles: Mapping[str, str], notes: str = "", before: Sequence[Mapping[str, Any]] = ()
) -> dict[str, str]:
    """Make the text of every file that shows a comparison, by its path.

    Trials from ``before`` the plan are counted and not compared.

    Examples
    --------
    >>> pages = render(Comparison((), ()), titles={}, notes="# Why")
    >>> "### Why" in pages["results.md"], "<h3>Why</h3>" in pages["results/tables.html"]
    (True, True)
    """
    shown = view(comparison, titles, before)
    notes = _demoted(notes)
    reading = (TEMPLATES / "reading.md").read_text("utf-8")
    drawn = [part.plot for section in shown.sections for part in section.parts if part.plot is not None]
    return {
        "results.md": _markdown.get_template("results.md.j2").render(view=shown, notes=notes, reading=reading.strip()),
        "results/tables.html": _html.get_template("results.html.j2").render(
            title="unbag: results beside the paper's",
            view=shown,
            notes=Markup(_reader.render(notes)),
            reading=Markup(_reader.render(reading)),
        ),
        **{f"results/{plot.name}.svg": describe(plot.svg, plot.description) for plot in drawn},
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


def _demoted(notes: str) -> str:
    """Put the headings of notes two levels down, below those of the page."""
    lines = notes.strip().splitlines()
    for token in _reader.parse("\n".join(lines)):
        if token.type == "heading_open" and token.map is not None and token.markup.startswith("#"):
            place = token.map[0]
            lines[place] = re.sub(r"#+", lambda match: "#" * min(len(match[0]) + 2, 6), lines[place], count=1)
    return "\n".join(lines)


# No raw HTML, and no pictures, which a page might have to fetch.
_reader = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
_markdown = environment("unbag_experiments", autoescape=False, table=markdown_table, plain=_plain)
_html = environment(
    "unbag_experiments", inline=lambda plot: Markup(plots.inline(plot.svg, plot.name, plot.description))
)
