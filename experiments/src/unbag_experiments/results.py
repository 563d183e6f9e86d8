"""Finished trials on disk: one line of JSON each, in one file for each table."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock

from unbag_experiments import golden, logger
from unbag_experiments.plan import TABLES, Cell
from unbag_experiments.work_claims import unfinished_folder

KEYS = ("table", "problem", "dataset", "method", "protocol", "n_groups", "seed", "by", "plan", "golden")
"""What every line has, among other things."""


def append(folder: Path, line: Mapping[str, Any]) -> None:
    """Add a finished trial to the file of its table, whole or not at all, also while others add theirs."""
    content = json.dumps(dict(line), allow_nan=False).encode() + b"\n"
    path = folder / f"{line['table']}.jsonl"
    with FileLock(unfinished_folder(folder) / f"{path.name}.lock"), open(path, "ab+", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            if file.read(1) != b"\n":
                content = b"\n" + content  # what a killed writer left must not swallow this line
        try:
            written = file.write(content)
            if written < len(content):
                raise OSError(f"the disk took {written} of {len(content)} bytes of a line for {path.name}")
            os.fsync(file.fileno())
        except BaseException:
            file.truncate(end)
            raise


def read(folder: Path) -> list[dict[str, Any]]:
    """Read all finished trials of the plan's tables."""
    return [line for table in sorted(TABLES) for line in read_file(folder / f"{table}.jsonl", KEYS)]


def read_file(path: Path, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Read a file of finished trials that all have some keys; none where there is no file.

    A line that is no trial, as a killed writer leaves it, is named in the log and left out.
    """
    trials = []
    content = path.read_text("utf-8", errors="replace") if path.exists() else ""
    for number, text in enumerate(content.split("\n"), 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            if not isinstance(line, dict):
                raise TypeError(f"it holds {text.strip()[:20]}")
            missing = [key for key in keys if key not in line]
        except (ValueError, TypeError) as error:
            logger.error("%s, line %d, is not a finished trial and is left out: %s", path, number, error)
            continue
        if missing:
            raise ValueError(f"{path}, line {number}, has no {', '.join(missing)}; mend the line or remove it")
        trials.append(line)
    return trials


def belongs(line: Mapping[str, Any], cell: Cell) -> bool:
    """Whether a line is a trial of a cell under the present plan, by code that gives the plan's golden numbers."""
    return (
        line["plan"] == cell.digest
        and all(line[name] == getattr(cell, name) for name in ("table", "problem", "dataset", "method", "protocol"))
        and line["golden"] == golden.digest(cell)
    )


def finished(lines: Iterable[Mapping[str, Any]], cell: Cell) -> dict[int, Mapping[str, Any]]:
    """Return the finished trials of a cell by their seeds; of two with the same seed, the later."""
    digest = cell.digest  # most lines are of other cells, which this tells fastest
    return {line["seed"]: line for line in lines if line["plan"] == digest and belongs(line, cell)}


def missing_seeds(lines: Iterable[Mapping[str, Any]], cell: Cell, wanted: Iterable[int]) -> list[int]:
    """Return those of some seeds that a cell still lacks."""
    done = finished(lines, cell)
    return [seed for seed in wanted if seed not in done]
