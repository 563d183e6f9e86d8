"""What there is to run: every cell of every table with its settings, in order of importance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from unbag import datasets
from unbag.baselines import METHODS
from unbag.checks import check_choice
from unbag.experiments import ordered
from unbag.experiments.splits import FOLDS
from unbag.training import Settings
from unbag.training.scaling import How

UCI = ("msplice", "optdigits", "pendigits", "usps", "vehicle")
INDICATORS = ("msplice",)
"""Tables whose columns are all 0 or 1, so that there is nothing to scale."""
BAGS = ("musk1", "musk2", "elephant", "fox", "tiger")
GREY = ("mnist", "kuzushiji-mnist", "fashion-mnist")
COLOURED = ("cifar10", "svhn")
"""Images that the paper gives a DenseNet to."""
SIZES = (10_000, 30_000, 60_000, 90_000, 120_000)
FIRST = ("uum", "log_likelihood")
"""Methods that matter most."""
TRIALS = 5
PATIENCE = 10
"""Epochs without a better validation accuracy after which a DenseNet is trained no longer; the paper trains all 100 and
takes the best."""


@dataclass(frozen=True)
class Choice:
    """A way to train that the paper leaves open; each trial takes the one with the best validation accuracy.

    Parameters
    ----------
    scaling
        Of the features.
    changes
        What is different in the settings.
    dropout
        Share of the columns that a step leaves out, drawn anew for each row.
    """

    scaling: How
    changes: Mapping[str, Any] = field(default_factory=dict)
    dropout: float = 0.0


@dataclass(frozen=True)
class Table:
    """One table: what is crossed with what.

    Parameters
    ----------
    name
        As in the paper's figures.
    problems, datasets, protocols, n_groups
        One cell for each combination and method; a number of groups of None is that which the data set asks for.
    methods
        None for all that fit the problem.
    without
        Methods left out even so.
    """

    name: str
    problems: tuple[str, ...]
    datasets: tuple[str, ...]
    protocols: tuple[str, ...] = ("paper",)
    n_groups: tuple[int | None, ...] = (None,)
    methods: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()

    def cells(self, names: Sequence[str]) -> Iterable[Cell]:
        """Make the cells of some data sets."""
        for problem in self.problems:
            fitting = [name for name, method in METHODS.items() if problem in method.problems]
            methods = [name for name in self.methods or fitting if name not in self.without]
            for dataset in names:
                for protocol in self.protocols:
                    for n_groups in self.n_groups:
                        for method in methods:
                            yield Cell(self.name, problem, dataset, method, protocol, n_groups)


@dataclass(frozen=True)
class Cell:
    """One figure of a table: a method on a data set, and how it is trained.

    Examples
    --------
    >>> cell = Cell("similarity_uci", "pairwise_similarity", "vehicle", "uum")
    >>> cell.model, cell.settings.epochs, [choice.scaling for choice in cell.choices]
    ('mlp', 200, ['none', 'table', 'standard', 'none', 'table', 'standard'])
    """

    table: str
    problem: str
    dataset: str
    method: str
    protocol: str = "paper"
    n_groups: int | None = None
    epochs: int | None = None
    """In place of the paper's, for a try."""

    @property
    def key(self) -> str:
        """A name for the cell that a file can have."""
        parts = [self.table, self.problem, self.dataset, self.method, self.protocol, self.n_groups or ""]
        return "--".join(str(part) for part in parts if part)

    @property
    def kind(self) -> str:
        """What the data set is made of: ``"images"``, ``"bags"`` or a ``"table"``."""
        if self.problem == "multiple_instance":
            return "bags"
        return "table" if self.table.endswith("_uci") or self.table == "ordinal" else "images"

    @property
    def model(self) -> str:
        """The network that the paper gives to data of this kind."""
        if self.kind == "images":
            return "densenet" if self.dataset in COLOURED else "lenet"
        return {"bags": "logistic", "table": "mlp"}[self.kind]

    @property
    def one_by_one(self) -> bool:
        """Whether trials cannot be trained at once: batch norm keeps running statistics."""
        return self.model == "densenet"

    @property
    def settings(self) -> Settings:
        """The settings of the paper's appendix, before a method adapts them."""
        settings = self._of_appendix()
        if self.epochs is None:
            return settings
        # Phases keep their share of the epochs.
        share = self.epochs / settings.epochs
        memory = settings.remember_from
        return replace(
            settings,
            epochs=self.epochs,
            warm_up=round(settings.warm_up * share),
            remember_from=None if memory is None else round(memory * share),
        )

    def _of_appendix(self) -> Settings:
        if self.kind == "bags":
            # Of 3,500 epochs it is enough to look at every fifth.
            return Settings(epochs=3500, learning_rate=0.2, score_every=5)
        epochs, warm_up = (100, 20) if self.kind == "images" else (200, 100)
        if self.problem == "label_proportions":
            warm_up = 0
        settings = Settings(epochs=epochs, warm_up=warm_up, remember_from=warm_up)
        if self.table == "similarity_noinit":
            settings = replace(settings, warm_up=0, remember_from=50 if self.dataset in COLOURED else 30)
        if self.model == "densenet":
            settings = replace(settings, precision="bfloat16", compiled=True)
            if self.table != "similarity_noinit":  # whose second phase begins after half of the epochs
                settings = replace(settings, patience=PATIENCE)
        return settings

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What validation decides.

        The paper searched the batch size of bags, does not speak of scaling, and has no weight decay, without which a
        network of 300 units overfits the smaller tables even where it is told every label; dropout is the other
        remedy, where columns are indicators and each says little. The bags of images are scaled as they come, those of
        molecules are not.
        """
        if self.kind == "images":
            return (Choice("table"),)
        if self.kind == "bags":
            # Without copies there are too few bags to make a difference.
            sizes = (128,) if self.protocol == "ten_fold" else (128, 512, 4096)
            return tuple(Choice(scaling, {"batch_size": size}) for size in sizes for scaling in ("none", "standard"))
        if self.dataset in INDICATORS:
            return Choice("none"), Choice("none", {"weight_decay": 1e-4}), Choice("none", dropout=0.2)
        return tuple(
            Choice(scaling, changes)
            for changes in ({}, {"weight_decay": 1e-4})
            for scaling in ("none", "table", "standard")
        )

    def seeds(self, trials: int | None = None) -> range:
        """Return the seeds of the cell's trials, five or as many as asked for; of a cross-validation, of its folds.

        Examples
        --------
        >>> Cell("mil", "multiple_instance", "fox", "uum", "ten_fold").seeds()
        range(0, 10)
        """
        if self.protocol == "ten_fold":
            return range(FOLDS if trials is None else min(trials, FOLDS))
        return range(TRIALS if trials is None else trials)

    @property
    def same_as(self) -> Cell | None:
        """The cell of another table that asks for the very same trials, as the largest of the sizes does.

        The supervised ceiling does not look at pairs or triplets, and is judged alike beside both.
        """
        if self.table.endswith("_sizes") and self.n_groups == SIZES[-1]:
            return replace(self, table=self.table.replace("_sizes", "_benchmark"))
        if self.method == "supervised" and self.problem == "triplet_comparison":
            table = self.table.replace("triplet", "similarity")
            return replace(self, table=table, problem="pairwise_similarity")
        return None


_IMAGES = (*GREY, *COLOURED)
TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table("similarity_uci", ("pairwise_similarity",), UCI),
        Table("triplet_uci", ("triplet_comparison",), UCI),
        Table("llp_uci", ("label_proportions",), UCI),
        Table("mil", ("multiple_instance",), BAGS, ("paper", "copies_together", "ten_fold")),
        Table("similarity_benchmark", ("pairwise_similarity",), _IMAGES, n_groups=(120_000,)),
        Table("triplet_benchmark", ("triplet_comparison",), _IMAGES, n_groups=(120_000,)),
        Table("llp_benchmark", ("label_proportions",), _IMAGES, n_groups=(30_000,)),
        Table("ordinal", ("ordinal_rank", "ordinal_triplet"), ordered.NAMES),
        Table("similarity_noinit", ("pairwise_similarity",), _IMAGES, n_groups=(120_000,), methods=("uum",)),
        # The supervised ceiling is told every label, however many groups there are.
        Table("similarity_sizes", ("pairwise_similarity",), ("cifar10",), n_groups=SIZES, without=("supervised",)),
        Table("triplet_sizes", ("triplet_comparison",), ("cifar10",), n_groups=SIZES, without=("supervised",)),
    )
}

_STAGES = {"ordinal": 2, "similarity_noinit": 3, "similarity_sizes": 4, "triplet_sizes": 4}


@dataclass(frozen=True)
class Work:
    """Trials that are trained in one go: all of a cell, or one where they go one by one."""

    cell: Cell
    seeds: tuple[int, ...]

    @property
    def key(self) -> str:
        """A name for the work that a file can have; where trials go one by one, each may go to another run."""
        return f"{self.cell.key}--{self.seeds[0]}" if self.cell.one_by_one else self.cell.key

    @property
    def _rank(self) -> tuple[Any, ...]:
        cell = self.cell
        turn = self.seeds[0] if cell.one_by_one else 0
        stage = 1 if cell.protocol != "paper" else _STAGES.get(cell.table, 0)
        place = {"table": 0, "bags": 1, "images": 3 if cell.one_by_one else 2}[cell.kind]
        later = cell.method not in FIRST or turn > 0
        return cell.dataset == "svhn", stage, later, place, turn

    @staticmethod
    def in_order(work: Iterable[Work]) -> list[Work]:
        """Put the most important first: UUM and likelihood of the main tables, then other methods and tables."""
        return sorted(work, key=lambda one: one._rank)


def select(
    *,
    tables: Sequence[str] = (),
    names: Sequence[str] = (),
    methods: Sequence[str] = (),
    problems: Sequence[str] = (),
    protocols: Sequence[str] = (),
    epochs: int | None = None,
) -> list[Cell]:
    """Return the cells that are asked for; what is left empty takes all.

    A data set that the paper does not use has no place in its tables until one is named.

    Parameters
    ----------
    tables, names, methods, problems, protocols
        Names of tables, data sets, and so on.
    epochs
        In place of the paper's.

    Examples
    --------
    >>> cells = select(tables=["mil"], names=["fox"], methods=["uum"])
    >>> [cell.protocol for cell in cells]
    ['paper', 'copies_together', 'ten_fold']
    """
    known = {
        "table": (tables, tuple(TABLES)),
        "dataset": (names, tuple(dict.fromkeys((*_IMAGES, *UCI, *BAGS, *datasets.NAMES, *ordered.NAMES)))),
        "method": (methods, tuple(METHODS)),
        "problem": (problems, tuple(dict.fromkeys(one for table in TABLES.values() for one in table.problems))),
        "protocol": (protocols, ("paper", "copies_together", "ten_fold")),
    }
    for option, (given, allowed) in known.items():
        for name in given:
            check_choice(option, name, allowed)
    found = []
    for table in TABLES.values():
        if tables and table.name not in tables:
            continue
        for cell in table.cells(_datasets(table, names, named=bool(tables))):
            if (
                (not methods or cell.method in methods)
                and (not problems or cell.problem in problems)
                and (not protocols or cell.protocol in protocols)
            ):
                found.append(replace(cell, epochs=epochs))
    if not found:
        raise ValueError("no cell of any table fits all of these options; see them all with --list")
    return found


def _datasets(table: Table, names: Sequence[str], *, named: bool) -> list[str]:
    """Return the data sets of a table that are asked for, and those of no table where this one is named."""
    if not names:
        return list(table.datasets)
    placed = {name for table in TABLES.values() for name in table.datasets}
    return [name for name in names if name in table.datasets or (named and name not in placed)]
