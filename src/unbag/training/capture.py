"""On a GPU, a step as one captured graph: hundreds of small operations become one launch.

A graph replays the same operations on the same memory. So everything that changes from step to step is a tensor that
stays in place: the order of the groups, the number of the step, the memory of what the models said, their weights.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from unbag.training.batches import Batch, Batches
from unbag.training.settings import Phase

Visit = Callable[[Phase, Sequence[Batch | None]], None]


def can_be_captured(sets: Sequence[Batches]) -> bool:
    """Whether the steps of these sets never wait for the processor."""
    return all(
        batches.groups.device.type == "cuda"
        and batches.groups.uniform_size is not None
        and batches.aggregate.capturable(batches.groups.uniform_size, batches.n_classes)
        for batches in sets
    )


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable garbage collection: freeing the graph of an earlier run would invalidate a capture."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class CapturedSteps:
    """Steps that are captured when they first occur, and replayed from then on.

    Parameters
    ----------
    sets
        What is learned from.
    visit
        Trains on the batches of a step.
    state
        Tensors that ``visit`` changes, before and after its first call; the trial runs that a capture needs are undone.
    """

    def __init__(self, sets: Sequence[Batches], visit: Visit, state: Callable[[], list[Tensor]]) -> None:
        self._sets = sets
        self._train_step = visit
        self._state = state
        self._step = torch.zeros((), dtype=torch.int64, device=sets[0].groups.device)
        self._graphs: dict[tuple[Phase, tuple[int, ...]], torch.cuda.CUDAGraph] = {}

    def go_to(self, step: int) -> None:
        """Set the number of the step that comes next."""
        self._step.fill_(step)

    def run(self, phase: Phase, step: int) -> None:
        """Train on the step of this number, which must follow the one before."""
        sizes = tuple(batches.size(step) for batches in self._sets)
        if (phase, sizes) not in self._graphs:
            self._graphs[phase, sizes] = self._capture(phase, sizes)
        self._graphs[phase, sizes].replay()

    def _capture(self, phase: Phase, sizes: tuple[int, ...]) -> torch.cuda.CUDAGraph:
        before = [tensor.detach().clone() for tensor in self._state()]
        step = self._step.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # twice for real, so that what is made once exists before the capture
            for _ in range(2):
                self._once(phase, sizes)
                self._step.copy_(step)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with gc_disabled(), torch.cuda.graph(graph, stream=side):
            self._once(phase, sizes)
        after = [tensor.detach() for tensor in self._state()]
        for tensor, old in zip(after, before, strict=False):
            tensor.copy_(old)
        for tensor in after[len(before) :]:  # made by the first step, which has not been taken yet
            tensor.zero_()
        self._step.copy_(step)
        return graph

    def _once(self, phase: Phase, sizes: tuple[int, ...]) -> None:
        pairs = zip(self._sets, sizes, strict=True)
        self._train_step(phase, [batches.batch_at(self._step, size) for batches, size in pairs])
        self._step += 1
