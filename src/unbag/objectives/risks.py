"""What training minimises: the unbiased risk of any loss, and the negative log-likelihood."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from unbag._kernels.logspace import class_major, log_softmax
from unbag._utils.checks import as_tensor, check_choice, describe
from unbag.aggregates.base import Aggregate, Impossible, full_precision, member_logits, raise_if_impossible
from unbag.aggregates.noisy import Noisy
from unbag.data.groups import Groups
from unbag.data.weights import read_group_weights, read_sample_weight, weights_of_groups
from unbag.objectives.losses import LOSSES, Loss, cross_entropy
from unbag.objectives.objective import WithGradient, cross_entropy_risk, weighted_risk

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
        self,
        logits: Tensor,
        groups: Groups,
        z: Any,
        *,
        weights: Any = None,
        group_weights: Any = None,
        sample_weight: Any = None,
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
        sample_weight
            One weight per row of the logits, not negative, which multiplies the terms of its memberships. A group then
            counts as much as its members do on average: equal weights of its rows are the weight of the group.

        Returns
        -------
        Tensor
            A scalar, or shape ``(groups,)`` for ``reduction="none"``.
        """
        if isinstance(logits, Tensor) and logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        self.aggregate.check_sizes(groups)
        given = None if group_weights is None else read_group_weights(group_weights, groups)
        evidence = None
        if weights is None:
            with torch.no_grad():
                evidence = self.aggregate.evidence(logits, groups, z)
            weights = evidence.posterior
        else:
            member_logits(logits, groups)  # validates them
            weights = _check_weights(weights, logits, groups)
        counted, of_rows = given, None
        if sample_weight is not None:
            of_rows = read_sample_weight(sample_weight, len(logits), groups.device)[groups.members].to(logits.dtype)
            counted = _product(given, groups.segments.sum(of_rows) / groups.sizes)
        _refuse_all_zero(counted, self.reduction)
        if evidence is not None and self.impossible == "raise":
            raise_if_impossible(_counted(evidence.log_likelihood, counted), groups, z)
        if counted is not None:  # zero times NaN, where there is no posterior, would be NaN
            weights = weights.masked_fill(groups.segments.expand(counted == 0)[:, None], 0)
        with full_precision(logits.device.type):
            risks = self._risks(logits, weights, groups, of_rows)
            return _reduce(risks if given is None else risks * given.to(risks.dtype), self.reduction, counted)

    def extra_repr(self) -> str:
        """Name the settings where the module is printed."""
        loss = getattr(self.loss, "__name__", self.loss)
        return f"{self.aggregate}, loss={loss}, reduction={self.reduction!r}, impossible={self.impossible!r}"

    def _risks(self, logits: Tensor, weights: Tensor, groups: Groups, of_rows: Tensor | None) -> Tensor:
        segments = groups.segments
        if self.loss is not cross_entropy:
            weights = weights if of_rows is None else weights * of_rows[:, None]
            return weighted_risk(groups.gather(self._losses(logits)), weights, segments)
        compute = lambda own: cross_entropy_risk(log_softmax(class_major(own)), weights, segments, of_rows)  # noqa: E731
        return WithGradient.apply(groups.gather(logits), segments, compute)

    def _losses(self, logits: Tensor) -> Tensor:
        losses = self.loss(logits)
        if not isinstance(losses, Tensor) or losses.shape != logits.shape:
            raise ValueError(
                f"loss must return one loss per row and class, shape {tuple(logits.shape)}; got {describe(losses)}; "
                "entry [i, j] is the loss of row i if its label were j"
            )
        return losses


class NegativeLogLikelihood(nn.Module):
    """The negative log-likelihood of the observations of groups, ``-log p(z | x_1..x_m)``.

    Takes what :class:`UnbiasedRisk` takes, less the loss and the weights; rows of one group must have equal weights in
    ``sample_weight``, which are the weight of the group, because a group has one likelihood. Observations that the
    logits rule out raise :class:`ImpossibleObservation`, as in :class:`UnbiasedRisk`; with ``impossible="-inf"`` their
    value is ``inf``, and so is the mean.

    Examples
    --------
    >>> from unbag import PairwiseSimilarity
    >>> pairs = Groups.from_tuples([[0, 1]])
    >>> logits = torch.tensor([[0.9, 0.1], [0.5, 0.5]]).log()
    >>> NegativeLogLikelihood(PairwiseSimilarity())(logits, pairs, [1])
    tensor(0.6931)
    """

    def __init__(
        self, aggregate: Aggregate, *, reduction: Reduction = "mean", impossible: Impossible = "raise"
    ) -> None:
        super().__init__()
        self.aggregate = _check_aggregate(aggregate)
        self.reduction = check_choice("reduction", reduction, get_args(Reduction))
        self.impossible = check_choice("impossible", impossible, get_args(Impossible))

    def forward(
        self, logits: Tensor, groups: Groups, z: Any, *, group_weights: Any = None, sample_weight: Any = None
    ) -> Tensor:
        """Return the negative log-likelihood, differentiable in the logits; see :meth:`UnbiasedRisk.forward`."""
        self.aggregate.check_sizes(groups)
        counted = None if group_weights is None else read_group_weights(group_weights, groups)
        log_likelihood = self.aggregate.log_likelihood(logits, groups, z)
        if sample_weight is not None:
            counted = _product(counted, weights_of_groups(sample_weight, groups, len(logits)))
        _refuse_all_zero(counted, self.reduction)
        log_likelihood = _counted(log_likelihood, counted)
        if self.impossible == "raise":
            raise_if_impossible(log_likelihood, groups, z)
        values = -log_likelihood
        return _reduce(values if counted is None else values * counted.to(values.dtype), self.reduction, counted)

    def extra_repr(self) -> str:
        """Name the settings where the module is printed."""
        return f"{self.aggregate}, reduction={self.reduction!r}, impossible={self.impossible!r}"


class NoisyLikelihood(nn.Module):
    """The negative log-likelihood of answers of yes or no, with a rate of wrong ones that is learned with the model.

    The rate is a parameter of this module: hand it to the optimiser beside those of the model. It stays below one half,
    where answers would turn into their contrary. It can be told from an unsure model only as far as the model cannot
    explain every answer by itself: rows must be in several groups, or share what their columns say, and a model that
    learns single answers by heart makes the rate too low. Where rows say nothing, p(yes) is all that answers tell, and
    any rate below it fits as well. :class:`Noisy` with the rate that was learned judges and disaggregates.

    Parameters
    ----------
    aggregate
        What is answered, as in :class:`Noisy`.
    rate
        Of wrong answers at the beginning, between 0 and 0.5.

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
            raise ValueError(f"rate must be a number between 0 and 0.5 to begin with, got {rate!r}")
        self.aggregate = Noisy(aggregate, rate).aggregate
        self.log_odds = nn.Parameter(torch.tensor(2.0 * rate, dtype=torch.float64).logit())  # of twice the rate

    @property
    def rate(self) -> float:
        """How often answers are wrong, as it has been learned."""
        return float(self.log_odds.detach().sigmoid()) / 2

    def forward(self, logits: Tensor, groups: Groups, z: Any) -> Tensor:
        """Return the mean over groups, differentiable in the logits and in the rate; answers are 0 or 1."""
        answers = Noisy(self.aggregate, self.rate)
        wrong, rate = answers.chance_of_error(logits, groups, z), self.log_odds.sigmoid() / 2
        # The gradient in the rate is that of the expected log-probability of right and wrong answers.
        of_rate = wrong * rate.log() + (1 - wrong) * (1 - rate).log()
        log_likelihood = answers.log_likelihood(logits, groups, z)
        return -(log_likelihood + (of_rate - of_rate.detach()).to(log_likelihood.dtype)).mean()

    def extra_repr(self) -> str:
        """Name the settings where the module is printed."""
        return f"{self.aggregate}, rate={self.rate:.3g}"


def _product(weights: Tensor | None, factor: Tensor) -> Tensor:
    return factor if weights is None else weights * factor


def _counted(log_likelihood: Tensor, weights: Tensor | None) -> Tensor:
    """Return the log-likelihood of groups that count, and zero for those of weight zero, whatever it may be."""
    return log_likelihood if weights is None else log_likelihood.masked_fill(weights == 0, 0)


def _reduce(weighted: Tensor, reduction: str, weights: Tensor | None) -> Tensor:
    """Bring one value per group, multiplied by its weight, to what the caller asked for."""
    if reduction == "none":
        return weighted
    if reduction == "sum":
        return weighted.sum()
    return weighted.mean() if weights is None else weighted.sum() / weights.to(weighted.dtype).sum()


def _refuse_all_zero(weights: Tensor | None, reduction: str) -> None:
    if weights is not None and reduction == "mean" and not bool(weights.any()):
        raise ValueError(
            "group_weights must not all be zero for reduction='mean', which divides by their sum, nor may "
            "sample_weight; leave out the batch or use reduction='sum'"
        )


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
            "for other parameters use functools.partial, for example partial(unbag.objectives.losses.gce, q=0.5)"
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
            f"weights must be finite, but there is NaN or infinity for {groups.format_groups_holding(wrong)}; "
            "look for groups whose observation was impossible"
        )
    return weights.to(logits.dtype)
