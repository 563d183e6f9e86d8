"""Predictions of new groups by the command line, against the estimator."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_files import BAGS, PAIRS, PEOPLE, WARDS, call, write

import unbag
from unbag import Groups
from unbag.tables.predict_groups import round_counts

QUICK = ["--epochs", 2, "--model", "linear", "--scaling", "standard"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("groups")
    files = {"people.csv": PEOPLE, "wards.csv": WARDS, "bags.csv": BAGS, "pairs.csv": PAIRS}
    for name, content in files.items():
        write(folder / name, content)
    majority = "ward,observed\nw0,well\nw1,well\nw2,ill\nw3,ill\n"
    write(folder / "majority.csv", majority)
    write(folder / "ill.csv", "ward,observed\nw0,1\nw1,0\nw2,3\nw3,2\n")
    for out, groups, *more in (
        ("counts", "wards.csv", "--also", f"pairwise_similarity={folder / 'pairs.csv'}"),
        ("bags", "bags.csv"),
        ("majority", "majority.csv", "--aggregate", "majority", "--classes", "well,ill"),
        ("ill", "ill.csv", "--aggregate", "count_of(ill)", "--classes", "well,ill"),
    ):
        result = call("fit", folder / "people.csv", folder / groups, "--out", folder / out, *more, *QUICK)
        assert result.exit_code == 0, result.output
    return folder


def predict(folder, run, groups, *more):
    out = folder / "predicted.csv"
    result = call("predict", folder / run, folder / "people.csv", "--groups", folder / groups, "--out", out, *more)
    assert result.exit_code == 0, result.output
    return pd.read_csv(out), result


def known(folder, run, aggregate, groups, z=None):
    """Return the same from the estimator."""
    clf = unbag.load(folder / run / "model")
    clf.aggregate = aggregate
    people = pd.read_csv(folder / "people.csv")[["age", "town"]]
    return clf.predict_groups(people, groups, z)


WHOLE = Groups.from_sizes([3, 3, 3, 3])


@pytest.mark.parametrize("file", ["wards.csv", "people.csv"])
def test_counts_are_predicted_with_their_probability(folder, file):
    found, result = predict(folder, "counts", file)
    assert "4 groups written" in result.stdout
    assert found["ward"].tolist() == ["w0", "w1", "w2", "w3"]
    expected = known(folder, "counts", unbag.LabelProportions(), WHOLE)
    np.testing.assert_allclose(found[["expected_ill", "expected_well"]], expected)
    counts = found[["predicted_ill", "predicted_well"]].to_numpy()
    assert (counts.sum(1) == 3).all()
    chance = known(folder, "counts", unbag.LabelProportions(), WHOLE, counts)
    np.testing.assert_allclose(found["p_predicted"], chance)


def test_answers_for_bags_and_pairs_are_predicted(folder):
    found, _ = predict(folder, "bags", "bags.csv")
    yes = known(folder, "bags", unbag.MultipleInstance(), WHOLE)
    np.testing.assert_allclose(found[["p_0", "p_1"]], np.stack([1 - yes, yes], 1))
    assert found["predicted"].tolist() == (yes > 0.5).astype(int).tolist()
    found, _ = predict(folder, "counts", "pairs.csv", "--aggregate", "pairwise_similarity")
    pairs = Groups.from_tuples([[0, 1], [0, 4], [6, 7], [9, 5]], n_rows=12)
    assert found[["a", "b"]].to_numpy().tolist()[3] == ["p30", "p12"]
    np.testing.assert_allclose(found["p_1"], known(folder, "counts", unbag.PairwiseSimilarity(), pairs))


def test_majorities_and_single_counts_are_predicted(folder):
    found, _ = predict(folder, "majority", "wards.csv")
    np.testing.assert_allclose(found[["p_well", "p_ill"]].sum(axis=1), 1)
    zeros = known(folder, "majority", unbag.Majority(), WHOLE, [0] * 4)
    np.testing.assert_allclose(found["p_well"], zeros)
    found, _ = predict(folder, "ill", "wards.csv")
    np.testing.assert_allclose(found["expected"], known(folder, "ill", unbag.CountOf(1), WHOLE))
    chance = known(folder, "ill", unbag.CountOf(1), WHOLE, found["predicted"].to_numpy())
    np.testing.assert_allclose(found["p_predicted"], chance)


def test_some_groups_may_be_asked_for_in_any_order(folder):
    write(folder / "some.csv", "ward\nw2\nw0\n")
    found, result = predict(folder, "bags", "some.csv")
    assert found["ward"].tolist() == ["w2", "w0"]
    assert "6 rows are in no group of" in " ".join(result.stderr.split())
    every, _ = predict(folder, "bags", "bags.csv")
    np.testing.assert_allclose(found["p_1"], every["p_1"][[2, 0]])


@pytest.mark.parametrize(
    ("run", "content", "more", "message"),
    [
        ("bags", "ward\nw9\n", (), "group 'w9' has no rows in column ward of"),
        ("counts", "a,b\np00,p99\n", ("--aggregate", "pairwise_similarity"), "'p99' is not in column id of"),
        ("bags", "ward\nw0\n", ("--keep", "age"), "--keep copies columns of rows"),
        ("bags", "ward\nw0\n", ("--aggregate", "majority"), "the run has learned from multiple_instance, not from"),
    ],
)
def test_what_cannot_be_predicted_is_refused(folder, run, content, more, message):
    write(folder / "asked.csv", content)
    files = (folder / run, folder / "people.csv", "--groups", folder / "asked.csv", "--out", folder / "no.csv")
    result = call("predict", *files, *more)
    assert (result.exit_code, (folder / "no.csv").exists()) == (2, False)
    assert message in " ".join(result.stderr.split())


def test_options_of_groups_need_groups(folder):
    files = (folder / "bags", folder / "people.csv", "--out", folder / "no.csv")
    assert "--group is about groups; name their file with --groups" in call("predict", *files, "--group", "ward").stderr


@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=6))
def test_counts_are_rounded_to_what_adds_up(shares):
    probs = np.array(shares) + 1e-3
    probs /= probs.sum(1, keepdims=True)
    whole = round_counts(7 * probs, np.full(len(probs), 7))
    assert (whole.sum(1) == 7).all()
    assert (np.abs(whole - 7 * probs) < 1).all()
