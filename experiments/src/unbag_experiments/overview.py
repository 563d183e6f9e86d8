"""Progress of the cells of the plan; apart from what runs them, because that takes seconds to import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unbag._utils.terminal import Terminal
from unbag_experiments.cell_text import name_cell, tell_result
from unbag_experiments.plan import Cell, Work
from unbag_experiments.results import finished, read

DEFAULT_FOLDER = Path("results")


def folder_for(folder: Path | None, epochs: int | None) -> Path:
    """Return the folder of results; what is trained for less than the paper does must not stand beside the rest."""
    if folder is not None:
        return folder
    return DEFAULT_FOLDER if epochs is None else DEFAULT_FOLDER / f"epochs-{epochs}"


def show_list(cells: Sequence[Cell], folder: Path, *, trials: int | None) -> None:
    """Print all cells in order of importance, and how far each is."""
    lines, console = read(folder), make_console()
    for cell in dict.fromkeys(work.cell for work in Work.in_order(Work(cell, (0,)) for cell in cells)):
        wanted = cell.seeds(trials)
        done = finished(lines, cell)
        text = tell_result(cell, done.values()) if done else name_cell(cell)
        console.print(f"{len(done.keys() & set(wanted))}/{len(wanted)}  {text}")


def make_console() -> Terminal:
    """Return a console that prints lines as they are."""
    return Terminal(highlight=False, markup=False, soft_wrap=True)
