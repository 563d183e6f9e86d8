"""Bags as a list of arrays: the rows of all bags one after the other, and the bags as groups of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from unbag.data.groups import Groups


def is_list_of_bags(X: Any) -> bool:
    """Return whether an object is a list of tables in memory, each with the rows of a bag."""
    return isinstance(X, list | tuple) and len(X) > 0 and all(_is_table(bag) for bag in X)


def join_bags(bags: list[Any]) -> tuple[np.ndarray, Groups]:
    """Return the rows of all bags and the bags as groups; raise an error if they have different columns or no rows."""
    tables = [bag.numpy(force=True) if isinstance(bag, Tensor) else bag for bag in bags]
    for number, table in enumerate(tables):
        if len(table) == 0:
            raise ValueError(f"bag {number} of X has no rows; leave out empty bags and their labels")
        if table.shape[1] != tables[0].shape[1]:
            raise ValueError(
                f"the bags of X must have the same columns, but bag {number} has {table.shape[1]} and bag 0 has "
                f"{tables[0].shape[1]}"
            )
    return np.concatenate(tables), Groups.from_sizes([len(table) for table in tables])


def _is_table(bag: Any) -> bool:
    return isinstance(bag, np.ndarray | Tensor) and bag.ndim == 2
