"""Jobs: one learner on one fold, independent of each other, run until held-out groups stop improving or time is up.

Learners run in stages. The jobs of a stage depend only on the candidates of earlier stages, so that the result does not
depend on how many jobs run at a time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits
from torch import Tensor

from unbag.data.labels import Categorical
from unbag.data.row_source import Rows
from unbag.learners import Learner, Model, Problem, Split

Align = Callable[[Tensor, Tensor], np.ndarray]
"""From probabilities of the same rows by two models to the outputs of the second that match the first's classes."""


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
        Learners by stage. Each learner starts where the best candidate of the earlier stages ended.
    patience
        Steps of a path without a better held-out score after which a job ends.
    min_relative_gain
        A learner whose gain over a constant model on the first fold is less than this share of the best gain does not
        run on the other folds; 0 runs all.
    blind_steps
        Steps of a path where no groups are held out.
    n_jobs
        Number of jobs that run at a time, in threads.
    time_limit
        Seconds after which no job begins and running jobs end with their next step.
    seed
        Seed of the folds and of the learners.
    clock
        Returns the time in seconds.
    """

    stages: tuple[tuple[Learner, ...], ...]
    n_folds: int = 4
    single_split: bool = False
    patience: int = 2
    min_relative_gain: float = 0.7
    blind_steps: int = 3
    n_jobs: int = 1
    time_limit: float | None = None
    seed: int = 0
    clock: Callable[[], float] = time.monotonic

    def quick(self) -> Schedule:
        """Return a schedule of the first stages alone."""
        return replace(self, stages=self.stages[:2])

    def make_splits(self, problem: Problem) -> list[Split]:
        """Split a problem into folds."""
        if self.n_folds == 0:
            return [Split(problem, None)]
        splits = problem.split(self.n_folds, self.seed)
        return splits[:1] if self.single_split else splits

    def assign_folds(self, problem: Problem) -> Tensor:
        """Return the fold that holds out each row, -1 where none does, shape ``(rows,)``."""
        if self.n_folds == 0:
            return torch.full((len(problem.rows),), -1)
        folds = problem.assign_folds(self.n_folds, self.seed)
        return folds.masked_fill(folds > 0, -1) if self.single_split else folds


class Step(NamedTuple):
    """A model of a path, and how well it predicts held-out groups."""

    model: Model
    score: float  # mean held-out log-likelihood per group
    held_out_outputs: Tensor  # (rows of held-out groups, outputs)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A learner on all folds, at the step of its path with the best held-out log-likelihood."""

    name: str
    labels: Categorical
    models: list[Model]  # one for each fold
    orders: list[np.ndarray]  # for each model, the output that each class is read from
    step: int
    n_steps: int
    score: float
    out_of_fold: Tensor  # (rows, outputs): outputs for each row from the model that did not see it; NaN elsewhere
    seconds: float
    history: list[dict[str, float]] = field(default_factory=list)

    def outputs(self, X: Rows) -> Tensor:
        """Return the log of the mean probability over folds."""
        n_folds = len(self.models)
        return torch.stack([self.fold_outputs(X, fold) for fold in range(n_folds)]).logsumexp(0) - math.log(n_folds)

    def fold_outputs(self, X: Rows, fold: int) -> Tensor:
        """Return the log-probabilities by the model of one fold, shape ``(rows, outputs)``."""
        return self.labels.log_probs(self.models[fold].outputs(X))[:, self.orders[fold]]


@dataclass
class Progress:
    """Progress of a fit, in jobs; subclasses show it."""

    def begin(self, n_jobs: int) -> None:
        """Announce a stage with so many jobs."""

    def end_job(self, name: str, score: float) -> None:
        """Report a finished job and its held-out score."""


def fit_candidates(
    problem: Problem,
    schedule: Schedule,
    align: Align | None = None,
    progress: Progress | None = None,
) -> list[Candidate]:
    """Run all learners of a schedule.

    Parameters
    ----------
    problem
        All rows and observations.
    schedule
        Learners and stopping rules.
    align
        Brings the classes of a model into the order of another one; None where observations identify the classes.
    progress
        Told of every job that ends.
    """
    runner = _Runner(problem, schedule.make_splits(problem), schedule, align, progress or Progress())
    candidates: list[Candidate] = []
    try:
        for stage in schedule.stages:
            runner.run_stage(stage, candidates)
    except KeyboardInterrupt:
        if not candidates:
            raise
    return candidates


@dataclass(eq=False)
class _Runner:
    problem: Problem
    splits: Sequence[Split]
    schedule: Schedule
    align: Align | None
    progress: Progress
    best_gain: float = 0.0
    reference: Tensor | None = None
    """Probabilities of all rows by the first model, whose classes those of all others are aligned with."""

    def __post_init__(self) -> None:
        limit = self.schedule.time_limit
        self.deadline = math.inf if limit is None else self.schedule.clock() + limit
        first = self.splits[0].held_out
        self.constant_score = math.nan
        if first is not None:
            self.constant_score = first.score(self.problem.constant_outputs.expand(len(first.rows), -1))

    def run_stage(self, stage: Sequence[Learner], candidates: list[Candidate]) -> None:
        """Run the learners of a stage, the unpromising ones on the first fold only, and append the candidates."""
        if candidates and self.schedule.clock() > self.deadline:
            return
        best = max(candidates, key=lambda c: c.score, default=None)
        begun = self.schedule.clock()
        prepared = self._parallel((_prepare, (learner, self.problem, self.schedule.seed)) for learner in stage)
        first = self._parallel((self._job, (learner, 0, best)) for learner in prepared)
        gains = [max(step.score for step in path) - self.constant_score for path in first]
        self.best_gain = max(self.best_gain, *gains)
        share = self.schedule.min_relative_gain
        kept = [n for n, gain in enumerate(gains) if share == 0 or len(stage) == 1 or not gain < share * self.best_gain]
        others = [(n, fold) for n in kept for fold in range(1, len(self.splits))]
        paths = self._parallel((self._job, (prepared[n], fold, best)) for n, fold in others)
        for n in kept:
            mine = [first[n], *(path for (m, _), path in zip(others, paths, strict=True) if m == n)]
            if all(mine):  # a fold without time left has no step
                candidates.append(self._select(prepared[n].name, mine, self.schedule.clock() - begun))

    def _parallel(self, calls: Iterable[tuple[Callable, tuple]]) -> list:
        with Parallel(n_jobs=self.schedule.n_jobs, prefer="threads") as parallel:
            return parallel(delayed(_on_one_thread)(function, *arguments) for function, arguments in calls)

    def _job(self, learner: Learner, fold: int, best: Candidate | None) -> list[Step]:
        """Follow a path on one fold until the held-out log-likelihood stops improving or time is up."""
        train, held_out = self.splits[fold]
        if best is None:
            start = self.problem.constant_outputs.expand(len(train.rows), -1)
        else:
            start = best.models[fold].outputs(train.X)[:, best.orders[fold]]
        steps: list[Step] = []
        best_score, best_step = -math.inf, 0
        for model in learner.path(train, start, self.schedule.seed + fold):
            n = len(steps)
            if held_out is None:
                steps = [Step(model, train.score(model.outputs(train.X)), torch.empty(0))]
                best_step += 1
                if best_step >= self.schedule.blind_steps or self.schedule.clock() > self.deadline:
                    break
                continue
            outputs = model.outputs(held_out.X)
            steps.append(Step(model, held_out.score(outputs), outputs))
            if steps[-1].score > best_score:
                best_score, best_step = steps[-1].score, n
            if n - best_step >= self.schedule.patience or self.schedule.clock() > self.deadline:
                break
        self.progress.end_job(learner.name, best_score)
        return steps

    def _select(self, name: str, paths: list[list[Step]], seconds: float) -> Candidate:
        """Choose one step for all folds; a fold that stopped early stays at its last step."""
        longest = max(len(path) for path in paths)
        at = [[path[min(n, len(path) - 1)] for path in paths] for n in range(longest)]
        sizes = np.array([float((h or t).group_weights.sum()) for t, h in self.splits])
        scores = [float(np.dot([s.score for s in steps], sizes) / sizes.sum()) for steps in at]
        best = int(np.argmax(scores))
        steps = at[best]
        orders = self._orders([s.model for s in steps])
        out_of_fold = torch.full((len(self.problem.rows), self.problem.labels.n_outputs), math.nan)
        for (_, held_out), step, order in zip(self.splits, steps, orders, strict=True):
            if held_out is not None:
                out_of_fold[held_out.rows] = step.held_out_outputs[:, order]
        history = [{"step": n, "score": score} for n, score in enumerate(scores)]
        models = [s.model for s in steps]
        labels = self.problem.labels
        return Candidate(name, labels, models, orders, best, longest, scores[best], out_of_fold, seconds, history)

    def _orders(self, models: Sequence[Model]) -> list[np.ndarray]:
        """Return for each model the output that each class is read from."""
        if self.align is None:
            return [np.arange(self.problem.labels.n_outputs)] * len(models)
        orders = []
        for model in models:
            probs = self.problem.labels.log_probs(model.outputs(self.problem.X)).exp()
            if self.reference is None:
                self.reference = probs
            orders.append(self.align(self.reference, probs))
        return orders


def _prepare(learner: Learner, problem: Problem, seed: int) -> Learner:
    return learner.prepare(problem, seed)


def _on_one_thread(function: Callable, *arguments: object) -> object:
    """Call a function with one thread of each numerical library, as many jobs run side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            return function(*arguments)
    finally:
        torch.set_num_threads(before)
