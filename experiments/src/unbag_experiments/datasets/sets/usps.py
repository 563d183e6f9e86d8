"""USPS: digits of zip codes on envelopes, 16 x 16 grey values."""

from pathlib import Path

import numpy as np

from unbag_experiments.datasets.base import Content, Layout, Recipe
from unbag_experiments.datasets.readers import as_numbers, broken, read_lines, read_prepared, train_and_test


def read_zip(path: Path) -> Content:
    """Read lines of the digit, written as 6.0000, and 256 grey values."""
    values = as_numbers(path, read_lines(path, 257))
    y = values[:, 0].astype(np.int64)
    if (y != values[:, 0]).any():
        broken(path, "the first value of a line is its digit, a whole number")
    return Content(values[:, 1:], y)


DATASETS = (
    Recipe(
        name="usps",
        title="USPS zip-code digits, 16 x 16",
        shape=(256,),
        classes=tuple("0123456789"),
        citation=(
            "Le Cun et al., Handwritten digit recognition with a back-propagation network, NIPS 1990, "
            "as in Hastie, Tibshirani and Friedman, The Elements of Statistical Learning"
        ),
        home="https://hastie.su.domains/ElemStatLearn/datasets/ (zip.train.gz and zip.test.gz there)",
        licence="none stated",
        layouts=(Layout(("usps.npz",), read_prepared), Layout(("zip.train", "zip.test"), train_and_test(read_zip))),
    ),
)
