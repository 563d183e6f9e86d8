"""Tables of pandas, polars and Arrow as they are: the preparation of the command line, in the estimator."""

import datetime
import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import unbag
from unbag import AggregateClassifier, CrossFitting, Groups, NetworkTraining, UnbagWarning
from unbag.persistence.run_folder import Run
from unbag.tables import fit_tables, make_plan

N = 120
FAST = {
    "model": "linear",
    "training": NetworkTraining(2, learning_rate=0.05),
    "validation": CrossFitting(None, validation_fraction=0),
    "random_state": 0,
}
NAMES = [
    *("age", "income", "smoker", "born"),
    *("town = Bonn", "town = Ulm", "town is missing", "code = 1", "code = 2"),
]


def columns():
    rng = np.random.default_rng(0)
    ages = rng.integers(20, 90, N).tolist()
    days = [datetime.date(1950, 1, 1) + datetime.timedelta(int(n)) for n in rng.integers(0, 20000, N)]
    towns = rng.choice(["Ulm", "Bonn"], N).tolist()
    for column in (ages, days, towns):
        column[7] = None
    smoker = rng.random(N) < 0.3
    return ages, rng.normal(size=N), smoker, days, towns, rng.integers(1, 3, N)


def in_pandas():
    ages, income, smoker, days, towns, codes = columns()
    code = pd.Categorical(codes)
    born = pd.to_datetime(days)
    return pd.DataFrame(
        {"age": ages, "income": income, "smoker": smoker, "born": born, "town": towns, "code": code},
        index=[f"row {place}" for place in range(N)],
    )


def in_polars():
    ages, income, smoker, days, towns, codes = columns()
    code = pl.Series(codes).cast(pl.String).cast(pl.Categorical)
    return pl.DataFrame({"age": ages, "income": income, "smoker": smoker, "born": days, "town": towns, "code": code})


def in_arrow():
    ages, income, smoker, days, towns, codes = columns()
    code = pa.array(codes).dictionary_encode()
    return pa.table({"age": ages, "income": income, "smoker": smoker, "born": days, "town": towns, "code": code})


IDS = np.arange(N) // 4
COUNTS = np.stack([IDS[::4] % 5, 4 - IDS[::4] % 5], 1)
TARGET = unbag.target(IDS, COUNTS)


@pytest.fixture(scope="module")
def fitted():
    return AggregateClassifier(**FAST).fit(in_pandas(), TARGET)


def test_columns_become_numbers_with_names(fitted):
    assert fitted.get_feature_names_out().tolist() == NAMES
    assert fitted.feature_names_in_.tolist() == ["age", "income", "smoker", "born", "town", "code"]
    assert (fitted.n_features_in_, fitted.input_shape_) == (6, (9,))


@pytest.mark.parametrize("make", [in_polars, in_arrow])
def test_all_kinds_of_tables_give_the_same(fitted, make):
    other = AggregateClassifier(**FAST).fit(make(), TARGET)
    np.testing.assert_array_equal(other.predict_proba(in_pandas()), fitted.predict_proba(make()))
    assert other.preparation_ == fitted.preparation_


def test_the_numbers_are_those_of_an_array():
    table = in_pandas()[["income", "smoker"]]
    known = AggregateClassifier(**FAST).fit(table.to_numpy(float), TARGET)
    other = AggregateClassifier(**FAST).fit(table, TARGET)
    np.testing.assert_array_equal(known.predict_proba(table.to_numpy(float)), other.predict_proba(table))
    assert known.preparation_ is None
    assert known.get_feature_names_out().tolist() == ["x0", "x1"]
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        np.testing.assert_array_equal(other.predict_proba(table.to_numpy(float)), other.predict_proba(table))
    assert other.fit(table.to_numpy(float), TARGET).preparation_ is None


def test_a_saved_classifier_reads_tables(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = unbag.load(tmp_path / "model")
    assert again.preparation_ == fitted.preparation_
    np.testing.assert_array_equal(again.predict_proba(in_polars()), fitted.predict_proba(in_pandas()))


def test_missing_values_and_categories_are_those_of_rows_in_groups():
    table = pd.DataFrame({"age": [1.0, 3.0, None, 100.0], "town": ["a", "b", "a", "c"]})
    groups = Groups(torch.tensor([0, 1, 2]), torch.tensor([0, 2, 3]), n_rows=4)
    clf = AggregateClassifier(**FAST, n_classes=2)
    with pytest.warns(UnbagWarning):
        clf.fit(table, [[1, 1], [0, 1]], groups=groups)
    assert clf.get_feature_names_out().tolist() == ["age", "town = a", "town = b"]
    assert clf.preparation_.features[0].has_missing


def test_what_rows_of_fit_did_not_have_is_told(fitted):
    new = in_pandas().iloc[:3].assign(town=["Kiel", "Kiel", "Ulm"], income=[None, 1.0, 2.0])
    with pytest.warns(UnbagWarning) as caught:
        fitted.predict(new)
    assert [str(one.message) for one in caught] == [
        "X, column town: 2 values are categories that training rows did not have",
        "X, column income: 1 values are missing, but no training row had a missing value here",
    ]


@pytest.mark.parametrize(("name", "held"), [("age", "numbers"), ("born", "dates"), ("town", "text")])
def test_lists_in_place_of_single_values_are_refused_by_name(name, held, fitted):
    lists = in_polars().with_columns(pl.Series(name, [[1, 2]] * N))
    said = f"row 1, column {name}: the column held {held} when the model was fitted, but [1, 2] here"
    with pytest.raises(ValueError, match=re.escape(said)):
        fitted.predict(lists)
    empty = in_polars().with_columns(pl.Series(name, [None] * N, pl.List(pl.Int64)))
    assert fitted.predict(empty).tolist() == fitted.predict(in_polars().with_columns(pl.lit(None).alias(name))).tolist()


def test_classifiers_of_scikit_learn_read_missing_numbers():
    table = in_pandas()
    model = HistGradientBoostingClassifier(max_iter=2)
    clf = AggregateClassifier(model=model, validation=CrossFitting(2), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnbagWarning)
        clf.fit(table, TARGET)
    assert clf.get_feature_names_out().tolist() == NAMES


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([None] * N, "X, column bad: the column has no values at all; leave it out"),
        ([1.0, np.inf] * (N // 2), "X, row 2, column bad: inf is infinite"),
        ([1.0, "x"] * (N // 2), "X cannot be read: .*column bad.*; convert the values of each column"),
        ([2**70] * N, "X cannot be read: .* too .*; convert the values of each column to numbers of at most 64 bits"),
        (
            pd.cut(np.arange(N), 4),
            "X, column bad: the categories of the column are of type .*; convert them to text .*X\\['bad'\\].astype",
        ),
        ([datetime.timedelta(1)] * N, "X, column bad: the column holds times"),
        ([["a"]] * N, "X, column bad: the column is of type list.*leave it out"),
        ([[1], [1, 2]] * (N // 2), "X, row 2, column bad: each row needs a list of 1 numbers, got one of 2"),
    ],
    ids=["empty", "infinite", "mixed", "large", "intervals", "times", "lists", "uneven"],
)
def test_columns_that_are_no_features_are_named(column, message):
    with pytest.raises(ValueError, match=message):
        AggregateClassifier(**FAST).fit(in_pandas().assign(bad=column), TARGET)


def test_tables_that_cannot_be_read_say_what_to_do():
    with pytest.raises(
        ValueError, match=r"X is a polars LazyFrame, whose rows are not computed yet; pass X.collect\(\)"
    ):
        AggregateClassifier(**FAST).fit(in_polars().lazy(), TARGET)
    twice = pd.concat([in_pandas(), in_pandas()[["age"]]], axis=1)
    with pytest.raises(ValueError, match="X has more than one column named 'age'; rename all but one"):
        AggregateClassifier(**FAST).fit(twice, TARGET)


def test_texts_that_are_numbers_are_reported_unless_they_are_categorical():
    table = in_pandas().assign(dose=["-" if place % 5 == 0 else f"{place % 4}.5" for place in range(N)])
    clf = AggregateClassifier(**FAST)
    with pytest.warns(UnbagWarning, match=r"X, row 1, column dose: .* 80% of its values are numbers .* '-'; write"):
        clf.fit(table, TARGET)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf.fit(table.assign(dose=table.dose.astype("category")), TARGET)
    assert not [str(one.message) for one in caught if "dose" in str(one.message)]


def test_ids_and_free_text_are_no_categories(monkeypatch):
    monkeypatch.setattr("unbag.data.features.MAX_CATEGORIES", 50)
    with pytest.raises(ValueError, match=r"X, column who: the column holds 120 different texts, for example 'p0'"):
        AggregateClassifier(**FAST).fit(in_pandas().assign(who=[f"p{place}" for place in range(N)]), TARGET)


def test_other_columns_are_refused_by_name(fitted):
    with pytest.raises(ValueError, match=r"(?s)feature names should match.*town"):
        fitted.predict(in_pandas().rename(columns={"town": "city"}))
    with pytest.raises(ValueError, match=r"row 1, column age: the column held numbers .* but 'old' here"):
        fitted.predict(in_pandas().assign(age="old"))


@pytest.mark.parametrize("output", ["default", "pandas", "polars"])
def test_steps_of_a_pipeline_may_come_before(output):
    scale = make_column_transformer((StandardScaler(), ["income"]), remainder="passthrough")
    pipe = make_pipeline(scale, AggregateClassifier(**FAST)).set_output(transform=output)
    table = in_pandas()[["income", "smoker"]]
    scores = cross_val_score(pipe, table, TARGET, groups=IDS, cv=GroupKFold(2))
    assert np.isfinite(scores).all()
    assert pipe.fit(table, TARGET).predict(table).shape == (N,)


def test_read_tables_gives_what_the_command_line_learns_from(tmp_path):
    people = in_pandas().assign(ward=IDS, known=["ill", *[None] * (N - 2), "well"])
    people.to_parquet(tmp_path / "people.parquet", index=False)
    pd.DataFrame(COUNTS, columns=["ill", "well"]).assign(ward=range(30)).to_csv(tmp_path / "wards.csv", index=False)
    files = {"instances": tmp_path / "people.parquet", "groups": tmp_path / "wards.csv", "labelled": "known"}
    files["categorical"] = ["code"]
    with pytest.warns(UnbagWarning, match="values are missing"):
        data = unbag.read_tables(*list(files.values())[:2], labelled="known", categorical=["code"])
    clf = AggregateClassifier(**data.parameters, **FAST)
    clf.fit(data.X.to_pandas(), data.y, groups=data.groups)
    assert clf.get_feature_names_out().tolist() == NAMES
    fit_tables(
        make_plan({**files, "model": "linear", "epochs": 2, "learning_rate": 0.05, "validation_fraction": 0}),
        Run(tmp_path / "run"),
    )
    there = unbag.load(tmp_path / "run" / "model")
    np.testing.assert_array_equal(there.predict_proba(in_pandas()), clf.predict_proba(in_pandas()))
    assert there.classes_.tolist() == ["ill", "well"]
    with pytest.raises(ValueError, match=re.escape("read_tables: there is no setting 'exlude'; did you mean exclude?")):
        unbag.read_tables(*list(files.values())[:2], exlude=["town"])
