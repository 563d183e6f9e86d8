"""Bags as lists of arrays, ids in place of groups, labels as words, and scores of bags."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import GroupKFold, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import unbag
from unbag import AggregateClassifier, CrossFitting, Groups

pytestmark = pytest.mark.filterwarnings("ignore::unbag.UnbagWarning")

bag_auc = unbag.metrics.bag_auc
N_BAGS = 40
SIZES = np.random.default_rng(1).integers(2, 7, N_BAGS)
NAMES = np.array([f"slide {number % 7} {number}" for number in range(N_BAGS)])
CLASSES = ["normal", "tumour"]


def make(aggregate="multiple_instance", **settings):
    return AggregateClassifier(aggregate, "linear", validation=CrossFitting(2), random_state=0, n_jobs=1, **settings)


@pytest.fixture(scope="module")
def bags():
    """Return bags with one positive instance in every second, and their labels."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(size, 3)) for size in SIZES]
    for bag in X[::2]:
        bag[0] += 4
    return X, (np.arange(N_BAGS) + 1) % 2


@pytest.fixture(scope="module")
def rows(bags):
    """Return the rows of the bags in random order, the id of each, and the labels by id."""
    order = np.random.default_rng(2).permutation(SIZES.sum())
    return np.concatenate(bags[0])[order], np.repeat(NAMES, SIZES)[order], pd.Series(bags[1], index=NAMES)


@pytest.fixture(scope="module")
def fitted(bags):
    return make().fit(*bags)


def test_a_list_of_arrays_is_rows_in_groups(bags, fitted):
    X, labels = bags
    joined, groups = np.concatenate(X), Groups.from_sizes(SIZES)
    expected = make().fit(joined, labels, groups=groups)
    tensors = [torch.from_numpy(bag) for bag in X]
    for given in (X, tuple(X), tensors):
        assert [len(bag) for bag in fitted.predict(given)] == SIZES.tolist()
        np.testing.assert_array_equal(np.concatenate(fitted.predict_proba(given)), expected.predict_proba(joined))
        np.testing.assert_array_equal(fitted.predict_groups(given), expected.predict_groups(joined, groups))
        assert fitted.score(given, labels) == expected.score(joined, labels, groups=groups)
    posterior = expected.disaggregate(joined, labels, groups)
    found = make().fit(tensors, labels).disaggregate(X, labels)
    np.testing.assert_array_equal(np.concatenate(found), posterior)
    np.testing.assert_array_equal(fitted.predict(X[:1]), [expected.predict(X[0])])


def test_counts_of_a_list_of_arrays(bags):
    X, _ = bags
    counts = np.array([[(bag[:, 0] <= 2).sum(), (bag[:, 0] > 2).sum()] for bag in X])
    found = make("label_proportions").fit(X, counts)
    expected = make("label_proportions").fit(np.concatenate(X), counts, groups=Groups.from_sizes(SIZES))
    ids = np.repeat(np.arange(N_BAGS), SIZES)
    np.testing.assert_array_equal(found.predict_groups(X), expected.predict_groups(np.concatenate(X), ids))


def test_a_list_of_images_with_a_label_each_is_no_list_of_bags():
    labels = np.arange(30) % 2
    images = [np.random.default_rng(number).normal(size=(3, 4)) + 3 * label for number, label in enumerate(labels)]
    clf = AggregateClassifier(model="mlp", validation=CrossFitting(2), random_state=0, n_jobs=1).fit(images, labels)
    assert clf.predict(images).shape == (30,)


@pytest.mark.parametrize("kind", [list, np.array, pd.Series, torch.tensor])
def test_ids_in_place_of_groups(rows, kind):
    X, ids, z = rows
    numbers = np.unique(ids, return_inverse=True)[1]
    given = kind(numbers if kind is torch.tensor else ids.tolist())
    labels = z.sort_index().to_numpy() if kind is torch.tensor else z  # matched by id, or in the order of sorted ids
    found, expected = make().fit(X, labels, groups=given), make().fit(X, unbag.target(ids, z))
    np.testing.assert_array_equal(found.predict_proba(X), expected.predict_proba(X))
    target = unbag.target(ids, z)
    np.testing.assert_array_equal(found.disaggregate(X, labels, given), expected.disaggregate(X, target))
    assert found.score(X, labels, groups=given) == expected.score(X, target)
    groups = Groups.from_ids(ids)
    np.testing.assert_array_equal(found.predict_groups(X, given), expected.predict_groups(X, groups))
    np.testing.assert_array_equal(found.predict_groups(X, given, labels), expected.predict_groups(X, groups, z))


def test_ids_for_each_of_several_sets(rows):
    X, ids, z = rows
    both = make(["multiple_instance", "label_proportions"], n_classes=2)
    y, few = [z, np.array([0, 1])], Groups.from_tuples([[int(np.argmin(X[:, 0]))], [int(np.argmax(X[:, 0]))]])
    found, expected = both.fit(X, y, [ids, few]).predict_proba(X), both.fit(X, y, [Groups.from_ids(ids), few])
    np.testing.assert_array_equal(found, expected.predict_proba(X))
    by_ids, by_groups = both.predict_groups(X, [ids, few])[0], both.predict_groups(X, [Groups.from_ids(ids), few])[0]
    np.testing.assert_array_equal(by_ids, by_groups)


def test_labels_as_words(bags, fitted, rows):
    X, labels = bags
    words = np.array(CLASSES)[labels]
    named = make(classes=CLASSES).fit(X, words.tolist())
    np.testing.assert_array_equal(named.predict_groups(X), fitted.predict_groups(X))
    assert set(np.concatenate(named.predict(X))) == set(CLASSES)
    assert named.score(X, words) == fitted.score(X, labels)
    assert bag_auc(named, X, words) == bag_auc(fitted, X, labels)
    table, ids, z = rows
    by_id = make(classes=CLASSES).fit(table, z.map(dict(enumerate(CLASSES))), groups=ids)
    np.testing.assert_array_equal(by_id.predict_proba(table), make().fit(table, z, groups=ids).predict_proba(table))
    with pytest.raises(ValueError, match=r"y holds names of classes, 'normal', 'tumour', .* the positive class second"):
        make().fit(X, words)
    with pytest.raises(ValueError, match=r"the label 'tumor' is none of the classes \['normal', 'tumour'\]"):
        make(classes=CLASSES).fit(X, np.where(labels, "tumor", "normal"))
    winners = make("majority", classes=CLASSES).fit(X, words)
    assert winners.score(X, words) == make("majority", n_classes=2).fit(X, labels).score(X, labels)


def test_scores_of_bags(bags, rows):
    X, labels = bags
    table, ids, z = rows
    scores = cross_val_score(make(), X, labels, cv=KFold(2, shuffle=True, random_state=0), scoring=bag_auc)
    assert (scores > 0.9).all()
    steps = make_pipeline(StandardScaler(), make())
    for estimator in (make(), steps):
        y = unbag.target(ids, z)
        assert (cross_val_score(estimator, table, y, groups=ids, cv=GroupKFold(2), scoring=bag_auc) > 0.9).all()
    counts = np.stack([SIZES - labels, labels], 1)
    counted = make("label_proportions").fit(X, counts)
    with pytest.raises(ValueError, match="bag_auc needs the probability that a group is positive"):
        bag_auc(counted, X, counts)


@pytest.mark.filterwarnings("ignore:The number of unique classes is greater")
def test_predictions_of_held_out_rows(bags, rows):
    _, labels = bags
    table, ids, z = rows
    y = unbag.target(ids, z)
    assert cross_val_predict(make(), table, y, groups=ids, cv=GroupKFold(2)).shape == ids.shape
    counts = unbag.target(ids, dict(zip(NAMES, np.stack([SIZES - labels, labels], 1), strict=True)))
    for clf, target in ((make(), y), (make("label_proportions"), counts)):
        with pytest.raises(ValueError, match=r"method='predict', or fit and predict in a loop over GroupKFold"):
            cross_val_predict(clf, table, target, groups=ids, cv=GroupKFold(2), method="predict_proba")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: [*X[:3], X[3][:0], *X[4:]], "bag 3 of X has no rows; leave out empty bags and their labels"),
        (lambda X: [*X[:3], X[3][:, :2], *X[4:]], "bag 3 has 2 and bag 0 has 3"),
        (lambda X: X[:-1], r"z must have one entry per group, shape \(39,\); got shape \(40,\)"),
    ],
)
def test_wrong_bags_are_named(bags, change, message):
    with pytest.raises(ValueError, match=message):
        make().fit(change(bags[0]), bags[1])


def test_wrong_ids_are_named(rows, fitted):
    X, ids, z = rows
    with pytest.raises(ValueError, match=rf"groups must be unbag.Groups, or hold an id for each of {len(X)} rows of X"):
        make().fit(X, z, groups=ids[1:])
    with pytest.raises(TypeError, match=r"pairs and triplets of row numbers are unbag.Groups.from_tuples\(groups\)"):
        make("pairwise_similarity", n_classes=2).fit(X, [1, 0], groups=np.array([[0, 1], [2, 3]]))
    with pytest.raises(ValueError, match="ids has no value for row 1"):
        fitted.predict_groups(X[:2], ["a", None])
    with pytest.raises(TypeError, match=r"groups is missing: pass unbag.Groups or an id for each row"):
        fitted.predict_groups(X)
