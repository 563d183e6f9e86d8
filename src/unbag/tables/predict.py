"""Predict rows with a finished run, piece by piece."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from unbag._utils.files import atomic_file, raise_if_input, remove_drafts
from unbag._utils.problems import Problem, fail, list_some
from unbag.aggregates.registry import is_built_in
from unbag.data.columns import Table
from unbag.data.features import Preparation, Tally
from unbag.diagnostics.shift import Moments, find_shift
from unbag.persistence.run_folder import Run
from unbag.tables.column_roles import ID, find_column
from unbag.tables.files import TableFile, convert_text, open_table, raise_if_text
from unbag.tables.formulas import FormulaEscaper
from unbag.tables.options import Plan
from unbag.tables.published_files import KEYS, read_published

Write = Callable[[pa.Table], None]


@dataclass(frozen=True, eq=False)
class Predicted:
    """How many rows were predicted, and what was met on the way."""

    rows: int
    tally: Tally
    seen: Moments
    notes: list[Problem]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows whose features were predicted: their ids and classes, and the log-probability of each class."""

    keys: Table
    log_probs: np.ndarray
    tally: Tally


def predict_table(
    run: Run,
    instances: Path,
    out: Path,
    *,
    id: str | None = None,
    keep: Sequence[str] = (),
    raw_text: bool = False,
    device: str = "cpu",
    progress: Callable[[int], None] = lambda rows: None,
) -> tuple[int, list[Problem]]:
    """Write the class of each row and the probability of each class, in the order of the rows.

    The table is read, predicted and written piece by piece, so that its length does not matter for memory.

    Parameters
    ----------
    run
        A finished run.
    instances
        Rows with the columns that the run has learned from; others are not read.
    out
        A file that ends in .csv or .parquet; it is complete or not there.
    id
        The column of ids; None: as in fit, or found by its name.
    keep
        Further columns to copy.
    raw_text
        Write text to CSV as it is, also where a spreadsheet would run it as a formula.
    device
        Where to predict.
    progress
        Is told how many rows are done.

    Returns
    -------
    tuple
        How many rows there were, and notes of what training rows did not have.
    """
    content, clf = load_run(run, device)
    given: dict[str, Any] = {"id": id, "keep": keep, "raw_text": raw_text, "progress": progress}
    raise_if_input(out, [instances, *run.inputs])
    predicted = predict_part(content, clf, instances, out, **given)
    shifts = shift_notes(clf, predicted.seen, instances)
    return predicted.rows, [*predicted.tally.as_problems(str(instances)), *predicted.notes, *shifts]


def predict_part(
    content: dict[str, Any],
    clf: Any,
    instances: Path,
    out: Path,
    *,
    id: str | None,
    keep: Sequence[str],
    raw_text: bool,
    progress: Callable[[int], None] = lambda rows: None,
) -> Predicted:
    """Write what :func:`predict_table` does, given what :func:`load_run` has returned, and return what to say of it."""
    preparation, of_numbers = clf.preparation_, without_preparation(clf)
    check_format(out)
    with open_table(instances) as file:
        names = file.names
        wanted = id or (content["plan"]["id"] if content["plan"]["id"] in names else None)
        own_id = find_column(names, ID, given=wanted, file=str(instances), option="--id", taken=preparation.names)
        kept = list(dict.fromkeys([*([own_id] if own_id else []), *keep]))
        check_columns(names, preparation, kept, str(instances))
        results = result_names(clf.classes_, kept, str(instances))
        seen: Moments | None = None
        tally, done, formulas = Tally(), 0, FormulaEscaper(out.suffix == ".csv" and not raw_text)
        types = {name: kind for name, kind in preparation.csv_types.items() if name not in kept}
        with writing(out) as write:
            for piece in file.stream(list(dict.fromkeys([*kept, *preparation.names])), types):
                table = Table(instances, _as_numbers(piece, preparation, kept, instances, done))
                X = preparation.encode(table, tally, done)
                probs = of_numbers.predict_proba(X)
                write(formulas.escape(with_results(piece.select(kept), probs, clf.classes_, results)))
                own = Moments.of(X)
                seen = own if seen is None else seen + own
                done += len(table)
                progress(done)
            if seen is None:
                raise fail("there are no rows, only names of columns", str(instances))
    notes = formulas.as_problems(str(out))
    if not kept:
        message = (
            "no column of ids was found, so that only the order of lines tells rows apart; name it with --id, or copy"
        )
        notes.append(Problem("note", f"{message} columns with --keep", str(instances)))
    return Predicted(done, tally, seen, notes)


def shift_notes(clf: Any, seen: Moments, instances: Path) -> list[Problem]:
    """Return warnings of columns that differ from those of fit."""
    shifts = find_shift(clf.feature_statistics_, seen, clf.preparation_.encoded_names)
    return [Problem("warning", shift.message, str(instances)) for shift in shifts]


def result_names(classes: Any, kept: Sequence[str], file: str) -> list[str]:
    """Return what the columns of results are called: predicted, and p_ with the name of each class."""
    names = ["predicted", *(f"p_{name}" for name in classes.tolist())]
    refuse_clash(names, kept, file)
    return names


def refuse_clash(names: Sequence[str], kept: Sequence[str], file: str) -> None:
    """Refuse columns that are copied and have the name of a result."""
    if clash := [name for name in kept if name in names]:
        raise fail("the column has the name of one of the results; rename it", file, None, clash[0])


def with_results(kept: pa.Table, probs: np.ndarray, classes: Any, names: list[str]) -> pa.Table:
    """Return columns that are kept, the most likely class, and the probability of each."""
    best = pa.array(np.nan_to_num(probs).argmax(1), mask=np.isnan(probs).any(1))
    predicted = pa.DictionaryArray.from_arrays(best, pa.array(classes.tolist())).cast(pa.string())
    columns = [*kept.columns, predicted, *(pa.array(column) for column in probs.T)]
    return pa.table(columns, names=[*kept.column_names, *names])


def read_rows(clf: Any, file: TableFile, keys: list[str]) -> Rows:
    """Read a table piece by piece, keep some of its columns, and predict its rows."""
    preparation, of_numbers = clf.preparation_, without_preparation(clf)
    # One block that grows: many small arrays, between the large ones that come and go, would leave holes in the memory.
    tally, kept, buffer, done = Tally(), [], bytearray(), 0
    types = {name: kind for name, kind in preparation.csv_types.items() if name not in keys}
    for piece in file.stream(list(dict.fromkeys([*keys, *preparation.names])), types):
        table = Table(file.path, _as_numbers(piece, preparation, keys, file.path, done))
        log_probs = of_numbers.predict_log_proba(preparation.encode(table, tally, done))
        buffer += log_probs.tobytes()
        kept.append(piece.select(keys))
        done += len(table)
    if not done:
        raise fail("there are no rows, only names of columns", str(file.path))
    whole = np.frombuffer(buffer, log_probs.dtype).reshape(done, -1)
    return Rows(Table(file.path, pa.concat_tables(kept)), whole, tally)


def check_format(out: Path) -> None:
    """Refuse a file whose name does not say in which format to write."""
    if out.suffix not in (".csv", ".parquet"):
        raise fail(f"the name of the file must end in .csv or .parquet, got {out.name!r}", str(out))


@contextmanager
def writing(out: Path) -> Iterator[Write]:
    """Give a function that adds rows to a file, which appears when all are written, or not at all."""
    remove_drafts(out)
    writer: Any = None
    with atomic_file(out) as draft:
        try:

            def write(table: pa.Table) -> None:
                nonlocal writer
                if writer is None:
                    writer = open_writer(draft, table.schema, out.suffix)
                writer.write_table(table)

            yield write
        finally:
            if writer is not None:
                writer.close()


def open_writer(path: Path, schema: pa.Schema, suffix: str) -> Any:
    """Open a file for tables of a schema, in the format that a suffix names."""
    return (pq.ParquetWriter if suffix == ".parquet" else pacsv.CSVWriter)(path, schema)


def load_run(run: Run, device: str) -> tuple[dict[str, Any], Any]:
    """Return what a finished run notes of itself, and its classifier, which belong together."""
    from unbag.persistence.saved_models import load  # noqa: PLC0415 (scikit-learn is slow to import)

    content = run.read_finished()
    # No class of the caller's own is made from what a folder says; for predictions, none is needed.
    built_in = all(is_built_in(one["aggregate"]) for one in content["inputs"]["observations"])
    classifier = load(run.model, device=device, aggregate=None if built_in else "label_proportions")
    run.check_files(content)
    return content, classifier


def without_preparation(clf: Any) -> Any:
    """Return a classifier of columns that are numbers already; files have their own places to name in errors."""
    copied = copy.copy(clf)
    copied.preparation_, copied.n_features_in_ = None, clf.input_shape_[0]
    vars(copied).pop("feature_names_in_", None)
    return copied


def check_columns(names: Sequence[str], preparation: Preparation, kept: Sequence[str], file: str) -> None:
    """Refuse a file without columns that are to be kept, or that the model was fitted on."""
    there = {*names}  # there may be many
    for name in kept:
        if name not in there:
            raise fail(f"there is no column {name!r} to keep; the columns are {list_some(names)}", file)
    if missing := [name for name in preparation.names if name not in there]:
        raise fail(
            f"{len(missing)} of the columns that the model was fitted on are not there: {list_some(missing)}", file
        )


def _as_numbers(piece: pa.Table, preparation: Preparation, kept: Sequence[str], file: Path, first_row: int) -> pa.Table:
    """Return a piece with numbers in columns that were read as text because they are copied as they are, too."""
    kinds = preparation.csv_types
    for place, name in enumerate(piece.column_names):
        column = piece.column(name).combine_chunks()
        if name in kept and name in kinds and pa.types.is_string(column.type) and kinds[name] != pa.string():
            raise_if_text(column, kinds[name], file, name, first_row)
            piece = piece.set_column(place, name, convert_text(column, kinds[name]))
    return piece


def plan_for(
    content: dict[str, Any], clf: Any, instances: Path, groups: Path, aggregate: str | None
) -> tuple[Plan, int]:
    """Return the plan of the run for other files: the same columns and classes, and one of its kinds of observation.

    The number says which of its files had that kind.
    """
    plan = Plan.from_dict(content["plan"])
    kinds = [one["aggregate"] for one in content["inputs"]["observations"]]
    kind = aggregate or kinds[0]
    if kind not in kinds:
        raise fail(f"the run has learned from {', '.join(kinds)}, not from {kind}")
    if aggregate is None and not is_built_in(kind):
        raise fail(f"the run has learned from {kind}, which is code of your own; name it with --aggregate to run it")
    place = kinds.index(kind)
    source = replace(plan.sources[place], file=groups, aggregate=kind, group_weight=None, sampling=None)
    if clf.error_rates_[place] is not None:
        source = replace(source, error_rate=clf.error_rates_[place])
    if published := read_published(groups):  # otherwise it was published as the file of the run
        source = replace(source, **{**dict.fromkeys((*KEYS, "epsilon", "sensitivity")), "noise_scale": (), **published})
    names = tuple(map(str, clf.classes_.tolist()))
    others: dict[str, Any] = {"classes": names, "n_classes": None}
    others |= {"labelled": None, "class_shares": None, "subject": None}
    return replace(plan, instances=instances, sources=(source,), **others), place
