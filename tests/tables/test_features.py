"""Columns to numbers, against a plain encoding row by row."""

import datetime
import math
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbag._utils.problems import TableError, raise_errors
from unbag.data.columns import Table, as_categories, plain_types
from unbag.data.features import feature_problems, find_number_texts, fit_preparation

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
                values.append(math.nan if row[name] is None else row[name])
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
    assert np.allclose(preparation.encode(as_table(new)), expected, equal_nan=True)
    assert preparation.encode(as_table(new)).shape[1] == len(preparation.encoded_names)


def test_booleans_numbers_as_categories_and_dictionaries():
    given_table = table(
        smoker=[True, None, False],
        code=pa.array([1.0, 2.0, None]).dictionary_encode(),
        town=pa.array(["Ulm", "Ulm", "Bonn"]).dictionary_encode(),
        small=pa.array(np.array([1, 2, 3], np.float16)),
        large=pa.array(["x", "", "x"], pa.large_string()),
    )
    preparation = fit_preparation(given_table, given_table.names)
    assert preparation.encoded_names == [
        *("smoker", "code = 1", "code = 2", "code is missing"),
        *("town = Bonn", "town = Ulm", "small", "large = x", "large is missing"),
    ]
    expected = [[1, 1, 0, 0, 0, 1, 1, 1, 0], [math.nan, 0, 1, 0, 0, 1, 2, 0, 1], [0, 0, 0, 1, 1, 0, 3, 1, 0]]
    np.testing.assert_array_equal(preparation.encode(given_table), expected)


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e39])
def test_numbers_too_large_are_named_when_fitting_and_when_predicting(value):
    with pytest.raises(TableError, match=r"people\.csv, row 2, column age: .* infinite or too large"):
        raise_errors(feature_problems(table(age=[1.0, value]), "age"))
    preparation = fit_preparation(table(age=[1.0, 2.0]), ["age"])
    with pytest.raises(TableError, match=r"people\.csv, row 102, column age: .* infinite or too large"):
        preparation.encode(table(age=[1.0, value]), first_row=100)


def test_dates_are_days_since_1970_whatever_their_type():
    days = [datetime.date(1970, 1, 2), None, datetime.date(2020, 6, 1)]
    noon = [None if day is None else datetime.datetime(day.year, day.month, day.day, 12) for day in days]
    there = table(
        day=days,
        noon=noon,
        fine=pa.array(noon, pa.timestamp("ns")),
        zoned=pa.array(noon, pa.timestamp("s", "Europe/Berlin")),  # of the same moments
    )
    preparation = fit_preparation(there, there.names)
    assert [one.kind for one in preparation.features] == ["date"] * 4
    later = (days[2] - datetime.date(1970, 1, 1)).days
    noons = [1.5, math.nan, later + 0.5]
    expected = [[1, math.nan, later], noons, noons, noons]
    np.testing.assert_array_equal(preparation.encode(there).T, expected)


def test_dates_may_be_text_when_predicting_and_nothing_else():
    preparation = fit_preparation(table(day=[datetime.date(1970, 1, 2)]), ["day"])
    assert preparation.encode(table(day=["1970-01-03", "1970-01-01T12:00:00"])).tolist() == [[2], [0.5]]
    np.testing.assert_array_equal(preparation.encode(table(day=["1970-01-03T00:00:00Z", None])), [[2], [math.nan]])
    assert np.isnan(preparation.encode(table(day=pa.nulls(2)))).all()
    with pytest.raises(TableError, match=r"row 2, column day: the column held dates .* but 'soon' here; write dates"):
        preparation.encode(table(day=["1970-01-03", "soon"]))
    with pytest.raises(TableError, match=r"row 1, column day: the column held dates .* but 7 here; write dates"):
        preparation.encode(table(day=[7]))
    numbers = fit_preparation(table(age=[1.0]), ["age"])
    with pytest.raises(TableError, match=r"row 2, column age: the column held numbers .*date\(1970, 1, 2\) here"):
        numbers.encode(table(age=[None, datetime.date(1970, 1, 2)]))


def test_a_piece_of_a_column_has_the_categories_of_the_whole():
    column = pa.array([1.0, 2.0, 2.5, None, float("nan"), 1e20])
    whole = as_categories(column).to_pylist()
    assert whole == [*as_categories(column.slice(0, 2)).to_pylist(), *as_categories(column.slice(2)).to_pylist()]
    assert whole[:5] == ["1", "2", "2.5", None, None]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (["1.5", "2", "-", "3", "?"], "row 3, .* 60% .* are numbers such as '1.5', but not those of 2 cells: '-', '?'"),
        (["12%", "3%"], "100% of its values are numbers such as '12%'; write numbers as in 1234.5, or keep"),
        (["€5", "€7.50", "unknown"], "row 3, .* 67% of its values are numbers such as '€5', but not .* 'unknown'"),
        (["1 100", "2 345"], "numbers such as '1 100'"),
        (["1,100", "2,345.5"], "numbers such as '2,345.5'"),
        (["1,5", None, "2,5"], "100% of its values are numbers"),
        (["31.12.2020", "1.2.2021"], "dates such as '31.12.2020'; write dates as in 2020-12-31"),
        (["2020-12-31", "-"], "row 2, .* 50% of its values are dates"),
        (["Bonn", "Ulm", "7"], None),
        (["1", "007", "7"], None),
        (["1.10.3", "1.2.105"], None),
        (["1a", "2b", "-"], None),
        (["<5", "5-9", "10+"], None),
        ([None, None], None),
    ],
)  # fmt: skip
def test_texts_that_are_numbers_or_dates_are_reported(values, sentence):
    column = Table(FILE, pa.table({"dose": pa.array(values, pa.string())}))
    problem = find_number_texts(column, "dose", "keep it")
    assert (problem is None) if sentence is None else re.search(sentence, str(problem)), problem
