"""Splice junctions of primate genes: 60 letters of DNA around where a gene may be cut."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from unbag_experiments.datasets.base import Content, Layout, Recipe
from unbag_experiments.datasets.download import Remote
from unbag_experiments.datasets.readers import as_labels, broken, read_lines, read_prepared

CLASSES = ("EI", "IE", "N")
LETTERS = "ACGT"


def read_splice(paths: Sequence[Path]) -> Content:
    """Read lines of: class, name, 60 letters; column 4 i + k is whether letter i is ACGT[k].

    As in the paper's table, the 15 sequences in which a letter is ambiguous (D, N, R or S) are left out.
    """
    (path,) = paths
    rows = read_lines(path, 3, ",")
    for number, row in enumerate(rows, 1):
        if len(row[2]) != 60 or not set(row[2]) <= set("ACGTDNRS"):
            broken(path, f"sequence {number} is not one of 60 letters out of A, C, G, T, D, N, R, S: {row[2]!r}")
    rows = [row for row in rows if set(row[2]) <= set(LETTERS)]
    letters = np.array([list(row[2]) for row in rows]).reshape(-1, 60)
    X = letters[:, :, None] == np.array(list(LETTERS))  # (rows, 60, 4)
    return Content(X.reshape(-1, 240), as_labels(path, [row[0] for row in rows], CLASSES))


DATASETS = (
    Recipe(
        name="msplice",
        title="primate splice junctions, one-hot coded",
        shape=(240,),
        classes=CLASSES,
        citation=(
            "Towell, Noordewier and Shavlik, Molecular Biology (Splice-junction Gene Sequences), "
            "UCI Machine Learning Repository"
        ),
        home="https://archive.ics.uci.edu/dataset/69/molecular+biology+splice+junction+gene+sequences",
        licence="CC BY 4.0",
        layouts=(Layout(("msplice.npz",), read_prepared), Layout(("splice.data",), read_splice)),
        remotes=(
            Remote(
                "splice.data",
                (
                    "https://archive.ics.uci.edu/ml/machine-learning-databases/"
                    "molecular-biology/splice-junction-gene-sequences/splice.data",
                ),
                "ebbae10c85d3c285e2a2489a37e42bc2ee8d91d15005e391a9962fa3389a114f",
            ),
        ),
    ),
)
