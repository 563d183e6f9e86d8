"""Order of jobs: which are ready, which learners are worth further folds, and when all end."""

import math
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Any, NamedTuple

from unbag.ensemble.jobs import Align, Candidate, Job, Path, Schedule, Start, select_candidates
from unbag.ensemble.workers import Workers
from unbag.learners import Learner, Problem, Split

WHOLE = -1
"""Key of the data of all groups, beside those of each fold; as a fold, it stands for the preparation of a learner."""


class Place(NamedTuple):
    """A learner and a fold."""

    learner: int
    fold: int


def fit_candidates(
    problem: Problem, schedule: Schedule, align: Align | None = None, make_workers: Callable[..., Workers] = Workers
) -> list[Candidate]:
    """Fit all learners of a schedule to all folds.

    ``align`` brings the classes of a model into the order of another one; None where observations identify the classes.
    The first interrupt from the keyboard ends jobs with their step, and keeps what is finished.
    """
    splits = schedule.make_splits(problem)
    runner = _Runner(problem, splits, schedule)
    data = {WHOLE: problem, **dict(enumerate(splits))}
    workers = make_workers(schedule.n_jobs, data, schedule.seconds_before_processes, schedule.clock)
    with schedule.progress, _first_interrupt_sets(runner.interrupted), workers:
        try:
            runner.run(workers)
        except KeyboardInterrupt:
            if not any(path.steps for path in runner.paths.values()):
                raise
    paths = runner.collect()
    if not paths:
        names = ", ".join(learner.name for stage in schedule.stages for learner in stage)
        raise ValueError(f"there are too few rows to fit {names}; collect more rows, or choose model='linear'")
    return select_candidates(problem, splits[: len(paths[0][1])], paths, align)


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


class _Runner:
    """The state of a fit: jobs that ended, and learners that were rejected.

    A job depends only on jobs of earlier stages on the same fold, and on the verdict about its learner, which depends
    only on first folds. The result is therefore the same for any number of workers. Workers that have nothing else to
    do run jobs of learners whose verdict is still open.
    """

    def __init__(self, problem: Problem, splits: Sequence[Split], schedule: Schedule) -> None:
        self.schedule, self.n_folds, self.interrupted = schedule, len(splits), Event()
        stages = [schedule.starts, *schedule.stages]
        self.learners: list[Learner] = [learner for stage in stages for learner in stage]
        self.stage_of = [number for number, stage in enumerate(stages) for _ in stage]
        self.prepared: dict[int, Learner] = {}
        self.kept: dict[int, bool] = {}
        """Verdicts, from the first fold."""
        self.paths: dict[Place, Path] = {}
        self.begun: set[Place] = set()
        self.retried: set[Place] = set()
        self.best_gain = 0.0
        self.only_best_start = bool(schedule.starts) or problem.symmetry != "none"
        train, held_out = splits[0][:2]
        self.constant_score = math.nan
        self.n_held_out = [float(s.held_out.group_weights.sum()) if s.held_out else 0.0 for s in splits]
        if held_out is not None:
            self.constant_score = held_out.score(train.constant_outputs.expand(len(held_out.rows), -1))
        schedule.progress.begin(len(self.learners) * self.n_folds)

    def run(self, workers: Workers) -> None:
        """Run all jobs that are worth it."""
        while True:
            while workers.has_room() and (place := self._next()) is not None:
                self._submit(place, workers)
            if not workers.busy:
                return
            for place, result in workers.finished():
                self._finish(place, result, workers)
            if self.interrupted.is_set():
                for place in self.begun - self.paths.keys():
                    workers.stop(place)

    def collect(self) -> list[tuple[str, list[Path]]]:
        """Return the paths of the learners on all folds; where none has all, those of one on the first folds."""
        found: dict[int, list[Path]] = {}
        for n in range(len(self.learners)):
            for fold in range(self.n_folds if self.kept.get(n, True) else 0):
                path = self.paths.get(Place(n, fold))
                if path is None or not path.steps:
                    break
                found.setdefault(n, []).append(path)
        candidates = {n: paths for n, paths in found.items() if self.stage_of[n] > 0} or found
        longest = max(map(len, candidates.values()), default=0)
        complete = [n for n, paths in candidates.items() if len(paths) == longest]
        if longest < self.n_folds:
            complete = sorted(complete, key=lambda n: -candidates[n][0].score)[:1]
        return [(self.learners[n].name, candidates[n]) for n in complete]

    def _next(self) -> Place | None:
        """Return the next job, or None if all that is ready has begun."""
        if self.interrupted.is_set() or self.schedule.clock() >= self.schedule.deadline:  # one model is always fitted
            runs = any(fold != WHOLE and (n, fold) not in self.paths for n, fold in self.begun)
            if runs or any(path.steps for path in self.paths.values()):
                return None
        ready = [place for place in self._places() if place not in self.begun and self._is_ready(place)]
        return min(ready, key=self._priority, default=None)

    def _places(self) -> Iterator[Place]:
        for n in range(len(self.learners)):
            for fold in range(-1, self.n_folds):
                yield Place(n, fold)

    def _is_ready(self, place: Place) -> bool:
        n, fold = place
        if fold == WHOLE:
            return True
        if n not in self.prepared or not self.kept.get(n, True):
            return False
        before = [m for m in range(len(self.learners)) if self.stage_of[m] < self.stage_of[n]]
        return all(m in self.kept and (not self.kept[m] or Place(m, fold) in self.paths) for m in before)

    def _priority(self, place: Place) -> tuple[Any, ...]:
        """Return the sort key of a job: surely needed, stage, first fold, gain over a constant model per second."""
        n, fold = place
        is_open, first = fold > 0 and n not in self.kept, self.paths.get(Place(n, 0))
        rate = 0.0 if first is None else (first.score - self.constant_score) / max(first.seconds, 1e-3)
        return is_open, self.stage_of[n], fold > 0, -rate, n, fold

    def _submit(self, place: Place, workers: Workers) -> None:
        self.begun.add(place)
        n, fold = place
        if fold == WHOLE:
            workers.submit(place, partial(_prepare, self.learners[n], self.schedule.seed), WHOLE, in_thread=True)
            return
        s, clock = self.schedule, self.schedule.clock()
        waiting = [p for p in self._places() if self._is_in_stage(p, self.stage_of[n])]
        rounds = math.ceil(len(waiting) / s.n_jobs)
        deadline = clock + max(s.deadline - clock, 0.0) / max(rounds, 1)
        job = Job(
            *(self.prepared[n], fold, self._find_starts(place), self.constant_score, s.seed + fold),
            *(s.patience, s.min_step_gain, s.blind_steps, s.sharpness),
        )
        workers.submit(place, job.run, fold, deadline)

    def _is_in_stage(self, place: Place, stage: int) -> bool:
        """Return whether a job of a stage has not ended."""
        n, fold = place
        unfinished = place not in self.paths and self.kept.get(n, True)
        return fold >= 0 and self.stage_of[n] == stage and unfinished

    def _find_starts(self, place: Place) -> tuple[Start, ...]:
        """Return the best model of each learner of earlier stages on the same fold, weighted by held-out likelihood.

        Where classes have no names, models differ in which class is which, and the best of all is returned.
        """
        earlier = [
            path
            for (n, fold), path in sorted(self.paths.items())
            if fold == place.fold and self.stage_of[n] < self.stage_of[place.learner] and self.kept[n] and path.steps
        ]
        if earlier and self.only_best_start:
            earlier = [max(earlier, key=lambda path: path.score)]
        best = max((path.score for path in earlier), default=0.0)
        n_groups = self.n_held_out[place.fold]
        return tuple(Start(path.best.model, (path.score - best) * n_groups) for path in earlier)

    def _finish(self, place: Place, result: Callable[[], Any], workers: Workers) -> None:
        """Store the result of a job; where its process died, begin it once more."""
        n, fold = place
        name = self.learners[n].name
        if not self.kept.get(n, True):  # the verdict came while the job ran
            return
        try:
            found = result()
        except BrokenExecutor as error:
            if place in self.retried:
                raise RuntimeError(
                    f"the process that fitted {name!r} ended twice without a result, probably because memory was "
                    "short; choose a smaller n_jobs, or n_jobs=1 to fit in this process"
                ) from error
            self.retried.add(place)
            self.begun.discard(place)
            return
        except Exception as error:
            error.add_note(f"while {name!r} was fitted to fold {fold}")
            if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
                raise MemoryError(
                    f"there was too little memory to fit {name!r}; choose a smaller n_jobs, which is "
                    f"{self.schedule.n_jobs}, or fit fewer rows"
                ) from error
            raise
        if fold == WHOLE:
            self.prepared[n] = found
            return
        self.paths[place] = found
        self.schedule.progress.end_job(name, found)
        if fold == 0:
            self._judge(self.stage_of[n], workers)

    def _judge(self, stage: int, workers: Workers) -> None:
        """Keep or reject the learners of a stage, once all have run on the first fold."""
        members = [n for n, number in enumerate(self.stage_of) if number == stage]
        if not all(Place(n, 0) in self.paths for n in members):
            return
        gains = {n: self.paths[Place(n, 0)].score - self.constant_score for n in members}
        self.best_gain = max(self.best_gain, *gains.values())
        share = self.schedule.min_relative_gain
        least = share * self.best_gain if share else -math.inf
        if not any(self.kept[n] for n in self.kept if self.stage_of[n] > 0):  # one learner at least
            least = min(least, max(gains.values()))
        for n, gain in gains.items():
            self.kept[n] = len(members) == 1 or not gain < least
            if not self.kept[n]:
                self.schedule.progress.skip_jobs(self.n_folds - 1)
                for fold in range(1, self.n_folds):
                    workers.stop(Place(n, fold))


def _prepare(learner: Learner, seed: int, problem: Problem, seconds_left: Callable[[], float]) -> Learner:
    return learner.prepare(problem, seed)
