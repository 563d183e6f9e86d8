"""Data on which held-out groups do not show the accuracy on new rows: each is reported, and its accuracy is not."""

import warnings

import numpy as np
import pytest
import torch
from clean_tables import find_false_alarms, make_table
from findings import kinds, look_at, the

import unbag
from unbag import (
    AggregateClassifier,
    Groups,
    LabelProportions,
    MultipleInstance,
    PairwiseSimilarity,
    PublishedCounts,
    diagnose,
    noise,
    published,
)
from unbag.aggregates.observations import Observations
from unbag.aggregates.symmetry import find_interchangeable
from unbag.diagnostics.rows import find_near_duplicates
from unbag.report import render, summarise


def fit(X, y, ids, k=2, *, aggregate=None, names=None, **options):
    """Fit a linear model to the counts of groups."""
    groups, aggregate = Groups.from_ids(ids), aggregate or LabelProportions()
    clf = AggregateClassifier(aggregate, "linear", classes=names, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clf.fit(X, aggregate.observe(y, groups, k), groups=groups, **options)


# Classes that cannot be told apart.


def couples(k, differ, seed, n_groups=150):
    """Labels of groups in which the classes of a pair are equally frequent, in all but a share of the groups."""
    rng = np.random.default_rng(seed)
    labels = []
    for _ in range(n_groups):
        counts = rng.integers(0, 4, k)
        counts[1 : k - k % 2 : 2] = counts[0 : k - k % 2 : 2]
        counts[:2] += 1
        if rng.random() < differ:
            counts[0], counts[1] = counts[0] - 1, counts[1] + 1
        labels.append(np.repeat(np.arange(k), counts))
    ids = np.repeat(np.arange(n_groups), [len(own) for own in labels])
    return np.concatenate(labels), ids


@pytest.mark.parametrize("k", [3, 4, 5, 6])
@pytest.mark.parametrize("differ", [0, 0.02, 0.05])
def test_classes_with_equal_counts_are_found(k, differ):
    for seed in range(5):
        y, ids = couples(k, differ, seed)
        groups = Groups.from_ids(ids)
        findings = diagnose(LabelProportions(), groups, LabelProportions().observe(y, groups, k), k)
        (message,) = [f.message for f in findings if f.kind == "interchangeable_classes"]
        for first in range(0, k - k % 2, 2):
            assert f"{first} and {first + 1} have equal counts in " in message


def test_interchangeable_classes_are_recorded_named_and_not_estimated(tmp_path):
    names = ["home", "away", "draw"]
    y, ids = couples(3, 0, 0, n_groups=60)
    rng = np.random.default_rng(0)
    X = 4 * np.eye(3)[y] + rng.normal(size=(len(y), 3))
    clf = fit(X, y, ids, 3, names=names)
    assert clf.symmetry_ == ((0, 1),)
    assert clf.estimated_accuracy_ is None
    finding = the("interchangeable_classes", clf.diagnosis_)
    assert finding.message.startswith(
        "'home' and 'away' have equal counts in every group, so they cannot be told apart; name them with name_classes"
    )
    labels = np.array(names)[y]
    with pytest.raises(ValueError, match="each of the interchangeable classes needs a labelled row"):
        clf.name_classes(X[y == 0][:5], labels[y == 0][:5])
    with pytest.raises(ValueError, match="y must have labels among the classes"):
        clf.name_classes(X[:5], y[:5])
    some = np.concatenate([np.flatnonzero(y == label)[:5] for label in (0, 1)])
    clf.save(tmp_path / "model")
    clf = unbag.load(tmp_path / "model")
    groups = Groups.from_ids(ids)
    z = LabelProportions().observe(y, groups, 3)
    page = render(summarise(clf, X, z, groups, title="Matches", inputs={}, labels=labels))
    assert "have equal counts in every group" in page
    assert (clf.name_classes(X[some], labels[some]).predict(X) == labels).mean() > 0.9


def test_an_accident_in_a_few_groups_is_no_equality_of_classes():
    groups = Groups.from_sizes([4] * 12)
    z = [[2, 2, 0], [1, 1, 2], [0, 2, 2], [2, 1, 1]] * 3
    assert "interchangeable_classes" not in kinds(diagnose(LabelProportions(), groups, z, 3))


# Near-duplicates and repeated measurements.


def repeated(how, seed=0, columns=6):
    """Rows without information on their random labels, each of which is there several times."""
    rng = np.random.default_rng(seed)
    n, copies, noise = {
        "copies": (240, 5, 0),
        "near": (240, 4, 0.01),
        "twice": (240, 2, 0.05),
        "visits": (100, 12, 0.3),
        "many visits": (30, 100, 0.1),
    }[how]
    subjects = np.tile(np.arange(n), copies)
    base, y = rng.normal(size=(n, columns)), rng.integers(0, 2, n)
    return base[subjects] + noise * rng.normal(size=(len(subjects), columns)), y[subjects], subjects


def answers(n, visits, n_items, n_options, changes):
    """Answers to a questionnaire, some of which persons change at each visit."""
    rng, subjects = np.random.default_rng(0), np.tile(np.arange(n), visits)
    trait = rng.normal(size=(n, 1)) + rng.normal(size=(n, n_items))
    X = np.clip(np.round(trait + n_options / 2), 0, n_options - 1)[subjects]
    other = np.clip(X + rng.choice([-1, 1], X.shape), 0, n_options - 1)
    return np.where(rng.random(X.shape) < changes, other, X)


@pytest.mark.parametrize(
    "rows",
    [answers(240, 4, 20, 5, 0.1), answers(100, 12, 10, 5, 0.1), answers(100, 12, 40, 2, 0.05)],
    ids=["five answers", "ten questions", "yes or no"],
)
def test_visits_are_found_in_answers(rows):
    assert find_near_duplicates(rows, np.arange(len(rows))) is not None


@pytest.mark.parametrize("seed", range(8))
def test_clusters_of_rows_are_no_duplicates(seed):
    rng = np.random.default_rng(seed)
    n, n_clusters, columns = int(rng.integers(200, 2000)), int(rng.integers(2, 13)), int(rng.integers(2, 11))
    cluster = rng.choice(n_clusters, n, p=rng.dirichlet(np.full(n_clusters, 2)))
    spread = np.exp(rng.uniform(-3, 0, n_clusters))[cluster, None]
    X = 2 * rng.normal(size=(n_clusters, columns))[cluster] + spread * rng.normal(size=(n, columns))
    assert find_near_duplicates(X, np.arange(n) // 6) is None


@pytest.mark.parametrize("distance", [3, 6])
def test_a_positive_row_in_every_second_bag_is_no_duplicate(distance):
    rng = np.random.default_rng(0)
    bags = [rng.normal(size=(rng.integers(3, 9), 2)) for _ in range(60)]
    for bag in bags[1::2]:
        bag[0] += distance
    ids = np.repeat(np.arange(60), [len(bag) for bag in bags])
    assert find_near_duplicates(np.concatenate(bags), ids) is None


def test_rows_of_a_questionnaire_are_no_duplicates():
    rng = np.random.default_rng(0)
    for n_options in (2, 3, 5, 7):
        X = answers(800, 1, 15, n_options, 0)
        X[:80] = rng.integers(0, n_options, 80)[:, None]  # the same answer to all questions
        assert find_near_duplicates(X, np.arange(800)) is None


@pytest.mark.parametrize("how", ["copies", "near", "twice", "visits", "many visits"])
def test_near_duplicates_in_other_groups_are_reported_with_numbers(how):
    X, y, _ = repeated(how, columns=8)
    groups = Groups.from_ids(np.random.default_rng(1).permutation(len(y)) // 6)
    found = [f for f in look_at(X, y, groups) if f.kind in ("copies", "near_duplicates")]
    assert len(found) == 1
    assert "subjects=" in found[0].message
    assert any(character.isdigit() for character in found[0].message)


def test_no_accuracy_is_estimated_unless_subjects_are_held_out_together():
    X, y, subjects = repeated("near")
    groups = subjects // 6 + 1000 * (np.arange(len(y)) // 240)  # every copy of a group is a group
    clf = fit(X, y, groups)
    assert "near_duplicates" in kinds(clf.diagnosis_)
    assert clf.estimated_accuracy_ is None
    clf = fit(X, y, groups, subjects=subjects)
    assert not {"near_duplicates", "split_subjects"} & {*kinds(clf.diagnosis_)}
    assert clf.estimated_accuracy_.low < 0.6
    folds = np.concatenate([own.numpy() for own in clf.member_folds_])
    assert all(len(np.unique(folds[subjects == subject])) == 1 for subject in range(240))


def test_groups_that_mix_subjects_have_no_estimate():
    X, y, subjects = repeated("visits", columns=8)
    ids = np.random.default_rng(0).permutation(len(y)) // 6
    clf = fit(X, y, ids, subjects=subjects)
    finding = the("split_subjects", clf.diagnosis_)
    assert "of 100 subjects are in several folds" in finding.message
    assert clf.estimated_accuracy_ is None


@pytest.mark.parametrize("seed", range(28))
def test_clean_tables_raise_no_alarm(seed):
    assert find_false_alarms(make_table(seed)) == []


def publish(counts, how, seed):
    """State counts with noise, or within random bounds."""
    counts = torch.as_tensor(counts).double()
    if how == "bounds":
        below, above = torch.randint(2, (2, *counts.shape), generator=torch.Generator().manual_seed(seed))
        return published.between((counts - below).clamp(min=0), counts + above)
    kind = noise.read_noise(how)
    return published.noisy(counts + kind.sample(counts.shape, torch.Generator().manual_seed(seed)), kind)


PUBLISHED = ["gaussian:0.05", "gaussian:0.5", "laplace:0.5", "geometric:0.05", "geometric:0.5", "bounds"]


@pytest.mark.parametrize("how", PUBLISHED)
def test_equal_counts_are_found_behind_noise_and_bounds(how):
    first = np.random.default_rng(0).integers(0, 4, 200)
    counts = np.stack([first, first, 3 - first, 3 - first], 1)
    z = publish(counts, how, 0)
    observations = Observations(PublishedCounts(), Groups.from_sizes([6] * 200), z, 4)
    assert find_interchangeable([observations]) == ((0, 1), (2, 3))


def test_an_estimate_is_withheld_if_noise_hides_equal_counts():
    rng = np.random.default_rng(0)
    first = rng.integers(0, 4, 100)
    counts = np.stack([first, first, 6 - 2 * first], 1)
    y = np.concatenate([np.repeat(range(3), own) for own in counts])
    groups = Groups.from_sizes([6] * 100)
    clf = AggregateClassifier("published_counts", "linear", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.fit(4 * np.eye(3)[y] + rng.normal(size=(600, 3)), publish(counts, "gaussian:0.5", 0), groups=groups)
    assert clf.symmetry_ == ((0, 1),)
    assert clf.estimated_accuracy_ is None
    finding = the("interchangeable_classes", clf.diagnosis_)
    assert "differ by no more than their noise or intervals explain" in finding.message


@pytest.mark.parametrize("how", [*PUBLISHED, "laplace:5"])
def test_independent_classes_are_not_equal_behind_noise_and_bounds(how):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, k = int(rng.integers(20, 200)), int(rng.integers(2, 6))
        sizes = rng.integers(4, 40, n) if seed % 2 else np.full(n, rng.integers(4, 20))
        shares = rng.dirichlet(np.full(k, rng.choice([0.7, 2, 20, 1000])), n)
        counts = np.stack([rng.multinomial(m, p) for m, p in zip(sizes, shares, strict=True)])
        z = publish(counts, how, seed)
        observations = Observations(PublishedCounts(), Groups.from_sizes(sizes.tolist()), z, k)
        assert find_interchangeable([observations]) == ()


# Columns that contain the labels or their counts.


@pytest.mark.parametrize(
    ("aggregate", "size", "most"),
    [(LabelProportions(), 10, 0.08), (MultipleInstance(), 3, 0.02), (PairwiseSimilarity(), 2, 0.08)],
)
@pytest.mark.parametrize("how", ["with noise", "with errors"])
def test_nearly_the_label_is_found(aggregate, size, most, how):
    rng = np.random.default_rng(0)
    groups = Groups.from_sizes([size] * (1800 // size))
    y = (rng.random(1800) < 0.3).astype(int)
    column = y + 0.01 * rng.normal(size=1800) if how == "with noise" else np.where(rng.random(1800) < most, 1 - y, y)
    X = np.c_[rng.normal(size=(1800, 3)), 7 - 2 * column]
    found = the("answer_column", look_at(X, y, groups, aggregate=aggregate))
    assert "column 3 of X holds the observed labels" in found.message
    weaker = np.where(rng.random(1800) < 0.2, 1 - y, y)  # a good feature
    assert "answer_column" not in kinds(look_at(np.c_[X[:, :3], weaker], y, groups, aggregate=aggregate))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("k", "size", "n_groups"), [(2, 8, 60), (2, 20, 100), (3, 10, 80), (4, 20, 100)])
def test_the_most_frequent_class_and_codes_of_single_classes_are_found(k, size, n_groups, seed):
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(n_groups), size)
    probs = rng.dirichlet(np.full(k, 1.5), n_groups)
    y = np.array([rng.choice(k, p=probs[g]) for g in ids])
    most = np.stack([np.bincount(y[ids == g], minlength=k) for g in range(n_groups)]).argmax(1)[ids]
    nearly = np.where(rng.random(len(y)) < 0.05, (y + rng.integers(1, k, len(y))) % k, y)
    X = rng.normal(size=(len(y), 3)) + 0.3 * y[:, None]
    for column in (most, most == 1, y == 1, nearly, nearly == 1):
        assert "answer_column" in kinds(look_at(np.c_[X, column], y, Groups.from_ids(ids), k))
    # A property of the group that determines the probabilities of its labels, and which class is the most likely one.
    assert "answer_column" not in kinds(look_at(np.c_[X, (probs[:, 0] > 1 / k)[ids]], y, Groups.from_ids(ids), k))


def shares(seed=0, n_groups=100, size=20):
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(n_groups), size)
    y = (rng.random(len(ids)) < rng.beta(1, 1, n_groups)[ids]).astype(int)
    return rng, y, ids, np.bincount(ids, y) / size


@pytest.mark.parametrize("noise", [0, 0.1, 0.2])
def test_a_column_with_the_share_of_the_group_is_found(noise):
    rng, y, ids, share = shares()
    X = np.c_[rng.normal(size=(len(y), 3)) + 0.5 * y[:, None], 5 - 3 * (share[ids] + noise * rng.normal(size=len(y)))]
    found = the("share_column", look_at(X, y, Groups.from_ids(ids)))
    assert "column 3 of X follows the shares or counts of the classes" in found.message
    clf = fit(X, y, ids)
    assert clf.estimated_accuracy_ is None


def test_a_noisy_share_and_a_property_of_rows_and_groups_give_similar_data():
    """No finding distinguishes the worlds; where the share of a new group is unknown, one estimate is far too high."""
    rng, y, ids, share = shares()
    leak = fit((share[ids] + 0.3 * rng.normal(size=len(y)))[:, None], y, ids)
    column = rng.beta(1, 1, 100)[ids] + 0.3 * rng.normal(size=len(y))
    genuine = fit(column[:, None], (rng.random(len(y)) < column).astype(int), ids)
    assert kinds(leak.diagnosis_) == kinds(genuine.diagnosis_) == []
    assert abs(leak.estimated_accuracy_.value - genuine.estimated_accuracy_.value) < 0.1
    new = rng.beta(1, 1, 10_000) + 0.3 * rng.normal(size=10_000)
    assert abs((genuine.predict(new[:, None]) == (rng.random(10_000) < new)).mean() - 0.8) < 0.03
    unknown = 0.5 + 0.3 * rng.normal(size=10_000)
    assert abs((leak.predict(unknown[:, None]) == rng.integers(0, 2, 10_000)).mean() - 0.5) < 0.03


@pytest.mark.parametrize("feature", ["the label with noise", "a property of the group", "of both"])
def test_features_of_rows_and_groups_are_no_share(feature):
    rng, y, ids, _ = shares()
    u = rng.normal(size=100)
    if feature == "the label with noise":
        column = y + 0.1 * rng.normal(size=len(y))
    else:
        column = u[ids] + (0.5 * rng.normal(size=len(y)) if feature == "of both" else 0)
        y = (rng.random(len(y)) < 1 / (1 + np.exp(-3 * column))).astype(int)
    assert "share_column" not in kinds(look_at(np.c_[rng.normal(size=len(y)), column], y, Groups.from_ids(ids)))


@pytest.mark.parametrize("effect", [0.5, 2, 5, 20])
@pytest.mark.parametrize("sample", [[0, 0, 1, 1], [0, 1, -1, -1], [0, 0, 0, 1, 1, 1, 1, -1], [0, 1, 2, -1]])
def test_features_in_groups_with_similar_shares_are_no_share(effect, sample):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        n, k = int(rng.integers(12, 200)), max(sample) + 1
        drawn = [np.where(np.array(sample) < 0, rng.integers(0, k, len(sample)), sample) for _ in range(n)]
        y = np.concatenate([[*range(k), *drawn[0][k:]], *drawn[1:]])
        X = rng.normal(size=(len(y), 3)) + effect * y[:, None]
        X[:, 2] += np.repeat(rng.normal(size=n), len(sample))
        assert "share_column" not in kinds(look_at(X, y, Groups.from_sizes([len(sample)] * n), k))


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("leak", ["count", "mean of codes", "rank"])
def test_numbers_computed_from_counts_are_found_in_groups_of_several_sizes(leak, k):
    rng = np.random.default_rng(0)
    sizes = rng.integers(3, 13, 80)
    ids = np.repeat(np.arange(80), sizes)
    y = (rng.dirichlet(np.ones(k), 80)[ids].cumsum(1) < rng.random(len(ids))[:, None]).sum(1).clip(max=k - 1)
    means, count = np.bincount(ids, y) / sizes, np.bincount(ids, y == 1)
    column = {"count": count, "mean of codes": means, "rank": (count / sizes).argsort().argsort()}[leak]
    assert "share_column" in kinds(look_at(np.c_[rng.normal(size=len(y)), column[ids]], y, Groups.from_ids(ids), k))


@pytest.mark.parametrize("seed", range(5))
def test_features_of_classes_that_come_in_pairs_are_no_share(seed):
    y, ids = couples(3, 0, seed, n_groups=60)
    X = 4 * np.eye(3)[y] + np.random.default_rng(seed).normal(size=(len(y), 3))
    assert "share_column" not in kinds(look_at(X, y, Groups.from_ids(ids), 3))


# The mixture of groups.


def test_shares_that_depend_on_the_size_of_the_group_are_reported():
    rng = np.random.default_rng(0)
    sizes = np.where(np.arange(80) % 4, 5, 40)
    ids = np.repeat(np.arange(80), sizes)
    y = (rng.random(len(ids)) < np.where(sizes == 40, 0.95, 0.4)[ids]).astype(int)
    groups = Groups.from_ids(ids)
    findings = diagnose(LabelProportions(), groups, LabelProportions().observe(y, groups, 2), 2)
    found = the("size_dependent_shares", findings)
    assert "depends on the size of the group" in found.message
    y = (rng.random(len(ids)) < rng.beta(2, 2, 80)[ids]).astype(int)
    assert diagnose(LabelProportions(), groups, LabelProportions().observe(y, groups, 2), 2) == []


@pytest.mark.parametrize("seed", range(5))
def test_twelve_groups_show_that_large_ones_are_of_one_class(seed):
    rng = np.random.default_rng(seed)
    large = rng.permutation(12) < 5
    counts = rng.binomial(np.where(large, 64, 16), np.where(large, 1, 0.4))
    findings = diagnose(
        "label_proportions",
        Groups.from_sizes([64 if one else 16 for one in large]),
        np.stack([counts, np.where(large, 64, 16) - counts], 1),
        2,
    )
    assert "size_dependent_shares" in kinds(findings)


def test_other_shares_of_the_classes_in_new_rows_are_a_shift():
    rng, y, ids, _ = shares(n_groups=60)
    clf = fit(rng.normal(size=(len(y), 3)) + 2 * y[:, None], y, ids)
    assert clf.estimated_accuracy_ is not None
    assert clf.check_shift(rng.normal(size=(300, 3)) + 2 * rng.integers(0, 2, 300)[:, None]) == []
    assert kinds(clf.check_shift(rng.normal(size=(300, 3)) + 2)) == ["shift"]
