"""The page of published counts, ``docs/published.md`` and its picture, from ``results/published.jsonl`` alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unbag._utils.pages import describe, environment
from unbag._utils.pages.tables import Cell as Entry
from unbag._utils.pages.tables import Table
from unbag_experiments.fits.page import MISSING, write_pages
from unbag_experiments.plots import line_plot
from unbag_experiments.provenance import provenance
from unbag_experiments.published.cells import FOLDS, PENALTIES, ROWS
from unbag_experiments.published.plan import (
    DRAWS,
    EPSILONS,
    GROUPS,
    METHODS,
    PLACES,
    PUBLISHED,
    SENSITIVITY,
    SETS,
    Cell,
)
from unbag_experiments.published.runner import read
from unbag_experiments.render import markdown_table
from unbag_experiments.result_tables import provenance_table

MEASURES = {"accuracy": "accuracy", "auc": "area under the ROC curve"}
PICTURE = "results/published.svg"
NEAR = 1.0
"""Points by which the likelihood must be below another way to be named."""
ROUNDING = 0.05
"""Points below which tables show no difference."""

Place = tuple[str, int, str, str]
"""Set, size, grouping, and how counts were published."""
Means = Mapping[Place, Mapping[str, np.ndarray]]
"""For each place, the mean over draws of each measure in percent, by method; only where all methods have been run."""


def write(results: Path, docs: Path) -> list[Path]:
    """Write the page and its picture, and return their paths; the same results give the same bytes."""
    return write_pages(render(read(results)), docs)


def render(lines: Mapping[Cell, Mapping[str, Any]]) -> dict[str, str]:
    """Make the text of the page and of its picture, by their paths.

    Examples
    --------
    >>> "0 of 105 cells" in render({})["published.md"]
    True
    """
    means = average(lines)
    picture, description = _picture(means)
    page = _templates.get_template("published.md.j2").render(
        n_cells=len(means),
        n_planned=len(PLACES) * len(PUBLISHED),
        draws=sorted({_n_draws(lines, place) for place in means}),
        constants={"draws": DRAWS, "sensitivity": SENSITIVITY, "rows": ROWS, "folds": FOLDS, "penalties": PENALTIES},
        claims={title: _claim(means, place) for place, title in enumerate(MEASURES.values())},
        development=[name for name, development in SETS.items() if development],
        final=[name for name, development in SETS.items() if not development],
        picture=PICTURE,
        description=description,
        summaries={title: _summary(means, place) for place, title in enumerate(MEASURES.values())},
        below=_below(means),
        worst=f"{max((_lost(of).max() for of in means.values()), default=0.0):.1f}",
        without={
            name: _claim({place: of for place, of in means.items() if place[0] != name}, 0)
            for name in sorted({place[0] for place in means})
        },
        near=f"{NEAR:g}",
        provenance=provenance_table(provenance(lines.values())),
    )
    return {"published.md": page, PICTURE: describe(picture, description)}


def average(lines: Mapping[Cell, Mapping[str, Any]]) -> Means:
    """Average over the draws that all methods have."""
    by_place: dict[Place, dict[str, dict[int, list[float]]]] = {}
    for cell, line in lines.items():
        of_place = by_place.setdefault(_place(cell), {})
        of_place.setdefault(cell.method, {})[cell.seed] = [100 * line[measure] for measure in MEASURES]
    means = {}
    for place, of_methods in by_place.items():
        draws = set.intersection(*(set(of_methods.get(method, ())) for method in METHODS))
        if draws:
            means[place] = {
                method: np.mean([of_methods[method][draw] for draw in sorted(draws)], 0) for method in METHODS
            }
    return means


def _place(cell: Cell) -> Place:
    return cell.set, cell.size, cell.grouping, cell.published


def _n_draws(lines: Mapping[Cell, Any], place: Place) -> int:
    return sum(_place(cell) == place for cell in lines) // len(METHODS)


def _differences(means: Means, measure: int, how: str) -> np.ndarray:
    """Return by how much the likelihood is above repair and match in the cells of one strength, (cells, 2)."""
    own = [of for place, of in means.items() if place[3] == how]
    return np.array([[of["likelihood"][measure] - of[other][measure] for other in METHODS[1:]] for of in own])


def _claim(means: Means, measure: int) -> str:
    """Say where the likelihood is not at or above the other two, on average over cells."""
    below = []
    for how in PUBLISHED:
        above = _differences(means, measure, how)
        if len(above):
            below += [
                f"{how} ({difference:+.1f} to the {other})"
                for other, difference in zip(METHODS[1:], above.mean(0), strict=True)
                if difference <= -ROUNDING
            ]
    return ", ".join(below) or "none of the kinds"


def _summary(means: Means, measure: int) -> Table:
    rows = []
    for how in PUBLISHED:
        own, above = [of for place, of in means.items() if place[3] == how], _differences(means, measure, how)
        if not own:
            rows.append((how, "0", *[MISSING] * 6))
            continue
        averages = [f"{np.mean([of[method][measure] for of in own]):.1f}" for method in METHODS]
        at_or_above = int((above > -ROUNDING).all(1).sum())
        rows.append(
            (how, str(len(own)), *averages, *(f"{one:+.1f}" for one in above.mean(0)), f"{at_or_above} of {len(own)}")
        )
    headings = ("Counts", "Cells", *map(str.title, METHODS), "To repair", "To match", "At or above both")
    return _table(headings, rows)


def _below(means: Means) -> Table | None:
    rows = []
    for place, of in sorted(means.items()):
        if _lost(of).max() > NEAR:
            rows.append((place[0], f"{place[1]} {place[2]}", place[3], *(f"{-value:+.1f}" for value in _lost(of))))
    return _table(("Set", "Groups", "Counts", "Accuracy", "Area"), rows, texts=3) if rows else None


def _lost(of: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return by how much the likelihood is below the better of the other two, for each measure."""
    return np.maximum(of["repair"], of["match"]) - of["likelihood"]


def _picture(means: Means) -> tuple[str, str]:
    """Draw accuracy by epsilon, on average over sets that have been run, with exact counts as a line."""
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for size, grouping in GROUPS:
        whole = [name for name in SETS if all((name, size, grouping, how) in means for how in PUBLISHED)]
        if not whole:
            continue

        def of(how: str, method: str, group: tuple[int, str] = (size, grouping), sets: Sequence[str] = whole) -> float:
            return float(np.mean([means[name, *group, how][method][0] for name in sets]))

        lines = {method: [(epsilon, of(f"epsilon {epsilon:g}", method)) for epsilon in EPSILONS] for method in METHODS}
        lines["exact counts"] = [(epsilon, of("exact", "likelihood")) for epsilon in (EPSILONS[0], EPSILONS[-1])]
        panels[f"groups of {size} {grouping} rows, mean of {len(whole)} sets"] = lines
    description = (
        "Accuracy by epsilon for the likelihood, repaired counts and matched shares, and that of exact counts, one "
        "panel for each kind of groups. All figures are in the tables."
    )
    return line_plot(panels, "epsilon", "accuracy in percent"), description


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> Table:
    return Table("", columns, [[Entry(text) for text in row] for row in rows], numeric=columns[texts:])


_templates = environment("unbag_experiments", autoescape=False, table=markdown_table)
