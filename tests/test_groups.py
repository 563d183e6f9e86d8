"""Groups: every way to make them, every way back, and what each refuses."""

from datetime import date

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unbag import Groups


class Column:
    """What pandas, polars and pyarrow columns have in common."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def to_numpy(self) -> np.ndarray:
        return self.values


def flat(groups: Groups) -> tuple[list[int], list[int]]:
    return groups.members.tolist(), groups.offsets.tolist()


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        ([7, 3, 7, 5], [3, 5, 7]),
        (["b", "a", "b", "aa"], ["a", "aa", "b"]),
        (iter(("b", "a", "b", "aa")), ["a", "aa", "b"]),
        ([(1, 0), (0, 1), (1, 0), (0, 2)], [(0, 1), (0, 2), (1, 0)]),
        ([date(2023, 2, 1), date(2023, 1, 1), date(2023, 2, 1), date(2023, 1, 2)], None),
        (np.array([7, 3, 7, 5]), [3, 5, 7]),
        (read_only(np.array([7, 3, 7, 5])), [3, 5, 7]),
        (np.array(["b", "a", "b", "aa"]), ["a", "aa", "b"]),
        (np.array(["b", "a", "b", "aa"], dtype=object), ["a", "aa", "b"]),
        (torch.tensor([7, 3, 7, 5]), [3, 5, 7]),
        (torch.tensor([0.7, 0.25, 0.7, 0.5], dtype=torch.float64), [0.25, 0.5, 0.7]),
        (Column(np.array(["b", "a", "b", "aa"], dtype=object)), ["a", "aa", "b"]),
        (Column(read_only(np.array([7, 3, 7, 5]))), [3, 5, 7]),
    ],
)
def test_from_ids_follows_the_sorted_ids(ids, names):
    groups = Groups.from_ids(ids)
    assert flat(groups) == ([1, 3, 0, 2], [0, 1, 2, 4])
    assert groups.n_rows == 4
    if names is not None:
        assert groups.ids == names


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=30) | st.lists(st.text(max_size=2), min_size=1, max_size=30))
def test_from_ids_against_a_loop(ids):
    groups = Groups.from_ids(ids)
    names = sorted(set(ids))
    assert groups.ids == names
    expected = [[row for row, name in enumerate(ids) if name == wanted] for wanted in names]
    assert [part.tolist() for part in groups.members.split(groups.sizes.tolist())] == expected
    assert [names[number] for number in groups.to_ids().tolist()] == ids


@pytest.mark.parametrize("sizes", [[3, 1, 2], (3, 1, 2), np.array([3, 1, 2]), torch.tensor([3, 1, 2]).int()])
def test_from_sizes_takes_consecutive_rows(sizes):
    groups = Groups.from_sizes(sizes)
    assert flat(groups) == ([0, 1, 2, 3, 4, 5], [0, 3, 4, 6])
    assert groups.n_rows == 6
    assert groups.ids is None


@pytest.mark.parametrize(
    "tuples",
    [
        [[4, 0], [0, 4], [2, 2]],
        [(4, 0), (0, 4), (2, 2)],
        np.array([[4, 0], [0, 4], [2, 2]], dtype=np.uint8),
        np.array([[2, 2], [4, 0], [0, 4]])[::-1, ::-1],
        torch.tensor([[4, 0], [0, 4], [2, 2]], dtype=torch.int32),
        Column(read_only(np.array([[4, 0], [0, 4], [2, 2]]))),
    ],
)
def test_from_tuples_keeps_the_order_of_members_and_repeated_rows(tuples):
    groups = Groups.from_tuples(tuples)
    assert flat(groups) == ([4, 0, 0, 4, 2, 2], [0, 2, 4, 6])
    assert groups.n_rows is None


def test_from_offsets_takes_consecutive_rows_or_the_given_ones():
    assert flat(Groups.from_offsets([0, 2, 3])) == ([0, 1, 2], [0, 2, 3])
    assert Groups.from_offsets([0, 2, 3]).n_rows == 3
    groups = Groups.from_offsets([0, 2, 3], members=[5, 1, 5])
    assert flat(groups) == ([5, 1, 5], [0, 2, 3])
    assert groups.n_rows is None


def test_from_mask_counts_the_slots_of_the_whole_batch():
    mask = [[True, False, True], [False, True, False]]
    for given_mask in (mask, np.array(mask), torch.tensor(mask)):
        groups = Groups.from_mask(given_mask)
        assert flat(groups) == ([0, 2, 4], [0, 2, 3])
        assert groups.n_rows == 6


sizes_of_groups = st.lists(st.integers(1, 5), min_size=1, max_size=6)


@given(sizes_of_groups)
def test_round_trip_by_sizes_offsets_and_mask(sizes):
    groups = Groups.from_sizes(sizes)
    assert groups.sizes.tolist() == sizes
    assert flat(Groups.from_offsets(groups.offsets)) == flat(groups)
    assert flat(Groups.from_offsets(groups.offsets, groups.members)) == flat(groups)
    assert flat(Groups.from_ids(groups.to_ids())) == flat(groups)
    mask = groups.to_mask()
    assert mask.shape == (len(sizes), max(sizes))
    assert torch.equal(Groups.from_mask(mask).offsets, groups.offsets)
    assert torch.equal(Groups.from_mask(mask).to_mask(), mask)


@given(st.integers(1, 4).flatmap(lambda m: st.lists(st.lists(st.integers(0, 6), min_size=m, max_size=m), min_size=1)))
def test_round_trip_by_tuples(tuples):
    assert Groups.from_tuples(tuples).to_tuples().tolist() == tuples


@given(sizes_of_groups, st.data())
def test_take_chooses_groups_in_order(sizes, data):
    groups = Groups.from_ids([f"{number:03}" for number, size in enumerate(sizes) for _ in range(size)])
    which = data.draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1))
    taken = groups.take(torch.tensor(which))
    parts = groups.members.split(sizes)
    assert [part.tolist() for part in taken.members.split(taken.sizes.tolist())] == [parts[g].tolist() for g in which]
    assert taken.ids == [groups.ids[g] for g in which]
    assert taken.n_rows == groups.n_rows


def test_take_by_mask_and_from_the_end():
    groups = Groups.from_ids(["c", "a", "b", "a"])
    by_mask = groups.take(torch.tensor([True, False, True]))
    assert (flat(by_mask), by_mask.ids) == (([1, 3, 0], [0, 2, 3]), ["a", "c"])
    assert groups.take(torch.tensor([-1])).ids == ["c"]
    assert Groups.from_sizes([1, 2]).take(torch.tensor([1])).ids is None


def test_to_another_device_keeps_everything_else():
    groups = Groups.from_ids(["b", "a", "b"])
    same = groups.to("cpu")
    assert flat(same) == flat(groups)
    assert (same.n_rows, same.ids, same.name(1)) == (3, ["a", "b"], "1 (id 'b')")
    elsewhere = groups.to(torch.device("meta"))
    assert elsewhere.device == torch.device("meta")
    assert (len(elsewhere), elsewhere.sizes.shape, elsewhere.ids) == (2, (2,), ["a", "b"])


def test_a_name_is_the_number_and_the_id_where_it_differs():
    assert Groups.from_sizes([1, 1]).name(1) == "1"
    groups = Groups.from_ids([0, 1, 7])
    assert [groups.name(group) for group in range(3)] == ["0", "1", "2 (id 7)"]
    assert groups.format_groups_holding(torch.tensor([False, True, True])) == "groups 1, 2 (id 7)"
    assert repr(groups) == "Groups(members=tensor([0, 1, 2]), offsets=tensor([0, 1, 2, 3]), n_rows=3)"  # not all ids


VALUES = {
    "ids is empty: there are no rows to group": lambda: Groups.from_ids([]),
    "ids is empty": lambda: Groups.from_ids(torch.tensor([])),
    r"ids must have one dimension.*got shape \(2, 3\)": lambda: Groups.from_ids(np.zeros((2, 3))),
    r"must have one dimension.*got shape \(2, 3\)": lambda: Groups.from_ids(torch.zeros(2, 3)),
    "ids has no value for rows 1, 2; give each row a group": lambda: Groups.from_ids([1, None, None]),
    "ids has no value for row 1;": lambda: Groups.from_ids(["a", float("nan")]),
    "ids has no value for row 0;": lambda: Groups.from_ids(np.array([np.nan, 1])),
    "ids has no value for row 1; give": lambda: Groups.from_ids(torch.tensor([1, torch.nan])),
    "sizes must be at least 1; this does not hold for groups 1, 2: 0": lambda: Groups.from_sizes([2, 0, -1]),
    "sizes is empty: there are no groups": lambda: Groups.from_sizes([]),
    "tuples is empty": lambda: Groups.from_tuples([[], []]),
    "row number -1 is negative; see group 1": lambda: Groups.from_tuples([[0, 1], [0, -1]]),
    "number 6 is out of range for 6 rows; see gr": lambda: Groups.from_tuples([[0, 1], [5, 6]], n_rows=6),
    "offsets is empty": lambda: Groups.from_offsets([]),
    "there are no groups": lambda: Groups.from_offsets([0]),
    "start at 0 and end at the number of memberships, 3; got 1 and 3": lambda: Groups.from_offsets([1, 3]),
    "number of memberships, 0; got 0 and -1": lambda: Groups.from_offsets([0, -1]),
    "number of memberships, 3; got 0 and 2": lambda: Groups.from_offsets([0, 2], [1, 2, 3]),
    "offsets must increase, but group 1 has no members": lambda: Groups.from_offsets([0, 3, 2]),
    "group 1 has no members; leave out empty groups": lambda: Groups.from_offsets([0, 2, 2, 3]),
    "group 1 has no members": lambda: Groups.from_mask([[True, True], [False, False]]),
    "no groups": lambda: Groups.from_mask(torch.zeros(0, 2).bool()),
    "ids has 2 names for 1 group": lambda: Groups(torch.arange(2), torch.tensor([0, 2]), ids=["a", "b"]),
    "members are on cpu, but offsets are on meta; move one of them": lambda: Groups(
        torch.arange(2), torch.tensor([0, 2], device="meta")
    ),
    "groups of equal size; sizes go from 1 to 2": lambda: Groups.from_sizes([1, 2]).to_tuples(),
    "each row of a known number of rows occurs exactly once": lambda: Groups.from_tuples([[0, 1]]).to_ids(),
    "occurs exactly once": lambda: Groups.from_tuples([[0, 0]], n_rows=2).to_ids(),
    "which selects no groups": lambda: Groups.from_sizes([1]).take(torch.tensor([False])),
}
TYPES = {
    "ids must hold one id per row, got int": lambda: Groups.from_ids(5),
    "ids cannot be sorted: .*convert them to one type": lambda: Groups.from_ids([1, "1"]),
    r"sizes must be a list of whole numbers, got torch.float32 of": lambda: Groups.from_sizes([2.0]),
    "sizes must be a list of whole numbers, got torch.bool": lambda: Groups.from_sizes([True]),
    r"sizes must be a list of whole numbers, got torch.int64 of shape \(\)": lambda: Groups.from_sizes(3),
    "sizes cannot be made into a tensor": lambda: Groups.from_sizes("abc"),
    "tuples cannot be made into a tensor.*lists of equal": lambda: Groups.from_tuples([[0, 1], [2]]),
    "tuples must be a table of whole numbers": lambda: Groups.from_tuples([0, 1]),
    "must be a table of whole numbers": lambda: Groups.from_tuples([[0.0, 1.0]]),
    r"two-dimensional boolean tensor, got torch.int64 of shape \(1, 2\)": lambda: Groups.from_mask([[1, 0]]),
    "two-dimensional boolean tensor": lambda: Groups.from_mask([True]),
    "mask cannot be made into a tensor": lambda: Groups.from_mask([[True], [True, False]]),
    "members must be a one-dimensional int64 tensor, got list": lambda: Groups([0], torch.tensor([0, 1])),
    "offsets must be a one-dimensional int64": lambda: Groups(torch.tensor([0]), torch.tensor([0.0, 1.0])),
}
REFUSED = {
    ValueError: VALUES,
    TypeError: TYPES,
    IndexError: {"index 1 is out of bounds": lambda: Groups.from_sizes([1]).take(torch.tensor([1]))},
    AttributeError: {"cannot assign": lambda: setattr(Groups.from_sizes([1]), "members", torch.tensor([0]))},
}


@pytest.mark.parametrize(("error", "message"), [(error, message) for error in REFUSED for message in REFUSED[error]])
def test_bad_groups(error, message):
    with pytest.raises(error, match=message):
        REFUSED[error][message]()
