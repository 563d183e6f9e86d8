"""Small steps run on one thread, and nothing else changes its number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from unbag import Groups, PairwiseSimilarity
from unbag._kernels.segments import Segments
from unbag.training import Observations, Settings, train
from unbag.training import threads as module
from unbag.training.architectures import Linear


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


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("worth", "expected"), [(1e9, 1), (1e3, 2)], ids=["small", "large"])
def test_threads_follow_the_size_of_a_step(worth: float, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORTH_THREADS", worth)
    X, pairs = torch.randn(40, 3), Groups.from_tuples(torch.arange(40).view(20, 2))
    aggregate = Watched()
    observed = Observations(aggregate, pairs, torch.ones(20, dtype=torch.int64), 2)
    train(lambda: Linear(3, 2), X, [observed], Settings(epochs=2))
    assert aggregate.here == {expected}
    assert aggregate.elsewhere == {2}
    assert torch.get_num_threads() == 2


def test_images_and_a_lower_number_are_left_alone() -> None:
    with module.threads_for_step(torch.zeros(2, 1, 8, 8), 2, 10):
        assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    with module.threads_for_step(torch.zeros(2, 3), 10**9, 10**9):
        assert torch.get_num_threads() == 1


def test_an_error_sets_the_number_back() -> None:
    with pytest.raises(KeyError), module.threads_for_step(torch.zeros(2, 3), 2, 10):
        raise KeyError
    assert torch.get_num_threads() == 2
