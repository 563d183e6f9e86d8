"""Groups as batches of a DataLoader: each once an epoch, whole, and in an order that can be drawn again."""

from itertools import chain, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset

from unbag import Groups, PairwiseSimilarity, UnbiasedRisk
from unbag.training import GroupCollator, GroupSampler

SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=12)


def load(X, groups, z, max_rows=8, **options):
    sampler = GroupSampler(groups, max_rows, seed=3)
    return DataLoader(range(len(groups)), batch_sampler=sampler, collate_fn=GroupCollator(X, groups, z), **options)


@given(sizes=SIZES, max_rows=st.integers(1, 9), shuffle=st.booleans(), seed=st.integers(0, 99))
def test_every_group_comes_once_an_epoch_in_batches_of_so_many_rows(sizes, max_rows, shuffle, seed):
    sampler = GroupSampler(Groups.from_sizes(sizes), max_rows, shuffle=shuffle, seed=seed)
    for _ in range(2):
        expected = len(sampler)
        batches = list(sampler)
        assert len(batches) == expected
        assert sorted(chain(*batches)) == list(range(len(sizes)))
        assert all(sum(sizes[group] for group in batch) <= max_rows or len(batch) == 1 for batch in batches)
        for one, after in pairwise(batches):  # none could have taken another group
            assert sum(sizes[group] for group in [*one, after[0]]) > max_rows


def test_the_order_follows_from_the_seed_and_the_epoch():
    def epochs(seed, shuffle=True):
        sampler = GroupSampler(Groups.from_sizes([2] * 30), 6, shuffle=shuffle, seed=seed)
        return [list(sampler) for _ in range(3)]

    assert epochs(0) == epochs(0)
    assert len({str(epoch) for seed in (0, 1, 2) for epoch in epochs(seed)}) == 9
    assert epochs(0, shuffle=False)[2] == [[first, first + 1, first + 2] for first in range(0, 30, 3)]
    again = GroupSampler(Groups.from_sizes([2] * 30), 6)
    again.epoch = 2
    assert list(again) == epochs(0)[2]


@given(data=st.data(), max_rows=st.integers(1, 9))
def test_a_batch_holds_the_rows_of_its_groups_and_what_was_seen_of_them(data, max_rows):
    members = data.draw(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1, max_size=8))
    offsets = np.cumsum([0, *map(len, members)])
    groups = Groups.from_offsets(offsets, list(chain(*members)))
    X = torch.arange(20.0).view(10, 2)
    for batch in load(X, groups, torch.arange(len(groups)) * 10, max_rows):
        assert batch.z.tolist() == [10 * group for group in batch.numbers.tolist()]
        assert len(batch.X) == batch.groups.n_rows == len(batch.X.unique(dim=0))  # each row once
        found = batch.X[batch.groups.members].split(batch.groups.sizes.tolist())
        for group, rows in zip(batch.numbers.tolist(), found, strict=True):
            assert torch.equal(rows, X[members[group]])


class Squares(Dataset):
    """Rows that are made when they are asked for, with something else beside them."""

    def __len__(self):
        return 10

    def __getitem__(self, row):
        return torch.tensor([row, row**2]), f"row {row}"


@pytest.mark.parametrize("workers", [0, 1])
def test_rows_may_come_from_a_dataset_and_from_a_worker(workers):
    groups = Groups.from_tuples([[0, 9], [9, 3], [4, 4]])
    seen = {}
    for batch in load(Squares(), groups, [1, 0, 1], 4, num_workers=workers):
        numbers, names = batch.X
        assert list(names) == [f"row {row}" for row in numbers[:, 0].tolist()]
        for group, pair in zip(batch.numbers.tolist(), batch.groups.to_tuples(), strict=True):
            seen[group] = numbers[pair].tolist()
    assert seen == {0: [[0, 0], [9, 81]], 1: [[9, 81], [3, 9]], 2: [[4, 16], [4, 16]]}


def test_arrays_and_observations_by_id_are_taken_and_errors_name_the_id():
    groups = Groups.from_ids(["b", "a", "b", "a"])
    X = np.eye(4, dtype=np.float32)
    (batch,) = load(X, groups, {"b": 1, "a": 0})
    assert torch.equal(batch.X, torch.eye(4))
    assert [groups.ids[group] for group in batch.numbers.tolist()] == batch.groups.ids
    risk = UnbiasedRisk(PairwiseSimilarity())(torch.zeros(4, 2), batch.groups, batch.z)
    assert torch.isfinite(risk)
    (batch,) = load(X, groups, {"b": 7, "a": 0})
    with pytest.raises(ValueError, match="id 'b'"):
        UnbiasedRisk(PairwiseSimilarity())(torch.zeros(4, 2), batch.groups, batch.z)


def test_what_does_not_fit_is_refused():
    groups = Groups.from_sizes([2, 2])
    with pytest.raises(ValueError, match="max_rows must be at least 1, got 0"):
        GroupSampler(groups, 0)
    with pytest.raises(ValueError, match="seed must not be negative, got -1"):
        GroupSampler(groups, 8, seed=-1)
    with pytest.raises(ValueError, match="one observation for each of 2 groups, got 3"):
        GroupCollator(torch.zeros(4, 1), groups, [1, 0, 1])
    with pytest.raises(ValueError, match="X has 3 rows, but the groups were made for 4"):
        GroupCollator(torch.zeros(3, 1), groups, [1, 0])
    with pytest.raises(ValueError, match="X is on meta, but the groups are on cpu"):
        GroupCollator(torch.zeros(4, 1, device="meta"), groups, [1, 0])
