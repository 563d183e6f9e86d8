"""Processes that train together: each trains on its part of every step, and sums over all keep their models equal.

All processes draw the same batches from the same seeds, and know the number of groups of a step. The contribution of a
process to a gradient is therefore the sum over its groups divided by the number of all, whatever the sizes and numbers
of groups in each part, and the sum over processes is the gradient of the whole step. Averaging gradients, as DDP does,
would be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

RESUME = "start the run again, with any number of processes: it resumes from its checkpoint if it has one"


class ProcessLost(ConnectionError):
    """A process of a run that several train together has ended, or cannot be reached."""


@dataclass(frozen=True)
class Processes:
    """One process among those that train together, in the default process group of ``torch.distributed``.

    Parameters
    ----------
    rank
        Number of this process, from 0.
    size
        Number of processes.
    device
        Device of its tensors.
    """

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    @property
    def first(self) -> bool:
        """Whether this process reads and writes checkpoints."""
        return self.rank == 0

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over all processes, in one message for each dtype."""
        if self.size == 1:
            return
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            summed = [tensor.detach() for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.flatten() for tensor in summed])
            with _raise_process_lost():
                torch.distributed.all_reduce(flat)
            for tensor, total in zip(summed, flat.split([tensor.numel() for tensor in summed]), strict=True):
                tensor.copy_(total.view_as(tensor))

    def any(self, *flags: bool) -> list[bool]:
        """Return for each flag whether it is set in any process."""
        counts = torch.tensor(flags, dtype=torch.float32, device=self.device)
        self.sum_([counts])
        return [bool(count) for count in counts.tolist()]

    def copy_first_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by those of the first process."""
        for tensor in tensors if self.size > 1 else ():
            copied = tensor.detach().contiguous()
            with _raise_process_lost():
                torch.distributed.broadcast(copied, 0)
            tensor.detach().copy_(copied)

    def broadcast(self, content: bytes) -> bytes:
        """Return the bytes of the first process."""
        if self.size == 1:
            return content
        length = torch.tensor([len(content)], device=self.device)
        self.copy_first_([length])
        received = torch.zeros(int(length), dtype=torch.uint8, device=self.device)
        if self.first:
            received.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        self.copy_first_([received])
        return received.cpu().numpy().tobytes()


@contextmanager
def _raise_process_lost() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ProcessLost(f"another process of the run has ended, or cannot be reached ({reason}); {RESUME}") from error
