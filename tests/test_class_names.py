"""Columns of tables are matched to the names of the classes, or refused; those of arrays are read by position."""

import copy
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import GroupKFold, cross_val_score

import unbag
from unbag import AggregateClassifier, Groups, LabelProportions, noise, published
from unbag.data.alignment import match_columns, read_per_group, split_columns
from unbag.data.targets import columns_of_target
from unbag.training import Observations

RNG = np.random.default_rng(0)
WARDS = [f"w{number:02}" for number in range(30)]
IDS = np.repeat(WARDS, 4)
LABELS = RNG.choice(["ill", "well"], len(IDS), p=[0.3, 0.7])
X = RNG.normal(size=(len(IDS), 2)) + 4 * (LABELS == "ill")[:, None]
COUNTS = pd.crosstab(IDS, LABELS)  # columns ill, well
GROUPS = Groups.from_ids(IDS)
LOGITS = torch.randn(len(IDS), 2, generator=torch.Generator().manual_seed(0))

TABLES = {
    "pandas": lambda table: table,
    "rows in another order": lambda table: table.iloc[::-1],
    "polars": lambda table: pl.DataFrame(table.to_dict("list")),
    "pyarrow": lambda table: pa.table(table.to_dict("list")),
    "dict of rows": lambda table: {ward: table.loc[ward] for ward in table.index},
    "dict of dicts": lambda table: table.to_dict("index"),
    "struct of polars": lambda table: pl.DataFrame(table.to_dict("list")).to_struct("s"),
    "struct of pyarrow": lambda table: pa.array(table.to_dict("records")),
    "column of dicts": lambda table: pd.Series(table.iloc[::-1].to_dict("index")),
    "named tuples": lambda table: [*table.itertuples(index=False)],
    "statements": published.exact,
    "statements from polars": lambda table: published.exact(pl.DataFrame(table.to_dict("list"))),
    "statements from pyarrow": lambda table: published.exact(pa.table(table.to_dict("list"))),
    "statements in another order": lambda table: published.exact(table.iloc[::-1]),
    "suppressed": lambda table: torch.where(
        torch.tensor(table.to_numpy() == 0)[..., None], published.between(0, 0), published.exact(table)
    ),
    "possible members": lambda table: unbag.PossibleMembers().with_chances(table, GROUPS, torch.full((len(IDS),), 0.9)),
}
AGGREGATES = {
    name: "possible_members"
    if name == "possible members"
    else "published_counts"
    if name.startswith(("statements", "suppressed"))
    else "label_proportions"
    for name in TABLES
}


QUICK = {
    "model": "linear",
    "training": unbag.NetworkTraining(5, learning_rate=0.05),
    "validation": unbag.CrossFitting(None, validation_fraction=0),
    "random_state": 0,
}


def fitted(z, aggregate="label_proportions", **options):
    clf = AggregateClassifier(unbag.PossibleMembers() if aggregate == "possible_members" else aggregate, **QUICK)
    return clf.set_params(**options).fit(X, z, groups=GROUPS)


@pytest.mark.parametrize("form", TABLES)
@pytest.mark.parametrize("classes", [None, ["ill", "well"]], ids=["names of columns", "names of classes"])
def test_columns_are_matched_to_the_classes_by_name(form, classes):
    z, turned = TABLES[form](COUNTS[["well", "ill"]]), TABLES[form](COUNTS)
    clf = fitted(z, AGGREGATES[form], classes=classes)
    assert clf.classes_.tolist() == (classes or ["well", "ill"])
    assert (clf.predict(X) == LABELS).mean() > 0.9
    assert clf.score(X, z, groups=GROUPS) == clf.score(X, turned, groups=GROUPS)
    assert np.array_equal(clf.disaggregate(X, z, GROUPS), clf.disaggregate(X, turned, GROUPS))
    assert np.array_equal(clf.predict_groups(X, GROUPS, z), clf.predict_groups(X, GROUPS, turned))


def test_published_counts_keep_the_names_of_their_tables():
    z = COUNTS[["well", "ill"]]
    how = noise.Laplace(1.0)
    for make in (
        published.exact,
        lambda z: published.between(z, z + 1),
        published.between,
        lambda z: published.rounded(z * 5, 5),
        lambda z: published.rounded_share(z / 4, 4, 0.25),
        lambda z: published.noisy(z, how),
        lambda z: published.with_missing(published.exact(z), [0] * len(z), [0.5, 0.5]),
    ):
        assert type(make(z.to_numpy())) is torch.Tensor
        values, columns = split_columns(make(z))
        assert columns == ["well", "ill"]
        assert torch.equal(values, make(z.to_numpy()))
    assert type(published.exact(z)[:3, 0]) is torch.Tensor
    with pytest.raises(
        ValueError, match=r"the same columns in the same order, got \['well', 'ill'\] and \['ill', 'well'\]"
    ):
        published.between(z, COUNTS + 4)
    with pytest.raises(ValueError, match="the same index in the same order"):
        published.between(z, z.iloc[::-1] + 4)


@pytest.mark.parametrize("form", [form for form, aggregate in AGGREGATES.items() if aggregate == "label_proportions"])
def test_targets_keep_the_names_of_every_form(form):
    y, expected = unbag.target(IDS, TABLES[form](COUNTS)), unbag.target(IDS, COUNTS)
    assert columns_of_target(y) == ["ill", "well"]
    assert np.array_equal(y["z"], expected["z"])


SMALL = pd.DataFrame({"well": [4, 30, 200], "ill": [1, 20, 300]}, index=["a", "b", "c"])


def test_operations_on_statements_keep_the_names_or_drop_both():
    z, plain = published.exact(SMALL), published.exact(SMALL.to_numpy())
    mask, order = torch.tensor([True, False, True]), [2, 0, 1]
    for result, expected, index, columns in (
        (z + 0, plain, "abc", ["well", "ill"]),
        (2 * z / 2, plain, "abc", ["well", "ill"]),
        (z[1:], plain[1:], "bc", ["well", "ill"]),
        (z[order], plain[order], "cab", ["well", "ill"]),
        (z[mask], plain[mask], "ac", ["well", "ill"]),
        (z[:, [1, 0]], plain[:, [1, 0]], "abc", ["ill", "well"]),
        (z[1:, [1]], plain[1:, [1]], "bc", ["ill"]),
        (torch.cat([z[2:], z[:2]]), plain[order], "cab", ["well", "ill"]),
        (copy.deepcopy(z), plain, "abc", ["well", "ill"]),
        (pickle.loads(pickle.dumps(z)), plain, "abc", ["well", "ill"]),
    ):
        values, names = split_columns(result)
        assert torch.equal(values, expected)
        assert ([*result.index], names) == ([*index], columns)
    for result in (z[0], z[..., 0], z[order, [0, 1, 0]], z[:, :, :2], z.flip(1), torch.cat([z, z], 1)):
        assert type(result) is torch.Tensor
    for z in (published.exact(pl.DataFrame(SMALL)), published.exact(SMALL.reset_index(drop=True))):
        assert torch.cat([z, z]).index is None
        assert split_columns(torch.cat([z, z])[[0, 4]])[1] == split_columns(z[[0, 1]])[1] == ["well", "ill"]
    assert split_columns(published.exact(pd.DataFrame(SMALL.to_numpy()))[:, [1, 0]])[1] is None
    unnamed = published.exact(SMALL.set_axis(range(2), axis=1))[:, [1, 0]] + 0
    assert ([*unnamed.index], unnamed.columns) == ([*"abc"], None)
    with pytest.raises(ValueError, match="the same columns in the same order"):
        torch.cat([z, z[:, [1, 0]]])
    ids = Groups.from_ids(["a", "b"])
    with pytest.raises(ValueError, match=r"drop the index by z\.index = None if its rows"):
        read_per_group(published.exact(SMALL)[1:], ids)


def test_missing_members_are_matched_by_name():
    expected = published.with_missing(published.exact(SMALL.to_numpy()), [0, 1, 10], [0.7, 0.3])
    members, shares = pd.Series({"c": 10, "b": 1, "a": 0}), pd.Series({"ill": 0.3, "well": 0.7})
    by_group = pd.DataFrame([shares] * 3, index=["c", "b", "a"])
    for some in (members, members.to_dict(), [0, 1, 10]):
        for share in (shares, shares.to_dict(), by_group, pl.DataFrame(by_group), [shares.to_dict()] * 3, [0.7, 0.3]):
            z = published.with_missing(published.exact(SMALL), some, share)
            assert torch.equal(split_columns(z)[0], expected)
    z = published.exact(SMALL.set_axis([0, 1, 2]))
    z = published.with_missing(z, pd.Series({2: 10, 1: 1, 0: 0}), [0.7, 0.3])
    assert torch.equal(split_columns(z)[0], expected)
    for share in (shares.rename({"ill": "sick"}), by_group.rename(columns={"ill": "sick"})):
        with pytest.raises(ValueError, match=r"the columns are \['sick', 'well'\], the classes are \['well', 'ill'\]"):
            published.with_missing(published.exact(SMALL), [0, 1, 10], share)
    with pytest.raises(ValueError, match=r"the columns are \['ill', 'well'\], the classes are \[0, 1\]"):
        published.with_missing(published.exact(SMALL.to_numpy()), [0, 1, 10], shares)
    with pytest.raises(ValueError, match="members must have exactly one entry for each id: 'a' missing"):
        published.with_missing(published.exact(SMALL), members.rename({"a": "d"}), [0.7, 0.3])
    with pytest.raises(ValueError, match="shares must have exactly one entry for each id: 'a' missing"):
        published.with_missing(published.exact(SMALL), members, by_group.rename({"a": "d"}))


def test_sizes_of_rounded_shares_are_matched_by_name():
    sizes = pd.DataFrame({"n": [500, 50, 5]}, index=["c", "b", "a"])
    shares = SMALL.div(SMALL.sum(axis=1), axis=0)
    expected = published.rounded_share(shares.to_numpy(), [[5], [50], [500]], 0.001)
    by_class = pd.DataFrame({"ill": sizes["n"], "well": sizes["n"]})
    for some in (sizes, sizes.iloc[::-1].to_numpy(), by_class):
        assert torch.equal(split_columns(published.rounded_share(shares, some, 0.001))[0], expected)
    assert torch.equal(published.rounded_share(shares["ill"], sizes["n"], 0.001), expected[:, 1])
    by_class["ill"] += 1
    other = published.rounded_share(shares, by_class, 0.25)
    assert torch.equal(
        other, published.rounded_share(shares, by_class.loc[["a", "b", "c"], ["well", "ill"]].to_numpy(), 0.25)
    )
    with pytest.raises(ValueError, match="sizes must have exactly one entry for each id: 'a' missing"):
        published.rounded_share(shares, sizes.rename({"a": "d"}), 0.001)
    with pytest.raises(ValueError, match="the columns of sizes must have the names of the classes"):
        published.rounded_share(shares, by_class.rename(columns={"ill": "sick"}), 0.25)
    with pytest.raises(ValueError, match=r"it is one column with an index; pass sizes.to_frame\(\)"):
        published.rounded_share(shares, sizes["n"], 0.001)


@pytest.mark.parametrize("form", ["struct of polars", "struct of pyarrow", "column of dicts", "named tuples"])
def test_statements_refuse_rows_with_names(form):
    with pytest.raises(ValueError, match="published counts with names must be a table"):
        published.exact(TABLES[form](COUNTS))


@pytest.mark.parametrize("names", [["ill", "healthy"], ["Ill", "Well"], [1, 2]])
def test_other_names_are_refused_with_both_lists(names):
    z = COUNTS.set_axis(names, axis=1)
    clf = fitted(COUNTS)
    for use in (
        lambda: fitted(z, classes=["ill", "well"]),
        lambda: clf.score(X, z, groups=GROUPS),
        lambda: clf.score(X, unbag.target(IDS, z)),
        lambda: clf.disaggregate(X, z, GROUPS),
        lambda: clf.predict_groups(X, GROUPS, z),
    ):
        with pytest.raises(ValueError, match="the columns of y must have the names of the classes") as error:
            use()
        assert f"the columns are {names}, the classes are ['ill', 'well']" in str(error.value)
    with pytest.raises(ValueError, match="the columns of z must have the names of the classes"):
        LabelProportions().log_likelihood(LOGITS, GROUPS, z, classes=["ill", "well"])


def test_arrays_and_numbered_columns_are_in_the_order_of_the_classes():
    values = COUNTS[["well", "ill"]].to_numpy().copy()
    for z in (values, values.tolist(), pd.DataFrame(values), pl.DataFrame(values), torch.from_numpy(values)):
        clf = fitted(z, classes=["well", "ill"])
        assert (clf.predict(X) == LABELS).mean() > 0.9
        assert fitted(z).classes_.tolist() == [0, 1]
    turned = pd.DataFrame(values)[[1, 0]]  # the numbers of the columns, in another order
    assert fitted(turned).classes_.tolist() == [0, 1]
    assert clf.score(X, turned, groups=GROUPS) == clf.score(X, values, groups=GROUPS)


@pytest.mark.parametrize("classes", [["1", "0"], [1, 2], ["2", "1"]])
def test_numbers_of_columns_that_could_be_names_of_classes_are_refused(classes):
    z = COUNTS.set_axis([0, 1], axis=1)
    for y, groups in ((z, GROUPS), (unbag.target(IDS, z), None)):
        with pytest.raises(ValueError, match=r"the columns are \[0, 1\], the classes are") as error:
            AggregateClassifier(model="linear", classes=classes).fit(X, y, groups=groups)
        assert ("the types differ, str and int" in str(error.value)) == isinstance(classes[0], str)
    assert match_columns([0, 1], [1.0, 0.0]) == [1, 0]
    assert match_columns([0, 1], ["well", "ill"]) == [0, 1]


def test_logits_are_matched_where_their_classes_are_named():
    expected = LabelProportions().log_likelihood(LOGITS, GROUPS, COUNTS.to_numpy())
    for use in (LabelProportions().log_likelihood, LabelProportions().posterior):
        right = use(LOGITS, GROUPS, COUNTS.to_numpy())
        assert torch.equal(use(LOGITS, GROUPS, COUNTS[["well", "ill"]], classes=["ill", "well"]), right)
        assert torch.equal(use(LOGITS, GROUPS, COUNTS.to_numpy(), classes=["ill", "well"]), right)
    assert not torch.equal(LabelProportions().log_likelihood(LOGITS, GROUPS, COUNTS[["well", "ill"]]), expected)


def test_names_stay_with_a_target():
    y = unbag.target(IDS, COUNTS[["well", "ill"]])
    clf = fitted(COUNTS)
    expected = clf.score(X, COUNTS, groups=GROUPS)
    order = RNG.permutation(len(y))
    assert clf.score(X[order], y[order]) == pytest.approx(expected, abs=1e-6)
    for same in (y, pickle.loads(pickle.dumps(y)), np.concatenate([y[:20], y[20:]])):
        assert clf.score(X, same) == pytest.approx(expected, abs=1e-6)
    named = AggregateClassifier(**QUICK, classes=["ill", "well"])
    by_group = {"cv": GroupKFold(2), "groups": IDS, "error_score": "raise"}
    scores = cross_val_score(named, X, y, **by_group)
    assert scores.tolist() == cross_val_score(named, X, unbag.target(IDS, COUNTS), **by_group).tolist()
    assert named.set_params(classes=None).fit(X, y).classes_.tolist() == ["well", "ill"]


def test_several_sets_and_labels_share_the_names():
    clf = AggregateClassifier(["label_proportions"] * 3, **QUICK)
    y, groups = [COUNTS, COUNTS[["well", "ill"]], LABELS], [GROUPS, GROUPS, None]
    clf.fit(X, y, groups=groups)
    assert clf.classes_.tolist() == ["ill", "well"]
    assert (clf.predict(X) == LABELS).mean() > 0.9
    with pytest.raises(ValueError, match="the label 'sick' is none of the classes"):
        clf.fit(X, [*y[:2], np.where(LABELS == "ill", "sick", LABELS)], groups=groups)
    with pytest.raises(ValueError, match=r"the columns are \['a', 'b'\], the classes are \['ill', 'well'\]"):
        clf.fit(X, [COUNTS, COUNTS.set_axis(["a", "b"], axis=1), LABELS], groups=groups)


def test_checked_observations_of_another_order_are_refused():
    z = Observations(LabelProportions(), GROUPS, COUNTS, 2)
    clf = AggregateClassifier(**QUICK)
    assert clf.fit(X, z).classes_.tolist() == ["ill", "well"]
    with pytest.raises(ValueError, match=r"in the order \['ill', 'well'\], but the classes are \['well', 'ill'\]"):
        clf.set_params(classes=["well", "ill"]).fit(X, z)


def test_names_of_answers_are_not_those_of_classes():
    z = pd.DataFrame({"answer": [0, 1] * 15, "rate": [0.1] * 30}, index=WARDS)
    clf = AggregateClassifier(unbag.Noisy(unbag.MultipleInstance()), **QUICK)
    assert clf.fit(X, z, groups=GROUPS).classes_.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("z", "message"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "the columns of z must have different names, but 'a' is repeated"),
        ([{"a": 1, "b": 2}, {"a": 1, "c": 2}], r"the first has \['a', 'b'\], and another has \['a', 'c'\]"),
        ([{"a": 1, "b": 2}, [1, 2]], "and another has none"),
    ],
)
def test_ambiguous_names_are_refused(z, message):
    with pytest.raises(ValueError, match=message):
        split_columns(z)


@given(st.data())
def test_every_order_of_columns_reads_the_same(data):
    names = st.one_of(st.text(max_size=3), st.integers(0, 4), st.booleans(), st.floats(-2, 2))
    classes = data.draw(st.lists(names, min_size=2, max_size=5, unique=True))
    order = data.draw(st.permutations(range(len(classes))))
    z = pd.DataFrame([order], columns=pd.Index([classes[place] for place in order], dtype=object))
    y = unbag.target([0, 0], z)[:1]
    assert y["z"][0, match_columns(columns_of_target(y), classes)].tolist() == [*range(len(classes))]


def test_class_shares_are_matched_by_name():
    shares = pd.Series({"well": 0.7, "ill": 0.3})
    clf = fitted(COUNTS, class_shares=shares, classes=["ill", "well"])
    read = unbag.aggregates.class_shares.read_class_shares
    assert read(shares, clf.classes_).shares.tolist() == [0.3, 0.7]
    assert read((shares, 0.1), clf.classes_).shares.tolist() == [0.3, 0.7]
    assert read(pd.Series([0.3, 0.7]), clf.classes_).shares.tolist() == [0.3, 0.7]
    with pytest.raises(ValueError, match=r"each of the classes \['ill', 'well'\], got \['a', 'b'\]"):
        read(shares.set_axis(["a", "b"]), clf.classes_)


def test_a_loaded_classifier_matches_names(tmp_path):
    clf = fitted(COUNTS.set_axis([False, True], axis=1))
    assert clf.classes_.tolist() == [False, True]
    clf.save(tmp_path / "model")
    again = unbag.load(tmp_path / "model")
    turned = COUNTS.set_axis([False, True], axis=1).iloc[:, ::-1]
    assert again.score(X, turned, groups=GROUPS) == clf.score(X, turned, groups=GROUPS)
    assert again.classes_.tolist() == [False, True]
