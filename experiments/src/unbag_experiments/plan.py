"""The experimental plan: every cell of every table with its settings, in order of importance.

``plan.toml`` holds the paper's experiments, ``beyond.toml`` what goes beyond its protocol, with seeds of its own.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

from unbag._utils.checks import check_choice
from unbag.training import ScalingName, Settings
from unbag_experiments import datasets
from unbag_experiments.baselines import METHODS

_PLAN, _BEYOND = (
    tomllib.loads(files(__package__).joinpath(name).read_text("utf-8")) for name in ("plan.toml", "beyond.toml")
)

FIRST_SEED: int = _PLAN["first_seed"]
SELECTIONS: tuple[str, ...] = tuple(_PLAN["selections"])
STATISTICS: Mapping[str, Any] = _PLAN["statistics"]
PROTOCOLS = (
    *("paper", "copies_together", "ten_fold"),
    *("groups_of_16", "groups_of_64", "groups_of_128", "sorted_groups", "one_class"),
)
FIRST = ("uum", "log_likelihood", "supervised")
"""Methods that matter most."""

Data = Literal["table", "bags", "images"]

IN_DIGEST = (
    *("epochs", "warm_up", "loss", "remember_from", "batch_size", "learning_rate", "weight_decay"),
    *("score_every", "score_from", "patience", "precision"),
)
"""Settings that change what a trial computes; others change how fast."""


@dataclass(frozen=True)
class Choice:
    """A way to train that the paper leaves open; in each trial validation takes one.

    Parameters
    ----------
    scaling
        Of the features.
    changes
        What is different in the settings.
    dropout
        Share of the columns that a step leaves out, drawn anew for each row.
    """

    scaling: ScalingName
    changes: Mapping[str, Any] = field(default_factory=dict)
    dropout: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return what differs from the settings of the cell, for a line of results.

        Examples
        --------
        >>> Choice("none", {"weight_decay": 1e-4}).as_dict()
        {'scaling': 'none', 'weight_decay': 0.0001}
        """
        return {"scaling": self.scaling, **self.changes, **({"dropout": self.dropout} if self.dropout else {})}


@dataclass(frozen=True)
class Part:
    """Cells of one table that are trained alike; ``plan.toml`` says what each entry means."""

    table: str
    stage: int
    data: Data
    model: str
    trials: int
    problems: tuple[str, ...]
    datasets: tuple[str, ...]
    settings: Mapping[str, Any]
    choices: tuple[Choice, ...]
    protocols: tuple[str, ...] = ("paper",)
    n_groups: tuple[int | None, ...] = (None,)
    group_size: int | None = None
    methods: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    first_seed: int = FIRST_SEED

    @property
    def is_beyond(self) -> bool:
        """Whether this goes beyond the paper's protocol."""
        return self.first_seed != FIRST_SEED

    def methods_of(self, problem: str) -> list[str]:
        """Return the methods of a problem."""
        fitting = [name for name, one in METHODS.items() if problem in one.problems and not one.named_only]
        return [name for name in self.methods or fitting if name not in self.without]

    def cells(self, names: Sequence[str]) -> Iterable[Cell]:
        """Make the cells of some data sets."""
        for problem in self.problems:
            for dataset in names:
                for protocol in self.protocols:
                    for n_groups in self.n_groups:
                        for method in self.methods_of(problem):
                            yield Cell(self.table, problem, dataset, method, protocol, n_groups)


def _read_part(plan: Mapping[str, Any], given: Mapping[str, Any]) -> Part:
    template = plan["templates"][given["template"]]
    entries = {**template, **given, "first_seed": plan["first_seed"]}
    scalings, changes = entries.pop("scalings"), entries.pop("changes")
    del entries["template"]
    return Part(
        **{name: tuple(value) if isinstance(value, list) else value for name, value in entries.items()}
        | {
            "settings": {**template["settings"], **given.get("settings", {})},
            "choices": tuple(
                Choice(
                    scaling,
                    {name: value for name, value in change.items() if name != "dropout"},
                    change.get("dropout", 0.0),
                )
                for change in changes
                for scaling in scalings
            ),
        }
    )


PARTS: tuple[Part, ...] = tuple(_read_part(plan, given) for plan in (_PLAN, _BEYOND) for given in plan["parts"])
TABLES: tuple[str, ...] = tuple(dict.fromkeys(part.table for part in PARTS))


@dataclass(frozen=True)
class Cell:
    """One figure of a table: a method on a data set, and how it is trained.

    Examples
    --------
    >>> cell = Cell("similarity_uci", "pairwise_similarity", "vehicle", "uum")
    >>> cell.model, cell.settings.epochs, len(cell.choices), cell.seeds()
    ('mlp', 200, 9, range(1000, 1010))
    """

    table: str
    problem: str
    dataset: str
    method: str
    protocol: str = "paper"
    n_groups: int | None = None
    epochs: int | None = None
    """In place of the plan's, for a try."""

    @property
    def key(self) -> str:
        """A name for the cell that a file can have."""
        parts = [self.table, self.problem, self.dataset, self.method, self.protocol, self.n_groups or ""]
        return "--".join(str(part) for part in parts if part)

    @property
    def part(self) -> Part:
        """The part of the plan that the cell belongs to; of a data set that is new to a table, the table's first."""
        parts = [
            part
            for part in PARTS
            if part.table == self.table and self.problem in part.problems and self.protocol in part.protocols
        ]
        if not parts:
            raise ValueError(f"the plan has no table {self.table} of {self.problem} under the protocol {self.protocol}")
        return next((part for part in parts if self.dataset in part.datasets), parts[0])

    @property
    def data(self) -> Data:
        """What the data set is made of."""
        return self.part.data

    @property
    def model(self) -> str:
        """The network that the paper gives to data of this kind."""
        return self.part.model

    @property
    def one_by_one(self) -> bool:
        """Whether trials cannot be trained at once: batch norm keeps running statistics."""
        return self.model == "densenet"

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What validation decides."""
        return self.part.choices

    @property
    def settings(self) -> Settings:
        """The settings of the cell, before a method adapts them."""
        settings = Settings(**self.part.settings)
        if self.epochs is None:
            return settings
        share = self.epochs / settings.epochs
        phases = {name: getattr(settings, name) for name in ("warm_up", "remember_from", "score_from")}
        # Phases keep their share of the epochs, and at least one epoch can be chosen.
        kept: dict[str, Any] = {
            name: None if first is None else min(round(first * share), self.epochs - 1)
            for name, first in phases.items()
        }
        return replace(settings, epochs=self.epochs, **kept)

    @property
    def digest(self) -> str:
        """A digest of all that determines the cell's trials; not of its table, nor of how fast it is trained.

        Examples
        --------
        >>> largest = Cell("similarity_sizes", "pairwise_similarity", "cifar10", "uum", n_groups=120_000)
        >>> largest.digest == replace(largest, table="similarity_benchmark").digest
        True
        """
        return _digest(self)

    def content(self) -> dict[str, Any]:
        """Return what the digest is taken of."""
        method = METHODS[self.method]
        settings = vars(method.settings(self.settings))
        return {
            "problem": self.problem,
            "dataset": self.dataset,
            "protocol": self.protocol,
            "n_groups": self.n_groups,
            "group_size": self.part.group_size,
            "method": [self.method, dict(vars(method))],
            "model": self.model,
            "settings": {name: settings[name] for name in IN_DIGEST},
            "choices": [choice.as_dict() for choice in self.choices],
            "selections": SELECTIONS,
            "seeds": [self.part.first_seed, self.part.trials],
            **({"measures": self.part.measures} if self.part.measures else {}),
        }

    def seeds(self, trials: int | None = None) -> range:
        """Return the seeds of the cell's trials, or the first of them; of a cross-validation, one for each fold."""
        first, planned = self.part.first_seed, self.part.trials
        return range(first, first + (planned if trials is None else min(trials, planned)))

    @property
    def same_as(self) -> Cell | None:
        """The cell of another table that asks for the very same trials, as the largest of the sizes does.

        The supervised ceiling does not look at pairs or triplets, and is judged alike beside both.
        """
        if self.table.endswith("_sizes") and self.n_groups == max(filter(None, self.part.n_groups)):
            return replace(self, table=self.table.replace("_sizes", "_benchmark"))
        if self.method == "supervised" and self.problem == "triplet_comparison":
            table = self.table.replace("triplet", "similarity")
            return replace(self, table=table, problem="pairwise_similarity")
        return None


@lru_cache(maxsize=4096)
def _digest(cell: Cell) -> str:
    content = json.dumps(cell.content(), sort_keys=True, default=repr)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


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
        turn = self.seeds[0] if self.cell.one_by_one else 0
        return self.cell.part.stage, self.cell.method not in FIRST, turn

    @staticmethod
    def in_order(work: Iterable[Work]) -> list[Work]:
        """Put the most important first: by stages, UUM and likelihood of each before other methods."""
        return sorted(work, key=lambda one: one._rank)


def choices() -> dict[str, tuple[str, ...]]:
    """Return the names that cells can be chosen by, for each option."""
    in_parts = dict.fromkeys(name for part in PARTS for name in part.datasets)
    return {
        "table": TABLES,
        "dataset": tuple(dict.fromkeys((*in_parts, *datasets.NAMES))),
        "method": tuple(METHODS),
        "problem": tuple(dict.fromkeys(one for part in PARTS for one in part.problems)),
        "protocol": PROTOCOLS,
    }


def select(
    *,
    tables: Sequence[str] = (),
    names: Sequence[str] = (),
    methods: Sequence[str] = (),
    problems: Sequence[str] = (),
    protocols: Sequence[str] = (),
    groups: Sequence[int] = (),
    epochs: int | None = None,
) -> list[Cell]:
    """Return the cells that are asked for; what is left empty takes all.

    A data set that the paper does not use has no place in its tables until one is named. ``groups`` are numbers of
    groups, in the tables that compare such numbers.

    Examples
    --------
    >>> cells = select(tables=["mil"], names=["fox"], methods=["uum"])
    >>> [cell.protocol for cell in cells]
    ['paper', 'copies_together', 'ten_fold']
    """
    asked = {"table": tables, "dataset": names, "method": methods, "problem": problems, "protocol": protocols}
    for option, allowed in choices().items():
        for name in asked[option]:
            check_choice(option, name, allowed)
    placed = {name for part in PARTS for name in part.datasets}
    cells: dict[Cell, None] = {}
    for part in PARTS:
        if tables and part.table not in tables:
            continue
        # A data set of no table is of the first part of each that is named.
        first = part is next(one for one in PARTS if one.table == part.table)
        wanted = [name for name in names if name in part.datasets or (tables and first and name not in placed)]
        for cell in part.cells(wanted if names else part.datasets):
            if (
                (not methods or cell.method in methods)
                and (not problems or cell.problem in problems)
                and (not protocols or cell.protocol in protocols)
                and (not groups or cell.n_groups in groups)
            ):
                cells[replace(cell, epochs=epochs)] = None
    if not cells:
        raise ValueError("no cell of any table fits all of these options; see them all with unbag reproduce list")
    return list(cells)
