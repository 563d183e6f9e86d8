"""Selection: the best epoch by held-out likelihood, by labels, or by any score; patience."""

import math
from dataclasses import replace
from functools import partial
from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from training_problems import assert_close, assert_identical, bags, drawn, network, observe, pairs_problem, table

from unbag import Groups, NegativeLogLikelihood
from unbag.training import Checkpoint, Settings, TimeBudgetExceeded, held_out_likelihood, permuted_accuracy, train

NAN, INF = float("nan"), float("inf")
SETTINGS = Settings(epochs=5, batch_size=6, learning_rate=0.02)


def scripted(*scores):
    """Return a score that says what it is told to, one entry an epoch."""
    said = iter(scores)
    return lambda predict: torch.tensor(next(said))


def run(score, seeds=(0,), **changes):
    X, seen = pairs_problem()
    return train(partial(network, 3), X, [seen], replace(SETTINGS, **changes), seeds=seeds, score=score)


# ----------------------------------------------------------------------------------------------- the best epoch


def test_weights_of_the_best_epoch_are_returned():
    trained = run(scripted([0.1], [0.2], [0.9], [0.3], [0.4]))
    assert trained.best_epoch == [2]
    assert trained.best_score == [pytest.approx(0.9)]
    assert len(trained.history) == 5
    assert_close(trained.models[0], run(None, epochs=3).models[0], tolerance=0)


def test_each_replica_has_a_best_epoch_of_its_own():
    trained = run(scripted([0.1, 5.0], [0.2, 4.0], [0.9, 3.0], [0.3, 2.0], [0.4, 1.0]), seeds=[0, 1])
    assert trained.best_epoch == [2, 0]
    for place, epochs in enumerate((3, 1)):
        assert_close(trained.models[place], run(None, seeds=[0, 1], epochs=epochs).models[place], tolerance=0)


def test_the_last_of_equal_epochs_is_kept():
    assert run(scripted([1.0], [2.0], [2.0], [2.0], [1.0])).best_epoch == [3]


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([NAN, 0.1, NAN, 0.3, NAN], 3),
        ([0.5, NAN, 0.1, 0.2, 0.3], 0),
        ([NAN, -INF, NAN, NAN, NAN], 1),
        ([-INF, -INF, -5.0, NAN, -INF], 2),
    ],
)
def test_nan_never_wins(scores, best):
    trained = run(scripted(*([score] for score in scores)))
    assert trained.best_epoch == [best]
    assert trained.best_score == [pytest.approx(scores[best])]
    assert_close(trained.models[0], run(None, epochs=best + 1).models[0], tolerance=0)


def test_nan_in_every_epoch_is_an_error_that_names_the_replica():
    with pytest.raises(RuntimeError, match="seed 7 diverged: its score was NaN in every epoch; try a lower learning"):
        run(scripted(*[[1.0, NAN]] * 5), seeds=[3, 7])


@pytest.mark.parametrize("phases", [{}, {"remember_from": 1}, {"loss": "mae"}], ids=["current", "remembered", "mae"])
def test_weights_that_are_nan_are_not_returned(phases):
    with pytest.raises(RuntimeError, match="seed 4 diverged: its weights are NaN; try a lower learning_rate"):
        run(None, seeds=[4, 5], learning_rate=1e38, **phases)


# ---------------------------------------------------------------------------------------------------- patience


@pytest.mark.parametrize(
    ("scores", "patience", "epochs"),
    [
        ([3, 2, 1, 1, 1, 1], 1, 2),
        ([3, 2, 1, 1, 1, 1], 2, 3),
        ([1, 2, 1, 3, 2, 2], 2, 6),
        ([1, 2, 3, 4, 5, 6], 1, 6),
        ([1, 1, 1, 1, 1, 1], 3, 4),
    ],
)
def test_patience_stops(scores, patience, epochs):
    trained = run(scripted(*([float(score)] for score in scores)), patience=patience, epochs=6)
    assert len(trained.history) == epochs
    best = max(scores[:epochs])
    assert trained.best_epoch == [max(epoch for epoch in range(epochs) if scores[epoch] == best)]


def test_patience_waits_for_the_warm_up():
    trained = run(scripted(*[[1.0]] * 9), patience=2, warm_up=4, epochs=9)
    assert len(trained.history) == 6
    assert trained.best_epoch == [5]


def test_no_epoch_before_the_first_that_counts_is_scored_or_chosen():
    trained = run(scripted([1.0], [3.0], [2.0]), score_from=2)
    assert [entry["score"] is None for entry in trained.history] == [True, True, False, False, False]
    assert trained.best_epoch == [3]
    trained = run(scripted([1.0], [3.0]), score_from=1, score_every=3)
    assert [entry["score"] is None for entry in trained.history] == [True, True, True, False, False]


def test_patience_counts_from_the_first_epoch_that_counts_whatever_the_warm_up():
    for warm_up in (0, 3, 9):
        trained = run(scripted(*[[1.0]] * 9), patience=2, warm_up=warm_up, score_from=3, epochs=9)
        assert len(trained.history) == 3 + 1 + 2  # the first score is better than none


# --------------------------------------------------------------------------------------------------- criteria


BOTH = ([[1.0, 5.0], [0.0, 1.0]], [[2.0, 4.0], [1.0, 2.0]], [[9.0, 3.0], [2.0, 0.0]], [[1.0, 1.0], [0.0, 9.0]])


def criteria(score, **changes):
    X, seen = pairs_problem()
    settings = replace(SETTINGS, epochs=4, **changes)
    return train(partial(network, 3), X, [seen], settings, seeds=[0, 1], score=score, n_criteria=2)


def test_each_criterion_chooses_as_it_would_alone():
    trained = criteria(scripted(*BOTH))
    assert trained.best_epoch == [2, 0]
    assert trained.best_score == [9.0, 5.0]
    [other] = trained.others
    assert other.best_epoch == [2, 3]
    assert other.best_score == [2.0, 9.0]
    assert [entry["score"] for entry in trained.history] == list(BOTH)
    for place, one in enumerate((trained, other)):
        alone = run(scripted(*(scores[place] for scores in BOTH)), seeds=[0, 1], epochs=4)
        assert alone.best_epoch == one.best_epoch
        assert alone.best_score == one.best_score
        for mine, theirs in zip(one.models, alone.models, strict=True):
            assert_close(mine, theirs, tolerance=0)
    assert trained.models[1] is not other.models[1]


def test_a_run_waits_for_the_last_criterion_and_each_stops_by_itself():
    first, second = [[3.0, 3.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]]
    trained = criteria(scripted(first, second, [[9.0, 9.0], [2.0, 2.0]], [[9.0, 9.0], [3.0, 3.0]]), patience=1)
    assert trained.best_epoch == [0, 0]  # alone, it would have stopped after the second epoch
    assert trained.others[0].best_epoch == [3, 3]


def both_ways(score, predict):
    found = score(predict)
    return torch.stack([found, -found])


def test_criteria_are_saved_with_a_run(tmp_path):
    X, seen = pairs_problem()
    held_out = held_out_likelihood(X, [seen])

    def trained(**more):
        score = partial(both_ways, held_out)
        return train(partial(network, 3), X, [seen], SETTINGS, seeds=[0, 1], score=score, n_criteria=2, **more)

    whole = trained()
    for until in (0, 0, 0, 0, None):
        try:
            continued = trained(checkpoint=Checkpoint(tmp_path, until=until))
        except TimeBudgetExceeded:
            continue
    assert_identical(whole, continued)
    assert_identical(whole.others[0], continued.others[0])
    assert whole.others[0].best_epoch != whole.best_epoch
    with pytest.raises(ValueError, match="is of another run: its criteria"):
        train(partial(network, 3), X, [seen], SETTINGS, seeds=[0, 1], score=held_out, checkpoint=Checkpoint(tmp_path))


def test_scores_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"2 replicas by each of 2 criteria, shape \(2, 2\); got shape \(2,\)"):
        criteria(lambda _: torch.zeros(2))
    with pytest.raises(ValueError, match=r"one number for each of 1 replicas, shape \(1,\); got shape \(2, 1\)"):
        run(lambda _: torch.zeros(2, 1))


def test_replicas_that_diverged_can_be_kept():
    X, seen = pairs_problem()
    settings = replace(SETTINGS, epochs=1)
    score = scripted([0.5, NAN])
    trained = train(partial(network, 3), X, [seen], settings, seeds=[0, 1], score=score, keep_diverged=True)
    assert trained.best_epoch == [0, -1]
    assert trained.best_score == [0.5, -INF]


# -------------------------------------------------------------------------------------------------- likelihood


def test_held_out_likelihood_is_the_mean_over_groups_by_weight():
    X, labels = table(30, 2)
    sets = [
        replace(bags(labels), weight=2.0),
        observe("PairwiseSimilarity", labels, drawn(30, 7, 2), 2, weight=0.5),
        observe("LabelProportions", labels, Groups.from_tuples([[29, 3, 3], [1, 2, 0]], 30), 2, weight=1.0),
    ]
    models = [network(2), network(2)]
    found = held_out_likelihood(X, sets)(lambda rows: torch.stack([model(rows) for model in models]).detach())
    for place, model in enumerate(models):
        expected = 0.0
        for one in sets:
            expected -= one.weight * NegativeLogLikelihood(one.aggregate)(model(X), one.groups, one.z).item()
        assert found[place].item() == pytest.approx(expected / 3.5, rel=1e-5)


def test_held_out_likelihood_of_impossible_groups_is_minus_infinity():
    X, labels = table(4, 2)
    score = held_out_likelihood(X, [observe("LabelProportions", labels * 0, Groups.from_sizes([4]), 2)])
    assert score(lambda rows: torch.tensor([-INF, 0.0]).expand(1, 4, 2)).item() == -INF


def test_held_out_likelihood_of_a_diverged_replica_is_nan_and_spares_the_others():
    X, labels = table(4, 2)
    score = held_out_likelihood(X, [observe("LabelProportions", labels, Groups.from_sizes([2, 2]), 2)])
    logits = torch.zeros(3, 4, 2)
    logits[1, 2, 0] = NAN
    logits[2, 0, 0] = INF
    found = score(lambda rows: logits)
    assert found.isnan().tolist() == [False, True, True]


@given(st.integers(2, 4), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
def test_permuted_accuracy_is_the_best_over_all_renamings(k, together):
    guessed, y = (torch.tensor(column) % k for column in zip(*together, strict=True))
    best = max((torch.tensor(names)[guessed] == y).double().mean().item() for names in permutations(range(k)))
    assert math.isclose(permuted_accuracy(guessed, y), best)
