"""Aggregates by name, and by what is written on a command line: ``majority``, ``at_least(2)``, ``my_module:MyKind``."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from unbag.aggregates.base import Aggregate
from unbag.aggregates.counting import AtLeast, CountOf, Majority
from unbag.aggregates.label_proportions import LabelProportions
from unbag.aggregates.multiple_instance import MultipleInstance
from unbag.aggregates.noisy import Noisy
from unbag.aggregates.ordinal_rank import OrdinalRank
from unbag.aggregates.ordinal_triplet import OrdinalTriplet
from unbag.aggregates.pairwise import PairwiseSimilarity
from unbag.aggregates.possible_members import PossibleMembers
from unbag.aggregates.published_counts import PublishedCounts
from unbag.aggregates.triplet import TripletComparison

AGGREGATES: dict[str, type[Aggregate]] = {
    kind.name: kind
    for kind in (
        LabelProportions,
        MultipleInstance,
        PairwiseSimilarity,
        OrdinalRank,
        TripletComparison,
        OrdinalTriplet,
        AtLeast,
        CountOf,
        Majority,
        PublishedCounts,
    )
}
"""Those that can be made from a name and plain values, and nothing else; of several that fit, the first is meant."""

_WITH_FURTHER_ARGUMENTS: tuple[type[Aggregate], ...] = (Noisy, PossibleMembers)
"""Kinds that are saved like the others, but cannot be made from a name and plain values."""

K = TypeVar("K", bound=type[Aggregate])


def register_aggregate(kind: K) -> K:
    """Register a kind of observation whose arguments are plain values, so that it has a name and can be saved.

    A saved classifier holds the name and the arguments; the module that registers the kind has to be imported before
    :func:`unbag.load`.
    """
    if AGGREGATES.setdefault(kind.name, kind) is not kind:
        raise ValueError(f"there is an aggregate {kind.name!r} already; give {kind.__name__} another name")
    return kind


def describe_aggregate(aggregate: Any) -> dict[str, Any] | None:
    """Return the kind and the arguments of an aggregate as plain values; None if its kind is not registered.

    Examples
    --------
    >>> describe_aggregate(OrdinalRank(">"))
    {'kind': 'ordinal_rank', 'arguments': {'relation': '>'}}
    """
    name = type(aggregate).name if isinstance(aggregate, Aggregate) else ""
    if _savable_kinds().get(name) is not type(aggregate):
        return None
    arguments = {name: getattr(aggregate, name) for name in parameters(type(aggregate))}
    for name, value in arguments.items():
        if isinstance(value, Aggregate):
            arguments[name] = describe_aggregate(value)
            if arguments[name] is None:
                return None
    return {"kind": type(aggregate).name, "arguments": arguments}


def is_registered(kind: str) -> bool:
    """Return whether there is a kind of observation of a name that can be restored."""
    return kind in _savable_kinds()


def restore_aggregate(kind: str, /, **arguments: Any) -> Aggregate:
    """Return the aggregate that :func:`describe_aggregate` has described; only registered kinds are made.

    Examples
    --------
    >>> restore_aggregate("ordinal_rank", relation=">")
    OrdinalRank(relation='>')
    """
    try:
        return _savable_kinds()[kind](**arguments)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"the arguments of the aggregate {kind!r} are not valid: {error}") from error


def _savable_kinds() -> dict[str, type[Aggregate]]:
    return {**AGGREGATES, **{kind.name: kind for kind in _WITH_FURTHER_ARGUMENTS}}


_WRITTEN = re.compile(r"(?:(?P<module>[\w.]+):)?(?P<name>\w+)\s*(?:\((?P<arguments>.*)\))?", re.DOTALL)


def parameters(kind: type[Aggregate]) -> Mapping[str, inspect.Parameter]:
    """Return what a kind of observation is made with, by name."""
    return inspect.signature(kind).parameters


def needs_arguments(kind: type[Aggregate]) -> bool:
    """Whether a kind of observation cannot be made by its name alone."""
    return any(one.default is one.empty for one in parameters(kind).values())


def _names() -> list[str]:
    """Return the kinds for which a name is enough."""
    return [name for name, kind in AGGREGATES.items() if not needs_arguments(kind)]


def find_aggregate(aggregate: Any) -> Aggregate:
    """Return the aggregate of a name, or one that is an aggregate already.

    Examples
    --------
    >>> find_aggregate("ordinal_rank")
    OrdinalRank(relation='<')
    """
    if isinstance(aggregate, Aggregate):
        return aggregate
    if isinstance(aggregate, str) and aggregate in _names():
        return AGGREGATES[aggregate]()
    got = f"the class {aggregate.__name__}" if isinstance(aggregate, type) else repr(aggregate)
    raise ValueError(
        f"aggregate must be one of {', '.join(_names())}, or an instance such as unbag.OrdinalRank('>'); got {got}"
    )


def is_built_in(written: str) -> bool:
    """Whether an aggregate of this package is meant; otherwise it is code of the caller's, or nothing.

    Examples
    --------
    >>> is_built_in("at_least(2)"), is_built_in("my_module:MyKind"), is_built_in("median")
    (True, False, False)
    """
    match = _WRITTEN.fullmatch(written)
    return match is not None and match["module"] is None and match["name"] in AGGREGATES


def find_kind(written: str) -> type[Aggregate]:
    """Return the class that is meant; one of another module is imported, also from the current folder.

    Examples
    --------
    >>> find_kind("at_least(2, label=1)").__name__
    'AtLeast'
    """
    match = _WRITTEN.fullmatch(written)
    if match is None or (match["module"] is None and match["name"] not in AGGREGATES):
        raise ValueError(f"there is no aggregate {written!r}; choose one of {', '.join(AGGREGATES)}")
    if match["module"] is None:
        return AGGREGATES[match["name"]]
    if "" not in sys.path:
        sys.path.append("")  # the current folder; behind all others, so that it hides no module
    try:
        kind = getattr(importlib.import_module(match["module"]), match["name"], None)
    except ImportError as error:
        raise ValueError(f"the aggregate {written!r} could not be imported: {error}") from error
    if not isinstance(kind, type) or not issubclass(kind, Aggregate):
        raise ValueError(f"{match['name']} in {match['module']} is no subclass of unbag.Aggregate")
    return kind


def make_aggregate(written: str, classes: Sequence[str], **others: Any) -> Aggregate:
    """Return the aggregate that is meant, with its arguments: whole numbers, names of classes, other words.

    Parameters
    ----------
    written
        A name, with arguments in parentheses where there are any, as in ``at_least(2, label=ill)``.
    classes
        What the classes are called: an argument ``label`` is the name of one.
    others
        Arguments that are told elsewhere, for kinds that have such a parameter.

    Examples
    --------
    >>> make_aggregate("at_least(2, label=ill)", ["well", "ill"])
    AtLeast(count=2, label=1)
    """
    kind = find_kind(written)
    words = [word.strip() for word in written.partition("(")[2].removesuffix(")").split(",") if word.strip()]
    parts = [re.fullmatch(r"(?:(\w+)\s*=\s*)?(.+)", word) for word in words]
    in_order = [part[2] for part in parts if part and part[1] is None]
    named = {part[1]: part[2] for part in parts if part and part[1] is not None}
    if len(in_order) + len(named) < len(words):
        raise ValueError(f"{written!r} has an argument twice, or a line break in one")
    try:
        given = inspect.signature(kind).bind(*in_order, **named).arguments
    except TypeError as error:
        takes = ", ".join(str(one.replace(annotation=one.empty)) for one in parameters(kind).values())
        raise ValueError(f"{written!r} does not fit {kind.name}({takes}): {error}") from error
    if "label" in given and given["label"] not in classes:
        raise ValueError(f"{written!r} looks for class {given['label']!r}, but the classes are {', '.join(classes)}")
    if twice := [name for name in others if name in given]:
        raise ValueError(f"{written!r} tells the {twice[0]}, which has an option of its own: --{twice[0]}")
    read: dict[str, Callable[[str], Any]] = {"label": classes.index}
    values = {name: read.get(name, _plain)(word) for name, word in given.items()}
    return kind(**values, **{name: value for name, value in others.items() if name in parameters(kind)})


def _plain(word: str) -> int | float | str:
    for number in (int, float):
        try:
            return number(word)
        except ValueError:
            pass
    return word
