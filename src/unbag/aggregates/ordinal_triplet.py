"""Which of two instances has a class nearer to that of a third, where classes are ordered."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unbag.aggregates.base import Aggregate, check_labels, check_yes_no
from unbag.groups import Groups
from unbag.kernels.logspace import cumulate, normalise


class OrdinalTriplet(Aggregate):
    """Triplets of ordered classes, and 1 where ``|y_1 - y_2| < |y_1 - y_3|``.

    Examples
    --------
    >>> triplets = Groups.from_tuples([[0, 1, 2], [2, 0, 1]])
    >>> OrdinalTriplet().observe([0, 1, 4], triplets, n_classes=5)
    tensor([1, 0])
    """

    size = 3

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        self.check_sizes(groups)
        first, second, third = check_labels(labels, groups, n_classes).view(-1, 3).unbind(1)
        return ((first - second).abs() < (first - third).abs()).long()

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        return check_yes_no(z, groups, n_classes)

    def infer(self, log_probs: Tensor, groups: Groups, z: Tensor) -> tuple[Tensor, Tensor]:
        k, n = log_probs.shape[1], len(groups)
        # Classes first and groups last, so that picking classes copies whole rows.
        first, others = log_probs.view(n, 3, k).permute(2, 1, 0).reshape(k, 3 * n).split([n, 2 * n], 1)
        second, third = others[:, :n], others[:, n:]  # each (k, groups)
        up_to, from_on = (_with_none(part.t()) for part in cumulate(others.t()))  # each (k + 1, 2 * groups)
        discs = _discs(others)
        # Joint log-probabilities of z with label v of the first and j of another member, (v * j, groups): given both,
        # the remaining member has to lie beyond the distance |v - j| from v, or within it.
        at = _places(k, log_probs.device)

        def pick(table: Tensor, rows: Tensor) -> Tensor:
            return table.index_select(0, rows)

        third_farther = torch.logaddexp(pick(up_to[:, n:], at.below), pick(from_on[:, n:], at.above))
        third_not_farther = pick(discs[:, n:], at.disc)
        second_nearer = pick(discs[:, :n], at.inner_disc)
        second_not_nearer = torch.logaddexp(pick(up_to[:, :n], at.not_above), pick(from_on[:, :n], at.not_below))
        second_not_nearer[:: k + 1] = 0  # at distance 0 the two ends overlap in v, and every label is that far away
        with_second = torch.where(z, third_farther, third_not_farther)
        with_third = torch.where(z, second_nearer, second_not_nearer)
        with_second.view(k, k, n).add_(first[:, None]).add_(second)
        with_third.view(k, k, n).add_(first[:, None]).add_(third)
        log_likelihood, first_second = normalise(with_second, dim=0)
        _, first_third = normalise(with_third, dim=0)
        first_second, first_third = first_second.view(k, k, n), first_third.view(k, k, n)
        posterior = torch.stack([first_second.sum(1), first_second.sum(0), first_third.sum(0)])  # (3, k, groups)
        return log_likelihood, posterior.permute(2, 0, 1).reshape(log_probs.shape)


class _Places(NamedTuple):
    """Rows to pick for each label v and j, flat; row k of cumulated labels stands for "no label"."""

    below: Tensor  # v - r - 1, with r = |v - j|
    above: Tensor  # v + r + 1
    not_above: Tensor  # v - r
    not_below: Tensor  # v + r
    disc: Tensor  # labels within r of v
    inner_disc: Tensor  # labels within r - 1 of v


@lru_cache(maxsize=64)
def _places(k: int, device: torch.device) -> _Places:
    v, j = torch.meshgrid(torch.arange(k, device=device), torch.arange(k, device=device), indexing="ij")
    r = (v - j).abs()
    return _Places(
        below=_inside(v - r - 1, k),
        above=_inside(v + r + 1, k),
        not_above=_inside(v - r, k),
        not_below=_inside(v + r, k),
        disc=((r + 1) * k + v).flatten(),
        inner_disc=(r * k + v).flatten(),
    )


def _inside(labels: Tensor, k: int) -> Tensor:
    return labels.where((labels >= 0) & (labels < k), k).flatten()


def _with_none(log_probs: Tensor) -> Tensor:
    return torch.cat([log_probs, log_probs.new_full((1, log_probs.shape[1]), float("-inf"))])


def _discs(log_probs: Tensor) -> Tensor:
    """Log-probability of a label within r of v, for r = -1, 0, .., k - 1 and each v: (k, n) to ((k + 1) * k, n)."""
    k = len(log_probs)
    nothing = torch.full_like(log_probs, float("-inf"))
    padded = torch.cat([nothing, log_probs, nothing])
    discs = [nothing, log_probs]
    for r in range(1, k):
        ring = torch.logaddexp(padded[k - r : 2 * k - r], padded[k + r : 2 * k + r])  # v - r and v + r
        discs.append(torch.logaddexp(discs[-1], ring))
    return torch.cat(discs)
