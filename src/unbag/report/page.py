"""One HTML page of a summary, which needs no other file: the same bytes for the same numbers."""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unbag._utils.pages import describe, environment, recolour, to_svg
from unbag._utils.terminal import visible
from unbag.report.elements import Plot
from unbag.report.overview import make_overview
from unbag.report.sections import make_sections
from unbag.report.summary import FORMAT

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


def render(summary: dict[str, Any]) -> str:
    """Render a report as one HTML page, which needs no network and no other file.

    The same summary gives the same page. Control characters, and characters that change the direction of text, are
    shown as escapes; names of files, columns and classes may contain them.
    """
    check_format(summary)
    try:
        sections = make_sections(summary)
        page = (
            environment("unbag.report")
            .get_template("report.html.j2")
            .render(
                title=summary["title"],
                overview=make_overview(summary),
                sections=[(section, [*map(_draw, section.plots)]) for section in sections],
                version=summary["versions"]["unbag"],
            )
        )
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"the summary is not one that unbag wrote: {error!r}; run unbag fit again") from error
    return visible(page, keep="\n")


def check_format(summary: Any) -> None:
    """Raise an error unless this is a summary in the form of this version."""
    written = summary.get("format") if isinstance(summary, dict) else None
    if not isinstance(written, int) or isinstance(written, bool) or written < 1:
        raise ValueError("this is not a summary of a run: it has no format")
    if written != FORMAT:
        what = "run unbag fit again" if written < FORMAT else "upgrade unbag"
        raise ValueError(f"the summary has format {written}, but this version of unbag reads format {FORMAT}; {what}")


def _draw(plot: Plot) -> tuple[Markup, str]:
    """Return a plot as inline SVG, in the colours of the page and with text that stays text, and its caption."""
    # The browser has fonts for names that matplotlib has no glyphs for.
    with mpl.rc_context({**STYLE, "svg.hashsalt": f"{plot.kind} {plot.arguments}"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure = Figure(figsize=(WIDTH, HEIGHT), facecolor="none")
        KINDS[plot.kind](figure.add_subplot(), **plot.arguments)
        svg = recolour(to_svg(figure), COLOURS)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # numbered alike in every plot, and not referred to
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"| version="1.1"| (width|height)="[\d.]+pt"', "", svg).replace("xlink:", "")
    return Markup(describe(svg, plot.description)), plot.caption


def _two_histograms(axes: Axes, edges: Sequence[float], counts: Mapping[str, Sequence[int]], x: str) -> None:
    """Draw two distributions over the same bins, each as shares of its total."""
    for (name, values), colour, alpha in zip(counts.items(), (FIRST, SECOND), (0.35, 0), strict=True):
        shares = [value / max(sum(values), 1) for value in values]
        axes.stairs(shares, edges, fill=True, color=colour, alpha=alpha)
        axes.stairs(shares, edges, color=colour, linewidth=1.7, label=name)
    axes.set(xlabel=x, ylabel="share")
    _format_percent(axes.xaxis, axes.yaxis)
    axes.figure.legend(loc="outside upper center", ncols=2, fontsize=9)  # above the axes, where it hides nothing


def _reliability(axes: Axes, bins: Bins, x: str, y: str) -> None:
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


def _format_percent(*of_axes: Any) -> None:
    for axis in of_axes:
        axis.set_major_formatter(lambda share, _: f"{100 * share:g} %")


KINDS: dict[str, Callable[..., None]] = {"two_histograms": _two_histograms, "reliability": _reliability}
