"""Content of the pages of results: the comparison as sections with sentences, tables and plots."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from unbag._utils.pages.tables import Table
from unbag_experiments import plots
from unbag_experiments.claims import claims
from unbag_experiments.comparison import Comparison, Row
from unbag_experiments.result_tables import (
    TABLES,
    apart_table,
    cell_table,
    cost_table,
    figure,
    provenance_table,
    shortfall_table,
    summary_table,
)

PARTS = {
    "ordinal_rank": "Ordinal rank",
    "ordinal_triplet": "Ordinal triplets",
    "paper": "The paper's protocol",
    "copies_together": "Copies kept together",
    "ten_fold": "Ten-fold cross-validation",
    "groups_of_16": "Random groups of 16",
    "groups_of_64": "Random groups of 64",
    "groups_of_128": "Random groups of 128",
    "sorted_groups": "Groups of 16 that are not random",
    "one_class": "Bags of ten, one class of which is positive",
}
_COPIES = (
    "Noisy copies of one bag land on both sides of the split, so these figures are far above what the data support. "
    "UUM and the log-likelihood differ here only in how much large bags weigh; ours is computed in a stable way, which "
    "explains most of the distance to the paper's log-likelihood on musk2."
)
_TOGETHER = "All copies of a bag stay on one side of the split. The paper has no such figures."
_FOLDS = "The original bags without copies; a trial is a fold. The paper has no such figures."
_ORDINAL = "The paper derives these observations but does not test them. Split and trained as its UCI data are."
_TRIPLETS = (
    "The triplet loss and the (2+1)-tuple loss learn, as published, from triplets whose first member is nearer to the "
    "second; of ten equally frequent classes 9 % are such. UUM and the log-likelihood learn from all."
)
_SVHN = "SVHN is our own cut of its pictures to 32 x 32, kept as JPEG: not pixel for pixel what the paper used."
_MISPRINT = "The paper's protocol. Its 7.21 for the triplet loss on 60,000 groups is as printed, and surely a misprint."
_LARGE = "Counts of classes in groups drawn at random, with as many members in all as the paper's groups of 6."
_SORTED = (
    "Rows are sorted by the column that varies most, or images by brightness, with as much noise, and cut into groups. "
    "Members are no longer independent, which EasyLLP's debiased loss rests on."
)
_INSTANCES = (
    "A bag is positive if it has a picture of the last class. Accuracy, AUC and calibration are those of single "
    "pictures, of which nine in ten are negative. Attention and self-attention see pixels by a perceptron, the others "
    "by a LeNet."
)
ABOUT = {
    **{
        (table, protocol): _SORTED if protocol == "sorted_groups" else _LARGE
        for table in ("llp_groups_uci", "llp_groups_images")
        for protocol in ("groups_of_16", "groups_of_64", "groups_of_128", "sorted_groups")
    },
    ("bags_of_images", "one_class"): _INSTANCES,
    ("mil", "paper"): _COPIES,
    ("mil", "copies_together"): _TOGETHER,
    ("mil", "ten_fold"): _FOLDS,
    ("triplet_sizes", "paper"): _MISPRINT,
    ("ordinal", "paper"): _ORDINAL,
    ("similarity_benchmark", "paper"): _SVHN,
    ("triplet_benchmark", "paper"): f"{_TRIPLETS} {_SVHN}",
    ("llp_benchmark", "paper"): _SVHN,
    ("similarity_noinit", "paper"): _SVHN,
    ("triplet_uci", "paper"): _TRIPLETS,
}


@dataclass(frozen=True)
class Plot:
    """A drawing under a name that serves as the name of its file, and what it shows in words."""

    name: str
    svg: str
    description: str


@dataclass(frozen=True)
class Part:
    """The cells of a table under one protocol."""

    title: str
    about: str
    table: Table
    plot: Plot | None


@dataclass(frozen=True)
class Section:
    """One table of the paper, or one of our own."""

    name: str
    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class View:
    """All that the pages show."""

    claims: tuple[str, ...]
    summary: Table
    shortfalls: Table
    sections: tuple[Section, ...]
    provenance: Table
    cost: Table
    apart: Table
    replaced: int


def view(comparison: Comparison, titles: Mapping[str, str], before: Sequence[Mapping[str, Any]] = ()) -> View:
    """Turn a comparison into what the pages show."""
    rows = comparison.rows
    of_table = {name: [row for row in rows if row.key.table == name] for name in TABLES}
    of_table |= {name: list(of_name) for name, of_name in groupby(rows, key=lambda row: row.key.table)}
    return View(
        claims=claims(rows),
        summary=summary_table(rows),
        shortfalls=shortfall_table(rows),
        sections=tuple(_section(name, of_name, titles) for name, of_name in of_table.items()),
        provenance=provenance_table(comparison.provenance),
        cost=cost_table(rows),
        apart=apart_table({"results": comparison.set_aside, "results/before": before}),
        replaced=comparison.replaced,
    )


def _section(name: str, rows: Sequence[Row], titles: Mapping[str, str]) -> Section:
    title = TABLES.get(name, name)
    many_problems = len({row.key.problem for row in rows}) > 1
    many_protocols = len({row.key.protocol for row in rows}) > 1
    parts = []
    for (problem, protocol), of_problem in groupby(rows, key=lambda row: (row.key.problem, row.key.protocol)):
        varying = [problem] * many_problems + [protocol] * many_protocols
        words = [PARTS.get(word, word) for word in varying]
        cells = list(of_problem)
        parts.append(
            Part(
                title=", ".join(words),
                about=ABOUT.get((name, protocol), f"{PARTS.get(protocol, protocol)}."),
                table=cell_table(f"Accuracy in percent: {', '.join([title, *words])}", cells, titles),
                plot=_plot("_".join([name, *varying]), ", ".join([title, *words]), cells, titles),
            )
        )
    return Section(name, title, tuple(parts))


def _plot(name: str, title: str, rows: Sequence[Row], titles: Mapping[str, str]) -> Plot | None:
    """Draw a part, unless there is nothing to draw yet."""
    if not any(row.accuracies or row.paper for row in rows):
        return None
    sized = any(row.key.n_groups is not None for row in rows)
    draw = plots.size_plot if sized else plots.dot_plot
    kind = "Accuracy by number of training groups" if sized else "Dot plot of accuracies"
    figures = []
    for row in rows:
        if row.key.method == "uum":
            where = row.key.dataset + (f" with {row.key.n_groups:,} groups" if sized else "")
            theirs = f" (paper {figure(row.paper.mean, row.paper.std)})" if row.paper else ""
            figures.append(f"{where} {figure(row.mean, row.std)}{theirs}")
    uum = f" UUM: {'; '.join(figures)}." if figures else ""
    file = re.sub(r"[^\w-]+", "_", name)  # whatever tables and protocols others bring
    return Plot(file, draw(rows, titles), f"{kind}: {title}.{uum} All figures are in the table.")
