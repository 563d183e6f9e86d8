"""K-means on the device where the vectors are."""

from __future__ import annotations

import torch
from torch import Tensor

STARTS = 5
MOST_ITERATIONS = 100
ITERATIONS_BETWEEN_CHECKS = 5


def k_means(vectors: Tensor, k: int) -> Tensor:
    """Return the cluster of each vector, (n, d) to (n,): Lloyd's algorithm, the best of five starts of k-means++.

    Starts are drawn by fixed random numbers, so that equal vectors have equal clusters. A cluster that loses all its
    vectors stays where it was.

    Examples
    --------
    >>> k_means(torch.tensor([[0.0], [5.0], [0.1], [5.2]]), 2).diff().abs()
    tensor([1, 1, 1])
    """
    # From their mean, so that squares lose no digits far from zero.
    x = vectors.double() - vectors.double().mean(0)
    squares = x.square().sum(1)
    centres = _first_centres(x, k)  # (starts, k, d)
    labels = _nearest(x, centres)
    for iteration in range(1, MOST_ITERATIONS + 1):
        member = torch.nn.functional.one_hot(labels, k).to(x)  # (starts, n, k)
        sizes = member.sum(1)[:, :, None]  # (starts, k, 1)
        centres = torch.where(sizes > 0, (member.mT @ x) / sizes.clamp_min(1), centres)
        before, labels = labels, _nearest(x, centres)
        if iteration % ITERATIONS_BETWEEN_CHECKS == 0 and torch.equal(before, labels):
            break
    own = centres.gather(1, labels[:, :, None].expand(-1, -1, x.shape[1]))  # (starts, n, d)
    cost = (squares - 2 * (own * x).sum(2) + own.square().sum(2)).sum(1)
    return labels[cost.argmin()]


def _first_centres(x: Tensor, k: int) -> Tensor:
    """Draw vectors as centres one after the other, each by its squared distance from the nearest one before it."""
    draws = torch.rand(k, STARTS, dtype=x.dtype, generator=torch.Generator().manual_seed(0)).to(x.device)
    chosen = (draws[0] * len(x)).long()
    centres = [x[chosen]]
    distance = torch.full((STARTS, len(x)), torch.inf, dtype=x.dtype, device=x.device)
    for draw in draws[1:]:
        distance = torch.minimum(distance, (x - centres[-1][:, None]).square().sum(2))
        shares = distance.cumsum(1)
        place = torch.searchsorted(shares, (draw * shares[:, -1])[:, None], right=True)
        centres.append(x[place.squeeze(1).clamp_max(len(x) - 1)])
    return torch.stack(centres, 1)


def _nearest(x: Tensor, centres: Tensor) -> Tensor:
    """Return the nearest centre of each vector, (starts, n)."""
    return (centres.square().sum(2)[:, None] - 2 * x @ centres.mT).argmin(2)
