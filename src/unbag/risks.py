"""What training minimises: the unbiased risk of any loss, and the negative log-likelihood."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from unbag.aggregates.base import (
    Aggregate,
    Impossible,
    full_precision,
    member_logits,
    refuse_impossible,
    refuse_undefined,
)
from unbag.alignment import read_per_group
from unbag.checks import as_tensor, check_choice, describe, name_some
from unbag.groups import Groups
from unbag.kernels.logspace import class_by_class, log_softmax
from unbag.losses import LOSSES, Loss, cross_entropy
from unbag.objectives import WithGradient, cross_entropy_risk, weighted_risk

Reduction = Literal["mean", "sum", "none"]


class UnbiasedRisk(nn.Module):
    """The classification risk, estimated without bias from groups: the universal unbiased method.

    The risk of a group of m members is ``(1/m) sum_i sum_j p(y_i = j | z, x_1..x_m) loss(f(x_i), j)``. The weights
    carry no gradient.

    Parameters
    ----------
    aggregate
        What was observed of each group.
    loss
        A name from :data:`unbag.losses.LOSSES`, or any function from logits of shape ``(n, k)`` to losses of the same
        shape, where entry ``[i, j]`` is the loss of row i if its label were j.
    reduction
        ``"mean"`` over groups, ``"sum"``, or ``"none"`` for one value per group.
    impossible
        Where the logits rule an observation out, there is no posterior. ``"raise"`` names the groups;
        ``"-inf"``, after their log-likelihood, makes their risk NaN, and with it the mean or the sum. A group of weight
        zero in ``group_weights`` is left out either way.

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
        super().__init__()
        self.aggregate = _check_aggregate(aggregate)
        self.loss = _check_loss(loss)
        self.reduction = check_choice("reduction", reduction, get_args(Reduction))
        self.impossible = check_choice("impossible", impossible, get_args(Impossible))

    def forward(
        self, logits: Tensor, groups: Groups, z: Any, *, weights: Any = None, group_weights: Any = None
    ) -> Tensor:
        """Return the risk, differentiable in the logits.

        Parameters
        ----------
        logits
            One row per instance, shape ``(n, k)``. Half precision is computed in float32.
        groups
            Which rows form which group.
        z
            One observation per group.
        weights
            Taken in place of the posterior at these logits, shape ``(memberships, k)``, rows in the order of
            ``groups.members``; z is then not looked at. A weight of zero makes its term zero, also where the loss is
            infinite.
        group_weights
            One weight per group, not negative, matched by id as z is. The mean is divided by their sum; a group of
            weight zero does not count, even where its observation is impossible.

        Returns
        -------
        Tensor
            A scalar, or shape ``(groups,)`` for ``reduction="none"``.
        """
        if isinstance(logits, Tensor) and logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        self.aggregate.check_sizes(groups)
        if group_weights is not None:
            group_weights = _check_group_weights(group_weights, groups, self.reduction)
        if weights is None:
            with torch.no_grad():
                evidence = self.aggregate.evidence(logits, groups, z)
            if self.impossible == "raise":
                refuse_impossible(_counted(evidence.log_likelihood, group_weights), groups, z)
            weights = evidence.posterior
        else:
            self._check_logits(logits, groups)
            weights = _check_weights(weights, logits, groups)
        if group_weights is not None:  # zero times NaN, where there is no posterior, would be NaN
            weights = weights.masked_fill(groups.segments.expand(group_weights == 0)[:, None], 0)
        with full_precision(logits.device.type):
            return _reduce(self._risks(logits, weights, groups), self.reduction, group_weights)

    def extra_repr(self) -> str:
        """Name the settings where the module is printed."""
        loss = getattr(self.loss, "__name__", self.loss)
        return f"{self.aggregate}, loss={loss}, reduction={self.reduction!r}, impossible={self.impossible!r}"

    def _risks(self, logits: Tensor, weights: Tensor, groups: Groups) -> Tensor:
        segments = groups.segments
        if self.loss is not cross_entropy:
            return weighted_risk(groups.rows_of(self._losses(logits)), weights, segments)
        compute = lambda own: cross_entropy_risk(log_softmax(class_by_class(own)), weights, segments)  # noqa: E731
        return WithGradient.apply(groups.rows_of(logits), segments, compute)

    def _losses(self, logits: Tensor) -> Tensor:
        losses = self.loss(logits)
        if not isinstance(losses, Tensor) or losses.shape != logits.shape:
            raise ValueError(
                f"loss must return one loss per row and class, shape {tuple(logits.shape)}; got {describe(losses)}; "
                "entry [i, j] is the loss of row i if its label were j"
            )
        return losses

    def _check_logits(self, logits: Tensor, groups: Groups) -> None:
        """Refuse, where the aggregate sees no logits, what it would have refused."""
        refuse_undefined(member_logits(logits, groups).detach(), groups)


class NegativeLogLikelihood(nn.Module):
    """The negative log-likelihood of the observations of groups, ``-log p(z | x_1..x_m)``.

    Takes what :class:`UnbiasedRisk` takes, less the loss and the weights. Where the logits rule an observation out,
    its value is ``inf``, and so is the mean; ``impossible="raise"`` names the groups instead.

    Examples
    --------
    >>> from unbag import PairwiseSimilarity
    >>> pairs = Groups.from_tuples([[0, 1]])
    >>> logits = torch.tensor([[0.9, 0.1], [0.5, 0.5]]).log()
    >>> NegativeLogLikelihood(PairwiseSimilarity())(logits, pairs, [1])
    tensor(0.6931)
    """

    def __init__(self, aggregate: Aggregate, *, reduction: Reduction = "mean", impossible: Impossible = "-inf") -> None:
        super().__init__()
        self.aggregate = _check_aggregate(aggregate)
        self.reduction = check_choice("reduction", reduction, get_args(Reduction))
        self.impossible = check_choice("impossible", impossible, get_args(Impossible))

    def forward(self, logits: Tensor, groups: Groups, z: Any, *, group_weights: Any = None) -> Tensor:
        """Return the negative log-likelihood, differentiable in the logits; see :meth:`UnbiasedRisk.forward`."""
        self.aggregate.check_sizes(groups)
        if group_weights is not None:
            group_weights = _check_group_weights(group_weights, groups, self.reduction)
        log_likelihood = _counted(self.aggregate.log_likelihood(logits, groups, z), group_weights)
        if self.impossible == "raise":
            refuse_impossible(log_likelihood, groups, z)
        return _reduce(-log_likelihood, self.reduction, group_weights)

    def extra_repr(self) -> str:
        """Name the settings where the module is printed."""
        return f"{self.aggregate}, reduction={self.reduction!r}, impossible={self.impossible!r}"


def _counted(log_likelihood: Tensor, group_weights: Tensor | None) -> Tensor:
    """Return the log-likelihood of groups that count, and zero for those of weight zero, whatever it may be."""
    return log_likelihood if group_weights is None else log_likelihood.masked_fill(group_weights == 0, 0)


def _reduce(values: Tensor, reduction: str, group_weights: Tensor | None) -> Tensor:
    """Bring one value per group to what the caller asked for."""
    if group_weights is None:
        return values.mean() if reduction == "mean" else values.sum() if reduction == "sum" else values
    group_weights = group_weights.to(values.dtype)
    weighted = values * group_weights
    if reduction == "none":
        return weighted
    return weighted.sum() / group_weights.sum() if reduction == "mean" else weighted.sum()


def _check_aggregate(aggregate: Any) -> Aggregate:
    if not isinstance(aggregate, Aggregate):
        got = f"the class {aggregate.__name__}" if isinstance(aggregate, type) else f"{aggregate!r}"
        raise TypeError(f"aggregate must be an Aggregate, got {got}; hand in an instance such as PairwiseSimilarity()")
    return aggregate


def _check_loss(loss: Any) -> Loss:
    if callable(loss):
        return loss
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ValueError(
            f"loss must be one of {', '.join(LOSSES)}, or a function from logits to losses; got {loss!r}; "
            "for other parameters use functools.partial, for example partial(unbag.losses.gce, q=0.5)"
        )
    return LOSSES[loss]


def _check_weights(weights: Any, logits: Tensor, groups: Groups) -> Tensor:
    weights = as_tensor(weights, "weights", groups.device).detach()
    expected = (len(groups.members), logits.shape[1])
    if weights.shape != expected:
        raise ValueError(
            f"weights must have one row per membership and one column per class, shape {expected}; got shape "
            f"{tuple(weights.shape)}; for weights per row of the logits, hand in weights[groups.members]"
        )
    if not weights.is_floating_point():
        raise TypeError(f"weights must be floating-point numbers, got {weights.dtype}; convert them with .float()")
    if not bool(torch.isfinite(weights.sum())) and bool((wrong := ~weights.isfinite().all(1)).any()):
        raise ValueError(
            f"weights must be finite, but there is NaN or infinity for {groups.name_holding(wrong)}; "
            "look for groups whose observation was impossible"
        )
    return weights.to(logits.dtype)


def _check_group_weights(group_weights: Any, groups: Groups, reduction: str) -> Tensor:
    group_weights = read_per_group(group_weights, groups, "group_weights")
    if group_weights.shape != (len(groups),):
        raise ValueError(
            f"group_weights must have one entry per group, shape ({len(groups)},); "
            f"got shape {tuple(group_weights.shape)}"
        )
    if group_weights.is_complex():
        raise TypeError(f"group_weights must be real numbers, got {group_weights.dtype}")
    if bool((wrong := ~((group_weights >= 0) & group_weights.isfinite())).any()):
        first = int(wrong.nonzero()[0])
        raise ValueError(
            f"group_weights must be finite and not negative, not so for "
            f"{name_some('group', wrong, groups.name)}: group_weights[{first}] is {group_weights[first].item()}"
        )
    if reduction == "mean" and not bool(group_weights.any()):
        raise ValueError(
            "group_weights must not all be zero for reduction='mean', which divides by their sum; "
            "leave out the batch or use reduction='sum'"
        )
    return group_weights
