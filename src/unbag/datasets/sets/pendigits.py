"""Pen digits: eight points of the way of a pen."""

from collections.abc import Sequence
from pathlib import Path

from unbag.datasets.base import Content, Layout, Recipe
from unbag.datasets.download import Remote
from unbag.datasets.readers import join, read_labelled, read_prepared

CLASSES = tuple("0123456789")
HOME = "https://archive.ics.uci.edu/ml/machine-learning-databases/pendigits/"


def read_pendigits(paths: Sequence[Path]) -> Content:
    """Read lines of 16 coordinates and the digit, of the training part and of the test part."""
    train, test = (read_labelled(path, 17, CLASSES, ",") for path in paths)
    return join(train, test)


DATASETS = (
    Recipe(
        name="pendigits",
        title="pen digits, eight points each",
        shape=(16,),
        classes=CLASSES,
        citation="Alpaydin and Alimoglu, Pen-Based Recognition of Handwritten Digits, UCI Machine Learning Repository",
        home="https://archive.ics.uci.edu/dataset/81/pen+based+recognition+of+handwritten+digits",
        licence="CC BY 4.0",
        layouts=(Layout(("pendigits.npz",), read_prepared), Layout(("pendigits.tra", "pendigits.tes"), read_pendigits)),
        remotes=(
            Remote(
                "pendigits.tra",
                (f"{HOME}pendigits.tra",),
                "e2b9eb9f0d0467e2b64a4816a3420edf2b8043447576f4b84337aba44a9f97d3",
            ),
            Remote(
                "pendigits.tes",
                (f"{HOME}pendigits.tes",),
                "8bd03229c5c5291fefe43e45465dd948d2645bf23328b9d993e0b777666b2015",
            ),
        ),
    ),
)
