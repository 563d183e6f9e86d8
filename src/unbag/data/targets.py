"""Groups and their observations as one row per instance, the form in which scikit-learn slices and hands them on.

scikit-learn takes ``y`` apart by rows, and gives ``groups=`` to the splitter alone, never to ``fit``. A target carries
both in ``y`` itself, with enough beside them to notice a split that went through a group.

- ``cross_validate``, ``GridSearchCV`` and the like need a splitter that keeps groups whole (``GroupKFold``,
  ``GroupShuffleSplit``, ``LeaveOneGroupOut``, or a list of splits made by one of them), and ``groups=ids``. A search
  inside ``cross_validate`` gets its own by ``params={"groups": ids}``.
- ``KFold``, ``ShuffleSplit``, ``train_test_split``, ``HalvingGridSearchCV`` and ``learning_curve`` split by rows,
  whatever ``groups=`` says. :func:`read_target` refuses what they leave of the groups.
- What looks for classes in ``y`` cannot read a target, and :class:`Target` says so: a number as ``cv``, which would
  mean ``StratifiedKFold``, and scores of labels by name, such as "accuracy". Where scikit-learn makes a plain array of
  ``y`` first, it takes every row for a class of its own: ``StratifiedKFold()`` itself says "n_splits=5 cannot be
  greater than the number of members in each class". Some replace each row by a number, which ``fit`` refuses:
  ``cross_val_predict(method="predict_proba")``, ``BaggingClassifier``, ``OneVsOneClassifier``.
- ``permutation_test_score`` with ``groups=`` shuffles inside groups, where all share one observation: it tests nothing.
"""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag._utils.checks import as_numbers, describe, format_indices
from unbag.data.alignment import align, split_columns
from unbag.data.groups import Groups
from unbag.data.ids import number_ids

FIELDS = ("group", "size", "place", "z")

ONE = "where targets were joined, make one of all ids together: each numbers its groups from 0"


class Target(np.ndarray):
    """What :func:`target` returns: an array of rows that are no labels, and that says so where labels are looked for.

    scikit-learn looks whether ``y`` can be made into an array just before it looks for classes in it.
    """

    @property
    def __array__(self) -> Any:
        if self.dtype.names != FIELDS:  # one of the fields
            return super().__array__
        raise TypeError(
            "y is what unbag.target returns, which holds groups and their observations, and no labels to stratify or "
            "score by; split by group, with cv=GroupKFold() or GroupShuffleSplit() and groups=ids, and leave scoring= "
            "out: the score is then the log-likelihood of held-out groups"
        )


def target(ids: Any, z: Any) -> np.ndarray:
    """Make a ``y`` for scikit-learn that holds groups and their observations, one row per instance.

    Parameters
    ----------
    ids
        What the group of each row is called, one id per row, in any order. Groups that share rows, as pairs and
        triplets often do, do not fit in here: they go to ``fit(X, z, groups=groups)``.
    z
        One observation per group, a number or as many numbers for each: a dict from id to observation, or a table or
        column of pandas with the ids as its index, in any order; or, without ids of their own, in the order of
        ``sorted(set(ids))``. The index 0, 1, 2, ... that pandas makes by itself counts as none, unless an id is one of
        these numbers. The names of the columns of a table go along with the target, for ``fit`` and ``score`` to match
        them with the names of the classes.

    Returns
    -------
    ndarray
        One row per id: ``group``, its number in ``sorted(set(ids))``; ``size``, how many rows the group has; ``place``,
        which of them this is; and ``z``, the observation of the group.

    Examples
    --------
    >>> y = target(["b", "a", "b"], {"a": 1, "b": 0})
    >>> y["group"].tolist(), y["size"].tolist(), y["place"].tolist(), y["z"].tolist()
    ([1, 0, 1], [2, 1, 2], [0, 0, 1], [0, 1, 0])
    """
    if isinstance(ids, Groups) or getattr(ids, "ndim", 1) != 1:
        raise TypeError(
            f"ids must hold one id per row, got {_describe(ids)}; groups that share rows, as pairs and triplets "
            "often do, cannot be written row by row: use fit(X, z, groups=groups)"
        )
    names, number = number_ids(ids)
    group = number.cpu().numpy()
    observed, columns = _per_group(z, names)
    size = np.bincount(group, minlength=len(names))  # (groups,)
    # A title stays with a field however an array is sliced, copied, pickled or saved.
    z_name = "z" if columns is None else (repr(columns), "z")
    fields = [*((name, np.int64) for name in FIELDS[:3]), (z_name, observed.dtype, observed.shape[1:])]
    y = np.empty(len(group), fields).view(Target)
    y["group"], y["size"], y["z"] = group, size[group], observed[group]
    in_order = np.argsort(group, kind="stable")
    y["place"][in_order] = np.arange(len(group)) - np.repeat(size.cumsum() - size, size)
    return y


def is_target(y: Any) -> bool:
    """Whether something is rows of what :func:`target` returns.

    Examples
    --------
    >>> is_target(target([0, 0], [1])), is_target(np.zeros(2))
    (True, False)
    """
    return isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.names == FIELDS


def columns_of_target(y: np.ndarray) -> list[Any] | None:
    """Return the names of the columns of the observations in a target; None where they have none.

    Examples
    --------
    >>> columns_of_target(target([0, 0], [{"ill": 0, "well": 2}])[:1])
    ['ill', 'well']
    """
    assert y.dtype.fields is not None
    title = y.dtype.fields["z"][2:]
    return ast.literal_eval(title[0]) if title else None


def read_target(y: Any) -> tuple[Groups, np.ndarray]:
    """Return the groups in rows of a target, and one observation per group; refuse groups that are not whole.

    Row numbers are places in ``y``. Members come in the order that they had when the target was made, whatever the
    order of the rows; groups come in the order of their numbers, and are called by them.

    Examples
    --------
    >>> y = target(["b", "a", "b", "c"], [1, 0, 1])
    >>> groups, z = read_target(y[[2, 3, 0]])
    >>> groups.members.tolist(), groups.offsets.tolist(), groups.ids, z.tolist()
    ([2, 0, 1], [0, 2, 3], [1, 2], [0, 1])
    """
    if not is_target(y):
        raise TypeError(f"y must be rows of what unbag.target returns, got {_describe(y)}")
    y = np.asarray(y)
    if len(y) == 0:
        raise ValueError("y has no rows: there are no groups in it")
    members = np.lexsort((y["place"], y["group"]))  # by group, and inside it by place
    rows = y[members]
    numbers, start, count = np.unique(rows["group"], return_index=True, return_counts=True)
    _refuse_mixed(rows, start, count)
    _refuse_repeated(rows, start)
    _refuse_parts(rows[start], count)
    offsets = torch.from_numpy(np.append(start, len(rows)))
    groups = Groups(torch.from_numpy(members), offsets, n_rows=len(y), ids=numbers.tolist())
    return groups, rows["z"][start]


def _refuse_mixed(rows: np.ndarray, start: np.ndarray, count: np.ndarray) -> None:
    first = rows[np.repeat(start, count)]  # for every row, the first of its group
    differ = (rows["z"] != first["z"]).reshape(len(rows), -1).any(1) | (rows["size"] != first["size"])
    if differ.any():
        raise ValueError(
            "rows of one group must agree in z and size, but those of "
            f"{_name_groups(rows, start, differ)} do not; {ONE}"
        )


def _refuse_repeated(rows: np.ndarray, start: np.ndarray) -> None:
    again = np.append(False, (np.diff(rows["group"]) == 0) & (np.diff(rows["place"]) == 0))
    if again.any():
        raise ValueError(
            f"each row must occur once, but {again.sum()} of {len(rows)} are repetitions, in "
            f"{_name_groups(rows, start, again)}; draw whole groups, not rows with replacement; {ONE}"
        )


def _refuse_parts(first: np.ndarray, count: np.ndarray) -> None:
    """Refuse what a split by rows leaves of groups, because an observation is one of the whole group."""
    partial = count != first["size"]
    if partial.any():
        one = int(partial.argmax())
        raise ValueError(
            f"groups must be whole, but of {_name_groups(first, np.arange(len(first)), partial)} only a part is here: "
            f"{count[one]} of {first['size'][one]} rows of group {first['group'][one]}; "
            "split by group, with cv=GroupKFold() or GroupShuffleSplit() and groups=ids"
        )


def _name_groups(rows: np.ndarray, start: np.ndarray, flags: np.ndarray) -> str:
    """Name the groups that hold a flagged row, by their numbers in the whole target."""
    holding = np.logical_or.reduceat(flags, start)
    return format_indices("group", torch.from_numpy(holding), lambda place: str(rows["group"][start[place]]))


def _per_group(z: Any, names: list[Any]) -> tuple[np.ndarray, list[Any] | None]:
    """Return the observations in the order of the names of their groups, and the names of their columns."""
    z, columns = split_columns(align(z, names, len(names)))
    observed = z.numpy(force=True) if isinstance(z, Tensor) else as_numbers(z, "z", names)
    if observed.dtype.kind not in "biuf":
        words = [f", among them {str(one)!r}" for one in observed.flat if not str(one).isnumeric()]
        raise TypeError(
            f"z must be numbers, got {_describe(observed)}{words[0] if words else ''}; make ids the index of a table, "
            "write yes and no as 1 and 0, and read counts such as '<5' with unbag.read_tables"
        )
    if observed.ndim == 0 or len(observed) != len(names):
        raise ValueError(
            f"z must have one observation per group, {len(names)} in all; got shape {observed.shape}; "
            "from one observation per row, make a dict with dict(zip(ids, z))"
        )
    if (missing := np.isnan(observed).reshape(len(names), -1).any(1)).any():
        named = format_indices("group", torch.from_numpy(missing), lambda place: f"{place} (id {names[place]!r})")
        raise ValueError(f"z is NaN for {named}; leave the rows of groups without an observation out")
    return observed, columns


def _describe(value: Any) -> str:
    return f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else describe(value)
