"""Published counts of the classes of each group: exact, in intervals, or with noise."""

from __future__ import annotations

from copy import copy
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from unbag._kernels.boxes import boxes
from unbag._kernels.count_messages import infer_counts_by_messages, move_into_bounds
from unbag._kernels.count_paths import sum_paths
from unbag._kernels.count_states import infer_weighted_states
from unbag._kernels.lattice import safe_total
from unbag._kernels.logspace import log_softmax
from unbag._kernels.moment_matching import normal_log_likelihood
from unbag._kernels.poisson_binomial import infer_weighted_counts
from unbag._kernels.segments import Segments
from unbag._kernels.subsets import infer_subsets
from unbag._kernels.tilts import find_weighted_tilt
from unbag._utils.checks import check_choice
from unbag.aggregates.base import Aggregate, Wording
from unbag.aggregates.count_methods import Part, Plan, infer_parts, make_parts, raise_if_out_of_reach
from unbag.aggregates.counts import check_statements, n_missing
from unbag.aggregates.label_proportions import LabelProportions
from unbag.data.alignment import read_per_group
from unbag.data.groups import Groups
from unbag.noise import KINDS, Noise, read_noise
from unbag.published import HIGH, LOW, MISSING, NOISE, SCALE, VALUE, between, exact, log_weight, noisy, rounded

Method = Literal["auto", "exact", "normal"]

MOST_IN_SETS = 12
"""Size up to which groups may be computed by sets of members, 3^m pairs of them."""
MAX_PATHS, MAX_UNCERTAIN, MAX_SAMPLED = (2**11, 2**13), (15.0, 25.0), 0.3
"""States of the sum over probable counts, expected errors of the most probable labels up to which it is used (second
values: if half of the counts are exact), and the share of the states that a sample may represent; see `sum_paths`.

The error of the posterior is about a tenth of that share. That of belief propagation was above 0.03 only below 12
expected errors in 253 random groups, and 0.10 with 20 of them and mostly exact counts; the sum takes 5 to 50 times as
long."""
MAX_RESIDUAL = 0.05
"""Difference of beliefs above which belief propagation has not converged."""
STATES_IN_TRAINING = 2**12
"""Count vectors beyond which belief propagation is faster in training."""


class PublishedCounts(Aggregate):
    """Published counts of the classes in groups of any sizes.

    Observations are statements of :mod:`unbag.published`, (groups, classes, 6): an exact count, an interval, or a
    value with noise for each class of each group. Plain counts are exact statements. The likelihood is the sum over
    all counts of their probability times the likelihood of the statements.

    It is exact for two classes, and for more classes if the number of count vectors of a group, or of its sets of
    members, 3^m, is at most ``max_states``. Otherwise it is approximated by belief propagation. Groups with
    exact counts are computed by :class:`LabelProportions`. :meth:`plan` returns the method of each group.

    Parameters
    ----------
    method
        ``"auto"``, ``"exact"`` to raise an error instead of approximating, or ``"normal"`` to approximate all groups
        whose counts are not exact.
    max_states
        Largest number of count vectors of a group that is computed exactly.
    noise, rounded_to, suppressed_below, seed
        How :meth:`observe` publishes counts: with noise, a :class:`unbag.noise.Noise` or its name and scale, such as
        ``"laplace:2.5"``; rounded to a multiple of an odd number; not at all below a number; and the seed of the noise.

    Examples
    --------
    >>> from unbag import noise, published
    >>> groups = Groups.from_sizes([3, 2])
    >>> z = published.noisy([[1.2, 2.5], [-0.3, 1.9]], noise.Laplace(0.5))
    >>> PublishedCounts().posterior(torch.zeros(5, 2), groups, z)[:, 1]
    tensor([0.6678, 0.6678, 0.6678, 0.9736, 0.9736])
    """

    outcome = "published_counts"
    _omit_paths = False
    wording = Wording("Published counts", "the published count of its rows of each class")

    def __init__(
        self,
        method: Method = "auto",
        max_states: int = 2**17,
        *,
        noise: Noise | str | None = None,
        rounded_to: int | None = None,
        suppressed_below: int | None = None,
        seed: int = 0,
    ) -> None:
        check_choice("method", method, get_args(Method))
        self._exact = LabelProportions("exact" if method == "exact" else "auto", max_states)
        if noise is not None and (rounded_to or suppressed_below):
            raise ValueError("noise cannot be combined with rounded_to or suppressed_below; remove one of them")
        if rounded_to is not None and (rounded_to < 1 or rounded_to % 2 == 0):
            raise ValueError(f"rounded_to must be an odd number of at least 1, got {rounded_to!r}")
        self.method, self.max_states = method, max_states
        self.noise = None if noise is None else str(read_noise(noise))
        self.is_noisy = noise is not None
        self.rounded_to, self.suppressed_below, self.seed = rounded_to, suppressed_below, seed

    def observe(self, labels: Any, groups: Groups, n_classes: int) -> Tensor:
        counts = LabelProportions().observe(labels, groups, n_classes)
        if self.noise is not None:
            noise = read_noise(self.noise)
            drawn = noise.sample(tuple(counts.shape), torch.Generator().manual_seed(self.seed)).to(counts.device)
            return noisy(counts + drawn, noise).to(counts.device)
        z = exact(counts)
        if self.rounded_to is not None:
            z = rounded((counts / self.rounded_to).round() * self.rounded_to, self.rounded_to)
        if self.suppressed_below is not None:
            suppressed = (counts < self.suppressed_below)[..., None]
            z = torch.where(suppressed, between(0, self.suppressed_below - 1).to(z.device), z)
        return z

    def check(self, z: Any, groups: Groups, n_classes: int) -> Tensor:
        z = check_statements(z, groups, n_classes)
        if self.method == "exact":
            sizes = groups.sizes + n_missing(z)
            states = n_states(z, sizes).minimum(3.0**sizes).masked_fill(_are_exact(z) | (n_classes == 2), 0)
            raise_if_out_of_reach(states, self.max_states, groups, "the approximation")
        return z

    def log_prob_given_labels(self, labels: Any, groups: Groups, z: Any, n_classes: int) -> Tensor:
        z = read_per_group(z, groups)
        return log_weight(z, LabelProportions().observe(labels, groups, n_classes)).sum(1)

    def for_training(self) -> PublishedCounts:
        if self.method == "exact":
            return self
        cheaper = copy(self)
        cheaper.max_states = min(self.max_states, STATES_IN_TRAINING)
        cheaper._exact, cheaper._omit_paths = self._exact.for_training(), True
        return cheaper

    def expect(self, log_probs: Tensor, groups: Groups) -> Tensor:
        """Return the expected counts, (groups, classes)."""
        return self._exact.expect(log_probs, groups)

    def information(self, z: Tensor, groups: Groups, n_classes: int) -> float:
        """Return an upper bound, the information of the exact counts."""
        return self._exact.information(z, groups, n_classes)

    def plan(self, groups: Groups, z: Any) -> Plan:
        """Return the method that computes each group, for exact counts that of ``LabelProportions``."""
        self.check_sizes(groups)
        z = read_per_group(z, groups)
        z = self.check(z, groups, z.shape[1])
        segments = Segments.from_sizes(groups.sizes + n_missing(z))
        parts = self._parts(segments, z)
        plan = Plan.from_parts(parts, groups.sizes)
        if known := [part for part in parts if part.method == "counts"]:
            which = known[0].which
            exact_plan = self._exact.plan(Groups.from_sizes(segments.sizes[which]), z[which, :, LOW].long())
            for group, method in zip(which.tolist(), exact_plan.methods, strict=True):
                plan.methods[group] = method
        return plan

    def smooth_log_likelihood(self, logits: Tensor, segments: Segments, z: Tensor) -> Tensor:
        """Approximate counts by normal variables where each one is exact, has noise, or is not known at all."""
        noisy, known = z[..., NOISE] > 0, z[..., LOW] == z[..., HIGH]
        vacuous = ~noisy & (z[..., LOW] <= 0) & (z[..., HIGH] >= segments.sizes[:, None])
        if not bool((noisy | known | vacuous).all()) or bool((z[..., MISSING] > 0).any()):
            return super().smooth_log_likelihood(logits, segments, z)
        variance = torch.zeros_like(z[..., SCALE])
        for kind in KINDS.values():
            of_kind = z[..., NOISE] == kind.code
            variance[of_kind] = kind.variance(z[..., SCALE][of_kind])
        counts = torch.where(noisy, z[..., VALUE], z[..., LOW])
        return normal_log_likelihood(logits, segments, counts, variance.to(logits), ~vacuous)

    def infer(self, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        missing, rows = n_missing(z), torch.arange(len(log_probs), device=z.device)
        if bool((missing > 0).any()):
            # Members without a row follow those with a row; the shares of classes are their probabilities.
            shares = (z[..., MISSING] / z[..., MISSING].sum(1, keepdim=True)).log().to(log_probs.dtype)
            rows += segments.expand(missing.cumsum(0) - missing)
            segments = Segments.from_sizes(segments.sizes + missing)
            log_probs = segments.expand(shares).index_copy(0, rows, log_probs)
        log_likelihood, posterior = infer_parts(self._parts(segments, z), self._infer_part, log_probs, segments, z)
        posterior = posterior.to(log_probs.dtype)
        return log_likelihood, posterior if len(posterior) == len(rows) else posterior[rows]

    def _infer_part(self, part: Part, log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
        if part.method == "counts":
            log_likelihood, posterior = self._exact.infer(log_probs, segments, z[..., LOW].long())
            return log_likelihood + log_weight(z, z[..., LOW]).sum(1).to(log_likelihood.dtype), posterior
        if part.method == "subsets":
            return _infer_subsets(log_probs, segments, z)
        log_probs = log_softmax(log_probs.double())  # rounding errors of many members would accumulate
        if part.method == "two_classes":
            return _infer_two_classes(log_probs, segments, z)
        if part.method == "normal":
            return self._approximate(log_probs, segments, log_weights(z, segments.max_size))
        weights = log_weights(z, max(segments.max_size, *part.largest))
        return _infer_states(log_probs, segments, weights, z[..., HIGH], part.largest)

    def _approximate(self, log_probs: Tensor, segments: Segments, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Approximate groups by a sum over probable counts where few members are uncertain, else by messages."""
        tilt = find_weighted_tilt(log_probs, segments, weights)
        posterior = (log_probs + segments.expand(tilt)).softmax(1)
        total, bounds = tilt.new_full((len(segments),), float("nan")), segments.offsets.tolist()
        exact = ((weights > float("-inf")).sum(2) == 1).double().mean(1) >= 0.5

        def sum_group(group: int) -> bool:
            rows = slice(bounds[group], bounds[group + 1])
            most = MAX_PATHS[int(exact[group])]
            summed = sum_paths(log_probs[rows], weights[group], tilt[group], most, MAX_SAMPLED)
            if summed is not None:
                total[group], posterior[rows] = summed.log_total, summed.posterior
            return summed is not None

        few = segments.sum(1 - posterior.amax(1)) <= torch.where(exact, MAX_UNCERTAIN[1], MAX_UNCERTAIN[0])
        few &= not self._omit_paths
        left = [group for group, is_few in enumerate(few.tolist()) if not (is_few and sum_group(group))]
        if left:
            which = torch.tensor(left, device=tilt.device)
            rows, inside = segments.take(which)
            total[which], posterior[rows], residual = infer_counts_by_messages(
                log_probs[rows], inside, weights[which], tilt[which]
            )
            for group in which[~(residual <= MAX_RESIDUAL)].tolist():
                if few[group] or not sum_group(group):
                    total[group] = float("nan")
        # The formulas of the approximation do not ensure the bounds of the exact values.
        return total.minimum(weights.amax(2).sum(1)), move_into_bounds(posterior, segments, weights)

    def _parts(self, segments: Segments, z: Tensor) -> list[Part]:
        known = _are_exact(z)
        size_range = segments.sizes.double().log2().ceil()  # limits padding to a factor of two
        if self.method == "normal" or z.shape[1] == 2:
            method = "normal" if self.method == "normal" else "two_classes"
            return make_parts(("counts", known, None), (method, ~known, size_range))
        states, sets = n_states(z, segments.sizes), 3.0**segments.sizes
        in_sets = ~known & (segments.sizes <= MOST_IN_SETS) & (sets <= self.max_states) & (sets < states)
        in_states = ~known & ~in_sets & (states <= self.max_states)
        parts = make_parts(("counts", known, None), ("subsets", in_sets, segments.sizes))
        which = in_states.nonzero().flatten()
        if len(which):
            ordered = z[which][..., HIGH].long().sort(1).values
            for inside, largest, _ in boxes(ordered, int(segments.sizes[which].max())):
                parts.append(Part("count_states", which[inside], largest[::-1]))
        return parts + make_parts(("normal", ~(known | in_sets | in_states), size_range))


def _are_exact(z: Tensor) -> Tensor:
    """Return which groups have exact counts of all classes."""
    return (z[..., LOW] == z[..., HIGH]).all(1)


def n_states(z: Tensor, sizes: Tensor) -> Tensor:
    """Return an upper bound of the number of intermediate count vectors of each group."""
    m, k = sizes.double(), torch.tensor(z.shape[1]).to(z)
    log_simplex = torch.lgamma(m + k + 1) - torch.lgamma(m + 1) - torch.lgamma(k + 1)
    return (z[..., HIGH] + 1).prod(1).minimum(log_simplex.exp())


def log_weights(z: Tensor, most: int) -> Tensor:
    """Return the log-likelihood of statements for counts from 0 to ``most``: (groups, classes, counts)."""
    return log_weight(z[:, :, None], torch.arange(most + 1, device=z.device))


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
    repeated = (total < safe_total(total.dtype)).nonzero().flatten()
    if len(repeated):
        (rows, inside), largest = segments.take(repeated), (segments.max_size,) * z.shape[1]
        log_probs, high = log_softmax(log_probs[rows].double()), z[repeated][..., HIGH]
        log_total[repeated], exact = _infer_states(log_probs, inside, weights[repeated], high, largest)
        posterior[rows] = exact.to(posterior.dtype)
    return log_total, posterior


def _infer_states(
    log_probs: Tensor, segments: Segments, weights: Tensor, high: Tensor, largest: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    columns = high.topk(len(largest), 1).indices
    constant = weights[..., 0].scatter(1, columns, 0.0).sum(1)  # of classes that cannot occur
    weights = weights.gather(1, columns[:, :, None].expand(-1, -1, weights.shape[2]))
    top = weights.amax(2, keepdim=True)
    log_total, posterior = infer_weighted_states(log_probs, segments, columns, weights - top, largest)
    return log_total + top.sum((1, 2)) + constant, posterior
