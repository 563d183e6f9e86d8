"""Metadata of a kind of observation: its name, its values, its wording in reports and its columns in files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import log
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from unbag.data.groups import Groups

Outcome = Literal["yes_no", "class_counts", "published_counts", "class", "number"]
"""Values of an observation: 0 or 1; a count, or a statement about a count, for each class; a class; any other number,
or tuple of numbers."""


@dataclass(frozen=True)
class Wording:
    """Wording of a kind of observation in reports."""

    title: str
    observed: str
    """What was observed, to follow “known was”."""
    group: str = "group"
    groups: str = "groups"
    yes: str = "1"
    no: str = "0"


@dataclass(frozen=True)
class AnswerColumn:
    """Names of columns of binary observations, which identify the column and the meaning of 1."""

    yes: tuple[str, ...]
    contrary: tuple[str, ...] = ()
    """Names of columns with the opposite observation."""
    doubtful: tuple[str, ...] = ()
    """Names with an ambiguous meaning."""
    meanings: tuple[str, str, str, str] = ("yes", "no", "no", "yes")
    """Meaning of 1 in a column with a name of ``yes``, of ``contrary``, and with "not" before each of them."""
    symmetric: bool = False
    """Whether the observation does not depend on the order of the rows."""
    contrary_order: tuple[int, ...] | None = None
    """Order of the members in which the observation equals the opposite one; None: the opposite one is its negation."""


class Traits:
    """Metadata of a kind of observation, with defaults."""

    name: ClassVar[str]
    """Name on the command line; by default the name of the class in snake case."""
    size: int | None = None
    """Required size of the groups; None: any."""
    outcome: ClassVar[Outcome] = "number"
    is_noisy: bool = False
    """Whether observations are drawn at random, from a seed."""
    n_classes: ClassVar[int | None] = None
    """Required number of classes; None: any."""
    weights: ClassVar[Literal["current", "remembered"]] = "remembered"
    """Outputs from which training computes weights by default."""
    pooled: ClassVar[bool] = False
    """Whether an observation is a label of the whole group, which its pooled columns may predict."""
    describes_all_rows: ClassVar[bool] = False
    """Whether groups express knowledge of all rows together, so that none are held out."""
    wording: ClassVar[Wording]
    """By default with the name of the class."""
    column: ClassVar[AnswerColumn | None] = None

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
        """Return whether all possible observations of the groups are 0 or 1."""
        return self.outcome == "yes_no"

    def information(self, z: Tensor, groups: Groups, n_classes: int) -> float | None:
        """Return an upper bound of the bits in all observations, from the result of ``check``.

        By default it is their empirical entropy, and None for groups of a fixed size, which are small.
        """
        if self.size is not None:
            return None
        shares = z.unique(dim=0, return_counts=True)[1].double() / len(z)
        return float(torch.special.entr(shares).sum()) * len(z) / log(2)
