"""What 1 means in a column of answers, by the name of the column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from unbag.options import Source
from unbag.tables.problems import Problem, fail

NEUTRAL = ("z", "label", "observed")
"""Names that leave 1 what it is by default."""

NOT = ("not", "no", "non")
HARMLESS = ("is", "are", "was", "class", "label", "first", "rank")


@dataclass(frozen=True)
class Words:
    """How people call a column of answers to one question, and of answers to the contrary one."""

    yes: tuple[str, ...]
    contrary: tuple[str, ...]
    doubtful: tuple[str, ...]
    """Names from which nobody can tell."""
    meanings: tuple[str, str, str, str]
    """What 1 means in a column of the first words, of the contrary ones, and of both behind a "not"."""


_TRIPLETS = Words(
    yes=("closer", "nearer"),
    contrary=("farther", "further"),
    doubtful=("similar", "same", "different", "dissimilar", "positive", "negative"),
    meanings=(
        "the second is nearer to the first than the third is",
        "the second is farther from the first than the third is",
        "the second is not nearer to the first than the third is",
        "the second is not farther from the first than the third is",
    ),
)
WORDS = {
    "multiple_instance": Words(
        yes=("positive",),
        contrary=("negative",),
        doubtful=("healthy", "normal", "benign", "absent", "clean", "same", "different"),
        meanings=("a member is positive", "no member is positive", "no member is positive", "a member is positive"),
    ),
    "pairwise_similarity": Words(
        yes=("similar", "same", "equal", "alike", "match", "positive"),
        contrary=(
            *("different", "dissimilar", "unequal", "unlike", "distinct", "differ", "differs", "mismatch"),
            *("unsimilar", "inequal", "opposite", "negative"),
        ),
        doubtful=("distance", "lower", "higher", "greater", "closer", "farther"),
        meanings=("the two are alike", "the two differ", "the two differ", "the two are alike"),
    ),
    "triplet_comparison": _TRIPLETS,
    "ordinal_triplet": _TRIPLETS,
    "ordinal_rank": Words(
        yes=("lower", "less", "smaller", "below"),
        contrary=("higher", "greater", "larger", "bigger", "above", "more"),
        doubtful=("better", "worse", "preferred", "wins", "won", "winner", "beats", "before", "after", "same", "equal"),
        meanings=("the first is lower", "the first is higher", "the first is not lower", "the first is not higher"),
    ),
}


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

    def note(self, kind: str, file: str, column: str) -> list[Problem]:
        """Say how answers are read, where it is not the default."""
        if not (self.contrary or self.negated):
            return []
        meaning = WORDS[kind].meanings[self.contrary + 2 * self.negated]
        return [Problem("note", f"by the name of the column, 1 is read as: {meaning}", file, None, column)]


def read_name(kind: str, column: str, words: Sequence[str], members: Sequence[str], source: Source) -> Reading:
    """Return what the name of a column of answers says of 1; refuse a name that leaves it open.

    Parameters
    ----------
    kind
        Of observation.
    column, words
        The name as it is written, and in lower case, word by word.
    members
        The columns of row ids, in lower case.
    source
        For the relation, which goes before the name, and for errors.

    Examples
    --------
    >>> from pathlib import Path
    >>> read_name("pairwise_similarity", "Is Different", ["is", "different"], ["a", "b"], Source(Path("pairs.csv")))
    Reading(contrary=True, negated=False)
    """
    known = WORDS[kind]
    if kind == "ordinal_rank" and (source.relation is not None or "relation" in words):
        return Reading()
    said = [word for word in words if word in known.yes or word in known.contrary]
    doubt = any(word in known.doubtful for word in words) or len(said) > 1
    if said and members:
        # Of rows that are compared, a name may also say which is meant.
        until = next((place for place, word in enumerate(words) if word in ("than", "to", "from")), len(words))
        subject = members[0] if len(members) == 2 else members[1]
        fine = {*said, *NOT, *HARMLESS, *subject.split("_"), *(("second",) if len(members) == 3 else ())}
        if len(members) == 3:
            fine -= {"first"}
        doubt = doubt or (kind != "pairwise_similarity" and not fine.issuperset(words[:until]))
    if doubt:
        option = ", or say what 1 means with --relation" if kind == "ordinal_rank" else ""
        raise fail(
            f"the name of the column does not tell what 1 means; call it {known.yes[0]} if it is: {known.meanings[0]}, "
            f"or {known.contrary[0]} if it is: {known.meanings[1]}{option}",
            str(source.file),
            None,
            column,
        )
    if not said:
        return Reading()
    return Reading(said[0] in known.contrary, any(word in NOT for word in words))
