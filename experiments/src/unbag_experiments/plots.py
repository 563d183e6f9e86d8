"""Plots of the comparison, as SVG text that stays the same byte for byte while the results do."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from matplotlib import rc_context, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from unbag._utils.pages import describe, recolour, to_svg
from unbag_experiments.comparison import Row

# Colours of Okabe and Ito, which colour-blind readers tell apart; shapes and fillings say the same once more.
OURS, PAPER = "#0072b2", "#d55e00"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
MARKERS = ("o", "s", "^", "v", "P", "X")
INK, GRID, GROUND = "#1a1a1a", "#999999", "#ffffff"  # see `inline`

# In inches. The width lets letters stay readable where a phone shrinks the plot to its own.
WIDTH, LINE, LETTER = 4.0, 0.19, 0.07
LEGEND, TITLE, TICKS, LABEL = 0.25, 0.22, 0.25, 0.2
LEGENDS_A_LINE = 3


def dot_plot(rows: Sequence[Row], titles: Mapping[str, str]) -> str:
    """Draw the accuracy of each method on each data set, ours above the paper's, with standard deviations."""
    panels = [(name, list(of_dataset)) for name, of_dataset in groupby(rows, key=lambda row: row.key.dataset)]
    labels = {row.key.method: titles.get(row.key.method, row.key.method) for row in rows}
    left = 0.15 + LETTER * max(map(len, labels.values()))
    right = 0.1 if all(row.accuracies for row in rows) else 0.5

    def draw(figure: Figure) -> None:
        top = LEGEND
        for name, of_dataset in panels:
            axes = _axes(figure, left, right, top + TITLE, LINE * len(of_dataset))
            axes.set_title(name, loc="left", fontweight="bold", pad=4)
            _dots(axes, of_dataset)
            axes.set_yticks(range(len(of_dataset)), [labels[row.key.method] for row in of_dataset])
            top += TITLE + LINE * len(of_dataset) + TICKS
        axes.set_xlabel("accuracy in percent")
        handles = [_handle("o", OURS, "ours"), _handle("D", PAPER, "the paper's", filled=False)]
        _legend(figure, handles if any(row.paper for row in rows) else handles[:1])

    return _svg(draw, LEGEND + (TITLE + TICKS) * len(panels) + LINE * len(rows) + LABEL)


def size_plot(rows: Sequence[Row], titles: Mapping[str, str]) -> str:
    """Draw accuracy by the number of training groups, one line for each method, ours and the paper's."""
    panels = list(dict.fromkeys(row.key.dataset for row in rows))
    looks = {
        method: (titles.get(method, method), COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)])
        for place, method in enumerate(dict.fromkeys(row.key.method for row in rows))
    }
    handles = [_handle(marker, colour, title) for title, colour, marker in looks.values()]
    handles += [_handle("", INK, "ours", line="-"), _handle("", INK, "the paper's", line="--")]
    legend, height = LEGEND * math.ceil(len(handles) / LEGENDS_A_LINE), 2.5

    def draw(figure: Figure) -> None:
        for place, name in enumerate(panels):
            axes = _axes(figure, 0.55, 0.2, legend + TITLE + (TITLE + height + TICKS) * place, height)
            axes.set_title(name, loc="left", fontweight="bold", pad=4)
            for method, (_, colour, marker) in looks.items():
                _lines(axes, [row for row in rows if row.key[2:4] == (name, method)], colour, marker)
            axes.set_ylabel("accuracy in percent")
            axes.grid(color=GRID, alpha=0.35, linewidth=0.6)
            axes.xaxis.set_major_formatter(lambda groups, _: f"{groups:,.0f}")
        axes.set_xlabel("training groups")
        _legend(figure, handles)

    return _svg(draw, legend + (TITLE + height + TICKS) * len(panels) + LABEL)


def line_plot(panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], x_label: str, y_label: str) -> str:
    """Draw a line for each series in each panel, over a logarithmic axis; all panels have the same series.

    Examples
    --------
    >>> line_plot({"groups of 64": {"likelihood": [(0.1, 70.0), (1, 80.0)]}}, "epsilon", "accuracy").startswith("<svg ")
    True
    """
    series = list(next(iter(panels.values()), ()))
    looks = dict(zip(series, zip(COLOURS, MARKERS, strict=True), strict=False))
    handles = [_handle(marker, colour, name, line="-") for name, (colour, marker) in looks.items()]
    legend, height = LEGEND * math.ceil(len(handles) / LEGENDS_A_LINE), 1.6

    def draw(figure: Figure) -> None:
        for place, (title, lines) in enumerate(panels.items()):
            axes = _axes(figure, 0.55, 0.2, legend + TITLE + (TITLE + height + TICKS) * place, height)
            axes.set_title(title, loc="left", fontweight="bold", pad=4)
            for name, (colour, marker) in looks.items():
                axes.plot(*zip(*lines[name], strict=True), color=colour, marker=marker, markersize=4.5, linewidth=1.4)
            axes.set_xscale("log")
            axes.set_xticks(ticks := sorted({x for line in lines.values() for x, _ in line}), [f"{x:g}" for x in ticks])
            axes.minorticks_off()
            axes.set_ylabel(y_label)
            axes.grid(color=GRID, alpha=0.35, linewidth=0.6)
            if place == len(panels) - 1:
                axes.set_xlabel(x_label)
        _legend(figure, handles)

    return _svg(draw, legend + (TITLE + height + TICKS) * len(panels) + LABEL)


def inline(svg: str, name: str, description: str) -> str:
    """Fit a plot into an HTML page: the page's own colours, ids of its own, and a description for screen readers.

    Examples
    --------
    >>> inline('<svg><path id="a" style="fill: #1a1a1a"/></svg>', "mil", "ours & theirs")
    '<svg role="img" aria-label="ours &amp; theirs"><path id="mil-a" style="fill: currentColor"/></svg>'
    """
    text = recolour(svg, {INK: "currentColor", GROUND: "none", OURS: "var(--first)"})
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)  # it would hold for the whole page
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{name}-", text)
    return describe(text, description)


def _axes(figure: Figure, left: float, right: float, top: float, height: float) -> Axes:
    """Add axes by their margins in inches; measuring the letters, as matplotlib's layouts do, takes thrice the time."""
    width, whole = figure.get_size_inches()
    return figure.add_axes((left / width, 1 - (top + height) / whole, 1 - (left + right) / width, height / whole))


def _dots(axes: Axes, rows: Sequence[Row]) -> None:
    ours = [(row.mean, place - 0.16, row.std or 0.0) for place, row in enumerate(rows) if row.mean is not None]
    paper = [(row.paper.mean, place + 0.16, row.paper.std or 0.0) for place, row in enumerate(rows) if row.paper]
    for points, marker, colour, face in ((ours, "o", OURS, OURS), (paper, "D", PAPER, "none")):
        if points:
            means, places, deviations = zip(*points, strict=True)
            axes.errorbar(
                means, places, xerr=deviations, linestyle="", marker=marker, color=colour, markerfacecolor=face,
                markersize=3.7, elinewidth=1,
            )  # fmt: skip
    for place, row in enumerate(rows):
        if not row.accuracies:
            beside = axes.get_yaxis_transform()
            axes.text(1.02, place, "not run", transform=beside, fontsize=7, fontstyle="italic", va="center")
    if ours or paper:
        left, right = axes.get_xlim()
        axes.set_xlim(max(left, -1), min(right, 101))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="x", color=GRID, alpha=0.35, linewidth=0.6)
    axes.tick_params(axis="y", length=0)


def _lines(axes: Axes, rows: Sequence[Row], colour: str, marker: str) -> None:
    if any(row.accuracies for row in rows):
        groups = [row.key.n_groups or 0 for row in rows]
        means = [math.nan if row.mean is None else row.mean for row in rows]  # what was not run leaves a gap
        deviations = [row.std or 0.0 for row in rows]
        axes.errorbar(groups, means, yerr=deviations, color=colour, marker=marker, markersize=4.5, linewidth=1.4)
    paper = [(row.key.n_groups or 0, row.paper.mean) for row in rows if row.paper is not None]
    if paper:
        axes.plot(
            *zip(*paper, strict=True),
            color=colour,
            marker=marker,
            markersize=4.5,
            markerfacecolor="none",
            linewidth=1,
            linestyle="--",
        )


def _handle(marker: str, colour: str, label: str, filled: bool = True, line: Literal["", "-", "--"] = "") -> Line2D:
    face = colour if filled else "none"
    return Line2D([], [], color=colour, marker=marker, markerfacecolor=face, markersize=4, linestyle=line, label=label)


def _legend(figure: Figure, handles: Iterable[Line2D]) -> None:
    figure.legend(
        handles=list(handles),
        loc="upper center",
        ncols=LEGENDS_A_LINE,
        borderaxespad=0.2,
        frameon=False,
        labelcolor=INK,
    )


def _svg(draw: Callable[[Figure], None], height: float) -> str:
    """Let something be drawn, whatever matplotlib is set to on this machine, and take the SVG without its prolog."""
    settings: Any = {
        "svg.hashsalt": "unbag",  # else ids are drawn at random
        "svg.fonttype": "none",  # letters stay letters: they can be read, searched and take the page's colour
        "text.parse_math": False,
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 8.5,
        "axes.titlesize": 8.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.facecolor": "none",
        **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    }
    with style.context("default"), rc_context(settings):
        figure = Figure(figsize=(WIDTH, height), facecolor=GROUND)
        draw(figure)
        return to_svg(figure)
