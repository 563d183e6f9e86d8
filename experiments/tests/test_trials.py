"""Trials: what is trained together, what validation chooses, and that the test data are looked at once."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from unbag.training import Settings, TimeBudgetExceeded
from unbag_experiments import trials
from unbag_experiments.baselines import METHODS, Method
from unbag_experiments.datasets import Dataset
from unbag_experiments.plan import Cell, Choice
from unbag_experiments.sampling import make_tasks
from unbag_experiments.trials import run_trials, stack

CPU = torch.device("cpu")
PAIRS = Cell("similarity_uci", "pairwise_similarity", "vehicle", "uum", epochs=6)
FOX = Cell("mil", "multiple_instance", "fox", "minimax_feature", epochs=10)


def clusters(n=150, k=3):
    """Return rows in well separated clusters, whose columns differ much in scale."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % k
    X = (rng.normal(0, 0.3, (n, 2)) + np.stack([np.cos(2.1 * y), np.sin(2.1 * y)], 1)) * [100, 0.01]
    return Dataset("vehicle", X.astype(np.float32), y, ("a", "b", "c"), None, None, "", "")


def bags(n=30):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    X = rng.normal(0, 1, (3 * n, 4)).astype(np.float32)
    X[::3, 0] += 6 * y
    return Dataset("fox", X, y, ("no", "yes"), np.repeat(np.arange(n), 3), None, "", "")


def pairs(seeds=(0, 1)):
    tasks = make_tasks(clusters(), "pairwise_similarity", "paper", seeds=seeds, n_groups=None, device=CPU)
    return dict(zip(seeds, tasks, strict=True))


@pytest.fixture
def judged(monkeypatch):
    """Keep what each prediction was made for."""
    seen = []

    class Spy(Method):
        problems = ("pairwise_similarity",)

        def predict(self, outputs, judged, task):
            seen.append(judged)
            return super().predict(outputs, judged, task)

    monkeypatch.setitem(METHODS, "spy", Spy())
    return seen


def test_trials_learn_and_say_how():
    outcomes = run_trials(replace(PAIRS, epochs=30), pairs())
    assert [outcome.seed for outcome in outcomes] == [0, 1]
    for outcome in outcomes:
        for by, least in (("labels", 0.9), ("groups", -0.2)):
            found = outcome.by[by]
            assert found["accuracy"] > 0.9
            assert found["scores"][found["choice"]] == max(found["scores"]) > least
            assert 15 <= found["epoch"] < found["epochs"] == 30
        assert outcome.choices == [choice.as_dict() for choice in PAIRS.choices]
        assert outcome.settings["model"] == "mlp"
        assert "weight_decay" not in outcome.settings
        assert (outcome.settings["epochs"], outcome.settings["warm_up"], outcome.settings["loss"]) == (
            30,
            15,
            "cross_entropy",
        )
        assert outcome.rows == {"train": 90, "validation": 30, "test": 30}
        assert outcome.seconds > 0
        assert outcome.beside == 2
        json.dumps(vars(outcome))


def test_the_constants_of_a_method_are_written_down():
    (outcome,) = run_trials(replace(PAIRS, method="contrastive", epochs=1), pairs([0]))
    assert outcome.settings["method"] == vars(METHODS["contrastive"])
    assert outcome.settings["method"]["margin"] > 0
    json.dumps(outcome.settings)


@pytest.mark.parametrize("method", ["uum", "contrastive"])
def test_a_trial_comes_out_the_same_alone_and_beside_others(method):
    cell = replace(PAIRS, method=method)
    together = run_trials(cell, pairs([0, 1, 2]))
    (alone,) = run_trials(cell, pairs([1]))
    for name, found in alone.by.items():
        beside = together[1].by[name]
        assert found["scores"] == pytest.approx(beside["scores"], abs=1e-5)
        assert {**found, "scores": None} == {**beside, "scores": None}
    assert alone.settings == together[1].settings


def test_the_test_data_are_looked_at_once_for_each_trial_and_selection(judged):
    tasks = pairs()
    run_trials(replace(PAIRS, method="spy"), tasks)
    for task in tasks.values():
        assert sum(one is task.test for one in judged) == 2
        assert sum(one is task.validation for one in judged) == 9 * 3  # choices, epochs after the warm-up
    assert [one is task.test for one, task in zip(judged[-4:], [tasks[0]] * 2 + [tasks[1]] * 2, strict=True)] == [
        True
    ] * 4


def test_each_selection_chooses_by_its_own_score(judged, monkeypatch):
    tasks = pairs([0, 1])
    found = []
    train = trials.train

    def spy(*given, **named):
        found.append(train(*given, **named))
        return found[-1]

    monkeypatch.setattr(trials, "train", spy)
    outcomes = run_trials(replace(PAIRS, method="spy"), tasks)
    for number, name in enumerate(("labels", "groups")):
        runs = [[one, *one.others][number] for one in found]
        scores = np.array([one.best_score for one in runs]).reshape(9, 2)  # choices, trials
        for place, outcome in enumerate(outcomes):
            best = int(scores[:, place].argmax())
            chosen = outcome.by[name]
            assert chosen["choice"] == best
            assert chosen["scores"] == scores[:, place].tolist()
            model = [model for one in runs for model in one.models][2 * best + place]
            task = tasks[place]
            guessed = model(task.X[task.test.rows]).argmax(1)
            best_renaming = max(
                np.mean(np.array(names)[guessed.numpy()] == task.test.truth.numpy())
                for names in ([0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0])
            )
            assert chosen["accuracy"] == pytest.approx(best_renaming)


@pytest.mark.parametrize("method", ["uum", "contrastive", "supervised"])
def test_groups_are_scored_by_likelihood_or_by_the_methods_own_objective(method):
    cell = replace(PAIRS, method=method)
    how = METHODS[method]
    tasks = [how.prepare(task) for task in pairs().values()]
    score = trials._score(cell, how, tasks)
    outputs = torch.randn(2, 150, 3, generator=torch.Generator().manual_seed(0))
    rows = torch.cat([task.validation.rows for task in tasks]).unique()
    _, found = score(lambda inputs: outputs[:, rows])
    for place, task in enumerate(tasks):
        seen = task.held_out
        of_members = outputs[place][seen.groups.members]
        if method == "uum":
            expected = seen.aggregate.log_likelihood(outputs[place], seen.groups, seen.z)
        else:
            expected = -how.objective(of_members, seen.groups.segments, seen.checked)
        assert found[place].item() == pytest.approx(expected.double().mean().item(), rel=1e-5)


def test_bags_are_ranked(monkeypatch):
    tasks = make_tasks(bags(), "multiple_instance", "copies_together", seeds=[0, 1], device=CPU)
    for method in ("uum", "minimax_feature", "attention"):
        outcomes = run_trials(replace(FOX, method=method, protocol="copies_together"), dict(enumerate(tasks)))
        for outcome in outcomes:
            assert all(0 <= found["auc"] <= 1 for found in outcome.by.values())
            assert outcome.rows["train"] == len(tasks[0].observations.groups)
    judged = replace(tasks[0].test, truth=torch.tensor([1, 0, 0, 1]))
    ranks = torch.tensor([0.5, 0.1, 0.5, 0.9])
    monkeypatch.setattr(type(METHODS["uum"]), "rank_bags", lambda *given: ranks)
    task = replace(tasks[0], test=judged)
    assert trials._auc(replace(FOX, method="uum"), ranks, task) == (0.5 + 1 + 1 + 1) / 4
    task = replace(tasks[0], test=replace(judged, truth=torch.ones(4)))
    assert trials._auc(replace(FOX, method="uum"), ranks, task) is None


def test_a_choice_that_diverges_loses_and_ends_no_trial(monkeypatch):
    scaled = trials.fit_scaling

    def huge(X, how):
        scaling = scaled(X, how)
        if how == "table":
            scaling.factor.fill_(torch.nan)
        return scaling

    monkeypatch.setattr(trials, "fit_scaling", huge)
    (outcome,) = run_trials(replace(PAIRS, epochs=2), pairs([0]))
    for found in outcome.by.values():
        assert [score is None for score in found["scores"]] == [False, True, False] * 3
        assert found["choice"] % 3 != 1
    monkeypatch.setattr(trials.Cell, "choices", [Choice("table")])
    with pytest.raises(RuntimeError, match="every way to train this trial diverged"):
        run_trials(replace(PAIRS, epochs=2), pairs([0]))


def test_scalings_are_fitted_on_the_training_rows_of_their_trial(monkeypatch):
    tasks = pairs()
    seen = []
    fit = trials.fit_scaling

    def spy(X, how):
        seen.append((X, how))
        return fit(X, how)

    monkeypatch.setattr(trials, "fit_scaling", spy)
    run_trials(replace(PAIRS, epochs=1), tasks)
    expected = [(tasks[seed], how) for how in ("none", "table", "standard") * 3 for seed in (0, 1)]
    assert len(seen) == len(expected)
    for (X, how), (task, wanted) in zip(seen, expected, strict=True):
        assert how == wanted
        assert torch.equal(X, task.X[task.train_rows])


def test_every_replica_is_scaled_by_its_own_trial():
    found = {}
    train = trials.train
    tasks = pairs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials, "train", lambda *given, **named: found.setdefault("all", train(*given, **named)))
        run_trials(replace(PAIRS, epochs=1), tasks)
    models = found["all"].models
    for place, model in enumerate(models[4:]):  # those of "standard"
        rows = tasks[place].X[tasks[place].train_rows]
        assert torch.allclose(model[0](rows).mean(0), torch.zeros(2), atol=1e-4)
    assert torch.equal(models[0][0].factor, torch.ones(2))


def test_batch_sizes_are_runs_of_their_own():
    assert [len(run) for run in trials._runs(FOX.choices)] == [2, 2, 2]
    assert [len(run) for run in trials._runs(PAIRS.choices)] == [3, 3, 3]
    mixed = [Choice("none", {"batch_size": 1}), Choice("table"), Choice("standard", {"batch_size": 1})]
    assert trials._runs(mixed) == [[mixed[0], mixed[2]], [mixed[1]]]


def test_dropout_is_a_run_of_its_own_and_gone_when_the_model_predicts(monkeypatch):
    dropped = [Choice("none"), Choice("none", dropout=0.5), Choice("standard", dropout=0.5)]
    assert trials._runs(dropped) == [dropped[:1], dropped[1:]]
    monkeypatch.setattr(trials.Cell, "choices", dropped[1:])
    found, train = [], trials.train
    monkeypatch.setattr(trials, "train", lambda *given, **named: found.append(train(*given, **named)) or found[-1])
    outcomes = run_trials(replace(PAIRS, epochs=1), pairs())
    assert all(choice["dropout"] == 0.5 for outcome in outcomes for choice in outcome.choices)
    assert [int(model[1].seed) for model in found[0].models] == [0, 100, 1, 101]
    for model in found[0].models:
        assert model[1].p == 0.5
        rows = torch.randn(5, 2)
        assert torch.equal(model(rows), model[2](model[0](rows)))


def test_tasks_with_tables_of_their_own_are_stacked():
    tasks = make_tasks(bags(), "multiple_instance", "paper", seeds=[0, 1], n_groups=None, device=CPU)
    assert stack(tasks) == tasks
    own = [METHODS["minimax_feature"].prepare(task) for task in tasks]
    stacked = stack(own)
    assert stacked[0].X is stacked[1].X
    for before, after in zip(own, stacked, strict=True):
        members = (before.observations.groups.members, after.observations.groups.members)
        rows = [
            members,
            (before.train_rows, after.train_rows),
            (before.validation.rows, after.validation.rows),
            (before.test.rows, after.test.rows),
        ]
        for old, new in rows:
            assert torch.equal(before.X[old], after.X[new])
        assert torch.equal(before.observations.checked, after.observations.checked)
        assert torch.equal(before.X[before.held_out.groups.members], after.X[after.held_out.groups.members])


def test_labels_move_with_their_rows():
    tasks = [replace(task, X=task.X.clone()) for task in pairs().values()]
    stacked = stack(tasks)
    for before, after in zip(tasks, stacked, strict=True):
        assert torch.equal(before.labels[before.train_rows], after.labels[after.train_rows])
        assert int((after.labels >= 0).sum()) == len(before.X)


def test_trials_of_stacked_tasks_learn():
    data = bags()
    tasks = make_tasks(data, "multiple_instance", "paper", seeds=[0, 1], n_groups=None, device=CPU)
    outcomes = run_trials(replace(FOX, epochs=40), dict(enumerate(tasks)))
    assert min(outcome.by["labels"]["accuracy"] for outcome in outcomes) > 0.8
    assert {choice["batch_size"] for outcome in outcomes for choice in outcome.choices} == {128, 512, 4096}


def test_a_run_that_is_cut_short_goes_on(tmp_path):
    whole = run_trials(PAIRS, pairs())
    with pytest.raises(TimeBudgetExceeded):
        run_trials(PAIRS, pairs(), folder=tmp_path, until=0)
    with pytest.raises(TimeBudgetExceeded):
        run_trials(PAIRS, pairs(), folder=tmp_path, until=0)
    continued = run_trials(PAIRS, pairs(), folder=tmp_path)
    for one, other in zip(whole, continued, strict=True):
        assert one.by == other.by


def test_outputs_that_are_not_finite_never_win():
    task = pairs([0])[0]
    outputs = torch.full((len(task.test.rows), 3), torch.nan)
    assert math.isnan(trials._accuracy(PAIRS, outputs, task.test, task))


def test_only_distances_of_ranks_may_be_told_from_the_other_end():
    task = replace(pairs([0])[0], permuted=False)
    right = torch.nn.functional.one_hot(task.test.truth, 3).float()
    triplets = Cell("ordinal", "ordinal_triplet", "digits", "uum")
    ranks = replace(triplets, problem="ordinal_rank")
    assert trials._accuracy(ranks, right, task.test, task) == 1
    assert trials._accuracy(triplets, right, task.test, task) == 1
    assert trials._accuracy(triplets, right.flip(1), task.test, task) == 1
    assert trials._accuracy(ranks, right.flip(1), task.test, task) < 0.5
    assert trials._accuracy(triplets, right.roll(1, 1), task.test, task) < 0.5


def test_settings_become_what_json_can_say():
    def squared(logits):
        return logits.square()

    assert trials._as_numbers(Settings(loss=squared))["loss"] == "squared"
    assert trials._number(math.inf) is None
    half = Settings(precision="bfloat16")
    assert trials._on_device(half, CPU) == Settings()
    assert trials._on_device(half, torch.device("cuda")) == half
