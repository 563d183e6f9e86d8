"""Boosted trees as a model of the estimator."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest
import torch
from problems_of_groups import blobs, count, tuples
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import unbag
from unbag import AggregateClassifier, Groups
from unbag.families import BoostedTrees
from unbag.families.starts import guess_classes
from unbag.training import Observations, permuted_accuracy

pytest.importorskip("lightgbm")


def chequered(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows whose class no line can tell: two squares of a chequerboard, and a column that tells nothing."""
    X = np.random.default_rng(seed).uniform(-1, 1, (n, 3))
    return X, ((X[:, 0] > 0) ^ (X[:, 1] > 0)).astype(int)


def trees(aggregate="label_proportions", **settings) -> AggregateClassifier:
    return AggregateClassifier(aggregate, **{"model": "trees", "epochs": 60, "random_state": 0} | settings)


KINDS = {
    "proportions": (unbag.LabelProportions(), Groups.from_sizes([3] * 200)),
    "bags": (unbag.MultipleInstance(), Groups.from_sizes([2] * 300)),
    "pairs": (unbag.PairwiseSimilarity(), tuples(600, 1200, 2)),
    "triplets": (unbag.TripletComparison(), tuples(600, 1200, 3)),
    "ranks": (unbag.OrdinalRank(), tuples(600, 1000, 2)),
    "majority": (unbag.Majority(), Groups.from_sizes([3] * 200)),
}


@pytest.mark.filterwarnings("ignore:the groups hold")
@pytest.mark.parametrize("kind", KINDS)
def test_trees_learn_what_no_line_can_tell(kind):
    aggregate, groups = KINDS[kind]
    X, y = chequered(600)
    new, truth = chequered(1000, seed=1)
    z = aggregate.observe(y, groups, 2)

    def accuracy(model: str) -> float:
        clf = trees(aggregate, model=model, n_classes=2, learning_rate=0.01, scaling="standard").fit(
            X, z, groups=groups
        )
        return permuted_accuracy(torch.from_numpy(clf.predict(new)), torch.from_numpy(truth))

    assert accuracy("trees") > 0.85
    if kind in ("proportions", "bags"):
        assert accuracy("linear") < 0.7


@pytest.fixture(scope="module")
def problem():
    X, y = blobs(240)
    X[::7, 0] = np.nan
    ids = np.arange(240) // 4
    return X, y, unbag.target(ids, count(y, ids, 3))


def test_missing_values_are_read_as_they_are(problem):
    X, y, target = problem
    clf = trees().fit(X, target)
    assert clf.score(X, y) > 0.9
    missing = X.copy()
    missing[:, 0] = np.nan
    assert (clf.predict_proba(missing) != clf.predict_proba(np.nan_to_num(missing))).any()
    with pytest.raises(ValueError, match="NaN"):
        AggregateClassifier(model="mlp").fit(X, target)
    X = X.copy()
    X[3, 1] = np.inf
    with pytest.raises(ValueError, match="infinity in column 1; write NaN for what is missing"):
        clf.predict(X)


def test_everything_that_the_estimator_promises(problem):
    X, y, target = problem
    clf = trees().fit(X, target)
    probs = clf.predict_proba(X)
    np.testing.assert_allclose(probs.sum(1), 1)
    np.testing.assert_allclose(np.exp(clf.predict_log_proba(X)), probs)
    known = clf.disaggregate(X, target)
    np.testing.assert_allclose(known[:4].sum(0), count(y, np.arange(240) // 4, 3)[0], atol=1e-5)
    assert clf.score(X, target) > -3
    assert clf.predict_groups(X, Groups.from_sizes([4] * 60)).shape == (60, 3)
    assert clf.scaling_ == "none"
    assert clf.history_[clf.best_epoch_]["score"] == [clf.replicas_[0]["score"]]
    assert clf.n_iter_ == len(clf.history_) <= 60
    assert clone(clf).get_params() == clf.get_params()
    again = trees().fit(X, target)
    np.testing.assert_array_equal(again.predict_proba(X), probs)
    assert (trees(random_state=1).fit(X, target).predict_proba(X) != probs).any()


def test_the_best_round_is_what_predicts(problem):
    X, _, target = problem
    clf = trees(validation_fraction=0.3).fit(X, target)
    groups, z = unbag.data.targets.read_target(target)
    held_out = torch.tensor(clf.held_out_[0])
    seen = Observations(unbag.LabelProportions(), groups, z, 3).take(held_out)
    log_probs = torch.from_numpy(clf.predict_log_proba(X))
    found = seen.aggregate.log_likelihood(log_probs, seen.groups, seen.z).mean()
    assert found.item() == pytest.approx(clf.replicas_[0]["score"], rel=1e-4)


def test_without_held_out_groups_the_last_round_is_kept(problem):
    X, _, target = problem
    clf = trees(validation_fraction=0.0, epochs=5, n_restarts=2, ensemble=True).fit(X, target)
    assert (clf.best_epoch_, clf.n_iter_, len(clf.models_)) == (4, 5, 2)
    assert clf.history_[0]["score"] is None


def test_sets_of_several_kinds_and_labels_of_a_few_rows():
    X, y = chequered(600)
    pairs = tuples(600, 1200, 2)
    labelled = Groups.from_tuples(np.arange(30)[:, None])
    sets = ["pairwise_similarity", "label_proportions"]
    z = [unbag.PairwiseSimilarity().observe(y, pairs, 2), y[:30]]
    with pytest.warns(unbag.UnbagWarning, match="the groups hold"):
        clf = trees(sets, n_classes=2).fit(X, z, groups=[pairs, labelled])
    assert clf.symmetry_ == "none"
    assert clf.score(X, y) > 0.85


def test_classes_that_pairs_leave_unnamed_are_named_by_a_few_rows():
    X, y = blobs(300)
    pairs = tuples(300, 900, 2)
    clf = trees("pairwise_similarity", n_classes=3).fit(X, unbag.PairwiseSimilarity().observe(y, pairs, 3), pairs)
    clf.name_classes(X[:30], np.array(["a", "b", "c"])[y[:30]])
    assert (clf.predict(X) == np.array(["a", "b", "c"])[y]).mean() > 0.9


def test_pipelines_and_cross_validation(problem):
    X, _, target = problem
    model = make_pipeline(StandardScaler(), trees(epochs=10))
    assert np.isfinite(model.fit(X, target).score(X, target))
    scores = cross_val_score(trees(epochs=10), X, target, groups=np.arange(240) // 4, cv=GroupKFold(3))
    assert np.isfinite(scores).all()


def test_images_are_rows_of_pixels():
    X, y = blobs(120, k=4)
    images = X.reshape(120, 2, 2)
    clf = trees(epochs=20).fit(images, y)
    np.testing.assert_array_equal(clf.predict_proba(images), trees(epochs=20).fit(X, y).predict_proba(X))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"checkpoint": "somewhere"},
            "model='trees' cannot go on from where it was interrupted; leave checkpoint= out",
        ),
        ({"device": "meta"}, "model='trees' runs on the processor; leave device= out, got 'meta'"),
        ({"n_restarts": 0}, "n_restarts must be a whole number"),
        ({"epochs": 0}, "epochs"),
    ],
)
def test_settings_that_trees_do_not_have(problem, settings, message, monkeypatch):
    monkeypatch.setattr("unbag.estimator.check_device", lambda device: "cpu")
    X, _, target = problem
    with pytest.raises(ValueError, match=message):
        trees(**settings).fit(X, target)


def test_without_lightgbm_a_sentence_says_what_to_install(problem, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(ImportError, match=r"pip install unbag\[trees\]"):
        trees().fit(problem[0], problem[2])


def test_rows_that_are_all_alike_are_refused():
    with pytest.raises(ValueError, match="X is the same in all 36 rows of groups"):
        trees().fit(np.full((40, 2), np.nan), np.arange(40) % 2)


@pytest.mark.parametrize("n", [4, 10])
def test_very_few_rows(n):
    X = np.arange(n, dtype=float)[:, None]
    clf = trees(epochs=5).fit(X, np.arange(n) >= n // 2)
    assert clf.predict_proba(X).shape == (n, 2)


def test_a_class_that_never_occurs_keeps_a_small_probability(problem):
    X, y, _ = problem
    ids = np.arange(240) // 4
    with pytest.warns(unbag.UnbagWarning, match="none of the 60 groups has a member"):
        clf = trees(epochs=10).fit(X, unbag.target(ids, np.pad(count(y, ids, 3), ((0, 0), (0, 1)))))
    assert 0 < clf.predict_proba(X)[:, 3].max() < 0.05


def test_a_time_limit_returns_the_best_so_far(problem):
    X, y, _ = problem
    seen = [Observations(unbag.LabelProportions(), Groups.from_sizes([1] * 240), torch.eye(3, dtype=int)[y], 3)]
    begun = time.monotonic()
    fitted = BoostedTrees(rounds=10**6, patience=None).fit(torch.from_numpy(X), seen, [], 0, time_limit=0.3)
    assert time.monotonic() - begun < 3
    assert fitted.log_probs(torch.from_numpy(X)).argmax(1).eq(torch.from_numpy(y)).double().mean() > 0.8


def test_a_time_limit_holds_for_guesses_too():
    X, y = blobs(3000)
    aggregate, pairs = unbag.PairwiseSimilarity(), tuples(3000, 9000, 2)
    seen = [Observations(aggregate, pairs, aggregate.observe(torch.from_numpy(y), pairs, 3), 3)]
    begun = time.monotonic()
    fitted = BoostedTrees().fit(torch.from_numpy(X), seen, [], 0, time_limit=0.2)
    assert time.monotonic() - begun < 5
    assert fitted.log_probs(torch.from_numpy(X)).shape == (3000, 3)


def test_guesses_differ_and_are_distributions():
    X = np.random.default_rng(0).normal(size=(50, 3))
    X[0, 0], X[:, 2] = np.nan, 1.0
    pairs = Groups.from_tuples([*zip(range(50), [*range(1, 50), 0], strict=True)])
    z = unbag.PairwiseSimilarity().observe(np.arange(50) % 4, pairs, 4)
    guesses = guess_classes(X, [Observations(unbag.PairwiseSimilarity(), pairs, z, 4)], [], seed=0)
    assert len({guess.argmax(1).numpy().tobytes() for guess in guesses}) == 3
    for guess in guesses:
        torch.testing.assert_close(guess.sum(1), torch.ones(50, dtype=torch.float64))
