"""The page of default fits, ``docs/defaults.md``, from ``results/fits.jsonl`` alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import methodcaller
from pathlib import Path

import numpy as np

from unbag._utils.files import write_atomic
from unbag._utils.pages import environment
from unbag._utils.pages.tables import Cell, Table
from unbag_experiments.fits.comparison import (
    NEAR,
    Lines,
    Mean,
    Place,
    average,
    collect,
    fits_of,
    is_near,
    judge_estimates,
    miscalibration,
    scopes,
    seconds,
    worst,
)
from unbag_experiments.fits.grouping import GROUPINGS, MAX_TRAINING_ROWS, MIN_GROUPS, NOISE, SIZES
from unbag_experiments.fits.plan import METHODS
from unbag_experiments.fits.runner import read
from unbag_experiments.fits.sets import SETS
from unbag_experiments.provenance import provenance
from unbag_experiments.render import markdown_table
from unbag_experiments.result_tables import provenance_table

MISSING = "missing"
LARGE = 64
"""Size of groups from which the default is compared with the earlier version separately."""


def write(results: Path, docs: Path) -> list[Path]:
    """Write the page, and return its path; the same results give the same bytes."""
    return write_pages(render(read(results)), docs)


def write_pages(pages: Mapping[str, str], docs: Path) -> list[Path]:
    """Write texts by their paths in a folder, and return these."""
    for name, text in pages.items():
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(docs / name, text.encode())
    return [docs / name for name in pages]


def summarise(lines: Lines) -> str:
    """Return how accurate and how fast the default is, as lines of text.

    Examples
    --------
    >>> summarise({}).splitlines()[0]
    'all: 0 of 83 cells compared with the best single method'
    """
    text: list[str] = []
    for scope, chosen in scopes(collect(lines)).items():
        near, lowest, to_best = average(chosen, is_near), worst(chosen), average(chosen, lambda p: p.to_best)
        text.append(f"{scope}: {near.n if near else 0} of {len(chosen)} cells compared with the best single method")
        if near and lowest:
            text += [
                f"  at most {NEAR:g} point below: {_interval(near)} % of cells; on average {_interval(to_best)} points",
                f"  worst: {lowest.to_best:+.1f}, {lowest.set}, groups of {lowest.size} ({lowest.grouping})",
            ]
        text += [f"  above {method}: {_interval(_above(chosen, method))}" for method in METHODS[1:]]
        for title, part in _by_release_size(chosen).items():
            text.append(f"  above the earlier version, {title}: {_interval(_above(part, 'release'))}")
        if len(times := seconds(chosen, "default")):
            figures = ", ".join(f"{value:.1f}" for value in _time_figures(times))
            text.append(f"  CPU seconds of a default fit: median, 90 %, most: {figures}")
        for method in METHODS:
            if estimates := judge_estimates(fits_of(chosen, method)):
                text.append(
                    f"  {method}: {estimates.n_estimated} of {estimates.n_fits} fits have an estimate; covered "
                    f"{estimates.covered:.0f} %, half-width {estimates.half_width:.1f}, within five points "
                    f"{estimates.near:.0f} %, error {estimates.error:.1f} "
                    f"(confidence {estimates.error_of_confidence:.1f})"
                )
        for method in METHODS:
            by_size = [miscalibration(fits_of([p for p in chosen if p.size == size], method)) for size in SIZES]
            if any(value is not None for value in by_size):
                figures = ", ".join(f"{size:,}: {_number(v)}" for size, v in zip(SIZES, by_size, strict=True))
                text.append(f"  {method}: mean |confidence - accuracy| in groups of {figures}")
    return "\n".join(text)


def render(lines: Lines) -> dict[str, str]:
    """Make the text of the page, by its path.

    Examples
    --------
    >>> "0 of 83 cells" in render({})["defaults.md"]
    True
    """
    chosen = collect(lines)
    page = _templates.get_template("defaults.md.j2").render(
        compared=sum(place.to_best is not None for place in chosen),
        planned=len(chosen),
        near=_interval(average(chosen, is_near)),
        to_best=_interval(average(chosen, lambda place: place.to_best)),
        worst=worst(chosen),
        release={title: _interval(_above(part, "release")) for title, part in _by_release_size(chosen).items()},
        times=["-" if np.isnan(value) else f"{value:.0f}" for value in _time_figures(seconds(chosen, "default"))],
        development=[name for name, declared in SETS.items() if declared.development],
        evaluation=[name for name, declared in SETS.items() if not declared.development],
        constants={"noise": NOISE, "min_groups": MIN_GROUPS, "training_rows": MAX_TRAINING_ROWS},
        summary=_summary_table(chosen),
        methods=_method_table([place for place in chosen if place.to_best is not None]),
        n_timed=len(seconds(chosen, "default")),
        cells=_cell_table(chosen),
        provenance=provenance_table(provenance(lines.values())),
    )
    return {"defaults.md": page}


def _by_release_size(chosen: Sequence[Place]) -> dict[str, list[Place]]:
    return {
        f"groups of {LARGE} and more": [place for place in chosen if place.size >= LARGE],
        "smaller groups": [place for place in chosen if place.size < LARGE],
    }


def _above(chosen: Sequence[Place], method: str) -> Mean | None:
    return average(chosen, lambda place: place.difference(method))


def _time_figures(times: np.ndarray) -> list[float]:
    """Return the median, the 90th percentile and the largest."""
    return np.percentile(times, (50, 90, 100)).tolist() if len(times) else [np.nan] * 3


def _summary_table(chosen: Sequence[Place]) -> Table:
    parts: dict[str, Sequence[Place]] = {**scopes(chosen)}
    for size in SIZES:
        parts[f"groups of {size:,}"] = [place for place in chosen if place.size == size]
    for grouping in GROUPINGS:
        parts[grouping] = [place for place in chosen if place.grouping == grouping]
    rows = []
    for title, part in parts.items():
        near, lowest, estimates = average(part, is_near), worst(part), judge_estimates(fits_of(part, "default"))
        rows.append(
            (
                title,
                str(near.n if near else 0),
                _interval(near),
                "-" if lowest is None else f"{lowest.to_best:+.1f}",
                _interval(average(part, lambda place: place.to_best)),
                *(_interval(_above(part, method)) for method in ("match", "release")),
                _number(miscalibration(fits_of(part, "default"))),
                *(["-"] * 2 if estimates is None else [_number(estimates.error), f"{estimates.covered:.0f}"]),
            )
        )
    headings = ("Cells", "Near the best, %", "Worst", "To the best", "To the match", "To 0.2.0")
    return _table("Summary", ("", *headings, "Confidence", "Estimate", "Covered, %"), rows, texts=1)


def _method_table(chosen: Sequence[Place]) -> Table:
    rows = []
    for method in METHODS:
        accuracy, times = average(chosen, methodcaller("accuracy", method)), seconds(chosen, method)
        figures = ["-" if np.isnan(value) else f"{value:.1f}" for value in _time_figures(times)]
        rows.append((_title(method), "-" if accuracy is None else str(accuracy.n), _interval(accuracy), *figures))
    return _table("Methods", ("Method", "Cells", "Accuracy, %", "Median s", "90 %", "Most"), rows, texts=1)


def _cell_table(chosen: Sequence[Place]) -> Table:
    rows = [
        (
            place.set,
            f"{place.size:,}",
            place.grouping,
            str(len(place.fits.get("default", ()))),
            *(_number(place.accuracy(method)) for method in METHODS),
            "-" if place.to_best is None else f"{place.to_best:+.1f}",
        )
        for place in chosen
    ]
    return _table("Cells", ("Table", "Size", "Groups", "Draws", *map(_title, METHODS), "To the best"), rows, texts=1)


def _title(method: str) -> str:
    return "0.2.0" if method == "release" else method.capitalize()


def _table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 0) -> Table:
    """Make a table of which all columns but the first few hold figures."""
    return Table(caption, columns, [[Cell(text) for text in row] for row in rows], numeric=columns[texts:])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _interval(mean: Mean | None) -> str:
    return "-" if mean is None else f"{mean.value:.1f} ({mean.low:.1f} to {mean.high:.1f})"


_templates = environment("unbag_experiments", autoescape=False, table=markdown_table)
