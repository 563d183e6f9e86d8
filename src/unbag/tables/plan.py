"""What is asked for: which files, which columns, which kinds of observation, and how to train."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from unbag.aggregates.registry import find_kind
from unbag.tables.problems import fail, failing

RELATIONS = ("<", ">", "<=", ">=")

TRAINING: dict[str, type | tuple[type, ...]] = {
    "model": str,
    "method": str,
    "loss": str,
    "epochs": int,
    "warm_up": int,
    "weights": str,
    "batch_size": int,
    "learning_rate": (float, int),
    "weight_decay": (float, int),
    "scaling": str,
    "n_restarts": int,
    "ensemble": bool,
    "validation_fraction": (float, int),
    "patience": int,
    "seed": int,
    "device": str,
}
"""Settings of training, as in :class:`unbag.AggregateClassifier`, and their types."""


@dataclass(frozen=True)
class Source:
    """A file of observations, and what its columns mean where their names do not say it.

    Parameters
    ----------
    file
        One row per group, pair or triplet.
    aggregate
        Which kind of observation it holds, as :mod:`unbag.aggregates.registry` reads it: ``majority``, ``at_least(2)``
        or ``my_module:MyKind``, which is imported; None: found from the columns.
    group
        The column of group ids, for proportions and bags.
    members
        The columns of row ids, for pairs and triplets, in their order.
    observed
        The column of what was observed, 0 or 1, or a relation.
    size
        The column with the size of each group, for proportions.
    relation
        What 1 means for ranks: that the first is ``"<"``, ``">"``, ``"<="`` or ``">="`` the second.
    """

    file: Path
    aggregate: str | None = None
    group: str | None = None
    members: tuple[str, ...] | None = None
    observed: str | None = None
    size: str | None = None
    relation: str | None = None

    def __post_init__(self) -> None:
        if self.aggregate is not None and ":" not in self.aggregate:  # that is imported when it is needed
            with failing():
                find_kind(self.aggregate)
        if self.relation is not None and self.relation not in RELATIONS:
            raise fail(f"there is no relation {self.relation!r}; choose one of {' '.join(RELATIONS)}")


@dataclass(frozen=True)
class Plan:
    """Everything that a run is made from.

    Parameters
    ----------
    instances
        The file with one row per instance.
    sources
        The files of observations, one or more.
    id, group, label
        Columns of instances: the id of the row, the group it belongs to, and the true class, which is used for judging
        alone. None: found by their names.
    names
        A column of instances that holds the class of a few rows: after training, they name the classes that pairs and
        triplets leave unnamed.
    features, exclude
        The columns to learn from, or those not to; by default all that have no other meaning.
    categorical
        Columns of numbers that are names of categories.
    trust
        Columns to learn from although they look like the answer or like an id.
    classes, n_classes
        The names of the classes, for proportions the columns that count them; or how many there are.
    drop_unmatched
        Go on without rows and groups that have no partner in the other file.
    training
        Settings of training; see :data:`TRAINING`.
    """

    instances: Path
    sources: tuple[Source, ...]
    id: str | None = None
    group: str | None = None
    label: str | None = None
    names: str | None = None
    features: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    trust: tuple[str, ...] = ()
    classes: tuple[str, ...] | None = None
    n_classes: int | None = None
    drop_unmatched: bool = False
    training: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as JSON can hold it; files by their full paths, so that it holds in any folder."""
        content = asdict(self)
        content["instances"] = str(self.instances.absolute())
        for source in content["sources"]:
            source["file"] = str(source["file"].absolute())
        return content

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Plan:
        """Return the plan that :meth:`as_dict` has written."""
        sources = tuple(_tuples(Source(**{**one, "file": Path(one["file"])})) for one in content["sources"])
        return _tuples(cls(**{**content, "instances": Path(content["instances"]), "sources": sources}))


def _tuples(given: Any) -> Any:
    """Return a plan or source with tuples in place of lists, as JSON and TOML have them."""
    lists = {one.name: tuple(value) for one in fields(given) if isinstance(value := getattr(given, one.name), list)}
    return replace(given, **lists)


SOURCE_KEYS: dict[str, type] = {
    "aggregate": str,
    "group_in_groups": str,
    "members": list,
    "observed": str,
    "size": str,
    "relation": str,
}
"""Options of the file of observations; in an entry of ``also``, besides ``file``."""

PLAN_KEYS: dict[str, type] = {
    "instances": str,
    "groups": str,
    "out": str,
    "also": list,
    "id": str,
    "group": str,
    "label": str,
    "names": str,
    "features": list,
    "exclude": list,
    "categorical": list,
    "trust": list,
    "classes": list,
    "n_classes": int,
    "drop_unmatched": bool,
}


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
    _check_keys(content, {**PLAN_KEYS, **SOURCE_KEYS, **TRAINING}, str(path))
    for one in content.get("also", []):
        if not isinstance(one, dict) or "file" not in one:
            raise fail("each entry of also needs a file, as in {file = 'pairs.csv', aggregate = '...'}", str(path))
        _check_keys(one, {"file": str, **SOURCE_KEYS}, str(path))
        one["file"] = str(path.parent / one["file"])
    for name in ("instances", "groups", "out"):
        if name in content:
            content[name] = str(path.parent / content[name])
    return content


def make_plan(options: dict[str, Any]) -> Plan:
    """Return the plan of options by name, as they come from the command line and a file of settings together.

    Examples
    --------
    >>> plan = make_plan({"instances": "people.csv", "groups": "wards.csv", "epochs": 20})
    >>> plan.sources[0].file.name, plan.training
    ('wards.csv', {'epochs': 20})
    """
    for needed in ("instances", "groups"):
        if options.get(needed) is None:
            raise fail(f"name the file of {needed}, on the command line or as {needed} = ... in the file of settings")
    own = {name: options[name] for name in PLAN_KEYS if name in options and name not in ("groups", "out", "also")}
    main = {**options, "file": options["groups"]}
    sources = tuple(_make_source(one) for one in (main, *options.get("also", [])))
    training = {name: options[name] for name in TRAINING if name in options}
    own["instances"] = Path(own["instances"])
    return _tuples(Plan(**own, sources=sources, training=training))


def _make_source(options: dict[str, Any]) -> Source:
    own = {name: options[name] for name in SOURCE_KEYS if name in options and name != "group_in_groups"}
    return _tuples(Source(file=Path(options["file"]), group=options.get("group_in_groups"), **own))


def _check_keys(content: dict[str, Any], known: dict[str, Any], file: str) -> None:
    for name, value in content.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(known)}"
            raise fail(f"there is no setting {name!r}; {hint}", file)
        expected = known[name]
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            kinds = expected if isinstance(expected, tuple) else (expected,)
            raise fail(f"{name} must be of type {' or '.join(one.__name__ for one in kinds)}, got {value!r}", file)
