"""Operations that were recorded and compiled, against the same as they are written."""

from __future__ import annotations

from functools import partial
from itertools import product

import pytest
import torch

from unbag import Groups, LabelProportions, OrdinalRank, PairwiseSimilarity, TripletComparison
from unbag.aggregates import label_proportions
from unbag.aggregates.base import is_tracing, tracing
from unbag.objectives.objective import match_proportions
from unbag.training import Observations, Settings, fusing
from unbag.training.architectures import build
from unbag.training.fusing import fuse
from unbag.training.replicas import make_models
from unbag.training.run import Run

KINDS = {
    "pairs": (PairwiseSimilarity(), 2),
    "triplets": (TripletComparison(), 3),
    "ranks": (OrdinalRank(), 2),
    "proportions": (LabelProportions(), 3),
}


def make_run(kind, objective=None, **settings):
    aggregate, size = KINDS[kind]
    random = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, (50,), generator=random)
    groups = Groups.from_tuples(torch.randint(0, 50, (60, size), generator=random))
    seen = Observations(aggregate, groups, aggregate.observe(labels, groups, 4), 4)
    models = make_models(build("mlp", (6,), 4), [0, 1], torch.device("cpu"))
    X = torch.randn(50, 6, generator=random)
    run = Run(models, X, [[seen]], Settings(epochs=3, warm_up=1, remember_from=2, **settings), [0, 1], None, objective)
    run.memory = [torch.randn(memory.shape, generator=random).log_softmax(1) for memory in run.memory]
    return run


def both_ways(run, phase, monkeypatch):
    """Return what a step finds and remembers, as it is and fused."""
    monkeypatch.setattr(fusing, "fuse", partial(fuse, backend="aot_eager"))
    batch = run.batches[0].batch(0)
    outputs = run.replicas(run.X[batch.rows]).detach()
    before = [memory.clone() for memory in run.memory]
    found = []
    for fuses in (False, True):
        run._fuses = fuses
        run.memory = [memory.clone() for memory in before]
        found.append([*run._objective(phase, 0, batch, outputs), *run.memory])
    return found


@pytest.mark.parametrize(
    ("kind", "phase"),
    [("pairs", "current weights"), *product(KINDS, ["likelihood", "remembered weights"])],
)
def test_steps_are_the_same_when_fused(kind, phase, monkeypatch):
    monkeypatch.setattr(
        label_proportions, "_sum_permanents", label_proportions._sum_permanents_in_log_space
    )  # as on a GPU
    plain, fused = both_ways(make_run(kind), phase, monkeypatch)
    torch.testing.assert_close(fused, plain)


def test_other_losses_are_the_same_when_fused(monkeypatch):
    plain, fused = both_ways(make_run("pairs", loss="mse"), "current weights", monkeypatch)
    torch.testing.assert_close(fused, plain)


def squared_distance(outputs, groups, z):
    first, second, *_ = outputs.view(len(groups), -1, outputs.shape[-1]).unbind(1)
    distance = (first - second).square().sum(1)
    return torch.where(z == 1, distance, (2 - distance).clamp(min=0))


@pytest.mark.parametrize(
    ("kind", "objective"),
    [("pairs", squared_distance), ("triplets", squared_distance), ("proportions", match_proportions)],
)
def test_other_objectives_are_the_same_when_fused(kind, objective, monkeypatch):
    plain, fused = both_ways(make_run(kind, objective), "likelihood", monkeypatch)
    torch.testing.assert_close(fused, plain)


def test_an_impossible_observation_leaves_nan_when_fused_too(monkeypatch):
    run = make_run("pairs")
    batch = run.batches[0].batch(0)
    outputs = torch.full((len(batch.memory), 4), float("-inf"))
    outputs[:, 0] = 0.0  # all are of the first class for sure, so that no pair differs
    found = []
    for fuses in (False, True):
        run._fuses = fuses
        monkeypatch.setattr(fusing, "fuse", partial(fuse, backend="aot_eager"))
        found.append(run._objective("likelihood", 0, batch, outputs))
    assert bool(found[0].grad.isnan().any())
    torch.testing.assert_close(found[1].grad, found[0].grad, equal_nan=True)


def test_an_objective_that_cannot_be_recorded_runs_as_it_is(monkeypatch, caplog):
    def objective(outputs, groups, z):
        largest = outputs.detach().max().item()  # a number that has to be waited for
        return (outputs.view(len(groups), -1) - largest).square().sum(1)

    plain, fused = both_ways(make_run("pairs", objective), "likelihood", monkeypatch)
    torch.testing.assert_close(fused, plain)
    assert "what a step computes is not compiled" in caplog.text


def test_while_operations_are_recorded_nothing_waits():
    tensor = torch.zeros(1)
    assert not is_tracing(tensor)
    with tracing():
        assert is_tracing(tensor)
    assert not is_tracing(tensor)
