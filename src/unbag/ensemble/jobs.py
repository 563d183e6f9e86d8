"""Jobs and candidates.

A job is a learner that follows its path on one fold until held-out groups stop improving or time is up; a candidate is
a learner on all folds, at the step of its path with the best held-out log-likelihood.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unbag.data.labels import Categorical
from unbag.data.row_source import Rows
from unbag.ensemble.progress import Progress
from unbag.learners import Learner, Model, Problem, Split, Watch


@dataclass(frozen=True)
class Schedule:
    """Which learners run on which folds, and when they stop."""

    stages: tuple[tuple[Learner, ...], ...]  # a learner starts from the models of the earlier stages on its fold
    starts: tuple[Learner, ...] = ()  # a stage before the first, whose learners are no candidates
    n_folds: int = 4  # each group is held out once; 0 holds out nothing
    single_split: bool = False  # only the first fold is used
    patience: int = 2  # steps of a path without a better held-out score after which a job ends
    min_step_gain: float = 0.0  # relative to the gain over a constant model; a step that gains less is not better
    min_relative_gain: float = 0.7  # a learner with less of the best gain on the first fold is rejected; 0 keeps all
    blind_steps: int = 3  # steps of a path where no groups are held out
    sharpness: tuple[float, ...] = (1.0,)  # inverse temperatures; the score of a step is that at the best of them
    n_jobs: int = 1  # jobs that run at a time
    seconds_before_processes: float | None = None  # then jobs run in processes, too; None uses threads alone
    deadline: float = math.inf  # by ``clock``; a job ends when its share of the remaining time is over
    seed: int = 0  # of the folds and of the learners
    clock: Callable[[], float] = time.monotonic
    progress: Progress = field(default_factory=Progress)

    def quick(self) -> Schedule:
        """Return a schedule of the first stages alone, without a bar, which may take a quarter of the time."""
        now = self.clock()
        deadline = now + (self.deadline - now) / 4
        return replace(self, stages=self.stages[:2], deadline=deadline, progress=Progress())

    def is_over(self) -> bool:
        """Return whether the time of all jobs is over."""
        return self.clock() > self.deadline

    def make_splits(self, problem: Problem) -> list[Split]:
        """Split a problem into folds."""
        if self.n_folds == 0:
            return [Split(problem, None, *torch.empty(2, 0, dtype=torch.int64))]
        splits = problem.split(self.n_folds, self.seed)
        return splits[:1] if self.single_split else splits

    def assign_folds(self, problem: Problem, n_used: int) -> Tensor:
        """Return the fold, of those with models, that predicts each membership, or -1, shape ``(memberships,)``."""
        if self.n_folds == 0:
            return torch.full((len(problem.members),), -1)
        folds = problem.assign_folds(self.n_folds, self.seed).members
        return folds.masked_fill(folds >= n_used, -1)


class Step(NamedTuple):
    """A model of a path, and how well it predicts held-out groups."""

    model: Model
    score: float  # mean held-out log-likelihood per group
    held_out_outputs: Tensor  # (rows of held-out groups, outputs)
    epochs: list[dict[str, Any]]  # what the learner recorded while it trained


class Path(NamedTuple):
    """Result of a job."""

    steps: list[Step]
    seconds: float
    processor_seconds: float

    @property
    def best(self) -> Step:
        """Return the step with the best held-out score."""
        return max(self.steps, key=lambda step: step.score)

    @property
    def score(self) -> float:
        """Return the best held-out score."""
        return max((step.score for step in self.steps), default=-math.inf)


class Start(NamedTuple):
    """A model of an earlier stage, and the logarithm of its weight."""

    model: Model
    log_weight: float


@dataclass(frozen=True, eq=False)
class Job:
    """A learner and a fold, with what decides when it ends; the last four fields are as in :class:`Schedule`."""

    learner: Learner  # prepared
    fold: int
    starts: tuple[Start, ...]  # the first E-step uses their mean prediction, or without any a constant model
    constant_score: float  # held-out score of a constant model
    seed: int  # of the learner
    patience: int
    min_step_gain: float
    blind_steps: int
    sharpness: tuple[float, ...]

    def run(self, split: Split, seconds_left: Callable[[], float]) -> Path:
        """Follow the path until the held-out log-likelihood stops improving or no time is left."""
        train, held_out = split.train, split.held_out
        begun, processor_begun = time.monotonic(), time.thread_time()
        start = train.constant_outputs.expand(len(train.rows), -1)
        if self.starts:
            start = torch.stack([w + train.labels.log_probs(m.outputs(train.X)) for m, w in self.starts]).logsumexp(0)
        watch = Watch(held_out, seconds_left)
        steps: list[Step] = []
        best_score, best_step = -math.inf, 0
        with closing(self.learner.path(train.with_watch(watch), start, self.seed)) as path:  # type: ignore[type-var]
            for n, model in enumerate(path):
                epochs = watch.history[:]
                watch.history.clear()
                if held_out is None:
                    steps = [Step(model, train.score(model.outputs(train.X)), torch.empty(0), epochs)]
                    if n + 1 >= self.blind_steps or seconds_left() <= 0:
                        break
                    continue
                outputs = model.outputs(held_out.X)
                steps.append(Step(model, held_out.score(outputs, self.sharpness), outputs, epochs))
                gain = max(best_score - self.constant_score, 0)
                if steps[-1].score > best_score + self.min_step_gain * gain:
                    best_score, best_step = steps[-1].score, n
                if n - best_step >= self.patience or seconds_left() <= 0:
                    break
        return Path(steps, time.monotonic() - begun, time.thread_time() - processor_begun)


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
