"""Names of classes: from arguments and observations, as numbers, and by a few labels where classes have none."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from unbag._utils.checks import raise_if_masked
from unbag._utils.problems import list_some
from unbag.aggregates.symmetry import Symmetry


def read_names(classes: Any) -> np.ndarray:
    """Return names of classes as an array, of which no two are equal."""
    names = list(classes.tolist() if hasattr(classes, "tolist") else classes)
    if len(set(names)) != len(names):
        raise ValueError(f"classes must differ from each other, got {names}")
    if len({type(name) for name in names}) == 1 and isinstance(names[0], str | int | float):
        return np.array(names)
    array = np.empty(len(names), dtype=object)  # numpy would turn 1 and "1" into two equal strings
    array[:] = names
    return array


def read_labels(y: Any) -> np.ndarray:
    """Return labels of rows, of any type, validated by the rules of scikit-learn."""
    if y is None:
        raise ValueError("AggregateClassifier requires y to be passed, but the target y is None")
    raise_if_masked(y, "y")
    labels = column_or_1d(y.numpy(force=True) if isinstance(y, Tensor) else y, warn=True)
    assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    return labels


def number_labels(labels: np.ndarray, classes: np.ndarray) -> Tensor:
    """Return the number of the class of each label; raise an error for labels of other classes."""
    place = {name: number for number, name in enumerate(classes.tolist())}
    distinct, which = np.unique(labels, return_inverse=True)
    if unknown := [name for name in distinct.tolist() if name not in place]:
        raise ValueError(f"the label {list_some(unknown, 3)} is none of the classes {classes.tolist()}")
    return torch.tensor([place[name] for name in distinct.tolist()])[torch.from_numpy(which)]


def classes_of_labels(labels: Sequence[np.ndarray], count: int | None) -> np.ndarray:
    """Return the classes of labels; where some of a known number do not occur, numbers from 0."""
    distinct = np.unique(np.concatenate(labels))
    if count is None or len(distinct) == count:
        if len(distinct) < 2:
            raise ValueError(f"y holds one class only, {distinct.tolist()[0]!r}; at least 2 are needed to learn from")
        return distinct
    if distinct.dtype.kind in "iu" and distinct.min() >= 0 and distinct.max() < count:
        return np.arange(count)
    raise ValueError(
        f"y holds {len(distinct)} classes, {distinct[:10].tolist()}, but there are {count}; name them all by classes="
    )


def match_classes(together: np.ndarray, symmetry: Symmetry) -> np.ndarray:
    """Return which output to read each class from, so that most of what is together stays together.

    ``together`` is what each class and each output have in common, ``(classes, outputs)``; ``symmetry`` has the orders
    that are allowed.
    """
    order = np.arange(len(together))
    if isinstance(symmetry, tuple):
        for block in map(list, symmetry):
            order[block] = np.array(block)[linear_sum_assignment(-together[np.ix_(block, block)])[1]]
        return order
    if symmetry == "any":
        return linear_sum_assignment(-together)[1]
    if symmetry == "reversal" and together[order, order[::-1]].sum() > together[order, order].sum():
        return order[::-1].copy()
    return order


def choose_names(labels: np.ndarray, classes: np.ndarray, symmetry: Symmetry, *, fixed: bool) -> np.ndarray:
    """Return the names of the classes from labels of some rows, of which every class needs one.

    ``classes`` are the present names. They are ``fixed`` if the caller has passed them in their order, or if only some
    classes are interchangeable; otherwise labels may bring other names.
    """
    names, found = classes.tolist(), np.unique(labels)
    known = set(found.tolist()) <= set(names)
    if not fixed and not isinstance(symmetry, tuple) and len(found) == len(names):
        if symmetry == "reversal" and not known and found.dtype.kind not in "iuf":
            raise ValueError(f"classes are ordered, but the order of {found.tolist()} is not known; give classes=")
        return found
    if known:
        unnamed = [names[n] for block in symmetry for n in block] if isinstance(symmetry, tuple) else names
        if missing := [name for name in unnamed if name not in found.tolist()]:
            raise ValueError(f"each of the interchangeable classes needs a labelled row; there is none for {missing}")
    elif isinstance(symmetry, tuple):
        raise ValueError(
            f"y must have labels among the classes {names}, only some of which are interchangeable; got "
            f"{found[:10].tolist()}; pass classes= to fit for other names"
        )
    elif not fixed:
        raise ValueError(
            f"each of the interchangeable classes needs a labelled row; there are {len(names)} classes, but y has "
            f"{len(found)}: {found[:10].tolist()}"
        )
    return classes
