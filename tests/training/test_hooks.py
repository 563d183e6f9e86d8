"""Optimiser, schedule, stopping rule, views and sources of rows of the caller's own."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau
from training_problems import assert_close, assert_identical, bags, network, pairs_problem, table, weights_of

from unbag.training import (
    Checkpoint,
    Limits,
    Patience,
    PerStep,
    Settings,
    TimeBudgetExceeded,
    held_out_likelihood,
    train,
)

K = 3
SETTINGS = Settings(epochs=4, warm_up=1, remember_from=2, batch_size=8, learning_rate=0.01)
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)


def cosine(optimiser):
    return CosineAnnealingLR(optimiser, T_max=12)


def fit(settings=SETTINGS, **hooks):
    X, seen = pairs_problem(K)
    return train(lambda: network(K), X, [seen], settings, seeds=[0, 1], score=held_out_likelihood(X, [seen]), **hooks)


# Optimiser and schedule


def test_an_optimiser_of_the_callers_own():
    default = fit()
    same = fit(optimiser=partial(torch.optim.Adam, lr=0.01, fused=True))
    assert_identical(default, same)
    other = fit(optimiser=SGD)
    assert weights_of(other.models[0])["0.weight"].ne(weights_of(default.models[0])["0.weight"]).any()


def test_a_plain_step_of_gradient_descent_is_the_gradient():
    X, seen = pairs_problem(K)
    settings = Settings(epochs=1, warm_up=1, batch_size=1000)
    start, moved = (
        train(lambda: network(K), X, [seen], settings, optimiser=partial(torch.optim.SGD, lr=rate)).models[0]
        for rate in (0.0, 0.5)
    )
    seen.mean(-seen.evidence(start(X)).log_likelihood).backward()
    for before, after in zip(start.parameters(), moved.parameters(), strict=True):
        torch.testing.assert_close(after, before - 0.5 * before.grad)


@pytest.mark.parametrize("every", ["epoch", "step"])
def test_a_schedule_changes_the_learning_rate(every):
    seen_rates = []

    def record(optimiser):
        optimiser.register_step_pre_hook(lambda own, *_: seen_rates.append(own.param_groups[0]["lr"]))
        return cosine(optimiser)

    fit(schedule=PerStep(record) if every == "step" else record)
    per_epoch = 3  # 20 pairs in steps of 8
    done = np.arange(12) // (per_epoch if every == "epoch" else 1)
    np.testing.assert_allclose(seen_rates, 0.005 * (1 + np.cos(np.pi * done / 12)), rtol=1e-6)


@pytest.mark.parametrize("every", ["epoch", "step"])
@pytest.mark.parametrize("optimiser", [None, SGD, torch.optim.RMSprop], ids=str)
def test_a_run_with_optimiser_and_schedule_goes_on_to_the_same_weights(every, optimiser, tmp_path):
    hooks = {"optimiser": optimiser, "schedule": PerStep(cosine) if every == "step" else cosine}
    whole = fit(**hooks)
    for _ in range(4):  # each goes on for one step; an epoch has three
        with pytest.raises(TimeBudgetExceeded):
            fit(**hooks, checkpoint=Checkpoint(tmp_path, until=0.0))
    assert_identical(whole, fit(**hooks, checkpoint=Checkpoint(tmp_path)))


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"schedule": partial(CosineAnnealingLR, T_max=13)}, "schedule"),
        ({"optimiser": SGD}, "optimiser"),
        ({"views": torch.abs}, "views"),
        ({"stopping": Patience(3)}, "stopping"),
    ],
)
def test_a_run_does_not_go_on_with_other_hooks(changed, name, tmp_path):
    hooks = {"schedule": cosine, "views": torch.clone, "stopping": Patience(2)}
    with pytest.raises(TimeBudgetExceeded):
        fit(**hooks, checkpoint=Checkpoint(tmp_path, until=0.0))
    with pytest.raises(ValueError, match=f"is of another run: its {name}"):
        fit(**{**hooks, **changed}, checkpoint=Checkpoint(tmp_path))


def test_optimisers_and_schedules_that_are_refused():
    for name in ("optimiser", "schedule"):
        with pytest.raises(TypeError, match=f"{name} must be a function, which returns a new object, or None; got 5"):
            fit(**{name: 5})
    with pytest.raises(TypeError, match=r"optimiser must return a torch.optim.Optimizer, got list"):
        fit(optimiser=list)
    with pytest.raises(ValueError, match="optimiser must be a function from parameters to an optimiser of these"):
        fit(optimiser=lambda _: torch.optim.SGD(nn.Linear(2, 2).parameters()))
    with pytest.raises(TypeError, match=r"follows from the number of steps, got ReduceLROnPlateau"):
        fit(schedule=ReduceLROnPlateau)


# Stopping


def test_a_rule_may_stop_one_replica_alone():
    def first_after_two(best, history):
        return torch.tensor([len(history) == 2, False])  # said once: who has stopped stays so

    stopped, whole = fit(stopping=first_after_two), fit()
    short = fit(settings=Settings(**{**vars(SETTINGS), "epochs": 2}))
    assert len(stopped.history) == 4
    assert_close(stopped.models[0], short.models[0], 0)
    assert_close(stopped.models[1], whole.models[1], 0)


def test_a_rule_needs_no_score():
    X, seen = pairs_problem(K)
    by_loss = lambda best, history: history[-1]["loss"][0] < 10.0  # noqa: E731
    assert len(train(lambda: network(K), X, [seen], SETTINGS, stopping=by_loss).history) == 1


def test_a_rule_that_answers_something_else_is_refused():
    with pytest.raises(ValueError, match=r"stopping must return True or False, .* 2 replicas; got torch.float32"):
        fit(stopping=lambda best, history: best.score.new_zeros(3).float())


# Views


def noise(rows: Tensor) -> Tensor:
    return rows + 0.1 * torch.randn_like(rows)


def test_views_are_made_of_every_step_and_of_nothing_else():
    shapes = []

    def view(rows):
        shapes.append(tuple(rows.shape))
        return rows

    assert_identical(fit(), fit(views=view))
    assert shapes == [(2 * 2 * n, 4) for n in (6, 7, 7)] * 4  # two replicas, pairs, four columns


def test_views_with_noise_train_other_weights_and_the_same_again():
    noisy = fit(views=noise)
    assert_identical(noisy, fit(views=noise))
    assert weights_of(noisy.models[0])["0.weight"].ne(weights_of(fit().models[0])["0.weight"]).any()


def test_views_draw_the_same_where_a_step_runs_in_parts():
    X, labels = table(60, 2)
    run = partial(train, lambda: network(2), X, [bags(labels)], SETTINGS, views=lambda rows: rows + 0.5)
    whole = run()
    small = Limits(max_rows=4, part_rows=4)
    assert_close(whole.models[0], run(limits=small).models[0])
    noisy = partial(train, lambda: network(2), X, [bags(labels)], SETTINGS, views=noise, limits=small)
    assert_identical(noisy(), noisy())


def test_views_may_not_change_the_number_of_rows():
    with pytest.raises(ValueError, match=r"views must return a tensor with as many rows as its input, 24; got .*12"):
        fit(views=lambda rows: rows[::2])


# Sources of rows


class Source:
    """Rows that are looked up when a step needs them, fewer than it asks for."""

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def gather(self, rows):
        return self.rows[rows][1:]


def test_a_source_that_returns_too_few_rows_is_refused():
    X, seen = pairs_problem(K)
    with pytest.raises(ValueError, match="gather must return a tensor with a row for each of 2 numbers, on cpu; got"):
        train(lambda: network(K), Source(X), [seen], SETTINGS)
