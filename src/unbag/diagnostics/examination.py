"""Examination of a fitted model by left-out groups: worse than a constant, counts that scatter, wrong counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import torch
from scipy.stats import chi2
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag._utils.findings import Finding
from unbag.training import Observations

# The probability that any of the groups is named although all counts are right.
CHANCE = 0.01
# Standard errors by which counts must scatter more than they should, and groups be explained worse than by a constant.
ERRORS = 5
ERRORS_OF_LOSS = 3
MOST_NAMED = 5
NUMBERS_AT_ONCE = 2**22

# Relative step of the difference quotient by the log-odds of a class.
TILT = 0.02

TILTS = torch.logspace(-2, 1.2, 40, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Groups of one set that were left out of training, and what was predicted of them, on the CPU."""

    observations: Observations
    log_probs: Tensor
    """Of each membership, by a model that has not seen the group."""
    by_fold: Sequence[Tensor] | Tensor
    """The same by the models of each fold, whose differences tell how uncertain the model is; empty without folds."""
    constant: Tensor
    """Log-likelihood of each group under the best constant prediction."""


@dataclass(frozen=True, eq=False)
class Deviations:
    """Observed less expected counts, and how large that should be if members are independent given their features."""

    difference: Tensor
    """(groups, k)"""
    squared: Tensor
    """Its squared length, (groups,); of published counts the expectation of that, given what was published."""
    variance: Tensor
    """Of each count, (groups, k)."""
    square: Tensor
    """The expectation of the squared length of the difference, (groups,)."""
    square_variance: Tensor
    """Its variance, (groups,)."""
    uncertainty: Tensor
    """Of the expected counts, because the model was estimated: a variance, (groups, k)."""

    @property
    def inflation(self) -> Tensor:
        """How many times the squared length is what chance alone makes it, because the model was estimated."""
        return 1 + self.uncertainty.sum(1) / self.square.clamp(min=1e-300)

    @property
    def ratio(self) -> Tensor:
        """The squared length over its expectation, (groups,)."""
        return self.squared / (self.square * self.inflation).clamp(min=1e-300)

    def scatter(self, which: Tensor) -> tuple[float, float]:
        """Return how many times the differences are as large as they should be, squared, and its standard error.

        Groups are weighted by how exactly each of them tells.
        """
        weights = self.square[which].square() / self.square_variance[which].clamp(min=1e-300)
        total = weights.sum().clamp(min=1e-300)
        return float(weights @ self.ratio[which] / total), float(total.rsqrt())


def examine(left_out: Sequence[LeftOut]) -> list[Finding]:
    """Say what left-out groups tell against a model, or against what was observed of them."""
    findings: list[Finding] = []
    for one in left_out:
        findings += find_loss(one)
        outcome = one.observations.aggregate.outcome
        if outcome not in ("class_counts", "published_counts") or one.observations.groups.max_size == 1:
            continue
        deviation = deviations(one)
        if outcome == "class_counts":
            wrong = improbable_groups(one, deviation)
            findings += find_wrong_counts(one, deviation, wrong)
            findings += find_overdispersion(deviation, ~wrong)
        else:
            findings += find_overdispersion(deviation, deviation.squared.isfinite(), at_least="at least ")
    return findings


def find_loss(one: LeftOut) -> Iterator[Finding]:
    """Say where groups are explained worse than by the shares of the classes, by more than chance."""
    seen = one.observations
    log_likelihood = seen.aggregate.checked_evidence(one.log_probs, seen.groups.segments, seen.checked).log_likelihood
    gain = (log_likelihood - one.constant).double()
    n = len(gain)
    if n < 2:
        return
    mean, error = float(gain.mean()), float(gain.std() / n**0.5)
    if not mean >= -ERRORS_OF_LOSS * error:
        yield Finding(
            "worse_than_constant",
            f"{n:,} left-out groups are explained worse than by the shares of the classes alone: log-likelihood per "
            f"group {mean:+.2g}, with a standard error of {error:.2g}; there are too few groups for the columns, or "
            "the features do not tell the classes",
        )


def deviations(one: LeftOut) -> Deviations:
    """Compare observed counts with those expected of independent members."""
    groups, probs = one.observations.groups, one.log_probs.double().exp()
    expected = groups.segments.sum(probs)
    total = probs.square().sum(1, keepdim=True)
    length = 1 - 2 * probs + total  # of the difference of one member, squared, if it is of a class
    # The variance of a squared sum of independent vectors, whose covariance is diag(p) - p p'.
    fourth = (probs * length.square()).sum(1)
    own = probs.square().sum(1) - 2 * probs.pow(3).sum(1) + total[:, 0].square()
    per_member = fourth - (1 - total[:, 0]).square() - 2 * own
    uncertainty = torch.zeros_like(expected)
    if len(one.by_fold) > 1:  # the jackknife, which leaves out a fold at a time
        of_folds = torch.stack([groups.segments.sum(own.double().exp()) for own in one.by_fold])
        uncertainty = (len(of_folds) - 1) * of_folds.var(0, correction=0)
    variance = groups.segments.sum(probs * (1 - probs))
    if one.observations.aggregate.outcome == "class_counts":
        difference = one.observations.checked.double() - expected
        squared = difference.square().sum(1)
    else:
        difference, squared = _expected_deviations(one.observations, one.log_probs.double(), variance)
    return Deviations(
        difference=difference,
        squared=squared,
        variance=variance,
        square=groups.segments.sum(1 - total[:, 0]),
        square_variance=groups.segments.sum(per_member) + 2 * _squared_covariance(probs, groups.segments),
        uncertainty=uncertainty,
    )


def _expected_deviations(observations: Observations, log_probs: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Return the expected difference and its expected squared length, given what was published of the counts.

    Under the model, the expectation of the squared length is that of exact counts, and its variance is at most theirs,
    whatever rounding, suppression and noise hide. Derivatives of the log-likelihood by the log-odds of a class in a
    group are the expected difference, and the change of the variance; the second one is a difference quotient. Both are
    NaN for groups whose likelihood is a normal approximation, which is not exact enough for it.
    """
    aggregate: Any = observations.aggregate  # of published counts, which has a plan
    groups = observations.groups
    methods = aggregate.plan(groups, observations.checked).methods
    which = torch.tensor([place for place, method in enumerate(methods) if method != "normal"], dtype=torch.int64)
    expected, squared = torch.full_like(variance, torch.nan), torch.full_like(variance[:, 0], torch.nan)
    if len(which) == 0:
        return expected, squared
    members, segments = groups.segments.take(which)
    log_probs, variance, z = log_probs[members], variance[which], observations.checked[which]

    def difference(logits: Tensor) -> Tensor:
        return segments.sum(aggregate.checked_evidence(logits, segments, z).posterior - logits.exp())

    expected[which] = at_zero = difference(log_probs)
    squared[which] = at_zero.square().sum(1)
    for place, column in enumerate(torch.eye(variance.shape[1], dtype=torch.float64)):
        step = TILT / variance[:, place].clamp(min=1).sqrt()  # small beside the spread of the counts
        tilt = segments.expand(step)[:, None] * column
        up, down = (difference((log_probs + sign * tilt).log_softmax(1))[:, place] for sign in (1, -1))
        squared[which] += (up - down) / (2 * step) + variance[:, place]
    return expected, squared


def _squared_covariance(probs: Tensor, segments: Segments) -> Tensor:
    """Return the sum of the squared entries of the covariance matrix of the counts of each group, (groups,)."""
    k = probs.shape[1]
    covariances = probs.new_empty(len(segments))
    for size in segments.sizes.unique().tolist():
        which = (segments.sizes == size).nonzero().flatten()
        for part in which.split(max(1, NUMBERS_AT_ONCE // (k * max(k, size)))):
            own = probs[segments.take(part)[0]].view(len(part), size, k)
            covariance = torch.diag_embed(own.sum(1)) - own.mT @ own
            covariances[part] = covariance.square().sum((1, 2))
    return covariances


def improbable_groups(one: LeftOut, deviation: Deviations) -> Tensor:
    """Return which groups have counts that the model rules out, beyond what it does to the others, (groups,).

    Chernoff's bound on the probability of a count so far off, with the exponent divided by how many times the squares
    of an ordinary group exceed what they should be, and Bonferroni's correction.
    """
    freedom = (2 * deviation.square.square() / deviation.square_variance.clamp(min=1e-300)).clamp(min=1).numpy()
    usual = max(1.0, float(np.median(deviation.ratio.numpy() * freedom / chi2.median(freedom))))
    factor = usual * deviation.inflation
    limit = log(2 * deviation.difference.numel() / CHANCE)
    far = deviation.difference.square() > 9 * factor[:, None] * deviation.variance  # others are not worth the effort
    wrong = torch.zeros(len(factor), dtype=torch.bool)
    candidates = far.any(1).nonzero().flatten()
    if len(candidates):
        members, own = one.observations.groups.segments.take(candidates)
        probs = one.log_probs[members].double().exp()
        exponents = _exponents(probs, own, deviation.difference[candidates])
        wrong[candidates] = (exponents / factor[candidates, None] > limit).any(1)
    return wrong


def _exponents(probs: Tensor, segments: Segments, difference: Tensor) -> Tensor:
    """Return the largest exponent of a bound exp(-exponent) on the probability of counts so far off, (groups, k)."""
    best = torch.zeros_like(difference)
    sign = segments.expand(difference.sign())
    for tilt in TILTS.tolist():
        # Of a member less its expectation, the logarithm of the moment generating function.
        log_moments = torch.log1p(probs * torch.expm1(sign * tilt)) - sign * tilt * probs
        best = torch.maximum(best, tilt * difference.abs() - segments.sum(log_moments))
    return best


def find_wrong_counts(one: LeftOut, deviation: Deviations, wrong: Tensor) -> Iterator[Finding]:
    """Name the groups whose counts the model rules out."""
    n, groups = int(wrong.sum()), one.observations.groups
    if n == 0:
        return
    order = wrong.nonzero().flatten()
    order = order[deviation.ratio[order].argsort(descending=True, stable=True)][:MOST_NAMED]
    sentences = []
    for group in order.tolist():
        worst = int(deviation.difference[group].abs().argmax())
        seen = int(one.observations.checked[group, worst])
        expected = seen - float(deviation.difference[group, worst])
        spread = float((deviation.variance + deviation.uncertainty)[group, worst] ** 0.5)
        sentences.append(
            f"group {groups.name(group)} has {seen:,} of class {worst}, expected {expected:.1f} ± {spread:.1f}"
        )
    more = f"; and {n - len(order):,} more" if n > len(order) else ""
    yield Finding(
        "suspicious_groups",
        f"{n:,} of {len(groups):,} left-out groups have counts that the model rules out (that chance names a single "
        f"one has a probability of at most {CHANCE:.0%}): {'; '.join(sentences)}{more}; look whether they were counted "
        "or joined wrongly",
    )


def find_overdispersion(deviation: Deviations, which: Tensor, at_least: str = "") -> Iterator[Finding]:
    """Report counts that scatter more than those of members that are independent given their features.

    Published counts hide a part of the scatter, so that the ratio is a lower bound, and ``at_least`` says so.
    """
    if not bool(which.any()):
        return
    scatter, error = deviation.scatter(which)
    if scatter > 1 + ERRORS * error:
        yield Finding(
            "overdispersion",
            f"left-out counts scatter {at_least}{scatter:.2g} times as much as those of independent members, where 1 ± "
            f"{error:.2g} is expected: members of a group have more in common than the features tell the model, and "
            "probabilities of groups are too sure; add a feature for what they share, or trust rankings only",
        )
