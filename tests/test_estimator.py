import datetime
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from problems_of_groups import FAST, blobs, count, fast, tuples
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from torch import nn

import unbag
from unbag import AggregateClassifier, CrossFitting, Groups, NetworkTraining, UnbagWarning
from unbag.data.labels import Categorical
from unbag.estimators.config import Thresholds, resolve, resolve_settings
from unbag.learners import Problem
from unbag.training import Observations

IDS = np.repeat(np.arange(50), 4)


def target_of_blobs(k: int = 3):
    X, labels = blobs(k=k)
    return X, unbag.target(IDS, count(labels, IDS, k))


def accuracy(classifier, X, labels) -> float:
    return float((classifier.predict(X) == labels).mean())


@pytest.mark.filterwarnings("ignore:the groups contain")  # rows drawn at random leave some out
def test_digits_from_proportions_are_within_two_points_of_all_labels():
    images, labels = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(images, labels, test_size=0.25, stratify=labels, random_state=0)
    groups = tuples(len(X), len(X) // 2, 6)
    counts = unbag.LabelProportions().observe(y, groups, 10)
    settings = {"model": "mlp", "training": NetworkTraining(40), "random_state": 0}  # a fifth of the default epochs
    from_counts = AggregateClassifier(**settings).fit(X, counts, groups=groups)
    from_labels = AggregateClassifier(**settings).fit(X, y)
    assert from_labels.score(X_test, y_test) > 0.96
    assert from_counts.score(X_test, y_test) > from_labels.score(X_test, y_test) - 0.02
    inside = from_counts.disaggregate(X, counts, groups=groups).argmax(1)
    assert (inside == y[groups.members]).mean() > 0.99


def test_posteriors_of_a_target_stand_beside_their_rows():
    X, labels = blobs(n=24, k=2)
    ids = np.arange(24) % 8  # the rows of a group are apart
    counts = count(labels, ids, 2)
    classifier = AggregateClassifier(**fast(epochs=1)).fit(X, y := unbag.target(ids, counts))
    groups = unbag.Groups.from_ids(ids)
    of_members = classifier.disaggregate(X, counts, groups=groups)
    np.testing.assert_array_equal(classifier.disaggregate(X, y)[groups.members], of_members)


# What each kind of observation can learn of blobs, and up to which renaming.


@pytest.mark.parametrize(
    ("name", "k", "size", "n"),
    [
        ("label_proportions", 3, 4, 100),
        ("pairwise_similarity", 3, 2, 600),
        ("triplet_comparison", 3, 3, 600),
        ("multiple_instance", 2, 2, 200),
        ("ordinal_rank", 3, 2, 600),
        ("ordinal_triplet", 3, 3, 900),
    ],
)
@pytest.mark.parametrize("method", ["uum", "likelihood"])
@pytest.mark.filterwarnings("ignore:the groups contain")  # rows drawn at random leave some out
def test_every_kind_of_observation(name, k, size, n, method):
    X, labels = blobs(k=k)
    groups = tuples(len(X), n, size)
    classifier = AggregateClassifier(name, method=method, n_classes=k, validation=CrossFitting(n_restarts=2), **FAST)
    aggregate = unbag.aggregates.registry.find_aggregate(name)
    z = aggregate.observe(labels, groups, k)
    with pytest.warns(UnbagWarning, match="where one") if "ordinal" in name else nullcontext():
        classifier.fit(X, z, groups=groups)
    unnamed = name in ("pairwise_similarity", "triplet_comparison", "ordinal_triplet")
    assert (classifier.symmetry_ != "none") == unnamed
    assert unnamed == any(found.kind == "unnamed_classes" for found in classifier.diagnosis_)
    if unnamed:
        few = [int((labels == label).argmax()) for label in range(k)]
        classifier.name_classes(X[few], labels[few])
    assert accuracy(classifier, X, labels) > 0.9
    posterior = classifier.disaggregate(X, z, groups=groups)
    assert posterior.shape == (n * size, k)
    assert (posterior.argmax(1) == labels[groups.members]).mean() >= accuracy(classifier, X, labels) - 0.02
    expected = classifier.predict_groups(X, groups)
    assert expected.shape == ((n, k) if name == "label_proportions" else (n,))
    likelihood = classifier.predict_groups(X, groups, z=z)
    assert np.log(likelihood).mean() == pytest.approx(classifier.score(X, z, groups=groups))
    if name != "label_proportions":
        np.testing.assert_allclose(np.where(z, expected, 1 - expected), likelihood, atol=1e-9)


def test_settings_of_the_paper_follow_the_kind_of_observation():
    groups = Groups.from_tuples([[0, 1], [1, 2]])
    pairs = Observations(unbag.PairwiseSimilarity(), groups, [1, 0], 2)
    bags = Observations(unbag.MultipleInstance(), groups, [1, 0], 2)
    counts = Observations(unbag.LabelProportions(), groups, [[1, 1], [2, 0]], 2)
    labels = Observations(unbag.LabelProportions(), Groups.from_sizes([1, 1]), [[1, 0], [0, 1]], 2)

    def settings(observations, method="auto", **choices):
        problem = Problem.create(torch.zeros(3, 1), [observations], Categorical(observations.n_classes))
        return resolve_settings(NetworkTraining(**choices), method, problem, Thresholds())

    assert (settings(pairs).warm_up, settings(pairs).phase(100)) == (100, "remembered weights")
    assert (settings(bags).warm_up, settings(bags).phase(0)) == (0, "current weights")
    assert (settings(counts).warm_up, settings(counts).phase(0)) == (0, "remembered weights")
    assert settings(labels).phase(0) == "current weights"
    equal = Observations(unbag.FromFunction(lambda labels: labels[0] == labels[1]), groups, [1, 0], 3)
    assert settings(equal).warm_up == 100
    assert {settings(pairs, method="likelihood").phase(epoch) for epoch in range(200)} == {"likelihood"}
    assert settings(counts, weights="current", warm_up=7).phase(7) == "current weights"
    assert settings(bags, weights="remembered").phase(0) == "remembered weights"
    large = Observations(unbag.LabelProportions(), Groups.from_tuples([[0, 1, 2] * 11]), [[30, 3]], 2)
    assert settings(large).phase(0) == "current weights"


def test_a_time_limit_leaves_time_for_estimates_and_checks():
    pairs = Observations(unbag.PairwiseSimilarity(), Groups.from_tuples([[0, 1], [1, 2]]), [1, 0], 2)
    problem = Problem.create(torch.zeros(3, 1), [pairs], Categorical(2))
    parameters = AggregateClassifier(model="linear", time_limit=100).get_params(deep=False)
    for reserved, deadline in ((0, 87), (np.inf, 7)):
        thresholds = Thresholds(e_steps_after_training=reserved)
        assert resolve(problem, parameters, 0, thresholds, begun=7).deadline == deadline


@pytest.mark.parametrize(("size", "overrelaxation"), [(15, 0.0), (16, 1.0)])
def test_targets_are_extrapolated_in_large_groups_and_steps_scored_at_several_temperatures(size, overrelaxation):
    counts = Observations(unbag.LabelProportions(), Groups.from_sizes([size] * 50), [[size - 1, 1]] * 50, 2)
    problem = Problem.create(torch.zeros(50 * size, 1), [counts], Categorical(2))
    schedule = resolve(problem, AggregateClassifier().get_params(deep=False), 0)
    learners = {learner.name: learner for stage in schedule.stages for learner in stage}
    assert [learners[name].overrelaxation for name in ("network", "trees")] == [overrelaxation] * 2
    assert min(schedule.sharpness) < 0.5
    assert max(schedule.sharpness) > 1


def test_targets_in_any_order_of_rows_and_groups_of_unequal_sizes():
    X, labels = blobs()
    random = np.random.default_rng(0)
    ids = np.sort(random.integers(0, 60, len(X)))
    y = unbag.target(ids, count(labels, ids, 3))
    order = random.permutation(len(X))
    sorted_rows = AggregateClassifier(**FAST).fit(X, y)
    shuffled = AggregateClassifier(**FAST).fit(X[order], y[order])
    assert accuracy(sorted_rows, X, labels) > 0.95
    np.testing.assert_allclose(sorted_rows.predict_proba(X), shuffled.predict_proba(X), atol=1e-3)
    np.testing.assert_allclose(shuffled.disaggregate(X[order], y[order]), shuffled.disaggregate(X, y)[order], atol=1e-6)
    assert sorted_rows.score(X, y) == pytest.approx(sorted_rows.score(X[order], y[order]))


def test_disaggregated_probabilities_add_up_to_the_counts():
    X, labels = blobs()
    counts = count(labels, IDS, 3)
    classifier = AggregateClassifier(**FAST).fit(X, unbag.target(IDS, counts))
    of_rows = classifier.disaggregate(X, unbag.target(IDS, counts))
    sums = np.stack([of_rows[one == IDS].sum(0) for one in range(50)])
    np.testing.assert_allclose(sums, counts, atol=1e-6)
    np.testing.assert_allclose(of_rows.sum(1), 1)
    new = classifier.predict_groups(X, Groups.from_ids(IDS))
    np.testing.assert_allclose(new, np.stack([classifier.predict_proba(X)[one == IDS].sum(0) for one in range(50)]))


def test_plain_labels_of_any_type():
    X, labels = blobs()
    names = np.array(["kiwi", "apple", "fig"], dtype=object)
    classifier = AggregateClassifier(**FAST).fit(X, names[labels])
    assert classifier.classes_.tolist() == ["apple", "fig", "kiwi"]
    assert accuracy(classifier, X, names[labels]) > 0.95
    probabilities = classifier.predict_proba(X)
    np.testing.assert_allclose(np.exp(classifier.predict_log_proba(X)), probabilities)
    assert probabilities.dtype == np.float64
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-12)
    assert classifier.diagnosis_ == []
    with_names = AggregateClassifier(classes=["kiwi", "apple", "fig", "none"], **FAST).fit(X, names[labels])
    assert with_names.classes_.tolist() == ["kiwi", "apple", "fig", "none"]
    assert (with_names.predict(X) == classifier.predict(X)).mean() > 0.95
    halves = np.where(np.arange(len(X)) % 2, 2.0, 0.0)
    right = classifier.predict(X) == names[labels]
    assert classifier.score(X, names[labels], sample_weight=halves) == pytest.approx((right * halves).sum() / 200)


def test_class_names_for_observations():
    X, labels = blobs(k=2, spread=3.0)
    bags = Groups.from_sizes([2] * 100)
    z = unbag.MultipleInstance().observe(labels, bags, 2)
    classifier = AggregateClassifier("multiple_instance", classes=["healthy", "ill"], **FAST).fit(X, z, groups=bags)
    assert accuracy(classifier, X, np.array(["healthy", "ill"])[labels]) > 0.9
    mixed = AggregateClassifier(classes=[1, "1"], **FAST).fit(X, count(labels, IDS, 2), groups=Groups.from_ids(IDS))
    assert mixed.classes_.tolist() == [1, "1"]


@pytest.mark.filterwarnings("ignore:the groups contain")  # rows drawn at random leave some out
def test_several_sets_at_once():
    X, labels = blobs()
    pairs, few = tuples(len(X), 400, 2), Groups.from_tuples([[int((labels == k).argmax())] for k in range(3)])
    similar = unbag.PairwiseSimilarity().observe(labels, pairs, 3)
    names = np.array(["b", "c", "a"])
    classifier = AggregateClassifier(["pairwise_similarity", "label_proportions"], classes=["a", "b", "c"], **FAST)
    # The labels of three rows name the classes that pairs leave unnamed.
    classifier.fit(X, [similar, names[:3]], groups=[pairs, few])
    assert classifier.symmetry_ == "none"
    assert accuracy(classifier, X, names[labels]) > 0.9
    assert classifier.score(X, names[labels]) > 0.9
    of_pairs, of_few = classifier.disaggregate(X, [similar, names[:3]], groups=[pairs, few])
    assert of_pairs.shape == (800, 3)
    assert (classifier.classes_[of_few.argmax(1)] == names[:3]).all()
    expected = classifier.predict_groups(X, [pairs, few])
    assert [one.shape for one in expected] == [(400,), (3, 3)]
    likelihoods = classifier.predict_groups(X, [pairs, few], z=[similar, names[:3]])
    score = classifier.score(X, [similar, names[:3]], groups=[pairs, few])
    assert score == pytest.approx(np.mean([np.log(one).mean() for one in likelihoods]))


def test_tables_of_pandas_polars_and_torch_give_the_same():
    X, labels = blobs()
    y = unbag.target(IDS, count(labels, IDS, 3))
    columns = {"one": X[:, 0], "two": X[:, 1], "three": X[:, 2]}
    settings = fast(epochs=3)
    known = AggregateClassifier(**settings).fit(X, y)
    for table in (pd.DataFrame(columns), pl.DataFrame(columns), torch.from_numpy(X)):
        classifier = AggregateClassifier(**settings).fit(table, y)
        np.testing.assert_array_equal(classifier.predict_proba(table), known.predict_proba(X))
        assert hasattr(classifier, "feature_names_in_") == (not isinstance(table, torch.Tensor))
        assert classifier.n_features_in_ == 3
    half = AggregateClassifier(**settings).fit(torch.from_numpy(X).bfloat16(), labels)
    assert half.predict_proba(torch.from_numpy(X).bfloat16()).shape == (200, 3)
    counts, groups = count(labels, IDS, 3), Groups.from_ids(IDS)
    for z in (pd.DataFrame(counts), pl.DataFrame(counts), torch.from_numpy(counts), counts / 4):
        classifier = AggregateClassifier(**settings).fit(X, z, groups=groups)
        np.testing.assert_array_equal(classifier.predict_proba(X), known.predict_proba(X))
    for plain in (pd.Series(labels), pl.Series(labels), torch.from_numpy(labels), labels.tolist()):
        assert AggregateClassifier(**settings).fit(X, plain).score(X, plain) == pytest.approx(
            AggregateClassifier(**settings).fit(X, labels).score(X, labels)
        )


def test_observations_are_matched_to_groups_by_id():
    X, labels = blobs(k=2)
    ids = np.array([f"ward {one}" for one in IDS])
    groups = Groups.from_ids(ids)
    counts = pd.DataFrame(count(labels, ids, 2), index=groups.ids)
    known = AggregateClassifier(**fast(epochs=3)).fit(X, counts.to_numpy(), groups=groups)
    rows = Groups.from_ids([f"row {row:03}" for row in range(len(X))])
    of_rows = pd.Series(labels, index=rows.ids)
    assert known.score(X, of_rows.iloc[::-1], groups=rows) == known.score(X, labels, groups=rows)
    for z in (counts.iloc[::-1], dict(zip(groups.ids, counts.to_numpy().tolist(), strict=True))):
        classifier = AggregateClassifier(**fast(epochs=3)).fit(X, z, groups=groups)
        np.testing.assert_array_equal(classifier.predict_proba(X), known.predict_proba(X))
        assert known.score(X, z, groups=groups) == known.score(X, counts.to_numpy(), groups=groups)
        for ask in (known.disaggregate, lambda X, z, groups: known.predict_groups(X, groups, z)):
            np.testing.assert_array_equal(ask(X, z, groups=groups), ask(X, counts.to_numpy(), groups=groups))
    foreign = counts.rename({"ward 7": "ward 77"})
    for use in (known.fit, known.score, known.disaggregate, lambda X, z, groups: known.predict_groups(X, groups, z)):
        with pytest.raises(
            ValueError,
            match=r"y must have exactly one entry for each id: 'ward 7' missing, 'ward 77' not among the ids",
        ):
            use(X, foreign, groups=groups)


def test_own_modules_and_functions():
    X, labels = blobs(k=2)
    module = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.1), nn.ReLU(), nn.Linear(8, 1))
    for model in (module, lambda: nn.Linear(2, 2)):
        first, again = (AggregateClassifier(**{**FAST, "model": model}).fit(X, labels) for _ in range(2))
        assert accuracy(first, X, labels) > 0.95
        np.testing.assert_array_equal(first.predict_proba(X), again.predict_proba(X))
    robust = AggregateClassifier(**fast(loss=lambda logits: unbag.losses.gce(logits, q=0.5))).fit(X, labels)
    assert accuracy(robust, X, labels) > 0.95


def test_columns_are_scaled_each_by_itself_and_images_together():
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 400)
    # The informative column is tiny beside one that is not: only a scaling of columns shows it.
    X = np.stack([0.001 * (labels + 0.1 * random.normal(size=400)), 1000 * random.normal(size=400)], 1)
    y = unbag.target(ids := np.arange(400) // 4, count(labels, ids, 2))
    by_scaling = {
        scaling: accuracy(AggregateClassifier(**FAST, scaling=scaling).fit(X, y), X, labels)
        for scaling in ("auto", "standard", "table")
    }
    assert by_scaling["auto"] == by_scaling["standard"] > 0.95
    assert by_scaling["table"] < 0.7


def with_dropout():
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))


def test_fits_in_threads_are_those_alone():
    X, y = target_of_blobs()
    before = torch.get_rng_state()

    def fit(seed):
        choices = {"model": with_dropout if seed % 2 else "mlp", "random_state": seed}
        return AggregateClassifier(**fast(epochs=3) | choices).fit(X, y).predict_proba(X)

    alone = [fit(seed) for seed in range(8)]
    assert not np.array_equal(alone[0], alone[2])
    with ThreadPoolExecutor(4) as threads:
        np.testing.assert_array_equal(list(threads.map(fit, range(8))), alone)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_history_has_the_epochs_of_the_first_fold():
    classifier = AggregateClassifier(**FAST).fit(*target_of_blobs())
    assert len(classifier.history_) == 30
    assert {"epoch", "phase", "loss", "score", "seconds"} == set(classifier.history_[0])
    (candidate,) = classifier.candidates_
    # The score of a candidate is that at its best temperature.
    assert candidate["score"] >= max(entry["score"] for entry in classifier.history_) - 1e-6


def test_patience_stops_early():
    X, labels = blobs(spread=0.5)  # hardly to be learned
    y = unbag.target(IDS, count(labels, IDS, 3))
    scores = [e["score"] for e in AggregateClassifier(**fast(epochs=300, patience=3)).fit(X, y).history_]
    assert len(scores) == int(np.argmax(scores)) + 4 < 300


def test_few_groups_are_all_trained_on():
    X, labels = blobs(n=80)
    ids = np.arange(80) // 4
    y = unbag.target(ids, count(labels, ids, 3))
    classifier = AggregateClassifier(**FAST).fit(X, y)
    assert classifier.history_[-1]["epoch"] == 29
    assert classifier.history_[0]["score"] is None
    assert classifier.folds_ == [[-1] * 20]
    assert classifier.estimated_accuracy_ is None
    assert accuracy(classifier, X, labels) > 0.9
    on_request = AggregateClassifier(**FAST, validation=CrossFitting(2)).fit(X, y)
    assert {*on_request.folds_[0]} == {0, 1}
    without = AggregateClassifier(**fast(epochs=1), validation=CrossFitting(None, validation_fraction=0))
    assert without.fit(*blobs()).history_[0]["score"] is None


def test_several_folds_and_restarts_are_averaged():
    X, labels = blobs()
    y = unbag.target(IDS, count(labels, IDS, 3))
    classifier = AggregateClassifier(**FAST, validation=CrossFitting(3, n_restarts=2)).fit(X, y)
    assert {*classifier.folds_[0]} == {0, 1, 2}
    assert [c["model"] for c in classifier.candidates_] == ["network", "network 2"]
    assert accuracy(classifier, X, labels) > 0.95
    assert classifier.estimated_accuracy_.low <= 1


def test_restarts_of_unnamed_classes_agree_on_names():
    classifier, X, labels, *_ = fitted_on_pairs(validation=CrossFitting(2, n_restarts=2))
    assert len(classifier.candidates_) == 2
    few = [int((labels == label).argmax()) for label in range(3)]
    assert accuracy(classifier.name_classes(X[few], labels[few]), X, labels) > 0.95
    np.testing.assert_allclose(classifier.predict_proba(X).sum(1), 1)


def test_a_bar_is_shown_in_terminals_only(capfd):
    X, labels = blobs()
    AggregateClassifier(**fast(epochs=2), verbose=1).fit(X, labels)
    assert capfd.readouterr() == ("", "")


# Naming


def fitted_on_pairs(epochs=30, **settings):
    X, labels = blobs()
    pairs = tuples(len(X), 600, 2)
    z = unbag.PairwiseSimilarity().observe(labels, pairs, 3)
    classifier = AggregateClassifier("pairwise_similarity", **{"n_classes": 3, **fast(epochs=epochs), **settings})
    return classifier.fit(X, z, groups=pairs), X, labels, pairs, z


def test_names_of_any_type_and_new_ones():
    classifier, X, labels, pairs, z = fitted_on_pairs()
    score = classifier.score(X, z, groups=pairs)
    for names in (["dog", "cat", "bird"], [1.0, -2.0, 7.0], ["x", "y", "z"]):
        own = np.array(names)[labels]
        assert classifier.name_classes(X[:30], own[:30]) is classifier
        assert classifier.classes_.tolist() == sorted(names)
        assert accuracy(classifier, X, own) > 0.9
        assert classifier.score(X, z, groups=pairs) == pytest.approx(score)


@pytest.mark.filterwarnings("ignore:OrdinalTriplet identifies the order of rows")
def test_names_of_ordered_classes():
    X, labels = blobs()
    triplets = tuples(len(X), 900, 3)
    z = unbag.OrdinalTriplet().observe(labels, triplets, 3)
    names = np.array(["small", "medium", "large"])
    classifier = AggregateClassifier(
        "ordinal_triplet", classes=names, validation=CrossFitting(n_restarts=3), **FAST
    ).fit(X, z, groups=triplets)
    classifier.name_classes(X[:30], names[labels[:30]])
    assert classifier.classes_.tolist() == names.tolist()
    assert accuracy(classifier, X, names[labels]) > 0.9
    without = AggregateClassifier("ordinal_triplet", n_classes=3, **fast(epochs=1)).fit(X, z, groups=triplets)
    with pytest.raises(ValueError, match=r"the order of \['large', 'medium', 'small'\] is not known; give classes="):
        without.name_classes(X[:30], names[labels[:30]])


@pytest.mark.parametrize(
    ("settings", "names", "said"),
    [
        ({}, [0, 1, 1], r"there is none for \[2\]"),
        ({}, ["a", "b", "b"], r"there are 3 classes, but y has 2: \['a', 'b'\]"),
        ({}, ["a", "b", "c", "d"], r"there are 3 classes, but y has 4"),
        ({"classes": ["a", "b", "c"]}, ["b", "b", "b"], r"there is none for \['a', 'c'\]"),
        ({"classes": ["a", "b", "c"]}, ["a", "b", "q"], r"the label 'q' is none of the classes"),
        ({}, [0, 1], "y has 2 labels for 3 rows of X"),
    ],
)
def test_naming_refuses(settings, names, said):
    classifier, X, *_ = fitted_on_pairs(**{"epochs": 1, **settings})
    with pytest.raises(ValueError, match=said):
        classifier.name_classes(X[: max(3, len(names))], names)


# Diagnosis


def test_findings_become_warnings():
    X, labels = blobs(k=2)
    counts = np.hstack([count(labels, IDS, 2), np.zeros((50, 1), dtype=int)])
    with pytest.warns(UnbagWarning, match="none of the 50 groups has a member of class 2") as caught:
        classifier = AggregateClassifier(**fast(epochs=1)).fit(X, unbag.target(IDS, counts))
    assert caught[0].filename == __file__
    assert [found.kind for found in classifier.diagnosis_] == ["missing_classes"]


def test_beside_other_sets_a_set_may_tell_nothing():
    X, labels = blobs(k=2)
    bags = Groups.from_ids(IDS)
    classifier = AggregateClassifier(["multiple_instance", "label_proportions"], **fast(epochs=2))
    with pytest.warns(UnbagWarning, match="predicts class 1 for every row explains all"):
        classifier.fit(X, [np.ones(50, dtype=int), labels], groups=[bags, None])


def test_a_model_that_is_worse_than_a_constant_one_is_warned_of():
    X, target = target_of_blobs()
    settings = fast(epochs=2, learning_rate=1e6) | {"scaling": "none"}
    with pytest.warns(unbag.DivergenceWarning, match="explained worse than by a constant prediction") as caught:
        AggregateClassifier(**settings).fit(X, target)
    assert caught[0].filename == __file__
    assert issubclass(unbag.DivergenceWarning, ConvergenceWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AggregateClassifier(**FAST).fit(X, target)


# What is refused


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"aggregate": "pairs"}, "aggregate must be one of label_proportions, .*; got 'pairs'"),
        ({"aggregate": unbag.OrdinalRank}, "got the class OrdinalRank"),
        ({"aggregate": []}, "aggregate is an empty list"),
        ({"model": "forest"}, "model must be one of linear, logistic, mlp"),
        ({"method": "em"}, "method must be one of 'auto', 'uum', 'likelihood', got 'em'"),
        ({"scaling": "minmax"}, "scaling must be one of 'auto', 'none', 'standard', 'table', got 'minmax'"),
        ({"training": NetworkTraining(weights="old")}, "weights must be one of .*'remembered', got 'old'"),
        ({"training": NetworkTraining(loss="hinge")}, "loss must be one of"),
        ({"training": NetworkTraining(0)}, "epochs must be a whole number of at least 1, got 0"),
        ({"training": NetworkTraining(warm_up="some")}, "warm_up must be a whole number"),
        ({"training": NetworkTraining(batch_size="large")}, "batch_size must be a whole number .*, got 'large'"),
        ({"training": NetworkTraining(patience=0)}, "patience must be a whole number of at least 1, got 0"),
        ({"training": NetworkTraining(learning_rate=0)}, "learning_rate must be a positive number"),
        ({"training": NetworkTraining(devices=0)}, "devices must be a whole number of at least 1"),
        ({"training": NetworkTraining(), "model": "trees"}, r"settings of networks, but model='trees' is none; leave"),
        ({"method": "uum", "model": LogisticRegression()}, "settings of networks, but LogisticRegression is none"),
        ({"validation": CrossFitting(1)}, 'n_folds must be a whole number of at least 2, "auto" or None; got 1'),
        ({"validation": CrossFitting("many")}, "n_folds must be a whole number of at least 2, .*; got 'many'"),
        ({"validation": CrossFitting(n_restarts=0)}, "n_restarts must be a whole number of at least 1, got 0"),
        ({"validation": CrossFitting(validation_fraction=1)}, "validation_fraction must be .* less than 1, got 1"),
        ({"time_limit": 0}, "time_limit must be a positive number of seconds, or None; got 0"),
        ({"n_jobs": 0}, "n_jobs must be a whole number other than 0"),
        ({"n_classes": 4}, "the number of classes is contradictory: 4 by n_classes, 3 by LabelProportions"),
        ({"classes": ["a", "b"]}, "contradictory: 2 by classes, 3 by LabelProportions"),
        ({"classes": ["a", "b", "b"]}, "classes must differ from each other"),
    ],
)
def test_settings_that_are_refused(settings, said):
    X, y = target_of_blobs()
    with pytest.raises(ValueError, match=said):
        AggregateClassifier(**settings).fit(X, [] if settings.get("aggregate") == [] else y)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"epochs": 3}, r"epochs is no longer a parameter .*; use training=unbag.NetworkTraining\(epochs=\.\.\.\)"),
        ({"checkpoint": "here"}, r"use training=unbag.NetworkTraining\(checkpoint=\.\.\.\)"),
        ({"n_folds": 3}, r"use validation=unbag.CrossFitting\(n_folds=\.\.\.\)"),
        ({"ensemble": True}, "ensemble is no longer a parameter"),
        ({"epoch": 3}, "got an unexpected keyword argument 'epoch'"),
    ],
)
def test_parameters_of_earlier_versions_name_their_replacement(settings, said):
    with pytest.raises(TypeError, match=said):
        AggregateClassifier(**settings)


BLOBS, LABELS = blobs()
TARGET = unbag.target(IDS, count(LABELS, IDS, 3))
FEW = [[1, 1, 2]] * 50
TWO_SETS = AggregateClassifier(["label_proportions", "pairwise_similarity"])
MASKED = np.ma.array(BLOBS, mask=BLOBS[3, 1] == BLOBS)
DATES = np.concatenate([BLOBS.astype(object), np.full((200, 1), datetime.date(2023, 1, 1), dtype=object)], 1)
REFUSED = {
    # Groups
    "y is a target, which holds its groups; leave groups= out": lambda fit: fit(BLOBS, TARGET, Groups.from_ids(IDS)),
    "X has 200 rows, but the groups were made for 100": lambda fit: fit(BLOBS, FEW, Groups.from_ids(IDS[:100])),
    r"row number 200 is out of range for X of 200 rows; see group 0": lambda fit: fit(
        BLOBS, FEW[:1], Groups.from_tuples([[0, 1, 2, 200]])
    ),
    "y has 200 entries for 100 rows of X": lambda fit: fit(BLOBS[:100], TARGET),
    "groups must be whole": lambda fit: fit(BLOBS[:-1], TARGET[:-1]),
    "y has 3 labels for 2 groups of one row": lambda fit: fit(BLOBS, [0, 1, 2], Groups.from_tuples([[0], [1]])),
    r"y has 50 entries for 200 rows of X.*groups=groups": lambda fit: fit(BLOBS, FEW),
    # Labels
    "y holds one class only, 0": lambda fit: fit(BLOBS, np.zeros(200, dtype=int)),
    "the label 2 is none of the classes": lambda fit: AggregateClassifier(classes=[0, 1]).fit(BLOBS, LABELS),
    r"y holds 3 classes, \['a', 'b', 'c'\], but there are 4; name them all": lambda fit: AggregateClassifier(
        n_classes=4
    ).fit(BLOBS, np.array(["a", "b", "c"])[LABELS]),
    "PairwiseSimilarity observes groups: use fit": lambda fit: AggregateClassifier(
        "pairwise_similarity", n_classes=3
    ).fit(BLOBS, LABELS),
    # Several sets
    "with a list of 2 aggregates, y must be a list with an entry for each": lambda fit: TWO_SETS.fit(BLOBS, TARGET),
    "groups must be a list with an entry for each; got 1 entries": lambda fit: TWO_SETS.fit(
        BLOBS, [TARGET, [1]], groups=[None]
    ),
    "3 by LabelProportions, 2 by MultipleInstance": lambda fit: AggregateClassifier(
        ["label_proportions", "multiple_instance"]
    ).fit(BLOBS, [TARGET, np.ones(50, dtype=int)], groups=[None, Groups.from_ids(IDS)]),
    # Checked observations
    "which holds its groups; leave groups= out": lambda fit: fit(
        BLOBS, Observations(unbag.LabelProportions(), Groups.from_ids(IDS), FEW, 3), Groups.from_ids(IDS)
    ),
    "observations by CountOf.*but aggregate is LabelProportions": lambda fit: fit(
        BLOBS, Observations(unbag.CountOf(1), Groups.from_ids(IDS), [1] * 50, 3)
    ),
    "checked for 2 classes, but there are 3": lambda fit: AggregateClassifier("pairwise_similarity", n_classes=3).fit(
        BLOBS, Observations(unbag.PairwiseSimilarity(), Groups.from_sizes([2] * 100), np.arange(100) % 2, 2)
    ),
    # Values
    "X has no value at place 3; fill in what is missing, or leave it out": lambda fit: fit(MASKED, TARGET),
    "y has no value at place 5": lambda fit: fit(BLOBS, np.ma.array(LABELS, mask=np.arange(200) == 5)),
    "values such as 'x'.* in column 0; pass a table of pandas or": lambda fit: fit(np.full((200, 1), "x"), TARGET),
    "values such as datetime.* in column 3; pass a table of pandas or": lambda fit: fit(DATES, TARGET),
    # Settings
    "checkpoint needs a random_state that is a whole number, got None": lambda fit: AggregateClassifier(
        training=NetworkTraining(checkpoint="folder")
    ).fit(BLOBS, TARGET),
    "training must be an unbag.NetworkTraining or None, got dict": lambda fit: AggregateClassifier(
        training={"epochs": 3}
    ).fit(BLOBS, TARGET),
    "validation must be an unbag.CrossFitting or None, got int": lambda fit: AggregateClassifier(validation=4).fit(
        BLOBS, TARGET
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_input_of_fit_that_is_refused(message):
    with pytest.raises((ValueError, TypeError), match=message):
        REFUSED[message](AggregateClassifier().fit)


def test_input_of_a_fitted_classifier_that_is_refused():
    classifier = AggregateClassifier(**fast(epochs=1)).fit(np.ma.array(BLOBS), TARGET)
    with pytest.raises(ValueError, match="X has no value at place 3"):
        classifier.predict(MASKED)
    with pytest.raises(ValueError, match="out of range for X of 200 rows"):
        classifier.predict_groups(BLOBS, Groups.from_tuples([[0, 200]]))
    with pytest.raises(ValueError, match=r"sample_weight must be equal in all rows of a group.*group 0 has 0 and 1"):
        classifier.score(BLOBS, TARGET, sample_weight=np.arange(200) > 0)
    with pytest.raises(ValueError, match="the observations identify the classes"):
        classifier.name_classes(BLOBS, np.arange(200) % 3)


def test_checked_observations_are_learned_from_as_they_are():
    seen = Observations(unbag.LabelProportions(), Groups.from_ids(IDS), TARGET["z"][::4], 3)
    weights = 1 + np.arange(50) % 5
    clf = AggregateClassifier(**fast(epochs=2)).fit(BLOBS, seen.with_weights(weights))
    same = AggregateClassifier(**fast(epochs=2)).fit(BLOBS, TARGET, group_weights=weights)
    np.testing.assert_array_equal(clf.predict_log_proba(BLOBS), same.predict_log_proba(BLOBS))
    assert AggregateClassifier(n_classes=4, **fast(epochs=1)).fit(BLOBS, LABELS).classes_.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="group_weights must not all be zero"):
        seen.with_weights(np.zeros(50))


@pytest.mark.parametrize("settings", [{"model": "linear"}, {"model": "trees"}, fast(epochs=3)], ids=repr)
def test_missing_values_of_arrays_are_read_and_infinite_ones_refused(settings):
    X, y = target_of_blobs()
    X[3, 1] = np.nan
    classifier = AggregateClassifier(**settings).fit(X, y)
    assert np.isfinite(classifier.predict_proba(X)).all()
    X[3, 1] = np.inf
    with pytest.raises(ValueError, match="X contains infinity in column 1; write NaN for missing values"):
        classifier.predict(X)


def test_columns_that_float32_cannot_hold_are_named():
    X, y = target_of_blobs()
    table = pd.DataFrame(X, columns=["age", "height", "weight"])
    with pytest.raises(ValueError, match="too large for float32 in column 1; use a larger unit"):
        AggregateClassifier().fit(X * [1, 1e300, 1], y)
    with pytest.raises(ValueError, match=r"^X, row 1, column height: [^;]* too large; [^;]*$"):
        AggregateClassifier().fit(table * [1, 1e300, 1], y)
    for small, kinds in ((1e-300, ["constant_columns"]), (1e-30, [])):
        clf = AggregateClassifier(**fast(epochs=1)).fit(table * [1, 1, small], y)
        assert [finding.kind for finding in clf.diagnosis_ if "weight" in finding.message] == kinds


def test_devices_that_are_not_there_are_refused(monkeypatch):
    X, y = target_of_blobs()
    with pytest.raises(ValueError, match=r"device='cuda:99' cannot be used: this machine .* have 'cpu'.*; choose one"):
        AggregateClassifier(device="cuda:99").fit(X, y)
    with pytest.raises(ValueError, match="device='gpu' cannot be used"):
        AggregateClassifier(device="gpu").fit(X, y)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    with pytest.raises(ValueError, match="have 'cpu', 'cuda:0', 'cuda:1'; choose one"):
        AggregateClassifier(device="cuda:99").fit(X, y)


def test_rows_in_no_group_are_counted():
    X, labels = blobs()
    pairs = Groups.from_tuples(np.arange(100).reshape(50, 2))  # which does not know how many rows there are
    similar = unbag.PairwiseSimilarity().observe(labels, pairs, 3)
    settings = fast(epochs=1) | {"n_classes": 3}
    with pytest.warns(
        UnbagWarning, match="the groups contain 100 of 200 rows; the others take no part in training"
    ) as seen:
        classifier = AggregateClassifier("pairwise_similarity", **settings).fit(X, similar, groups=pairs)
    assert sum("the groups contain" in str(warning.message) for warning in seen) == 1
    assert "rows_without_group" in [found.kind for found in classifier.diagnosis_]
    # What one set leaves out another may hold.
    others = Groups.from_tuples(np.arange(100, 200).reshape(100, 1))
    both = AggregateClassifier(["pairwise_similarity", "label_proportions"], **settings)
    both.fit(X, [similar, labels[100:]], groups=[pairs, others])
    assert "rows_without_group" not in [found.kind for found in both.diagnosis_]


@pytest.mark.parametrize("name", ["pairwise_similarity", "triplet_comparison", "ordinal_rank", "ordinal_triplet"])
def test_the_number_of_classes_must_be_told(name):
    X, _ = blobs()
    groups = tuples(len(X), 5, 3 if "triplet" in name else 2)
    with pytest.raises(ValueError, match="does not show how many classes there are; pass n_classes="):
        AggregateClassifier(name).fit(X, [0, 1, 0, 1, 0], groups=groups)


def test_before_fit_nothing_is_said(tmp_path):
    X, y = target_of_blobs()
    classifier = AggregateClassifier()
    calls = [
        lambda: classifier.predict(X),
        lambda: classifier.disaggregate(X, y),
        lambda: classifier.predict_groups(X, Groups.from_ids(IDS)),
        lambda: classifier.score(X, y),
        lambda: classifier.name_classes(X, [0] * 200),
        lambda: classifier.save(tmp_path / "model"),
    ]
    for call in calls:
        with pytest.raises(NotFittedError):
            call()


def test_observations_of_many_values_are_asked_for_by_value():
    X, labels = blobs()
    groups = Groups.from_ids(IDS)
    fours = unbag.CountOf(1)
    classifier = AggregateClassifier(fours, n_classes=3, **fast(epochs=2))
    classifier.fit(X, fours.observe(labels, groups, 3), groups=groups)
    probs = np.stack([classifier.predict_groups(X, groups, z=[value] * 50) for value in range(5)], 1)
    np.testing.assert_allclose(probs.sum(1), 1)
    np.testing.assert_allclose(classifier.predict_groups(X, groups), probs @ np.arange(5))
    majority = AggregateClassifier(unbag.Majority(), n_classes=3, **fast(epochs=2))
    majority.fit(X, unbag.Majority().observe(labels, groups, 3), groups=groups)
    with pytest.raises(ValueError, match="Majority has more than two possible observations; pass z="):
        majority.predict_groups(X, groups)


def test_hooks_of_training_are_handed_on():
    X, y = target_of_blobs()
    asked = []

    def stop(best, history):
        asked.append(len(history))
        return len(history) == 2

    hooks = {
        "optimiser": partial(torch.optim.SGD, lr=0.01),
        "schedule": lambda optimiser: torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.5),
        "stopping": stop,
        "views": lambda rows: rows + 0.01 * torch.randn_like(rows),
    }
    clf = AggregateClassifier(**fast(epochs=5, **hooks)).fit(X, y)
    assert (len(clf.history_), asked) == (2, [1, 2])
    for name in hooks:
        changed = AggregateClassifier(**fast(epochs=5, **{**hooks, name: None})).fit(X, y)
        assert not np.array_equal(changed.predict_proba(X), clf.predict_proba(X)), name
