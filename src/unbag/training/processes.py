"""Processes that train together: every one takes its share of each step, and sums over all keep their models alike.

All draw the same batches from the same seeds, and know how many groups a step has. So what a process adds to a gradient
is the sum over its own groups divided by the number of all, whatever the sizes and numbers of groups in each share, and
the sum over processes is the gradient of the whole step. A process with no group adds zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from unbag.training.messages import broadcast

T = TypeVar("T")

GO_ON = "start the run again, with any number of processes: where it has a checkpoint, it goes on from there"


class ProcessLost(ConnectionError):
    """A process of a run that several train together has ended, or cannot be reached."""


@dataclass(frozen=True)
class Share:
    """What one process does of every step: some of the replicas, and a part of their groups.

    Examples
    --------
    >>> Share.of(Processes(1, 2), n_replicas=4), Share.of(Processes(1, 2), n_replicas=3)
    (Share(replicas=slice(2, 4, None), part=0, parts=1), Share(replicas=slice(0, 3, None), part=1, parts=2))
    """

    replicas: slice
    part: int = 0
    parts: int = 1

    @classmethod
    def of(cls, processes: Processes, n_replicas: int) -> Share:
        """Return whole replicas where each process gets as many, which need not talk at every step; else all of them.

        Folds are replicas, too.
        """
        if n_replicas % processes.size == 0:
            own = n_replicas // processes.size
            return cls(slice(processes.rank * own, (processes.rank + 1) * own))
        return cls(slice(0, n_replicas), processes.rank, processes.size)

    def of_range(self, n: int) -> slice:
        """Return the part of so many things that are as good as each other."""
        return slice(n * self.part // self.parts, n * (self.part + 1) // self.parts)


@dataclass(frozen=True)
class Processes:
    """One process among those that train together, by the default process group of ``torch.distributed``.

    Parameters
    ----------
    rank
        Its number, from 0.
    size
        How many there are; one process talks to nobody.
    device
        Where its tensors are.
    """

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    @property
    def first(self) -> bool:
        """Whether this is the process that reads and writes checkpoints."""
        return self.rank == 0

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over all processes, in one message for each type of numbers."""
        if self.size == 1:
            return
        for dtype in dict.fromkeys(one.dtype for one in tensors):
            some = [one.detach() for one in tensors if one.dtype == dtype]
            flat = torch.cat([one.flatten() for one in some])
            with _others_answer():
                torch.distributed.all_reduce(flat)
            for one, total in zip(some, flat.split([one.numel() for one in some]), strict=True):
                one.copy_(total.view_as(one))

    def any(self, *flags: bool) -> list[bool]:
        """Say of each flag whether it is set in any process."""
        if self.size == 1:
            return [*flags]
        answers = torch.tensor(flags, dtype=torch.float32, device=self.device)
        self.sum_([answers])
        return [bool(one) for one in answers.tolist()]

    def copy_first_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by those of the first process."""
        for one in tensors if self.size > 1 else ():
            own = one.detach().contiguous()
            with _others_answer():
                torch.distributed.broadcast(own, 0)
            one.detach().copy_(own)

    def of_first(self, make: Callable[[], T]) -> T:
        """Return what a function returns in the first process, where alone it is called: plain values and tensors."""
        if self.size == 1:
            return make()
        value = make() if self.first else None
        with _others_answer():
            received: T = broadcast(value, self.device, first=self.first)
        return received


@contextmanager
def _others_answer() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise ProcessLost(
            f"another process of the run has ended, or cannot be reached ({str(error).splitlines()[0]}); {GO_ON}"
        ) from error
