"""Observations are matched to groups by id, wherever they are handed in; what does not match is refused."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unbag
from unbag import Groups, LabelProportions
from unbag.data.alignment import align, read_per_group
from unbag.training import Observations

IDS = ["b", "b", "c", "a", "a", "c"]
GROUPS = Groups.from_ids(IDS)
COUNTS = pd.DataFrame({"ill": [2, 1, 0], "well": [0, 1, 2]}, index=["a", "b", "c"])
LOGITS = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))

FORMS = {
    "an index": COUNTS.iloc[::-1],
    "an index of categories": COUNTS.set_axis(pd.CategoricalIndex(["a", "b", "c"])).iloc[::-1],
    "nullable numbers": COUNTS.astype("Int64").iloc[[1, 2, 0]],
    "a column of lists": pd.Series([[1, 1], [2, 0], [0, 2]], index=["b", "a", "c"]),
    "a dict of lists": {"c": [0, 2], "a": [2, 0], "b": [1, 1]},
    "a dict of arrays": {"c": np.array([0, 2]), "a": torch.tensor([2, 0]), "b": pd.Series([1, 1])},
    "no index": pd.DataFrame(COUNTS.to_numpy()),
    "polars": pl.DataFrame(COUNTS.to_dict("list")),
}
USES = {
    "log_likelihood": lambda z: LabelProportions().log_likelihood(LOGITS, GROUPS, z),
    "posterior": lambda z: LabelProportions().posterior(LOGITS, GROUPS, z),
    "evidence": lambda z: LabelProportions().evidence(LOGITS, GROUPS, z, impossible="raise").posterior,
    "check": lambda z: LabelProportions().check(z, GROUPS, 2),
    "UnbiasedRisk": lambda z: unbag.UnbiasedRisk(LabelProportions())(LOGITS, GROUPS, z),
    "NegativeLogLikelihood": lambda z: unbag.NegativeLogLikelihood(LabelProportions())(LOGITS, GROUPS, z),
    "Observations": lambda z: Observations(LabelProportions(), GROUPS, z, 2).checked,
    "target": lambda z: torch.from_numpy(np.asarray(unbag.target(IDS, z)["z"])),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("z", FORMS.values(), ids=FORMS)
def test_observations_are_matched_by_id_wherever_they_enter(use, z):
    assert torch.equal(use(z), use(torch.tensor([[2, 0], [1, 1], [0, 2]])))


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize(
    ("z", "message"),
    [
        (
            COUNTS.rename({"a": "x"}),
            r"z must have exactly one entry for each id: 'a' missing, 'x' not among the ids; .* z\.to_numpy\(\)",
        ),
        (COUNTS.iloc[:2], "'c' missing, none not among the ids"),
        (COUNTS.set_axis([0, 1, 2]).iloc[::-1], "'a', 'b', 'c' missing, 2, 1, 0 not among the ids"),
        (COUNTS.loc[["a", "b", "b", "c"]], "the index of z must have each id once, but 'b' is repeated"),
        ({"a": [2, 0], "b": [1, 1]}, "'c' missing, none not among the ids"),
    ],
    ids=["foreign", "missing", "numbers", "repeated", "dict"],
)
def test_other_ids_are_refused_wherever_they_enter(use, z, message):
    with pytest.raises(ValueError, match=message):
        use(z)


def test_a_diagnosis_takes_them_too():
    expected = unbag.diagnose(LabelProportions(), GROUPS, COUNTS.to_numpy(), 2)
    assert unbag.diagnose(LabelProportions(), GROUPS, FORMS["a dict of lists"], 2) == expected
    with pytest.raises(ValueError, match="'a' missing, 'x' not among the ids"):
        unbag.diagnose(LabelProportions(), GROUPS, COUNTS.rename({"a": "x"}), 2)


@given(st.data())
def test_the_order_of_an_index_does_not_matter(data):
    words = st.text("abc1", max_size=3)
    kinds = [st.integers(-9, 9), words, st.floats(-2, 2), st.tuples(st.integers(0, 2), words)]
    ids = data.draw(st.lists(data.draw(st.sampled_from(kinds)), min_size=1, max_size=8))
    names = Groups.from_ids(ids).ids
    z = data.draw(st.permutations(list(enumerate(names))))
    index = pd.Index([name for _, name in z], tupleize_cols=False)
    series = pd.Series([number for number, _ in z], index=index)
    assert unbag.target(ids, series)["z"].tolist() == [names.index(name) for name in ids]
    assert align({name: number for number, name in z}, names, len(names)) == list(range(len(names)))


@pytest.mark.parametrize(
    ("ids", "index"),
    [
        ([1, 2, 10], ["1", "2", "10"]),
        (["1", "2", "10"], [1, 2, 10]),
        (["0", "1", "2"], None),  # what pandas makes by itself, where it might be meant
        (["00", "01", "02"], None),
        ([1, 2, 3], None),
        ([0.5, 1.0, 1.5], None),
    ],
)
def test_an_index_that_could_be_meant_is_never_taken_by_position(ids, index):
    with pytest.raises(ValueError, match=r"missing, .* not among the ids"):
        read_per_group(pd.Series([7, 8, 9], index=index), Groups.from_ids(ids))


@pytest.mark.parametrize(
    "ids", [["x", "y", "z"], [100, 200, 300], [-3, -2, -1], ["u0", "u1", "u2"], [0, 1, 2], [0.0, 1.0, 2.0]]
)
def test_an_index_that_pandas_makes_by_itself_is_none(ids):
    assert read_per_group(pd.Series([7, 8, 9]), Groups.from_ids(ids)).tolist() == [7, 8, 9]
    assert read_per_group(pd.Series([7, 8, 9], index=ids), Groups.from_ids(ids)).tolist() == [7, 8, 9]


def test_an_index_with_a_name_was_meant():
    index = pd.RangeIndex(3, name="ward")
    with pytest.raises(ValueError, match="'x', 'y', 'z' missing, 0, 1, 2 not among the ids"):
        read_per_group(pd.Series([7, 8, 9], index=index), Groups.from_ids(["x", "y", "z"]))


@pytest.mark.parametrize("index", [[1.0, 3.0, 2.0], np.array([1, 3, 2], dtype=np.int8), [True, 3, 2]])
def test_numbers_are_the_same_in_any_type(index):
    assert read_per_group(pd.Series([7, 8, 9], index=index), Groups.from_ids([1, 2, 3])).tolist() == [7, 9, 8]


def test_dates_are_matched():
    days = pd.to_datetime(["2023-02-01", "2023-01-01"])
    assert unbag.target(days, pd.Series([0, 1], index=days))["z"].tolist() == [0, 1]
    assert unbag.target(days, {days[1]: 1, days[0]: 0})["z"].tolist() == [0, 1]


def test_groups_without_ids_have_numbers():
    pairs = Groups.from_tuples([[0, 1], [1, 2]])
    assert read_per_group({1: 7, 0: 8}, pairs).tolist() == [8, 7]
    # An index belongs to the table that the pairs were made from too.
    assert read_per_group(pd.Series([7, 8], index=[5, 3]), pairs).tolist() == [7, 8]
    with pytest.raises(ValueError, match="0, 1 missing, 'a', 'b' not among the ids"):
        read_per_group({"a": 7, "b": 8}, pairs)


def test_the_index_of_sizes_and_tuples_is_ids():
    table = pd.DataFrame({"first": [0, 1, 2], "second": [1, 2, 0], "same": [7, 8, 9]}, index=[5, 3, 4])
    pairs = Groups.from_tuples(table[["first", "second"]])
    assert pairs.ids == [5, 3, 4]
    assert read_per_group(table["same"].sort_index(), pairs).tolist() == [7, 8, 9]
    sizes = pd.Series(["b", "a", "b"]).value_counts()
    wards = Groups.from_sizes(sizes)
    assert wards.ids == ["b", "a"]
    assert read_per_group(pd.Series({"a": 7, "b": 8}), wards).tolist() == [8, 7]
    for without in (table.reset_index(drop=True), table.set_axis([5, 5, 4])):
        assert Groups.from_tuples(without[["first", "second"]]).ids is None


@pytest.mark.parametrize(
    "z",
    [
        np.ma.array([[2, 0], [1, 1], [0, 2]], mask=[[0, 0], [0, 1], [0, 0]]),
        [[2, 0], np.ma.array([1, 1], mask=[False, True]), [0, 2]],
        COUNTS.astype("Int64").mask(COUNTS == 1),
        {"a": [2, 0], "b": [1, None], "c": [0, 2]},
    ],
    ids=["masked array", "masked rows", "pandas NA", "None"],
)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_masked_and_missing_entries_are_refused_wherever_they_enter(use, z):
    with pytest.raises(
        (ValueError, TypeError), match=r"z has no value at place 1 \(id 'b'\)|z cannot be made into a tensor"
    ):
        use(z)


@pytest.mark.parametrize(
    "ids",
    [
        np.ma.array([1, 2, 3], mask=[False, True, False]),
        np.ma.array(["a", "b", "c"], mask=[False, True, False]),
        pd.Series([1, None, 3], dtype="Int64"),
        pd.Series(["a", None, "c"], dtype="string"),
        pd.Series(pd.to_datetime(["2023-01-01", None, "2023-01-02"])),
        pl.Series(["a", None, "c"]),
    ],
    ids=["masked numbers", "masked text", "Int64", "string", "dates", "polars"],
)
def test_masked_and_missing_ids_are_refused(ids):
    for use in (Groups.from_ids, lambda ids: unbag.target(ids, [1, 0, 1])):
        with pytest.raises(ValueError, match="ids has no value for row 1; give each row a group, or leave the row out"):
            use(ids)


@pytest.mark.parametrize("make", [Groups.from_sizes, lambda sizes: Groups.from_tuples(sizes.reshape(-1, 1))])
def test_masked_sizes_and_tuples_are_refused(make):
    with pytest.raises(ValueError, match=r"(sizes|tuples) has no value at place 1"):
        make(np.ma.array([1, 2, 3], mask=[False, True, False]))


def test_masked_arrays_without_masked_entries_are_arrays():
    z = np.ma.array([[2, 0], [1, 1], [0, 2]])
    assert USES["check"](z).tolist() == COUNTS.to_numpy().tolist()
