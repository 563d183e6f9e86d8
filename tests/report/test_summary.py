"""The summary, against plain recomputations from what the classifier says in public."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from unittest.mock import ANY, patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems_of_groups import FAST, blobs, count, fit_all_candidates, tuples
from report_runs import HOSTILE, RUNS, fitted, summary_of
from scipy.stats import multinomial
from sklearn.metrics import confusion_matrix, precision_score, recall_score

import unbag
from unbag.out_of_fold import mean_log_likelihood
from unbag.report import FORMAT, summarise
from unbag.report.group_metrics import own_share
from unbag.training import Observations

# Pairs and triplets drawn at random leave some rows out.
pytestmark = pytest.mark.filterwarnings("ignore:the groups hold")


@pytest.fixture(scope="module")
def proportions():
    """A fitted classifier, and what it was fitted to."""
    clf, X, y, _, more = fitted("label_proportions")
    return clf, X, y, more


@pytest.mark.parametrize("kind", RUNS)
def test_every_kind_is_summarised_in_json(kind):
    summary = summary_of(kind)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["format"] == FORMAT
    for one in summary["sets"]:
        held_out = kind != "labels"
        assert one["judged"]["held_out"] == held_out
        assert (
            sum(one["likelihood"]["counts"])
            == one["judged"]["groups"]
            == (round(0.1 * one["groups"]) if held_out else one["groups"])
        )
        assert one["likelihood"]["model"] > one["likelihood"]["trivial"]
        assert sum(one["confidence"]["before"]) == sum(one["confidence"]["after"]) == one["memberships"]
        assert one["confidence"]["mean_after"] >= one["confidence"]["mean_before"]
    for column in ("predicted", "called", "known"):
        assert sum(row[column] for row in summary["balance"]) == pytest.approx(1)


@pytest.mark.parametrize("kind", [kind for kind in RUNS if kind not in ("several", "labels")])
def test_the_groups_judged_on_are_those_that_fit_held_out(kind):
    scores = [one["score"] for one in fitted(kind)[0].replicas_]
    assert summary_of(kind)["sets"][0]["likelihood"]["model"] == pytest.approx(max(scores), rel=1e-4)


def test_without_a_whole_random_state_the_same_groups_are_judged_also_when_loaded(tmp_path):
    X, labels = blobs(150)
    y = unbag.target(np.arange(150) // 5, count(labels, np.arange(150) // 5, 3))
    clf = unbag.AggregateClassifier(**{**FAST, "random_state": np.random.RandomState(0)}).fit(X, y)
    summary = summarise(clf, X, y, title="", inputs={})
    (one,) = summary["sets"]
    assert one["judged"] == {"held_out": True, "folds": None, "groups": 3, "rows_also_trained_on": 0.0}
    assert one["likelihood"]["model"] == pytest.approx(max(one["score"] for one in clf.replicas_), rel=1e-3)
    clf.save(tmp_path / "model")
    again = summarise(unbag.load(tmp_path / "model"), X, y, title="", inputs={})
    assert again["sets"][0]["judged"] == one["judged"]
    assert again["sets"][0]["likelihood"]["model"] == pytest.approx(one["likelihood"]["model"])
    assert json.loads(json.dumps(summary))["settings"]["random_state"].startswith("RandomState")


def test_rows_that_held_out_groups_share_with_others_are_told():
    (one,) = summary_of("pairwise_similarity")["sets"]
    assert 0.5 < one["judged"]["rows_also_trained_on"] <= 1
    assert summary_of("label_proportions")["sets"][0]["judged"]["rows_also_trained_on"] == 0


def test_with_folds_every_group_is_judged_by_models_that_have_not_seen_it():
    X, labels = blobs(150)
    pairs = tuples(150, 60, 2)
    same = unbag.PairwiseSimilarity().observe(labels, pairs, 3)
    clf = fit_all_candidates(X, same, pairs, aggregate="pairwise_similarity", n_classes=3, n_folds=3)
    with patch.object(clf, "_log_probs_of_models", wraps=clf._log_probs_of_models) as predicted:
        summary = summarise(clf, X, same, pairs, title="", inputs={})
    assert [call.args for call in predicted.call_args_list].count((ANY,)) == 1  # others are by the models of a fold
    (one,), (folds,), members = summary["sets"], clf.folds_, pairs.to_tuples().tolist()
    seen_elsewhere = [
        any(row in members[other] and folds[other] != folds[group] for other in range(60))
        for group in range(60)
        for row in members[group]
    ]
    shared = one["judged"].pop("rows_also_trained_on")
    assert one["judged"] == {"held_out": True, "folds": 3, "groups": 60}
    assert shared == pytest.approx(np.mean(seen_elsewhere))
    seen = clf._observations(same, pairs, len(X))
    of_models = clf._log_probs_of_models(torch.from_numpy(X))
    expected = mean_log_likelihood(seen, clf._out_of_fold_log_probs(of_models, seen))
    assert one["likelihood"]["model"] == pytest.approx(expected)
    assert one["likelihood"]["model"] != pytest.approx(clf.score(X, same, groups=pairs))
    assert summary["estimated_accuracy"] == asdict(clf.estimated_accuracy_)
    assert summary["training"]["candidates"] == clf.candidates_
    assert (summary["training"]["folds"], one["own_share"]) == (3, None)


@given(st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=3).filter(any), min_size=1, max_size=5), st.data())
def test_own_shares_are_those_of_a_multinomial(counts, data):
    sizes = [sum(own) for own in counts]
    weights = data.draw(st.lists(st.floats(0.1, 3), min_size=len(counts), max_size=len(counts)))
    one = Observations(
        unbag.LabelProportions(), unbag.Groups.from_sizes(sizes), counts, 3, group_weights=np.array(weights)
    )
    found = own_share(one)
    if max(sizes) == 1:
        assert found is None  # a label is no share
        return
    likelihoods = [multinomial.logpmf(own, sum(own), np.array(own) / sum(own)) for own in counts]
    assert found["log_likelihood"] == pytest.approx(np.average(likelihoods, weights=weights), abs=1e-9)
    rows = [(max(own) / sum(own), weight) for own, weight in zip(counts, weights, strict=True) for _ in range(sum(own))]
    assert found["accuracy"] == pytest.approx(np.average(*np.transpose(rows)[:1], weights=np.transpose(rows)[1]))


def test_own_shares_are_of_counts_alone():
    bags = Observations(unbag.MultipleInstance(), unbag.Groups.from_sizes([2, 3]), [1, 0], 2)
    assert own_share(bags) is None


def test_expected_counts_are_sums_of_probabilities():
    X, labels = blobs(90)
    ids = np.arange(90) // 6  # 15 groups: all are judged
    counts = count(labels, ids, 3)
    clf = unbag.AggregateClassifier(**FAST).fit(X, unbag.target(ids, counts))
    (one,) = summarise(clf, X, unbag.target(ids, counts), title="", inputs={})["sets"]
    expected = np.stack([clf.predict_proba(X)[ids == group].sum(0) for group in range(15)])
    for j, row in enumerate(one["outcome"]["classes"]):
        assert row["observed"] == counts[:, j].sum()
        assert row["expected"] == pytest.approx(expected[:, j].sum())
        assert row["error"] == pytest.approx(np.abs(expected[:, j] - counts[:, j]).mean())
        assert row["trivial_error"] == pytest.approx(np.abs(counts[:, j].mean() - counts[:, j]).mean())
    shares = np.stack([counts / 6, expected / 6], -1).reshape(-1, 2)
    np.testing.assert_allclose(one["outcome"]["points"], shares, atol=1e-4)
    frequency = counts.sum(0) / counts.sum()
    trivial = unbag.LabelProportions().log_likelihood(
        torch.from_numpy(np.log(np.tile(frequency, (90, 1)))), unbag.Groups.from_ids(ids), counts
    )
    assert one["likelihood"]["trivial"] == pytest.approx(trivial.mean().item())


def test_answers_are_compared_with_the_probability_of_yes():
    X, labels = blobs(300)
    pairs = tuples(300, 20, 2)  # too few to hold any out
    same = unbag.PairwiseSimilarity().observe(labels, pairs, 3)
    clf = unbag.AggregateClassifier("pairwise_similarity", n_classes=3, **FAST).fit(X, same, pairs)
    (one,) = summarise(clf, X, same, pairs, title="", inputs={})["sets"]
    predicted, yes = clf.predict_groups(X, pairs), same.numpy() == 1
    outcome = one["outcome"]
    assert outcome["yes"] == np.histogram(predicted[yes], 10, (0, 1))[0].tolist()
    assert outcome["no"] == np.histogram(predicted[~yes], 10, (0, 1))[0].tolist()
    assert outcome["right"] == ((predicted > 0.5) == yes).mean()
    assert outcome["most_common"] == max(yes.mean(), 1 - yes.mean())
    assert sum(tenth["n"] for tenth in outcome["bins"]) == 20
    assert sum(tenth["n"] * tenth["happened"] for tenth in outcome["bins"]) == pytest.approx(yes.sum())
    assert sum(tenth["n"] * tenth["predicted"] for tenth in outcome["bins"]) == pytest.approx(predicted.sum())
    worst = one["worst"]
    assert len(worst) == 15
    expected = np.sort(np.log(clf.predict_groups(X, pairs, same)))[:15]
    assert [row["model"] for row in worst] == pytest.approx(expected.tolist())
    number = int(worst[0]["group"])
    assert worst[0]["model"] == pytest.approx(np.log(clf.predict_groups(X, pairs, same))[number])


def test_confidence_is_that_of_disaggregation(proportions):
    clf, X, y, _ = proportions
    found = summary_of("label_proportions")["sets"][0]["confidence"]
    before, after = clf.predict_proba(X).max(1), clf.disaggregate(X, y).max(1)
    assert found["mean_before"] == pytest.approx(before.mean())
    assert found["mean_after"] == pytest.approx(after.mean())
    assert found["before"] == np.histogram(before, 20, (0, 1))[0].tolist()
    assert found["after"] == np.histogram(after.clip(0, 1), 20, (0, 1))[0].tolist()


def test_labels_against_scikit_learn(proportions):
    clf, X, y, more = proportions
    found, truth, guessed = summary_of("label_proportions")["labels"], more["labels"], clf.predict(X)
    assert found["accuracy"] == pytest.approx(clf.score(X, truth))
    assert found["confusion"] == confusion_matrix(truth, guessed, labels=list(HOSTILE)).tolist()
    recall = recall_score(truth, guessed, labels=list(HOSTILE), average=None)
    precision = precision_score(truth, guessed, labels=list(HOSTILE), average=None)
    assert [row["found"] for row in found["classes"]] == pytest.approx(recall.tolist())
    assert [row["correct"] for row in found["classes"]] == pytest.approx(precision.tolist())
    assert found["most_common"] == max((truth == name).mean() for name in HOSTILE)
    after = np.array(HOSTILE)[clf.disaggregate(X, y).argmax(1)]
    assert found["known_observation"][0]["after"] == pytest.approx((after == truth).mean())
    assert found["known_observation"][0]["before"] == pytest.approx(found["accuracy"])
    confidence = clf.predict_proba(X).max(1)
    tenth = np.minimum((confidence * 10).astype(int), 9)
    off = [abs((confidence - (guessed == truth))[tenth == one].sum()) for one in range(10)]
    assert found["calibration_error"] == pytest.approx(sum(off) / len(X))
    assert not found["renamed"]
    most = found["mistakes"][0]
    assert most["rows"] == ((truth == most["label"]) & (guessed == most["predicted"])).sum()
    assert most["label"] != most["predicted"]


@pytest.mark.parametrize("kind", ["pairwise_similarity", "triplet_comparison", "ordinal_triplet"])
def test_unnamed_classes_are_matched_with_labels(kind):
    summary = summary_of(kind)
    assert summary["labels"]["accuracy"] > 0.9
    assert summary["labels"]["rows"] == 50
    if kind == "pairwise_similarity":  # whose classes were called 0, 1 and 2
        assert summary["labels"]["renamed"]
        assert [row["class"] for row in summary["labels"]["classes"]] == ["low", "middle", "top"]


def test_balance_tells_what_counts_tell(proportions):
    clf, X, _, more = proportions
    rows = summary_of("label_proportions")["balance"]
    share = [(more["labels"] == name).mean() for name in HOSTILE]
    assert [row["implied"] for row in rows] == pytest.approx(share)
    assert [row["known"] for row in rows] == pytest.approx(share)  # a posterior adds up to the counts
    assert [row["predicted"] for row in rows] == pytest.approx(clf.predict_proba(X).mean(0).tolist())
    assert {row["implied"] for row in summary_of("ordinal_rank")["balance"]} == {None}


def test_a_loaded_classifier_has_the_same_summary(proportions, tmp_path):
    clf, X, y, more = proportions
    clf.save(tmp_path / "model")
    loaded = summarise(unbag.load(tmp_path / "model"), X, y, title="A run: label_proportions", **more)
    assert loaded == summary_of("label_proportions")


def test_the_size_does_not_grow_with_the_number_of_groups():
    X, labels = blobs(6000)
    ids = np.arange(6000) // 2
    y = unbag.target(ids, count(labels, ids, 3))
    clf = unbag.AggregateClassifier(**{**FAST, "model": "linear", "epochs": 1}).fit(X, y)
    clf.history_ = clf.history_ * 2000
    clf.n_iter_ = 2000
    summary = summarise(clf, X, y, title="", inputs={})
    assert len(json.dumps(summary)) < 100_000
    assert len(summary["training"]["history"]) <= 501
    assert len(summary["sets"][0]["outcome"]["points"]) <= 1000
    assert len(summary["sets"][0]["worst"]) == 15


def test_impossible_observations_are_counted_and_left_out_of_means():
    X, labels = blobs(60, k=2)
    ids = np.arange(60) // 3
    counts = count(labels, ids, 2)
    clf = unbag.AggregateClassifier(**FAST).fit(X, unbag.target(ids, counts))

    class Sure(torch.nn.Module):
        def forward(self, x):
            return torch.tensor([[0.0, float("-inf")]]).repeat(len(x), 1)

    clf.models_[0][1] = Sure()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        summary = summarise(clf, X, unbag.target(ids, counts), title="", inputs={})
    (one,) = summary["sets"]
    mixed = int((counts[:, 1] > 0).sum())
    assert one["likelihood"]["impossible"] == mixed > 0
    assert one["confidence"]["without"] == 3 * mixed
    json.dumps(summary, allow_nan=False)


def test_bad_labels_are_refused(proportions):
    clf, X, y, _ = proportions

    def with_labels(labels, rows=None):
        return summarise(clf, X, y, title="", inputs={}, labels=labels, labelled_rows=rows)

    with pytest.raises(ValueError, match="labels has 3 entries for 400 rows of X"):
        with_labels([HOSTILE[0]] * 3)
    with pytest.raises(ValueError, match="labels has 3 entries for 2 labelled_rows"):
        with_labels([HOSTILE[0]] * 3, [0, 1])
    with pytest.raises(ValueError, match="labelled_rows must be row numbers from 0 to 399, got 0 to 400"):
        with_labels([HOSTILE[0]] * 2, [0, 400])
    with pytest.raises(ValueError, match="'other' is none of the classes"):
        with_labels(["other"] * 2, [0, 1])


def test_labels_of_too_many_classes_cannot_name_them():
    clf, X, y, groups, _ = fitted("pairwise_similarity")
    with pytest.raises(ValueError, match=r"labels are of 4 classes.*but the classifier has 3"):
        summarise(clf, X, y, groups, title="", inputs={}, labels=list("abcd"), labelled_rows=range(4))
    few = summarise(clf, X, y, groups, title="", inputs={}, labels=list("ab"), labelled_rows=range(2))
    assert [row["class"] for row in few["labels"]["classes"]] == ["a", "b", "(no label, 1)"]


def test_code_among_the_settings_is_told_by_its_name():
    X, labels = blobs(60)
    make = lambda: torch.nn.Linear(3, 3)  # noqa: E731
    clf = unbag.AggregateClassifier(**{**FAST, "model": make}).fit(X, labels)
    assert summarise(clf, X, labels, title="", inputs={})["settings"]["model"] == "<lambda>"
