"""Predictions of new groups by the command line, against the estimator."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_files import BAGS, PAIRS, PEOPLE, WARDS, call, refuse, succeed, write

import unbag
from unbag import Groups
from unbag.tables.predict import round_counts

PAIR, BAG = "pairwise_similarity", "multiple_instance"
QUICK = ["--model", "linear", "--n-folds", 2, "--jobs", 1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("groups")
    files = {"people.csv": PEOPLE, "wards.csv": WARDS, "bags.csv": BAGS, "pairs.csv": PAIRS}
    for name, content in files.items():
        write(folder / name, content)
    write(folder / "majority.csv", "ward,observed\nw0,well\nw1,well\nw2,ill\nw3,ill\n")
    write(folder / "ill.csv", "ward,observed\nw0,1\nw1,0\nw2,3\nw3,2\n")
    also = {PAIR: "pairs.csv", BAG: "bags.csv", "majority": "majority.csv", "count_of(ill)": "ill.csv"}
    others = [word for kind, file in also.items() for word in ("--also", f"{kind}={folder / file}")]
    files = (folder / "people.csv", folder / "wards.csv")
    succeed("fit", *files, *others, "--out", folder / "run", *QUICK)
    return folder


def predict(folder, groups, *kind):
    out, kind = folder / "predicted.csv", ("--aggregate", *kind) if kind else ()
    result = succeed("predict", folder / "run", folder / "people.csv", "--groups", folder / groups, "--out", out, *kind)
    return pd.read_csv(out), result


def known(folder, aggregate, groups, z=None):
    """Return the same from the estimator."""
    clf = unbag.load(folder / "run" / "model")
    clf.aggregate, clf.fitted_aggregates_ = aggregate, [aggregate]
    people = pd.read_csv(folder / "people.csv")[["age", "town"]]
    return clf.predict_groups(people, groups, z)


WHOLE = Groups.from_sizes([3, 3, 3, 3])


@pytest.mark.parametrize("file", ["wards.csv", "people.csv"])
def test_counts_are_predicted_with_their_probability(folder, file):
    found, result = predict(folder, file)
    assert "4 groups written" in result.stdout
    assert found["ward"].tolist() == ["w0", "w1", "w2", "w3"]
    expected = known(folder, unbag.LabelProportions(), WHOLE)
    np.testing.assert_allclose(found[["expected_ill", "expected_well"]], expected)
    counts = found[["predicted_ill", "predicted_well"]].to_numpy()
    assert (counts.sum(1) == 3).all()
    chance = known(folder, unbag.LabelProportions(), WHOLE, counts)
    np.testing.assert_allclose(found["p_predicted"], chance)


def test_answers_for_bags_and_pairs_are_predicted(folder):
    found, _ = predict(folder, "bags.csv", BAG)
    yes = known(folder, unbag.MultipleInstance(), WHOLE)
    np.testing.assert_allclose(found[["p_0", "p_1"]], np.stack([1 - yes, yes], 1))
    assert found["predicted"].tolist() == (yes > 0.5).astype(int).tolist()
    found, _ = predict(folder, "pairs.csv", PAIR)
    pairs = Groups.from_tuples([[0, 1], [0, 4], [6, 7], [9, 5]], n_rows=12)
    assert found[["a", "b"]].to_numpy().tolist()[3] == ["p30", "p12"]
    np.testing.assert_allclose(found["p_1"], known(folder, unbag.PairwiseSimilarity(), pairs))


def test_majorities_and_single_counts_are_predicted(folder):
    found, _ = predict(folder, "wards.csv", "majority")
    np.testing.assert_allclose(found[["p_ill", "p_well"]].sum(axis=1), 1)
    zeros = known(folder, unbag.Majority(), WHOLE, [0] * 4)
    np.testing.assert_allclose(found["p_ill"], zeros)
    found, _ = predict(folder, "wards.csv", "count_of(ill)")
    np.testing.assert_allclose(found["expected"], known(folder, unbag.CountOf(0), WHOLE))
    chance = known(folder, unbag.CountOf(0), WHOLE, found["predicted"].to_numpy())
    np.testing.assert_allclose(found["p_predicted"], chance)


def test_some_groups_may_be_asked_for_in_any_order(folder):
    write(folder / "some.csv", "ward\nw2\nw0\n")
    found, result = predict(folder, "some.csv", BAG)
    assert found["ward"].tolist() == ["w2", "w0"]
    assert "6 rows are in no group of" in " ".join(result.stderr.split())
    every, _ = predict(folder, "bags.csv", BAG)
    np.testing.assert_allclose(found["p_1"], every["p_1"][[2, 0]])


@pytest.mark.parametrize(
    ("content", "more", "message"),
    [
        ("ward\nw9\n", (), "group 'w9' has no rows in column ward of"),
        ("a,b\np00,p99\n", ("--aggregate", PAIR), "'p99' is not in column id of"),
        ("ward\nw0\n", ("--keep", "age"), "--keep copies columns of rows"),
        ("ward\nw0\n", ("--aggregate", "ordinal_rank"), "the run was fitted to label_proportions, pairwise"),
    ],
)
def test_what_cannot_be_predicted_is_refused(folder, content, more, message):
    write(folder / "asked.csv", content)
    files = (folder / "run", folder / "people.csv", "--groups", folder / "asked.csv", "--out", folder / "no.csv")
    result = call("predict", *files, *more)
    assert (result.exit_code, (folder / "no.csv").exists()) == (2, False)
    assert message in " ".join(result.stderr.split())


def test_options_of_groups_need_groups(folder):
    result = refuse("predict", folder / "run", folder / "people.csv", "--out", folder / "no.csv", "--group", "ward")
    assert "--group applies to groups; name their file with --groups" in result.stderr


@settings(max_examples=20)
@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=6))
def test_counts_are_rounded_to_what_adds_up(shares):
    probs = np.array(shares) + 1e-3
    probs /= probs.sum(1, keepdims=True)
    whole = round_counts(7 * probs, np.full(len(probs), 7))
    assert (whole.sum(1) == 7).all()
    assert (np.abs(whole - 7 * probs) < 1).all()
