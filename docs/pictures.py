"""The pictures of the documents, computed by unbag itself.

``python docs/pictures.py docs/_pictures`` draws them all anew. The same versions draw the same bytes. They are kept in
the repository, so that pages show them wherever they are read, without a build.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

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


def draw_all(folder: Path) -> None:
    """Write every picture as an SVG file into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for name, draw in PICTURES.items():
            draw().savefig(folder / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    draw_all(Path(sys.argv[1]))
