"""From a file of observations, and the rows it speaks of, to groups and what was observed of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unbag.aggregates import Aggregate, OrdinalRank
from unbag.groups import Groups
from unbag.inputs import AGGREGATES
from unbag.tables.column_roles import SourceColumns
from unbag.tables.grouped import read_grouped
from unbag.tables.join import Match
from unbag.tables.plan import GROUPED, TRIPLETS
from unbag.tables.problems import Problem
from unbag.tables.read import Table
from unbag.tables.tuples import as_lower, read_tuples


@dataclass(frozen=True, eq=False)
class Observed:
    """The observations of one file, as the estimator takes them.

    ``groups`` and ``z`` are None where errors among the problems do not allow them.
    """

    columns: SourceColumns
    table: Table
    aggregate: Aggregate
    groups: Groups | None
    z: Any
    source_rows: np.ndarray
    """For each group the row of the file it comes from, from 0."""
    problems: list[Problem]
    turned: np.ndarray | None = None
    """Of relations, for each pair whether its members stand in the other order than in the file."""


def read_observations(match: Match, relation: Any = None) -> Observed:
    """Match a file of observations with the rows it speaks of, and list everything that does not fit.

    Parameters
    ----------
    match
        The two files and what their columns mean.
    relation
        What 1 means for ranks; None: that the first is lower.
    """
    columns, table = match.columns, match.source
    ranks = columns.aggregate == "ordinal_rank"
    reading = columns.reading
    aggregate: Aggregate = OrdinalRank(relation or reading.relation()) if ranks else AGGREGATES[columns.aggregate]()
    notes = [Problem("note", "this column is not used", table.file, None, name) for name in columns.unused]
    groups, z, source_rows, problems = (read_grouped if columns.aggregate in GROUPED else read_tuples)(match)
    turned = None
    if groups is not None and z is not None and z.dtype == object:  # relations, not answers
        aggregate = OrdinalRank("<")
        groups, z, turned = as_lower(groups, z)
    elif columns.observed is not None:
        notes += reading.note(columns.aggregate, table.file, columns.observed)
        if z is not None and not ranks and _is_exchanged(columns):
            z = 1 - z
    return Observed(columns, table, aggregate, groups, z, source_rows, [*notes, *problems], turned)


def _is_exchanged(columns: SourceColumns) -> bool:
    """Whether 1 stands for what the aggregate calls 0; of triplets, the contrary is about other members instead."""
    contrary = columns.reading.contrary and columns.aggregate not in TRIPLETS
    return contrary != columns.reading.negated
