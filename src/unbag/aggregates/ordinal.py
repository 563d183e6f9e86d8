"""Comparisons of two or three instances with ordered classes."""

from functools import lru_cache
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor

from unbag._kernels.logspace import cumulate, normalise
from unbag._kernels.segments import Segments
from unbag.aggregates.base import AnswerColumn, Wording
from unbag.aggregates.comparisons import Comparison, TripletComparison

Relation = Literal["<", ">", "<=", ">="]

_COMPARE = {"<": torch.lt, ">": torch.gt, "<=": torch.le, ">=": torch.ge}
_OPPOSITE: dict[Relation, Relation] = {"<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRROR: dict[Relation, Relation] = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


class OrdinalRank(Comparison):
    """Pairs with ordered classes and the observation 1 if ``y_1 < y_2``, or another relation.

    Examples
    --------
    >>> from unbag import Groups
    >>> pairs = Groups.from_tuples([[0, 1], [1, 0], [0, 0]])
    >>> OrdinalRank().observe([1, 2], pairs, n_classes=3)
    tensor([1, 0, 0])
    >>> OrdinalRank(relation=">=").observe([1, 2], pairs, n_classes=3)
    tensor([0, 1, 1])
    """

    size = 2
    wording = Wording("Ranks", "whether its two rows stand in a given order", "pair", "pairs", "yes", "no")
    column = AnswerColumn(
        yes=("lower", "less", "smaller", "below"),
        contrary=("higher", "greater", "larger", "bigger", "above", "more"),
        doubtful=("better", "worse", "preferred", "wins", "won", "winner", "beats", "before", "after", "same", "equal"),
        meanings=("the first is lower", "the first is higher", "the first is not lower", "the first is not higher"),
    )

    def __init__(self, relation: Relation = "<") -> None:
        if relation not in _COMPARE:
            raise ValueError(f"relation must be one of {', '.join(_COMPARE)}; got {relation!r}")
        self.relation: Relation = relation

    def _compare(self, *labels: Tensor) -> Tensor:
        return _COMPARE[self.relation](*labels)

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        pairs = log_probs.view(len(segments), 2, -1)
        up_to, from_on = cumulate(pairs)

        def partners(relation: Relation) -> Tensor:
            """Compute log p(the pair satisfies the relation | label of a member): (groups, 2, k)."""
            first = _sum_related(relation, up_to[:, 1], from_on[:, 1])
            second = _sum_related(_MIRROR[relation], up_to[:, 0], from_on[:, 0])
            return torch.stack([first, second], 1)

        yes, no = partners(self.relation), partners(_OPPOSITE[self.relation])
        joint = pairs + torch.where(z[:, None, None], yes, no)
        log_likelihood, posterior = normalise(joint)
        return log_likelihood[:, 0], posterior.view_as(log_probs)


def _sum_related(relation: Relation, up_to: Tensor, from_on: Tensor) -> Tensor:
    """Compute the log-probability that a label v satisfies ``j relation v``, for each j of the last dimension."""
    nothing = up_to.new_full((*up_to.shape[:-1], 1), float("-inf"))
    if relation == "<":
        return torch.cat([from_on[..., 1:], nothing], -1)
    if relation == ">":
        return torch.cat([nothing, up_to[..., :-1]], -1)
    return from_on if relation == "<=" else up_to


class OrdinalTriplet(Comparison):
    """Triplets with ordered classes and the observation 1 if ``|y_1 - y_2| < |y_1 - y_3|``.

    Examples
    --------
    >>> from unbag import Groups
    >>> triplets = Groups.from_tuples([[0, 1, 2], [2, 0, 1]])
    >>> OrdinalTriplet().observe([0, 1, 4], triplets, n_classes=5)
    tensor([1, 0])
    """

    size = 3
    wording = Wording(
        *("Ordered triplets", "whether its first row is closer to the second than to the third"),
        *("triplet", "triplets", "yes", "no"),
    )
    column = TripletComparison.column

    def _compare(self, *labels: Tensor) -> Tensor:
        first, second, third = labels
        return (first - second).abs() < (first - third).abs()

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        k, n = log_probs.shape[1], len(segments)
        # With the groups in the last dimension, selecting classes copies whole rows.
        first, second, third = log_probs.view(n, 3, k).permute(1, 2, 0).contiguous()  # each (k, groups)
        # If z = 1, the second member is nearer to the label v of the first than the third; if 0, the third is nearer
        # or they tie. Given the distance r = |v - j| of one of them, sum over the labels of the other.
        within, beyond = _sum_distances(torch.where(z, second, third), torch.where(z, third, second))
        at, after = _distances(k, log_probs.device)
        within = torch.where(z, within.index_select(0, at), within.index_select(0, after))  # (v * j, groups)
        beyond = torch.where(z, beyond.index_select(0, after), beyond.index_select(0, at))
        with_second = torch.where(z, beyond, within)
        with_third = torch.where(z, within, beyond)
        with_second.view(k, k, n).add_(first[:, None]).add_(second)
        with_third.view(k, k, n).add_(first[:, None]).add_(third)
        log_likelihood, first_second = normalise(with_second, dim=0)
        _, first_third = normalise(with_third, dim=0)
        first_second, first_third = first_second.view(k, k, n), first_third.view(k, k, n)
        posterior = torch.stack([first_second.sum(1), first_second.sum(0), first_third.sum(0)])  # (3, k, groups)
        return log_likelihood, posterior.permute(2, 0, 1).reshape(log_probs.shape)


def _sum_distances(nearer: Tensor, farther: Tensor) -> tuple[Tensor, Tensor]:
    """Sum the probabilities of labels by their distance from v, both tables (k, groups) to (distance * v, groups).

    Row d of the first result is the log-probability of a distance of at most d - 1; of the second, of at least d.
    """
    k, n = nearer.shape
    none = nearer.new_full((1, n), float("-inf"))
    r, v = _grid(k, nearer.device)
    below, above = ((v + step).where((v + step >= 0) & (v + step < k), k)[1:].flatten() for step in (-r, r))

    def sum_rings(log_probs: Tensor) -> tuple[Tensor, ...]:
        padded = torch.cat([log_probs, none])  # row k: no label
        rings = torch.logaddexp(padded.index_select(0, below), padded.index_select(0, above))
        return log_probs, *rings.split(k)  # the distance is 0, 1, .., k - 1

    rings = zip(sum_rings(nearer), sum_rings(farther)[::-1], strict=True)
    discs = list(accumulate(map(torch.stack, rings), torch.logaddexp))
    nothing = none.expand(k, n)
    return torch.cat([nothing, *(disc[0] for disc in discs)]), torch.cat([*(disc[1] for disc in discs[::-1]), nothing])


@lru_cache(maxsize=64)
def _grid(k: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return two tables of the numbers from 0 to k - 1, by row and by column."""
    first, second = torch.meshgrid(torch.arange(k, device=device), torch.arange(k, device=device), indexing="ij")
    return first, second


@lru_cache(maxsize=64)
def _distances(k: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the rows of :func:`_sum_distances` for each v and j: those of the distance |v - j|, and the next ones."""
    v, j = _grid(k, device)
    rows = ((v - j).abs() * k + v).flatten()
    return rows, rows + k
