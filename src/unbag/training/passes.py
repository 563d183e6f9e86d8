"""The forward and the backward pass of a step: at once, or part by part where a step has many rows.

What is minimised needs the outputs of all members of a group, but its slope in these outputs is all that the backward
pass needs. So a first forward pass yields the outputs and keeps nothing else; once their slope is known, a second one
runs again part by part, each followed by its backward pass. The gradient is the same up to rounding, and memory is that
of one part, whatever the sizes of groups.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from torch import Tensor

from unbag._utils.parts import join
from unbag._utils.random_state import RandomState
from unbag.training.batches import Batch
from unbag.training.replicas import Replicas

Inputs = Callable[[Tensor], Tensor]
"""From row numbers, (replicas, n), to what the models are run on, (replicas, n, ...)."""
Backward = Callable[[Tensor], None]
"""Adds to the gradients of the parameters, given a slope in the outputs."""

MOST_ROWS = 65_536
"""Rows, of all replicas together, beyond which a step runs part by part."""

PART_ROWS = 8192
"""Rows of a part, few enough for the caches of a processor: the two passes then take no longer than one at once."""


def fits(n_rows: int) -> bool:
    """Whether so many rows, of all replicas together, are run at once."""
    return n_rows <= MOST_ROWS


def run_at_once(replicas: Replicas, inputs: Inputs, batch: Batch) -> tuple[Tensor, Backward]:
    """Return outputs, one row per membership, and the backward pass from there."""
    outputs = batch.of_members(replicas(inputs(batch.rows), batch.replicas))
    return outputs.detach(), outputs.backward


def run_in_parts(
    replicas: Replicas, inputs: Inputs, batch: Batch, random: RandomState | None
) -> tuple[Tensor, Backward]:
    """Return the same without running more than `PART_ROWS` rows at a time.

    The second pass begins with the buffers and, where models or inputs may draw, with the random numbers of the first.
    """
    n = len(batch.rows)
    parts = batch.rows.split(max(1, PART_ROWS // n), 1)  # each (replicas, n)
    buffers = {name: buffer.clone() for name, buffer in replicas.buffers().items()}
    start = None if random is None else random.now()
    # With gradients, which are not used: without them, some layers choose other ways to compute, and to draw.
    predicted = (replicas(inputs(rows), batch.replicas).detach() for rows in parts)
    outputs = join((_by_replica(one, n) for one in predicted), batch.rows.shape[1], 1)

    def backward(slope: Tensor) -> None:
        for name, buffer in replicas.buffers().items():
            buffer.copy_(buffers[name])
        slopes = batch.of_rows(slope).split(parts[0].shape[1], 1)
        with nullcontext() if random is None or start is None else random.again_from(start):
            for rows, own in zip(parts, slopes, strict=True):
                replicas(inputs(rows), batch.replicas).float().backward(own.flatten(0, 1))

    return batch.of_members(outputs.flatten(0, 1)), backward


def _by_replica(outputs: Tensor, n: int) -> Tensor:
    return outputs.reshape(n, -1, outputs.shape[1])
