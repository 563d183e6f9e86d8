"""Base class of the methods: the task they are given, and the interface by which they are trained and evaluated."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from unbag import Groups
from unbag.learners.architectures import build
from unbag.training import Objective, Observations, Settings, permuted_accuracy


@dataclass(frozen=True, eq=False)
class Judged:
    """Labelled data that a trained model is judged on: single rows, or bags.

    Parameters
    ----------
    rows
        Numbers of rows of the task's table: those that are judged, or the members of the bags, one bag after the other.
    truth
        Labels of the rows, or of the bags.
    bags
        How ``rows`` falls into bags of consecutive entries; None for single rows.
    """

    rows: Tensor  # (n,)
    truth: Tensor  # (n,) or (bags,)
    bags: Groups | None = None


@dataclass(frozen=True, eq=False)
class Task:
    """One trial of an experiment: what may be learned from, and what it is judged on.

    Parameters
    ----------
    X
        All rows.
    observations
        Of groups of training rows.
    train_rows
        The rows that may be trained on.
    labels
        Of all rows, for the supervised ceiling alone; None where only bags have labels.
    validation, test
        What chooses the epoch by labels, and what the result is measured on.
    n_classes
        How many classes there are.
    permuted
        Classes are unnamed: accuracy is that under the best renaming of them.
    held_out
        Of groups of validation rows, or of the validation bags: what chooses the epoch without a label of any row.
    """

    X: Tensor
    observations: Observations
    train_rows: Tensor
    labels: Tensor | None
    validation: Judged
    test: Judged
    n_classes: int
    permuted: bool
    held_out: Observations | None = None


class Method:
    """One way to learn a classifier from groups; a subclass changes only what is special about it.

    The runner of experiments does, for every method alike: ``prepare`` the task, ``make_model``, train it on the
    observations by ``settings`` and ``objective``, and ``predict`` the labels of what is judged from the outputs.
    As it stands this is Algorithm 1 on the task as given, with one output per class.
    """

    name: str
    """As tables and results call it."""
    title: str
    """As people call it."""
    source: str
    """Who proposed it, and where."""
    in_paper: bool
    """Whether the paper's tables have it."""
    named_only: bool = False
    """Whether only parts of the plan that name it have it: others were frozen before it came."""
    problems: tuple[str, ...]
    """The kinds of observations that it can learn from."""
    objective: Objective | None = None
    """From outputs, groups and observations to one loss per group; None for Algorithm 1."""

    def settings(self, given: Settings) -> Settings:
        """Return how to train, from the settings of the experiment; what only Algorithm 1 has is off for others."""
        return given if self.objective is None else replace(given, warm_up=0, remember_from=None)

    def prepare(self, task: Task) -> Task:
        """Return the task in the form that this method learns from."""
        return task

    def n_outputs(self, n_classes: int) -> int:
        """Return how many outputs the model has for each row."""
        return n_classes

    def make_model(self, model: str, shape: tuple[int, ...], n_classes: int) -> nn.Module:
        """Return a new model, by name, for rows of a shape."""
        return build(model, shape, self.n_outputs(n_classes))()

    def predict(self, outputs: Tensor, judged: Judged, task: Task) -> Tensor:
        """Return the labels of rows, or of bags, from the model's outputs for ``judged.rows``."""
        if judged.bags is None:
            return outputs.argmax(1)
        return (self.rank_bags(outputs, judged, task) > math.log(0.5)).long()

    def class_log_probs(self, outputs: Tensor) -> Tensor:
        """Return log-probabilities of the classes of single rows, from the model's outputs for them."""
        return outputs.log_softmax(-1)

    def rank_bags(self, outputs: Tensor, judged: Judged, task: Task) -> Tensor:
        """Return a number for each bag, the larger the more likely it is positive: its log-probability."""
        if judged.bags is None:  # a bag has become a row
            return outputs.log_softmax(-1)[:, 1]
        aggregate, bags = task.observations.aggregate, judged.bags
        positive = aggregate.check(torch.ones(len(bags), dtype=torch.int64, device=bags.device), bags, task.n_classes)
        # Not by `log_likelihood`, which refuses NaN: a model that diverged is to be wrong, not to end all others.
        log_likelihood, _ = aggregate.infer(outputs.log_softmax(-1), bags.segments, positive)
        return log_likelihood


def accuracy(guessed: Tensor, truth: Tensor, permuted: bool) -> float:
    """Return the share of labels that are right; of unnamed classes, under the best renaming.

    Examples
    --------
    >>> guessed, truth = torch.tensor([1, 1, 0, 0]), torch.tensor([0, 0, 1, 0])
    >>> accuracy(guessed, truth, permuted=False), accuracy(guessed, truth, permuted=True)
    (0.25, 0.75)
    """
    return permuted_accuracy(guessed, truth) if permuted else float((guessed == truth).double().mean())


def check_positive(name: str, value: float) -> None:
    """Refuse a margin, or another constant of a loss, that is not a positive number."""
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name} must be a positive number, got {value!r}")
