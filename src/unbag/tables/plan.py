"""Plan of a run from options: those of the command line and of a TOML file, checked."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from unbag._utils.problems import fail, failing
from unbag.aggregates.registry import find_kind
from unbag.tables.counts import check_published
from unbag.tables.options import RELATIONS, Plan, Source, Training, options_of, plain_type
from unbag.tables.published_files import read_published, sidecar_path

FILES = {"instances": Path, "groups": Path, "out": Path, "published": Path, "also": list}
"""What a file of settings may have besides options."""
SOURCE, PLAN, TRAINING = options_of(Source), options_of(Plan), options_of(Training)


def read_config(path: Path) -> dict[str, Any]:
    r"""Return the options in a TOML file, checked: every key is an option of ``unbag fit``, of the right type.

    Paths in it are relative to the file itself.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "fit.toml"
    >>> _ = path.write_text('aggregate = "multiple_instance"\nepochs = 20\n')
    >>> read_config(path)
    {'aggregate': 'multiple_instance', 'epochs': 20}
    """
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}; check the name") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise fail(f"this is no TOML that can be read: {error}", str(path)) from error
    check_keys(content, {**FILES, **SOURCE, **PLAN, **TRAINING}, str(path))
    for one in content.get("also", []):
        if not isinstance(one, dict) or "file" not in one:
            raise fail("each entry of also needs a file, as in {file = 'pairs.csv', aggregate = '...'}", str(path))
        check_keys(one, {"file": Path, **SOURCE, "published": Path}, str(path))
    for one in (content, *content.get("also", [])):
        one |= {
            name: str(path.parent / one[name])
            for name in ("instances", "groups", "out", "file", "published", "disk")
            if name in one
        }
    return content


def make_plan(options: dict[str, Any]) -> Plan:
    """Return the plan of options by name, as they come from the command line and a file of settings together.

    Examples
    --------
    >>> plan = make_plan({"instances": "people.csv", "groups": "wards.csv", "epochs": 20})
    >>> plan.sources[0].file.name, plan.training.epochs
    ('wards.csv', 20)
    """
    for needed in ("instances", "groups"):
        if options.get(needed) is None:
            raise fail(f"name the file of {needed}, on the command line or as {needed} = ... in the file of settings")
    main = {**options, "file": options["groups"]}
    plan = Plan(
        instances=options["instances"],
        sources=tuple(_make_source(one) for one in (main, *options.get("also", []))),
        training=Training(**_pick(options, TRAINING)),
        **_pick(options, PLAN),
    )
    with failing():
        plan.shares  # noqa: B018 (as above)
    return plan


def _make_source(options: dict[str, Any]) -> Source:
    file, named = Path(options["file"]), options.get("published")
    published = read_published(file, named and Path(named))
    check_keys(published, SOURCE, str(named or sidecar_path(file)))
    own = {**published, **_pick(options, SOURCE)}
    if own.get("epsilon") is not None and own.get("noise") is None:
        own["noise"] = "laplace"  # as likely as geometric noise of the same scale, but for a constant
    source = Source(file=options["file"], group=own.pop("group_in_groups", None), **own)
    if source.aggregate is not None and ":" not in source.aggregate:  # that is imported when it is needed
        with failing():
            find_kind(source.aggregate)
    if source.relation is not None and source.relation not in RELATIONS:
        raise fail(f"there is no relation {source.relation!r}; choose one of {' '.join(RELATIONS)}")
    with failing():
        source.rates  # noqa: B018 (refused here, before any file is read)
    check_published(source)
    return source


def _pick(options: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: options[name] for name in names if name in options}


def check_keys(content: dict[str, Any], allowed: dict[str, Any], file: str) -> None:
    """Refuse settings that are not among those known, or of another type."""
    for name, value in content.items():
        if name not in allowed:
            close = difflib.get_close_matches(name, allowed, n=1)
            hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(allowed)}"
            raise fail(f"there is no setting {name!r}; {hint}", file)
        try:
            TypeAdapter(allowed[name]).validate_python(value)
        except ValidationError as error:
            raise fail(f"{name} must be of type {_name_type(allowed[name])}, got {value!r}", file) from error


def _name_type(annotation: Any) -> str:
    kind = plain_type(annotation)
    return {float: "float or int", tuple: "list of str", Path: "str"}.get(kind, kind.__name__)
