"""Runner of the trials that are missing in a folder of results, within a budget of time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from unbag._utils.environment import date
from unbag.training import TimeBudgetExceeded
from unbag_experiments import datasets, golden, logger, ordered, provenance, results
from unbag_experiments.cell_text import name_cell
from unbag_experiments.plan import Cell, Work
from unbag_experiments.progress import ProgressBar
from unbag_experiments.sampling import tasks_of
from unbag_experiments.trials import Outcome, run_trials
from unbag_experiments.work_claims import checkpoint_folder, claim, clear

Load = Callable[[str], Any]

TO_BEGIN = 15.0
"""Seconds below which a piece of work is not begun: reading data and warming up would take them all."""
TO_COMPILE = 90.0
"""The same where a model is compiled first."""
TO_END = 15.0
"""Seconds of a budget, but no more than a fifth of it, that are left for the last step and for saving."""


class Unavailable(Exception):
    """A data set cannot be loaded, and there is no use in trying again."""


@dataclass(frozen=True)
class Summary:
    """How a run ended: pieces of work by what became of them."""

    done: tuple[Work, ...]
    missing: tuple[Work, ...]
    elsewhere: tuple[Work, ...]
    """Claimed by another run."""
    failed: Mapping[Work, str]
    """With the reason."""
    out_of_time: bool


def parse_budget(text: str) -> float:
    """Return the seconds of a budget such as ``9m``.

    Examples
    --------
    >>> parse_budget("9m"), parse_budget("90s"), parse_budget("1.5h")
    (540.0, 90.0, 5400.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if match is None or float(match[1]) == 0:
        raise ValueError(f"budget must be a number of seconds, minutes or hours such as 90s, 9m or 1.5h; got {text!r}")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def end_of(budget: str, start: float) -> float:
    """Return the moment at which a run that began at another has to stop, so that it ends within its budget.

    Examples
    --------
    >>> end_of("10m", start=1000.0), end_of("20s", start=1000.0)
    (1585.0, 1016.0)
    """
    seconds = parse_budget(budget)
    return start + seconds - min(TO_END, seconds / 5)


def load(name: str) -> Any:
    """Load a data set by name, of ``unbag_experiments.datasets`` or of the ordered ones."""
    return ordered.load(name) if name in ordered.NAMES else datasets.load(name)


def to_do(
    cells: Sequence[Cell], lines: Sequence[Mapping[str, Any]], trials: int | None = None, seeds: Sequence[int] = ()
) -> list[Work]:
    """Return what is missing, the most important first; before all else, what has only to be taken from elsewhere.

    Of every cell some seeds or, without any, the planned ones, or the first trials of them.
    """
    work = []
    for cell in cells:
        missing = results.missing_seeds(lines, cell, seeds or cell.seeds(trials))
        parts = [(seed,) for seed in missing] if cell.one_by_one else [tuple(missing)] if missing else []
        work += [Work(cell, part) for part in parts]
    return sorted(Work.in_order(work), key=lambda one: not is_elsewhere(one, lines))


def is_elsewhere(work: Work, lines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether another table has all of these trials already, from which their lines are copied."""
    same = work.cell.same_as
    return same is not None and set(work.seeds) <= set(results.finished(lines, same))


def reproduce(
    cells: Sequence[Cell],
    folder: Path,
    *,
    device: torch.device,
    trials: int | None = None,
    seeds: Sequence[int] = (),
    until: float | None = None,
    load: Load = load,
    report: Callable[[Cell], None] = lambda cell: None,
    quiet: bool = False,
    check: Callable[[Cell], None] = golden.check,
) -> Summary:
    """Run the trials that a folder of results lacks, and save each as soon as it is finished.

    ``trials`` or ``seeds`` take the place of those planned; ``until`` is a moment of ``time.monotonic()`` at which to
    stop with everything saved; ``check`` refuses a cell whose code has changed since the plan was made.
    """
    # Consecutive cells share a data set more often than not.
    run = _Run(folder, lru_cache(maxsize=4)(load), device, until, provenance.describe(device), check)
    left = to_do(cells, results.read(folder), trials, seeds)
    done: list[Work] = []
    elsewhere: list[Work] = []
    failed: dict[Work, str] = {}
    unavailable: dict[str, str] = {}
    out_of_time = False
    for work in left:
        if until is not None and until - time.monotonic() < _to_begin(work, device):
            out_of_time = True
            break
        if work.cell.dataset in unavailable:
            failed[work] = unavailable[work.cell.dataset]
            continue
        with claim(folder, work.key) as claimed:
            if not claimed:
                elsewhere.append(work)
                continue
            try:
                if quiet:
                    _do(work, run)
                else:
                    with ProgressBar(name_cell(work.cell)) as progress:
                        _do(work, run, progress)
            except TimeBudgetExceeded:
                out_of_time = True
                break
            except Unavailable as error:
                failed[work] = unavailable[work.cell.dataset] = str(error)
                continue
            except Exception as error:  # one cell that fails must not cost all others the night
                logger.exception("%s failed", work.key)
                failed[work] = f"{type(error).__name__}: {error}"
                continue
        done.append(work)
        report(work.cell)
    ended = {*done, *elsewhere, *failed}
    missing = tuple(work for work in left if work not in ended)
    return Summary(tuple(done), missing, tuple(elsewhere), failed, out_of_time)


def _to_begin(work: Work, device: torch.device) -> float:
    return TO_COMPILE if device.type == "cuda" and work.cell.one_by_one else TO_BEGIN


@dataclass(frozen=True)
class _Run:
    """What all pieces of work of a run have in common."""

    folder: Path
    load: Load
    device: torch.device
    until: float | None
    facts: Mapping[str, Any]
    check: Callable[[Cell], None]


def _do(work: Work, run: _Run, progress: ProgressBar | None = None) -> None:
    cell = work.cell
    # Another run may have finished some of it between the list and the claim.
    lines = results.read(run.folder)
    seeds = [seed for seed in work.seeds if seed not in results.finished(lines, cell)]
    if cell.same_as is not None:
        for seed, line in results.finished(lines, cell.same_as).items():
            if seed in seeds:
                own = {"table": cell.table, "problem": cell.problem, **_plan_of(cell)}
                results.append(run.folder, {**line, **own, "copied_from": line["table"]})
                seeds.remove(seed)
    if seeds:
        run.check(cell)
        try:
            data = run.load(cell.dataset)
        except Exception as error:
            raise Unavailable(f"the data set {cell.dataset} cannot be loaded: {error}") from error
        tasks = tasks_of(cell, data, seeds, run.device)
        outcomes = run_trials(
            cell,
            dict(zip(seeds, tasks, strict=True)),
            folder=checkpoint_folder(run.folder, replace(work, seeds=tuple(seeds))),
            until=run.until,
            progress=progress,
        )
        facts = {"n_groups": len(tasks[0].observations.groups), "data": provenance.content_digest(data), **run.facts}
        for outcome in outcomes:
            results.append(run.folder, _line(cell, outcome, facts))
    clear(run.folder, work)


def _plan_of(cell: Cell) -> dict[str, Any]:
    return {"plan": cell.digest, "golden": golden.digest(cell)}


def _line(cell: Cell, outcome: Outcome, facts: Mapping[str, Any]) -> dict[str, Any]:
    named = {name: getattr(cell, name) for name in ("table", "problem", "dataset", "method", "protocol")}
    return {**named, **vars(outcome), **_plan_of(cell), **facts, "date": date()}
