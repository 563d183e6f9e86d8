"""Musk 1 and 2: a molecule is a bag of its conformations, positive where one of them smells of musk."""

from collections.abc import Sequence
from pathlib import Path

from unbag_experiments.datasets.base import Content, Layout, Recipe
from unbag_experiments.datasets.readers import as_labels, as_numbers, gather_bags, read_lines, read_prepared


def read_musk(paths: Sequence[Path]) -> Content:
    """Read lines of: molecule, conformation, 166 distances, and 1. for musk or 0. for no musk."""
    (path,) = paths
    rows = read_lines(path, 169, ",")
    y = as_labels(path, [row[-1] for row in rows], ("0.", "1."))
    return gather_bags(as_numbers(path, [row[2:-1] for row in rows]), y == 1, [row[0] for row in rows])


def _musk(number: int) -> Recipe:
    name, file = f"musk{number}", f"clean{number}.data"
    return Recipe(
        name=name,
        title=f"Musk {number}, bags of conformations of molecules",
        shape=(166,),
        classes=("non-musk", "musk"),
        citation=(
            "Dietterich, Lathrop and Lozano-Perez, Solving the multiple instance problem with axis-parallel "
            "rectangles, Artificial Intelligence 89, 1997"
        ),
        home=f"https://archive.ics.uci.edu/dataset/{73 + number}/musk+version+{number} ({file}.Z there; uncompress it)",
        licence="CC BY 4.0",
        layouts=(Layout((f"{name}.npz",), read_prepared), Layout((file,), read_musk)),
    )


DATASETS = (_musk(1), _musk(2))
