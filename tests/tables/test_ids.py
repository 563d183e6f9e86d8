"""Ids of two files."""

import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbag._utils.problems import TableError
from unbag.data.columns import Table
from unbag.tables.ids import find, find_similar, repeated, shared_keys


def match(left, right):
    first, second = Table(Path("left"), pa.table({"id": left})), Table(Path("right"), pa.table({"id": right}))
    ours, (theirs,), notes = shared_keys(first, "id", second, ["id"])
    return find(ours, theirs).tolist(), [str(note) for note in notes]


keys = st.lists(st.none() | st.integers(-3, 3), max_size=9)


@given(keys)
def test_repetitions_are_those_of_a_set(values):
    seen, expected = set(), []
    for value in values:
        expected.append(value is not None and value in seen)
        seen.add(value)
    assert repeated(pa.array(values, pa.int64())).tolist() == expected


@given(keys, st.lists(st.integers(-3, 3), unique=True, max_size=5), st.booleans())
def test_places_are_those_of_a_list(values, among, as_text):
    kind = pa.string() if as_text else pa.int64()
    found = find(pa.array(values, pa.int64()).cast(kind), pa.array(among, pa.int64()).cast(kind))
    assert found.tolist() == [among.index(value) if value in among else -1 for value in values]


def test_ids_of_different_types_are_compared_as_text():
    assert match([1, 2], [2, 1]) == ([1, 0], [])
    assert match(pa.array([1, 2], pa.int8()), pa.array([2, 1], pa.uint16())) == ([1, 0], [])
    note = "these ids are text, but numbers in right; they are compared as text"
    assert match(["1", "2"], [2, 1]) == ([1, 0], [f"left, column id: {note}"])
    assert match([1, 2], ["2", "1"])[0] == [1, 0]
    assert match([1.0, float("nan"), None], [1])[0] == [0, -1, -1]
    assert match([datetime.date(2020, 1, 2)], ["2020-01-02"])[0] == [0]
    assert match(pa.array([1, 2**63 + 5], pa.uint64()), [1, str(2**63 + 5)][1:])[0] == [-1, 0]
    assert match(pa.array([1, 2**63 + 5], pa.uint64()), [2, 1])[0] == [1, -1]
    for text in ("01", "1.0", "a", " 1", "9" * 30):
        assert match([1], [text])[0] == [-1]


def test_ids_that_cannot_be_compared():
    for left, right, sentence in (
        ([None, None], ["a"], "all ids are missing"),
        ([1.5], [1], r"row 1, column id: 1\.5 is not an id"),
        ([1e300], [1], "1e[+]300 is not an id"),
        ([True], [1], "ids of type bool cannot be compared"),
    ):
        with pytest.raises(TableError, match=sentence):
            match(left, right)


def test_spellings_that_may_mean_the_same():
    known = pa.array(["7", "north"])
    for spelling, meant in (("007", "7"), ("7.0", "7"), (" 7", "7"), ("North ", "north")):
        assert find_similar(pa.scalar(spelling), known).startswith(f"{spelling!r} here may be {meant!r} there")
    assert find_similar(pa.scalar("south"), known) is None
    assert find_similar(pa.scalar(7), pa.array([7])) is None
