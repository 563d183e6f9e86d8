"""Comparisons of two or three instances: whether their classes are the same."""

from abc import abstractmethod
from functools import partial
from typing import Any

import torch
from torch import Tensor

from unbag._kernels.logspace import infer_products, log_complement, log_sum_others, logsumexp, normalise, sum_others
from unbag._kernels.segments import Segments
from unbag.aggregates.base import Aggregate, AnswerColumn, Wording, check_binary, check_labels, is_tracing
from unbag.data.groups import Groups


class Comparison(Aggregate):
    """A comparison of the labels of a fixed number of members, 1 where it holds.

    A subclass defines the comparison of labels and :meth:`infer`, which a CUDA graph can capture.
    """

    outcome = "yes_no"

    @abstractmethod
    def _compare(self, *labels: Tensor) -> Tensor:
        """Return where the observation is 1, from the labels of the first members, of the second, and so on."""

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        self.check_sizes(groups)
        members = check_labels(labels, groups, n_classes)
        return self._compare(*members.view(len(groups), -1).unbind(1)).long()

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        return check_binary(z, groups, n_classes)

    def capturable(self, size: int, n_classes: int) -> bool:
        return True


class PairwiseSimilarity(Comparison):
    """Pairs with the observation 1 if both labels are equal.

    ``p(z=1 | x_1, x_2) = sum_j p(y_1=j) p(y_2=j)``. Pairs do not identify the classes: any permutation of them has the
    same likelihood.

    Examples
    --------
    >>> from unbag import Groups
    >>> pairs = Groups.from_tuples([[0, 1], [1, 2]])
    >>> PairwiseSimilarity().observe([4, 4, 0], pairs, n_classes=5)
    tensor([1, 0])
    >>> logits = torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]]).log()
    >>> PairwiseSimilarity().posterior(logits, pairs, [1, 0])
    tensor([[0.9000, 0.1000],
            [0.9000, 0.1000],
            [0.8000, 0.2000],
            [0.2000, 0.8000]])
    """

    size = 2
    wording = Wording("Pairs", "whether its two rows are of one class", "pair", "pairs", "same", "different")
    column = AnswerColumn(
        yes=("similar", "same", "equal", "alike", "match", "positive"),
        contrary=(
            *("different", "dissimilar", "unequal", "unlike", "distinct", "differ", "differs", "mismatch"),
            *("unsimilar", "inequal", "opposite", "negative"),
        ),
        doubtful=("distance", "lower", "higher", "greater", "closer", "farther"),
        meanings=("the two are alike", "the two differ", "the two differ", "the two are alike"),
        symmetric=True,
    )

    def _compare(self, *labels: Tensor) -> Tensor:
        first, second = labels
        return first == second

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        def weigh(probs: Tensor) -> Tensor:
            partners = probs.flip(0)
            return torch.where(z, partners, sum_others(partners))

        if not is_tracing(log_probs) and (products := infer_products(log_probs, len(segments), weigh)) is not None:
            return products
        pairs = log_probs.view(len(segments), 2, -1)
        partners = pairs.flip(1)
        # The partner of a member with label j has label j, or any label but j.
        joint = pairs + torch.where(z[:, None, None], partners, log_complement(partners))
        log_likelihood, posterior = normalise(joint)
        return log_likelihood[:, 0], posterior.view_as(log_probs)


class TripletComparison(Comparison):
    """Triplets with the observation 1 if ``d(y_1, y_2) < d(y_1, y_3)``; d is 0 for equal labels, else 1.

    It is 1 if the first two labels are equal and the third differs:
    ``p(z=1 | x) = sum_j p(y_1=j) p(y_2=j) (1 - p(y_3=j))``. Triplets do not identify the classes.

    Examples
    --------
    >>> from unbag import Groups
    >>> triplets = Groups.from_tuples([[0, 1, 2], [0, 2, 1]])
    >>> TripletComparison().observe([3, 3, 1], triplets, n_classes=4)
    tensor([1, 0])
    """

    size = 3
    wording = Wording(
        "Triplets", "whether its first row is like the second and unlike the third", "triplet", "triplets", "yes", "no"
    )
    column = AnswerColumn(
        yes=("closer", "nearer"),
        contrary=("farther", "further"),
        doubtful=("similar", "same", "different", "dissimilar", "positive", "negative"),
        meanings=(
            "the second is nearer to the first than the third is",
            "the second is farther from the first than the third is",
            "the second is not nearer to the first than the third is",
            "the second is not farther from the first than the third is",
        ),
        contrary_order=(0, 2, 1),
    )

    def _compare(self, *labels: Tensor) -> Tensor:
        first, second, third = labels
        return (first == second) & (first != third)

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        weigh = partial(_weigh, yes=z)
        if not is_tracing(log_probs) and (products := infer_products(log_probs, len(segments), weigh)) is not None:
            return products
        triples = log_probs.view(len(segments), 3, -1)
        a, b, c = triples.unbind(1)  # each (groups, k)
        not_a, not_b, not_c = log_complement(triples).unbind(1)
        ab = a + b
        equal = ab + not_c
        yes = torch.stack([equal, equal, c + log_sum_others(ab)], 1)
        # z = 0 is the sum of two cases, the first two labels differ or all three are equal, because subtraction from 1
        # would lose precision.
        differ = logsumexp(a + not_b)
        no = triples + torch.logaddexp(
            torch.stack([not_b, not_a, differ.expand_as(c)], 1), torch.stack([b + c, a + c, ab], 1)
        )
        joint = torch.where(z[:, None, None], yes, no)  # (groups, 3, k)
        log_likelihood, posterior = normalise(joint)
        return log_likelihood[:, 0], posterior.view_as(log_probs)


def _weigh(probs: Tensor, yes: Tensor) -> Tensor:
    """Return the same sums as :meth:`TripletComparison.infer` from probabilities, (3, classes, groups)."""
    a, b, c = probs
    ab = a * b
    not_a, not_b, not_c, not_ab = sum_others(torch.cat([probs, ab[None]]))
    differ = (a * not_b).sum(0)
    no = torch.stack([torch.addcmul(not_b, b, c), torch.addcmul(not_a, a, c), differ + ab])
    return torch.where(yes, torch.stack([b * not_c, a * not_c, not_ab]), no)
