"""Exponential moving average of the weights, which needs no schedule of the learning rate to settle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from unbag.training.replicas import Replicas


class WeightAverage:
    """The exponential moving average of the weights of replicas.

    Parameters
    ----------
    replicas
        Whose parameters are averaged; of buffers, those of the last step are kept.
    decay
        How much of the average stays at every step. The first steps count for more, so that the start is forgotten.
    """

    state: dict[str, Tensor]
    """Parameters and buffers by name, with a leading dimension of replicas."""
    n_steps: Tensor
    """How many steps were averaged; on the device, as a captured graph reads it."""

    def __init__(self, replicas: Replicas, decay: float) -> None:
        self._replicas = replicas
        self._decay = decay
        self.state = replicas.snapshot()
        self.n_steps = torch.zeros((), device=next(iter(self.state.values())).device)

    def update(self) -> None:
        """Move the average towards the weights after a step."""
        self.n_steps += 1
        share = 1 - (self.n_steps / (self.n_steps + 9)).clamp(max=self._decay)
        for name, tensor in self._replicas.state.items():
            now = tensor.detach().view_as(self.state[name])
            if tensor.requires_grad:
                self.state[name].lerp_(now, share.to(now.dtype))
            else:
                self.state[name].copy_(now)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Have the replicas predict by the average."""
        own = self._replicas.snapshot()
        self._replicas.restore(self.state)
        try:
            yield
        finally:
            self._replicas.restore(own)
