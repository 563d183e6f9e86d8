"""Columns to numbers, against a plain encoding row by row."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbag.tables.features import Preparation, Tally, as_categories, feature_problems, fit_preparation, kind_of
from unbag.tables.problems import TableError, raise_errors
from unbag.tables.read import Table, plain_types

FILE = Path("people.csv")


def table(**columns):
    return Table(FILE, plain_types(pa.table(columns), str(FILE)))


def encode_slowly(train, rows, names, numeric):
    """The same encoding with dicts and loops."""
    encoded = []
    for row in rows:
        values = []
        for name in names:
            seen = [other[name] for other in train]
            if name in numeric:
                known = [value for value in seen if value is not None]
                fill = median(known) if known else 0.0
                values.append(fill if row[name] is None else row[name])
                if len(known) < len(seen):
                    values.append(float(row[name] is None))
            else:
                categories = sorted({value for value in seen if value is not None})
                categories += [None] if None in seen else []
                values += [float(row[name] == category) for category in categories]
        encoded.append(values)
    return np.array(encoded, dtype=float)


rows_strategy = st.lists(
    st.fixed_dictionaries(
        {
            "age": st.none() | st.floats(-1e6, 1e6),
            "count": st.none() | st.integers(-5, 5),
            "town": st.none() | st.sampled_from(["Bonn", "Ulm", "Kiel"]),
        }
    ),
    min_size=1,
    max_size=12,
)


@given(rows_strategy, rows_strategy)
def test_the_encoding_is_that_of_plain_loops(train, new):
    types = {"age": pa.float64(), "count": pa.int64(), "town": pa.string()}

    def as_table(rows):
        return Table(
            FILE, pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()})
        )

    preparation = fit_preparation(as_table(train), list(types))
    expected = encode_slowly(train, new, list(types), ["age", "count"])
    assert np.allclose(preparation.encode(as_table(new)), expected)
    assert preparation.encode(as_table(new)).shape[1] == len(preparation.encoded_names)


@given(rows_strategy)
def test_a_preparation_is_the_same_after_saving(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("saved") / "preparation.json"
    names = ["age", "town"]
    columns = {"age": pa.array([row["age"] for row in rows], pa.float64())}
    columns["town"] = pa.array([row["town"] for row in rows], pa.string())
    preparation = fit_preparation(table(**columns), names)
    preparation.save(path)
    assert Preparation.load(path) == preparation


def test_missing_numbers_can_be_left_missing(tmp_path):
    table = Table(FILE, pa.table({"age": [30, None, 50], "town": ["Bonn", None, "Ulm"], "ill": [True, None, False]}))
    fit_preparation(table, ["age", "town", "ill"], keep_missing=True).save(tmp_path / "preparation.json")
    preparation, tally = Preparation.load(tmp_path / "preparation.json"), Tally()
    nan = float("nan")
    expected = [[30, 1, 0, 0, 1], [nan, 0, 0, 1, nan], [50, 0, 1, 0, 0]]
    np.testing.assert_array_equal(preparation.encode(table, tally), expected)
    assert not tally.filled


def test_the_median_is_that_of_training_rows():
    ages = table(age=[1.0, 3.0, 1000.0, None])
    preparation = fit_preparation(ages, ["age"], rows=np.array([0, 1]))
    assert preparation.encode(ages).tolist() == [[1], [3], [1000], [2]]


def test_what_training_rows_did_not_have_is_counted():
    preparation = fit_preparation(table(age=[1.0, 3.0], town=["Bonn", "Ulm"]), ["age", "town"])
    tally = Tally()
    X = preparation.encode(table(age=[None, 2.0], town=["Paris", None]), tally)
    assert X.tolist() == [[2, 0, 0], [2, 0, 0]]
    assert (tally.unknown, tally.filled) == ({"town": 2}, {"age": 1})


def test_booleans_numbers_as_categories_and_dictionaries():
    given_table = table(
        smoker=[True, None, False],
        code=pa.array([1.0, 2.0, None]),
        town=pa.array(["Ulm", "Ulm", "Bonn"]).dictionary_encode(),
        small=pa.array(np.array([1, 2, 3], np.float16)),
        large=pa.array(["x", "", "x"], pa.large_string()),
    )
    preparation = fit_preparation(given_table, given_table.names, categorical=["code"])
    assert preparation.encoded_names == [
        *("smoker", "smoker is missing", "code = 1", "code = 2", "code is missing"),
        *("town = Bonn", "town = Ulm", "small", "large = x", "large is missing"),
    ]
    assert preparation.encode(given_table).tolist() == [
        [1, 0, 1, 0, 0, 0, 1, 1, 1, 0],
        [0.5, 1, 0, 1, 0, 0, 1, 2, 0, 1],
        [0, 0, 0, 0, 1, 1, 0, 3, 1, 0],
    ]


def test_decimals_and_fractions_as_categories():
    assert kind_of(plain_types(pa.table({"x": pa.array([1], pa.decimal128(5, 2))}), "f").column("x"), False) == "number"
    fractions = fit_preparation(table(x=[0.5, 1.5]), ["x"], categorical=["x"])
    assert fractions.encoded_names == ["x = 0.5", "x = 1.5"]


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e39])
def test_numbers_too_large_are_named_when_fitting_and_when_predicting(value):
    with pytest.raises(TableError, match=r"people\.csv, row 2, column age: .* infinite, or too large"):
        raise_errors(feature_problems(table(age=[1.0, value]), "age", False))
    preparation = fit_preparation(table(age=[1.0, 2.0]), ["age"])
    with pytest.raises(TableError, match=r"people\.csv, row 102, column age: .* infinite, or too large"):
        preparation.encode(table(age=[1.0, value]), first_row=100)


def test_a_piece_of_a_column_has_the_categories_of_the_whole():
    column = pa.array([1.0, 2.0, 2.5, None, float("nan"), 1e20])
    whole = as_categories(column).to_pylist()
    assert whole == [*as_categories(column.slice(0, 2)).to_pylist(), *as_categories(column.slice(2)).to_pylist()]
    assert whole[:5] == ["1", "2", "2.5", None, None]
