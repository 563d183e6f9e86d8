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
    """Which learners run on which folds, and when they stop.

    Parameters
    ----------
    n_folds
        Number of folds; each group is held out once. 0 holds out nothing.
    single_split
        Whether only the first fold is used, so that one part of the groups is held out.
    stages
        Learners by stage. On each fold, a learner starts from the best model of the earlier stages.
    starts
        Learners of a stage before the first, which are no candidates themselves.
    patience
        Steps of a path without a better held-out score after which a job ends.
    min_step_gain
        Improvement of the held-out score, relative to the gain over a constant model, below which a step is not better.
    min_relative_gain
        A learner whose gain over a constant model on the first fold is less than this share of the best gain is not
        used; 0 uses all.
    blind_steps
        Steps of a path where no groups are held out.
    sharpness
        Inverse temperatures of which the best is used for the held-out score of a step.
    n_jobs
        Number of jobs that run at a time.
    seconds_before_processes
        Seconds after which jobs run in processes as well as in threads; None uses threads alone.
    deadline
        Time at which all jobs end, by ``clock``. A job ends when its share of the remaining time is over.
    seed
        Seed of the folds and of the learners.
    clock
        Returns the time in seconds.
    progress
        Shows the progress of jobs.
    """

    stages: tuple[tuple[Learner, ...], ...]
    starts: tuple[Learner, ...] = ()
    n_folds: int = 4
    single_split: bool = False
    patience: int = 2
    min_step_gain: float = 0.0
    min_relative_gain: float = 0.7
    blind_steps: int = 3
    sharpness: tuple[float, ...] = (1.0,)
    n_jobs: int = 1
    seconds_before_processes: float | None = None
    deadline: float = math.inf
    seed: int = 0
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
        """Return the fold that predicts each membership, -1 where none does, shape ``(memberships,)``.

        ``n_used`` is the number of folds that have models.
        """
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


@dataclass(frozen=True, eq=False)
class Job:
    """A learner and a fold, with what decides when it ends.

    Parameters
    ----------
    learner, fold
        The prepared learner, and the number of the fold.
    start
        Model whose predictions are the first E-step; None starts from a constant model.
    constant_score
        Held-out score of a constant model.
    seed
        Seed of the learner.
    patience, min_step_gain, blind_steps, sharpness
        As in :class:`Schedule`.
    """

    learner: Learner
    fold: int
    start: Model | None
    constant_score: float
    seed: int
    patience: int
    min_step_gain: float
    blind_steps: int
    sharpness: tuple[float, ...]

    def run(self, split: Split, seconds_left: Callable[[], float]) -> Path:
        """Follow the path until the held-out log-likelihood stops improving or no time is left."""
        train, held_out = split.train, split.held_out
        begun, processor_begun = time.monotonic(), time.thread_time()
        if self.start is None:
            start = train.constant_outputs.expand(len(train.rows), -1)
        else:
            start = self.start.outputs(train.X)
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
