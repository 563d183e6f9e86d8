"""Rules that stop training, and the number of threads of a step."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from unbag import Groups, PairwiseSimilarity
from unbag._kernels.segments import Segments
from unbag.learners.architectures import Linear
from unbag.training import Limits, Observations, Patience, Settings, TimeLimit, train
from unbag.training.selection import Best


def best_of(improved):
    epochs = torch.tensor(improved)
    return Best({}, torch.zeros(len(improved)), epochs, epochs, torch.zeros(len(improved), dtype=torch.bool))


def test_a_time_limit_stops_all_and_follows_another_rule_before():
    rule = TimeLimit(2.0, Patience(1))
    assert rule(best_of([0, 1]), [{"seconds": 0.5}] * 2).tolist() == [True, False]
    assert rule(best_of([0, 1]), [{"seconds": 1.0}] * 2) is True
    assert TimeLimit(2.0)(best_of([0]), [{"seconds": 0.5}]) is False


class Watched(PairwiseSimilarity):
    """Pairs that note how many threads they are inferred on, and how many a new thread would begin with."""

    def __init__(self) -> None:
        self.here: set[int] = set()
        self.elsewhere: set[int] = set()

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        self.here.add(torch.get_num_threads())
        with ThreadPoolExecutor(1) as pool:
            self.elsewhere.add(pool.submit(torch.get_num_threads).result())
        return super().infer(log_probs, segments, z)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("shape", "limit", "expected"), [((3,), 1e9, 1), ((3,), 1e3, 2), ((1, 1, 3), 1e9, 2)])
def test_small_steps_on_tables_run_on_one_thread_and_other_threads_are_left_alone(shape, limit, expected):
    X, pairs = torch.randn(40, *shape), Groups.from_tuples(torch.arange(40).view(20, 2))
    aggregate = Watched()
    observed = Observations(aggregate, pairs, torch.ones(20, dtype=torch.int64), 2)
    limits = Limits(min_threaded_operations=limit)
    train(lambda: Linear(3, 2), X, [observed], Settings(epochs=2), limits=limits)
    assert aggregate.here == {expected}
    assert aggregate.elsewhere == {2}
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_an_error_sets_the_number_of_threads_back():
    X, pairs = torch.randn(4, 3), Groups.from_tuples([[0, 1], [2, 3]])
    observed = Observations(PairwiseSimilarity(), pairs, [1, 1], 2)

    def fail(predict):
        raise KeyError

    with pytest.raises(KeyError):
        train(lambda: Linear(3, 2), X, [observed], Settings(epochs=2), score=fail)
    assert torch.get_num_threads() == 2
