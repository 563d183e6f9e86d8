"""Rows of a table that stay on disk: prepared once, in the order of their groups, in a folder that later runs reuse.

The features of a Parquet file or folder are turned into numbers piece by piece and written to one file, ``rows.npy``,
the rows of each group side by side. Where a row goes is known from its group, so that nothing is sorted: rows are put
into their places, in as many passes over the input as the file has parts of half the memory. A folder is reused by
whoever asks for the same features of the same files, which are told by name, size, time of change and columns.
"""

from __future__ import annotations

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

from unbag._utils.files import atomic_file, locked, raise_if_input, read_regular, remove_drafts, write_atomic
from unbag._utils.problems import Problem, fail
from unbag.data.columns import Table, as_categories
from unbag.data.features import MOST_CATEGORIES, Preparation, fit_preparation
from unbag.tables.files import ParquetFiles, open_table, state_of_parts
from unbag.tables.load import Gathered, memory_size, with_categories
from unbag.training import MappedRows
from unbag.training.excerpts import EXCERPT_NUMBERS, some_groups

FORMAT = 1
EXAMINED_ROWS = 100_000
"""Rows that are looked at for columns that tell the answer, the row or the group, which takes a while."""
RELEASED = 1 << 26
"""Bytes after which pages that were written are given back to the system."""


@dataclass(frozen=True, eq=False)
class ColumnTable(Table):
    """A table whose columns are read from the file when they are asked for, one at a time."""

    categorical: tuple[str, ...]

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
            return next(iter(file.stream([name], {}))).column(name).slice(0, 1).combine_chunks()


@dataclass(frozen=True, eq=False)
class PreparedRows:
    """Where rows are, how columns were turned into numbers, the rows as such, and the same groups of them."""

    folder: Path
    preparation: Preparation
    rows: MappedRows
    gathered: Gathered
    position: np.ndarray | None
    """Where each row of the table is; None: at the same place."""


def prepare_on_disk(gathered: Gathered, folder: Path) -> PreparedRows:
    """Write the rows of a plan to a folder, or find them there, and number the rows of all groups by their places."""
    order = _order_by_group(gathered)
    position = None if order is None else np.argsort(order, kind="stable")
    names = list(gathered.columns.features)
    members = gathered.member_rows
    rows = None if len(members) == len(gathered.instances) else members
    key: dict[str, Any] = {"format": FORMAT, "parts": gathered.on_disk, "types": _types(gathered), "features": names}
    key |= {"categorical": sorted(gathered.plan.categorical), "order": _digest(order), "learned from": _digest(rows)}
    place = folder / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    raise_if_input(place, [gathered.plan.instances])
    place.mkdir(parents=True, exist_ok=True)
    with locked(place):
        if not (place / "manifest.json").exists():
            table = ColumnTable(gathered.plan.instances, gathered.instances.data, gathered.plan.categorical)
            preparation = fit_preparation(table, names, rows)
            for one in preparation.features:
                if len(one.values) > MOST_CATEGORIES:
                    message = f"the column holds {len(one.values):,} different texts; leave it out with --exclude"
                    raise fail(f"{message} {one.name}", gathered.instances.file, None, one.name)
            write_atomic(place / "preparation.json", json.dumps(preparation.as_plain(), indent=1).encode())
            _write_rows(gathered, preparation, position, place / "rows.npy")
            if changed := {*state_of_parts(gathered.plan.instances)} ^ {*(gathered.on_disk or [])}:
                message = "the part has changed, come or gone while rows were read; begin again once all are complete"
                raise fail(message, min(changed)[0])
            written = {**key, "size": (place / "rows.npy").stat().st_size}
            write_atomic(place / "manifest.json", json.dumps(written, indent=1).encode())
        size = json.loads(read_regular(place / "manifest.json"))["size"]
        if not (place / "rows.npy").exists() or (place / "rows.npy").stat().st_size != size:
            raise fail(f"prepared rows are cut short or gone; remove the folder {place}", str(place / "rows.npy"))
        preparation = Preparation.from_plain(json.loads(read_regular(place / "preparation.json")))
        prepared = preparation, MappedRows((place / "rows.npy").absolute())
    return PreparedRows(place, *prepared, gathered if position is None else _renumber(gathered, position), position)


def excerpt_of(gathered: Gathered) -> tuple[Gathered, Problem]:
    """Return the same with some groups and the rows of these alone, with all columns in memory, and a note of it."""
    names = list(gathered.columns.features)
    with open_table(gathered.plan.instances) as file:
        (first,) = next(iter(file.stream(names, {}))).slice(0, 1).to_pylist()
    width = sum(len(value) if isinstance(value, list) else 1 for value in first.values())
    observed = []
    for one in gathered.observed:
        if one.checked is None:
            observed.append(one)
            continue
        which = some_groups(one.checked.groups, min(EXAMINED_ROWS, EXCERPT_NUMBERS // width) // len(gathered.observed))
        chosen = which.numpy()
        turned = None if one.turned is None else one.turned[chosen]
        own = {"source_rows": one.source_rows[chosen], "turned": turned}
        observed.append(replace(one, checked=one.checked.take(which), **own))
    some = replace(gathered, observed=observed, labels=None, labelled_rows=None, learned_labels=None)
    rows = some.member_rows if any(one.groups is not None for one in observed) else np.arange(0)
    pieces, done = [], 0
    keys = gathered.instances.data.take(pa.array(rows))
    with open_table(gathered.plan.instances) as file:
        for piece in file.stream(names, {}):
            inside = rows[np.searchsorted(rows, done) : np.searchsorted(rows, done + len(piece))] - done
            pieces.append(piece.take(pa.array(inside)))
            done += len(piece)
    table = pa.concat_tables(pieces)
    for name in keys.column_names:
        table = table if name in table.column_names else table.append_column(name, keys.column(name))
    position = np.full(len(gathered.instances), -1)
    position[rows] = np.arange(len(rows))
    message = f"columns were examined in {len(rows):,} of {len(gathered.instances):,} rows, of groups chosen at random"
    examined = with_categories(Table(gathered.plan.instances, table), gathered.plan.categorical)
    looked = replace(_renumber(some, position, len(rows)), instances=examined)
    return looked, Problem("note", message, gathered.instances.file)


def _order_by_group(gathered: Gathered) -> np.ndarray | None:
    """Return the rows in an order in which those of each group of the first file stand together; None: they do."""
    groups = gathered.observed[0].groups
    if groups is None or gathered.observed[0].columns.members:  # a row may be in several pairs
        return None
    members = groups.members.numpy()
    apart = np.diff(members) != 1
    apart[groups.offsets.numpy()[1:-1] - 1] = False
    if not apart.any():
        return None
    others = np.ones(len(gathered.instances), dtype=bool)
    others[members] = False
    return np.concatenate([members, np.flatnonzero(others)])


def _renumber(gathered: Gathered, position: np.ndarray, n_rows: int | None = None) -> Gathered:
    observed = []
    for one in gathered.observed:
        checked = one.checked
        if checked is not None:
            members = torch.from_numpy(position)[checked.groups.members]
            n = n_rows or checked.groups.n_rows
            checked = checked.with_groups(replace(checked.groups, members=members, n_rows=n))
        observed.append(replace(one, checked=checked))
    labelled = None if gathered.labelled_rows is None else position[gathered.labelled_rows]
    learned = (
        None if gathered.learned_labels is None else (gathered.learned_labels[0], position[gathered.learned_labels[1]])
    )
    subjects = None
    if gathered.subjects is not None:
        kept = position >= 0
        subjects = np.empty(int(kept.sum()), dtype=np.int64)
        subjects[position[kept]] = gathered.subjects[kept]
    return replace(gathered, observed=observed, labelled_rows=labelled, learned_labels=learned, subjects=subjects)


def _write_rows(gathered: Gathered, preparation: Preparation, position: np.ndarray | None, path: Path) -> None:
    shape, kind = (len(gathered.instances), len(preparation.encoded_names)), preparation.dtype
    row, needed = shape[1] * kind.itemsize, shape[0] * shape[1] * kind.itemsize
    at_once = shape[0] if position is None else max(1, int(min(shape[0], memory_size() / 2 / row)))
    remove_drafts(path)
    with atomic_file(path) as draft:
        if (free := shutil.disk_usage(path.parent).free) < needed + (1 << 20):
            raise _no_room(path.parent, needed, free)
        rows = np.lib.format.open_memmap(draft, "w+", kind, shape)
        with open(draft, "r+b") as file:
            try:  # now, because a page for which there is no room ends the process
                getattr(os, "posix_fallocate", lambda *_: None)(file.fileno(), 0, os.fstat(file.fileno()).st_size)
            except OSError as error:
                raise _no_room(path.parent, needed, free) from error
        for first in range(0, shape[0], at_once):
            done, written = 0, 0
            with open_table(gathered.plan.instances) as file:
                for piece in file.stream(preparation.names, preparation.csv_types):
                    table = Table(gathered.plan.instances, piece)
                    if done + len(table) > shape[0]:
                        return  # parts have changed, which the caller tells
                    X, own = preparation.encode(table, first_row=done), slice(done, done + len(table))
                    if position is None:
                        rows[own] = X
                    else:
                        inside = (position[own] >= first) & (position[own] < first + at_once)
                        rows[position[own][inside]] = X[inside]
                    done, written = done + len(table), written + X.nbytes
                    if written > RELEASED and hasattr(mmap, "MADV_DONTNEED"):
                        rows._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]  # kept, but not held here
                        written = 0


def _no_room(folder: Path, needed: int, free: int) -> Exception:
    return fail(
        f"the disk is full: prepared rows take {needed / 1e9:,.1f} GB, but {free / 1e9:,.1f} GB are free; name another "
        "folder with --disk",
        str(folder),
    )


def _types(gathered: Gathered) -> list[str]:
    with open_table(gathered.plan.instances) as file:
        assert isinstance(file, ParquetFiles)
        return [f"{name} {kind}" for name, kind in file.types.items()]


def _digest(numbers: np.ndarray | None) -> str | None:
    return None if numbers is None else hashlib.blake2b(numbers.astype(np.int64).data).hexdigest()
