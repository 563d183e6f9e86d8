"""What a kind of observation says of itself: its name, what its observations are, its words and its columns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import log
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from unbag.data.groups import Groups

Outcome = Literal["yes_no", "class_counts", "published_counts", "class", "number"]
"""What an observation is: 0 or 1; a count for each class, or what was published of it; a class; or any other number,
or tuple of numbers."""


@dataclass(frozen=True)
class Wording:
    """How a report speaks of a kind of observation."""

    title: str
    observed: str
    """What was observed, to follow “known was”."""
    group: str = "group"
    groups: str = "groups"
    yes: str = "1"
    no: str = "0"


@dataclass(frozen=True)
class AnswerColumn:
    """How people call a column of answers, by which it is found and 1 is understood."""

    yes: tuple[str, ...]
    contrary: tuple[str, ...] = ()
    """Names of a column that answers the contrary question."""
    doubtful: tuple[str, ...] = ()
    """Names from which nobody can tell."""
    meanings: tuple[str, str, str, str] = ("yes", "no", "no", "yes")
    """What 1 means in a column of the first words, of the contrary ones, and of both behind a "not"."""
    symmetric: bool = False
    """Whether the answer is about all rows alike, so that a name cannot say which of them is meant."""
    contrary_order: tuple[int, ...] | None = None
    """The order of the members of which the contrary answer is the answer; None: it is the other answer."""


class Traits:
    """The facts of a kind of observation. A subclass states those that differ; all have a default."""

    name: ClassVar[str]
    """As on the command line; by default the name of the class in lower case, with underscores."""
    size: int | None = None
    """The number of members that every group must have, or None for any."""
    outcome: ClassVar[Outcome] = "number"
    """What its observations are."""
    is_noisy: bool = False
    """Whether observations are drawn, from a seed, and not a function of the labels alone."""
    n_classes: ClassVar[int | None] = None
    """How many classes there must be, or None for any number."""
    weights: ClassVar[Literal["current", "remembered"]] = "remembered"
    """Which outputs the weights of training are made from, unless the caller says so."""
    pooled: ClassVar[bool] = False
    """Whether what is observed is a label of the whole group, which its pooled columns may tell beside its members."""
    describes_all_rows: ClassVar[bool] = False
    """Whether groups only express what is known of all rows together, so that none are held out."""
    wording: ClassVar[Wording]
    """By default with the name of the class."""
    column: ClassVar[AnswerColumn | None] = None
    """What a column of observations is called in a file."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" not in vars(cls):
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        if "wording" not in vars(cls):
            cls.wording = Wording(cls.__name__, f"what {cls.__name__} observes")

    @property
    def has_class_columns(self) -> bool:
        """Whether the second dimension of observations is that of the classes."""
        return self.outcome in ("class_counts", "published_counts")

    def is_binary(self, groups: Groups, n_classes: int) -> bool:
        """Whether all that can be observed of these groups is 0 or 1."""
        return self.outcome == "yes_no"

    def information(self, z: Tensor, groups: Groups, n_classes: int) -> float | None:
        """Return how many bits all observations hold at most, from what ``check`` returned.

        By default their entropy, as often as they occur. None of groups of a fixed size, which are small.
        """
        if self.size is not None:
            return None
        shares = z.unique(dim=0, return_counts=True)[1].double() / len(z)
        return float(torch.special.entr(shares).sum()) * len(z) / log(2)
