"""Encoded rows of a table on disk, in the order of their groups, in a folder that later runs reuse.

The features of a Parquet file or folder are encoded piece by piece and written to one file, ``rows.npy``, with the rows
of each group side by side. The position of a row is known from its group, so that nothing is sorted: rows are put into
their places, in as many passes over the input as the file has parts of half the memory. A folder is identified by the
features, and by the names, sizes, times of change and columns of the files.
"""

import hashlib
import json
import mmap
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pydantic import TypeAdapter
from pydantic_core import to_json

from unbag._utils.files import atomic_file, locked, raise_if_input, read_regular, remove_drafts, write_atomic
from unbag._utils.problems import Problem, fail
from unbag.data.columns import Table, as_categories
from unbag.data.features import MAX_CATEGORIES, Preparation, fit_preparation
from unbag.data.frames import EncodedRows
from unbag.tables.files import ParquetFiles, open_table, state_of_parts
from unbag.tables.load import LoadedTables, memory_size, with_categories
from unbag.training import MappedRows
from unbag.training.group_subsets import EXCERPT_NUMBERS, some_groups

FORMAT = 2
EXAMINED_ROWS = 100_000  # number of rows of groups in which columns are checked for leaks
RELEASED = 1 << 26  # bytes after which pages that were written are given back to the system


@dataclass(frozen=True, eq=False)
class ColumnTable(Table):
    """A table whose columns are read from the file when they are asked for, one at a time."""

    def column(self, name: str) -> pa.Array:
        """Return a column in one piece."""
        if name in self.data.column_names:
            return super().column(name)
        with open_table(self.path) as file:
            column = file.read(columns=[name]).column(name)
            return as_categories(column) if name in self.categorical else column

    def first(self, name: str) -> pa.Array:
        """Return a column of the first row alone."""
        with open_table(self.path) as file:
            return next(iter(file.stream([name]))).column(name).slice(0, 1).combine_chunks()


def encode_in_memory(loaded: LoadedTables) -> EncodedRows:
    """Encode the rows of a plan by what the rows in groups show."""
    preparation = fit_preparation(loaded.instances, loaded.columns.features, loaded.member_rows)
    return EncodedRows(preparation.encode_rows(loaded.instances), preparation)


def encode_on_disk(loaded: LoadedTables, folder: Path) -> tuple[EncodedRows, LoadedTables, np.ndarray]:
    """Write the encoded rows of a plan to a folder, or find them there.

    Returns the rows on disk, the data with row numbers by position on disk, and the position of each row of the table.
    """
    order = _order_by_group(loaded)
    position = np.argsort(order, kind="stable")
    names, members = list(loaded.columns.features), loaded.member_rows
    plan = loaded.plan
    with open_table(plan.instances) as file:
        assert isinstance(file, ParquetFiles)
        types = [f"{column.name} {column.type}" for column in file.schema]
    key: dict[str, Any] = {"format": FORMAT, "parts": loaded.on_disk, "types": types, "features": names}
    digests = [hashlib.blake2b(numbers.astype(np.int64).data).hexdigest() for numbers in (order, members)]
    key |= {"categorical": sorted(plan.categorical), "order": digests[0], "learned from": digests[1]}
    place = folder / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    path = place / "rows.npy"
    raise_if_input(place, [plan.instances])
    place.mkdir(parents=True, exist_ok=True)
    with locked(place):
        if not (place / "manifest.json").exists():
            _raise_if_changed(loaded)
            table = ColumnTable(plan.instances, loaded.instances.data, plan.categorical)
            preparation = fit_preparation(table, names, members)
            for feature in preparation.features:
                if len(feature.values) > MAX_CATEGORIES:
                    message = f"the column holds {len(feature.values):,} different texts; leave it out with --exclude"
                    raise fail(f"{message} {feature.name}", loaded.instances.file, None, feature.name)
            write_atomic(place / "preparation.json", to_json(preparation))
            _write_rows(loaded, preparation, position, path)
            _raise_if_changed(loaded)
            write_atomic(place / "manifest.json", json.dumps({**key, "size": path.stat().st_size}, indent=1).encode())
        size = json.loads(read_regular(place / "manifest.json"))["size"]
        if not path.exists() or path.stat().st_size != size:
            raise fail(f"encoded rows are truncated or missing; remove the folder {place}", str(path))
        preparation = TypeAdapter(Preparation).validate_json(read_regular(place / "preparation.json"))
        rows = EncodedRows(MappedRows(path.absolute()), preparation)
    return rows, _renumber(loaded, position), position


def sample_groups(loaded: LoadedTables) -> tuple[LoadedTables, Problem]:
    """Return the data of some groups and their rows only, with all columns in memory, and a note."""
    names, instances = list(loaded.columns.features), loaded.plan.instances
    with open_table(instances) as file:
        (first,) = next(iter(file.stream(names))).slice(0, 1).to_pylist()
    width = sum(len(value) if isinstance(value, list) else 1 for value in first.values())
    max_rows = min(EXAMINED_ROWS, EXCERPT_NUMBERS // width) // len(loaded.observed)
    observed = []
    for table in loaded.observed:
        if table.checked is not None:
            chosen = some_groups(table.checked.groups, max_rows)
            turned = None if table.turned is None else table.turned[chosen.numpy()]
            rows_of_file = table.source_rows[chosen.numpy()]
            table = replace(table, checked=table.checked.take(chosen), source_rows=rows_of_file, turned=turned)  # noqa: PLW2901
        observed.append(table)
    some = replace(loaded, observed=observed, labels=None, learned_labels=None)
    rows = some.member_rows if any(table.groups is not None for table in observed) else np.arange(0)
    pieces, done = [], 0
    keys = loaded.instances.data.take(pa.array(rows))
    with open_table(instances) as file:
        for piece in file.stream(names):
            inside = rows[np.searchsorted(rows, done) : np.searchsorted(rows, done + len(piece))] - done
            pieces.append(piece.take(pa.array(inside)))
            done += len(piece)
    sample = pa.concat_tables(pieces)
    for name in keys.column_names:
        sample = sample if name in sample.column_names else sample.append_column(name, keys.column(name))
    position = np.full(len(loaded.instances), -1)
    position[rows] = np.arange(len(rows))
    message = f"columns were examined in {len(rows):,} of {len(loaded.instances):,} rows, of groups chosen at random"
    examined = with_categories(Table(instances, sample), loaded.plan.categorical)
    note = Problem("note", message, loaded.instances.file)
    return replace(_renumber(some, position, len(rows)), instances=examined), note


def _order_by_group(loaded: LoadedTables) -> np.ndarray:
    """Return the rows in an order in which those of each group of the first file are adjacent."""
    groups = loaded.observed[0].groups
    unchanged = np.arange(len(loaded.instances))
    if groups is None or loaded.observed[0].columns.members:  # a row may be in several pairs
        return unchanged
    members = groups.members.numpy()
    apart = np.diff(members) != 1
    apart[groups.offsets.numpy()[1:-1] - 1] = False
    if not apart.any():
        return unchanged
    return np.concatenate([members, np.setdiff1d(unchanged, members)])


def _renumber(loaded: LoadedTables, position: np.ndarray, n_rows: int | None = None) -> LoadedTables:
    """Return the data with other row numbers."""
    observed = []
    for table in loaded.observed:
        checked = table.checked
        if checked is not None:
            members = torch.from_numpy(position)[checked.groups.members]
            groups = replace(checked.groups, members=members, n_rows=n_rows or checked.groups.n_rows)
            checked = checked.with_groups(groups)
        observed.append(replace(table, checked=checked))
    labels, learned = (
        None if labels is None else (labels[0], position[labels[1]])
        for labels in (loaded.labels, loaded.learned_labels)
    )
    subjects = None
    if loaded.subjects is not None:
        subjects = np.empty(int((position >= 0).sum()), dtype=np.int64)
        subjects[position[position >= 0]] = loaded.subjects[position >= 0]
    return replace(loaded, observed=observed, labels=labels, learned_labels=learned, subjects=subjects)


def _write_rows(loaded: LoadedTables, preparation: Preparation, position: np.ndarray, path: Path) -> None:
    shape, kind = (len(position), len(preparation.encoded_names)), preparation.dtype
    size_of_row, needed = shape[1] * kind.itemsize, shape[0] * shape[1] * kind.itemsize
    in_order = bool((np.diff(position) == 1).all())
    at_once = shape[0] if in_order else max(1, int(min(shape[0], memory_size() / 2 / size_of_row)))
    remove_drafts(path)
    with atomic_file(path) as draft:
        if (free := shutil.disk_usage(path.parent).free) < needed + (1 << 20):
            raise _no_room(path.parent, needed, free)
        rows = np.lib.format.open_memmap(draft, "w+", kind, shape)
        with open(draft, "r+b") as file:
            try:  # now, because writing to a page for which there is no room ends the process
                getattr(os, "posix_fallocate", lambda *_: None)(file.fileno(), 0, os.fstat(file.fileno()).st_size)
            except OSError as error:
                raise _no_room(path.parent, needed, free) from error
        for first in range(0, shape[0], at_once):
            done, written = 0, 0
            with open_table(loaded.plan.instances) as file:
                for piece in file.stream(preparation.names):
                    X = preparation.encode(Table(loaded.plan.instances, piece), first_row=done)
                    if done + len(X) > shape[0]:
                        return  # parts have changed, which the caller reports
                    places = position[done : done + len(X)]
                    inside = (places >= first) & (places < first + at_once)
                    rows[places[inside]] = X[inside]
                    done, written = done + len(X), written + X.nbytes
                    if written > RELEASED and hasattr(mmap, "MADV_DONTNEED"):
                        rows._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
                        written = 0


def _raise_if_changed(loaded: LoadedTables) -> None:
    if changed := {*state_of_parts(loaded.plan.instances)} ^ {*(loaded.on_disk or [])}:
        message = "the part was changed, added or removed while rows were read; start again once all are complete"
        raise fail(message, min(changed)[0])


def _no_room(folder: Path, needed: int, free: int) -> Exception:
    message = f"the disk is full: encoded rows take {needed / 1e9:,.1f} GB, but {free / 1e9:,.1f} GB are free"
    return fail(f"{message}; name another folder with --disk", str(folder))
