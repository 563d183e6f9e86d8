"""Jobs: one learner on one fold, independent of each other, run until held-out groups stop improving or time is up.

Learners run in stages. The jobs of a stage depend only on the candidates of earlier stages, so that the result does not
depend on how many jobs run at a time.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Event, Lock
from typing import Any, NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from unbag.data.labels import Categorical
from unbag.data.row_source import Rows
from unbag.ensemble.progress import Progress
from unbag.learners import Learner, Model, Problem, Split, Watch

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
    starts
        Learners of a stage before the first, which are no candidates themselves.
    patience
        Steps of a path without a better held-out score after which a job ends.
    min_step_gain
        Improvement of the held-out score, relative to the gain over a constant model, below which a step is not better.
    min_relative_gain
        A learner whose gain over a constant model on the first fold is less than this share of the best gain does not
        run on the other folds; 0 runs all.
    blind_steps
        Steps of a path where no groups are held out.
    n_jobs
        Number of jobs that run at a time, in threads.
    time_limit
        Seconds that all jobs share. A job ends with the step in which its share is over; once nothing is left, only
        jobs begin without which there would be no result.
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
    n_jobs: int = 1
    time_limit: float | None = None
    seed: int = 0
    clock: Callable[[], float] = time.monotonic
    progress: Progress = field(default_factory=Progress)

    def quick(self) -> Schedule:
        """Return a schedule of the first stages alone."""
        return replace(self, stages=self.stages[:2])

    def make_splits(self, problem: Problem) -> list[Split]:
        """Split a problem into folds."""
        if self.n_folds == 0:
            return [Split(problem, None, torch.empty(0), torch.empty(0))]
        splits = problem.split(self.n_folds, self.seed)
        return splits[:1] if self.single_split else splits

    def assign_folds(self, problem: Problem) -> Tensor:
        """Return the fold that predicts each membership, -1 where none does, shape ``(memberships,)``."""
        if self.n_folds == 0:
            return torch.full((len(problem.members),), -1)
        folds = problem.assign_folds(self.n_folds, self.seed).members
        return folds.masked_fill(folds > 0, -1) if self.single_split else folds


class Step(NamedTuple):
    """A model of a path, and how well it predicts held-out groups."""

    model: Model
    score: float  # mean held-out log-likelihood per group
    held_out_outputs: Tensor  # (rows of held-out groups, outputs)
    epochs: list[dict[str, Any]]  # what the learner recorded while it trained
    seconds: float  # since the job began


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
    out_of_fold: Tensor
    """Outputs for each membership by the model that did not see its group, NaN if there is none, shape
    ``(memberships, outputs)`` in the order of ``problem.members``."""
    seconds: float
    history: list[dict[str, Any]] = field(default_factory=list)

    def outputs(self, X: Rows) -> Tensor:
        """Return the log of the mean probability over folds."""
        n_folds = len(self.models)
        return torch.stack([self.fold_outputs(X, fold) for fold in range(n_folds)]).logsumexp(0) - math.log(n_folds)

    def fold_outputs(self, X: Rows, fold: int) -> Tensor:
        """Return the log-probabilities by the model of one fold, shape ``(rows, outputs)``."""
        return self.labels.log_probs(self.models[fold].outputs(X))[:, self.orders[fold]]


def fit_candidates(problem: Problem, schedule: Schedule, align: Align | None = None) -> list[Candidate]:
    """Run all learners of a schedule.

    After an interrupt from the keyboard, running jobs end with their step, and the candidates so far are returned.

    Parameters
    ----------
    problem
        All rows and observations.
    schedule
        Learners and stopping rules.
    align
        Brings the classes of a model into the order of another one; None where observations identify the classes.
    """
    runner = _Runner(problem, schedule.make_splits(problem), schedule, align)
    candidates: list[Candidate] = []
    schedule.progress.begin(sum(map(len, [schedule.starts, *schedule.stages])) * len(runner.splits))
    with schedule.progress:
        try:
            with _first_interrupt_sets(runner.interrupted):
                runner.run_stage(schedule.starts, runner.started)
                for stage in schedule.stages:
                    runner.run_stage(stage, candidates)
        except KeyboardInterrupt:
            if not (candidates or runner.started):
                raise
    if not (candidates or runner.started):
        names = ", ".join(learner.name for stage in schedule.stages for learner in stage)
        raise ValueError(f"there are too few rows to fit {names}; collect more rows, or choose model='linear'")
    return candidates or runner.started


@contextmanager
def _first_interrupt_sets(event: Event) -> Iterator[None]:
    """Let the first interrupt from the keyboard set an event; the second one raises an exception as usual."""
    usual = signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not usual:
        yield
        return

    def handle(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, usual)
        event.set()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


@dataclass(eq=False)
class _Runner:
    problem: Problem
    splits: Sequence[Split]
    schedule: Schedule
    align: Align | None
    best_gain: float = 0.0
    started: list[Candidate] = field(default_factory=list)
    reference: tuple[float, Tensor] | None = None
    """Score of the best candidate, and its probabilities of all rows, with whose classes others are aligned."""

    def __post_init__(self) -> None:
        limit = self.schedule.time_limit
        self.deadline = math.inf if limit is None else self.schedule.clock() + limit
        self.interrupted, self.lock, self.jobs_left = Event(), Lock(), 0
        train, held_out = self.splits[0][:2]
        self.constant_score = math.nan
        if held_out is not None:
            self.constant_score = held_out.score(train.constant_outputs.expand(len(held_out.rows), -1))

    def run_stage(self, stage: Sequence[Learner], candidates: list[Candidate]) -> None:
        """Run the learners of a stage, the unpromising ones on the first fold only, and append the candidates."""
        if not stage or (candidates and self._seconds_until(self.deadline) <= 0):
            return
        best = max([*self.started, *candidates], key=lambda c: c.score, default=None)
        n_folds = len(self.splits)
        prepared = self._parallel((_prepare, (learner, self.problem, self.schedule.seed)) for learner in stage)
        self.jobs_left = len(stage) * n_folds
        first = self._parallel((self._job, (learner, 0, best)) for learner in prepared)
        gains = [max((s.score for s in path), default=-math.inf) - self.constant_score for path in first]
        self.best_gain = max(self.best_gain, *gains)
        least = self.schedule.min_relative_gain * self.best_gain if self.schedule.min_relative_gain else -math.inf
        if not candidates:  # one learner at least
            least = min(least, max(gains))
        kept = [n for n, gain in enumerate(gains) if len(stage) == 1 or not gain < least]
        others = [(n, fold) for n in kept for fold in range(1, n_folds)]
        self.schedule.progress.end_jobs((len(stage) - len(kept)) * (n_folds - 1))
        self.jobs_left = len(others)
        paths = self._parallel((self._job, (prepared[n], fold, best)) for n, fold in others)
        for n in kept:
            mine = [first[n], *(path for (m, _), path in zip(others, paths, strict=True) if m == n)]
            if all(mine):  # a fold without time left has no step
                candidates.append(self._select(prepared[n].name, mine))

    def _parallel(self, calls: Iterable[tuple[Callable, tuple]]) -> list:
        """Call functions in threads; an interrupt lets those that run end with their step."""
        n_threads = torch.get_num_threads()
        pool = ThreadPoolExecutor(self.schedule.n_jobs)
        try:
            futures = [pool.submit(_on_one_thread, function, *arguments) for function, arguments in calls]
            return [self._wait(future) for future in futures]
        except BaseException:
            self.interrupted.set()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(n_threads)  # also the number with which new threads begin

    def _wait(self, future: Future) -> Any:
        while not future.done():  # the handler of signals runs between calls
            wait([future], timeout=0.5)
        return future.result()

    def _seconds_until(self, deadline: float) -> float:
        return 0.0 if self.interrupted.is_set() else deadline - self.schedule.clock()

    def _share_of_time(self) -> float:
        """Return the time at which a job that begins now should end, so that those that wait have as much."""
        with self.lock:
            rounds = math.ceil(max(self.jobs_left, 1) / self.schedule.n_jobs)
            self.jobs_left -= 1
        left = max(self._seconds_until(self.deadline), 0.0)
        return self.schedule.clock() + left / rounds

    def _job(self, learner: Learner, fold: int, best: Candidate | None) -> list[Step]:
        """Follow a path on one fold until the held-out log-likelihood stops improving or time is up."""
        train, held_out = self.splits[fold][:2]
        if best is not None and self._seconds_until(self.deadline) <= 0:
            return []
        if best is None:
            start = train.constant_outputs.expand(len(train.rows), -1)
        else:
            start = best.models[fold].outputs(train.X)[:, best.orders[fold]]
        begun, deadline = self.schedule.clock(), self._share_of_time()
        watch = Watch(held_out, lambda: self._seconds_until(deadline))
        steps: list[Step] = []
        best_score, best_step = -math.inf, 0
        for model in learner.path(train.with_watch(watch), start, self.schedule.seed + fold):
            n, epochs, seconds = len(steps), watch.history[:], self.schedule.clock() - begun
            watch.history.clear()
            if held_out is None:
                steps = [Step(model, train.score(model.outputs(train.X)), torch.empty(0), epochs, seconds)]
                best_step += 1
                if best_step >= self.schedule.blind_steps or watch.seconds_left() <= 0:
                    break
                continue
            outputs = model.outputs(held_out.X)
            steps.append(Step(model, held_out.score(outputs), outputs, epochs, seconds))
            self.schedule.progress.end_step(learner.name, steps[-1].score)
            if steps[-1].score > best_score + self.schedule.min_step_gain * max(best_score - self.constant_score, 0):
                best_score, best_step = steps[-1].score, n
            if n - best_step >= self.schedule.patience or watch.seconds_left() <= 0:
                break
        self.schedule.progress.end_jobs()
        return steps

    def _select(self, name: str, paths: list[list[Step]]) -> Candidate:
        """Choose one step for all folds; a fold that stopped early stays at its last step."""
        longest = max(len(path) for path in paths)
        at = [[path[min(n, len(path) - 1)] for path in paths] for n in range(longest)]
        sizes = np.array([float((s.held_out or s.train).group_weights.sum()) for s in self.splits])
        scores = [float(np.dot([s.score for s in steps], sizes) / sizes.sum()) for steps in at]
        best = int(np.argmax(scores))
        steps = at[best]
        orders = self._orders(scores[best], [s.model for s in steps])
        out_of_fold = torch.full((len(self.problem.members), self.problem.labels.n_outputs), math.nan)
        for split, step, order in zip(self.splits, steps, orders, strict=True):
            if split.held_out is not None:
                out_of_fold[split.members] = step.held_out_outputs[split.rows][:, order]
        history = steps[0].epochs or [{"step": n, "score": score} for n, score in enumerate(scores)]
        models = [s.model for s in steps]
        labels, seconds = self.problem.labels, sum(path[-1].seconds for path in paths)
        return Candidate(name, labels, models, orders, best, longest, scores[best], out_of_fold, seconds, history)

    def _orders(self, score: float, models: Sequence[Model]) -> list[np.ndarray]:
        """Return for each model the output that each class is read from."""
        if self.align is None:
            return [np.arange(self.problem.labels.n_outputs)] * len(models)
        best_score, reference = self.reference or (-math.inf, None)
        orders, aligned = [], []
        for model in models:
            probs = self.problem.labels.log_probs(model.outputs(self.problem.X)).exp()
            orders.append(self.align(probs if reference is None else reference, probs))
            aligned.append(probs[:, orders[-1]])
            reference = aligned[0] if reference is None else reference
        if not score <= best_score:
            self.reference = score, torch.stack(aligned).mean(0)
        return orders


def _prepare(learner: Learner, problem: Problem, seed: int) -> Learner:
    return learner.prepare(problem, seed)


def _on_one_thread(function: Callable, *arguments: object) -> object:
    """Call a function with one thread of each numerical library, as many jobs run side by side."""
    torch.set_num_threads(1)
    with threadpool_limits(1):
        return function(*arguments)
