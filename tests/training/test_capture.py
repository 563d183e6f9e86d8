"""Captured steps, with a recorder that repeats a step as a graph would."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from training_problems import drawn, network, observe, table

from unbag import Groups
from unbag.training import Settings
from unbag.training.batches import Batches
from unbag.training.capture import CapturedSteps, can_be_captured
from unbag.training.replicas import Replicas, make_models
from unbag.training.settings import make_optimiser
from unbag.training.step import Hooks, Step

SEEDS = [0, 1]
PHASES = ["likelihood", "current weights", "remembered weights", "remembered weights"]


class Loop:
    """A run of two sets in steps of unequal numbers of groups, by the parts of the training loop."""

    def __init__(self):
        X, labels = table(30, 3)
        pairs = observe("PairwiseSimilarity", labels, drawn(30, 17, 2), 3)
        labelled = observe("LabelProportions", labels, Groups.from_tuples([[3], [4]], 30), 3)
        self.batches = [Batches([observed], 2, 4) for observed in (pairs, labelled)]
        self.generators = [torch.Generator().manual_seed(seed) for seed in SEEDS]
        replicas = Replicas(make_models(lambda: network(3), SEEDS, X.device))
        settings = Settings(remember_from=0, learning_rate=0.05)
        optimiser = make_optimiser(None, replicas.parameters(), settings)
        self.step = Step(replicas, X, self.batches, settings, Hooks(), optimiser)

    def state(self):
        step = self.step
        of_optimiser = [value for state in step.optimiser.state.values() for value in state.values()]
        return [*step.replicas.state.values(), *step.memory, step.loss_sum, *of_optimiser]

    def run(self, captured=None):
        for phase in PHASES:
            for batches in self.batches:
                batches.shuffle(self.generators)
            if captured is not None:
                captured.go_to(0)
            for number in range(4):
                if captured is None:
                    self.step(phase, [batches.batch(number) for batches in self.batches])
                else:
                    captured.run(phase, number)
        return self.state()


def test_captured_steps_are_the_same_as_plain_ones():
    recorded = []

    def record(step, reset):
        """Run a step twice, as a capture does, and return one that repeats it on the same memory."""
        for _ in range(2):
            step()
            reset()
        recorded.append(step)
        return step

    loop = Loop()
    captured = CapturedSteps(loop.batches, loop.step, loop.state, record)
    for found, expected in zip(loop.run(captured), Loop().run(), strict=True):
        assert torch.equal(found, expected)
    assert len(recorded) == 3 * 3  # phases, and numbers of groups of both sets: (4, 0), (4, 1) and (5, 1)


class OnGpu:
    """Stands for a set of groups on a GPU."""

    n_classes, groups = 2, SimpleNamespace(device=torch.device("cuda"), uniform_size=2)
    aggregate = SimpleNamespace(capturable=lambda size, n_classes: size == n_classes == 2)


ADAM = partial(torch.optim.Adam, capturable=True)


@pytest.mark.parametrize(
    ("sets", "optimiser", "expected"),
    [
        ([OnGpu()], ADAM, True),
        ([OnGpu()], torch.optim.Adam, False),
        ([OnGpu()], torch.optim.SGD, False),
        (Loop().batches, ADAM, False),  # on a processor
    ],
)
def test_adam_on_a_gpu_is_captured(sets, optimiser, expected):
    assert can_be_captured(sets, optimiser([torch.nn.Parameter(torch.ones(2))])) == expected


class RefuseValuesOfTheHost(TorchDispatchMode):
    """Raise where an operation copies numbers to the device or reads one of it, which no CUDA graph can record."""

    refused = ("aten::lift_fresh", "aten::_local_scalar_dense", "aten::nonzero")

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        assert operation.name().partition(".")[0] not in self.refused, operation.name()
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("name", "size", "n_classes"),
    [
        ("LabelProportions", 4, 3),
        ("PairwiseSimilarity", 2, 3),
        ("TripletComparison", 3, 3),
        ("OrdinalRank", 2, 3),
        ("OrdinalTriplet", 3, 3),
        ("MultipleInstance", 4, 2),
    ],
)
def test_an_e_step_can_be_recorded(name, size, n_classes, monkeypatch):
    rows = torch.arange(5 * size).view(5, size)
    _, labels = table(len(rows.flatten()), n_classes)
    observed = observe(name, labels, Groups.from_tuples(rows, rows.numel()), n_classes)
    batch = Batches([observed], 1, 1).batch(0)
    log_probs = torch.randn(rows.numel(), n_classes, generator=torch.Generator().manual_seed(0)).log_softmax(1)
    observed.aggregate.e_step(log_probs, batch.segments, batch.z)  # caches are filled before a step is recorded
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: True))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    observed.aggregate.e_step(log_probs, batch.segments, batch.z)
    with RefuseValuesOfTheHost():
        observed.aggregate.e_step(log_probs, batch.segments, batch.z)
