"""Plots as inline SVG: the same bytes for the same numbers, colours of the page, text that stays text."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, Concatenate, ParamSpec

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from unbag._utils.pages import recolour, to_svg

# Stand-ins that become colours of the page, which differ between light and dark.
INK, FIRST, SECOND = "#101112", "#101113", "#101114"
COLOURS = {INK: "currentColor", FIRST: "var(--first)", SECOND: "var(--second)"}

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 10,
    "text.parse_math": False,  # names of classes may hold dollar signs
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
LONGEST_NAME = 18

Given = ParamSpec("Given")


def plot(draw: Callable[Concatenate[Axes, Given], None]) -> Callable[Concatenate[str, Given], str]:
    """Turn a function that draws on axes into one that takes a name, unique on its page, and returns SVG."""

    @wraps(draw)
    def as_svg(name: str, *args: Given.args, **kwargs: Given.kwargs) -> str:
        # The browser has fonts for names that matplotlib has no glyphs for.
        with mpl.rc_context({**STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
            figure = Figure(figsize=(WIDTH, HEIGHT), facecolor="none")
            draw(figure.add_subplot(), *args, **kwargs)
            return _svg(figure)

    return as_svg  # type: ignore[return-value]  # wraps keeps the old signature


def _svg(figure: Figure) -> str:
    svg = recolour(to_svg(figure), COLOURS)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # numbered alike in every plot, and referred to by none
    return re.sub(r' xmlns(:xlink)?="[^"]*"| version="1.1"| (width|height)="[\d.]+pt"', "", svg).replace("xlink:", "")


def short(name: str, longest: int = LONGEST_NAME) -> str:
    """Shorten a name so that it leaves room for the plot.

    Examples
    --------
    >>> short("a very long name of a class")
    'a very long name …'
    """
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def _name_above(axes: Axes, columns: int) -> None:
    """Put the names of what is drawn where they hide none of it."""
    assert axes.figure is not None
    axes.figure.legend(loc="outside upper center", ncols=columns, fontsize=9)


@plot
def curve(axes: Axes, history: Sequence[dict[str, Any]], what: str, title: str, best: int | None = None) -> None:
    """Draw a value step by step, with the chosen step."""
    there = {entry["step"] + 1: entry[what] for entry in history if entry[what] is not None}
    axes.plot(list(there), list(there.values()), "o" if len(there) == 1 else "-", color=FIRST, linewidth=1.6)
    if best is not None and best + 1 in there:
        axes.plot([best + 1], [there[best + 1]], "o", color=SECOND, label=f"chosen: step {best + 1}")
        axes.legend()
    axes.set(xlabel="step", ylabel=title, xlim=(0, 2) if len(there) == 1 else None)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


@plot
def bars(axes: Axes, edges: Sequence[float], counts: Sequence[int], x: str, y: str) -> None:
    """Draw a histogram; what lies below zero is in the second colour."""
    widths = [high - low for low, high in pairwise(edges)]
    middle = [(low + high) / 2 for low, high in pairwise(edges)]
    axes.bar(middle, counts, widths, color=[FIRST if at >= 0 else SECOND for at in middle], alpha=0.85)
    if edges[0] < 0 < edges[-1]:
        axes.axvline(0, color=INK, linewidth=0.8)
    axes.set(xlabel=x, ylabel=y)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))


@plot
def two_histograms(axes: Axes, edges: Sequence[float], counts: dict[str, Sequence[int]], x: str) -> None:
    """Draw two distributions on the same bins, each as shares of its own total."""
    for (name, own), colour, filling in zip(counts.items(), (FIRST, SECOND), (0.35, 0), strict=True):
        shares = [count / max(sum(own), 1) for count in own]
        axes.stairs(shares, edges, fill=True, color=colour, alpha=filling)
        axes.stairs(shares, edges, color=colour, linewidth=1.7, label=name)
    axes.set(xlabel=x, ylabel="share")
    axes.xaxis.set_major_formatter(_percent)
    axes.yaxis.set_major_formatter(_percent)
    _name_above(axes, len(counts))


@plot
def against(axes: Axes, points: Sequence[Sequence[float]], x: str, y: str) -> None:
    """Draw points, and the line on which both values are the same."""
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
    axes.plot(
        [point[0] for point in points],
        [point[1] for point in points],
        "o",
        color=FIRST,
        alpha=0.5,
        markersize=4.5,
        markeredgewidth=0,
    )
    axes.set(xlabel=x, ylabel=y)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_percent)


@plot
def reliability(axes: Axes, bins: Sequence[dict[str, Any]], x: str, y: str) -> None:
    """Draw how often things happened against how likely they were said to be; larger dots are more cases.

    Where bins have a spread, bars are twice as long on either side of what was predicted.
    """
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
    predicted, happened = [one["predicted"] for one in bins], [one["happened"] for one in bins]
    spread = [2 * one.get("spread", 0) for one in bins]
    axes.errorbar(predicted, predicted, spread, linestyle="none", color=INK, linewidth=0.8, capsize=3 * any(spread))
    most = max(one["n"] for one in bins)
    axes.plot(predicted, happened, color=FIRST, linewidth=1.2)
    axes.scatter(predicted, happened, [12 + 80 * one["n"] / most for one in bins], color=FIRST, linewidths=0)
    axes.set(xlabel=x, ylabel=y)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_percent)


@plot
def balance(axes: Axes, names: Sequence[str], series: Mapping[str, Sequence[float]]) -> None:
    """Draw shares of classes beside each other, one bar for each series, and one below the other."""
    assert axes.figure is not None
    axes.figure.set_figheight(max(HEIGHT, 0.8 + 0.2 * len(names) * len(series)))  # type: ignore[union-attr]
    height = 0.8 / len(series)
    for place, (label, shares) in enumerate(series.items()):
        at = [number + (place - (len(series) - 1) / 2) * height for number in range(len(names))]
        colour, alpha = ((FIRST, 0.9), (SECOND, 0.9), (INK, 0.45))[place]
        axes.barh(at, shares, height * 0.9, label=label, color=colour, alpha=alpha)
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.invert_yaxis()
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(_percent)
    axes.set(xlabel="share of members")
    _name_above(axes, len(series))


@plot
def yardsticks(
    axes: Axes, items: Sequence[dict[str, Any]], x: str = "rows right", typical: float | None = None
) -> None:
    """Draw shares one below the other, with intervals where there are some, and a line at a typical one.

    What has a name that begins with "this model" is in the first colour, or else all are.
    """
    own = [one["name"].startswith("this model") for one in items]
    colours = [FIRST if mine or not any(own) else INK for mine in own]
    _lines(axes, [one["name"] for one in items], longest=34)
    bars = axes.barh(range(len(items)), [one["value"] for one in items], 0.6, color=colours)
    for place, (bar, one) in enumerate(zip(bars, items, strict=True)):
        bar.set_alpha(0.9 if colours[place] == FIRST else 0.45)
        end = max(one["value"], one.get("high", 0))
        if typical is not None and end < typical < end + 0.13:  # not across the line
            end = typical
        axes.text(end + 0.015, place, f"{100 * one['value']:.0f} %", va="center", fontsize=9)
        if "low" in one:
            axes.plot([one["low"], one["high"]], [place, place], color=INK, linewidth=1.4)
    if typical is not None:
        axes.axvline(typical, color=INK, linewidth=0.8, linestyle=":")
    axes.set(xlim=(0, 1.12))
    axes.set_xlabel(x, loc="right")  # long names leave little room below the bars
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.xaxis.set_major_formatter(_percent)


@plot
def importance(axes: Axes, columns: Sequence[dict[str, Any]]) -> None:
    """Draw what each column is worth, with two standard errors on either side; one without bound fills the width."""
    _lines(axes, [one["column"] for one in columns], longest=LONGEST_NAME)
    finite = [one for one in columns if one["drop"] is not None]
    most = max((one["drop"] + 2 * (one["error"] or 0) for one in finite), default=1.0) or 1.0
    drops = [most if one["drop"] is None else one["drop"] for one in columns]
    errors = [2 * (one["error"] or 0) for one in columns]
    colours = [FIRST if drop >= 0 else SECOND for drop in drops]
    axes.barh(range(len(columns)), drops, 0.6, color=colours, alpha=0.85)
    axes.errorbar(drops, range(len(columns)), xerr=errors, linestyle="none", color=INK, linewidth=0.9)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set(xlabel="log-likelihood lost per group")


def _percent(share: float, _place: float) -> str:
    """Return how a tick is written."""
    return f"{100 * share:g} %"


def _lines(axes: Axes, names: Sequence[str], longest: int) -> None:
    """Give each name a line of the plot, the first on top."""
    assert axes.figure is not None
    axes.figure.set_figheight(max(HEIGHT * 0.75, 0.8 + 0.27 * len(names)))  # type: ignore[union-attr]
    axes.set_yticks(range(len(names)), [short(name, longest) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


@plot
def confusion(axes: Axes, names: Sequence[str], matrix: Sequence[Sequence[int]]) -> None:
    """Draw how often rows of one class were called another; the darker, the larger the share of the class."""
    k = len(names)
    assert axes.figure is not None
    axes.figure.set_figheight(max(HEIGHT, 1.2 + 0.3 * k))  # type: ignore[union-attr]
    for row, counts in enumerate(matrix):
        total = max(sum(counts), 1)
        for column, count in enumerate(counts):
            if count:
                colour = FIRST if row == column else SECOND
                share = 0.12 + 0.6 * count / total
                axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, color=colour, alpha=share, linewidth=0))
                axes.text(column, row, str(count), ha="center", va="center", fontsize=10 if k <= 12 else 8)
    axes.set_xticks(range(k), [short(name) for name in names], rotation=0 if max(map(len, names)) * k <= 40 else 90)
    axes.set_yticks(range(k), [short(name) for name in names])
    axes.set(xlabel="predicted", ylabel="label", xlim=(-0.5, k - 0.5), ylim=(k - 0.5, -0.5))
    axes.tick_params(length=0)
