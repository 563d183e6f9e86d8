"""Captured steps, with a recorder that repeats a step as a graph would."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from training_problems import drawn, network, observe, table

from unbag import Groups
from unbag.training import Settings
from unbag.training.batches import Batches
from unbag.training.capture import CapturedSteps, can_be_captured
from unbag.training.replicas import Replicas, make_models
from unbag.training.settings import Optimisation
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
        self.optimisation = Optimisation(replicas.parameters(), Settings(learning_rate=0.05), None, None)
        settings = Settings(remember_from=0)
        self.step = Step(replicas, X, self.batches, settings, Hooks(), self.optimisation.optimiser)

    def state(self):
        step = self.step
        return [*step.replicas.state.values(), *step.memory, step.loss_sum, *self.optimisation.tensors()]

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


def test_steps_on_a_processor_are_not_captured():
    assert not can_be_captured(Loop().batches)


ADAM = partial(torch.optim.Adam, capturable=True)
COSINE = partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=5)


@pytest.mark.parametrize(
    ("optimiser", "schedule", "expected"),
    [(ADAM, None, True), (torch.optim.Adam, None, False), (torch.optim.SGD, None, False), (ADAM, COSINE, False)],
)
def test_only_adam_without_a_schedule_is_captured(optimiser, schedule, expected):
    parameters = [torch.nn.Parameter(torch.ones(2))]
    assert Optimisation(parameters, Settings(), optimiser, schedule).can_be_captured() == expected
