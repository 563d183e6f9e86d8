"""Elephant, Fox and Tiger: Corel pictures, each a bag of segments, positive where one of these shows the animal."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from unbag_experiments.datasets.base import Content, Layout, Recipe
from unbag_experiments.datasets.matlab import read_matlab
from unbag_experiments.datasets.readers import broken, gather_bags, read_prepared


def read_corel(paths: Sequence[Path]) -> Content:
    """Read a MATLAB file of sparse features (rows x 230), and for every row its bag and its label, 1 or -1."""
    (path,) = paths
    X, labels, ids = read_matlab(path, "features", "labels", "bag_ids")
    if not len(X) == labels.size == ids.size:
        broken(path, f"there are {len(X)} rows of features, {labels.size} labels and {ids.size} bag_ids")
    unknown = set(np.unique(labels).tolist()) - {-1, 0, 1}
    if unknown:
        broken(path, f"labels are 1 or -1, got {unknown.pop():g}")
    return gather_bags(X, labels.ravel() > 0, ids.ravel().tolist())


def _corel(name: str) -> Recipe:
    return Recipe(
        name=name,
        title=f"{name.capitalize()}, bags of segments of Corel pictures",
        shape=(230,),
        classes=(f"no {name}", name),
        citation=(
            "Andrews, Tsochantaridis and Hofmann, Support vector machines for multiple-instance learning, NIPS 2002"
        ),
        home="http://www.cs.columbia.edu/~andrews/mil/datasets.html (MIL-Data-2002-Musk-Corel-Trec9-MATLAB.tgz there)",
        licence="none stated",
        layouts=(Layout((f"{name}.npz",), read_prepared), Layout((f"{name}_100x100_matlab.mat",), read_corel)),
    )


DATASETS = tuple(map(_corel, ("elephant", "fox", "tiger")))
