"""What processes that train together tell each other: gradients, what models said, and each other's replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from unbag.training.run import Run


def add_up_step(run: Run) -> None:
    """Add up the gradients of all processes, and exchange what their models said, which the memory keeps."""
    parameters = run.replicas.parameters()
    # A parameter that no process uses has no gradient, and stays as it is.
    used = torch.tensor([float(one.grad is not None) for one in parameters], device=run.X.device)
    grads = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
    visited = [
        (memory, *batches.memory_of(run.step))
        for memory, batches in zip(run.memory, run.batches, strict=True)
        if len(memory)
    ]
    remembered = [memory.index_select(0, which).masked_fill_(~own[:, None], 0) for memory, which, own in visited]
    run.processes.sum_([used, *grads, *remembered])
    for one, grad, n in zip(parameters, grads, used.tolist(), strict=True):
        one.grad = grad if n else None
    for (memory, which, _), log_probs in zip(visited, remembered, strict=True):
        memory.index_copy_(0, which, log_probs)


def predict(run: Run, X: Tensor, chunk: int = 8192, *, own: bool = False) -> Tensor:
    """Run all replicas as :meth:`Replicas.predict` does, each process its share of them and of the rows."""
    n, share = X.shape[int(own)], run.share
    if run.processes.size == 1 or n < share.parts:
        return run.replicas.predict(X, chunk, own=own)
    rows = share.of_range(n)
    outputs = run.replicas.predict(X[share.replicas, rows] if own else X[rows], chunk, own=own)
    logits = outputs.new_zeros(len(run.seeds), n, outputs.shape[2])
    logits[share.replicas, rows] = outputs
    run.processes.sum_([logits])
    return logits


def gather(run: Run) -> None:
    """Bring together what each process has of its own replicas, and its share of the sum of losses."""
    if run.processes.size == 1:
        return
    tensors = [run.loss_sum]
    if run.share.parts == 1:
        averaged = {} if run.average is None else run.average.state
        of_replicas = [run.replicas.state, averaged, *(best.weights for best in run.best)]
        kept = [(one, run.share.replicas) for named in of_replicas for one in named.values()]
        kept += [(one, run.share.replicas) for one in run.optimisation.tensors() if one.ndim]
        kept += [(one, batches.own_memory) for one, batches in zip(run.memory, run.batches, strict=True) if len(one)]
        for one, own in kept:
            values = one.detach()
            values[: own.start] = 0
            values[own.stop :] = 0
            tensors.append(values)
    run.processes.sum_(tensors)
    if not run.processes.first:  # of which the first keeps all
        run.loss_sum.zero_()
