"""The automatic model: candidates on folds of the groups, mixed by what explains groups that were left out."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from problems_of_groups import MIXED, blobs, count, fit_all_candidates, tuples
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold

import unbag
from unbag import AggregateClassifier, Groups
from unbag._utils.findings import UnbagWarning
from unbag.estimators.class_matching import match_classes
from unbag.families.choice import architecture
from unbag.families.cross_fit import cross_fit
from unbag.out_of_fold import mean_log_likelihood

# Long enough for what can be learned here, and quick.
SETTINGS = {"epochs": 40, "learning_rate": 0.03, "patience": 5, "random_state": 0}


def rows(n: int = 400, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, size=(n, 4))


def drawn(logits: np.ndarray, seed: int = 1) -> np.ndarray:
    return (np.random.default_rng(seed).random(len(logits)) < 1 / (1 + np.exp(-logits))).astype(int)


def counts_of(labels: np.ndarray, size: int = 4, k: int = 2) -> tuple[np.ndarray, Groups]:
    ids = np.arange(len(labels)) // size
    return count(labels, ids, k), Groups.from_ids(ids)


def parity(X: np.ndarray) -> np.ndarray:
    """Return logits that no linear model has, and whose borders follow the axes."""
    return 12.0 * np.sign(np.sin(9 * X[:, 0])) * np.sign(X[:, 1])


@pytest.fixture(scope="module")
def linear():
    X = rows()
    labels = drawn(6 * X[:, 0] - 4 * X[:, 1])
    z, groups = counts_of(labels)
    return AggregateClassifier(**SETTINGS).fit(X, z, groups), X, z, groups, labels


def test_every_group_is_left_out_once(linear):
    classifier, X, z, groups, _ = linear
    (folds,) = classifier.folds_
    assert np.bincount(folds).tolist() == [25] * 4
    assert classifier.held_out_ == [list(range(100))]
    seen = []

    def watch(candidates, X, sets, align, **settings):
        def fit(self, X, used, held_out, *given, **others):
            seen.append((used[0].groups.members, held_out[0].groups.members))
            return real_fit(self, X, used, held_out, *given, **others)

        with patch.object(unbag.families.BoostedTrees, "fit", fit):
            return cross_fit({"trees": candidates["trees"]}, X, sets, align, **settings)

    real_fit = unbag.families.BoostedTrees.fit
    with patch("unbag.fold_fitting.cross_fit", watch):
        AggregateClassifier(**{**SETTINGS, "epochs": 1}).fit(X, z, groups)
    assert len(seen) == 4
    assert torch.cat([left_out for _, left_out in seen]).sort().values.tolist() == list(range(400))
    for used, left_out in seen:
        assert torch.cat([used, left_out]).sort().values.tolist() == list(range(400))


def test_left_out_groups_are_explained_by_models_that_have_not_seen_them(linear):
    classifier, X, z, groups, _ = linear
    seen = classifier._observations(z, groups, len(X))
    of_models = classifier._log_probs_of_models(torch.from_numpy(X))
    (found,) = classifier._out_of_fold_log_probs(of_models, seen)
    probs = np.stack([own.exp().numpy() for own in of_models])
    fold_of_member = np.repeat(classifier.folds_[0], 4)
    for fold in range(4):
        weights = np.where(np.array(classifier.model_folds_) == fold, classifier.model_weights_, 0)
        mixed = np.einsum("r,rnk->nk", weights, probs)[fold_of_member == fold] ** (1 / classifier.temperature_)
        expected = mixed / mixed.sum(1, keepdims=True)
        np.testing.assert_allclose(found.exp().numpy()[fold_of_member == fold], expected, rtol=1e-6)
    best = max(one["score"] for one in classifier.candidates_)
    assert mean_log_likelihood(seen, [found]) >= best


@pytest.mark.parametrize("settings", [{}, {"class_shares": [0.2, 0.8]}], ids=["unnamed", "named"])
def test_a_fit_is_examined_by_what_models_say_of_groups_they_have_not_seen(settings):
    X = rows()
    labels = drawn(6 * X[:, 0] + 3)
    pairs = Groups.from_tuples(np.arange(400).reshape(200, 2))
    same, counts = labels[::2] == labels[1::2], np.arange(200) % 10 > 0
    classifier = AggregateClassifier(
        "pairwise_similarity", "linear", n_folds=3, epochs=3, learning_rate=0.1, n_classes=2, random_state=3, **settings
    )

    def match(fit, symmetry):  # shares, which fit by their squared distance, turn the classes round
        return np.array([1, 0]) if (fit < 0).any() else match_classes(fit, symmetry)

    with (
        patch("unbag.diagnostics.fit_diagnosis.examine", return_value=[]) as examined,
        patch("unbag.estimator.match_classes", match),
    ):
        classifier.fit(X, same, pairs, group_weights=counts)
    ((one,),) = examined.call_args.args
    seen = classifier._observations(same, pairs, len(X), group_weights=counts)
    of_models = classifier._log_probs_of_models(torch.from_numpy(X))
    (expected,) = classifier._out_of_fold_log_probs(of_models, seen)
    torch.testing.assert_close(one.log_probs, expected[np.repeat(counts, 2)])
    for fold, own in enumerate(one.by_fold):
        expected = classifier._mixed_log_probs(torch.from_numpy(X), fold=fold)
        torch.testing.assert_close(own, expected[np.repeat(counts, 2)])
    assert (len(one.constant), len(one.observations.groups)) == (180, 180)


def test_what_is_learned_is_described(linear):
    classifier, X, _, _, labels = linear
    assert classifier.score(X, labels) > 0.8
    found = classifier.estimated_accuracy_
    assert 0 <= found.low < found.value < found.high <= 1
    assert found.value == pytest.approx(classifier.score(X, labels), abs=0.06)
    assert 0.5 < classifier.temperature_ < 2
    assert [one["model"] for one in classifier.candidates_] == ["linear", "mlp", "mean_proportions", "trees"]
    assert sum(one["weight"] for one in classifier.candidates_) == pytest.approx(1)
    assert sum(classifier.model_weights_) == pytest.approx(1)
    assert {*classifier.model_names_} == {architecture(one["model"]) for one in classifier.candidates_ if one["weight"]}
    assert len(classifier.replicas_) == 4
    assert np.isfinite(classifier.predict_log_proba(X)).all()
    np.testing.assert_allclose(classifier.predict_proba(X).sum(1), 1)


def test_the_same_twice():
    X, labels = blobs(60)
    z, groups = counts_of(labels, k=3)
    classifier = fit_all_candidates(X, z, groups)
    again = fit_all_candidates(X, z, groups)
    np.testing.assert_array_equal(again.predict_log_proba(X), classifier.predict_log_proba(X))
    assert (again.candidates_, again.folds_) == (classifier.candidates_, classifier.folds_)
    other = clone(classifier).set_params(random_state=1, model="linear", epochs=1).fit(X, z, groups)
    assert other.folds_ != classifier.folds_


@pytest.fixture(scope="module")
def of_few():
    X, labels = blobs(96, spread=6)
    z, groups = counts_of(labels, size=32, k=3)
    with pytest.warns(UnbagWarning, match="3 groups can be compared in 2 ways"):
        return AggregateClassifier(random_state=0).fit(X, z, groups), X, groups, labels


def test_as_many_groups_as_classes_begin_with_clusters_and_are_all_learned_from(of_few):
    classifier, X, _, labels = of_few
    assert [(one["model"], one["weight"]) for one in classifier.candidates_] == [("clusters", 1)]
    assert classifier.score(X, labels) > 0.95
    assert classifier.model_folds_ == [*range(3), *[3] * 8]  # of three folds, and of all groups
    np.testing.assert_allclose(classifier.model_weights_, [0.2 / 3] * 3 + [0.8 / 8] * 8)
    assert {*classifier.model_temperatures_, classifier.temperature_} == {1.0}
    assert {len(entry["loss"]) for entry in classifier.history_} == {11}
    assert {entry["score"] for entry in classifier.history_} == {None}
    assert classifier.scaling_ == "standard"


def test_they_are_judged_by_models_that_have_not_seen_them_and_tell_no_accuracy(of_few):
    classifier, X, groups, _ = of_few
    assert classifier.estimated_accuracy_ is None
    of_models = classifier._log_probs_of_models(torch.from_numpy(X).float())
    (out_of_fold,) = classifier._out_of_fold_log_probs(of_models, [SimpleNamespace(groups=groups)])
    for group, fold in enumerate(classifier.folds_[0]):
        members = slice(32 * group, 32 * (group + 1))
        torch.testing.assert_close(out_of_fold[members], of_models[fold][members])


def test_where_clusters_do_not_explain_left_out_groups_others_count_as_much():
    X, labels = blobs(48)
    z, groups = counts_of(labels, size=16, k=3)
    shares = patch("unbag.families.cross_fit.best_constant", lambda sets: (None, [torch.zeros(3)]))
    with shares, patch("unbag.fit_settings.MOST_LOOKS", 2):
        classifier = AggregateClassifier(random_state=0).fit(X[:, :2], z, groups)
    names = ["linear", "clusters"]  # nothing tells others when to stop
    assert [(one["model"], one["weight"]) for one in classifier.candidates_] == [(name, 1 / 2) for name in names]
    np.testing.assert_allclose(classifier.model_weights_, ([0.1 / 3] * 3 + [0.4 / 8] * 8) * 2)


def test_what_the_caller_says_of_training_is_kept_with_few_groups():
    X = rows(8)[:, :1]
    z, groups = counts_of(drawn(9 * X[:, 0]))
    classifier = AggregateClassifier(**{**SETTINGS, "epochs": 2}).fit(X, z, groups)
    assert {*classifier.model_folds_} == {0, 1}
    assert all(entry["score"] is not None for entry in classifier.history_)


def test_trees_are_chosen_where_borders_follow_the_axes():
    X = rows(900)
    z, groups = counts_of(drawn(parity(X)), size=3)
    classifier = AggregateClassifier(**SETTINGS, n_folds=2).fit(X, z, groups)
    best = max(classifier.candidates_, key=lambda one: one["weight"])
    assert (best["model"], best["weight"] > 0.6) == ("trees", True)


def test_a_network_is_chosen_where_borders_are_curved():
    X = rows(800)
    labels = drawn(25 * (X[:, 0] * X[:, 1] + X[:, 2] * X[:, 3]))
    z, groups = counts_of(labels, size=2)
    classifier = AggregateClassifier(**SETTINGS).fit(X, z, groups)
    scores = {one["model"]: one["score"] for one in classifier.candidates_}
    assert scores["mlp"] > scores["trees"] > scores["linear"]
    assert sum(one["weight"] for one in classifier.candidates_ if one["model"] in ("mlp", "mean_proportions")) > 0.8


def test_unnamed_classes_are_the_same_in_all_folds():
    X, labels = blobs(300)
    pairs = tuples(300, 900, 2)
    same = unbag.PairwiseSimilarity().observe(labels, pairs, 3)
    settings = {"epochs": 30, "learning_rate": 0.05}
    classifier = fit_all_candidates(X, same, pairs, aggregate="pairwise_similarity", n_classes=3, **settings)
    found = torch.stack([own.exp() for own in classifier._log_probs_of_models(torch.from_numpy(X))]).argmax(2)
    for one in found[1:]:
        assert (one == found[0]).double().mean() > 0.9
    classifier.name_classes(X[:20], labels[:20])
    assert classifier.score(X, labels) > 0.9


def test_several_sets_with_weights():
    X, labels = blobs(120)
    ids = np.arange(120) // 3
    few = Groups.from_tuples(np.arange(20)[:, None])
    kinds = ["label_proportions", "label_proportions"]
    y, groups = [count(labels, ids, 3), labels[:20]], [Groups.from_ids(ids), few]
    weights = np.where(np.arange(40) < 5, 0.0, 1.0)
    classifier = AggregateClassifier(kinds, **{**MIXED, "epochs": 10}).fit(X, y, groups, group_weights=[weights, None])
    assert [len(own) for own in classifier.folds_] == [40, 20]
    assert classifier.folds_[0][:5] == [-1] * 5  # they are in no fold, and judge nothing
    assert min(classifier.folds_[0][5:]) == min(classifier.folds_[1]) == 0
    assert classifier.held_out_[0] == list(range(5, 40))
    assert classifier.score(X, labels) > 0.8


@pytest.mark.filterwarnings("ignore:2 groups can be compared")
def test_two_groups_are_left_out_in_turn():
    X, labels = blobs(40, k=2)
    z, groups = counts_of(labels, size=20)
    classifier = AggregateClassifier(**{**MIXED, "n_folds": 4}).fit(X, z, groups)
    assert sorted(classifier.folds_[0]) == [0, 1]
    assert sorted({*classifier.model_folds_}) == [0, 1]
    assert np.isfinite(classifier.predict_proba(X)).all()


@pytest.mark.filterwarnings("ignore:there is only 1 group", "ignore:2 groups can be compared")
def test_a_single_group_is_refused():
    X, labels = blobs(20, k=2)
    z, groups = counts_of(labels, size=20)
    with pytest.raises(ValueError, match="there is only 1 group"):
        AggregateClassifier().fit(X, z, groups)
    both = {"aggregate": ["label_proportions", "multiple_instance"]}
    for model in ("auto", "linear"):
        with pytest.raises(
            ValueError, match="a single group cannot be left out to choose by; name a model and give n_"
        ):
            AggregateClassifier(**both, model=model, n_folds=2).fit(X, [z, [1]], [groups, groups])


def test_without_lightgbm_the_others_are_candidates(monkeypatch):
    monkeypatch.setattr("unbag.fold_fitting.has_lightgbm", lambda: False)
    monkeypatch.setattr("unbag.families.choice.has_lightgbm", lambda: False)
    X, labels = blobs(60)
    classifier = AggregateClassifier(**MIXED).fit(X, labels)
    assert [one["model"] for one in classifier.candidates_] == ["linear", "mlp"]
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN or infinity in column 1"):
        AggregateClassifier(**MIXED).fit(X, labels)


def test_missing_values_leave_trees_alone():
    X, labels = blobs(120)
    clean = fit_all_candidates(X, labels)
    X[::7, 1] = np.nan
    classifier = AggregateClassifier(**{**MIXED, "epochs": 20}).fit(X, labels)
    assert [one["model"] for one in classifier.candidates_] == ["trees"]
    assert np.isfinite(classifier.predict_proba(X)).all()
    with pytest.raises(ValueError, match="NaN or infinity in column 1"):  # its networks have learned without
        clean.predict(X)
    images = rows(24).reshape(24, 2, 2)
    images[0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="X holds NaN, which only trees of tables can read"):
        AggregateClassifier(**MIXED).fit(images, labels[:24])


def test_images_have_networks_alone():
    images = rows(40).reshape(40, 2, 2)
    classifier = AggregateClassifier(**MIXED).fit(images, images[:, 0, 0] > 0)
    assert [one["model"] for one in classifier.candidates_] == ["linear", "mlp"]


@pytest.mark.parametrize("model", ["linear", "trees"])
def test_a_named_model_has_folds_on_request(model):
    X, labels = blobs(60)
    classifier = AggregateClassifier(model=model, n_folds=3, epochs=5, random_state=0).fit(X, labels)
    assert classifier.candidates_ == [{"model": model, "score": classifier.candidates_[0]["score"], "weight": 1.0}]
    assert (len(classifier.models_), classifier.model_folds_) == (3, [0, 1, 2])
    single = AggregateClassifier(model=model, epochs=5, random_state=0).fit(X, labels)
    assert (single.folds_, single.temperature_, single.candidates_) == (None, 1.0, [])


def test_copies_and_searches():
    X, labels = blobs(60)
    ids = np.arange(60) // 3
    y = unbag.target(ids, count(labels, ids, 3))
    given = AggregateClassifier(**MIXED, n_classes=3)
    assert clone(given).get_params() == given.get_params()
    classifier = given.fit(X, y)
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))
    search = GridSearchCV(given, {"n_folds": np.array([2, 3])}, cv=GroupKFold(2), error_score="raise")
    search.fit(X, y, groups=ids)
    assert search.best_params_["n_folds"] in (2, 3)
    assert len({*search.best_estimator_.model_folds_}) == search.best_params_["n_folds"]
