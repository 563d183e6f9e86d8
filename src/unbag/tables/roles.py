"""Roles of columns, found by their names, and the meaning of 1 in a column of answers."""

import difflib
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from unbag._utils.problems import fail, failing, list_some
from unbag.aggregates import AGGREGATES, Aggregate, AnswerColumn
from unbag.aggregates.registry import find_kind, needs_arguments, parameters
from unbag.tables.options import Plan, Source

# Names of columns; capitals, spaces and dashes do not matter.
ID = ("id", "row", "row_id", "instance", "instance_id", "item", "item_id", "key")
GROUP = ("group", "group_id", "bag", "bag_id", "cohort", "cohort_id")
SUBJECT = ("subject", "subject_id", "person_id", "patient_id", "participant_id")
LABEL = ("label", "true_label", "truth")
SIZE = ("size", "total", "n", "n_members")
MEMBERS = tuple(
    tuple(words.split())
    for words in (
        *("a b c", "first second third", "i j k", "id_1 id_2 id_3", "id_a id_b id_c", "row_1 row_2 row_3"),
        *("left right", "anchor near far"),
    )
)
NEUTRAL = ("z", "label", "observed")  # names of columns of answers that leave the meaning of 1 open
NOT = ("not", "no", "non")
HARMLESS = ("is", "are", "was", "class", "label", "first", "rank")
NO_WORDS = AnswerColumn(yes=())  # words of an aggregate that defines none
CONTRARY, NEGATED = 1, 2
"""Meanings of 1, which can be combined: what it usually means for the second of two (the contrary for bags and pairs),
and the usual meaning of 0."""


@dataclass(frozen=True)
class InstanceColumns:
    """Roles of the columns of the instances."""

    id: str | None
    group: str | None
    label: str | None
    subject: str | None  # the column that identifies the person or object of a row; never a feature
    features: tuple[str, ...]


@dataclass(frozen=True)
class SourceColumns:
    """Roles of the columns of a file of observations, and the kind of these."""

    aggregate: str  # the kind as it was written, with its arguments
    kind: type[Aggregate]
    certain: bool  # whether the kind was given, or follows from the columns without doubt
    group: str | None = None
    members: tuple[str, ...] = ()
    observed: str | None = None
    meaning: int = 0  # of 1 in the column of answers; 0 is the usual one
    size: str | None = None
    weight: str | None = None
    error_rate: float | str | None = None  # how often answers are wrong: a number, ``"fit"``, or the column of rates
    classes: tuple[str, ...] = ()
    scales: tuple[str, ...] = ()  # columns with the scale of the noise of each group
    unused: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of ids."""
        return self.members or ((self.group,) if self.group else ())

    @property
    def counted(self) -> bool:
        """Whether the observations are counts of each class, exact or as published."""
        return self.kind.outcome in ("class_counts", "published_counts")

    @property
    def relation(self) -> str:
        """The relation of the rank of the first to that of the second where the answer is 1."""
        return ("<", ">", ">=", "<=")[self.meaning]

    @property
    def is_exchanged(self) -> bool:
        """Whether 1 stands for what the aggregate calls 0; in triplets, the contrary is about other members instead."""
        contrary = bool(self.meaning & CONTRARY) and (self.kind.column or NO_WORDS).contrary_order is None
        return contrary != bool(self.meaning & NEGATED)


def columns_of_instances(names: Sequence[str], plan: Plan, sources: Sequence[Sequence[str]]) -> InstanceColumns:
    """Find id, group, label, subject and features among the columns of the instances.

    Without a known name, the group is the only column that occurs in the files of observations, ``sources``.
    """
    file = str(plan.instances)
    named = {*(plan.features or ()), *plan.categorical}
    id = find_column(names, ID, written=plan.id, file=file, option="--id", taken=named)
    not_labels = {*named, *plan.exclude}
    label = find_column(names, LABEL, written=plan.label, file=file, option="--label", taken=not_labels)
    group = find_column(names, GROUP, written=plan.group, file=file, option="--group", taken=named)
    if group is None:
        others, there = {*named, id, label, plan.subject}, [name for columns in sources for name in columns]
        for form in (_plain, _stem):
            shared = [name for name in names if name not in others and form(name) in {*map(form, there)}]
            group = shared[0] if len(shared) == 1 else group
    for option in ("names", "labelled", "features", "exclude", "categorical", "trust"):
        columns = getattr(plan, option) or ()
        _raise_if_unknown([columns] if isinstance(columns, str) else columns, names, file, f"--{option}")
    taken = {id, label, group, plan.names, plan.labelled}
    subject = find_column(names, SUBJECT, written=plan.subject, file=file, option="--subject", taken=taken | not_labels)
    if subject is not None and subject in named:
        raise fail("the column of subjects cannot be a feature; name another one with --subject", file, None, subject)
    chosen = plan.features or tuple(name for name in names if name not in {*taken, subject})
    features = tuple(name for name in chosen if name not in plan.exclude)
    if not features:
        raise fail("there is no column to learn from besides ids, groups and labels; name some with --features", file)
    return InstanceColumns(id, group, label, subject, features)


def columns_of_source(names: Sequence[str], source: Source, plan: Plan, instances: InstanceColumns) -> SourceColumns:
    """Infer the kind of observations in a file, and the roles of its columns."""
    file = str(source.file)
    weight = find_column(names, (), written=source.group_weight, file=file, option="--group-weight")
    rate: float | str | None = source.error_rate
    with suppress(TypeError, ValueError):
        rate = float(rate)  # type: ignore[arg-type]
    if isinstance(rate, str) and rate != "fit":
        _raise_if_unknown([rate], names, file, "--error-rate")
    names = [name for name in names if name not in (weight, rate)]
    written, certain = (source.aggregate, True) if source.aggregate else _guess_kind(names, source, instances)
    with failing(file):
        kind = find_kind(written)
    if rate is not None and kind.outcome != "yes_no":
        raise fail(f"--error-rate applies to answers of yes or no, which {written} does not observe", file)
    keys = keys_in_source(names, source, kind, instances)
    ids: dict[str, Any] = {"group": keys[0]} if kind.size is None else {"members": tuple(keys)}
    columns = SourceColumns(written, kind, certain, weight=weight, error_rate=rate, **ids)
    columns = _find_counts(columns, names, source, plan) if columns.counted else _find_answers(columns, names, source)
    if kind.size is None and instances.group is None:
        advice = f"call it group, or name it with --group, and write the same ids as in column {columns.group}"
        raise fail(f"no column identifies the group of a row; {advice} of {file}", str(plan.instances))
    if kind.size is not None and instances.id is None:
        message = f"no column is named like the ids to which {', '.join(columns.members)} of {file} refer"
        advice = f"the columns are {list_some(instances.features)}; name the right one with --id, or call it id"
        raise fail(f"{message}; {advice}", str(plan.instances))
    used = {*columns.keys, columns.observed, columns.size, *columns.classes, *columns.scales}
    return replace(columns, unused=tuple(name for name in names if name not in used))


def keys_in_source(
    names: Sequence[str], source: Source, kind: type[Aggregate], instances: InstanceColumns
) -> list[str]:
    """Return the column of group ids, or those of row ids."""
    file = str(source.file)
    if kind.size is None:
        return [_find_group(names, source, instances)]
    if source.members is not None:
        _raise_if_unknown(source.members, names, file, "--members")
        if len(source.members) != kind.size or len(set(source.members)) != kind.size:
            raise fail(f"--members must name {kind.size} different columns, got {', '.join(source.members)}", file)
        return [*source.members]
    plain = {_plain(name): name for name in names}
    numbered = [tuple(f"{word}_{place + 1}" for place in range(kind.size)) for word in ("id", "row")]
    choices = [words[: kind.size] for words in MEMBERS if len(words) >= kind.size] or numbered
    for words in choices:
        if all(word in plain for word in words):
            return [plain[word] for word in words]
    advice = f"call them {' or '.join(','.join(words) for words in choices[:2])}, or name them with --members"
    raise fail(f"no {kind.size} columns of row ids were found among {list_some(names)}; {advice}", file)


def find_column(
    names: Sequence[str], words: Collection[str], *, written: str | None, file: str, option: str,
    taken: Collection[str | None] = (),
) -> str | None:  # fmt: skip
    """Return the column that an option names, or else the column whose name is among some words and is not taken."""
    if written is not None:
        _raise_if_unknown([written], names, file, option)
        return written
    others = {*taken}
    like = [name for name in names if name not in others and _plain(name) in words]
    if len(like) > 1:
        raise fail(f"columns {list_some(like)} could both be meant; name the right one with {option}", file)
    return like[0] if like else None


def kinds_of_size(size: int | None) -> list[type[Aggregate]]:
    """Return the kinds of observation with a number of members, of those that need no arguments."""
    return [kind for kind in AGGREGATES.values() if kind.size == size and not needs_arguments(kind)]


def _find_counts(columns: SourceColumns, names: Sequence[str], source: Source, plan: Plan) -> SourceColumns:
    """Find the columns that count classes."""
    file, scales = str(source.file), source.noise_scale
    _raise_if_unknown(scales, names, file, "--noise-scale")
    _raise_if_unknown(plan.classes or (), names, file, "--classes")
    taken = (*columns.keys, *(plan.classes or ()), *scales)
    size = find_column(names, SIZE, written=source.size, file=file, option="--size", taken=taken)
    classes = plan.classes or tuple(name for name in names if name not in {*columns.keys, size, *scales})
    counts = tuple(name for name in classes if "%" not in name and "percent" not in name.lower())
    if plan.classes is None and len(counts) > 1:
        classes = counts  # a percentage beside counts of several classes is no class; it is noted as not used
    if len(classes) < 2:
        message = "proportions need a column of counts for each of at least two classes, but besides "
        message += f"{', '.join(columns.keys)} there is {'only ' + classes[0] if classes else 'none'}"
        raise fail(f"{message}; for one column of 0 and 1 use --aggregate multiple_instance", file)
    if len(scales) not in (0, 1, len(classes)):
        expected = f"one column, or one for each of the {len(classes)} classes"
        raise fail(f"--noise-scale must name {expected}, got {len(scales)}", file)
    return replace(columns, size=size, classes=tuple(classes), scales=scales)


def _find_answers(columns: SourceColumns, names: Sequence[str], source: Source) -> SourceColumns:
    """Find the column of what was observed, and what 1 means in it."""
    file, words, members = str(source.file), columns.kind.column or NO_WORDS, columns.members
    kinds = [kind.column for kind in AGGREGATES.values() if kind.column and kind.outcome == "yes_no"]
    known = {*NEUTRAL, "relation", *words.contrary, *(word for kind in (words, *kinds) for word in kind.yes)}
    free = [name for name in names if name not in columns.keys]
    observed = find_column(names, known, written=source.observed, file=file, option="--observed", taken=columns.keys)
    observed = observed or (free[0] if len(free) == 1 else None)
    if observed is None:
        advice = "add one of 0 and 1 and call it label"
        if free:
            advice = f"the others are {list_some(free)}; call it label, or name it with --observed"
        raise fail(f"no column of observations was found; {advice}", file)
    meaning = _infer_meaning(columns, observed, source)
    if words.contrary_order is not None and meaning & CONTRARY:  # the answer is about the third member
        members = tuple(members[place] for place in words.contrary_order)
    return replace(columns, members=members, observed=observed, meaning=meaning)


def _infer_meaning(columns: SourceColumns, column: str, source: Source) -> int:
    """Return the meaning of 1 by the words of the name of a column of answers; refuse an ambiguous name.

    A relation in the options of the source takes precedence.
    """
    kind, file, words = columns.kind, str(source.file), _plain(column).split("_")
    vocabulary, relations = kind.column, "relation" in parameters(kind)
    if vocabulary is None:
        contrary = {word for other in AGGREGATES.values() if other.column for word in other.column.contrary}
        if contrary.union(NOT).intersection(words):
            message = f"the name of the column may mean the contrary of what {kind.__name__} observes"
            raise fail(f"{message}; call it {NEUTRAL[-1]} if it does not", file, None, column)
        return 0
    if not vocabulary.contrary or (relations and (source.relation is not None or "relation" in words)):
        return 0
    matches = [word for word in words if word in vocabulary.yes or word in vocabulary.contrary]
    doubt = any(word in vocabulary.doubtful for word in words) or len(matches) > 1
    if matches and columns.members and not vocabulary.symmetric:
        # A name such as "b higher than a" may also name the row that is meant: only the first, or second of three.
        until = next((place for place, word in enumerate(words) if word in ("than", "to", "from")), len(words))
        triplet = len(columns.members) == 3
        fine = {*matches, *NOT, *HARMLESS, *_plain(columns.members[triplet]).split("_")}
        fine = fine - {"first"} | {"second"} if triplet else fine
        doubt = doubt or not fine.issuperset(words[:until])
    if doubt:
        option = ", or set its meaning with --relation" if relations else ""
        names = f"{vocabulary.yes[0]} if it is: {vocabulary.meanings[0]}, or {vocabulary.contrary[0]} if it is: "
        message = f"the name of the column does not determine what 1 means; call it {names}{vocabulary.meanings[1]}"
        raise fail(f"{message}{option}", file, None, column)
    if not matches:
        return 0
    return CONTRARY * (matches[0] in vocabulary.contrary) + NEGATED * any(word in NOT for word in words)


def _find_group(names: Sequence[str], source: Source, instances: InstanceColumns) -> str:
    if source.group is None and instances.group in names:
        return str(instances.group)
    for words in (() if instances.group is None else (_plain(instances.group),), GROUP):
        column = find_column(names, words, written=source.group, file=str(source.file), option="--group-in-groups")
        if column is not None:
            return column
    similar = [] if instances.group is None else [name for name in names if _stem(name) == _stem(instances.group)]
    if len(similar) == 1:
        return similar[0]
    if len(names) == 2 and instances.group is not None:  # ids and answers
        return names[0]
    name = "" if instances.group is None else f"{instances.group}, "
    advice = f"call it {name}as in the file of instances, or name it with --group-in-groups"
    message = f"no column contains the id of the group; the columns are {list_some(names)}"
    raise fail(f"{message}; {advice}", str(source.file))


def _guess_kind(names: Sequence[str], source: Source, instances: InstanceColumns) -> tuple[str, bool]:
    """Return the kind of observation that columns look like, and whether they leave no doubt."""
    plain = {_plain(name) for name in names}
    if len(source.members or ()) == 3 or any(len(words) == 3 and plain >= {*words} for words in MEMBERS):
        size = 3
    elif source.members is not None or any(plain >= {*words[:2]} for words in MEMBERS):
        size = 2
    else:
        group = _find_group(names, source, instances)
        others = [name for name in names if name not in {group, *source.noise_scale} and _plain(name) not in SIZE]
        outcome = "yes_no" if len(others) == 1 or source.observed else "class_counts"
        return next(kind.name for kind in kinds_of_size(None) if kind.outcome == outcome), True
    shown = {word for name in plain for word in name.split("_")} | ({"relation"} if source.relation else set())
    fitting, meant = kinds_of_size(size), []
    for kind in fitting:
        words = kind.column or NO_WORDS
        if shown & {*words.yes, *words.contrary, *(["relation"] if "relation" in parameters(kind) else [])}:
            meant.append(kind)
    return (meant[0].name, True) if len(meant) == 1 else (fitting[0].name, False)


def _plain(name: str) -> str:
    return "_".join(name.strip().lower().replace("-", " ").replace("_", " ").split())


def _stem(name: str) -> str:
    """Return a plain name without a last word such as id: "Ward name" and "Ward code" are both "ward"."""
    first, _, last = _plain(name).rpartition("_")
    return first if first and last in ("name", "code", "id", "number", "no") else _plain(name)


def _raise_if_unknown(columns: Collection[str], names: Sequence[str], file: str, option: str) -> None:
    there = {*names}  # there may be many
    for name in columns:
        if name not in there:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"the columns are {list_some(names)}"
            raise fail(f"there is no column {name!r}, which {option} names; {hint}", file)
