"""Rates of wrong answers on the command line: known, in a column, and fitted."""

import csv

import numpy as np
import pytest

from unbag import Noisy, PairwiseSimilarity, load
from unbag.persistence.run_folder import Run
from unbag.tables import TableError, disaggregate_table, fit_tables, make_plan
from unbag.tables.load import load_tables
from unbag.tables.predict import predict_groups_table


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    ages = np.linspace(-1, 1, 60)
    rows = [f"r{n},{age:.3f}\n" for n, age in enumerate(ages)]
    (folder / "rows.csv").write_text("id,age\n" + "".join(rows))
    pairs = [(n, (7 * n + 1) % 60) for n in range(60) if n != (7 * n + 1) % 60]
    same = [int((ages[a] > 0) == (ages[b] > 0)) for a, b in pairs]
    lines = [f"r{a},r{b},{own},{0.01 * (a % 40)}\n" for (a, b), own in zip(pairs, same, strict=True)]
    (folder / "pairs.csv").write_text("first,second,same,doubt\n" + "".join(lines))
    return folder


def options(files, **others):
    return {"instances": files / "rows.csv", "groups": files / "pairs.csv", "n_classes": 2, **others}


@pytest.mark.parametrize(
    ("written", "rate", "said"),
    [
        ("0.2", 0.2, "some are wrong, at a rate of 0.2"),
        (0.2, 0.2, "some are wrong, at a rate of 0.2"),
        ("fit", "fit", "some are wrong, at a rate to be fitted"),
        ("doubt", 0.0, "rate of wrong answers"),
    ],
)
def test_a_rate_is_read_and_said(files, written, rate, said):
    found = load_tables(make_plan(options(files, error_rate=written))).observed[0]
    assert not [one for one in found.problems if one.severity == "error"]
    assert repr(found.aggregate) == repr(Noisy(PairwiseSimilarity(), rate))
    assert found.read[-1].read_as == said
    assert (found.z.ndim == 2) == (written == "doubt")
    if written == "doubt":
        assert found.z[:3, 1].tolist() == [0.0, 0.01, 0.02]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("1.5", "at least 0 and less than 1"),
        ("nan", "at least 0 and less than 1"),
        ("dout", "no column 'dout', which --error-rate names; did you mean 'doubt'"),
    ],
)
def test_a_rate_that_is_none_is_refused(files, written, message):
    with pytest.raises(TableError, match=message):
        load_tables(make_plan(options(files, error_rate=written)))


def test_a_cell_that_is_no_rate_is_named(files, tmp_path):
    text = (files / "pairs.csv").read_text().replace(",0.02\n", ",1.02\n", 1)
    (tmp_path / "pairs.csv").write_text(text)
    found = load_tables(make_plan({**options(files, error_rate="doubt"), "groups": tmp_path / "pairs.csv"}))
    (error,) = [str(one) for one in found.problems if one.severity == "error"]
    assert (
        "row 3, column doubt: a rate of wrong answers must be a number of at least 0 and less than 1, got 1.02" in error
    )


def test_a_rate_that_is_fitted_is_used_by_later_commands(files, tmp_path):
    run = Run(tmp_path / "run")
    plan = make_plan(options(files, error_rate="fit", model="linear", n_folds=2, jobs=1))
    learned = fit_tables(plan, run)
    clf = load(run.model)
    (rate,) = clf.error_rates_
    assert learned.summary["sets"][0]["error_rate"] == rate
    disaggregate_table(run, files / "rows.csv", files / "pairs.csv", tmp_path / "labels.csv")
    predict_groups_table(run, files / "rows.csv", files / "pairs.csv", tmp_path / "groups.csv")
    with open(tmp_path / "groups.csv", newline="") as file:
        chances = [float(line["p_1"]) for line in csv.DictReader(file)]
    assert rate <= min(chances) <= max(chances) <= 1 - rate
