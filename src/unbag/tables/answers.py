"""Meaning of 1 in a column of answers, by the name of the column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from unbag._utils.problems import Problem, fail
from unbag.aggregates import AGGREGATES, Aggregate, AnswerColumn
from unbag.aggregates.registry import parameters
from unbag.tables.options import Source

NEUTRAL = ("z", "label", "observed")
"""Names that leave 1 what it is by default."""

NOT = ("not", "no", "non")
HARMLESS = ("is", "are", "was", "class", "label", "first", "rank")


NO_WORDS = AnswerColumn(yes=())
"""Of an aggregate that has no words for its column."""


@dataclass(frozen=True)
class Reading:
    """How answers are to be read.

    Parameters
    ----------
    contrary
        Whether 1 says of the first of two what the default says of the second, or that bags and pairs are not so.
    negated
        Whether 1 and 0 are exchanged on top of that.
    """

    contrary: bool = False
    negated: bool = False

    def relation(self) -> Literal["<", ">", "<=", ">="]:
        """Return the relation of ranks in which the first stands to the second where the answer is 1."""
        if self.contrary:
            return "<=" if self.negated else ">"
        return ">=" if self.negated else "<"

    def note(self, kind: type[Aggregate], file: str, column: str) -> list[Problem]:
        """Say how answers are read, where it is not the default."""
        if not (self.contrary or self.negated):
            return []
        assert kind.column is not None  # without words, no name is understood
        meaning = kind.column.meanings[self.contrary + 2 * self.negated]
        return [Problem("note", f"by the name of the column, 1 is read as: {meaning}", file, None, column)]


def read_name(
    kind: type[Aggregate], column: str, words: Sequence[str], members: Sequence[str], source: Source
) -> Reading:
    """Return what the name of a column of answers says of 1; refuse a name that leaves it open.

    ``words`` are those of the name, and ``members`` the columns of row ids, in lower case. A relation that the source
    gives goes before the name.

    Examples
    --------
    >>> from pathlib import Path
    >>> from unbag import PairwiseSimilarity
    >>> read_name(PairwiseSimilarity, "Is Different", ["is", "different"], ["a", "b"], Source(Path("pairs.csv")))
    Reading(contrary=True, negated=False)
    """
    if kind.column is None:
        _refuse_denial(kind, column, words, source)
    vocabulary, relations = kind.column or NO_WORDS, "relation" in parameters(kind)
    if not vocabulary.contrary:
        return Reading()
    if relations and (source.relation is not None or "relation" in words):
        return Reading()
    matches = [word for word in words if word in vocabulary.yes or word in vocabulary.contrary]
    doubt = any(word in vocabulary.doubtful for word in words) or len(matches) > 1
    if matches and members:
        # Of rows that are compared, a name may also say which is meant.
        until = next((place for place, word in enumerate(words) if word in ("than", "to", "from")), len(words))
        subject = members[0] if len(members) == 2 else members[1]
        fine = {*matches, *NOT, *HARMLESS, *subject.split("_"), *(("second",) if len(members) == 3 else ())}
        if len(members) == 3:
            fine -= {"first"}
        doubt = doubt or (not vocabulary.symmetric and not fine.issuperset(words[:until]))
    if doubt:
        option = ", or say what 1 means with --relation" if relations else ""
        raise fail(
            f"the name of the column does not tell what 1 means; call it {vocabulary.yes[0]} if it is: "
            f"{vocabulary.meanings[0]}, or {vocabulary.contrary[0]} if it is: {vocabulary.meanings[1]}{option}",
            str(source.file),
            None,
            column,
        )
    if not matches:
        return Reading()
    return Reading(matches[0] in vocabulary.contrary, any(word in NOT for word in words))


def _refuse_denial(kind: type[Aggregate], column: str, words: Sequence[str], source: Source) -> None:
    """Refuse a name that may say the contrary of what an aggregate without words for its column observes."""
    contrary = {word for one in AGGREGATES.values() if one.column for word in one.column.contrary}
    if contrary.union(NOT).intersection(words):
        raise fail(
            f"the name of the column may say the contrary of what {kind.__name__} observes; call it {NEUTRAL[-1]} if "
            "it does not",
            str(source.file),
            None,
            column,
        )
