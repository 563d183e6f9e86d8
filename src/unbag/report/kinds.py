"""Kinds of observation in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """How a report speaks of a kind of observation."""

    title: str
    observed: str
    """What was observed, to follow “known was”."""
    group: str = "group"
    groups: str = "groups"
    yes: str = "1"
    no: str = "0"


KINDS = {
    "label_proportions": Kind("Counts of classes", "how many of its rows are of each class"),
    "labels": Kind("Labels", "its label", "row", "rows"),
    "multiple_instance": Kind(
        "Bags", "whether any of its rows is of the second class", "bag", "bags", "positive", "negative"
    ),
    "pairwise_similarity": Kind("Pairs", "whether its two rows are of one class", "pair", "pairs", "same", "different"),
    "triplet_comparison": Kind(
        "Triplets", "whether its first row is like the second and unlike the third", "triplet", "triplets", "yes", "no"
    ),
    "ordinal_rank": Kind("Ranks", "whether its two rows stand in a given order", "pair", "pairs", "yes", "no"),
    "ordinal_triplet": Kind(
        "Ordered triplets", "whether its first row is closer to the second than to the third", "triplet", "triplets",
        "yes", "no",
    ),
}  # fmt: skip


def kind_of(name: str) -> Kind:
    """Return how to speak of a kind of observation, also of one that somebody else has made.

    Examples
    --------
    >>> kind_of("pairwise_similarity").yes, kind_of("Majority").observed
    ('same', 'what Majority observes')
    """
    return KINDS.get(name, Kind(name, f"what {name} observes"))
