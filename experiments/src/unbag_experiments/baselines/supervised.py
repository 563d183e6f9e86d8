"""Supervised learning, the upper bound: every training row with its label."""

from __future__ import annotations

from dataclasses import replace

from unbag_experiments.baselines.base import Task
from unbag_experiments.baselines.labelled import Labelled, label_rows


class Supervised(Labelled):
    """What the same model reaches when it is told every label: cross entropy on all training rows.

    Which rows are in groups, and how often, does not matter here: each training row is visited once an epoch. It is
    judged by the same measure as the methods beside it, so under the best renaming of classes where theirs have no
    names; a trained classifier has nothing to gain by that.
    """

    name = "supervised"
    title = "Supervised"
    source = "Cross entropy with the true labels"
    in_paper = False
    problems = ("pairwise_similarity", "triplet_comparison", "label_proportions", "ordinal_rank", "ordinal_triplet")

    def prepare(self, task: Task) -> Task:
        """Return the task with the labels of its rows in place of what was observed of groups."""
        if task.labels is None:
            raise ValueError("the supervised ceiling needs task.labels, one per row; where only bags have labels, none")
        seen = label_rows(task.train_rows, task.labels[task.train_rows], task.n_classes, len(task.X))
        validation = task.validation
        held_out = label_rows(validation.rows, validation.truth, task.n_classes, len(task.X))
        return replace(task, observations=seen, held_out=held_out)


METHOD = Supervised()
