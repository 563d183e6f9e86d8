"""Plots as inline SVG: the same bytes for the same numbers, in the colours of the page, with text that stays text."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from unbag._utils.pages import recolour, to_svg

# Placeholders for colours of the page, which differ between light and dark mode.
INK, FIRST, SECOND = "#101112", "#101113", "#101114"
COLOURS = {INK: "currentColor", FIRST: "var(--first)", SECOND: "var(--second)"}

STYLE: dict[Any, Any] = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    "axes.facecolor": "none",
    "axes.linewidth": 0.6,
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "svg.fonttype": "none",
    "text.parse_math": False,  # class names may contain dollar signs
}

WIDTH, HEIGHT = 4.8, 2.9
MAX_NAME = 18

Bins = Sequence[Mapping[str, Any]]


def draw(kind: str, name: str, arguments: Mapping[str, Any]) -> str:
    """Return a plot as SVG.

    Parameters
    ----------
    kind, arguments
        Name of a function of this module that draws on axes, and its arguments.
    name
        Unique on the page; ids inside the SVG are derived from it.
    """
    # The browser has fonts for names that matplotlib has no glyphs for.
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure = Figure(figsize=(WIDTH, HEIGHT), facecolor="none")
        KINDS[kind](figure.add_subplot(), **arguments)
        svg = recolour(to_svg(figure), COLOURS)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # numbered alike in every plot, and not referred to
    return re.sub(r' xmlns(:xlink)?="[^"]*"| version="1.1"| (width|height)="[\d.]+pt"', "", svg).replace("xlink:", "")


def steps(axes: Axes, points: Sequence[tuple[int, float]], best: int | None, x: str, y: str) -> None:
    """Draw values over steps or epochs, and mark the best."""
    at, values = zip(*points, strict=True)
    axes.plot(at, values, "o" if len(at) == 1 else "-", color=FIRST, linewidth=1.6)
    if best in at:
        axes.plot([best], [values[at.index(best)]], "o", color=SECOND, label=f"selected: {x} {best}")
        axes.legend()
    axes.set(xlabel=x, ylabel=y, xlim=(at[0] - 1, at[0] + 1) if len(at) == 1 else None)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def bars(axes: Axes, edges: Sequence[float], counts: Sequence[int], x: str, y: str) -> None:
    """Draw a histogram, with bars below zero in the second colour."""
    colours = [FIRST if low + high >= 0 else SECOND for low, high in pairwise(edges)]
    axes.bar(edges[:-1], counts, [high - low for low, high in pairwise(edges)], align="edge", color=colours, alpha=0.85)
    if edges[0] < 0 < edges[-1]:
        axes.axvline(0, color=INK, linewidth=0.8)
    axes.set(xlabel=x, ylabel=y)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))


def two_histograms(axes: Axes, edges: Sequence[float], counts: Mapping[str, Sequence[int]], x: str) -> None:
    """Draw two distributions over the same bins, each as shares of its total."""
    for (name, values), colour, alpha in zip(counts.items(), (FIRST, SECOND), (0.35, 0), strict=True):
        shares = [value / max(sum(values), 1) for value in values]
        axes.stairs(shares, edges, fill=True, color=colour, alpha=alpha)
        axes.stairs(shares, edges, color=colour, linewidth=1.7, label=name)
    axes.set(xlabel=x, ylabel="share")
    _format_percent(axes.xaxis, axes.yaxis)
    _add_legend(axes)


def scatter(axes: Axes, points: Sequence[Sequence[float]], x: str, y: str) -> None:
    """Draw points, and the line on which both values are equal."""
    _add_diagonal(axes, x, y)
    axes.plot(*zip(*points, strict=True), "o", color=FIRST, alpha=0.5, markersize=4.5, markeredgewidth=0)


def reliability(axes: Axes, bins: Bins, x: str, y: str) -> None:
    """Draw observed against predicted shares; the area of a dot grows with the number of cases.

    Where bins have a spread, bars show two of it on either side of the prediction.
    """
    _add_diagonal(axes, x, y)
    predicted, happened, n = ([b[name] for b in bins] for name in ("predicted", "happened", "n"))
    if "spread" in bins[0]:
        spread = [2 * b["spread"] for b in bins]
        axes.errorbar(predicted, predicted, spread, linestyle="none", color=INK, linewidth=0.8, capsize=3)
    axes.plot(predicted, happened, color=FIRST, linewidth=1.2)
    axes.scatter(predicted, happened, [12 + 80 * cases / max(n) for cases in n], color=FIRST, linewidths=0)


def grouped_bars(axes: Axes, names: Sequence[str], series: Mapping[str, Sequence[float]], x: str) -> None:
    """Draw shares as horizontal bars, one of each series for every name."""
    _name_lines(axes, names, 0.2 * len(series))
    height = 0.8 / len(series)
    for place, (label, shares) in enumerate(series.items()):
        at = [line + (place - (len(series) - 1) / 2) * height for line in range(len(names))]
        colour, alpha = ((FIRST, 0.9), (SECOND, 0.9), (INK, 0.45))[place]
        axes.barh(at, shares, height * 0.9, label=label, color=colour, alpha=alpha)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set(xlabel=x)
    _format_percent(axes.xaxis)
    _add_legend(axes)


def yardsticks(axes: Axes, items: Bins, x: str, typical: float | None = None) -> None:
    """Draw shares as horizontal bars with their intervals, and a dotted line at a typical value.

    Names that begin with "this model" are in the first colour, or all names if there is none.
    """
    _name_lines(axes, [item["name"] for item in items], 0.27, longest=34)
    of_model = [item["name"].startswith("this model") for item in items]
    for line, item in enumerate(items):
        value, end = item["value"], max(item["value"], item.get("high", 0))
        colour, alpha = (FIRST, 0.9) if of_model[line] or not any(of_model) else (INK, 0.45)
        axes.barh(line, value, 0.6, color=colour, alpha=alpha)
        axes.plot([item.get("low", value), item.get("high", value)], [line, line], color=INK, linewidth=1.4)
        if typical is not None and end < typical < end + 0.13:  # text is not across the line
            end = typical
        axes.text(end + 0.015, line, f"{100 * value:.0f} %", va="center", fontsize=9)
    if typical is not None:
        axes.axvline(typical, color=INK, linewidth=0.8, linestyle=":")
    axes.set(xlim=(0, 1.12), xticks=[0, 0.25, 0.5, 0.75, 1])
    axes.set_xlabel(x, loc="right")  # long names leave little room below the bars
    _format_percent(axes.xaxis)


def importance(axes: Axes, columns: Bins, x: str) -> None:
    """Draw the importance of columns with two standard errors."""
    _name_lines(axes, [c["column"] for c in columns], 0.27)
    drops, errors = [c["drop"] for c in columns], [2 * c["error"] for c in columns]
    axes.barh(range(len(columns)), drops, 0.6, color=[FIRST if d >= 0 else SECOND for d in drops], alpha=0.85)
    axes.errorbar(drops, range(len(columns)), xerr=errors, linestyle="none", color=INK, linewidth=0.9)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set(xlabel=x)


def confusion(axes: Axes, names: Sequence[str], matrix: Sequence[Sequence[int]]) -> None:
    """Draw a confusion matrix; a darker cell is a larger share of its class."""
    upright = max(map(len, names)) * len(names) > 40
    _name_lines(axes, names, 0.3, around=2.2 if upright else 1.2)
    for row, counts in enumerate(matrix):
        for column, value in enumerate(counts):
            if value:
                share, colour = 0.12 + 0.6 * value / sum(counts), FIRST if row == column else SECOND
                axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, color=colour, alpha=share, linewidth=0))
                axes.text(column, row, str(value), ha="center", va="center", fontsize=10 if len(names) <= 12 else 8)
    axes.set_xticks(range(len(names)), [_shorten(name) for name in names], rotation=90 if upright else 0)
    axes.set(xlabel="predicted", ylabel="label", xlim=(-0.5, len(names) - 0.5))
    axes.tick_params(length=0)


_DRAWN = (steps, bars, two_histograms, scatter, reliability, grouped_bars, yardsticks, importance, confusion)
KINDS: dict[str, Callable[..., None]] = {function.__name__: function for function in _DRAWN}


def _add_diagonal(axes: Axes, x: str, y: str) -> None:
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
    axes.set(xlabel=x, ylabel=y)
    _format_percent(axes.xaxis, axes.yaxis)


def _format_percent(*of_axes: Any) -> None:
    for axis in of_axes:
        axis.set_major_formatter(lambda share, _: f"{100 * share:g} %")


def _add_legend(axes: Axes) -> None:
    """Add a legend above the axes, where it hides nothing."""
    assert axes.figure is not None
    axes.figure.legend(loc="outside upper center", ncols=3, fontsize=9)


def _name_lines(axes: Axes, names: Sequence[str], height: float, longest: int = MAX_NAME, around: float = 0.9) -> None:
    """Name horizontal lines, the first at the top, and make the figure high enough for them."""
    assert axes.figure is not None
    axes.figure.set_figheight(max(HEIGHT * 0.75, around + height * len(names)))  # type: ignore[union-attr]
    axes.set_yticks(range(len(names)), [_shorten(name, longest) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def _shorten(name: str, longest: int = MAX_NAME) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"
