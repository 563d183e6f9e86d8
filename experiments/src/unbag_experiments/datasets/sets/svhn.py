"""SVHN: house numbers in street pictures, cut to 32 x 32 around one digit."""

from pathlib import Path

import numpy as np

from unbag_experiments.datasets.base import Content, Layout, Recipe
from unbag_experiments.datasets.download import Remote
from unbag_experiments.datasets.matlab import read_matlab
from unbag_experiments.datasets.mosaics import read_mosaics
from unbag_experiments.datasets.readers import broken, train_and_test

HOME = "http://ufldl.stanford.edu/housenumbers/"
MOSAICS = ("svhn_train_1.jpg", "svhn_train_2.jpg", "svhn_test.jpg")
OWN_CUT = "cut anew from the full pictures to 32 x 32 and kept as JPEG, so that pixels differ from the published ones"
SHA256 = {
    "train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
    "test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
}


def read_part(path: Path) -> Content:
    """Read pictures (height x width x colour x number) and their digits, in which 10 stands for 0."""
    X, y = read_matlab(path, "X", "y")
    if X.ndim != 4 or X.shape[:3] != (32, 32, 3) or X.dtype != np.uint8:
        broken(
            path,
            f"expected X of bytes, 32 x 32 x 3 x number of pictures, got {X.dtype} {' x '.join(map(str, X.shape))}",
        )
    if y.size != X.shape[3]:
        broken(path, f"there are {y.size} labels for {X.shape[3]} pictures")
    if y.size and (y.min() < 1 or y.max() > 10):
        broken(path, f"labels are 1 to 10, got {y.min()} to {y.max()}")
    return Content(X.transpose(3, 2, 0, 1), y.ravel() % 10)


DATASETS = (
    Recipe(
        name="svhn",
        title="SVHN, digits of house numbers",
        shape=(3, 32, 32),
        classes=tuple("0123456789"),
        citation=(
            "Netzer, Wang, Coates, Bissacco, Wu and Ng, Reading digits in natural images with unsupervised feature "
            "learning, NIPS workshop 2011"
        ),
        home=HOME,
        licence="none stated; for non-commercial use",
        layouts=(
            Layout(tuple(SHA256), train_and_test(read_part)),
            Layout((*MOSAICS, "svhn_labels.npz"), read_mosaics, note=OWN_CUT),
        ),
        remotes=Remote.below(HOME, SHA256),
    ),
)
