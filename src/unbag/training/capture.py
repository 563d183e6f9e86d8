"""On a GPU, a step as one captured graph: hundreds of small operations become one launch.

A graph repeats the same operations on the same memory. Whatever changes from step to step must therefore be a tensor
that stays in place: the order of the groups, the number of the step, the remembered outputs, the weights.
"""

import gc
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.optim import Adam, Optimizer

from unbag.training.batches import Batches
from unbag.training.settings import Phase
from unbag.training.step import Step

Record = Callable[[Callable[[], None], Callable[[], None]], Callable[[], None]]
"""From a step and a function that resets its number, to a function that repeats the step."""


def can_be_captured(sets: Sequence[Batches], optimiser: Optimizer) -> bool:
    """Return whether steps never wait for the processor, and a captured step has the effect of a plain one."""
    # The state of Adam starts with zeros, as it must.
    capturable = isinstance(optimiser, Adam) and all(group.get("capturable") for group in optimiser.param_groups)
    return capturable and all(
        batches.groups.device.type == "cuda"
        and batches.groups.uniform_size is not None
        and batches.aggregate.capturable(batches.groups.uniform_size, batches.n_classes)
        for batches in sets
    )


def record_graph(step: Callable[[], None], reset: Callable[[], None]) -> Callable[[], None]:
    """Capture a step as a CUDA graph, after it has run twice so that all state that is created late exists."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
            reset()
    torch.cuda.current_stream().wait_stream(stream)
    graph, collects = torch.cuda.CUDAGraph(), gc.isenabled()
    gc.disable()  # freeing the graph of an earlier run would invalidate the capture
    try:
        with torch.cuda.graph(graph, stream=stream):
            step()
    finally:
        if collects:
            gc.enable()
    return graph.replay


class CapturedSteps:
    """Steps that are captured when they first occur, and replayed afterwards.

    ``state`` returns all tensors that a step changes: the trial runs that a capture needs are undone. Tensors that the
    first run creates must start as zeros.
    """

    def __init__(
        self, sets: Sequence[Batches], step: Step, state: Callable[[], list[Tensor]], record: Record = record_graph
    ) -> None:
        self._sets, self._step, self._state, self._record = sets, step, state, record
        self._number = torch.zeros((), dtype=torch.int64, device=sets[0].groups.device)
        self._replays: dict[tuple[Phase, tuple[int, ...]], Callable[[], None]] = {}

    def go_to(self, number: int) -> None:
        """Set the number of the next step."""
        self._number.fill_(number)

    def run(self, phase: Phase, number: int) -> None:
        """Train on the step of this number, which must follow the last step."""
        sizes = tuple(batches.size(number) for batches in self._sets)
        if (phase, sizes) not in self._replays:
            self._replays[phase, sizes] = self._capture(phase, sizes)
        self._replays[phase, sizes]()

    def _capture(self, phase: Phase, sizes: tuple[int, ...]) -> Callable[[], None]:
        before = [tensor.detach().clone() for tensor in self._state()]
        number = self._number.clone()

        def step() -> None:
            pairs = zip(self._sets, sizes, strict=True)
            self._step(phase, [batches.batch_at(self._number, size) for batches, size in pairs])
            self._number += 1

        def reset() -> None:
            self._number.copy_(number)

        replay = self._record(step, reset)
        after = [tensor.detach() for tensor in self._state()]
        for tensor, old in zip(after, before, strict=False):
            tensor.copy_(old)
        for tensor in after[len(before) :]:
            tensor.zero_()
        reset()
        return replay
