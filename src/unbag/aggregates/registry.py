"""Aggregates by name, and by their text on a command line: ``majority``, ``at_least(2)``, ``my_module:MyKind``."""

import importlib
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from unbag.aggregates.base import Aggregate
from unbag.aggregates.comparisons import PairwiseSimilarity, TripletComparison
from unbag.aggregates.counting import AtLeast, CountOf, Majority, MultipleInstance
from unbag.aggregates.label_proportions import LabelProportions
from unbag.aggregates.noisy import Noisy
from unbag.aggregates.ordinal import OrdinalRank, OrdinalTriplet
from unbag.aggregates.possible_members import PossibleMembers
from unbag.aggregates.published_counts import PublishedCounts

AGGREGATES: dict[str, type[Aggregate]] = {
    kind.name: kind
    for kind in (
        *(LabelProportions, MultipleInstance, PairwiseSimilarity, OrdinalRank, TripletComparison, OrdinalTriplet),
        *(AtLeast, CountOf, Majority, PublishedCounts),
    )
}
"""Kinds that can be created from a name and plain values; where several match a column, the first is used."""

_SAVED_ONLY: dict[str, type[Aggregate]] = {kind.name: kind for kind in (Noisy, PossibleMembers)}
"""Kinds that can be saved, but not created from a name and plain values."""

K = TypeVar("K", bound=type[Aggregate])


def register_aggregate(kind: K) -> K:
    """Register a kind of observation whose arguments are plain values, so that it has a name and can be saved.

    A saved classifier contains the name and the arguments. Import the module that registers the kind before
    :func:`unbag.load`.
    """
    if AGGREGATES.setdefault(kind.name, kind) is not kind:
        raise ValueError(f"an aggregate named {kind.name!r} already exists; give {kind.__name__} another name")
    return kind


def describe_aggregate(aggregate: Any) -> dict[str, Any] | None:
    """Return the kind and the arguments of an aggregate as plain values; None if its kind is not registered."""
    if not isinstance(aggregate, Aggregate) or _saved_kinds().get(type(aggregate).name) is not type(aggregate):
        return None
    arguments = {name: getattr(aggregate, name) for name in parameters(type(aggregate))}
    nested = {name: describe_aggregate(value) for name, value in arguments.items() if isinstance(value, Aggregate)}
    if None in nested.values():
        return None
    return {"kind": type(aggregate).name, "arguments": arguments | nested}


def is_registered(kind: str) -> bool:
    """Return whether a kind of observation with this name can be restored."""
    return kind in _saved_kinds()


def restore_aggregate(kind: str, /, **arguments: Any) -> Aggregate:
    """Create an aggregate from the result of :func:`describe_aggregate`; only registered kinds are created."""
    try:
        return _saved_kinds()[kind](**arguments)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"the arguments of the aggregate {kind!r} are not valid: {error}") from error


def _saved_kinds() -> dict[str, type[Aggregate]]:
    return AGGREGATES | _SAVED_ONLY


_PATTERN = re.compile(r"(?:(?P<module>[\w.]+):)?(?P<name>\w+)\s*(?:\((?P<arguments>.*)\))?", re.DOTALL)


def parameters(kind: type[Aggregate]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a kind of observation by name."""
    return inspect.signature(kind).parameters


def needs_arguments(kind: type[Aggregate]) -> bool:
    """Return whether a kind of observation has parameters without defaults."""
    return any(parameter.default is parameter.empty for parameter in parameters(kind).values())


def find_aggregate(aggregate: Any) -> Aggregate:
    """Return an aggregate, or create it from its name."""
    if isinstance(aggregate, Aggregate):
        return aggregate
    names = [name for name, kind in AGGREGATES.items() if not needs_arguments(kind)]
    if isinstance(aggregate, str) and aggregate in names:
        return AGGREGATES[aggregate]()
    got = f"the class {aggregate.__name__}" if isinstance(aggregate, type) else repr(aggregate)
    raise ValueError(
        f"aggregate must be one of {', '.join(names)}, or an instance such as unbag.OrdinalRank('>'); got {got}"
    )


def is_built_in(text: str) -> bool:
    """Return whether a text is an aggregate of this package, instead of code of the caller or nothing."""
    match = _PATTERN.fullmatch(text)
    return match is not None and match["module"] is None and match["name"] in AGGREGATES


def find_kind(text: str) -> type[Aggregate]:
    """Return the class of an aggregate; modules are imported, also from the current folder."""
    if is_built_in(text):
        return AGGREGATES[text.partition("(")[0].strip()]
    match = _PATTERN.fullmatch(text)
    if match is None or match["module"] is None:
        raise ValueError(f"there is no aggregate {text!r}; choose one of {', '.join(AGGREGATES)}")
    if "" not in sys.path:
        sys.path.append("")  # the current folder, at the end, so that it hides no other module
    try:
        kind = getattr(importlib.import_module(match["module"]), match["name"], None)
    except ImportError as error:
        raise ValueError(f"the aggregate {text!r} could not be imported: {error}") from error
    if not isinstance(kind, type) or not issubclass(kind, Aggregate):
        raise ValueError(f"{match['name']} in {match['module']} is no subclass of unbag.Aggregate")
    return kind


def make_aggregate(text: str, classes: Sequence[str], **options: Any) -> Aggregate:
    """Create an aggregate from its text, with arguments that are numbers, the name of a class as ``label``, or words.

    Options are further arguments, for kinds that have such a parameter.

    Examples
    --------
    >>> make_aggregate("at_least(2, label=ill)", ["well", "ill"])
    AtLeast(count=2, label=1)
    """
    kind = find_kind(text)
    words = [word.strip() for word in text.partition("(")[2].removesuffix(")").split(",") if word.strip()]
    matches = [match for word in words if (match := re.fullmatch(r"(?:(\w+)\s*=\s*)?(.+)", word))]
    positional = [match[2] for match in matches if match[1] is None]
    named = {match[1]: match[2] for match in matches if match[1] is not None}
    if len(positional) + len(named) < len(words):
        raise ValueError(f"{text!r} has an argument twice, or a line break in an argument")
    try:
        arguments = inspect.signature(kind).bind(*positional, **named).arguments
    except TypeError as error:
        signature = ", ".join(str(p.replace(annotation=p.empty)) for p in parameters(kind).values())
        raise ValueError(f"{text!r} does not fit {kind.name}({signature}): {error}") from error
    if "label" in arguments and arguments["label"] not in classes:
        raise ValueError(
            f"the label of {text!r} must be one of the classes {', '.join(classes)}, got {arguments['label']!r}"
        )
    if repeated := [name for name in options if name in arguments]:
        raise ValueError(f"{text!r} contains the {repeated[0]}; use the option --{repeated[0]} instead")
    values = {name: classes.index(word) if name == "label" else _plain(word) for name, word in arguments.items()}
    return kind(**values, **{name: value for name, value in options.items() if name in parameters(kind)})


def _plain(word: str) -> int | float | str:
    for number in (int, float):
        with suppress(ValueError):
            return number(word)
    return word
