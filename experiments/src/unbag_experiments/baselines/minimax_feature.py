"""Minimax features: a bag as one row, of the smallest and largest value of each feature."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from unbag import Groups
from unbag_experiments.baselines.base import Judged, Task
from unbag_experiments.baselines.labelled import Labelled, label_rows


def minimax(rows: Tensor, bags: Groups) -> Tensor:
    """Return the smallest value of each feature and then the largest, one row per bag: ``(n, d)`` to ``(bags, 2 d)``.

    ``rows`` has one row per membership, in the order of ``bags``.
    """
    bag = bags.segment[:, None].expand_as(rows)
    empty = rows.new_empty(len(bags), rows.shape[1])
    smallest = empty.scatter_reduce(0, bag, rows, "amin", include_self=False)
    largest = empty.scatter_reduce(0, bag, rows, "amax", include_self=False)
    return torch.cat([smallest, largest], 1)


class MinimaxFeature(Labelled):
    """A classifier of bags as single rows: the minimum and maximum of each feature over the members.

    Trained by cross entropy on the labels of the bags. The classifier is the model of the experiment, as in the paper,
    where it is linear; the article puts a kernel machine there. There is nothing to choose.
    """

    name = "minimax_feature"
    title = "Minimax feature"
    source = "Gärtner, Flach, Kowalczyk and Smola, Multi-Instance Kernels, ICML 2002"
    in_paper = True
    problems = ("multiple_instance",)

    def prepare(self, task: Task) -> Task:
        """Return a task whose rows are the bags: those of training, of validation and of the test, in this order."""
        seen = task.observations
        kinds = [(seen.groups.members, seen.groups), *(_members(judged) for judged in (task.validation, task.test))]
        X = torch.cat([minimax(task.X[rows], bags) for rows, bags in kinds])
        training, validation, test = torch.arange(len(X), device=X.device).split([len(bags) for _, bags in kinds])
        return replace(
            task,
            X=X,
            observations=label_rows(training, seen.checked.long(), task.n_classes, len(X)),
            train_rows=training,
            validation=Judged(validation, task.validation.truth),
            held_out=label_rows(validation, task.validation.truth, task.n_classes, len(X)),
            test=Judged(test, task.test.truth),
        )


def _members(judged: Judged) -> tuple[Tensor, Groups]:
    if judged.bags is None:
        raise ValueError("minimax features are of bags; task.validation and task.test must have bags, not single rows")
    return judged.rows[judged.bags.members], judged.bags


METHOD = MinimaxFeature()
