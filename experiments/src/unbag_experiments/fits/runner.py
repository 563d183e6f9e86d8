"""Run the cells of a table of fits that a folder of results lacks, within a budget of time."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cache, partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from unbag._utils.environment import date, versions
from unbag_experiments import logger
from unbag_experiments.environment import commit, hardware
from unbag_experiments.fits import sets
from unbag_experiments.fits.cells import run
from unbag_experiments.fits.methods import why_not
from unbag_experiments.fits.plan import Cell
from unbag_experiments.results import append, read_file
from unbag_experiments.runner import TO_BEGIN, end_of
from unbag_experiments.work_claims import claim

KEYS = ("accuracy", "auc", "seconds", "hardware", "versions", "commit", "date")
"""What every line has, among other things."""


@dataclass(frozen=True)
class Kind:
    """A table of fits: its name, what a cell is, and how one is run on its set."""

    name: str
    cell: Any
    """A dataclass with ``set``, ``method``, ``key`` and ``of``, as that of the default fits."""
    run: Callable[[Any, sets.Data], dict[str, Any]]


FITS = Kind("fits", Cell, run)


def read(folder: Path, kind: Kind = FITS) -> dict[Any, dict[str, Any]]:
    """Read the finished cells; of two lines of the same cell, the later."""
    keys = (*(field.name for field in fields(kind.cell)), *KEYS)
    return {kind.cell.of(line): line for line in read_file(folder / f"{kind.name}.jsonl", keys)}


def fill(
    cells: Iterable[Any],
    folder: Path,
    *,
    kind: Kind = FITS,
    budget: str | None = None,
    start: float | None = None,
    load: Callable[[str], sets.Data] = sets.load,
    tell: Callable[[str], None] = print,
) -> Counter[str]:
    """Run the cells that a folder of results lacks, save each as soon as it is finished, and count how they ended.

    Several processes may share the folder: what one has claimed the others leave to it.
    """
    until = None if budget is None else end_of(budget, time.monotonic() if start is None else start)
    there, facts, ended = read(folder, kind), _circumstances(), Counter[str]()
    left = [cell for cell in cells if cell not in there]
    tell(f"{len(left)} cells are missing in {folder / kind.name}.jsonl")

    @cache
    def attempt(name: str) -> sets.Data | str:
        try:
            return load(name)
        except (OSError, ValueError) as error:
            return f"{name} cannot be loaded: {error}"

    for cell in left:
        if until is not None and until - time.monotonic() < max(TO_BEGIN, _longest_like(cell, there.values())):
            ended["left for lack of time"] += 1
            continue
        data = why_not(cell.method) or attempt(cell.set)
        if isinstance(data, str):
            if data not in ended:
                tell(data)
            ended[data] += 1
            continue
        with claim(folder, cell.key) as claimed:
            there = read(folder, kind)
            if not claimed or cell in there:  # another process may have finished it meanwhile
                ended["done elsewhere"] += 1
                continue
            try:
                measured = kind.run(cell, data)
            except Exception as error:  # one cell that fails must not cost all others the night
                logger.exception("%s failed", cell)
                tell(f"failed: {cell}: {type(error).__name__}: {error}")
                ended["failed"] += 1
                continue
            append(folder, {"table": kind.name, **asdict(cell), **measured, **facts, "date": date()})
        ended["done"] += 1
        tell(f"{ended['done']} of {len(left)}: {cell}: {_in_words(measured)}")
    tell(", ".join(f"{n} {what}" for what, n in ended.items()) or "nothing is missing")
    return ended


def fill_in_processes(cells: Sequence[Any], folder: Path, *, jobs: int, **options: Any) -> Counter[str]:
    """Run cells as :func:`fill` does, in several processes that share the folder, each on one thread."""
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        return sum(pool.map(partial(_fill_on_one_thread, cells, folder, options), range(jobs)), Counter[str]())


def _fill_on_one_thread(cells: Sequence[Any], folder: Path, options: dict[str, Any], number: int) -> Counter[str]:
    torch.set_num_threads(1)
    return fill(cells, folder, tell=partial(print, f"{number:2d}:", flush=True), **options)


def _circumstances() -> dict[str, Any]:
    packages = versions()
    for module in ("sklearn", "lightgbm"):
        with suppress(ImportError, OSError):  # OSError: where what it is linked with is not there
            packages[module] = import_module(module).__version__
    return {"hardware": hardware(torch.device("cpu")), "versions": packages, "commit": commit()}


def _longest_like(cell: Any, lines: Iterable[dict[str, Any]]) -> float:
    """Return the seconds of the longest fit of the same set by the same method; 0 where there was none."""
    same = (line["seconds"] for line in lines if (line["set"], line["method"]) == (cell.set, cell.method))
    return max(same, default=0.0)


def _in_words(measured: dict[str, Any]) -> str:
    estimate = measured.get("estimated_accuracy")
    estimated = "" if estimate is None else f", estimated {100 * estimate:.1f} %"
    return f"accuracy {100 * measured['accuracy']:.1f} %{estimated}, {measured['seconds']:.0f} s"
