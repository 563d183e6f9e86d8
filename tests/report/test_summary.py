"""The summary, against plain recomputations from public methods of the classifier."""

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems_of_groups import blobs, count, tuples
from report_runs import FAST, HOSTILE, RUNS, fit, fitted, summary_of
from scipy.stats import multinomial
from sklearn.metrics import confusion_matrix, precision_score, recall_score

import unbag
from unbag.report import FORMAT, summarise
from unbag.report.metrics import score_group_shares
from unbag.training import Observations


@pytest.fixture(scope="module")
def proportions():
    """A fitted classifier, and the arguments of its fit."""
    clf, X, y, _, more = fitted("label_proportions")
    return clf, X, y, more


@pytest.mark.parametrize("kind", RUNS)
def test_every_kind_is_summarised_in_json(kind):
    clf, summary = fitted(kind)[0], summary_of(kind)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["format"] == FORMAT
    for s in summary["sets"]:
        assert s["judged"]["held_out"] == (kind != "labels")
        assert s["judged"]["groups"] == s["groups"]
        assert sum(s["confidence"]["before"]) == sum(s["confidence"]["after"]) == s["memberships"]
        assert s["confidence"]["mean_after"] >= s["confidence"]["mean_before"] - 1e-9
    if kind not in ("several", "labels"):  # groups are scored by the models that the fit scored them by
        assert summary["sets"][0]["likelihood"]["model"] == pytest.approx(clf.mixture_.score, abs=1e-5)
    for column in ("predicted", "called", "known"):
        assert sum(row[column] for row in summary["balance"]) == pytest.approx(1)
    assert summary["estimated_accuracy"] == (clf.estimated_accuracy_ and asdict(clf.estimated_accuracy_))
    assert summary["training"]["candidates"] == clf.candidates_
    assert summary["diagnosis"] == [asdict(finding) for finding in clf.diagnosis_]


def test_a_loaded_classifier_has_the_same_summary(proportions, tmp_path):
    clf, X, y, more = proportions
    clf.save(tmp_path / "model")
    loaded = summarise(unbag.load(tmp_path / "model"), X, y, title="A run: label_proportions", **more)
    assert loaded == summary_of("label_proportions")


def test_rows_of_held_out_groups_that_models_saw_in_other_groups():
    clf, _, _, pairs, _ = fitted("pairwise_similarity")
    folds, members = clf.folds_[0], pairs.to_tuples().tolist()
    seen = [
        any(row in members[other] and folds[other] != folds[group] for other in range(len(pairs)))
        for group in range(len(pairs))
        for row in members[group]
    ]
    judged = summary_of("pairwise_similarity")["sets"][0]["judged"]
    assert 0.5 < np.mean(seen) == pytest.approx(judged["rows_also_trained_on"])
    assert summary_of("label_proportions")["sets"][0]["judged"]["rows_also_trained_on"] == 0


def test_with_one_validation_part_its_groups_are_scored():
    X, labels = blobs(150)
    y = unbag.target(np.arange(150) // 5, count(labels, np.arange(150) // 5, 3))
    part = unbag.CrossFitting(None, validation_fraction=0.1)
    clf = fit(unbag.AggregateClassifier(**{**FAST, "validation": part}), X, y)
    summary = summarise(clf, X, y, title="", inputs={})
    (s,) = summary["sets"]
    assert s["judged"] == {"held_out": True, "groups": 3, "rows_also_trained_on": 0.0}
    assert s["likelihood"]["model"] == pytest.approx(clf.mixture_.score, abs=1e-5)
    assert summary["settings"]["validation"] == "CrossFitting(n_folds=None)"


@given(st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=3).filter(any), min_size=1, max_size=5), st.data())
def test_group_shares_have_the_likelihood_of_a_multinomial(counts, data):
    sizes = [sum(c) for c in counts]
    weights = np.array(data.draw(st.lists(st.floats(0.1, 3), min_size=len(counts), max_size=len(counts))))
    groups = unbag.Groups.from_sizes(sizes)
    found = score_group_shares(Observations(unbag.LabelProportions(), groups, counts, 3, group_weights=weights))
    if max(sizes) == 1:
        assert found is None  # a label is not a share
        return
    likelihoods = [multinomial.logpmf(c, sum(c), np.array(c) / sum(c)) for c in counts]
    assert found["log_likelihood"] == pytest.approx(np.average(likelihoods, weights=weights), abs=1e-9)
    correct = np.average([max(c) / sum(c) for c in counts], weights=weights * sizes)
    assert found["accuracy"] == pytest.approx(correct)


def test_expected_counts_are_sums_of_probabilities():
    X, labels = blobs(90)
    ids = np.arange(90) // 6
    counts = count(labels, ids, 3)
    none = unbag.CrossFitting(None, validation_fraction=0)
    clf = fit(unbag.AggregateClassifier(**{**FAST, "validation": none}), X, unbag.target(ids, counts))
    (s,) = summarise(clf, X, unbag.target(ids, counts), title="", inputs={})["sets"]
    expected = np.stack([clf.predict_proba(X)[ids == group].sum(0) for group in range(15)])
    for j, row in enumerate(s["outcome"]["classes"]):
        assert row["observed"] == counts[:, j].sum()
        assert row["expected"] == pytest.approx(expected[:, j].sum())
        assert row["error"] == pytest.approx(np.abs(expected[:, j] - counts[:, j]).mean())
        assert row["trivial_error"] == pytest.approx(np.abs(counts[:, j].mean() - counts[:, j]).mean())
    bins = s["outcome"]["bins"]
    assert sum(b["n"] for b in bins) == counts.size
    assert sum(b["n"] * b["predicted"] for b in bins) == pytest.approx(expected.sum() / 6)
    assert sum(b["n"] * b["happened"] for b in bins) == pytest.approx(counts.sum() / 6)
    logits = torch.from_numpy(np.log(np.tile(counts.mean(0) / 6, (90, 1))))
    constant = unbag.LabelProportions().log_likelihood(logits, unbag.Groups.from_ids(ids), counts)
    assert s["likelihood"]["trivial"] == pytest.approx(constant.mean().item())


def test_answers_are_compared_with_the_probability_of_yes():
    X, labels = blobs(300)
    pairs = tuples(300, 20, 2)
    same = unbag.PairwiseSimilarity().observe(labels, pairs, 3)
    none = unbag.CrossFitting(None, validation_fraction=0)
    clf = unbag.AggregateClassifier("pairwise_similarity", n_classes=3, **{**FAST, "validation": none})
    (s,) = summarise(fit(clf, X, same, pairs), X, same, pairs, title="", inputs={})["sets"]
    predicted, yes, found = clf.predict_groups(X, pairs), same.numpy() == 1, s["outcome"]
    assert found["yes"] == np.histogram(predicted[yes], 10, (0, 1))[0].tolist()
    assert found["no"] == np.histogram(predicted[~yes], 10, (0, 1))[0].tolist()
    assert found["right"] == ((predicted > 0.5) == yes).mean()
    assert found["most_common"] == max(yes.mean(), 1 - yes.mean())
    for name, values in (("n", np.ones(20)), ("happened", yes), ("predicted", predicted)):
        assert sum(b[name] * (b["n"] if name != "n" else 1) for b in found["bins"]) == pytest.approx(values.sum())
    likelihoods = np.log(clf.predict_groups(X, pairs, same))
    assert [group["model"] for group in s["worst"]] == pytest.approx(np.sort(likelihoods)[:15].tolist())
    assert s["worst"][0]["model"] == pytest.approx(likelihoods[int(s["worst"][0]["group"])])


def test_labels_against_scikit_learn(proportions):
    clf, X, _, more = proportions
    found, truth, predicted = summary_of("label_proportions")["labels"], more["labels"], clf.predict(X)
    assert found["accuracy"] == pytest.approx(clf.score(X, truth))
    assert found["confusion"] == confusion_matrix(truth, predicted, labels=list(HOSTILE)).tolist()
    recall = recall_score(truth, predicted, labels=list(HOSTILE), average=None)
    precision = precision_score(truth, predicted, labels=list(HOSTILE), average=None)
    assert [row["found"] for row in found["classes"]] == pytest.approx(recall.tolist())
    assert [row["correct"] for row in found["classes"]] == pytest.approx(precision.tolist())
    assert found["most_common"] == max((truth == name).mean() for name in HOSTILE)
    known = found["known_observation"][0]
    assert known["memberships"] == found["rows_in_groups"] == 200
    assert known["after"] >= known["before"]
    confidence = clf.predict_proba(X).max(1)
    tenth = np.minimum((confidence * 10).astype(int), 9)
    errors = [abs((confidence - (predicted == truth))[tenth == n].sum()) for n in range(10)]
    assert found["calibration_error"] == pytest.approx(sum(errors) / len(X))
    assert not found["renamed"]


def test_unnamed_classes_are_matched_with_labels():
    found = summary_of("pairwise_similarity")["labels"]  # whose classes were called 0, 1 and 2
    assert found["renamed"]
    assert [row["class"] for row in found["classes"]] == ["low", "middle", "top"]
    assert summary_of("ordinal_triplet")["labels"]["accuracy"] > 0.6
    clf, X, y, groups, _ = fitted("pairwise_similarity")
    with pytest.raises(ValueError, match=r"labels contain 4 classes.*but the classifier has 3"):
        summarise(clf, X, y, groups, title="", inputs={}, labels=list("abcd"), labelled_rows=range(4))
    few = summarise(clf, X, y, groups, title="", inputs={}, labels=list("ab"), labelled_rows=range(2))
    assert [row["class"] for row in few["labels"]["classes"]] == ["a", "b", "(no label, 1)"]


@pytest.mark.parametrize(
    ("labels", "rows", "message"),
    [
        ([HOSTILE[0]] * 3, None, "labels has 3 entries for 200 rows of X"),
        ([HOSTILE[0]] * 3, [0, 1], "labels has 3 entries for 2 labelled_rows"),
        ([HOSTILE[0]] * 2, [0, 200], "labelled_rows must be row numbers from 0 to 199, got 0 to 200"),
        (["other"] * 2, [0, 1], "'other' is none of the classes"),
    ],
)
def test_wrong_labels_are_rejected(proportions, labels, rows, message):
    clf, X, y, _ = proportions
    with pytest.raises(ValueError, match=message):
        summarise(clf, X, y, title="", inputs={}, labels=labels, labelled_rows=rows)


def test_counts_imply_class_shares(proportions):
    rows, truth = summary_of("label_proportions")["balance"], proportions[-1]["labels"]
    shares = [(truth == name).mean() for name in HOSTILE]
    assert [row["implied"] for row in rows] == pytest.approx(shares)
    assert [row["known"] for row in rows] == pytest.approx(shares)  # the posterior sums to the counts
    assert {row["implied"] for row in summary_of("pairwise_similarity")["balance"]} == {None}


def test_the_size_does_not_grow_with_the_number_of_groups():
    X, labels = blobs(4000)
    ids = np.arange(4000) // 2
    y = unbag.target(ids, count(labels, ids, 3))
    none = unbag.CrossFitting(None, validation_fraction=0)
    clf = fit(unbag.AggregateClassifier(**{**FAST, "validation": none}), X, y)
    clf.history_ = [{"step": n, "score": -1 / (n + 1)} for n in range(2000)]
    assert len(json.dumps(summarise(clf, X, y, title="", inputs={}))) < 100_000
