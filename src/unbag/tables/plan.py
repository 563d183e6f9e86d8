"""The plan of a run, from the options of the command line and of a TOML file."""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from unbag._utils.problems import fail, failing
from unbag.aggregates.registry import find_kind
from unbag.tables.cells import MARKS
from unbag.tables.options import RELATIONS, REMOVED, UNITS, NetworkOptions, Option, Plan, Source, Training, options_of
from unbag.tables.published_files import check_published, read_published, read_toml, sidecar_path

FILES = {"instances": Path, "groups": Path, "out": Path, "published": Path, "also": list}
"""Settings of a TOML file that are not options."""
SOURCE, PLAN, TRAINING, NETWORK = map(options_of, (Source, Plan, Training, NetworkOptions))


def read_config(path: Path) -> dict[str, Any]:
    """Read the options of ``unbag fit`` from a TOML file and validate their names and types.

    Paths in the file are relative to it.
    """
    content = read_toml(path)
    check_keys(content, {**FILES, **SOURCE, **PLAN, **TRAINING, **NETWORK}, str(path))
    further = content.get("also", [])
    for entry in further:
        if not isinstance(entry, dict) or "file" not in entry:
            raise fail("each entry of also needs a file, as in {file = 'pairs.csv', aggregate = '...'}", str(path))
        check_keys(entry, {"file": Path, **SOURCE, "published": Path}, str(path))
    for entry in (content, *further):
        names = {"instances", "groups", "out", "file", "published", "disk", "tidied"} & entry.keys()
        entry |= {name: str(path.parent / entry[name]) for name in names}
    return content


def make_plan(options: dict[str, Any]) -> Plan:
    """Make the plan of a run from options by name; an objective or a setting of networks selects Algorithm 1."""
    for needed in ("instances", "groups"):
        if options.get(needed) is None:
            raise fail(f"name the file of {needed}, on the command line or as {needed} = ... in the file of settings")
    network = _pick(options, NETWORK)
    by_algorithm = [*network, *(["method"] if options.get("method", "auto") != "auto" else [])]
    if by_algorithm and options.get("model") == "trees":
        option = by_algorithm[0].replace("_", "-")
        advice = "leave out one of them, or use --model mlp"
        raise fail(f"--{option} is a setting of networks, but --model trees is no network; {advice}")
    sources = ({**options, "file": options["groups"]}, *options.get("also", []))
    plan = Plan(
        instances=options["instances"],
        sources=tuple(map(_make_source, sources)),
        training=Training(**_pick(options, TRAINING), network=NetworkOptions(**network) if by_algorithm else None),
        **_pick(options, PLAN),
    )
    with failing():
        plan.shares  # noqa: B018 (raises an error before any file is read)
    return plan


def _make_source(options: dict[str, Any]) -> Source:
    file, named = Path(options["file"]), options.get("published")
    published = read_published(file, named and Path(named))
    check_keys(published, SOURCE, str(named or sidecar_path(file)))
    values = {**published, **_pick(options, SOURCE)}
    if values.get("epsilon") is not None and values.get("noise") is None:
        values["noise"] = "laplace"  # as likely as geometric noise of the same scale, up to a constant
    source = Source(
        file=options["file"],
        group=values.pop("group_in_groups", None),
        sheet=values.pop("sheet_of_groups", None),
        **values,
    )
    for name, choices in (("relation", RELATIONS), ("unit", UNITS), ("decimal", MARKS)):
        value = getattr(source, name)
        if value is not None and value not in choices:
            raise fail(f"--{name} must be one of {' '.join(choices)} and not {value!r}", str(file))
    with failing():
        if source.aggregate is not None and ":" not in source.aggregate:  # those are imported when they are needed
            find_kind(source.aggregate)
        source.rates  # noqa: B018
    check_published(source)
    return source


def _pick(options: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: options[name] for name in names if name in options}


def check_keys(content: dict[str, Any], allowed: dict[str, Any], file: str) -> None:
    """Raise an error for a setting that is unknown, was removed, or has a value of the wrong type."""
    for name, value in content.items():
        if name in REMOVED:
            raise fail(f"the setting {name!r} was removed: {REMOVED[name]}", file)
        if name not in allowed:
            close = difflib.get_close_matches(name, allowed, n=1)
            hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(allowed)}"
            raise fail(f"there is no setting {name!r}; {hint}", file)
        kind = allowed[name]
        hint, kind = (kind.hint, kind.type) if isinstance(kind, Option) else (kind, kind)
        try:
            TypeAdapter(hint).validate_python(value)
        except ValidationError as error:
            expected = {float: "float or int", tuple: "list of str", Path: "str"}.get(kind, kind.__name__)
            raise fail(f"{name} must be of type {expected}, got {value!r}", file) from error
