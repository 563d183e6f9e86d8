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
    "svg.fonttype": "none",
    "font.size": 10,
    "text.parse_math": False,  # class names may contain dollar signs
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}

WIDTH, HEIGHT = 4.8, 2.9
MAX_NAME = 18


def draw(kind: str, name: str, arguments: Mapping[str, Any]) -> str:
    """Return a plot as SVG.

    Parameters
    ----------
    kind
        Name of a function of this module that draws on axes.
    name
        Unique on the page; ids inside the SVG are derived from it.
    arguments
        Arguments of the function.
    """
    # The browser has fonts for names that matplotlib has no glyphs for.
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure = Figure(figsize=(WIDTH, HEIGHT), facecolor="none")
        KINDS[kind](figure.add_subplot(), **arguments)
        svg = recolour(to_svg(figure), COLOURS)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # numbered alike in every plot, and not referred to
    return re.sub(r' xmlns(:xlink)?="[^"]*"| version="1.1"| (width|height)="[\d.]+pt"', "", svg).replace("xlink:", "")


def shorten(name: str, most: int = MAX_NAME) -> str:
    """Shorten a name so that it leaves room for the plot.

    Examples
    --------
    >>> shorten("a very long name of a class")
    'a very long name …'
    """
    return name if len(name) <= most else f"{name[: most - 1]}…"


def steps(axes: Axes, points: Sequence[tuple[int, float]], best: int | None, x: str, y: str) -> None:
    """Draw values over steps or epochs, and mark the best step."""
    at, values = zip(*points, strict=True)
    axes.plot(at, values, "o" if len(at) == 1 else "-", color=FIRST, linewidth=1.6)
    if best in at:
        axes.plot([best], [values[at.index(best)]], "o", color=SECOND, label=f"selected: {x} {best}")
        axes.legend()
    axes.set(xlabel=x, ylabel=y, xlim=(at[0] - 1, at[0] + 1) if len(at) == 1 else None)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def bars(axes: Axes, edges: Sequence[float], counts: Sequence[int], x: str, y: str) -> None:
    """Draw a histogram, with bars below zero in the second colour."""
    widths = [high - low for low, high in pairwise(edges)]
    centres = [(low + high) / 2 for low, high in pairwise(edges)]
    axes.bar(centres, counts, widths, color=[FIRST if at >= 0 else SECOND for at in centres], alpha=0.85)
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
    _as_percent(axes.xaxis, axes.yaxis)
    _add_legend(axes, len(counts))


def scatter(axes: Axes, points: Sequence[Sequence[float]], x: str, y: str) -> None:
    """Draw points, and the line on which both values are equal."""
    _add_diagonal(axes, x, y)
    axes.plot(*zip(*points, strict=True), "o", color=FIRST, alpha=0.5, markersize=4.5, markeredgewidth=0)


def reliability(axes: Axes, bins: Sequence[Mapping[str, Any]], x: str, y: str) -> None:
    """Draw observed against predicted shares; the area of a dot grows with the number of cases.

    Where bins have a spread, bars show two of it on either side of the prediction.
    """
    _add_diagonal(axes, x, y)
    predicted, happened = [b["predicted"] for b in bins], [b["happened"] for b in bins]
    spread = [2 * b.get("spread", 0) for b in bins]
    axes.errorbar(predicted, predicted, spread, linestyle="none", color=INK, linewidth=0.8, capsize=3 * any(spread))
    most = max(b["n"] for b in bins)
    axes.plot(predicted, happened, color=FIRST, linewidth=1.2)
    axes.scatter(predicted, happened, [12 + 80 * b["n"] / most for b in bins], color=FIRST, linewidths=0)


def grouped_bars(axes: Axes, names: Sequence[str], series: Mapping[str, Sequence[float]], x: str) -> None:
    """Draw shares as horizontal bars, one of each series for every name."""
    _name_lines(axes, names, 0.2 * len(series))
    height = 0.8 / len(series)
    for place, (label, shares) in enumerate(series.items()):
        at = [line + (place - (len(series) - 1) / 2) * height for line in range(len(names))]
        colour, alpha = ((FIRST, 0.9), (SECOND, 0.9), (INK, 0.45))[place]
        axes.barh(at, shares, height * 0.9, label=label, color=colour, alpha=alpha)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    _as_percent(axes.xaxis)
    axes.set(xlabel=x)
    _add_legend(axes, len(series))


def yardsticks(axes: Axes, items: Sequence[Mapping[str, Any]], x: str, typical: float | None = None) -> None:
    """Draw shares as horizontal bars with their intervals, and a dotted line at a typical value.

    Names that begin with "this model" are in the first colour, or all names if there is none.
    """
    of_model = [item["name"].startswith("this model") for item in items]
    _name_lines(axes, [item["name"] for item in items], 0.27, most=34)
    for line, (item, is_model) in enumerate(zip(items, of_model, strict=True)):
        first = is_model or not any(of_model)
        axes.barh(line, item["value"], 0.6, color=FIRST if first else INK, alpha=0.9 if first else 0.45)
        end = max(item["value"], item.get("high", 0))
        if typical is not None and end < typical < end + 0.13:  # not across the line
            end = typical
        axes.text(end + 0.015, line, f"{100 * item['value']:.0f} %", va="center", fontsize=9)
        if "low" in item:
            axes.plot([item["low"], item["high"]], [line, line], color=INK, linewidth=1.4)
    if typical is not None:
        axes.axvline(typical, color=INK, linewidth=0.8, linestyle=":")
    axes.set(xlim=(0, 1.12))
    axes.set_xlabel(x, loc="right")  # long names leave little room below the bars
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    _as_percent(axes.xaxis)


def importance(axes: Axes, columns: Sequence[Mapping[str, Any]], x: str) -> None:
    """Draw the importance of columns with two standard errors; an infinite one fills the width."""
    _name_lines(axes, [c["column"] for c in columns], 0.27)
    errors = [2 * (c["error"] or 0) for c in columns]
    ends = [c["drop"] + e for c, e in zip(columns, errors, strict=True) if c["drop"] is not None]
    most = max(ends, default=1.0) or 1.0
    drops = [most if c["drop"] is None else c["drop"] for c in columns]
    axes.barh(range(len(columns)), drops, 0.6, color=[FIRST if d >= 0 else SECOND for d in drops], alpha=0.85)
    axes.errorbar(drops, range(len(columns)), xerr=errors, linestyle="none", color=INK, linewidth=0.9)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set(xlabel=x)


def confusion(axes: Axes, names: Sequence[str], matrix: Sequence[Sequence[int]]) -> None:
    """Draw a confusion matrix; a darker cell is a larger share of its class."""
    k = len(names)
    _name_lines(axes, names, 0.3)
    for row, counts in enumerate(matrix):
        for column, value in enumerate(counts):
            if value:
                share, colour = 0.12 + 0.6 * value / sum(counts), FIRST if row == column else SECOND
                axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, color=colour, alpha=share, linewidth=0))
                axes.text(column, row, str(value), ha="center", va="center", fontsize=10 if k <= 12 else 8)
    axes.set_xticks(range(k), [shorten(name) for name in names], rotation=0 if max(map(len, names)) * k <= 40 else 90)
    axes.set(xlabel="predicted", ylabel="label", xlim=(-0.5, k - 0.5))
    axes.tick_params(length=0)


KINDS: dict[str, Callable[..., None]] = {
    function.__name__: function
    for function in (
        *(steps, bars, two_histograms, scatter, reliability),
        *(grouped_bars, yardsticks, importance, confusion),
    )
}


def _add_diagonal(axes: Axes, x: str, y: str) -> None:
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
    axes.set(xlabel=x, ylabel=y)
    _as_percent(axes.xaxis, axes.yaxis)


def _as_percent(*of_axes: Any) -> None:
    for axis in of_axes:
        axis.set_major_formatter(lambda share, _: f"{100 * share:g} %")


def _add_legend(axes: Axes, columns: int) -> None:
    """Add a legend above the axes, where it hides nothing."""
    assert axes.figure is not None
    axes.figure.legend(loc="outside upper center", ncols=columns, fontsize=9)


def _name_lines(axes: Axes, names: Sequence[str], height: float, most: int = MAX_NAME) -> None:
    """Name horizontal lines, the first at the top, and make the figure high enough for them."""
    assert axes.figure is not None
    axes.figure.set_figheight(max(HEIGHT * 0.75, 0.9 + height * len(names)))  # type: ignore[union-attr]
    axes.set_yticks(range(len(names)), [shorten(name, most) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
