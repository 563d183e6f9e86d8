"""From what callers hand to the estimator to rows, observations and names of classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np
import torch
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import Tensor

from unbag._utils.checks import as_tensor, check_n_classes, describe, format_indices, raise_if_masked
from unbag.aggregates import Aggregate
from unbag.aggregates.class_shares import count_shares
from unbag.aggregates.registry import find_aggregate
from unbag.data.alignment import align, is_numbering, match_columns, split_columns
from unbag.data.frames import EncodedRows, encode_frame
from unbag.data.groups import Groups
from unbag.data.row_source import Rows, RowSource, TakenRows, row_shape
from unbag.data.scaling import check_finite
from unbag.data.targets import columns_of_target, is_target, read_target
from unbag.data.weights import read_group_weights, weights_of_groups
from unbag.diagnostics.sampling import weights_by_answer
from unbag.learners.choice import is_network, name_of
from unbag.training import Observations

ROWS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class RawObservations:
    """One set of what was seen: observations of groups, or labels of single rows, which are groups of one."""

    aggregate: Aggregate
    groups: Groups
    z: Any
    labels: np.ndarray | None = None
    group_weights: Tensor | None = None
    checked: Observations | None = None
    """The same, where they were checked before."""
    sampling: Any = None
    """How groups were chosen by their answer; see :func:`unbag.diagnostics.sampling.weights_by_answer`."""
    columns: list[Any] | None = None
    """The names of the columns of z, if it has a column for each class; None where they have none."""

    def tells_n_classes(self) -> int | None:
        """Return how many classes there are, where the observations show it."""
        if self.aggregate.has_class_columns and self.labels is None and self.z.ndim >= 2:
            return int(self.z.shape[1])
        return self.aggregate.n_classes

    def observations(self, classes: np.ndarray) -> Observations:
        """Return the set as training takes it, with classes by their numbers."""
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
        z = self.z if self.columns is None else self.z[:, order]
        if self.labels is not None:
            z = torch.nn.functional.one_hot(number_labels(self.labels, classes), len(classes))
        return Observations(self.aggregate, self.groups, z, len(classes), group_weights=self.group_weights)

    def weighted(self, sample_weight: Any, group_weights: Any, sampling: Any, n_rows: int) -> RawObservations:
        """Return the same with weights of groups, given as such, by equal weights of all rows of a group, by answer."""
        given = [] if self.group_weights is None else [self.group_weights]
        if group_weights is not None:
            given.append(read_group_weights(group_weights, self.groups))
        if sample_weight is not None:
            given.append(weights_of_groups(sample_weight, self.groups, n_rows))
        weights = math.prod(given[1:], start=given[0]) if given else None
        if sampling is not None:
            if self.z is None:
                raise ValueError("sampling is by the answers of groups, but y holds labels; give sample_weight instead")
            weights = weights_by_answer(sampling, self.z, weights)
        return replace(self, group_weights=weights, sampling=sampling)


def read_rows(estimator: Any, X: Any, *, reset: bool) -> Rows:
    """Return the rows of a table or of images as a tensor of floats, checked by scikit-learn's rules.

    Whole numbers that float32 cannot hold, and float64, stay float64: scaling takes differences first. Rows on disk are
    checked part by part, and stay there.
    """
    if reset:
        estimator.preparation_ = None
    if isinstance(X, EncodedRows):
        return _read_encoded(estimator, X, reset=reset)
    if isinstance(X, RowSource) and not isinstance(X, Tensor):  # numbers already
        return _read_source(estimator, X, reset=reset)
    if estimator.preparation_ is not None:
        return encode_frame(estimator, X)
    if isinstance(X, Tensor):
        X = (X.float() if X.dtype == torch.bfloat16 else X).numpy(force=True)
    raise_if_masked(X, "X")
    try:
        array = validate_data(estimator, X, reset=reset, dtype="numeric", ensure_all_finite=False, allow_nd=True)
        precise = np.result_type(array.dtype, np.float32).itemsize > 4
        array = np.require(array, np.float64 if precise else np.float32, ["C", "W"])
    except (TypeError, ValueError):
        _refuse_text(X)
        raise
    rows = torch.from_numpy(array)
    _check_row_shape(estimator, tuple(rows.shape[1:]), reset=reset)
    check_finite(rows, getattr(estimator, "feature_names_in_", None), missing=rows.ndim == 2)
    return rows


def _check_row_shape(estimator: Any, shape: tuple[int, ...], *, reset: bool) -> None:
    if reset:
        estimator.input_shape_ = shape
    elif shape != estimator.input_shape_:
        raise ValueError(f"X has rows of shape {shape}, but those of fit had {estimator.input_shape_}")


def _read_encoded(estimator: Any, X: EncodedRows, *, reset: bool) -> Rows:
    rows = X.rows if isinstance(X.rows, Tensor) else _read_source(estimator, X.rows, reset=reset)
    _check_row_shape(estimator, row_shape(rows), reset=reset)
    if reset:
        estimator.preparation_, estimator.n_features_in_ = X.preparation, len(X.preparation.names)
        estimator.feature_names_in_ = np.array(X.preparation.names, dtype=object)
    elif X.preparation != estimator.preparation_:
        raise ValueError(
            "X was encoded in another way than the rows of fit; encode it by the preparation_ of the model"
        )
    return rows


def _read_source(estimator: Any, X: RowSource, *, reset: bool) -> RowSource:
    shape = row_shape(X)
    _check_row_shape(estimator, shape, reset=reset)
    if reset:
        if not is_network(estimator.model):
            raise ValueError(f"{name_of(estimator.model)} needs its rows in memory; for rows on disk, take a network")
        estimator.n_features_in_ = shape[0]
        vars(estimator).pop("feature_names_in_", None)
        for part in TakenRows(X).split(ROWS_AT_ONCE):
            check_finite(part, missing=len(shape) == 1)
    return X


def _refuse_text(X: Any) -> None:
    """Name the columns of an array that hold text or dates, if there are any."""
    columns = np.atleast_2d(np.asarray(X)).T
    texts = [next(filter(_is_text, column.tolist()), None) for column in columns]
    held = torch.tensor([text is not None for text in texts])
    if bool(held.any()):
        first = texts[int(held.nonzero()[0])]
        raise ValueError(
            f"X must hold numbers, but there are values such as {first!r} in {format_indices('column', held)}; hand in "
            "a table of pandas or polars, whose text and dates become numbers, or leave the column out"
        )


def _is_text(value: Any) -> bool:
    """Whether something is no number, but text or a date, rather than text that reads as a number."""
    if not isinstance(value, str):
        return isinstance(value, bytes | date)
    try:
        float(value)
    except ValueError:
        return True
    return False


def read_sets(
    aggregate: Any,
    y: Any,
    groups: Any,
    n_rows: int,
    *,
    sample_weight: Any = None,
    group_weights: Any = None,
    sampling: Any = None,
) -> list[RawObservations]:
    """Return the sets that were seen of a table: one, or as many as there are aggregates in a list."""
    if not isinstance(aggregate, list | tuple):
        one = _read_set(find_aggregate(aggregate), y, groups, n_rows)
        return [one.weighted(sample_weight, group_weights, sampling, n_rows)]
    groups, group_weights, sampling = (
        [None] * len(aggregate) if given is None else given for given in (groups, group_weights, sampling)
    )
    for name, given in (("y", y), ("groups", groups), ("group_weights", group_weights), ("sampling", sampling)):
        if not isinstance(given, list | tuple) or len(given) != len(aggregate):
            got = f"{len(given)} entries" if isinstance(given, list | tuple) else describe(given)
            raise ValueError(
                f"with a list of {len(aggregate)} aggregates, {name} must be a list with an entry for each; got {got}"
            )
    if not aggregate:
        raise ValueError("aggregate is an empty list: there is nothing to learn from")
    sets = [
        _read_set(find_aggregate(one), own_y, own, n_rows) for one, own_y, own in zip(aggregate, y, groups, strict=True)
    ]
    of_sets = zip(sets, group_weights, sampling, strict=True)
    return [one.weighted(sample_weight, own, chosen, n_rows) for one, own, chosen in of_sets]


def _read_set(aggregate: Aggregate, y: Any, groups: Any, n_rows: int) -> RawObservations:
    if isinstance(y, Observations):
        if groups is not None:
            raise ValueError("y is a set of observations, which holds its groups; leave groups= out")
        if repr(y.aggregate) != repr(aggregate):
            raise ValueError(f"y is a set of observations by {y.aggregate!r}, but aggregate is {aggregate!r}")
        check_groups_fit(y.groups, n_rows)
        one = y.to("cpu")
        columns = one.columns if aggregate.has_class_columns else None
        return RawObservations(
            aggregate, one.groups, one.z, group_weights=one.group_weights, checked=one, columns=columns
        )
    columns = None
    if is_target(y):
        if groups is not None:
            raise ValueError("y is a target, which holds its groups; leave groups= out")
        _check_length(y, n_rows)
        columns = columns_of_target(y)
        groups, y = read_target(y)
    elif groups is None:
        labels = _read_labels_of_rows(aggregate, y, n_rows)
        return RawObservations(aggregate, Groups.from_sizes(torch.ones(n_rows, dtype=torch.int64)), None, labels)
    aggregate.check_sizes(groups)
    check_groups_fit(groups, n_rows)
    groups = groups.to("cpu")
    y = align(y.cpu() if isinstance(y, Tensor) else y, groups.ids, len(groups), "y")
    if aggregate.outcome == "class_counts" and groups.max_size == 1 and np.ndim(y) == 1:
        labels = read_labels(y)
        if len(labels) != len(groups):
            raise ValueError(f"y has {len(labels)} labels for {len(groups)} groups of one row")
        return RawObservations(aggregate, groups, None, labels)
    y, found = split_columns(y, "y")
    columns = (columns or found) if aggregate.has_class_columns else None
    return RawObservations(aggregate, groups, as_tensor(y, "y", groups.device, groups.ids), columns=columns)


def read_labels(y: Any) -> np.ndarray:
    """Return plain labels of any type, checked by scikit-learn's rules."""
    if y is None:
        raise ValueError("AggregateClassifier requires y to be passed, but the target y is None")
    raise_if_masked(y, "y")
    labels = column_or_1d(y.numpy(force=True) if isinstance(y, Tensor) else y, warn=True)
    assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    return labels


def choose_classes(
    classes: Any, n_classes: int | None, sets: Sequence[RawObservations], class_shares: Any = None
) -> np.ndarray:
    """Return the names of the classes: those given, those of columns or labels, or numbers from 0 on."""
    names = None if classes is None else _as_names(classes)
    by_source = [("n_classes", None if n_classes is None else check_n_classes(n_classes))]
    by_source += [("classes", None if names is None else check_n_classes(len(names)))]
    by_source += [("class_shares", count_shares(class_shares))]
    by_source += [(type(one.aggregate).__name__, one.tells_n_classes()) for one in sets]
    counts = [(count, name) for name, count in by_source if count is not None]
    if len({count for count, _ in counts}) > 1:
        numbers = ", ".join(f"{count} by {name}" for count, name in counts)
        raise ValueError(f"the number of classes is told in different ways: {numbers}")
    count = counts[0][0] if counts else None
    if names is not None:
        return names
    if columns := next((one.columns for one in sets if one.columns is not None), None):
        return _as_names(sorted(columns) if is_numbering(columns) else columns)
    labels = [one.labels for one in sets if one.labels is not None]
    if labels:
        return _classes_of_labels(np.unique(np.concatenate(labels)), count)
    if count is None:
        raise ValueError(
            f"{type(sets[0].aggregate).__name__} does not tell how many classes there are; give n_classes=, or their "
            "names with classes="
        )
    return np.arange(count)


def number_labels(labels: np.ndarray, classes: np.ndarray) -> Tensor:
    """Return the place of each label among the classes, or name those that are none of them.

    Examples
    --------
    >>> number_labels(np.array(["b", "a"]), np.array(["a", "b", "c"]))
    tensor([1, 0])
    """
    place = {name: number for number, name in enumerate(classes.tolist())}
    distinct, which = np.unique(labels, return_inverse=True)
    if unknown := [name for name in distinct.tolist() if name not in place]:
        shown = ", ".join(map(repr, unknown[:3])) + (" and more" if len(unknown) > 3 else "")
        raise ValueError(f"the label {shown} is none of the classes {classes.tolist()}")
    return torch.tensor([place[name] for name in distinct.tolist()])[torch.from_numpy(which)]


def _classes_of_labels(distinct: np.ndarray, count: int | None) -> np.ndarray:
    if count is None or len(distinct) == count:
        if len(distinct) < 2:
            raise ValueError(f"y holds one class only, {distinct.tolist()[0]!r}; at least 2 are needed to learn from")
        return distinct
    if distinct.dtype.kind in "iu" and distinct.min() >= 0 and distinct.max() < count:
        return np.arange(count)
    raise ValueError(
        f"y holds {len(distinct)} classes, {distinct[:10].tolist()}, but there are {count}; name them all with classes="
    )


def _as_names(classes: Any) -> np.ndarray:
    names = list(classes.tolist() if hasattr(classes, "tolist") else classes)
    if len(set(names)) != len(names):
        raise ValueError(f"classes must differ from each other, got {names}")
    if len({type(name) for name in names}) == 1 and isinstance(names[0], str | int | float):
        return np.array(names)
    array = np.empty(len(names), dtype=object)  # numpy would turn 1 and "1" into two equal strings
    array[:] = names
    return array


def _read_labels_of_rows(aggregate: Aggregate, y: Any, n_rows: int) -> np.ndarray:
    if aggregate.outcome != "class_counts":
        raise ValueError(
            f"y holds no groups, but {type(aggregate).__name__} observes groups: use fit(X, z, groups=groups) or "
            "fit(X, unbag.target(ids, z)); scikit-learn gives groups= to splitters, not to fit; to learn from plain "
            "labels, leave aggregate='label_proportions'"
        )
    if y is not None:
        _check_length(y, n_rows)
    return read_labels(y)


def _check_length(y: Any, n_rows: int) -> None:
    if (given := len(y) if hasattr(y, "__len__") else n_rows) != n_rows:
        raise ValueError(
            f"y has {given} entries for {n_rows} rows of X; where y holds observations of groups, hand in "
            "groups=groups as well, or unbag.target(ids, z), which has one entry per row"
        )


def check_groups_fit(groups: Groups, n_rows: int) -> None:
    """Refuse groups of other rows than there are."""
    if groups.n_rows is not None and groups.n_rows != n_rows:
        raise ValueError(f"X has {n_rows} rows, but the groups were made for {groups.n_rows}")
    if groups.last_row >= n_rows:
        beyond = groups.format_groups_holding(groups.members >= n_rows)
        raise ValueError(f"row number {groups.last_row} is out of range for X of {n_rows} rows; see {beyond}")
