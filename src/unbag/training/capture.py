"""On a GPU, a step as one captured graph: hundreds of small operations become one launch.

A graph repeats the same operations on the same memory. Whatever changes from step to step must therefore be a tensor
that stays in place: the order of the groups, the number of the step, the remembered outputs, the weights.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from unbag.training.batches import Batch, Batches
from unbag.training.settings import Phase

TrainStep = Callable[[Phase, Sequence[Batch | None]], None]
Record = Callable[[Callable[[], None], Callable[[], None]], Callable[[], None]]
"""From a function and one that undoes its effect on the step's number, to a function that repeats the first."""


def can_be_captured(sets: Sequence[Batches]) -> bool:
    """Return whether the steps of these sets never wait for the processor."""
    return all(
        batches.groups.device.type == "cuda"
        and batches.groups.uniform_size is not None
        and batches.aggregate.capturable(batches.groups.uniform_size, batches.n_classes)
        for batches in sets
    )


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable garbage collection: freeing the graph of an earlier run would invalidate a capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def record_graph(function: Callable[[], None], reset: Callable[[], None]) -> Callable[[], None]:
    """Capture a function as a CUDA graph, after it has run twice so that all lazily created state exists."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            function()
            reset()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with gc_disabled(), torch.cuda.graph(graph, stream=stream):
        function()
    return graph.replay


class CapturedSteps:
    """Steps that are captured when they first occur, and replayed from then on.

    Parameters
    ----------
    sets
        The sets of observations.
    train_step
        Trains on the batches of a step.
    state
        Returns all tensors that ``train_step`` changes; the trial runs that a capture needs are undone. Tensors that
        the first run creates must start as zeros.
    record
        Captures a function.
    """

    def __init__(
        self,
        sets: Sequence[Batches],
        train_step: TrainStep,
        state: Callable[[], list[Tensor]],
        record: Record = record_graph,
    ) -> None:
        self._sets, self._train_step, self._state, self._record = sets, train_step, state, record
        self._step = torch.zeros((), dtype=torch.int64, device=sets[0].groups.device)
        self._replays: dict[tuple[Phase, tuple[int, ...]], Callable[[], None]] = {}

    def go_to(self, step: int) -> None:
        """Set the number of the next step."""
        self._step.fill_(step)

    def run(self, phase: Phase, step: int) -> None:
        """Train on the step of this number, which must be the next one."""
        sizes = tuple(batches.size(step) for batches in self._sets)
        if (phase, sizes) not in self._replays:
            self._replays[phase, sizes] = self._capture(phase, sizes)
        self._replays[phase, sizes]()

    def _capture(self, phase: Phase, sizes: tuple[int, ...]) -> Callable[[], None]:
        before = [tensor.detach().clone() for tensor in self._state()]
        step = self._step.clone()

        def train_step() -> None:
            pairs = zip(self._sets, sizes, strict=True)
            self._train_step(phase, [batches.batch_at(self._step, size) for batches, size in pairs])
            self._step += 1

        def reset() -> None:
            self._step.copy_(step)

        replay = self._record(train_step, reset)
        after = [tensor.detach() for tensor in self._state()]
        for tensor, old in zip(after, before, strict=False):
            tensor.copy_(old)
        for tensor in after[len(before) :]:
            tensor.zero_()
        reset()
        return replay
