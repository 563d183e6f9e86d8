"""Algorithm 1 of the paper a second time: one model, one group after the other, nothing clever."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from unbag import Groups
from unbag.training import Observations, Settings

LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "cross_entropy": lambda logits: -logits.log_softmax(1),
    "mae": lambda logits: 2 - 2 * logits.softmax(1),
}


def train_naively(
    make_model: Callable[[], nn.Module], X: Tensor, sets: Sequence[Observations], settings: Settings, seed: int
) -> tuple[nn.Module, list[float]]:
    """Return the model after the last epoch, and the mean of what each epoch minimised."""
    torch.manual_seed(seed)
    model = make_model()
    optimiser = torch.optim.Adam(model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    generator = torch.Generator().manual_seed(seed)
    n_steps = math.ceil(max(len(one.groups) for one in sets) / settings.batch_size)
    memory: dict[tuple[int, int], Tensor] = {}  # by number of the set and of the group: what the model said of it
    history = []
    for epoch in range(settings.epochs):
        orders = [torch.randperm(len(one.groups), generator=generator).tolist() for one in sets]
        epoch_total = 0.0
        for step in range(n_steps):
            total = torch.zeros(())
            for number, (one, order) in enumerate(zip(sets, orders, strict=True)):
                visited = order[len(order) * step // n_steps : len(order) * (step + 1) // n_steps]
                for group in visited:
                    start, end = one.groups.offsets[group : group + 2].tolist()
                    rows = one.groups.members[start:end]
                    alone, z = Groups.from_sizes([len(rows)]), one.z[group : group + 1]
                    logits = model(X[rows])
                    if epoch < settings.warm_up:
                        value = -one.aggregate.log_likelihood(logits, alone, z).sum()
                    else:
                        known = logits.detach()
                        if settings.remember_from is not None and epoch >= settings.remember_from:
                            known = memory.get((number, group), torch.zeros_like(known))
                        weights = one.aggregate.posterior(known, alone, z)
                        value = (weights * LOSSES[str(settings.loss)](logits)).sum() / len(rows)
                    memory[number, group] = logits.detach()
                    total = total + one.weight * value / len(visited)
            optimiser.zero_grad()
            total.backward()
            optimiser.step()
            epoch_total += total.item()
        history.append(epoch_total / n_steps)
    return model, history
