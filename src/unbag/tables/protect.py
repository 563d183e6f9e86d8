"""Protect exact counts: with noise of OpenDP, by rounding, or by suppression of small counts."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unbag._utils.problems import Problem, fail, in_rows, list_some, raise_errors
from unbag.data.columns import Table
from unbag.tables.cells import NUMBER, read_cells
from unbag.tables.files import check_output, open_table, write_draft
from unbag.tables.options import Protection
from unbag.tables.published_files import MAX_SCALE, MIN_SCALE, publish
from unbag.tables.roles import GROUP, SIZE, find_column


def protect_counts(counts: Path, out: Path, how: Protection, *, force: bool = False) -> tuple[int, list[Problem]]:
    """Write a table of exact counts with noise, rounded or suppressed, and beside it what ``fit`` needs to use it.

    ``counts`` has one row per group: its id, and a whole number for each class. Sizes are left out unless they are
    kept. ``force`` replaces a table that was protected before.
    """
    _check_protection(how)
    check_output(out, [counts])
    if out.exists() and not force:
        message = "this file exists already; counts that are published a second time with new noise reveal more than "
        raise fail(f"{message}epsilon allows; if the first table was never published, add --force", str(out))
    with open_table(counts) as file:
        table = file.read(as_text=file.names)
    classes = how.classes or ()
    size = find_column(table.names, SIZE, written=None, file=table.file, option="--classes", taken=classes)
    group = _find_group(table, how.group, [name for name in table.names if name not in (size, *classes)])
    names = classes or tuple(name for name in table.names if name not in (group, size))
    columns, options, promise = _protect(_read_exact(table, names), how)
    others = [name for name in table.names if name not in (group, size, *names)]
    notes = [Problem("note", "this column is left out", table.file, None, name) for name in others]
    kept = {group: table.column(group)}
    if size is not None and how.keep_sizes:
        promise += " Sizes are as they were."
        kept[size] = table.column(size)
    elif size is not None:
        message = "sizes are left out; to write them as they are, add --keep-sizes"
        notes.append(Problem("note", message, table.file, None, size))
    protected = pa.table({**kept, **dict(zip(names, columns, strict=True))})
    path = publish(out, lambda draft: write_draft(draft, [protected], out.suffix), options, promise)
    advice = f"{path.name} describes it to check and fit; copy or move both files together"
    return len(table), [*notes, Problem("note", f"{promise} {advice}", str(out))]


def _check_protection(how: Protection) -> None:
    """Refuse options that contradict each other or are out of range."""
    ways = {"--epsilon": how.epsilon, "--round-to": how.round_to, "--suppress-below": how.suppress_below}
    passed = [name for name, value in ways.items() if value is not None]
    if not passed:
        raise fail(f"choose how to protect the counts, with {', '.join(ways)}")
    for name, value in (*ways.items(), ("--sensitivity", how.sensitivity)):
        if value is not None and not (isfinite(value) and value > 0):
            raise fail(f"{name} must be a positive number, got {value:g}")
    if how.epsilon is not None and len(passed) > 1:
        raise fail(f"--epsilon and {passed[1]} cannot be combined: noise protects by itself; choose one of them")
    if how.epsilon is not None and not how.epsilon * MIN_SCALE <= how.sensitivity <= how.epsilon * MAX_SCALE:
        least, most = how.sensitivity / MAX_SCALE, how.sensitivity / MIN_SCALE
        raise fail(f"--epsilon must be {least:g} to {most:g} with this --sensitivity, got {how.epsilon:g}")


def _find_group(table: Table, written: str | None, free: Sequence[str]) -> str:
    """Return the column of ids: by its name, or the only one of those that are free, or of these without numbers.

    A column of numbers is read as counts unless an option names it, because ids are not protected.
    """
    column = find_column(table.names, GROUP, written=written, file=table.file, option="--group")
    if column is not None:
        return column
    words = [name for name in free if not (read_cells(table.column(name)).kind == NUMBER).any()]
    for only in (free, words):
        if len(only) == 1:
            return only[0]
    message = f"no column can be identified as that of group ids; the columns are {list_some(table.names)}"
    raise fail(f"{message}; name it with --group, or the columns of counts with --classes", table.file)


def _read_exact(table: Table, names: tuple[str, ...]) -> np.ndarray:
    """Return exact counts, (groups, classes), or name the cells that hold none."""
    counts: list[np.ndarray] = []
    problems: list[Problem] = []
    for name in names:
        if name not in table.names:
            raise fail(f"there is no column {name!r}, which --classes names", table.file)
        cells, texts = read_cells(table.column(name)), table.column(name).to_pylist()
        wrong = (cells.kind != NUMBER) | (cells.low < 0) | (cells.low != np.rint(cells.low)) | cells.percent
        messages = [f"exact counts must be whole numbers of 0 or more, got {text!r}" for text in texts]
        problems += in_rows(wrong, messages.__getitem__, table.file, name)
        counts.append(np.where(wrong, 0, cells.low))
    raise_errors(problems)
    return np.stack(counts, 1).astype(np.int64)


def _protect(counts: np.ndarray, how: Protection) -> tuple[list[pa.Array], dict[str, Any], str]:
    """Return protected columns, the options by which ``fit`` reads them, and a sentence on the protection."""
    if how.epsilon is not None:
        values, scale = add_noise(counts, how.epsilon, how.sensitivity)
        person = f"a person who changes counts by {how.sensitivity} in all"
        promise = f"Differential privacy with epsilon {how.epsilon:g}, for {person}."
        return [pa.array(column) for column in values.T], {"noise": f"geometric:{scale!r}"}, promise
    options, values, done = {}, counts, []
    if how.round_to is not None:
        options["rounded_to"] = how.round_to
        values = (counts + how.round_to // 2) // how.round_to * how.round_to
        done.append(f"rounded to {how.round_to}")
    if how.suppress_below is not None:
        done.append(f"written as <{how.suppress_below} where they are below it")
    few = counts < (how.suppress_below or 0)
    texts = np.where(few, f"<{how.suppress_below}", values.astype(str)) if few.any() else values
    promise = f"Counts are {' and '.join(done)}; this does not guarantee privacy."
    return [pa.array(column.tolist()) for column in texts.T], options, promise


def add_noise(counts: np.ndarray, epsilon: float, sensitivity: int) -> tuple[np.ndarray, float]:
    """Add noise of OpenDP to counts, which is drawn again each time, and return its scale."""
    try:
        import opendp.prelude as dp  # noqa: PLC0415 (an extra)
    except ImportError:
        message = "noise with a guarantee of privacy comes from OpenDP, which is not installed"
        raise fail(f'{message}; install it with: pip install "unbag[private]"') from None
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    scale = dp.binary_search_param(
        lambda scale: dp.m.make_laplace(*space, scale=scale), d_in=sensitivity, d_out=float(epsilon), T=float
    )
    noisy = dp.m.make_laplace(*space, scale=scale)(counts.reshape(-1).tolist())
    return np.array(noisy, dtype=np.int64).reshape(counts.shape), float(scale)
