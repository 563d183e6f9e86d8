"""Groups and their observations as one row per instance, the form that scikit-learn can split.

scikit-learn splits ``y`` by rows and passes ``groups=`` to the splitter only, never to ``fit``. A target stores the
group, the observation and the size of the group in every row, so that :func:`read_target` rejects groups that a split
by rows has left incomplete. Splitters that keep groups whole, such as ``GroupKFold``, need ``groups=ids``; a search
inside ``cross_validate`` receives them by ``params={"groups": ids}``.
"""

import ast
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag._utils.checks import as_numbers, describe, format_indices
from unbag.data.alignment import align, split_columns
from unbag.data.groups import Groups, number_ids

FIELDS = ("group", "size", "place", "z")

CONCATENATED = "if targets were concatenated, make one target from all ids: each target numbers its groups from 0"


class Target(np.ndarray):
    """The array that :func:`target` returns; conversion to an array of labels raises an error with an explanation.

    scikit-learn checks whether ``y`` can be converted to an array just before it looks for classes in it.
    """

    @property
    def __array__(self) -> Any:
        if self.dtype.names != FIELDS:  # a single field
            return super().__array__
        raise TypeError(
            "y is a target made by unbag.target, which holds groups and their observations and no labels to stratify "
            "or score by; split by group, with cv=GroupKFold() or GroupShuffleSplit() and groups=ids, and omit "
            "scoring=: the score is then the log-likelihood of held-out groups"
        )


def target(ids: Any, z: Any) -> np.ndarray:
    """Make a ``y`` for scikit-learn that holds groups and their observations, one row per instance.

    Parameters
    ----------
    ids
        The id of the group of each row, in any order. Groups that share rows, as pairs and triplets often do, have no
        such form: pass them to ``fit(X, z, groups=groups)``.
    z
        One observation per group, a number or a row of numbers: a dict from id to observation, a pandas object with the
        ids as its index, or values in the order of ``sorted(set(ids))``. The default index of pandas, 0, 1, 2, ..., is
        ignored unless an id is one of its numbers. Names of columns are matched with the classes by ``fit``.

    Returns
    -------
    ndarray
        One row per id with the fields ``group``, the number of the group in ``sorted(set(ids))``, ``size``, the number
        of its rows, ``place``, the position of the row in the group, and ``z``, the observation of the group.

    Examples
    --------
    >>> y = target(["b", "a", "b"], {"a": 1, "b": 0})
    >>> y["group"].tolist(), y["size"].tolist(), y["place"].tolist(), y["z"].tolist()
    ([1, 0, 1], [2, 1, 2], [0, 0, 1], [0, 1, 0])
    """
    if isinstance(ids, Groups) or getattr(ids, "ndim", 1) != 1:
        raise TypeError(
            f"ids must hold one id per row, got {_describe(ids)}; groups that share rows, as pairs and triplets often "
            "do, cannot be written row by row: use fit(X, z, groups=groups)"
        )
    names, number = number_ids(ids)
    group = number.cpu().numpy()
    observed, columns = _read_observations(z, names)
    size = np.bincount(group, minlength=len(names))  # (groups,)
    # The title of a field is kept when an array is sliced, copied, pickled or saved.
    z_name = "z" if columns is None else (repr(columns), "z")
    fields = [*((name, np.int64) for name in FIELDS[:3]), (z_name, observed.dtype, observed.shape[1:])]
    y = np.empty(len(group), fields).view(Target)
    y["group"], y["size"], y["z"] = group, size[group], observed[group]
    y["place"][np.argsort(group, kind="stable")] = np.arange(len(group)) - np.repeat(size.cumsum() - size, size)
    return y


def is_target(y: Any) -> bool:
    """Return whether an object consists of rows of a target."""
    return isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.names == FIELDS


def columns_of_target(y: np.ndarray) -> list[Any] | None:
    """Return the names of the columns of the observations; None where they have none."""
    assert y.dtype.fields is not None
    title = y.dtype.fields["z"][2:]
    return ast.literal_eval(title[0]) if title else None


def read_target(y: Any) -> tuple[Groups, np.ndarray]:
    """Return the groups in rows of a target, and one observation per group; raise an error if a group is incomplete.

    Row numbers are positions in ``y``. Members are in the order they had when the target was made, whatever the order
    of the rows. Groups are in the order of their numbers, which are their ids.
    """
    if not is_target(y):
        raise TypeError(f"y must consist of rows of a target made by unbag.target, got {_describe(y)}")
    y = np.asarray(y)
    if len(y) == 0:
        raise ValueError("y has no rows: there are no groups in it")
    members = np.lexsort((y["place"], y["group"]))
    rows = y[members]
    numbers, start, count = np.unique(rows["group"], return_index=True, return_counts=True)
    offsets = torch.from_numpy(np.append(start, len(rows)))
    groups = Groups(torch.from_numpy(members), offsets, n_rows=len(y), ids=numbers.tolist())

    def name_groups(flags: np.ndarray) -> str:
        holding = torch.from_numpy(np.logical_or.reduceat(flags, start))
        return format_indices("group", holding, lambda number: str(numbers[number]))

    first = rows[np.repeat(start, count)]  # the first row of the group of each row
    different = (rows["z"] != first["z"]).reshape(len(rows), -1).any(1) | (rows["size"] != first["size"])
    if different.any():
        raise ValueError(
            f"the rows of a group must have the same z and size, but those of {name_groups(different)} do not; "
            f"{CONCATENATED}"
        )
    repeated = np.append(False, (np.diff(rows["group"]) == 0) & (np.diff(rows["place"]) == 0))
    if repeated.any():
        raise ValueError(
            f"each row must occur once, but {repeated.sum()} of {len(rows)} are repetitions, in "
            f"{name_groups(repeated)}; draw whole groups, not rows with replacement; {CONCATENATED}"
        )
    incomplete = count != (size := rows["size"][start])
    if incomplete.any():
        group = incomplete.argmax()
        raise ValueError(
            f"groups must be whole, but {name_groups(np.repeat(incomplete, count))} are incomplete: {count[group]} of "
            f"{size[group]} rows of group {numbers[group]} are in y; split by group, with cv=GroupKFold() or "
            "GroupShuffleSplit() and groups=ids"
        )
    return groups, rows["z"][start]


def _read_observations(z: Any, names: list[Any]) -> tuple[np.ndarray, list[Any] | None]:
    """Return the observations in the order of the ids of their groups, and the names of their columns."""
    z, columns = split_columns(align(z, names, len(names)))
    observed = z.numpy(force=True) if isinstance(z, Tensor) else as_numbers(z, "z", names)
    if observed.dtype.kind not in "biuf":
        text = next((f", for example {str(value)!r}" for value in observed.flat if not str(value).isnumeric()), "")
        raise TypeError(
            f"z must be numbers, got {_describe(observed)}{text}; make ids the index of a table, write yes and no as 1 "
            "and 0, and read counts such as '<5' with unbag.read_tables"
        )
    if observed.ndim == 0 or len(observed) != len(names):
        raise ValueError(
            f"z must have one observation per group, {len(names)} in all; got shape {observed.shape}; "
            "from one observation per row, make a dict with dict(zip(ids, z))"
        )
    if (missing := np.isnan(observed).reshape(len(names), -1).any(1)).any():
        named = format_indices("group", torch.from_numpy(missing), lambda number: f"{number} (id {names[number]!r})")
        raise ValueError(f"z is NaN for {named}; leave out the rows of groups without an observation")
    return observed, columns


def _describe(value: Any) -> str:
    return f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else describe(value)
