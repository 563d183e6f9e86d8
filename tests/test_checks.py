"""What callers may hand in besides tensors and lists."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unbag import Groups, PairwiseSimilarity
from unbag._utils.checks import as_tensor, check_n_classes, format_indices


class Column:
    """What pandas, polars and pyarrow columns have in common; theirs are often read-only."""

    def to_numpy(self) -> np.ndarray:
        values = np.array([1, 0])
        values.flags.writeable = False
        return values


@pytest.mark.parametrize("value", [[1, 0], (1, 0), np.array([0, 1])[::-1], np.array([True, False]), Column()])
def test_columns_arrays_and_lists_become_tensors(value):
    assert as_tensor(value, "z", torch.device("cpu")).tolist() == [1, 0]
    pairs = Groups.from_sizes([2, 2])
    assert PairwiseSimilarity().log_likelihood(torch.zeros(4, 2), pairs, value).exp().tolist() == pytest.approx(
        [0.5] * 2
    )


def test_a_tensor_is_not_copied():
    z = torch.tensor([1, 0])
    assert as_tensor(z, "z", torch.device("cpu")) is z


def test_a_number_of_classes_may_come_from_numpy():
    assert check_n_classes(np.array([0, 2]).max() + 1) == 3


@pytest.mark.parametrize(
    ("places", "named"),
    [([4], "row 4"), ([1, 2], "rows 1, 2"), ([1, 2, 3], "rows 1, 2, 3"), ([0, 1, 2, 5, 6], "rows 0, 1, 2 and 2 more")],
)
def test_the_first_few_are_named(places, named):
    assert format_indices("row", torch.zeros(7).index_fill(0, torch.tensor(places), 1).bool()) == named
