"""The figures that the paper prints, as data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal


@dataclass(frozen=True)
class PaperCell:
    """One figure of the paper: the accuracy of a method on a data set, in percent.

    Parameters
    ----------
    table, problem, dataset, method
        Which figure it is.
    mean, std
        Over five trials; the tables of training-set sizes print no standard deviation.
    uum_significantly
        The paper's own mark: UUM is better or worse than this method by a paired t-test at 5 %.
    n_groups
        How many groups were trained on, in the tables that compare such numbers.
    """

    table: str
    problem: str
    dataset: str
    method: str
    mean: float
    std: float | None
    uum_significantly: Literal["better", "worse"] | None
    n_groups: int | None = None


def _read() -> tuple[PaperCell, ...]:
    stored = json.loads(files(__package__).joinpath("tables.json").read_text("utf-8"))["cells"]
    return tuple(
        PaperCell(
            cell["table"],
            cell["problem"],
            cell["dataset"],
            cell["method"],
            cell["mean"],
            cell["std"],
            cell["uum_significantly"],
            # Elsewhere the number of groups is that of the protocol, and tells no two figures apart.
            cell.get("n_groups") if cell["table"].endswith("_sizes") else None,
        )
        for cell in stored
    )


PAPER: tuple[PaperCell, ...] = _read()
"""All figures of the paper's tables, in their order."""
