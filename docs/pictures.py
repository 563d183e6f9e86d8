"""The pictures of the documentation, computed by unbag itself.

``PYTHONPATH=tests/helpers python docs/pictures.py docs/_pictures`` draws all of them. The same versions draw the same
bytes. They are in the repository, so that pages show them without a build. Pictures of the gallery show the variables
of the code on their page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from sklearn.datasets import make_blobs
from torch import Tensor

import unbag

# Colours that people with colour blindness can tell apart; the first is the negative or lowest class.
COLOURS = ("#4477aa", "#ee6677", "#ccbb44", "#228833")
INK, PALE = "#222222", "#dddddd"
TEXT_ON = ("white", "white", INK, "white")

STYLE = {
    "svg.hashsalt": "unbag",  # or else names inside the file would be random
    "svg.fonttype": "path",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw_posterior(
    aggregate: unbag.Aggregate,
    probabilities: Sequence[Sequence[float]],
    z: object,
    seen: str,
    *,
    members: Sequence[str],
    classes: Sequence[str],
) -> Figure:
    """Show one group: what a model says of its members, what was observed, and what both say together."""
    chances = torch.tensor(probabilities)
    group = unbag.Groups.from_sizes([len(chances)])
    posterior = aggregate.posterior(chances.log(), group, z)
    likelihood = aggregate.log_likelihood(chances.log(), group, z).exp().item()
    figure = Figure(figsize=(7.6, 1.25 + 0.42 * len(chances)), facecolor="white", layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.invert_yaxis()  # the first member on top; the other side follows
    _draw_shares(left, chances, members)
    _draw_shares(right, posterior, members)
    left.set_title("what the model says alone", fontsize=10.5)
    right.set_title(f"after “{seen}”, of probability {likelihood:.2f}", fontsize=10.5)
    handles = [mpl.patches.Patch(color=colour) for colour, _ in zip(COLOURS, classes, strict=False)]
    figure.legend(handles, classes, loc="outside lower center", ncols=len(classes), frameon=False)
    return figure


def _draw_shares(axes: Axes, shares: Tensor, members: Sequence[str]) -> None:
    """Draw one bar for each member, from 0 to 1, cut into classes."""
    start = torch.zeros(len(shares))
    for colour, text, share in zip(COLOURS, TEXT_ON, shares.unbind(1), strict=False):
        axes.barh(range(len(shares)), share, left=start, height=0.72, color=colour, edgecolor="white")
        for row, (begin, width) in enumerate(zip(start.tolist(), share.tolist(), strict=True)):
            if width >= 0.095:
                axes.text(begin + width / 2, row, f"{width:.2f}", ha="center", va="center", color=text, fontsize=9)
        start = start + share
    axes.set_xlim(0, 1)
    axes.set_xticks([])
    axes.set_yticks(range(len(members)), members)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def label_proportions() -> Figure:
    """Three people, of whom two are healthy and one has the second diagnosis."""
    chances = [[0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.7, 0.1, 0.2]]
    names, classes = ["person 1", "person 2", "person 3"], ["healthy", "first diagnosis", "second diagnosis"]
    return draw_posterior(unbag.LabelProportions(), chances, [[2, 0, 1]], "2, 0 and 1", members=names, classes=classes)


def multiple_instance() -> Figure:
    """Four instances of a positive bag."""
    chances = [[0.95, 0.05], [0.8, 0.2], [0.6, 0.4], [0.9, 0.1]]
    names = [f"instance {n}" for n in range(1, 5)]
    return draw_posterior(
        unbag.MultipleInstance(), chances, [1], "positive", members=names, classes=["negative", "positive"]
    )


def pairwise_similarity() -> Figure:
    """Two images that are alike."""
    chances = [[0.8, 0.1, 0.1], [0.3, 0.4, 0.3]]
    names, classes = ["image 1", "image 2"], ["class 0", "class 1", "class 2"]
    return draw_posterior(unbag.PairwiseSimilarity(), chances, [1], "alike", members=names, classes=classes)


def triplet_comparison() -> Figure:
    """Three images, the second nearer to the first than the third."""
    chances = [[0.6, 0.2, 0.2], [0.3, 0.4, 0.3], [0.5, 0.3, 0.2]]
    names, classes = ["image 1", "image 2", "image 3"], ["class 0", "class 1", "class 2"]
    return draw_posterior(
        unbag.TripletComparison(), chances, [1], "2 nearer to 1 than 3", members=names, classes=classes
    )


def ordinal_rank() -> Figure:
    """Two essays, the first with the lower grade."""
    chances = [[0.25, 0.25, 0.25, 0.25], [0.1, 0.6, 0.2, 0.1]]
    names, classes = ["essay 1", "essay 2"], [f"grade {n}" for n in range(4)]
    return draw_posterior(unbag.OrdinalRank(), chances, [1], "1 is lower than 2", members=names, classes=classes)


def ordinal_triplet() -> Figure:
    """Three essays, the second nearer to the first than the third."""
    chances = [[0.7, 0.2, 0.05, 0.05], [0.25, 0.25, 0.25, 0.25], [0.3, 0.4, 0.2, 0.1]]
    names, classes = ["essay 1", "essay 2", "essay 3"], [f"grade {n}" for n in range(4)]
    return draw_posterior(unbag.OrdinalTriplet(), chances, [1], "2 nearer to 1 than 3", members=names, classes=classes)


def at_least() -> Figure:
    """Four parts, of which at least two are broken."""
    chances = [[0.95, 0.05], [0.8, 0.2], [0.6, 0.4], [0.9, 0.1]]
    names = [f"part {n}" for n in range(1, 5)]
    return draw_posterior(
        unbag.AtLeast(2), chances, [1], "at least 2 broken", members=names, classes=["sound", "broken"]
    )


def loop() -> Figure:
    """Model, posterior weights and weighted loss, in a circle."""
    figure = Figure(figsize=(7.6, 2.5), facecolor="white", layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 3)
    boxes = {
        1.5: ("the model", "p(y | x) of each\nmember by itself"),
        5.0: ("weights", "p(y | z, x) of each member,\ngiven what was observed"),
        8.5: ("the risk", "the loss of every possible\nlabel, times its weight"),
    }
    for x, (head, body) in boxes.items():
        style = {"boxstyle": "round,pad=0.08", "fc": "white", "ec": COLOURS[0], "lw": 1.5}
        axes.add_patch(FancyBboxPatch((x - 1.25, 1.05), 2.5, 1.35, **style))
        axes.text(x, 2.15, head, ha="center", va="center", weight="bold")
        axes.text(x, 1.55, body, ha="center", va="center", fontsize=9)
    for start, end in (((2.85, 1.75), (3.65, 1.75)), ((6.35, 1.75), (7.15, 1.75))):
        axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=14, color=INK))
    back = FancyArrowPatch(
        (8.5, 0.95), (1.5, 0.95), arrowstyle="-|>", mutation_scale=14, color=INK, connectionstyle="arc3,rad=-0.12"
    )
    axes.add_patch(back)
    axes.text(5, 0.12, "one step of an optimiser", ha="center", va="center", fontsize=9)
    return figure


def rows_from_counts(ink: str = INK, pale: str = "#b8b8b8") -> Figure:
    """Rows without labels and counts of cohorts on the left, a class for every row on the right: learned, not drawn."""
    X, cohort, counts, found = _learn_rows()
    figure = Figure(figsize=(9.2, 3.1), layout="constrained")
    figure.patch.set_alpha(0)  # whatever colour the page has
    rows, known, learned = figure.subplots(1, 3, width_ratios=(1, 0.8, 1))
    titles = {rows: "rows without labels", known: "counts of their groups", learned: "a class for each row"}
    for axes, title in titles.items():
        axes.set_title(title, fontsize=12, color=ink)
        axes.set_axis_off()
    rows.scatter(*X.T, s=12, color=pale, linewidths=0)
    rows.scatter(*X[cohort == 0].T, s=34, facecolors="none", edgecolors=ink, linewidths=1.2, label="group 1")
    rows.legend(loc="upper right", frameon=False, labelcolor=ink, fontsize=9, handletextpad=0.1)
    learned.scatter(*X.T, s=12, color=np.array(COLOURS)[found], linewidths=0)
    for line, group in enumerate(counts[:8]):
        known.text(-1.1, line, f"group {line + 1}", ha="right", va="center", color=ink, fontsize=9)
        known.scatter(range(6), [line] * 6, s=90, marker="s", color=np.repeat(COLOURS[:3], group), linewidths=0)
    known.text(2.5, 8, "⋯", ha="center", va="center", color=ink, fontsize=12)
    for x, sign in ((-4.6, "+"), (7.2, "→")):
        known.text(x, 3.5, sign, ha="center", va="center", color=ink, fontsize=20, clip_on=False)
    known.set_xlim(-4.2, 6.5)
    known.set_ylim(8.5, -0.7)
    return figure


@cache
def _learn_rows() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, their cohorts, the counts of these, and the classes that are learned from all that."""
    X, y = make_blobs(300, centers=[[0, 0], [4, 0], [0, 4]], random_state=0)
    cohort = np.arange(300) // 6
    counts = np.stack([np.bincount(y[cohort == c], minlength=3) for c in range(50)])
    model = unbag.AggregateClassifier(model="linear", validation=unbag.CrossFitting(None), random_state=0)
    return X, cohort, counts, model.fit(X, unbag.target(cohort, counts)).predict(X)


def rows_from_counts_dark() -> Figure:
    """Draw the same for dark pages."""
    return rows_from_counts("#e6e6e6", "#6e6e6e")


def calibration() -> Figure:
    """How sure a model that learned from counts is of new rows, and how often it is right: learned, not drawn."""
    X, y = make_blobs(6000, centers=[[0, 0], [2, 0], [0, 2]], random_state=0)
    cohort = np.arange(1200) // 6
    counts = np.stack([np.bincount(y[:1200][cohort == c], minlength=3) for c in range(200)])
    model = unbag.AggregateClassifier(model="linear", random_state=0)
    model.fit(X[:1200], unbag.target(cohort, counts))
    said, right = model.predict_proba(X[1200:]).max(1), model.predict(X[1200:]) == y[1200:]
    parts = np.array_split(np.argsort(said), 10)  # equally many rows each
    figure = Figure(figsize=(4.6, 3.4), facecolor="white", layout="constrained")
    axes = figure.subplots()
    axes.plot([0.3, 1], [0.3, 1], color=PALE, lw=2)
    axes.plot([said[own].mean() for own in parts], [right[own].mean() for own in parts], "o", color=COLOURS[0])
    axes.set_xlabel("probability of the predicted class")
    axes.set_ylabel("share that is right")
    return figure


def questions() -> Figure:
    """Accuracy against the number of questions, by kind, from which_observation.json."""
    results = json.loads((Path(__file__).parent / "which_observation.json").read_text(encoding="utf-8"))["results"]
    figure = Figure(figsize=(7.6, 4.4), facecolor="white", layout="constrained")
    for axes, n_classes in zip(figure.subplots(1, 2, sharey=True), (10, 2), strict=True):
        asked: list[int] = []
        for place, one in enumerate(own for own in results if own["classes"] == n_classes and own["accuracy"]):
            means = [100 * np.mean(values) for values in one["accuracy"].values()]
            asked = [int(n) for n in one["accuracy"]]
            style = {"color": (*COLOURS, "#aa3377", "#66ccee")[place], "marker": "osD^vX"[place]}
            axes.plot(asked, means, label=one["kind"], lw=1.8, **style)
        axes.set_xscale("log")
        axes.set_xticks(asked, [str(n) for n in asked])
        axes.minorticks_off()
        axes.set_xlabel("questions")
        axes.set_title("which digit" if n_classes == 10 else "8 or 9, or another", fontsize=10.5)
        axes.grid(axis="y", color=PALE)
        if asked:
            axes.legend(fontsize=7.5, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    figure.axes[0].set_ylabel("accuracy on new rows, %")
    return figure


def information() -> Figure:
    """How much a group tells about each of its members, by size."""
    sizes = torch.arange(1, 65)
    counts = [_bits(_binomial(int(m), 0.5)) / int(m) for m in sizes]
    answers = [1 / int(m) for m in sizes]  # bags that are positive as often as not
    figure = Figure(figsize=(7.6, 3.0), facecolor="white", layout="constrained")
    axes = figure.subplots()
    axes.plot(sizes, counts, color=COLOURS[0], lw=2)
    axes.plot(sizes, answers, color=COLOURS[1], lw=2)
    axes.text(5.5, 0.47, "counts of two equally frequent classes", color=COLOURS[0])
    axes.text(1.05, 0.2, "one yes or no per group", color=COLOURS[1])
    axes.set_xscale("log", base=2)
    axes.set_xticks([1, 2, 4, 8, 16, 32, 64], ["1", "2", "4", "8", "16", "32", "64"])
    axes.set_xlabel("members of a group")
    axes.set_ylabel("bits per member, at most")
    axes.set_ylim(0, 1.05)
    axes.grid(axis="y", color=PALE)
    axes.set_axisbelow(True)
    return figure


def _binomial(m: int, chance: float) -> Tensor:
    return torch.distributions.Binomial(m, torch.tensor(chance).double()).log_prob(torch.arange(m + 1).double()).exp()


def _bits(probabilities: Tensor) -> float:
    return float(-(probabilities * probabilities.log2()).sum())


PICTURES: dict[str, Callable[[], Figure]] = {
    draw.__name__: draw
    for draw in (
        label_proportions,
        multiple_instance,
        pairwise_similarity,
        triplet_comparison,
        ordinal_rank,
        ordinal_triplet,
        at_least,
        loop,
        rows_from_counts,
        rows_from_counts_dark,
        information,
        calibration,
        questions,
    )
}


def _axes(n: int = 1, size: tuple[float, float] = (4.6, 3.2)) -> tuple[Figure, Any]:
    figure = Figure(figsize=size, facecolor="white", layout="constrained")
    return figure, figure.subplots(1, n)


def _draw_pupils(of: dict[str, Any]) -> Figure:
    figure, axes = _axes()
    table = np.zeros((5, 5))
    np.add.at(table, (of["grade"], of["predicted"]), 1)
    axes.imshow(table, cmap="Blues", origin="lower")
    for (row, column), count in np.ndenumerate(table):
        axes.text(column, row, int(count), ha="center", va="center", color="white" if count > 120 else INK)
    axes.set(xlabel="predicted grade", ylabel="actual grade")
    return figure


def _draw_wards(of: dict[str, Any]) -> Figure:
    figure, axes = _axes()
    ages = np.arange(20, 90)
    for smoker, colour in ((True, COLOURS[1]), (False, COLOURS[0])):
        rows = of["X"].iloc[[0] * 70].assign(age=ages, smoker=smoker)
        axes.plot(ages, of["clf"].predict_proba(rows)[:, 1], color=colour, label="smokers" if smoker else "others")
        axes.plot(ages, 1 / (1 + np.exp(-(ages - 60) / 8 - 3 * smoker)), ":", color=colour)
    axes.set(xlabel="age", ylabel="probability of illness")
    axes.legend(frameon=False, title="learned; dots: actual")
    return figure


def _draw_bars(names: Sequence[str], found: Sequence[float], actual: Sequence[float], label: str) -> Figure:
    figure, axes = _axes()
    places = np.arange(len(names))
    axes.bar(places - 0.2, found, 0.38, color=COLOURS[0], label="learned")
    axes.bar(places + 0.2, actual, 0.38, color=PALE, label="actual")
    axes.set_xticks(places, names)
    axes.set_ylabel(label)
    axes.legend(frameon=False)
    return figure


def _draw_conversions(of: dict[str, Any]) -> Figure:
    rows = [(of["plan"] == name)[~of["old"]] for name in ("free", "basic", "pro")]
    bought = np.asarray(of["bought"])[~of["old"]]
    found, actual = [of["chance"][row].mean() for row in rows], [bought[row].mean() for row in rows]
    return _draw_bars(("free", "basic", "pro"), found, actual, "share that buys")


def _draw_votes(of: dict[str, Any]) -> Figure:
    rows = of["bands"].values()
    found = [of["found"][row, 0].mean() for row in rows]
    return _draw_bars(list(of["bands"]), found, [(of["party"][row] == 0).mean() for row in rows], "share of one party")


def _draw_slides(of: dict[str, Any]) -> Figure:
    figure, both = _axes(2, (5.6, 2.9))
    for axes, slide in zip(both, np.flatnonzero(of["label"][200:])[:2], strict=True):
        scene = of["patches"][200 + slide].reshape(6, 6, 8, 8).swapaxes(1, 2).reshape(48, 48)
        axes.imshow(scene, cmap="gray_r", interpolation="nearest")
        extent = (-0.5, 47.5, 47.5, -0.5)
        axes.imshow(of["where"][slide], cmap="Reds", alpha=0.5, vmin=0, vmax=1, interpolation="nearest", extent=extent)
        for cell in np.flatnonzero(of["tumour"][200 + slide]):
            corner = (cell % 6 * 8 - 0.5, cell // 6 * 8 - 0.5)
            axes.add_patch(mpl.patches.Rectangle(corner, 8, 8, fill=False, edgecolor=COLOURS[0], lw=2))
        axes.set_axis_off()
    return figure


def _draw_cells(of: dict[str, Any]) -> Figure:
    figure, axes = _axes()
    for place, name in enumerate(of["names"]):
        rows = np.flatnonzero(of["clf"].predict(of["X"]) == name)[:200]
        axes.plot(*of["X"][rows, :2].T, ".", ms=3, color=COLOURS[place], label=name)
    axes.set(xlabel="marker 1", ylabel="marker 2")
    axes.legend(frameon=False, markerscale=3)
    return figure


def _draw_photographs(of: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(5, 2.7), facecolor="white", layout="constrained")
    grid = figure.subplots(5, 12)
    for digit, row in enumerate(grid):
        for axes, image in zip(row, of["images"][600:][of["predicted"] == digit], strict=False):
            axes.imshow(image.reshape(8, 8), cmap="gray_r", interpolation="nearest")
            axes.set(xticks=[], yticks=[])
        row[0].set_ylabel(digit, rotation=0, ha="right", va="center")
    return figure


def _draw_private_counts(of: dict[str, Any]) -> Figure:
    figure, axes = _axes()
    axes.plot(list(of["areas"]), list(of["areas"].values()), "o-", color=COLOURS[0])
    axes.set_xscale("log")
    axes.set_xticks(list(of["areas"]), map(str, of["areas"]))
    axes.set(xlabel="epsilon (privacy loss)", ylabel="area under the ROC curve")
    return figure


GALLERY: dict[str, Callable[[dict[str, Any]], Figure]] = {
    "pupils": _draw_pupils,
    "wards": _draw_wards,
    "conversions": _draw_conversions,
    "slides": _draw_slides,
    "cells": _draw_cells,
    "votes": _draw_votes,
    "photographs": _draw_photographs,
    "private_counts": _draw_private_counts,
}
"""Pictures of the pages of the gallery, from the variables of their code."""


def draw_gallery(name: str, variables: dict[str, Any], folder: Path) -> None:
    """Write the picture of a page of the gallery."""
    with mpl.rc_context(STYLE):
        GALLERY[name](variables).savefig(folder / f"{name}.svg", metadata={"Date": None})


def draw_all(folder: Path) -> None:
    """Write every picture as an SVG file into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for name, draw in PICTURES.items():
            draw().savefig(folder / f"{name}.svg", metadata={"Date": None})


def _main(folder: Path) -> None:
    from code_blocks import find_blocks, run_block  # noqa: PLC0415  # a helper of the tests

    draw_all(folder)
    for name in GALLERY:
        page = Path(__file__).parent / "gallery" / f"{name}.md"
        draw_gallery(name, run_block(page, min(find_blocks(page)))[1], folder)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
