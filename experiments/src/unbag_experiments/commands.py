"""The work of ``unbag reproduce``, once its options are read; apart from them, because this waits for torch."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from unbag._utils.terminal import Terminal
from unbag_experiments import estimates, runner, smoke
from unbag_experiments.cell_text import name_cell, tell_result
from unbag_experiments.environment import hardware
from unbag_experiments.overview import make_console
from unbag_experiments.plan import Cell, Work
from unbag_experiments.results import finished, read
from unbag_experiments.runner import Summary


def find_device(name: str | None) -> torch.device:
    """Return the device that is asked for; a GPU if there is one and nothing was asked."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise ValueError(f"device must be cpu or cuda, got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device is cuda, but torch finds no GPU; leave --device out, or say --device cpu")
    return torch.device(name)


def run(
    cells: Sequence[Cell],
    folder: Path,
    *,
    trials: int | None,
    seeds: Sequence[int] = (),
    device: str | None,
    budget: str | None,
    start: float,
) -> Summary:
    """Run what is missing; one line for each cell that comes to an end, and a few about the whole.

    ``start`` is the moment of ``time.monotonic()`` from which the budget counts.
    """
    until = None if budget is None else runner.end_of(budget, start)
    where, console = find_device(device), make_console()
    console.print(f"on {where}, into {folder}")
    if budget is None:
        lines = read(folder)
        work = [one for one in runner.to_do(cells, lines, trials, seeds) if not runner.is_elsewhere(one, lines)]
        _tell_duration(work, lines, where, console)
    summary = runner.reproduce(
        cells,
        folder,
        device=where,
        trials=trials,
        seeds=seeds,
        until=until,
        report=lambda cell: console.print(tell_result(cell, finished(read(folder), cell).values())),
    )
    _tell(summary, console)
    return summary


def run_smoke(cells: Sequence[Cell]) -> Summary:
    """Run cells for a moment on made-up data, and leave nothing behind."""
    console = make_console()
    with tempfile.TemporaryDirectory() as folder:
        summary = runner.reproduce(
            [smoke.tiny(cell) for cell in cells],
            Path(folder),
            device=torch.device("cpu"),
            trials=1,
            load=smoke.load,
            check=lambda cell: None,  # made-up data are no trials of the plan
            report=lambda cell: console.print(f"{name_cell(cell)}: runs"),
            quiet=True,
        )
    _tell(summary, console)
    return summary


def _tell_duration(
    work: Sequence[Work], lines: Sequence[Mapping[str, Any]], device: torch.device, console: Terminal
) -> None:
    """Say beforehand about how long trials will take, where that is known."""
    if not work:
        return
    seconds = estimates.estimate(work, lines, hardware=hardware(device))
    n_trials = sum(len(one.seeds) for one in work)
    duration = "time unknown" if seconds is None else estimates.in_words(seconds)
    console.print(f"{n_trials} trials of {len({one.cell for one in work})} cells are missing: {duration}")


def _tell(summary: Summary, console: Terminal) -> None:
    """Say what was done, what is missing and why."""
    for work, reason in summary.failed.items():
        console.print(f"failed: {name_cell(work.cell)}: {reason}")
    counts = {
        "done": summary.done,
        "failed": summary.failed,
        "in the hands of another run": summary.elsewhere,
        "still missing": summary.missing,
    }
    parts = [f"{len(work)} {what}" for what, work in counts.items() if work]
    console.print(", ".join(parts) or "nothing is missing")
    if summary.missing:
        following = name_cell(summary.missing[0].cell)
        console.print(f"time is up, and everything is saved; the same command goes on with {following}")
