"""How many members of a group are of each class, as it was published: exact, in intervals, or with noise."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from math import lgamma, prod
from typing import Any, Literal

import torch
from torch import Tensor

from unbag._kernels.count_messages import infer_counts_by_messages, move_into_bounds, pass_messages
from unbag._kernels.lattice import safe_total
from unbag._kernels.logspace import log_softmax
from unbag._kernels.normal_counts import TOLERANCE, infer_counts_as_normal
from unbag._kernels.segments import Segments
from unbag._kernels.subsets import infer_subsets
from unbag._kernels.weighted_counts import infer_weighted_counts
from unbag._kernels.weighted_states import infer_weighted_states
from unbag._utils.checks import format_indices
from unbag.aggregates.base import Aggregate
from unbag.aggregates.count_methods import Part, Plan, drop_empty, infer_parts, split_by
from unbag.aggregates.label_proportions import LabelProportions
from unbag.aggregates.statements import check_statements, n_missing
from unbag.aggregates.traits import Wording
from unbag.data.alignment import read_per_group
from unbag.data.groups import Groups
from unbag.noise import Noise, read_noise
from unbag.published import HIGH, LOW, MISSING, between, exact, log_weight, noisy, rounded

# Up to this size groups may run as sets of members, 3^m pairs of them.
MOST_IN_SETS = 12
# Of the normal approximation, in members: steps of training need its posterior to three digits.
TOLERANCE_IN_TRAINING = 1e-2
MAX_RESIDUAL = 0.03
"""Difference of beliefs in one pass of messages up to which the normal approximation is used."""
NEARLY_CERTAIN = 1 - 1e-4
"""Members with a more certain class are fixed where the classes of the others are summed over exactly."""
# With more count vectors than these, steps of training take longer than by the normal approximation.
STATES_IN_TRAINING = 2**12


class PublishedCounts(Aggregate):
    """Groups of any sizes, and what was published of how many of their members are of each class.

    Observations are statements that :mod:`unbag.published` makes, (groups, classes, 6): an exact count, an interval, a
    value with noise, for each class of each group its own. Plain counts are exact statements. The likelihood is the
    sum over all counts of their probability times the likelihood of what was published.

    It is exact for two classes, at a cost that grows with the number of members; and for more classes as long as the
    number of count vectors of a group, or of its sets of members, 3^m, fits ``max_states``. Beyond that, counts are
    approximated by a normal distribution. Groups of which all counts are known are left to
    :class:`LabelProportions`. :meth:`plan` says which group gets which.

    Parameters
    ----------
    method
        ``"auto"``, or ``"exact"`` to refuse what would be approximated, or ``"normal"`` to approximate all groups of
        which not all counts are known.
    max_states
        The largest number of count vectors of one group for which an exact sum is tried.
    noise
        For :meth:`observe`: the noise with which counts are published, a :class:`unbag.noise.Noise` or its name and
        scale, such as ``"laplace:2.5"``.
    rounded_to
        For :meth:`observe`, without noise: publish counts rounded to a multiple of this odd number.
    suppressed_below
        For :meth:`observe`, without noise: publish of counts below this number only that.
    seed
        For :meth:`observe`: of the noise.

    Examples
    --------
    >>> from unbag import noise, published
    >>> groups = Groups.from_sizes([3, 2])
    >>> z = published.noisy([[1.2, 2.5], [-0.3, 1.9]], noise.Laplace(0.5))
    >>> PublishedCounts().posterior(torch.zeros(5, 2), groups, z)[:, 1]
    tensor([0.6678, 0.6678, 0.6678, 0.9736, 0.9736])
    """

    outcome = "published_counts"
    _tolerance = TOLERANCE
    wording = Wording("Published counts", "the published count of its rows of each class")

    def __init__(
        self,
        method: Literal["auto", "exact", "normal"] = "auto",
        max_states: int = 2**17,
        *,
        noise: Noise | str | None = None,
        rounded_to: int | None = None,
        suppressed_below: int | None = None,
        seed: int = 0,
    ) -> None:
        if method not in ("auto", "exact", "normal"):
            raise ValueError(f"method must be 'auto', 'exact' or 'normal', got {method!r}")
        self._of_counts = LabelProportions("exact" if method == "exact" else "auto", max_states)
        if noise is not None and (rounded_to or suppressed_below):
            raise ValueError("observe takes noise, or rounded_to and suppressed_below, not both")
        if rounded_to is not None and (rounded_to < 1 or rounded_to % 2 == 0):
            raise ValueError(f"rounded_to must be an odd number of at least 1, got {rounded_to!r}")
        self.method, self.max_states = method, max_states
        self.noise = None if noise is None else str(read_noise(noise))
        self.is_noisy = noise is not None
        self.rounded_to, self.suppressed_below, self.seed = rounded_to, suppressed_below, seed

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        counts = LabelProportions().observe(labels, groups, n_classes)
        if self.noise is not None:
            how = read_noise(self.noise)
            drawn = how.sample(tuple(counts.shape), torch.Generator().manual_seed(self.seed)).to(counts.device)
            return noisy(counts + drawn, how).to(counts.device)
        z = exact(counts)
        if self.rounded_to is not None:
            z = rounded((counts / self.rounded_to).round() * self.rounded_to, self.rounded_to)
        if self.suppressed_below is not None:
            few = (counts < self.suppressed_below)[..., None]
            z = torch.where(few, between(0, self.suppressed_below - 1).to(z.device), z)
        return z

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        z = check_statements(z, groups, n_classes)
        if self.method == "exact":
            self._refuse_out_of_reach(z, groups)
        return z

    def log_prob_given_labels(self, labels: Any, groups: Groups, z: Any, n_classes: int) -> Tensor:
        z = read_per_group(z, groups)
        return log_weight(z, LabelProportions().observe(labels, groups, n_classes)).sum(1)

    def for_training(self) -> PublishedCounts:
        if self.method == "exact":
            return self
        other = copy(self)
        other.max_states = min(self.max_states, STATES_IN_TRAINING)
        other._of_counts, other._tolerance = self._of_counts.for_training(), TOLERANCE_IN_TRAINING
        return other

    def expect(self, log_probs: Tensor, groups: Groups) -> Tensor:
        """Return the expected counts, (groups, classes)."""
        return self._of_counts.expect(log_probs, groups)

    def information(self, z: Tensor, groups: Groups, n_classes: int) -> float:
        """Return at most how many bits the counts would hold, were they known."""
        return self._of_counts.information(z, groups, n_classes)

    def plan(self, groups: Groups, z: Any) -> Plan:
        """Return the method that computes each group; exact counts are computed as by ``LabelProportions``."""
        self.check_sizes(groups)
        z = read_per_group(z, groups)
        z = self.check(z, groups, z.shape[1])
        segments = Segments.from_sizes(groups.sizes + n_missing(z))
        parts = self._parts(segments, z)
        plan = Plan.from_parts(parts, groups.sizes)
        if known := [part for part in parts if part.method == "counts"]:
            which = known[0].which
            of_counts = self._of_counts.plan(Groups.from_sizes(segments.sizes[which]), z[which, :, LOW].long())
            for group, method in zip(which.tolist(), of_counts.methods, strict=True):
                plan.methods[group] = method
        return plan

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        missing = n_missing(z)
        if bool((missing == 0).all()):
            return self._infer_whole(log_probs, segments, z)
        whole = Segments.from_sizes(segments.sizes + missing)
        # Members without a row follow those with one, with the shares of classes as their probabilities.
        shares = (z[..., MISSING] / z[..., MISSING].sum(1, keepdim=True)).log().to(log_probs.dtype)
        own = torch.arange(len(log_probs), device=z.device) + segments.expand(missing.cumsum(0) - missing)
        everyone = whole.expand(shares)
        everyone[own] = log_probs
        log_likelihood, posterior = self._infer_whole(everyone, whole, z)
        return log_likelihood, posterior[own]

    def _infer_whole(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        log_likelihood, posterior = infer_parts(self._parts(segments, z), self._infer_part, log_probs, segments, z)
        return log_likelihood, posterior.to(log_probs.dtype)

    def _infer_part(self, part: Part, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        if part.method == "counts":
            log_likelihood, posterior = self._of_counts.infer(log_probs, segments, z[..., LOW].long())
            return log_likelihood + log_weight(z, z[..., LOW]).sum(1).to(log_likelihood.dtype), posterior
        if part.method == "subsets":
            return _infer_subsets(log_probs, segments, z)
        log_probs = log_softmax(log_probs.double())  # the roundings of many members would add up
        if part.method == "two_classes":
            return _infer_two_classes(log_probs, segments, z)
        if part.method == "normal":
            return self._approximate(log_probs, segments, log_weights(z, segments.max_size))
        weights = log_weights(z, max(segments.max_size, *part.largest))
        return _infer_states(log_probs, segments, weights, z[..., HIGH], part.largest)

    def _approximate(self, log_probs: Tensor, segments: Segments, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Approximate groups that have too many count vectors, and validate the result of each group.

        The normal distribution is used where its posteriors satisfy the equations of belief propagation and its
        likelihood is possible. Messages are passed in the other groups.
        """
        total, posterior, effect = infer_counts_as_normal(log_probs, segments, weights, self._tolerance)
        bound = weights.amax(2).sum(1)
        residual = pass_messages(log_probs, segments, weights, effect).residual
        failed = ~((total <= bound) & (residual <= MAX_RESIDUAL))
        if bool(failed.any()):
            again = failed.nonzero().flatten()
            rows, some = segments.take(again)
            total[again], posterior[rows] = self._sum_uncertain(log_probs[rows], some, weights[again])
            total = total.minimum(bound)
        return total, move_into_bounds(posterior, segments, weights)

    def _sum_uncertain(self, log_probs: Tensor, segments: Segments, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Pass messages, and sum exactly over the classes of uncertain members in groups where these are few."""
        state = infer_counts_by_messages(log_probs, segments, weights)
        total, posterior = state.log_likelihood.clone(), state.beliefs.clone()
        top, label = posterior.max(1)
        sure = top >= NEARLY_CERTAIN
        counts = segments.sum(torch.nn.functional.one_hot(label, log_probs.shape[1]) * sure[:, None])  # (groups, k)
        n_uncertain = segments.sum((~sure).long())
        highest = (weights > float("-inf")).long().mul(torch.arange(weights.shape[2])).amax(2)
        free = (highest - counts).minimum(n_uncertain[:, None])  # (groups, k), most uncertain members of each class
        for group in ((n_uncertain > 0) & (free >= 0).all(1)).nonzero().flatten().tolist():
            largest = tuple(count for count in free[group].sort(descending=True).values.tolist() if count)
            if n_count_vectors(largest, int(n_uncertain[group])) > self.max_states:
                continue
            rows = torch.arange(int(segments.offsets[group]), int(segments.offsets[group + 1]))
            inside = rows[~sure[rows]]
            places = counts[group][:, None] + torch.arange(len(inside) + 1)  # (k, counts)
            most = weights.shape[2] - 1
            shifted = weights[group].gather(1, places.clamp_max(most)).masked_fill(places > most, float("-inf"))
            own = Segments.from_sizes([len(inside)])
            of_group, exact = _infer_states(log_probs[inside], own, shifted[None], free[group][None], largest)
            if bool(of_group.isfinite()):
                fixed = rows[sure[rows]]
                total[group] = of_group[0] + log_probs[fixed, label[fixed]].sum()
                posterior[inside] = exact
        return total, posterior

    def _parts(self, segments: Segments, z: Tensor) -> list[Part]:
        everything = torch.arange(len(segments), device=z.device)
        known = (z[..., LOW] == z[..., HIGH]).all(1)
        parts = [Part("counts", everything[known])]
        if self.method == "normal" or z.shape[1] == 2:
            method = "normal" if self.method == "normal" else "two_classes"
            parts += [Part(method, which) for which in _by_size(segments.sizes, ~known)]
            return drop_empty(parts)
        states, sets = n_states(z, segments.sizes), 3.0**segments.sizes
        in_sets = ~known & (segments.sizes <= MOST_IN_SETS) & (sets <= self.max_states) & (sets < states)
        in_states = ~known & ~in_sets & (states <= self.max_states)
        parts += [Part("subsets", which) for which in split_by(segments.sizes, in_sets)]
        parts += _boxes(z, segments.sizes, everything[in_states], self.max_states)
        parts += [Part("normal", which) for which in _by_size(segments.sizes, ~(known | in_sets | in_states))]
        return drop_empty(parts)

    def _refuse_out_of_reach(self, z: Tensor, groups: Groups) -> None:
        sizes = groups.sizes + n_missing(z)
        states = n_states(z, sizes).minimum(3.0**sizes)
        known = (z[..., LOW] == z[..., HIGH]).all(1)
        if bool((beyond := (states > self.max_states) & ~known & (z.shape[1] > 2)).any()):
            first = int(beyond.nonzero()[0])
            raise ValueError(
                f"method='exact' is out of reach for {format_indices('group', beyond, groups.name)}: group "
                f"{groups.name(first)} needs {states[first]:.3g} count vectors, max_states is {self.max_states}; "
                "raise max_states or allow the normal approximation with method='auto'"
            )


def n_states(z: Tensor, sizes: Tensor) -> Tensor:
    """Return a bound of the number of count vectors on the way to what is possible in each group."""
    m, k = sizes.double(), torch.tensor(z.shape[1]).to(z)
    of_simplex = torch.lgamma(m + k + 1) - torch.lgamma(m + 1) - torch.lgamma(k + 1)
    return (z[..., HIGH] + 1).prod(1).minimum(of_simplex.exp())


def n_count_vectors(largest: tuple[int, ...], m: int) -> float:
    """Return a bound of the number of count vectors of ``m`` members with these largest counts."""
    k = len(largest)
    of_simplex = lgamma(m + k + 1) - lgamma(m + 1) - lgamma(k + 1)
    return min(prod(count + 1 for count in largest), 2.0 ** min(of_simplex / 0.693, 1000))


def log_weights(z: Tensor, most: int) -> Tensor:
    """Return the log-likelihood of what was published, given counts from 0 to ``most``: (groups, classes, counts)."""
    return log_weight(z[:, :, None], torch.arange(most + 1, device=z.device))


def round_up(counts: Tensor) -> Tensor:
    """Round counts above 4 up to one of 6, 8, 12, 16, 24, 32, ..."""
    step = 2.0 ** (counts.clamp_min(4).double().sub(0.5).log2().floor() - 1)
    return torch.where(counts <= 4, counts, ((counts / step).ceil() * step).long())


def _by_size(sizes: Tensor, chosen: Tensor) -> list[Tensor]:
    """Split groups by their size up to a factor of two, so that no small group is padded to a large one."""
    return list(split_by(sizes.double().log2().ceil().long(), chosen))


def _boxes(z: Tensor, sizes: Tensor, which: Tensor, max_states: int) -> Iterator[Part]:
    """Put groups with similar largest counts together, so that they run side by side."""
    ordered = z[which][..., HIGH].long().sort(1, descending=True).values
    kinds, kind_of_group = round_up(ordered).unique(dim=0, return_inverse=True)
    for number, kind in enumerate(kinds.tolist()):
        own = kind_of_group == number
        largest = tuple(count for count in kind if count)
        if n_count_vectors(largest, int(sizes[which[own]].max())) > max_states:
            largest = tuple(count for count in ordered[own].amax(0).tolist() if count)
        yield Part("count_states", which[own], largest)


def _infer_two_classes(log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
    sizes = segments.sizes[:, None]
    log_likelihood, yes, _ = infer_weighted_counts(
        log_probs[:, 0],
        log_probs[:, 1],
        segments,
        (z[:, 1, LOW], z[:, 1, HIGH]),
        lambda counts: log_weight(z[:, 1, None], counts) + log_weight(z[:, 0, None], sizes - counts),
    )
    return log_likelihood, torch.stack([1 - yes, yes], 1)


def _infer_subsets(log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
    weights = log_weights(z, segments.max_size)  # (groups, classes, counts)
    top = weights.amax(2, keepdim=True)
    total, posterior = infer_subsets(log_probs, weights - top)
    log_total = total.double().log() + top.sum((1, 2))
    if bool((lost := total < safe_total(total.dtype)).any()):
        again, rows = lost.nonzero().flatten(), segments.expand(lost)
        some, largest = Segments.from_sizes(segments.sizes[again]), (segments.max_size,) * z.shape[1]
        log_probs = log_softmax(log_probs[rows].double())
        log_total[again], exact = _infer_states(log_probs, some, weights[again], z[again][..., HIGH], largest)
        posterior[rows] = exact.to(posterior.dtype)
    return log_total, posterior


def _infer_states(
    log_probs: Tensor, segments: Segments, weights: Tensor, high: Tensor, largest: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    columns = high.topk(len(largest), 1).indices
    left_out = torch.ones(high.shape, dtype=torch.bool, device=high.device).scatter_(1, columns, False)
    constant = weights[..., 0].masked_fill(~left_out, 0.0).sum(1)  # of classes that cannot occur
    weights = weights.gather(1, columns[:, :, None].expand(-1, -1, weights.shape[2]))
    top = weights.amax(2, keepdim=True)
    log_total, posterior = infer_weighted_states(log_probs, segments, columns, weights - top, largest)
    return log_total + top.sum((1, 2)) + constant, posterior
