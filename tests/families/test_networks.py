"""Networks that begin with a guess of the classes."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn

from unbag import AggregateClassifier, Groups, LabelProportions, OrdinalRank, OrdinalTriplet, PairwiseSimilarity
from unbag.aggregates.class_shares import read_class_shares
from unbag.families import Fitted, starts
from unbag.families.cross_fit import _with_one_scaling
from unbag.families.folds import Fold, make_folds
from unbag.families.networks import Networks, _learn_guess
from unbag.families.row_evidence import RowEvidence
from unbag.families.starts import _Clusters, guess_classes
from unbag.fit_settings import MOST_LOOKS
from unbag.fitting import TIMES_THE_FALL
from unbag.fold_fitting import LOOKS_AFTER_CLUSTERS, prepare_folds
from unbag.objectives.objective import match_proportions
from unbag.training import LongAfterFall, Observations, Plateau, Settings, Trained
from unbag.training.best import never
from unbag.training.selection import SHARPENED


def blobs(k=4, n=240, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % k
    return (8 * np.eye(k)[labels] + rng.normal(size=(n, k))).astype(np.float32), labels


def pairs_of(labels, k=4, times=2, aggregate=None):
    aggregate = aggregate or PairwiseSimilarity()
    order = np.random.default_rng(1).permuted(np.tile(np.arange(len(labels)), (times, 1)), axis=1)
    groups = Groups.from_tuples(order.reshape(-1, aggregate.size))
    return Observations(aggregate, groups, aggregate.observe(labels, groups, k), k)


def is_renaming(found, labels, k=4):
    return len({*zip(found.tolist(), labels.tolist(), strict=True)}) == k


def test_a_network_learns_a_guess():
    X, labels = blobs()
    guess = 0.9 * torch.eye(4)[torch.from_numpy(labels)] + 0.025
    model = _learn_guess(lambda: nn.Linear(4, 4), torch.from_numpy(X), guess, seed=0)
    assert model(torch.from_numpy(X)).argmax(1).tolist() == labels.tolist()
    again = _learn_guess(lambda: nn.Linear(4, 4), torch.from_numpy(X), guess, seed=1)
    assert not torch.equal(model.weight, again.weight)
    assert all(weight.grad is None for weight in model.parameters())


def test_a_guess_follows_the_groups_where_clusters_do_not_tell_the_classes():
    X, blob = blobs(8, 480)
    labels = np.array([0, 0, 1, 1, 2, 2, 3, 3])[blob]  # of two clusters each
    (guess,) = guess_classes(X, [pairs_of(labels, times=6)], [], seed=0, n_random=0)
    assert is_renaming(guess.argmax(1).numpy(), labels)


@pytest.mark.parametrize("other", ["nothing", "shares"])
@pytest.mark.parametrize("aggregate", [OrdinalRank(), OrdinalTriplet()])
def test_a_guess_has_the_classes_in_their_order(aggregate, other):
    X, blob = blobs(8, 480)
    labels = np.array([3, 0, 5, 1, 4, 2, 0, 5])[blob]  # of one cluster or two, in no order
    sets = [pairs_of(labels, 6, 12, aggregate)]
    if other == "shares":
        sets.append(read_class_shares(np.bincount(labels) / 480, np.arange(6)).as_observations(480, 2880, 0))
    (guess,) = guess_classes(X, sets, [], seed=0)[:1]
    found = guess.argmax(1).numpy()
    assert found.tolist() in [labels.tolist()] + [(5 - labels).tolist()] * (aggregate.size == 3)


@pytest.mark.parametrize("names", ["shares", "labels"])
def test_pairs_whose_classes_others_name_begin_with_a_guess_too(names):
    X, blob = blobs(8, 480)
    labels = np.array([0, 1, 1, 2, 2, 3, 3, 3])[blob]
    pairs, few = pairs_of(labels, times=6), np.arange(8)
    shares = read_class_shares(np.bincount(labels) / 480, np.arange(4)).as_observations(480, 1440, 0)
    labelled = Observations(LabelProportions(), Groups.from_tuples(few[:, None]), np.eye(4)[labels[few]], 4)
    (guess,) = guess_classes(X, [pairs, shares if names == "shares" else labelled], [], seed=0)
    found = guess.argmax(1).numpy()
    assert is_renaming(found, labels)
    assert names == "shares" or found.tolist() == labels.tolist()


def test_two_classes_in_one_and_one_in_two_are_set_right():
    X, labels = blobs(4, 240)
    evidence = RowEvidence([pairs_of(labels, times=6)])
    clusters = _Clusters.of(X.astype(float), evidence, evidence, 4, seed=0)
    found = torch.from_numpy(labels)[[int((clusters.own == own).nonzero()[0]) for own in range(24)]]
    half = torch.from_numpy(X[:, 3].argsort().argsort() % 2)  # of class 3
    own = half[[int((clusters.own == own).nonzero()[0]) for own in range(24)]]
    wrong = torch.where(found == 3, 2 + own, torch.where(found == 2, 1, found))  # 1 and 2 joined, 3 in two parts
    poor = clusters.maximise(0.97 * torch.eye(4, dtype=torch.float64)[wrong] + 0.0075, 0)
    better = clusters.split_and_merge(poor)
    assert better.score > poor.score
    assert is_renaming(better.table.argmax(1)[clusters.own].numpy(), labels)
    assert replace(clusters, deadline=time.monotonic() - 1).split_and_merge(poor) is poor


@pytest.mark.parametrize("limit", ["MOST_GROUPS", "MOST_ROWS", "MOST_COLUMNS"])
def test_large_data_are_guessed_from_a_part(monkeypatch, limit):
    X, labels = blobs()
    monkeypatch.setattr(starts, limit, 200 if limit != "MOST_COLUMNS" else 3)
    guess, other = guess_classes(X, [pairs_of(labels, times=3)], [], seed=0, n_random=1)
    assert guess.shape == other.shape == (240, 4)
    torch.testing.assert_close(guess.sum(1), torch.ones(240, dtype=torch.float64))


@pytest.mark.parametrize("aggregate", [PairwiseSimilarity(), OrdinalRank()])
@pytest.mark.filterwarnings("ignore:OrdinalRank tells the order")
def test_every_second_restart_begins_with_clusters_where_rows_are_compared(aggregate):
    X, labels = blobs()
    seen = pairs_of(labels, times=4, aggregate=aggregate)
    clf = AggregateClassifier(
        aggregate,
        "linear",
        n_classes=4,
        n_restarts=2,
        scaling="standard",
        stopping=lambda best, history: len(history) == 2,
        random_state=0,
    )
    clf.fit(X, seen.z, groups=seen.groups)
    first = clf.history_[0]["loss"]
    assert first[0] < 0.5 * first[-1]
    assert is_renaming(clf.predict(X), labels)


@pytest.mark.parametrize("model", ["trees", LogisticRegression()], ids=["trees", "classifier"])
@pytest.mark.filterwarnings("ignore:OrdinalRank tells the order")
def test_what_is_fitted_in_rounds_begins_with_a_guess_beside_a_constant(model):
    pytest.importorskip("lightgbm")
    X, blob = blobs(8, 480)
    labels = np.array([3, 0, 5, 1, 4, 2, 0, 5])[blob]
    seen = pairs_of(labels, 6, 4, OrdinalRank())
    clf = AggregateClassifier("ordinal_rank", model, n_classes=6, random_state=0).fit(X, seen.z, groups=seen.groups)
    assert clf.predict(X).tolist() == labels.tolist()


@pytest.mark.filterwarnings("ignore:OrdinalRank tells the order")
def test_classes_that_ranks_leave_unused_are_told():
    X, labels = blobs(3)
    seen = pairs_of(labels, k=5, aggregate=OrdinalRank())
    clf = AggregateClassifier("ordinal_rank", "linear", n_classes=5, patience=3, random_state=0)
    with pytest.warns(UserWarning, match="the model uses 3 of 5 classes: it expects .* of hardly any row"):
        clf.fit(X, seen.z, groups=seen.groups)
    assert {"unknown_borders", "unused_classes"} <= {one.kind for one in clf.diagnosis_}


@pytest.mark.parametrize(
    ("standard", "table", "chosen"),
    [
        ([-9, -8, -10], [-6, -6.5, -6.8], "table"),
        ([-9, -8, -10], [-8, -9.5, -8.2], "standard"),  # better on average, but not beyond chance
        ([-9, -8, -10], [-6, np.nan, -6.8], "standard"),
        ([-9, np.nan, -10], [-9.1, -9.1, -9.9], "table"),
    ],
)
def test_folds_have_one_scaling_that_is_better_beyond_chance(standard, table, chosen):
    def fitted(*scores):
        trained = Trained([None, None], [{"loss": [1.0, 1.0], "score": list(scores)}], [0, 0], list(scores))
        return Fitted(trained, ["standard", "table"], list(scores))

    kept = _with_one_scaling([fitted(*scores) for scores in zip(standard, table, strict=True)])
    assert [one.scalings for one in kept] == [[chosen]] * 3
    np.testing.assert_equal([one.scores[0] for one in kept], table if chosen == "table" else standard)


def test_pixels_have_one_scale_for_all_columns_in_all_folds():
    X, labels = load_digits(n_class=4, return_X_y=True)
    X, labels = X[:704], labels[:704]
    counts = np.array([np.bincount(own, minlength=4) for own in labels.reshape(-1, 32)])
    clf = AggregateClassifier("label_proportions", model="linear", n_folds=3, epochs=10, random_state=0)
    with pytest.warns(UserWarning, match="22 groups can be compared in 21 ways"):
        clf.fit(X, counts, groups=Groups.from_ids(np.arange(704) // 32))
    assert {one["scaling"] for one in clf.replicas_} == {clf.scaling_} == {"table"}


def test_without_early_stopping_networks_keep_their_last_state_and_are_judged_by_left_out_groups():
    X, labels = blobs(n=48)
    X = torch.from_numpy(X)
    seen = Observations(LabelProportions(), Groups.from_sizes([6] * 8), torch.eye(4)[labels].view(8, 6, 4).sum(1), 4)
    folds = make_folds([seen], [torch.arange(8) % 2])
    settings = Settings(epochs=3, steps=2, batch_size=4)
    networks = Networks(
        lambda: nn.Linear(4, 4), settings, ["standard"], early_stopping=False, objective=match_proportions
    )
    for fold, one in zip(folds, networks.fit_folds(X, folds, seed=0), strict=True):
        assert one.trained.best_epoch == [2]
        (own,) = fold.held_out
        of_factors = [
            own.evidence(factor * own_logits).log_likelihood.mean().item()
            for factor in SHARPENED
            for own_logits in [one.trained.models[0](X)]
        ]
        assert one.scores == pytest.approx([max(of_factors)], rel=1e-5)


def test_few_groups_do_not_end_the_match_of_mean_proportions():
    choices = AggregateClassifier().get_params(deep=False)
    for n_groups, rule in ((20, LongAfterFall(TIMES_THE_FALL)), (21, Plateau(10, tolerance=5e-3))):
        sets = [Observations(LabelProportions(), Groups.from_sizes([2] * n_groups), [[1, 1]] * n_groups, 2)]
        candidates = prepare_folds(choices, torch.zeros(2 * n_groups, 3), sets, 0).candidates
        assert [candidates[name].early_stopping for name in ("mlp", "mean_proportions")] == [True, n_groups > 20]
        match = candidates["mean_proportions"]
        assert (match.settings.epochs, match.hooks["stopping"]) == (MOST_LOOKS, rule)


def test_the_match_of_few_groups_goes_on_for_as_long_as_it_took_times_eight():
    X, labels = blobs(n=48)
    seen = Observations(LabelProportions(), Groups.from_sizes([6] * 8), torch.eye(4)[labels].view(8, 6, 4).sum(1), 4)
    choices = AggregateClassifier().get_params(deep=False)
    match = prepare_folds(choices, torch.from_numpy(X), [seen], 0).candidates["mean_proportions"]
    folds = make_folds([seen], [torch.arange(8) % 2])
    for one in replace(match, scalings=["standard"]).fit_folds(torch.from_numpy(X), folds, 0, goal=0.0):
        losses = np.array([entry["loss"][0] for entry in one.trained.history])
        fall = int((losses <= 0.01 * losses[0]).argmax()) + 1
        assert one.trained.best_epoch == [TIMES_THE_FALL * fall - 1]


def test_what_begins_with_clusters_ends_soon_where_groups_cannot_choose():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 4
    X = torch.from_numpy(4 * np.eye(4)[labels] + rng.normal(size=(60, 4))).float()
    seen = Observations(LabelProportions(), Groups.from_sizes([20] * 3), torch.eye(4)[labels].view(3, 20, 4).sum(1), 4)
    prepared = prepare_folds(AggregateClassifier().get_params(deep=False), X, [seen], 0)
    assert not prepared.choose
    clusters = prepared.candidates["clusters"]
    assert (clusters.settings.epochs, clusters.settings.warm_up) == (LOOKS_AFTER_CLUSTERS, LOOKS_AFTER_CLUSTERS)
    (one,) = clusters.fit_folds(X, [Fold([seen], [])], 0)
    losses = np.array([entry["loss"][0] for entry in one.trained.history])
    progress = (losses[:-1] - losses[1:]) / (1 + losses[1:])
    assert (progress[:-1] > 0.05).all()
    assert len(losses) < LOOKS_AFTER_CLUSTERS
    assert progress[-1] <= 0.05
    own = prepare_folds(AggregateClassifier(stopping=never).get_params(deep=False), X, [seen], 0).candidates["clusters"]
    assert own.hooks["stopping"] is never


@pytest.mark.parametrize(
    ("n_groups", "n_classes", "kinds", "n_folds"),
    [
        (10, 2, ["clusters", "match", "random"], 8),
        (11, 2, ["clusters", "match", "random"], 0),
        (40, 2, ["clusters", "match", "random"], 0),
        (41, 2, ["random", "match"], 0),
        (10, 10, ["clusters"], 0),
        (41, 50, ["clusters"], 0),
    ],
)
def test_where_time_is_short_networks_of_different_kinds_take_turns(n_groups, n_classes, kinds, n_folds):
    """Few are left out in turn; many do without clusters; as few as classes, which cannot choose, have only these."""
    choices = AggregateClassifier(time_limit=1.0).get_params(deep=False)
    counts = [[2, *[0] * (n_classes - 1)]] * n_groups
    sets = [Observations(LabelProportions(), Groups.from_sizes([2] * n_groups), counts, n_classes)]
    prepared = prepare_folds(choices, torch.zeros(2 * n_groups, 3), sets, 0)
    assert "clusters" in prepared.candidates

    def kind(family):
        return "match" if family.objective is match_proportions else "clusters" if family.guess else "random"

    assert [kind(one.family) for one in prepared.in_turn] == kinds
    assert all(one.short for one in prepared.in_turn)
    assert len(prepared.folds_in_turn) == n_folds
    if n_folds:
        assert [one.family.early_stopping for one in prepared.in_turn] == [True, False, True]  # not of the match


def test_what_the_caller_gives_holds_for_the_match_of_few_groups_too():
    sets = [Observations(LabelProportions(), Groups.from_sizes([2] * 9), [[1, 1]] * 9, 2)]

    def match(**given):
        choices = AggregateClassifier(**given).get_params(deep=False)
        return prepare_folds(choices, torch.zeros(18, 3), sets, 0).candidates["mean_proportions"]

    assert (match().settings.learning_rate, match().settings.weight_decay) == (1e-3, 0.0)
    own = match(learning_rate=0.02).settings
    assert (own.learning_rate, own.weight_decay) == (0.02, 0.0)
    assert match(patience=3).early_stopping
    assert match(patience=3).settings.patience == 3
    assert match(epochs=7).settings.epochs == 7
