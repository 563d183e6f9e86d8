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

Bins = Sequence[Mapping[str, Any]]


def draw(kind: str, arguments: Mapping[str, Any]) -> str:
    """Return a plot as SVG, by the name and the arguments of a function of this module that draws on axes."""
    # The browser has fonts for names that matplotlib has no glyphs for.
    with mpl.rc_context({**STYLE, "svg.hashsalt": f"{kind} {arguments}"}), warnings.catch_warnings():
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
    if best is not None and best in at:
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
    axes.figure.legend(loc="outside upper center", ncols=2, fontsize=9)  # above the axes, where it hides nothing


def reliability(axes: Axes, bins: Bins, x: str, y: str) -> None:
    """Draw observed against predicted shares; the area of a dot grows with the number of cases.

    Where bins have a spread, bars show two of it on either side of the prediction.
    """
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
    predicted, happened, n = ([b[name] for b in bins] for name in ("predicted", "happened", "n"))
    if "spread" in bins[0]:
        spread = [2 * b["spread"] for b in bins]
        axes.errorbar(predicted, predicted, spread, linestyle="none", color=INK, linewidth=0.8, capsize=3)
    axes.plot(predicted, happened, color=FIRST, linewidth=1.2)
    axes.scatter(predicted, happened, [12 + 80 * cases / max(n) for cases in n], color=FIRST, linewidths=0)
    axes.set(xlabel=x, ylabel=y)
    _format_percent(axes.xaxis, axes.yaxis)


_DRAWN = (steps, bars, two_histograms, reliability)
KINDS: dict[str, Callable[..., None]] = {function.__name__: function for function in _DRAWN}


def _format_percent(*of_axes: Any) -> None:
    for axis in of_axes:
        axis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
