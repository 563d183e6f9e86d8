"""The page of default fits, ``docs/defaults.md`` and its pictures, from ``results/fits.jsonl`` alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from unbag._utils.files import write_atomic
from unbag._utils.pages import describe, environment
from unbag._utils.pages.tables import Cell, Table
from unbag_experiments.fits.comparison import (
    NEAR,
    SAID_FAR,
    Lines,
    Place,
    Standing,
    bag_areas,
    mean,
    places,
    scopes,
    standing,
)
from unbag_experiments.fits.grouping import FEWEST, GROUPINGS, MOST_TRAINING_ROWS, NOISE, SIZES
from unbag_experiments.fits.methods import ROWS_A_STEP, STEPS
from unbag_experiments.fits.plan import (
    BAG_METHODS,
    DRAWS,
    ENOUGH_TEST_ROWS,
    FEW_GROUPS,
    FEW_TEST_ROWS,
    MOST_DRAWS,
    TABLE_METHODS,
    skipped,
)
from unbag_experiments.fits.runner import read
from unbag_experiments.fits.sets import BAGS, IMAGES, SETS
from unbag_experiments.plots import strip_plot
from unbag_experiments.provenance import provenance
from unbag_experiments.render import markdown_table
from unbag_experiments.result_tables import provenance_table

MISSING = "missing"
TOO_FEW_TO_JUDGE = 10
"""Groups up to which the version of the library that was measured did not estimate its accuracy."""
TITLES = {
    "default": "Default",
    "linear": "Linear",
    "network": "Network",
    "trees": "Trees",
    "mean_proportions": "Match",
    "all_labels": "All labels",
    "forest": "Forest",
    "svm": "SVM",
}
PICTURE, SAID_PICTURE = "results/defaults.svg", "results/defaults_said.svg"


def write(results: Path, docs: Path) -> list[Path]:
    """Write the page and its pictures, and return their paths; the same results give the same bytes."""
    return write_pages(render(read(results)), docs)


def write_pages(pages: Mapping[str, str], docs: Path) -> list[Path]:
    """Write texts by their paths in a folder, and return these."""
    for name, text in pages.items():
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(docs / name, text.encode())
    return [docs / name for name in pages]


def render(lines: Lines) -> dict[str, str]:
    """Make the text of the page and of its pictures, by their paths.

    Examples
    --------
    >>> "0 of 86 cells" in render({})["defaults.md"]
    True
    """
    all_places = places(lines)
    whole, bags = standing(all_places), _bag_rows(lines)
    pictures = {PICTURE: _picture(all_places, whole), SAID_PICTURE: _said_picture(all_places, whole)}
    page = _templates.get_template("defaults.md.j2").render(
        measured=sorted({line["versions"]["unbag"] for line in lines.values() if "unbag" in line.get("versions", {})}),
        whole=whole,
        below=_below(whole),
        development=[name for name, one in SETS.items() if one.development],
        final=[name for name, one in SETS.items() if not one.development],
        skipped=skipped(),
        constants={
            "noise": NOISE,
            "fewest": FEWEST,
            "steps": STEPS,
            "rows": ROWS_A_STEP,
            "images": IMAGES,
            "training_rows": MOST_TRAINING_ROWS,
            "few_test_rows": FEW_TEST_ROWS,
            "few_groups": FEW_GROUPS,
            "too_few": TOO_FEW_TO_JUDGE,
            "draws": DRAWS,
            "enough_test_rows": ENOUGH_TEST_ROWS,
            "most_draws": MOST_DRAWS,
        },
        pictures=[f"![{description}]({name})" for name, (_, description) in pictures.items()],
        summary=_summary_table(all_places),
        by_size=_match_table(all_places),
        tables={size: _size_table([place for place in all_places if place.size == size]) for size in SIZES},
        of_bags=_bag_table(bags),
        bag_claim=_claim_of_bags(bags),
        to_match=_claims_of_match(all_places),
        seconds=_seconds_table(lines),
        provenance=provenance_table(provenance(lines.values())),
    )
    return {"defaults.md": page} | {name: describe(*one) for name, one in pictures.items()}


def _summary_table(all_places: Sequence[Place]) -> Table:
    rows = []
    for name, chosen in scopes(all_places).items():
        own = standing(chosen)
        rows.append(
            (
                name,
                f"{own.compared} of {own.planned}",
                _share(own.near, own.compared),
                "-" if own.worst is None else f"{own.worst[0]:+.1f}",
                _signed(own.to_best),
                "-" if own.to_match is None else f"{own.to_match[0]:+.1f}",
                _share(*own.said),
                str(own.silent) if own.estimated else "-",
            )
        )
    headings = ("", "Cells", "Near the best", "Worst", "To the best", "To the match", "Says within 5", "Too sure")
    return _table("How the default stands", headings, rows, texts=1)


def _match_table(all_places: Sequence[Place]) -> Table:
    rows = []
    for size in SIZES:
        own = standing([place for place in all_places if place.size == size])
        average, above, of = own.to_match or (None, 0, 0)
        rows.append(
            (
                f"{size:,}",
                f"{of} of {own.planned}",
                _signed(average),
                _share(above, of),
                _share(own.near, own.compared),
                "-" if own.worst is None else f"{own.worst[0]:+.1f}",
            )
        )
    columns = ("Groups of", "Cells", "To the match", "Above it", "Near the best", "Worst")
    return _table("Against the match of mean proportions", columns, rows)


def _size_table(chosen: Sequence[Place]) -> Table:
    rows = [
        (
            place.set,
            place.grouping,
            *(_percent(place.accuracy(method)) for method in TABLE_METHODS),
            _signed(place.to_best),
            _signed(mean(place.overstated)),
            str(len(place.fits["default"])),
        )
        for place in chosen
    ]
    methods = (TITLES[method] for method in TABLE_METHODS)
    return _table("Accuracy", ("Set", "Groups", *methods, "To the best", "Says - is", "Draws"), rows, texts=2)


def _bag_rows(lines: Lines) -> list[tuple[str, list[float | None], str]]:
    """Return the area of each method on each set of bags, and on average over those sets that all methods have."""
    areas = {name: [mean(bag_areas(lines, name, method)) for method in BAG_METHODS] for name in BAGS}
    folds = {name: min(len(bag_areas(lines, name, method)) for method in BAG_METHODS) for name in BAGS}
    whole = [own for own in areas.values() if None not in own]
    together = [mean(column) for column in zip(*whole, strict=True)] or [None] * len(BAG_METHODS)
    rows = [(name, own, str(folds[name])) for name, own in areas.items()]
    return [*rows, (f"mean of {len(whole)} sets", together, "-")]


def _bag_table(rows: Sequence[tuple[str, list[float | None], str]]) -> Table:
    shown = [(name, *map(_percent, own), _signed(_to_better(own)), folds) for name, own, folds in rows]
    return _table("Bags", ("Set", *(TITLES[one] for one in BAG_METHODS), "To the better", "Folds"), shown, texts=1)


def _to_better(areas: Sequence[float | None]) -> float | None:
    """Return by how much the first is above the better of the others, of those that there are."""
    ours, *others = areas
    known = [one for one in others if one is not None]
    return None if ours is None or not known else ours - max(known)


def _seconds_table(lines: Lines) -> Table:
    methods = [method for method in TABLE_METHODS if method != "all_labels"]
    rows = []
    for size in SIZES:
        seconds = [
            [line["seconds"] for cell, line in lines.items() if (cell.method, cell.size) == (method, size)]
            for method in methods
        ]
        rows.append((f"{size:,}", *(f"{np.median(own):.1f}" if own else MISSING for own in seconds)))
    return _table("Seconds", ("Groups of", *(TITLES[method] for method in methods)), rows)


def _picture(all_places: Sequence[Place], whole: Standing) -> tuple[str, str]:
    description = (
        "Accuracy of the default minus that of the best single method, one dot for each cell, by size of groups: "
        f"{whole.near} of {whole.compared} at most one point below. All figures are in the tables."
    )
    points = _points(all_places, lambda place: [] if place.to_best is None else [place.to_best])
    return strip_plot(points, "points above the best single method", limit=-NEAR), description


def _said_picture(all_places: Sequence[Place], whole: Standing) -> tuple[str, str]:
    description = (
        "Accuracy that a fit of the default says it has minus that which it has, one dot for each fit, by size of "
        f"groups: {whole.estimated_near} of {whole.estimated} are within five points. All figures are in the tables."
    )
    return strip_plot(
        _points(all_places, lambda place: place.overstated), "points said too much", limit=SAID_FAR
    ), description


def _points(all_places: Sequence[Place], values: Callable[[Place], list[float]]) -> dict[str, dict[str, list[float]]]:
    return {
        f"groups of {size:,}": {
            kind: [one for place in all_places if (place.size, place.grouping) == (size, kind) for one in values(place)]
            for kind in GROUPINGS
        }
        for size in SIZES
    }


def _below(whole: Standing) -> str:
    if whole.worst is None:
        return "not known"
    difference, place = whole.worst
    return f"{difference:+.1f} points ({place.set}, groups of {place.size:,} {place.grouping} rows)"


def _claims_of_match(all_places: Sequence[Place]) -> str:
    own = {size: standing([place for place in all_places if place.size == size]).to_match for size in SIZES}
    return ", ".join(f"{size:,}: {_signed(to_match[0] if to_match else None)}" for size, to_match in own.items())


def _claim_of_bags(rows: Sequence[tuple[str, list[float | None], str]]) -> str:
    name, together, _ = rows[-1]
    if together[0] is None:
        return "not known"
    return f"{_signed(_to_better(together))} points ({name})"


def _table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 0) -> Table:
    """Make a table of which all columns but the first few hold figures."""
    return Table(caption, columns, [[Cell(text) for text in row] for row in rows], numeric=columns[texts:])


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{value:.1f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f}"


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.0f} %)" if whole else "-"


_templates = environment("unbag_experiments", autoescape=False, table=markdown_table)
