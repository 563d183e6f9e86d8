"""Content of the pages of results: the comparison as sections with sentences, tables and plots."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from unbag._utils.pages.tables import Table
from unbag_experiments import plots
from unbag_experiments.claims import claims
from unbag_experiments.comparison import Comparison, Row
from unbag_experiments.result_tables import (
    TABLES,
    cell_table,
    cost_table,
    figure,
    likelihood_table,
    method_table,
    provenance_table,
    wide_table,
)
from unbag_experiments.standings import gaps, shortfalls

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
PAGES = {
    "results_comparisons": ("Results: pairs and triplets", ("similarity_", "triplet_")),
    "results_counts": ("Results: class counts (label proportions)", ("llp_benchmark", "llp_uci")),
    "results_bags": ("Results: bag labels and ranks", ("mil", "bags_", "ordinal")),
    "results_larger_groups": ("Results: larger and sorted groups", ("",)),
}
"""Pages with their titles and the beginnings of the names of their tables; the last has all others."""

_COPIES = (
    "Noisy copies of a bag are on both sides of the split, as in the paper, so these accuracies are far above what the "
    "data support. UUM and the log-likelihood differ here only in the weight of large bags. Our log-likelihood is "
    "numerically stable, which explains most of the difference from the paper's log-likelihood on musk2."
)
_TOGETHER = "All copies of a bag are on one side of the split. The paper has no such results."
_FOLDS = "The original bags without copies; each trial is a fold. The paper has no such results."
_ORDINAL = "The paper derives these observations but does not test them. Data are split as the UCI data of the paper."
_TRIPLETS = (
    "The triplet loss and the (2+1)-tuple loss learn only from triplets whose first member is nearer to the second, "
    "as published; with ten equally frequent classes these are 9 %. UUM and the log-likelihood learn from all."
)
_SVHN = "SVHN images were cropped to 32 x 32 by us and stored as JPEG, so pixels differ from those of the paper."
_MISPRINT = "The paper prints 7.21 for the triplet loss with 60,000 groups, which is presumably a misprint."
_LARGE = "Class counts of random groups, with as many members in total as the paper's groups of 6."
_SORTED = (
    "Rows are sorted by the column with the largest variance, or images by brightness, with noise of the same "
    "variance, and cut into groups. Members are not independent then, which the debiased loss of EasyLLP assumes."
)
_INSTANCES = (
    "A bag is positive if it contains an image of the last class. Accuracy is that of single images, nine in ten of "
    "which are negative. Attention and self-attention use a perceptron on the pixels, the other methods a LeNet."
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
    wide: Table | None  # of the cells that were run
    not_run: str
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
    likelihood: Table
    methods: Table
    shortfalls: Sequence[str]
    sections: tuple[Section, ...]
    provenance: Table
    cost: Table
    set_aside: int
    replaced: int


def view(comparison: Comparison, titles: Mapping[str, str]) -> View:
    """Turn a comparison into what the pages show."""
    rows = comparison.rows
    of_table = {name: [row for row in rows if row.key.table == name] for name in TABLES}
    of_table |= {name: list(of_name) for name, of_name in groupby(rows, key=lambda row: row.key.table)}
    return View(
        claims=claims(rows),
        likelihood=likelihood_table(gaps(rows)),
        methods=method_table(rows, titles),
        shortfalls=shortfalls(rows),
        sections=tuple(_section(name, of_name, titles) for name, of_name in of_table.items()),
        provenance=provenance_table(comparison.provenance),
        cost=cost_table(rows),
        set_aside=len(comparison.set_aside),
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
                about=ABOUT.get((name, protocol), ""),
                table=cell_table(f"Accuracy in percent: {', '.join([title, *words])}", cells, titles),
                wide=wide_table(cells, titles) if any(row.trials for row in cells) else None,
                not_run=_not_run(cells, titles),
                plot=_plot("_".join([name, *varying]), ", ".join([title, *words]), cells, titles),
            )
        )
    return Section(name, title, tuple(parts))


def _not_run(rows: Sequence[Row], titles: Mapping[str, str]) -> str:
    """List the cells without trials, by data set."""
    by_line: dict[str, list[str]] = {}
    for row in rows:
        sized = f" with {row.key.n_groups:,} groups" if row.key.n_groups is not None else ""
        of_line = by_line.setdefault(row.key.dataset + sized, [])
        if not row.trials:
            of_line.append(titles.get(row.key.method, row.key.method))
    n_methods = len({row.key.method for row in rows})
    return "; ".join(
        f"{line}: {'all methods' if len(names) == n_methods else ', '.join(names)}"
        for line, names in by_line.items()
        if names
    )


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
