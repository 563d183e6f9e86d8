"""Provenance of trials: hardware, versions, commit and dates."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import torch

from unbag._utils.environment import versions
from unbag_experiments.datasets import Dataset
from unbag_experiments.environment import commit, hardware
from unbag_experiments.ordered import OrderedTable
from unbag_experiments.plan import SELECTIONS

Line = Mapping[str, Any]  # one finished trial, as a line of results/*.jsonl holds it

NEEDED = ("table", "problem", "dataset", "method", "seed", "by", "protocol", "n_groups", "rows", "plan", "date")


class Run(NamedTuple):
    """What a trial was computed by."""

    hardware: str
    versions: str
    commit: str


@dataclass(frozen=True)
class Provenance:
    """How much of the results was computed by the same code on the same hardware, and when."""

    run: Run
    trials: int
    tables: tuple[str, ...]
    first: str
    last: str
    seconds: float


def describe(device: torch.device) -> dict[str, Any]:
    """Return what every result is stored with."""
    return {"hardware": hardware(device), "versions": versions("scikit-learn"), "commit": commit()}


def content_digest(data: Dataset | OrderedTable) -> str:
    """Return a digest of the rows and labels of a data set, of which there may be several versions."""
    labels = data.values if isinstance(data, OrderedTable) else data.y
    content = hashlib.sha256()
    for array in (data.X, labels):
        content.update(f"{array.dtype} {array.shape}".encode())
        content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()[:12]


def oldest_first(lines: Iterable[Line]) -> list[Line]:
    """Put trials in the order of their dates, and refuse those that cannot be compared.

    Lines of one date keep their order, so that the last of a cell and seed is the one that counts.
    """
    return sorted((_checked(line, number) for number, line in enumerate(lines, start=1)), key=_moment)


def run_of(line: Line) -> Run:
    """Say what a trial was computed by.

    Examples
    --------
    >>> run_of({"hardware": "one CPU", "versions": {"torch": "2.11", "python": "3.12"}})
    Run(hardware='one CPU', versions='python 3.12, torch 2.11', commit='not recorded')
    """
    versions = ", ".join(f"{name} {version}" for name, version in sorted((line.get("versions") or {}).items()))
    return Run(
        hardware=str(line.get("hardware") or "not recorded"),
        versions=versions or "not recorded",
        commit=str(line.get("commit") or "not recorded"),
    )


def provenance(lines: Iterable[Line]) -> tuple[Provenance, ...]:
    """Gather what trials were computed by, the earliest first.

    Examples
    --------
    >>> trial = {"table": "mil", "commit": "abc"}
    >>> origins = provenance([{**trial, "date": "2026-01-31"}, {**trial, "date": "2026-02-01"}])
    >>> [(origin.trials, origin.first, origin.last) for origin in origins]
    [(2, '2026-01-31', '2026-02-01')]
    """
    trials: dict[Run, list[Line]] = defaultdict(list)
    for line in lines:
        trials[run_of(line)].append(line)
    sources = []
    for run, of_run in trials.items():
        moments = sorted(map(_moment, of_run))
        first, last = (moment.date().isoformat() for moment in (moments[0], moments[-1]))
        tables = tuple(sorted({str(line["table"]) for line in of_run}))
        seconds = sum(line.get("seconds") or 0.0 for line in of_run)
        sources.append((moments[0], run, Provenance(run, len(of_run), tables, first, last, seconds)))
    return tuple(origin for *_, origin in sorted(sources, key=lambda item: item[:2]))


def machine_seconds(lines: Sequence[Line]) -> list[float]:
    """Return how long each trial had the machine: every moment counts once, in equal parts for all that ran in it.

    A trial ran until its date, for as long as it and those beside it took together.
    """
    seconds = [0.0] * len(lines)
    for machine in {run_of(line).hardware for line in lines}:
        own = [place for place, line in enumerate(lines) if run_of(line).hardware == machine]
        beside = np.array([lines[place].get("beside") or 1 for place in own])
        ends = np.array([_moment(lines[place]).timestamp() for place in own])
        starts = ends - beside * np.array([lines[place].get("seconds") or 0.0 for place in own])
        moments = np.unique(np.concatenate([starts, ends]))
        # How many processes run between one moment and the next; trials beside each other share one.
        running = np.zeros(len(moments))
        np.add.at(running, np.searchsorted(moments, starts), 1 / beside)
        np.add.at(running, np.searchsorted(moments, ends), -1 / beside)
        n_running = running.cumsum()[:-1]
        each = np.divide(np.diff(moments), n_running, out=np.zeros(len(n_running)), where=n_running > 1e-6)
        so_far = np.concatenate([[0.0], each.cumsum()])
        shares = (so_far[np.searchsorted(moments, ends)] - so_far[np.searchsorted(moments, starts)]) / beside
        for place, share in zip(own, shares.tolist(), strict=True):
            seconds[place] = share
    return seconds


def _moment(line: Line) -> datetime:
    moment = datetime.fromisoformat(line["date"])
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _checked(line: Line, number: int) -> Line:
    """Refuse a line that cannot be compared, by the names it carries."""
    who = ", ".join(f"{key} {line[key]}" for key in ("table", "dataset", "method", "seed") if key in line)
    place = f"line {number} of the results ({who})"
    missing = [key for key in NEEDED if key not in line]
    if missing:
        raise ValueError(f"{place} has no {', '.join(missing)}; mend it, or remove it and run that trial again")
    seed = line["seed"]
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ValueError(f"{place}: seed must be a whole number, got {seed!r}")
    for selection in SELECTIONS:
        accuracy = line["by"].get(selection, {}).get("accuracy")
        if isinstance(accuracy, bool) or not isinstance(accuracy, int | float) or not 0 <= accuracy <= 1:
            raise ValueError(f"{place}: accuracy by {selection} must be a number between 0 and 1, got {accuracy!r}")
    try:
        _moment(line)
    except (TypeError, ValueError) as error:
        expected = "date must be in ISO form, such as 2026-01-31T12:00:00"
        raise ValueError(f"{place}: {expected}, got {line['date']!r}") from error
    return line
