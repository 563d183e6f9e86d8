"""Objectives of groups: the unbiased risk of any loss, and the negative log-likelihood."""

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from unbag._kernels.logspace import class_major, log_softmax
from unbag._utils.checks import as_tensor, check_choice, describe
from unbag.aggregates.base import (
    Aggregate,
    Impossible,
    exclude_from_compilation,
    full_precision,
    member_logits,
    raise_if_impossible,
)
from unbag.aggregates.noisy import Noisy
from unbag.data.groups import Groups
from unbag.data.weights import read_group_weights, read_sample_weight, weights_of_groups
from unbag.objectives.losses import Loss, cross_entropy, find_loss
from unbag.objectives.objective import ValueAndGrad, WithGradient, cross_entropy_risk, weighted_risk

Reduction = Literal["mean", "sum", "none"]


class _GroupObjective(nn.Module):
    """An objective with one value per group."""

    def __init__(
        self, aggregate: Aggregate, *, reduction: Reduction = "mean", impossible: Impossible = "raise"
    ) -> None:
        super().__init__()
        if not isinstance(aggregate, Aggregate):
            got = f"the class {aggregate.__name__}" if isinstance(aggregate, type) else f"{aggregate!r}"
            raise TypeError(f"aggregate must be an Aggregate, got {got}; pass an instance such as PairwiseSimilarity()")
        self.aggregate = aggregate
        self.reduction = check_choice("reduction", reduction, get_args(Reduction))
        self.impossible = check_choice("impossible", impossible, get_args(Impossible))

    def _validate(self, log_likelihood: Tensor, weights: Tensor | None, groups: Groups, z: Any) -> Tensor:
        """Return log-likelihoods, zero for groups of weight zero; raise errors for the others and for the weights."""
        if weights is not None:
            if self.reduction == "mean" and not bool(weights.any()):
                raise ValueError(
                    "group_weights must not all be zero for reduction='mean', which divides by their sum, nor may "
                    "sample_weight; omit the batch or use reduction='sum'"
                )
            log_likelihood = log_likelihood.masked_fill(weights == 0, 0)
        if self.impossible == "raise":
            raise_if_impossible(log_likelihood, groups, z)
        return log_likelihood

    def _reduce(self, values: Tensor, weights: Tensor | None, total: Tensor | None) -> Tensor:
        """Reduce the values of groups, multiplied by weights; the mean is divided by the sum of ``total``."""
        if weights is not None:
            values = values * weights.to(values.dtype)
        if self.reduction == "none":
            return values
        if self.reduction == "sum":
            return values.sum()
        return values.mean() if total is None else values.sum() / total.to(values.dtype).sum()

    def extra_repr(self) -> str:
        """Return the settings for the representation of the module."""
        loss = f"loss={getattr(self.loss, '__name__', self.loss)}, " if hasattr(self, "loss") else ""
        return f"{self.aggregate}, {loss}reduction={self.reduction!r}, impossible={self.impossible!r}"


class UnbiasedRisk(_GroupObjective):
    """The unbiased estimate of the classification risk from groups: the universal unbiased method.

    The risk of a group of m members is ``(1/m) sum_i sum_j p(y_i = j | z, x_1..x_m) loss(f(x_i), j)``. The weights
    carry no gradient.

    Parameters
    ----------
    aggregate
        Kind of the observations.
    loss
        A name from :data:`unbag.losses.LOSSES`, or a function from logits of shape ``(n, k)`` to losses of the same
        shape, where entry ``[i, j]`` is the loss of row i with label j.
    reduction
        ``"mean"`` over groups, ``"sum"``, or ``"none"`` for one value per group.
    impossible
        Observations that the logits rule out have no posterior: ``"raise"`` raises an error that names the groups, and
        ``"-inf"`` makes their risk NaN. Groups of weight zero are ignored in both cases.

    Examples
    --------
    >>> from unbag import PairwiseSimilarity
    >>> pairs = Groups.from_tuples([[0, 1]])
    >>> logits = torch.tensor([[0.9, 0.1], [0.5, 0.5]]).log()
    >>> PairwiseSimilarity().posterior(logits, pairs, [1])
    tensor([[0.9000, 0.1000],
            [0.9000, 0.1000]])
    >>> UnbiasedRisk(PairwiseSimilarity(), loss="mae")(logits, pairs, [1])
    tensor(0.6800)
    """

    def __init__(
        self,
        aggregate: Aggregate,
        loss: str | Loss = "cross_entropy",
        *,
        reduction: Reduction = "mean",
        impossible: Impossible = "raise",
    ) -> None:
        super().__init__(aggregate, reduction=reduction, impossible=impossible)
        self.loss = find_loss(loss)

    @exclude_from_compilation
    def forward(
        self,
        logits: Tensor,
        groups: Groups,
        z: Any,
        *,
        weights: Any = None,
        group_weights: Any = None,
        sample_weight: Any = None,
    ) -> Tensor:
        """Return the risk, differentiable in the logits: a scalar, or one value per group for ``reduction="none"``.

        Parameters
        ----------
        logits
            One row per instance, shape ``(n, k)``. Half precision is computed in float32.
        groups
            Rows of each group.
        z
            One observation per group.
        weights
            Weights in place of the posterior, shape ``(memberships, k)``, rows in the order of ``groups.members``; z
            is then ignored. A weight of zero makes its term zero, even if the loss is infinite.
        group_weights
            One weight per group, not negative, matched by id as z is. The mean is divided by their sum. A group of
            weight zero is ignored, even if its observation is impossible.
        sample_weight
            One weight per row of the logits, not negative, which multiplies the terms of its memberships. The weight of
            a group is then the mean of those of its members.
        """
        if isinstance(logits, Tensor) and logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        self.aggregate.check_sizes(groups)
        factors = None if group_weights is None else read_group_weights(group_weights, groups)
        if weights is None:
            with torch.no_grad():
                log_likelihood, weights = self.aggregate.evidence(logits, groups, z)
        else:
            member_logits(logits, groups)  # validates the logits
            weights = _check_weights(weights, logits, groups)
            log_likelihood = logits.new_zeros(len(groups))
        member_weights, total = None, factors
        if sample_weight is not None:
            member_weights = read_sample_weight(sample_weight, len(logits), groups.device)[groups.members]
            member_weights = member_weights.to(logits.dtype)
            total = _multiply(factors, groups.segments.sum(member_weights) / groups.sizes)
        self._validate(log_likelihood, total, groups, z)
        if total is not None:  # the posterior of ignored groups may be NaN
            weights = weights.masked_fill(groups.segments.expand(total == 0)[:, None], 0)
        with full_precision(logits.device.type):
            return self._reduce(self._risks(logits, weights, groups, member_weights), factors, total)

    def _risks(self, logits: Tensor, weights: Tensor, groups: Groups, member_weights: Tensor | None) -> Tensor:
        """Compute the risk of each group; weights are (memberships, k), ``member_weights`` (memberships,)."""
        segments = groups.segments
        if self.loss is cross_entropy:

            def compute(members: Tensor) -> ValueAndGrad:
                return cross_entropy_risk(log_softmax(class_major(members)), weights, segments, member_weights)

            return WithGradient.apply(groups.gather(logits), segments, compute)
        losses = self.loss(logits)
        if not isinstance(losses, Tensor) or losses.shape != logits.shape:
            raise ValueError(
                f"loss must return one loss per row and class, shape {tuple(logits.shape)}; got {describe(losses)}; "
                "entry [i, j] is the loss of row i with label j"
            )
        weights = weights if member_weights is None else weights * member_weights[:, None]
        return weighted_risk(groups.gather(losses), weights, segments)


class NegativeLogLikelihood(_GroupObjective):
    """The negative log-likelihood of the observations of groups, ``-log p(z | x_1..x_m)``.

    Parameters are those of :class:`UnbiasedRisk` without the loss and the weights. ``sample_weight`` must be equal in
    all rows of a group, which have one likelihood. Observations that the logits rule out raise
    :class:`ImpossibleObservation`, or are ``inf`` with ``impossible="-inf"``.

    Examples
    --------
    >>> from unbag import PairwiseSimilarity
    >>> pairs = Groups.from_tuples([[0, 1]])
    >>> logits = torch.tensor([[0.9, 0.1], [0.5, 0.5]]).log()
    >>> NegativeLogLikelihood(PairwiseSimilarity())(logits, pairs, [1])
    tensor(0.6931)
    """

    @exclude_from_compilation
    def forward(
        self, logits: Tensor, groups: Groups, z: Any, *, group_weights: Any = None, sample_weight: Any = None
    ) -> Tensor:
        """Return the negative log-likelihood, differentiable in the logits; see :meth:`UnbiasedRisk.forward`."""
        self.aggregate.check_sizes(groups)
        weights = None if group_weights is None else read_group_weights(group_weights, groups)
        log_likelihood = self.aggregate.log_likelihood(logits, groups, z)
        if sample_weight is not None:
            weights = _multiply(weights, weights_of_groups(sample_weight, groups, len(logits)))
        return self._reduce(-self._validate(log_likelihood, weights, groups, z), weights, weights)


class NoisyLikelihood(nn.Module):
    """The negative log-likelihood of binary observations with an error rate that is learned with the model.

    The rate is a parameter of this module: pass it to the optimiser with those of the model. It stays below one half,
    where observations would be inverted. It is identifiable only if the model cannot fit every error: rows must be in
    several groups, or share features; a model that overfits makes the rate too low. Use :class:`Noisy` with the
    learned rate for evaluation and disaggregation.

    Parameters
    ----------
    aggregate
        A binary kind, as in :class:`Noisy`.
    rate
        Initial error rate, between 0 and 0.5.

    Examples
    --------
    >>> from unbag import PairwiseSimilarity
    >>> loss = NoisyLikelihood(PairwiseSimilarity(), rate=0.25)
    >>> sure = torch.tensor([[50.0, 0.0], [50.0, 0.0], [0.0, 50.0]])
    >>> loss(sure, Groups.from_tuples([[0, 1], [1, 2]]), [1, 0]).backward()  # no answer is wrong
    >>> bool(loss.log_odds.grad > 0), loss.rate
    (True, 0.25)
    """

    def __init__(self, aggregate: Aggregate, rate: float = 0.1) -> None:
        super().__init__()
        if not isinstance(rate, int | float) or not 0 < rate < 0.5:
            raise ValueError(f"rate must be a number between 0 and 0.5, got {rate!r}")
        self.aggregate = Noisy(aggregate, rate).aggregate
        self.log_odds = nn.Parameter(torch.tensor(2.0 * rate, dtype=torch.float64).logit())  # of twice the rate

    @property
    def rate(self) -> float:
        """The learned error rate."""
        return float(self.log_odds.detach().sigmoid()) / 2

    @exclude_from_compilation
    def forward(self, logits: Tensor, groups: Groups, z: Any) -> Tensor:
        """Return the mean over groups, differentiable in the logits and the rate; observations are 0 or 1."""
        noisy = Noisy(self.aggregate, self.rate)
        wrong, rate = noisy.chance_of_error(logits, groups, z), self.log_odds.sigmoid() / 2
        # The gradient in the rate is that of the expected log-probability of right and wrong answers.
        expected = wrong * rate.log() + (1 - wrong) * (1 - rate).log()
        log_likelihood = noisy.log_likelihood(logits, groups, z)
        return -(log_likelihood + (expected - expected.detach()).to(log_likelihood.dtype)).mean()

    def extra_repr(self) -> str:
        """Return the settings for the representation of the module."""
        return f"{self.aggregate}, rate={self.rate:.3g}"


def _multiply(weights: Tensor | None, factor: Tensor) -> Tensor:
    return factor if weights is None else weights * factor


def _check_weights(weights: Any, logits: Tensor, groups: Groups) -> Tensor:
    weights = as_tensor(weights, "weights", groups.device).detach()
    expected = (len(groups.members), logits.shape[1])
    if weights.shape != expected:
        raise ValueError(
            f"weights must have one row per membership and one column per class, shape {expected}; got shape "
            f"{tuple(weights.shape)}; for weights per row of the logits, pass weights[groups.members]"
        )
    if not weights.is_floating_point():
        raise TypeError(f"weights must be floating-point numbers, got {weights.dtype}; convert them with .float()")
    if bool((wrong := ~weights.isfinite().all(1)).any()):
        raise ValueError(
            f"weights must be finite, but there is NaN or infinity for {groups.format_groups_holding(wrong)}; "
            "look for groups whose observation was impossible"
        )
    return weights.to(logits.dtype)
