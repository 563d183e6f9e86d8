"""Counts of the classes of each group."""

from __future__ import annotations

from copy import copy
from functools import lru_cache
from math import log, log2
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from unbag._kernels.count_states import infer_weighted_states
from unbag._kernels.count_transform import infer_counts_by_transform
from unbag._kernels.lattice import forward_backward_in_log_space, safe_total
from unbag._kernels.logspace import log_softmax
from unbag._kernels.moment_matching import normal_log_likelihood
from unbag._kernels.permanents import infer_permanents
from unbag._kernels.poisson_binomial import infer_two_counts
from unbag._kernels.saddle_point import infer_counts_approximately
from unbag._kernels.segments import Segments
from unbag._utils.checks import check_choice
from unbag.aggregates.base import Aggregate, Wording, check_labels
from unbag.aggregates.count_methods import Part, Plan, infer_parts, make_parts, raise_if_out_of_reach
from unbag.aggregates.counts import check_counts
from unbag.data.alignment import read_per_group
from unbag.data.groups import Groups

Method = Literal["auto", "exact", "saddle_point"]

LARGEST_PERMANENT = 10
"""Size up to which all groups of one size are computed together, as permanents, whatever their counts."""
STATES_IN_TRAINING = 2**LARGEST_PERMANENT
"""Count vectors beyond which training uses the saddle point.

Exact steps take 2 to 10 times as long, and the held-out log-likelihood is not higher. Permanents have up to as many."""


class LabelProportions(Aggregate):
    """Counts of the classes in groups of any sizes.

    Observations are counts, one column per class, or proportions, which are converted to counts. The likelihood is
    joint over all classes: the sum over all assignments of the counted labels to the members.

    It is exact for two classes (or two that occur in a group), and for more classes if the number of intermediate count
    vectors, ``prod_j (z_j + 1)``, is at most ``max_states``. Otherwise it is the saddle-point approximation.
    :meth:`plan` returns the method of each group.

    Parameters
    ----------
    method
        ``"auto"``, ``"exact"`` to raise an error instead of approximating, or ``"saddle_point"`` to approximate all.
    max_states
        Largest number of count vectors of a group that is computed exactly.

    Examples
    --------
    >>> groups = Groups.from_sizes([3, 2])
    >>> (counts := LabelProportions().observe([0, 2, 2, 1, 0], groups, n_classes=3))
    tensor([[1, 0, 2],
            [1, 1, 0]])
    >>> LabelProportions().log_likelihood(torch.zeros(5, 3), groups, counts).exp()
    tensor([0.1111, 0.2222])
    """

    outcome = "class_counts"
    wording = Wording("Counts of classes", "how many of its rows are of each class")

    def __init__(self, method: Method = "auto", max_states: int = 2**17) -> None:
        check_choice("method", method, get_args(Method))
        if isinstance(max_states, bool) or not isinstance(max_states, int) or max_states < 1:
            raise ValueError(f"max_states must be a whole number of at least 1, got {max_states!r}")
        self.method = method
        self.max_states = max_states

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        labels = check_labels(labels, groups, n_classes)
        return groups.segments.sum(torch.nn.functional.one_hot(labels, n_classes))

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        counts = check_counts(z, groups, n_classes)
        if self.method == "exact":
            states = _n_states(counts).masked_fill((counts > 0).sum(1) <= 2, 0)
            raise_if_out_of_reach(states, self.max_states, groups, "the saddle point")
        return counts

    def for_training(self) -> LabelProportions:
        if self.method == "exact" or self.max_states <= STATES_IN_TRAINING:
            return self
        cheaper = copy(self)  # also of a subclass
        cheaper.max_states = STATES_IN_TRAINING
        return cheaper

    def expect(self, log_probs: Tensor, groups: Groups) -> Tensor:
        return groups.segments.sum(log_probs.exp())

    def information(self, z: Tensor, groups: Groups, n_classes: int) -> float:
        """Return log2 of the number of count vectors, (m + k - 1 choose k - 1), summed over groups."""
        m, k = groups.sizes.double(), torch.tensor(n_classes, dtype=torch.float64, device=groups.device)
        return float((torch.lgamma(m + k) - torch.lgamma(m + 1) - torch.lgamma(k)).sum()) / log(2)

    def plan(self, groups: Groups, z: Any) -> Plan:
        """Return the method that computes each group."""
        self.check_sizes(groups)
        z = read_per_group(z, groups)
        parts = self._parts(groups.segments, self.check(z, groups, *z.shape[-1:]))
        return Plan.from_parts(parts, groups.sizes)

    def capturable(self, size: int, n_classes: int) -> bool:
        return self.method != "saddle_point" and n_classes > 2 and size <= LARGEST_PERMANENT <= log2(self.max_states)

    def smooth_log_likelihood(self, logits: Tensor, segments: Segments, z: Tensor) -> Tensor:
        """Approximate counts by independent normal variables with k - 1 degrees of freedom; groups of one are exact."""
        several, is_single = normal_log_likelihood(logits, segments, z, logits.new_zeros(())), segments.sizes == 1
        if not bool(is_single.any()):
            return several
        return torch.where(is_single, (z * segments.sum(logits.log_softmax(1))).sum(1), several)

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        return infer_parts(self._parts(segments, z), _infer_part, log_probs, segments, z)

    def _parts(self, segments: Segments, z: Tensor) -> list[Part]:
        everything = torch.arange(len(segments), device=z.device)
        if self.method == "saddle_point":
            return [Part("saddle_point", everything)]
        if z.shape[1] == 2:
            return [Part("two_classes", everything)]
        if segments.uniform_size is not None and segments.uniform_size <= LARGEST_PERMANENT <= log2(self.max_states):
            return [Part("permanents", everything)]
        fit, few = _n_states(z) <= self.max_states, (z > 0).sum(1) <= 2
        small = (segments.sizes <= LARGEST_PERMANENT) & fit
        return make_parts(
            ("permanents", small, segments.sizes),
            ("two_classes", few & ~small, None),
            ("count_states", fit & ~(small | few), None),
            ("saddle_point", ~(fit | few), None),
        )


def _n_states(counts: Tensor) -> Tensor:
    """Return the number of intermediate count vectors of each group."""
    return (counts.double() + 1).prod(1)


def _infer_part(part: Part, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return likelihood and posterior of the groups of one part."""
    if part.method == "permanents":
        # On a GPU, testing for underflow of the fast method would synchronise.
        sum_permanents = _sum_permanents_in_log_space if log_probs.is_cuda else _sum_permanents
        log_total, posterior = sum_permanents(log_probs, segments, z)
        # A permanent counts each label vector once for each order of equal labels.
        orders = _log_factorials(z.device).index_select(0, z.view(-1)).view_as(z).sum(1)
        return log_total - orders, posterior
    log_probs = log_softmax(log_probs.double())  # rounding errors of many members would accumulate
    if part.method == "two_classes":
        return _infer_two_classes(log_probs, segments, z)
    if part.method == "saddle_point":
        return infer_counts_approximately(log_probs, segments, z)
    return infer_counts_by_transform(log_probs, segments, z)


def _infer_two_classes(log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
    if log_probs.shape[1] == 2:
        log_likelihood, yes = infer_two_counts(log_probs[:, 0], log_probs[:, 1], segments, z[:, 1])
        return log_likelihood, torch.stack([1 - yes, yes], 1)
    counts, classes = z.topk(2, 1)  # the two classes that occur, or one that occurs and any other
    log_yes, log_no = log_probs.gather(1, segments.expand(classes)).unbind(1)
    log_no = log_no.masked_fill(segments.expand(counts[:, 1] == 0), float("-inf"))
    log_likelihood, yes = infer_two_counts(log_no, log_yes, segments, counts[:, 0])
    shares = torch.stack([yes, 1 - yes], 1)
    return log_likelihood, torch.zeros_like(log_probs, dtype=shares.dtype).scatter_(1, segments.expand(classes), shares)


def _sum_permanents(log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
    total, posterior = infer_permanents(log_probs, z)
    log_total = total.double().log_()
    if float(total.min()) < safe_total(total.dtype):
        repeated = (total < safe_total(total.dtype)).nonzero().flatten()
        rows, inside = segments.take(repeated)
        log_total[repeated], exact = _sum_permanents_in_log_space(log_probs[rows], inside, z[repeated])
        posterior[rows] = exact.to(posterior.dtype)
    return log_total, posterior


def _sum_permanents_in_log_space(log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
    entry = torch.repeat_interleave(z.view(-1), output_size=len(log_probs))  # group * k + class
    places = entry.remainder(z.shape[1]).view(len(z), -1)
    once = torch.arange(2, dtype=torch.float64, device=z.device).log().expand(*places.shape, 2)  # no, or one member
    largest = (1,) * places.shape[1]
    return infer_weighted_states(log_probs, segments, places, once, largest, infer=forward_backward_in_log_space)


@lru_cache(maxsize=4)
def _log_factorials(device: torch.device) -> Tensor:
    return torch.lgamma(torch.arange(LARGEST_PERMANENT + 1, dtype=torch.float64, device=device) + 1)
