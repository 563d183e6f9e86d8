"""Roles of columns, found by the names that people give them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from unbag._utils.problems import fail, failing, list_some
from unbag.aggregates import AGGREGATES, Aggregate, AnswerColumn
from unbag.aggregates.registry import find_kind, needs_arguments, parameters
from unbag.tables.answers import NEUTRAL, NO_WORDS, Reading, read_name
from unbag.tables.options import Plan, Source

ID = ("id", "row", "row_id", "instance", "instance_id", "item", "item_id", "key")
GROUP = ("group", "group_id", "bag", "bag_id", "cohort", "cohort_id")
SUBJECT = ("subject", "subject_id", "person_id", "patient_id", "participant_id")
LABEL = ("label", "true_label", "truth")
SIZE = ("size", "total", "n", "n_members")
MEMBERS = (
    ("a", "b", "c"),
    ("first", "second", "third"),
    ("i", "j", "k"),
    ("id_1", "id_2", "id_3"),
    ("id_a", "id_b", "id_c"),
    ("row_1", "row_2", "row_3"),
    ("left", "right"),
    ("anchor", "near", "far"),
)


@dataclass(frozen=True)
class InstanceColumns:
    """What the columns of the instances mean."""

    id: str | None
    group: str | None
    label: str | None
    subject: str | None
    """The column that identifies the person or object of a row; never a feature."""
    features: tuple[str, ...]


@dataclass(frozen=True)
class SourceColumns:
    """What the columns of a file of observations mean, and of which kind these are."""

    aggregate: str
    """As it was written, with its arguments."""
    kind: type[Aggregate]
    certain: bool
    """Whether the columns tell the kind, or it was given."""
    group: str | None = None
    members: tuple[str, ...] = ()
    observed: str | None = None
    reading: Reading = field(default_factory=Reading)
    """What 1 means in the column of what was observed."""
    size: str | None = None
    weight: str | None = None
    error_rate: float | str | None = None
    """How often answers are wrong: a number, ``"fit"``, or the column that tells it."""
    classes: tuple[str, ...] = ()
    scales: tuple[str, ...] = ()
    """Where the scale of the noise of each group is told."""
    unused: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of ids."""
        return self.members or ((self.group,) if self.group else ())


def columns_of_instances(names: Sequence[str], plan: Plan, sources: Sequence[Sequence[str]]) -> InstanceColumns:
    """Find id, group, label and features among the columns of the instances.

    A column that only one of the files of observations, ``sources``, shares may be the group.
    """
    file = str(plan.instances)
    named = {*(plan.features or ()), *plan.categorical}
    own_id = find_column(names, ID, given=plan.id, file=file, option="--id", taken=named)
    not_labels = {*named, *plan.exclude}
    label = find_column(names, LABEL, given=plan.label, file=file, option="--label", taken=not_labels)
    group = find_column(names, GROUP, given=plan.group, file=file, option="--group", taken=named)
    if group is None:
        others = {*named, own_id, label, plan.subject}
        there = {_plain(name) for own in sources for name in own}
        shared = [name for name in names if name not in others and _plain(name) in there]
        group = shared[0] if len(shared) == 1 else None
    for option, given in (("--names", plan.names), ("--labelled", plan.labelled)):
        if given is not None:
            _refuse_unknown(given, names, file, option)
    taken = {own_id, label, group, plan.names, plan.labelled}
    subject = find_column(names, SUBJECT, given=plan.subject, file=file, option="--subject", taken=taken | not_labels)
    if subject is not None and subject in named:
        raise fail("the column of subjects cannot be a feature; name another one with --subject", file, None, subject)
    taken.add(subject)
    for option, columns in (
        ("--features", plan.features or ()),
        ("--exclude", plan.exclude),
        ("--categorical", plan.categorical),
        ("--trust", plan.trust),
    ):
        for name in columns:
            _refuse_unknown(name, names, file, option)
    chosen = plan.features or tuple(name for name in names if name not in taken)
    features = tuple(name for name in chosen if name not in plan.exclude)
    if not features:
        raise fail("there is no column to learn from besides ids, groups and labels; name some with --features", file)
    return InstanceColumns(own_id, group, label, subject, features)


def columns_of_source(names: Sequence[str], source: Source, plan: Plan, instances: InstanceColumns) -> SourceColumns:
    """Find out what kind of observations a file holds, and in which columns."""
    file = str(source.file)
    weight = find_column(names, (), given=source.group_weight, file=file, option="--group-weight")
    rate = read_error_rate(source.error_rate)
    if isinstance(rate, str) and rate != "fit":
        _refuse_unknown(rate, names, file, "--error-rate")
    names = [name for name in names if name not in (weight, rate)]
    written, certain = (source.aggregate, True) if source.aggregate else _guess(names, source, instances)
    with failing(file):
        kind = find_kind(written)
    keys = keys_in_source(names, source, kind, instances)
    ids: dict[str, Any] = {"group": keys[0]} if kind.size is None else {"members": tuple(keys)}
    if rate is not None and kind.outcome != "yes_no":
        raise fail(f"--error-rate is about answers of yes or no, but {written} observes none", file)
    columns = SourceColumns(written, kind, certain, weight=weight, error_rate=rate, **ids)
    counted = kind.outcome in ("class_counts", "published_counts")
    columns = _counted(columns, names, source, plan) if counted else _answered(columns, names, source)
    used = {*columns.keys, columns.observed, columns.size, *columns.classes, *columns.scales}
    unused = tuple(name for name in names if name not in used)
    if kind.size is None and instances.group is None:
        raise fail(
            f"no column tells which group a row belongs to; call it group, or name it with --group, and write the "
            f"same ids as in column {columns.group} of {file}",
            str(plan.instances),
        )
    if kind.size is not None and instances.id is None:
        raise fail(
            f"no column says by its name that it holds the ids that {', '.join(columns.members)} of {file} refer to; "
            f"the columns are {list_some(instances.features)}; name the right one with --id, or call it id",
            str(plan.instances),
        )
    return replace(columns, unused=unused)


def read_error_rate(written: str | float | None) -> str | float | None:
    """Return a rate of wrong answers as a number, if it is one; otherwise it is ``"fit"``, or the name of a column.

    Examples
    --------
    >>> read_error_rate("0.1"), read_error_rate("doubt")
    (0.1, 'doubt')
    """
    try:
        return None if written is None else float(written)
    except ValueError:
        return written


def keys_in_source(
    names: Sequence[str], source: Source, kind: type[Aggregate], instances: InstanceColumns
) -> list[str]:
    """Return the column of group ids, or those of row ids."""
    if kind.size is None:
        return [_group_in_source(names, source, instances)]
    return [*_members_in_source(names, source, kind.size)]


def find_column(
    names: Sequence[str],
    words: Collection[str],
    *,
    given: str | None,
    file: str,
    option: str,
    taken: Collection[str | None] = (),
) -> str | None:
    """Return the column that was named by the user, or else the one whose name is among some words.

    Capitals, spaces and dashes do not matter. Columns that are ``taken`` mean something else.

    Examples
    --------
    >>> find_column(["Age", "Cohort ID"], GROUP, given=None, file="people.csv", option="--group")
    'Cohort ID'
    """
    if given is not None:
        _refuse_unknown(given, names, file, option)
        return given
    others = {*taken}
    like = [name for name in names if name not in others and _plain(name) in words]
    if len(like) > 1:
        raise fail(f"columns {list_some(like)} could both be meant; name the right one with {option}", file)
    return like[0] if like else None


def _counted(columns: SourceColumns, names: Sequence[str], source: Source, plan: Plan) -> SourceColumns:
    """Find the columns that count classes."""
    file, taken = str(source.file), (*columns.keys, *(plan.classes or ()), *source.noise_scale)
    for name in source.noise_scale:
        _refuse_unknown(name, names, file, "--noise-scale")
    size = find_column(names, SIZE, given=source.size, file=file, option="--size", taken=taken)
    for name in plan.classes or ():
        _refuse_unknown(name, names, file, "--classes")
    classes = plan.classes or tuple(name for name in names if name not in {*columns.keys, size, *source.noise_scale})
    if len(classes) < 2:
        raise fail(
            f"proportions need a column of counts for each of at least two classes, but besides "
            f"{', '.join(columns.keys)} there is "
            f"{'only ' + classes[0] if classes else 'none'}; for one column of 0 and 1 use --aggregate "
            "multiple_instance",
            file,
        )
    if len(source.noise_scale) not in (0, 1, len(classes)):
        raise fail(
            f"--noise-scale must name one column, or one for each of the {len(classes)} classes, got "
            f"{len(source.noise_scale)}",
            file,
        )
    return replace(columns, size=size, classes=tuple(classes), scales=source.noise_scale)


def _answered(columns: SourceColumns, names: Sequence[str], source: Source) -> SourceColumns:
    """Find the column of what was observed, and what 1 means in it."""
    words, members = columns.kind.column or NO_WORDS, columns.members
    observed = _observed(words, names, columns.keys, source)
    plain = [_plain(name) for name in members]
    reading = read_name(columns.kind, observed, _plain(observed).split("_"), plain, source)
    if words.contrary_order is not None and reading.contrary:  # what is said of the second holds of the third
        members = tuple(members[place] for place in words.contrary_order)
    return replace(columns, members=members, observed=observed, reading=reading)


def _members_in_source(names: Sequence[str], source: Source, count: int) -> tuple[str, ...]:
    file = str(source.file)
    if source.members is not None:
        for name in source.members:
            _refuse_unknown(name, names, file, "--members")
        if len(source.members) != count or len(set(source.members)) != count:
            raise fail(f"--members must name {count} different columns, got {', '.join(source.members)}", file)
        return source.members
    plain = {_plain(name): name for name in names}
    numbered = [tuple(f"{word}_{place + 1}" for place in range(count)) for word in ("id", "row")]
    choices = [words[:count] for words in MEMBERS if len(words) >= count] or numbered
    for words in choices:
        if all(word in plain for word in words):
            return tuple(plain[word] for word in words)
    some = " or ".join(",".join(words) for words in choices[:2])
    raise fail(
        f"no {count} columns of row ids were found among {list_some(names)}; call them {some}, or name them with "
        "--members",
        file,
    )


def _group_in_source(names: Sequence[str], source: Source, instances: InstanceColumns) -> str:
    file = str(source.file)
    own = instances.group
    if source.group is None and own in names:
        return str(own)
    called = () if own is None else (_plain(own),)
    column = find_column(names, called, given=source.group, file=file, option="--group-in-groups")
    column = column or find_column(names, GROUP, given=None, file=file, option="--group-in-groups")
    if column is None:
        raise fail(
            f"no column holds the id of the group; the columns are {list_some(names)}; call it as in the file of "
            "instances, or name it with --group-in-groups",
            file,
        )
    return column


def _observed(own: AnswerColumn, names: Sequence[str], taken: Collection[str], source: Source) -> str:
    file = str(source.file)
    columns = [kind.column for kind in AGGREGATES.values() if kind.column and kind.outcome == "yes_no"]
    words = {*NEUTRAL, "relation", *(word for one in (own, *columns) for word in one.yes), *own.contrary}
    free = [name for name in names if name not in taken]
    column = find_column(names, words, given=source.observed, file=file, option="--observed", taken=taken)
    if column is None and len(free) == 1:
        column = free[0]
    if column is None:
        raise fail(
            f"no column says what was observed; the others are {list_some(free)}; call it label, or name it with "
            "--observed"
            if free
            else "no column says what was observed; add one of 0 and 1 and call it label",
            file,
        )
    return column


def _guess(names: Sequence[str], source: Source, instances: InstanceColumns) -> tuple[str, bool]:
    """Return the kind of observation that columns look like, and whether they leave no doubt."""
    plain = {_plain(name) for name in names}
    if len(source.members or ()) == 3 or any(len(w) == 3 and plain >= {*w} for w in MEMBERS):
        size = 3
    elif source.members is not None or any(plain >= {*words[:2]} for words in MEMBERS):
        size = 2
    else:
        group = _group_in_source(names, source, instances)
        others = [name for name in names if name not in {group, *source.noise_scale} and _plain(name) not in SIZE]
        outcome = "yes_no" if len(others) == 1 or source.observed else "class_counts"
        return next(kind.name for kind in kinds_of_size(None) if kind.outcome == outcome), True
    words = {word for name in plain for word in name.split("_")}
    words |= {"relation"} if source.relation else set()
    fitting = kinds_of_size(size)
    meant = [kind for kind in fitting if words & _words_for(kind)]
    return (meant[0].name, True) if len(meant) == 1 else (fitting[0].name, False)


def kinds_of_size(size: int | None) -> list[type[Aggregate]]:
    """Return the kinds of observation with so many members, of those that a name is enough for."""
    return [kind for kind in AGGREGATES.values() if kind.size == size and not needs_arguments(kind)]


def _words_for(kind: type[Aggregate]) -> set[str]:
    words = kind.column or NO_WORDS
    return {*words.yes, *words.contrary, *(["relation"] if "relation" in parameters(kind) else [])}


def _plain(name: str) -> str:
    return "_".join(name.strip().lower().replace("-", " ").replace("_", " ").split())


def _refuse_unknown(name: str, names: Sequence[str], file: str, option: str) -> None:
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"the columns are {list_some(names)}"
        raise fail(f"there is no column {name!r}, which {option} names; {hint}", file)
