"""Optical digits: 8 x 8 counts of ink, of which the 62 columns that are not always 0 are kept, as in the paper."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from unbag_experiments.datasets.base import Content, Layout, Recipe
from unbag_experiments.datasets.download import Remote
from unbag_experiments.datasets.readers import broken, read_labelled, read_prepared, train_and_test

CLASSES = tuple("0123456789")
ALWAYS_ZERO = (0, 39)
HOME = "https://archive.ics.uci.edu/ml/machine-learning-databases/optdigits/"
SHA256 = {
    "optdigits.tra": "e1b683cc211604fe8fd8c4417e6a69f31380e0c61d4af22e93cc21e9257ffedd",
    "optdigits.tes": "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8",
}


def keep_varying(content: Content, path: Path) -> Content:
    """Leave out the two columns that say nothing."""
    if content.X.shape[1:] != (64,) or content.X[:, ALWAYS_ZERO].any():
        broken(path, "expected 64 columns, of which the first and the fortieth are always 0")
    return replace(content, X=np.delete(content.X, ALWAYS_ZERO, axis=1))


def read_npz(paths: Sequence[Path]) -> Content:
    """Read the prepared form, which has all 64 columns."""
    return keep_varying(read_prepared(paths), paths[0])


def read_part(path: Path) -> Content:
    """Read lines of 64 counts and the digit."""
    return keep_varying(read_labelled(path, 65, CLASSES, ","), path)


DATASETS = (
    Recipe(
        name="optdigits",
        title="optical digits, 8 x 8 without the two empty corners",
        shape=(62,),
        classes=CLASSES,
        citation="Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository",
        home="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
        licence="CC BY 4.0",
        layouts=(Layout(("optdigits.npz",), read_npz), Layout(tuple(SHA256), train_and_test(read_part))),
        remotes=Remote.below(HOME, SHA256),
    ),
)
