"""Candidates: each learner on all folds, at the step of its path with the best held-out log-likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag.data.labels import Categorical
from unbag.data.row_source import Rows
from unbag.ensemble.jobs import Path
from unbag.learners import Model, Problem, Split

Align = Callable[[Tensor, Tensor], np.ndarray]
"""From probabilities of the same rows by two models to the outputs of the second that match the first's classes."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A learner on all folds, at one step of its path."""

    name: str
    labels: Categorical
    models: list[Model]  # one for each fold
    orders: list[np.ndarray]  # for each model, the output that each class is read from
    step: int
    n_steps: int
    score: float
    out_of_fold: Tensor
    """Outputs for each membership by the model that did not see its group, NaN if there is none, shape
    ``(memberships, outputs)`` in the order of ``problem.members``."""
    seconds: float
    history: list[dict[str, Any]] = field(default_factory=list)
    members: list[Tensor] = field(default_factory=list)
    """Memberships that the model of each fold predicts."""

    def outputs(self, X: Rows) -> Tensor:
        """Return the log of the mean probability over folds."""
        n_folds = len(self.models)
        return torch.stack([self.fold_outputs(X, fold) for fold in range(n_folds)]).logsumexp(0) - math.log(n_folds)

    def fold_outputs(self, X: Rows, fold: int) -> Tensor:
        """Return the log-probabilities by the model of one fold, shape ``(rows, outputs)``."""
        return self.labels.log_probs(self.models[fold].outputs(X))[:, self.orders[fold]]


def select_candidates(
    problem: Problem, splits: Sequence[Split], paths: Sequence[tuple[str, list[Path]]], align: Align | None
) -> list[Candidate]:
    """Choose one step of each path for all folds, and bring the classes of all models into one order.

    ``paths`` are the name of each learner and its path on each of the folds. ``align`` matches the classes of two
    models; None where the observations identify the classes.
    """
    candidates = [_select_step(problem, splits, name, of_folds) for name, of_folds in paths]
    if align is None:
        return candidates
    best = max(candidates, key=lambda candidate: candidate.score)
    first, reference = _align(best, problem, align, None)
    return [first if c is best else _align(c, problem, align, reference)[0] for c in candidates]


def _select_step(problem: Problem, splits: Sequence[Split], name: str, paths: list[Path]) -> Candidate:
    """Choose one step for all folds; a fold that stopped early stays at its last step."""
    longest = max(len(path.steps) for path in paths)
    at = [[path.steps[min(n, len(path.steps) - 1)] for path in paths] for n in range(longest)]
    sizes = np.array([float((s.held_out or s.train).group_weights.sum()) for s in splits])
    scores = [float(np.dot([s.score for s in steps], sizes) / sizes.sum()) for steps in at]
    best = int(np.argmax(scores))
    steps, n_outputs = at[best], problem.labels.n_outputs
    out_of_fold = torch.full((len(problem.members), n_outputs), math.nan)
    for split, step in zip(splits, steps, strict=True):
        if split.held_out is not None:
            out_of_fold[split.members] = step.held_out_outputs[split.rows]
    return Candidate(
        name,
        problem.labels,
        models=[step.model for step in steps],
        orders=[np.arange(n_outputs)] * len(steps),
        step=best,
        n_steps=longest,
        score=scores[best],
        out_of_fold=out_of_fold,
        seconds=sum(path.seconds for path in paths),
        history=steps[0].epochs or [{"step": n, "score": score} for n, score in enumerate(scores)],
        members=[split.members for split in splits],
    )


def _align(c: Candidate, problem: Problem, align: Align, reference: Tensor | None) -> tuple[Candidate, Tensor]:
    """Bring the classes of all folds into the order of a reference, by default that of the first fold.

    Return also the mean probabilities of the rows.
    """
    orders, aligned = list[np.ndarray](), list[Tensor]()
    out_of_fold = c.out_of_fold.clone()
    for fold, split_members in enumerate(c.members):
        probs = c.fold_outputs(problem.X, fold).exp()
        orders.append(align((aligned or [probs])[0] if reference is None else reference, probs))
        aligned.append(probs[:, orders[-1]])
        out_of_fold[split_members] = c.out_of_fold[split_members][:, orders[-1]]
    return replace(c, orders=orders, out_of_fold=out_of_fold), torch.stack(aligned).mean(0)
