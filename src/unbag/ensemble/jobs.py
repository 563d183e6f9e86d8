"""Jobs: a learner follows its path on one fold until held-out groups stop improving or time is up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

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
