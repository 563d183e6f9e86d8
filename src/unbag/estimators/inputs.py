"""Read the arguments of ``fit`` and of predictions: rows, observations, and names of classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils.validation import validate_data
from torch import Tensor

from unbag._utils.checks import as_tensor, check_n_classes, describe, format_indices, raise_if_masked
from unbag.aggregates import Aggregate
from unbag.aggregates.base import check_rows
from unbag.aggregates.class_shares import count_shares
from unbag.aggregates.registry import find_aggregate
from unbag.data.alignment import align, is_numbering, match_columns, split_columns
from unbag.data.bags import is_list_of_bags
from unbag.data.frames import EncodedRows, encode_frame
from unbag.data.groups import Groups
from unbag.data.row_source import Rows, RowSource, RowSubset, SparseRows, row_shape
from unbag.data.scaling import check_finite
from unbag.data.targets import columns_of_target, is_target, read_target
from unbag.data.weights import read_group_weights, weights_by_answer, weights_of_groups
from unbag.estimators.class_names import classes_of_labels, number_labels, read_labels, read_names
from unbag.learners.base import ROWS_AT_ONCE, is_network, name_of
from unbag.training import Observations

NUMBERED = (
    "scikit-learn has replaced its rows by numbers, as cross_val_predict does for probabilities: use "
    "method='predict', or fit and predict in a loop over GroupKFold().split(X, groups=ids)"
)
MAX_DISTINCT = 10
"""Rows up to which labels may all be different."""


@dataclass(frozen=True, eq=False)
class RawObservations:
    """One set of observations before the classes are known."""

    aggregate: Aggregate
    groups: Groups
    z: Any
    labels: np.ndarray | None = None  # of single rows, in place of ``z``; their groups have one row each
    group_weights: Tensor | None = None
    checked: Observations | None = None  # the same set, if the caller has validated it
    sampling: Any = None
    columns: list[Any] | None = None  # class names of the columns of ``z``; None if it has no names

    @property
    def n_classes(self) -> int | None:
        """Return the number of classes, if the observations show it."""
        if self.aggregate.has_class_columns and self.labels is None and self.z.ndim >= 2:
            return int(self.z.shape[1])
        return self.aggregate.n_classes

    def observations(self, classes: np.ndarray) -> Observations:
        """Return the set with classes as numbers."""
        order = match_columns(self.columns, classes.tolist(), "y")
        if self.checked is not None:
            if (n := self.checked.n_classes) != len(classes):
                raise ValueError(f"y was checked for {n} classes, but there are {len(classes)}")
            if order != [*range(n)]:
                raise ValueError(
                    f"y is a set of observations whose classes are in the order {self.columns}, but the classes are "
                    f"{classes.tolist()}; make it from a table with its columns in this order"
                )
            return self.checked.with_weights(self.group_weights)
        if self.labels is not None:
            z = torch.nn.functional.one_hot(number_labels(self.labels, classes), len(classes))
        else:
            z = self.z if self.columns is None else self.z[:, order]
        return Observations(self.aggregate, self.groups, z, len(classes), group_weights=self.group_weights)

    def weighted(self, sample_weight: Any, group_weights: Any, sampling: Any, n_rows: int) -> RawObservations:
        """Multiply the weights of groups by those of the caller, those of rows, and those of selected observations."""
        factors = [self.group_weights]
        factors.append(None if group_weights is None else read_group_weights(group_weights, self.groups))
        factors.append(None if sample_weight is None else weights_of_groups(sample_weight, self.groups, n_rows))
        present = [factor for factor in factors if factor is not None]
        weights = math.prod(present[1:], start=present[0]) if present else None
        if sampling is not None:
            if self.z is None:
                raise ValueError("sampling is by observations, but y holds labels; pass sample_weight instead")
            weights = weights_by_answer(sampling, self.z, weights)
        return replace(self, group_weights=weights, sampling=sampling)


def read_rows(estimator: Any, X: Any, *, reset: bool) -> Rows:
    """Return the rows of a table or of images as floats, validated by the rules of scikit-learn.

    Float64, and integers that float32 cannot represent, stay float64 until they are scaled. Rows on disk stay there.
    """
    preparation = X.preparation if isinstance(X, EncodedRows) else None
    if reset:
        estimator.preparation_ = preparation
    elif preparation not in (None, estimator.preparation_):
        raise ValueError(
            "X was encoded in another way than the rows of fit; encode it by the preparation_ of the model"
        )
    source = X if preparation is None else X.rows
    if isinstance(source, RowSource) and not isinstance(source, Tensor | SparseRows):
        rows: Rows = _read_source(estimator, source, reset=reset)
    elif preparation is not None:
        rows = source
    elif estimator.preparation_ is not None:
        return encode_frame(estimator, X)
    else:
        rows = _read_array(estimator, X, reset=reset)
    if reset:
        estimator.input_shape_ = row_shape(rows)
    elif row_shape(rows) != estimator.input_shape_:
        raise ValueError(f"X has rows of shape {row_shape(rows)}, but those of fit had {estimator.input_shape_}")
    if preparation is not None and reset:
        estimator.n_features_in_ = len(preparation.names)
        estimator.feature_names_in_ = np.array(preparation.names, dtype=object)
    return rows


def _read_array(estimator: Any, X: Any, *, reset: bool) -> Tensor | SparseRows:
    if isinstance(X, Tensor):
        X = (X.float() if X.dtype == torch.bfloat16 else X).numpy(force=True)
    raise_if_masked(X, "X")
    try:
        array = validate_data(
            estimator, X, reset=reset, accept_sparse="csr", dtype="numeric", ensure_all_finite=False, allow_nd=True
        )
        precise = np.result_type(array.dtype, np.float32).itemsize > 4
        dtype = np.float64 if precise else np.float32
        array = array.astype(dtype) if issparse(array) else np.require(array, dtype, ["C", "W"])
    except (TypeError, ValueError):
        _raise_if_text(X)
        raise
    rows = SparseRows(array) if issparse(array) else torch.from_numpy(array)
    check_finite(rows, getattr(estimator, "feature_names_in_", None), missing=rows.ndim == 2)
    return rows


def _read_source(estimator: Any, X: RowSource, *, reset: bool) -> RowSource:
    if reset:
        if not is_network(estimator.model):
            raise ValueError(f"{name_of(estimator.model)} needs rows in memory; for rows on disk, choose a network")
        estimator.n_features_in_ = row_shape(X)[0]
        vars(estimator).pop("feature_names_in_", None)
        for part in RowSubset(X).split(ROWS_AT_ONCE):
            check_finite(part, missing=part.ndim == 2)
    return X


def _raise_if_text(X: Any) -> None:
    """Name the columns of an array that contain text or dates."""

    def is_text(value: Any) -> bool:
        try:
            float(value)
        except ValueError:
            return True
        except TypeError:
            return isinstance(value, date)
        return isinstance(value, bytes)

    columns = np.atleast_2d(np.asarray(X)).T
    texts = [next(filter(is_text, column.tolist()), None) for column in columns]
    flags = torch.tensor([text is not None for text in texts])
    if bool(flags.any()):
        first = texts[int(flags.nonzero()[0])]
        raise ValueError(
            f"X must hold numbers, but there are values such as {first!r} in {format_indices('column', flags)}; pass a "
            "table of pandas or polars, whose text and dates become numbers, or leave the column out"
        )


def read_sets(
    aggregate: Any,
    y: Any,
    groups: Any,
    n_rows: int,
    *,
    sample_weight: Any = None,
    group_weights: Any = None,
    sampling: Any = None,
    classes: Any = None,
) -> list[RawObservations]:
    """Return the sets of observations: one, or as many as the list of aggregates has entries."""
    arguments = {"y": y, "groups": groups, "group_weights": group_weights, "sampling": sampling}
    if not isinstance(aggregate, list | tuple):
        aggregate, arguments = [aggregate], {name: [value] for name, value in arguments.items()}
    elif not aggregate:
        raise ValueError("aggregate is an empty list: there is nothing to learn from")
    for name, value in arguments.items():
        if value is None and name != "y":
            arguments[name] = [None] * len(aggregate)
        elif not isinstance(value, list | tuple) or len(value) != len(aggregate):
            got = f"{len(value)} entries" if isinstance(value, list | tuple) else describe(value)
            rule = f"with a list of {len(aggregate)} aggregates, {name} must be a list with an entry for each"
            raise ValueError(f"{rule}; got {got}")
    sets = []
    for kind, values, members, weights, selection in zip(aggregate, *arguments.values(), strict=True):
        raw = _read_set(find_aggregate(kind), values, read_groups(members, n_rows), n_rows, classes)
        sets.append(raw.weighted(sample_weight, weights, selection, n_rows))
    return sets


def observes_bags(aggregate: Any, X: Any, y: Any) -> bool:
    """Return whether X is a list of bags with an observation for each, and not a list of images with their labels."""
    if isinstance(aggregate, list | tuple) or is_target(y) or isinstance(y, Observations) or not is_list_of_bags(X):
        return False
    return find_aggregate(aggregate).outcome != "class_counts" or np.ndim(y) == 2


def read_groups(groups: Any, n_rows: int, *, several: bool = False) -> Any:
    """Return groups from an id for each row; for several sets, a list."""
    if several and isinstance(groups, list | tuple):
        return [read_groups(entry, n_rows) for entry in groups]
    if groups is None or isinstance(groups, Groups):
        return groups
    rule = f"groups must be unbag.Groups, or hold an id for each of {n_rows} rows of X"
    if getattr(groups, "ndim", 1) == 2:
        raise TypeError(f"{rule}; pairs and triplets of row numbers are unbag.Groups.from_tuples(groups)")
    made = Groups.from_ids(groups)
    if made.n_rows != n_rows:
        raise ValueError(f"{rule}; got {made.n_rows} ids")
    return made


def _read_set(aggregate: Aggregate, y: Any, groups: Any, n_rows: int, classes: Any) -> RawObservations:
    if groups is not None and (isinstance(y, Observations) or is_target(y)):
        kind = "set of observations" if isinstance(y, Observations) else "target"
        raise ValueError(f"y is a {kind}, which holds its groups; leave groups= out")
    if isinstance(y, Observations):
        if repr(y.aggregate) != repr(aggregate):
            raise ValueError(f"y is a set of observations by {y.aggregate!r}, but aggregate is {aggregate!r}")
        y = y.to("cpu")
        check_rows(range(n_rows), y.groups)
        columns = y.columns if aggregate.has_class_columns else None
        return RawObservations(aggregate, y.groups, y.z, None, y.group_weights, checked=y, columns=columns)
    columns = None
    if is_target(y):
        _check_length(y, n_rows)
        columns = columns_of_target(y)
        groups, y = read_target(y)
    elif groups is None:
        labels = _read_labels_of_rows(aggregate, y, n_rows)
        return RawObservations(aggregate, Groups.from_sizes(torch.ones(n_rows, dtype=torch.int64)), None, labels)
    aggregate.check_sizes(groups)
    check_rows(range(n_rows), groups := groups.to("cpu"))
    y = align(y.cpu() if isinstance(y, Tensor) else y, groups.ids, len(groups), "y")
    if aggregate.pooled or aggregate.outcome == "class":
        y = _number_words(aggregate, y, classes)
    if aggregate.outcome == "class_counts" and groups.max_size == 1 and np.ndim(y) == 1:
        labels = read_labels(y)
        if len(labels) != len(groups):
            raise ValueError(f"y has {len(labels)} labels for {len(groups)} groups of one row")
        return RawObservations(aggregate, groups, None, labels)
    y, found = split_columns(y, "y")
    columns = (columns or found) if aggregate.has_class_columns else None
    return RawObservations(aggregate, groups, as_tensor(y, "y", groups.device, groups.ids), columns=columns)


def _number_words(aggregate: Aggregate, y: Any, classes: Any) -> Any:
    """Return the numbers of the classes of groups from their names; observations that are not text as they are."""
    if isinstance(y, Tensor) or np.ndim(values := np.asarray(y)) != 1 or values.dtype.kind not in "OUT":
        return y
    names = values.astype(object)
    if not all(isinstance(name, str) for name in names):
        return y
    if classes is None:
        order = "with the positive class second" if aggregate.pooled else "in the order of their numbers"
        raise ValueError(
            f"y holds names of classes, {', '.join(map(repr, sorted(set(names))[:3]))}, whose order is not known; pass "
            f"classes= to the classifier, {order}"
        )
    return number_labels(names, read_names(classes))


def choose_classes(
    classes: Any, n_classes: int | None, sets: Sequence[RawObservations], class_shares: Any = None
) -> np.ndarray:
    """Return the names of the classes: those of the caller, of columns or of labels, or numbers from 0."""
    names = None if classes is None else read_names(classes)
    sources = {
        "n_classes": None if n_classes is None else check_n_classes(n_classes),
        "classes": None if names is None else check_n_classes(len(names)),
        "class_shares": count_shares(class_shares),
    }
    found = [*sources.items(), *((type(s.aggregate).__name__, s.n_classes) for s in sets)]
    counts = [(count, name) for name, count in found if count is not None]
    if len({count for count, _ in counts}) > 1:
        numbers = ", ".join(f"{count} by {name}" for count, name in counts)
        raise ValueError(f"the number of classes is contradictory: {numbers}")
    count = counts[0][0] if counts else None
    if names is not None:
        return names
    if columns := next((s.columns for s in sets if s.columns is not None), None):
        return read_names(sorted(columns) if is_numbering(columns) else columns)
    if labels := [s.labels for s in sets if s.labels is not None]:
        return classes_of_labels(labels, count)
    if count is None:
        raise ValueError(
            f"{type(sets[0].aggregate).__name__} does not show how many classes there are; pass n_classes=, or their "
            "names as classes="
        )
    return np.arange(count)


def _read_labels_of_rows(aggregate: Aggregate, y: Any, n_rows: int) -> np.ndarray:
    if aggregate.outcome != "class_counts":
        raise ValueError(
            f"y holds no groups, but {type(aggregate).__name__} observes groups: use fit(X, z, groups=groups) or "
            "fit(X, unbag.target(ids, z)); scikit-learn passes groups= to splitters, not to fit; for labels of rows, "
            f"use aggregate='label_proportions'; if y was made by unbag.target, {NUMBERED}"
        )
    if y is not None:
        _check_length(y, n_rows)
    is_array = isinstance(y, np.ndarray) and y.dtype.kind == "i" and y.shape == (n_rows,)
    if n_rows > MAX_DISTINCT and is_array and len(np.unique(y)) == n_rows:
        raise ValueError(f"all labels in y are different; if it was made by unbag.target, {NUMBERED}")
    return read_labels(y)


def _check_length(y: Any, n_rows: int) -> None:
    if (length := len(y) if hasattr(y, "__len__") else n_rows) != n_rows:
        raise ValueError(
            f"y has {length} entries for {n_rows} rows of X; if y holds observations of groups, pass "
            "groups=groups as well, or unbag.target(ids, z), which has one entry per row"
        )
