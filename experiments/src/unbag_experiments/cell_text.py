"""Cells and results as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from unbag_experiments.paper import PAPER
from unbag_experiments.plan import Cell


def name_cell(cell: Cell) -> str:
    """Name a cell in a line.

    Examples
    --------
    >>> name_cell(Cell("mil", "multiple_instance", "fox", "uum", "ten_fold"))
    'mil, fox, uum (ten_fold)'
    """
    # A table is of one problem, but for our own.
    problem = [cell.problem] if cell.table == "ordinal" else []
    size = [f"{cell.n_groups:,} groups"] if cell.table.endswith("_sizes") else []
    protocol = "" if cell.protocol == "paper" else f" ({cell.protocol})"
    return ", ".join([cell.table, *problem, cell.dataset, *size, cell.method]) + protocol


def command(cell: Cell, seed: int | None = None) -> str:
    """Return the command that runs a cell anew, or one trial of it, into a folder of its own.

    Examples
    --------
    >>> command(Cell("mil", "multiple_instance", "fox", "uum", "ten_fold"), seed=1003)
    'unbag reproduce --table mil --dataset fox --method uum --protocol ten_fold --seed 1003 --results again'
    """
    options = {"table": cell.table, "dataset": cell.dataset, "method": cell.method}
    part = cell.part
    if len(part.problems) > 1:
        options["problem"] = cell.problem
    if cell.data == "bags" or part.is_beyond:
        options["protocol"] = cell.protocol
    if len(part.n_groups) > 1:
        options["groups"] = str(cell.n_groups)
    if seed is not None:
        options["seed"] = str(seed)
    return " ".join(["unbag reproduce", *(f"--{name} {value}" for name, value in options.items()), "--results again"])


def tell_result(cell: Cell, trials: Iterable[Mapping[str, Any]]) -> str:
    """Tell mean and standard deviation of trials in percent, chosen by labels, and what the paper has there."""
    accuracies = [100 * line["by"]["labels"]["accuracy"] for line in trials]
    ours = f"{_mean_and_std(accuracies)} in {len(accuracies)} {'trial' if len(accuracies) == 1 else 'trials'}"
    return f"{name_cell(cell)}: {ours}{_paper(cell)}"


def _mean_and_std(accuracies: Sequence[float]) -> str:
    mean = f"{np.mean(accuracies):.2f}"
    return f"{mean} ± {np.std(accuracies, ddof=1):.2f}" if len(accuracies) > 1 else mean


def _paper(cell: Cell) -> str:
    """Return the paper's figure; none beside another protocol than its own."""
    for known in PAPER:
        same = all(getattr(known, name) == getattr(cell, name) for name in ("table", "problem", "dataset", "method"))
        if same and known.n_groups in (None, cell.n_groups) and cell.protocol == "paper":
            return f"; the paper: {known.mean:.2f}" + ("" if known.std is None else f" ± {known.std:.2f}")
    return ""
