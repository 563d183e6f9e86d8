"""Pen digits: eight points of the trajectory of a pen."""

from pathlib import Path

from unbag_experiments.datasets.base import Content, Layout, Recipe
from unbag_experiments.datasets.download import Remote
from unbag_experiments.datasets.readers import read_labelled, read_prepared, train_and_test

CLASSES = tuple("0123456789")
HOME = "https://archive.ics.uci.edu/ml/machine-learning-databases/pendigits/"
SHA256 = {
    "pendigits.tra": "e2b9eb9f0d0467e2b64a4816a3420edf2b8043447576f4b84337aba44a9f97d3",
    "pendigits.tes": "8bd03229c5c5291fefe43e45465dd948d2645bf23328b9d993e0b777666b2015",
}


def read_part(path: Path) -> Content:
    """Read lines of 16 coordinates and the digit."""
    return read_labelled(path, 17, CLASSES, ",")


DATASETS = (
    Recipe(
        name="pendigits",
        title="pen digits, eight points each",
        shape=(16,),
        classes=CLASSES,
        citation="Alpaydin and Alimoglu, Pen-Based Recognition of Handwritten Digits, UCI Machine Learning Repository",
        home="https://archive.ics.uci.edu/dataset/81/pen+based+recognition+of+handwritten+digits",
        licence="CC BY 4.0",
        layouts=(Layout(("pendigits.npz",), read_prepared), Layout(tuple(SHA256), train_and_test(read_part))),
        remotes=Remote.below(HOME, SHA256),
    ),
)
