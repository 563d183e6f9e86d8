"""How long a fit takes with several workers, from the processor seconds of its jobs.

``python tests/helpers/makespan.py`` fits the default to some problems with one job at a time, and prints the time with
1, 2, 4 and 8 workers as a share of that with one: of the jobs alone, and with all that surrounds them.
``--clock 1 2 8`` measures whole fits with these numbers of jobs by the clock instead, for a machine that is not busy,
and compares their results.
"""

import argparse
import heapq
import math
import time
import warnings
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.datasets import make_classification

import unbag
import unbag.ensemble.mixture
from unbag.ensemble import scheduler
from unbag.ensemble.workers import Workers


class Recorder(Workers):
    """Workers that keep the result and the processor seconds of each job."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.results: dict[Any, tuple[Any, float]] = {}

    def submit(self, key: Any, function: Any, data: Any, deadline: float = math.inf, **options: Any) -> None:
        """Begin to compute a function."""
        super().submit(key, partial(self._measure, key, function), data, deadline, **options)

    def _measure(self, key: Any, function: Any, data: Any, seconds_left: Any) -> Any:
        begun = time.thread_time()
        result = function(data, seconds_left)
        self.results[key] = result, time.thread_time() - begun
        return result


class Replay(AbstractContextManager):
    """Workers that return recorded results after the time that they took, on a simulated clock.

    A job that was not recorded belongs to a learner that is rejected; it takes as long as on the first fold.
    """

    def __init__(self, results: dict[Any, tuple[Any, float]], n_workers: int) -> None:
        self.results, self.n_workers = results, n_workers
        self.now, self.ends, self.order = 0.0, list[tuple[float, int, Any]](), 0

    def __exit__(self, *error: object) -> None:
        return None

    @property
    def busy(self) -> bool:
        """Return whether a job runs."""
        return bool(self.ends)

    def has_room(self) -> bool:
        """Return whether another job may begin."""
        return len(self.ends) < self.n_workers

    def submit(self, key: Any, function: Any, data: Any, deadline: float = math.inf, **options: Any) -> None:
        """Begin a job."""
        heapq.heappush(self.ends, (self.now + self._find(key)[1], self.order, key))
        self.order += 1

    def stop(self, key: Any) -> None:
        """End a job."""
        self.ends = [entry for entry in self.ends if entry[2] != key]
        heapq.heapify(self.ends)

    def finished(self) -> list[tuple[Any, Any]]:
        """Wait for the next job that ends."""
        if not self.ends:
            return []
        self.now, _, key = heapq.heappop(self.ends)
        return [(key, lambda: self._find(key)[0])]

    def _find(self, key: Any) -> tuple[Any, float]:
        return self.results[key] if key in self.results else self.results[key._replace(fold=0)]


def simulate(problem: Any, schedule: Any, results: dict[Any, tuple[Any, float]], n_workers: int) -> tuple[Replay, list]:
    """Return the workers, whose clock shows how long all jobs took, and the candidates."""
    replay = Replay(results, n_workers)
    return replay, scheduler.fit_candidates(problem, schedule, make_workers=lambda *_: replay)


PROBLEMS = ((2, 4, 300), (3, 16, 200), (3, 64, 120), (10, 16, 200), (2, 256, 16), (12, 64, 100))
"""Classes, rows of a group, and groups."""


def draw(k: int, size: int, n_groups: int) -> tuple[np.ndarray, np.ndarray, unbag.Groups]:
    """Draw rows, their counts and groups."""
    X, y = make_classification(
        size * n_groups, 16, n_informative=8, n_classes=k, class_sep=1.2, random_state=0, n_clusters_per_class=2
    )
    groups = unbag.Groups.from_sizes([size] * n_groups)
    return X, unbag.LabelProportions().observe(y, groups, k).numpy(), groups


def measure(numbers_of_jobs: list[int]) -> None:
    """Print how long fits take by the clock, and whether their results are equal to the bit."""
    print("classes size groups   seconds with", *numbers_of_jobs, "jobs, and as a share of the first")
    for problem in PROBLEMS:
        X, z, groups = draw(*problem)
        seconds, found = [], []
        for n_jobs in numbers_of_jobs:
            begun = time.perf_counter()
            clf = unbag.AggregateClassifier(n_jobs=n_jobs, random_state=0).fit(X, z, groups=groups)
            seconds.append(time.perf_counter() - begun)
            found.append(clf.predict_proba(X))
        same = all(np.array_equal(found[0], probabilities) for probabilities in found)
        figures = " ".join(f"{s:6.1f}" for s in seconds) + "   " + " ".join(f"{s / seconds[0]:5.2f}" for s in seconds)
        print("{:7} {:4} {:6}".format(*problem), figures, "equal" if same else "DIFFERENT", flush=True)


def main() -> None:
    """Print makespans of some default fits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clock", type=int, nargs="+")
    warnings.simplefilter("ignore")
    if numbers := parser.parse_args().clock:
        measure(numbers)
        return
    torch.set_num_threads(1)
    kept: list[tuple[Any, Any, Recorder]] = []
    fit_candidates = scheduler.fit_candidates

    def record(problem: Any, schedule: Any, align: Any = None) -> list:
        made: list[Recorder] = []

        def make(*arguments: Any) -> Recorder:
            made.append(Recorder(*arguments))
            return made[0]

        candidates = fit_candidates(problem, schedule, align, make)
        kept.append((problem, schedule, made[0]))
        return candidates

    unbag.ensemble.mixture.fit_candidates = record
    print("classes size groups   seconds  jobs    with 2   4     8 workers    and the rest: 2   4     8")
    for k, size, n_groups in PROBLEMS:
        X, z, groups = draw(k, size, n_groups)
        kept.clear()
        begun = time.process_time()
        unbag.AggregateClassifier(n_jobs=1, random_state=0).fit(X, z, groups=groups)
        total = time.process_time() - begun
        problem, schedule, recorder = kept[0]
        jobs = sum(seconds for _, seconds in recorder.results.values())
        spans = np.array([simulate(problem, schedule, recorder.results, w)[0].now for w in (2, 4, 8)])
        shares = [*(spans / jobs), *((spans + total - jobs) / total)]
        figures = " ".join(f"{share:6.2f}" for share in shares)
        print(f"{k:7} {size:4} {n_groups:6} {total:9.1f} {jobs / total:5.0%}    {figures}", flush=True)


if __name__ == "__main__":
    main()
