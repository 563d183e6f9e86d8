"""Predict rows, groups, and rows in observed groups of files with a finished run; rows are read piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from unbag._utils.problems import Problem, fail, list_some, raise_errors
from unbag.aggregates import Aggregate, LabelProportions
from unbag.aggregates.registry import find_kind, is_built_in, make_aggregate
from unbag.data.columns import Table
from unbag.data.features import Preparation, Tally, describe_tally
from unbag.data.frames import EncodedRows
from unbag.data.groups import Groups
from unbag.data.row_source import gather_rows
from unbag.diagnostics.shift import Moments, find_shift
from unbag.persistence.run_folder import Run
from unbag.tables.files import ROWS_AT_ONCE, CsvFile, TableFile, check_output, open_table, parse_text, write_output
from unbag.tables.ids import find, make_groups, match_members, missing_keys, shared_keys
from unbag.tables.load import match_tables, open_files
from unbag.tables.options import Plan
from unbag.tables.published_files import KEYS, read_published
from unbag.tables.roles import ID, SUBJECT, columns_of_instances, find_column, keys_in_source
from unbag.training import Observations

Result = tuple[int, list[Problem]]  # the number of rows that were written, and notes


@dataclass
class Seen:
    """Statistics of rows that were read, of a whole table or of its parts, which add up."""

    rows: int = 0
    tally: Tally = field(default_factory=Tally)
    moments: Moments | None = None
    notes: list[Problem] = field(default_factory=list)

    def __add__(self, other: Seen) -> Seen:
        moments = other.moments if self.moments is None or other.moments is None else self.moments + other.moments
        return Seen(self.rows + other.rows, self.tally + other.tally, moments, [*self.notes, *other.notes])

    def as_problems(self, clf: Any, file: Path) -> list[Problem]:
        """Return notes of values that training rows did not have, and warnings of columns with other means."""
        assert self.moments is not None
        shifts = find_shift(clf.feature_statistics_, self.moments, clf.preparation_.encoded_names)
        warnings = [Problem("warning", shift.message, str(file)) for shift in shifts]
        return [*describe_tally(self.tally, str(file)), *self.notes, *warnings]


@dataclass(frozen=True, eq=False)
class FittedRun:
    """A finished run: its record, and its classifier, which belong together."""

    run: Run
    content: dict[str, Any]
    clf: Any

    @classmethod
    def load(cls, run: Run, device: str = "cpu") -> FittedRun:
        """Load a run; files that belong to another run are refused."""
        from unbag.persistence.saved_models import CodeError, load  # noqa: PLC0415 (scikit-learn is slow to import)

        content = run.read_finished()
        try:
            clf = load(run.model, device=device)
        except CodeError:  # code that a folder names is not imported; predictions do not need it
            clf = load(run.model, device=device, aggregate="label_proportions")
        run.check_files(content)
        return cls(run, content, clf)

    @property
    def preparation(self) -> Preparation:
        """The encoding of columns."""
        return self.clf.preparation_

    def check_columns(self, names: Sequence[str], file: str, kept: Sequence[str] = ()) -> None:
        """Raise an error for a file that lacks columns to keep, or columns of the model."""
        there = {*names}
        if absent := [name for name in kept if name not in there]:
            raise fail(f"there is no column {absent[0]!r} to keep; the columns are {list_some(names)}", file)
        if missing := [name for name in self.preparation.names if name not in there]:
            columns = f"{len(missing)} of the columns that the model was fitted on"
            raise fail(f"{columns} {'is' if len(missing) == 1 else 'are'} missing: {list_some(missing)}", file)

    def stream(self, file: TableFile, kept: Sequence[str], seen: Seen) -> Iterator[tuple[pa.Table, EncodedRows]]:
        """Yield columns to keep and encoded rows piece by piece, and update the statistics of the rows."""
        kinds = self.preparation.csv_types if isinstance(file, CsvFile) else {}
        for piece in file.stream(list(dict.fromkeys([*kept, *self.preparation.names]))):
            table = piece
            for place, name in enumerate(piece.column_names):
                if kinds.get(name, pa.string()) != pa.string():
                    column = piece.column(name).combine_chunks()
                    values = parse_text(column, kinds[name], file.path, name, seen.rows)
                    table = table.set_column(place, name, values)
            X = self.preparation.encode_rows(Table(file.path, table), seen.tally, seen.rows)
            moments = Moments.of(X)
            seen.moments = moments if seen.moments is None else seen.moments + moments
            seen.rows += len(X)
            yield piece.select(kept), EncodedRows(X, self.preparation)
        if not seen.rows:
            raise fail("there are no rows, only names of columns", str(file.path))

    def plan_for(self, instances: Path, groups: Path, aggregate: str | None) -> tuple[Plan, int]:
        """Return the plan of the run for other files, and which of its files of observations had this kind."""
        plan = Plan(**self.content["plan"])
        kinds = [source["aggregate"] for source in self.content["inputs"]["observations"]]
        kind = aggregate or kinds[0]
        if kind not in kinds:
            raise fail(f"the run was fitted to {', '.join(kinds)}, not to {kind}")
        if aggregate is None and not is_built_in(kind):
            raise fail(f"the run was fitted to {kind}, which is your own code; name it with --aggregate to run it")
        place = kinds.index(kind)
        source = replace(plan.sources[place], file=groups, aggregate=kind, group_weight=None, sampling=None)
        if self.clf.error_rates_[place] is not None:
            source = replace(source, error_rate=self.clf.error_rates_[place])
        unset: dict[str, Any] = {**dict.fromkeys((*KEYS, "epsilon", "sensitivity")), "noise_scale": ()}
        if published := read_published(groups):  # otherwise it was published like the file of the run
            source = replace(source, **(unset | published))
        unset = dict.fromkeys(("n_classes", "labelled", "class_shares", "subject", "label", "names"))
        names, features = tuple(map(str, self.clf.classes_.tolist())), tuple(self.preparation.names)
        categorical = tuple(name for name in plan.categorical if name in features)
        columns: dict[str, Any] = {"features": features, "categorical": categorical, "exclude": (), "trust": ()}
        return replace(plan.for_files(instances, (source,)), classes=names, **columns, **unset), place


@dataclass(frozen=True, eq=False)
class Rows:
    """Predicted rows: some of their columns, the log-probabilities of classes, and features where they are needed."""

    keys: Table
    log_probs: np.ndarray
    X: EncodedRows | None
    seen: Seen


def read_rows(fitted: FittedRun, file: TableFile, keys: Sequence[str]) -> Rows:
    """Predict the rows of a table, and keep some of its columns; features are kept for a model of bags alone."""
    # A single block that grows: many small arrays, between large temporary ones, would fragment the memory.
    seen, kept, features, buffer = Seen(), [], [], bytearray()
    for texts, X in fitted.stream(file, keys, seen):
        log_probs = fitted.clf.predict_log_proba(X)
        buffer += log_probs.tobytes()
        kept.append(texts)
        features += [] if fitted.clf.bag_model_ is None else [gather_rows(X.rows, torch.arange(len(X)))]
    whole = np.frombuffer(buffer, log_probs.dtype).reshape(seen.rows, -1)
    encoded = EncodedRows(torch.cat(features), fitted.preparation) if features else None
    return Rows(Table(file.path, pa.concat_tables(kept)), whole, encoded, seen)


def predict_table(run: Run, instances: Path, out: Path, *, device: str = "cpu", **options: Any) -> Result:
    """Write the class of each row and the probability of each class, in the order of the rows.

    The table is read, predicted and written piece by piece, so that it may be larger than the memory. Options are
    ``id``, the column of ids (by default as in the fit, or found by its name); ``keep``, further columns to copy; and
    ``raw_text``, which writes text to CSV unchanged, even if a spreadsheet would run it as a formula.
    """
    fitted = FittedRun.load(run, device)
    seen = predict_part(fitted, instances, out, **options)
    return seen.rows, seen.as_problems(fitted.clf, instances)


def predict_part(
    fitted: FittedRun, instances: Path, out: Path, *, id: str | None = None, keep: Sequence[str] = (),
    raw_text: bool = False,
) -> Seen:  # fmt: skip
    """Write the predictions of :func:`predict_table`, and return statistics of the rows."""
    check_output(out, [instances, *fitted.run.inputs])
    seen, of_run = Seen(), fitted.content["plan"]["id"]
    plan = Plan(**fitted.content["plan"]).for_files(instances, ())
    with open_table(instances, plan.reading(0)) as file:
        wanted, taken = id or (of_run if of_run in file.names else None), fitted.preparation.names
        ids = find_column(file.names, ID, written=wanted, file=str(instances), option="--id", taken=taken)
        ids = ids or find_column(file.names, SUBJECT, written=None, file=str(instances), option="--id", taken=taken)
        group = fitted.content["inputs"]["group"]
        ids = ids or (group if group in file.names else None)
        kept = list(dict.fromkeys([*([ids] if ids else []), *keep]))
        fitted.check_columns(file.names, str(instances), kept)
        predictions = (
            _add_predictions(texts, fitted.clf.predict_proba(X), fitted.clf.classes_, str(instances))
            for texts, X in fitted.stream(file, kept, seen)
        )
        notes = write_output(out, predictions, raw_text=raw_text)
    seen.notes += [*file.repairs, *notes]
    if not kept:
        message = "there is no column of ids: name it with --id, copy columns with --keep, or rely on the order of rows"
        seen.notes.append(Problem("note", message, str(instances)))
    return seen


def _add_predictions(kept: pa.Table, probs: np.ndarray, classes: Any, file: str) -> pa.Table:
    """Append columns of predictions to columns of a file: the most probable class, and the probability of each."""
    text = pa.array(map(str, classes.tolist()))
    best = pa.array(np.nan_to_num(probs).argmax(1), mask=np.isnan(probs).any(1))
    names = [f"p_{name}" for name in text.to_pylist()]
    return _append(kept, {"predicted": text.take(best), **dict(zip(names, probs.T, strict=True))}, file)


def _append(kept: pa.Table, results: dict[str, Any], file: str) -> pa.Table:
    """Append columns of results; a column that is copied and has the name of a result is an error."""
    if clash := [name for name in kept.column_names if name in results]:
        raise fail("the column has the name of one of the results; rename it", file, None, clash[0])
    return pa.table([*kept.columns, *map(pa.array, results.values())], names=[*kept.column_names, *results])


def predict_groups_table(
    run: Run, instances: Path, groups: Path, out: Path, *, aggregate: str | None = None, id: str | None = None,
    group: str | None = None, raw_text: bool = False, device: str = "cpu",
) -> Result:  # fmt: skip
    """Write the expected observation of each group and its probability, in the order in which a file names groups.

    For answers and classes, the most probable one and the probability of each; for counts, the expected counts, whole
    numbers near them, and the probability of exactly these. ``groups`` is a file with the ids of groups, or of the rows
    of pairs or triplets; the file of instances is allowed if it has a column of groups. ``aggregate`` is the kind of
    observation, if the run was fitted to several; ``id`` and ``group`` are columns, by default as in the fit.
    """
    fitted = FittedRun.load(run, device)
    check_output(out, [instances, groups, *run.inputs])
    plan, place = fitted.plan_for(instances, groups, aggregate)
    source, kind = plan.sources[0], find_kind(str(plan.sources[0].aggregate))
    name, named = ("group" if kind.size is None else "id"), {"id": id, "group": group}
    named[name] = named[name] or fitted.content["inputs"][name]
    plan = replace(plan, **named)  # type: ignore[arg-type]
    with open_files(plan) as (file, of_groups):
        if source.group not in of_groups.names:
            source = replace(source, group=None)
        fitted.check_columns(file.names, str(instances))
        columns = columns_of_instances(file.names, plan, [of_groups.names])
        keys = keys_in_source(of_groups.names, source, kind, columns)
        key = str(getattr(columns, name))
        table = of_groups.read(as_text=keys)
        rows = read_rows(fitted, file, [key])
    find_them = _find_groups if kind.size is None else _find_tuples
    new_groups, kept, problems = find_them(rows.keys, key, table, keys, drop=plan.drop_unmatched)
    fitted_kind = fitted.clf.fitted_aggregates_[place]
    if ":" in str(source.aggregate):
        fitted_kind = make_aggregate(str(source.aggregate), list(map(str, fitted.clf.classes_)))
    results = _predict_groups(fitted.clf, fitted_kind, rows, new_groups, kept=kept, file=str(groups))
    notes = write_output(out, [results], raw_text=raw_text)
    return len(new_groups), [*problems, *rows.seen.as_problems(fitted.clf, instances), *notes]


def _predict_groups(
    clf: Any, aggregate: Aggregate, rows: Rows, groups: Groups, *, kept: pa.Table, file: str
) -> pa.Table:
    """Return columns that are kept, the predicted observation of each group, and its probability."""
    counted = aggregate.outcome in ("class_counts", "published_counts")
    aggregate = LabelProportions() if counted else aggregate
    log_probs = torch.from_numpy(rows.log_probs)

    def probability(z: np.ndarray) -> np.ndarray:
        observations = Observations(aggregate, groups, z, log_probs.shape[1])
        return observations.evidence(log_probs).log_likelihood.exp().numpy()

    if aggregate.outcome == "class":
        probs = [probability(np.full(len(groups), place)) for place in range(log_probs.shape[1])]
        return _add_predictions(kept, np.stack(probs, 1), clf.classes_, file)
    if rows.X is not None:
        expected = clf.predict_groups(rows.X, groups)
    else:
        expected = aggregate.expect(groups.gather(log_probs), groups).numpy()
    if aggregate.outcome == "yes_no":
        return _add_predictions(kept, np.stack([1 - expected, expected], 1), np.arange(2), file)
    whole = round_counts(expected, groups.sizes.numpy()) if counted else np.rint(expected).astype(np.int64)
    classes = [f"_{name}" for name in clf.classes_.tolist()] if counted else [""]
    names = [f"{what}{name}" for what in ("predicted", "expected") for name in classes]
    columns = [*np.atleast_2d(whole.T), *np.atleast_2d(expected.T)]
    return _append(kept, {**dict(zip(names, columns, strict=True)), "p_predicted": probability(whole)}, file)


def round_counts(expected: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Round expected counts to whole ones that add up to the sizes of groups, by the largest remainders."""
    whole = np.floor(expected).astype(np.int64)
    rank = np.argsort(np.argsort(-(expected - whole), axis=1, kind="stable"), axis=1)
    return whole + (rank < (sizes - whole.sum(1))[:, None])


def _find_groups(
    rows: Table, key: str, table: Table, keys: list[str], *, drop: bool
) -> tuple[Groups, pa.Table, list[Problem]]:
    """Return the groups that a file names, each once, the column of their ids, and notes.

    ``drop`` skips groups without rows, unless none is left, as the option ``--drop-unmatched`` of the fit does.
    """
    of_rows, (named,), problems = shared_keys(rows, key, table, keys)
    problems += missing_keys(table, keys[0])
    named = named.drop_null().unique()
    which = find(of_rows, named)
    sizes = np.bincount(which[which >= 0], minlength=len(named))
    if empty := named.filter(pa.array(sizes == 0)).to_pylist():
        are = f"group {empty[0]!r} has" if len(empty) == 1 else f"{len(empty):,} groups ({list_some(empty)}) have"
        message = f"{are} no rows in column {key} of {rows.file}"
        advice = f"delete such lines, or predict the groups that rows name with --groups {rows.file}"
        if drop and sizes.any():
            problems.append(Problem("note", f"{message}, and no prediction", table.file, left_out=True))
            named = named.filter(pa.array(sizes > 0))
            which = find(of_rows, named)
        else:
            problems.append(Problem("error", f"{message}; {advice}", table.file))
    raise_errors(problems)
    if others := int((which < 0).sum()):
        message = f"{others:,} {'row is' if others == 1 else 'rows are'} in no group of {table.file}"
        problems.append(Problem("note", message, rows.file, None, key))
    return make_groups(which, named), pa.table([named], names=keys), problems


def _find_tuples(
    rows: Table, key: str, table: Table, keys: list[str], *, drop: bool
) -> tuple[Groups, pa.Table, list[Problem]]:
    """Return the pairs or triplets that a file names, the columns of their ids, and notes."""
    places, problems = match_members(rows, key, table, keys, drop=drop or None)
    raise_errors(problems)
    known = (places >= 0).all(1)
    groups = Groups.from_tuples(torch.from_numpy(places[known]), n_rows=len(rows))
    return groups, table.data.select(keys).filter(pa.array(known)), problems


def disaggregate_table(
    run: Run, instances: Path, groups: Path, out: Path, *, aggregate: str | None = None,
    drop_unmatched: bool | None = None, raw_text: bool = False, device: str = "cpu",
    read_rows: Callable[[FittedRun, TableFile, Sequence[str]], Rows] = read_rows,
) -> Result:  # fmt: skip
    """Write the probability of each class for rows in observed groups, given the observations.

    For groups, one line per row that is in a group, in the order of the rows; for pairs and triplets, one line per
    member, in the order of the pairs. Ids and probabilities of all rows are held in memory, but not their features.
    ``aggregate`` is the kind of observation in the file, if the run was fitted to several. ``drop_unmatched`` leaves
    out rows and groups that have no partner in the other file; None: as in the fit.
    """
    from unbag.estimators.predictor import compute_posterior  # noqa: PLC0415 (scikit-learn is slow to import)

    fitted = FittedRun.load(run, device)
    check_output(out, [instances, groups, *run.inputs])
    plan, _ = fitted.plan_for(instances, groups, aggregate)
    if drop_unmatched is not None:
        plan = replace(plan, drop_unmatched=drop_unmatched)
    predicted: list[Rows] = []

    def read(file: TableFile, keys: list[str]) -> Table:
        predicted.append(read_rows(fitted, file, keys))
        return predicted[0].keys

    with open_files(plan) as files:
        fitted.check_columns(files[0].names, str(instances))
        loaded = match_tables(plan, files, read)
    raise_errors(loaded.problems)
    observed = loaded.observed[0]
    if observed.checked is None:
        raise fail("no group is left", observed.table.file)
    rows = predicted.pop()
    posterior = compute_posterior(observed.checked, torch.from_numpy(rows.log_probs)).numpy()
    seen = rows.seen
    del rows  # its probabilities take much memory
    of_tuples = observed.columns.members
    members, size = observed.checked.groups.members.numpy(), len(of_tuples)
    order = np.arange(len(members)) if of_tuples else np.argsort(members, kind="stable")
    names = [loaded.columns.id, None if of_tuples else loaded.columns.group]
    keys = loaded.instances.data.select([name for name in names if name is not None])

    def predictions() -> Iterator[pa.Table]:
        for first in range(0, len(order), ROWS_AT_ONCE):
            part = order[first : first + ROWS_AT_ONCE]
            columns = keys.take(pa.array(members[part]))
            if of_tuples:  # the row and the column of their file
                pair, place = part // size, part % size
                if observed.turned is not None:
                    place = np.where(observed.turned[pair], size - 1 - place, place)
                found = [pa.array(observed.source_rows[pair] + 1), pa.array(np.array(of_tuples, dtype=object)[place])]
                columns = pa.table([*found, *columns.columns], names=["observation", "member", *columns.column_names])
            yield _add_predictions(columns, posterior[part], fitted.clf.classes_, str(instances))

    notes = write_output(out, predictions(), raw_text=raw_text)
    problems = [*loaded.problems, *seen.as_problems(fitted.clf, instances), *notes]
    if impossible := int(np.isnan(posterior).any(1).sum()):
        message = f"{impossible:,} lines have no probabilities: the model rules out the observations of their groups"
        problems.append(Problem("warning", message, str(out)))
    return len(posterior), problems
