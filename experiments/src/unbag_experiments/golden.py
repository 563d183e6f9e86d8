"""Short runs whose numbers are known: trials whose code gives other numbers are not put beside those of before.

``golden.json`` holds, for each kind of cell, how well held-out groups are explained by each choice after some epochs on
made-up data. Every kind that a run is about to train is tried first, on the processor, and compared within what
rounding may do; a line of results carries the digest of the numbers. A hash of the source would change with every
comment; the numbers change when what is computed does. What they do not see is code that only a GPU runs.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from unbag_experiments.plan import Cell, select

SEED = 0
EPOCHS = 8
N_GROUPS = {"mlp": 384, "lenet": 256, "densenet": 16, "logistic": None}
"""Enough for some steps an epoch, after which methods differ; of bags there are as many as there are, of large groups
as many as have the members of so many groups of 6."""
TOLERANCE = 2e-3
"""Of two numbers, relative; rounding makes differences of less than a tenth of it."""
FILE = "golden.json"


class ChangedCode(Exception):
    """The code of trials computes something else than the plan's."""


def kind(cell: Cell) -> str:
    """Name the cells that are trained by the same code.

    Examples
    --------
    >>> kind(Cell("similarity_uci", "pairwise_similarity", "vehicle", "uum"))
    'mlp, pairwise_similarity, uum'
    """
    protocol = [] if cell.protocol == "paper" else [cell.protocol]
    return ", ".join([cell.model, cell.problem, *protocol, cell.method])


@lru_cache(maxsize=1)
def known() -> dict[str, list[float]]:
    """Return the numbers of every kind."""
    content: dict[str, list[float]] = json.loads(files(__package__).joinpath(FILE).read_text("utf-8"))
    return content


def digest(cell: Cell) -> str | None:
    """Return the digest of the numbers of a cell's kind; None for a kind that the plan does not have."""
    numbers = known().get(kind(cell))
    return None if numbers is None else hashlib.sha256(json.dumps(numbers).encode()).hexdigest()[:12]


def check(cell: Cell) -> None:
    """Refuse to go on where the code of a cell's trials gives other numbers than are known of it."""
    _check(kind(cell), cell)


@lru_cache(maxsize=256)
def _check(name: str, cell: Cell) -> None:
    expected = known().get(name)
    if expected is None:
        return
    numbers = compute(cell)
    same = len(numbers) == len(expected) and all(
        math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        for one, other in zip(numbers, expected, strict=True)
    )
    if not same:
        raise ChangedCode(
            f"the code of trials of {name} has changed: a short run gives {numbers}, and gave {expected}; its trials "
            "would not be comparable with those of before, so undo the change, or make a new plan with other seeds"
        )


def compute(cell: Cell) -> list[float]:
    """Return the numbers of a cell's kind: the best score of each choice by held-out groups, in a short run."""
    # Not above: those who only compare digests need not wait for it.
    import torch  # noqa: PLC0415

    from unbag_experiments import smoke  # noqa: PLC0415
    from unbag_experiments.sampling import tasks_of  # noqa: PLC0415
    from unbag_experiments.trials import run_trials  # noqa: PLC0415

    like = next((one for one in select(tables=[cell.table]) if kind(one) == kind(cell)), cell)
    n_groups, size = N_GROUPS[like.model], like.part.group_size or 6
    short = replace(like, epochs=EPOCHS, n_groups=n_groups and max(4, n_groups * 6 // size))
    (task,) = tasks_of(short, smoke.load(short.dataset), [SEED], torch.device("cpu"))
    (outcome,) = run_trials(short, {SEED: task})
    return [float(f"{score:.4g}") for score in outcome.by["groups"]["scores"]]


def add_missing(path: Path) -> None:
    """Add the numbers of kinds that are new in the plan; those that are known stay, to the last digit."""
    cells = {kind(cell): cell for cell in reversed(select())}
    numbers = {name: known().get(name) or compute(cells[name]) for name in sorted({*cells, *known()})}
    lines = [f"  {json.dumps(name)}: {json.dumps(own)}" for name, own in numbers.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    add_missing(Path(__file__).parent / FILE)
