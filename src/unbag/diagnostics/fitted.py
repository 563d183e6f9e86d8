"""Checks of a fitted model by held-out groups: worse than a constant, counts that vary too much, wrong counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag._utils.findings import Finding, UnbagWarning
from unbag._utils.problems import list_some
from unbag.aggregates.observations import Observations
from unbag.aggregates.symmetry import has_counts
from unbag.diagnostics.observations import find_classes
from unbag.diagnostics.registry import MAX_LISTED, Context, register_check
from unbag.learners.constant import fit_null_model
from unbag.published import HIGH, LOW, SCALE, estimate

FEW_TO_JUDGE = 40
"""Up to so many held-out groups, an estimate of accuracy is rough."""
MAX_HALF_WIDTH = 0.1
"""Half-width of its interval above which an estimate of accuracy is rough."""
MIN_VARIANCE = 1e-9
"""Expected squared deviation of the counts of a group below which rounding errors prevail."""
CHANCE = 0.01
"""Probability that any group is named although all counts are right."""
MAX_ERRORS, MAX_LOSS_ERRORS = 5, 3
"""Standard errors by which counts vary too much, and by which groups are explained worse than by a constant."""
MAX_LOSS = 1.0
"""Loss of log-likelihood per group, against a constant prediction, that needs no test."""
MAX_NAMED = 5
NUMBERS_AT_ONCE = 2**22
STEP = 0.02
"""Relative step of the difference quotient by the log-odds of a class."""
MAX_WIDTH = 2.0
"""The middle of an interval stands for the count if the interval is at most this number of standard deviations wide."""
APPROXIMATE = ("normal", "messages")
"""Methods of published counts whose likelihood is an approximation."""
TILTS = torch.logspace(-2, 1.2, 40, dtype=torch.float64)


class DivergenceWarning(UnbagWarning, ConvergenceWarning):  # type: ignore[misc]  # scikit-learn has no types
    """A fitted model that explains groups worse than one that predicts the same for every row."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Groups of one set, and the predictions of their members by models that have not seen them."""

    observations: Observations
    log_probs: Tensor
    """Of each membership."""
    by_fold: Sequence[Tensor]
    """The same by the models of each fold; empty without folds."""

    @classmethod
    def find(cls, context: Context) -> Iterator[HeldOut]:
        """Yield the groups of each set whose members were all held out."""
        for s, log_probs, by_fold in zip(context.sets, context.log_probs, context.fold_log_probs, strict=False):
            n_unknown = s.groups.segments.sum((~log_probs.isfinite().all(1)).long())
            if len(which := (n_unknown == 0).nonzero().flatten()):
                members = s.groups.segments.take(which)[0]
                yield cls(s.take(which), log_probs[members], [of_fold[members] for of_fold in by_fold])


@dataclass(frozen=True, eq=False)
class Deviations:
    """Observed less expected counts, and their moments if members are independent given their features."""

    difference: Tensor  # (groups, k)
    squared: Tensor
    """Its squared length, (groups,); for published counts its expectation given what was published; NaN if unknown."""
    variance: Tensor  # of each count, (groups, k)
    square: Tensor  # expectation of the squared length, (groups,)
    square_variance: Tensor  # of the squared length, (groups,)
    uncertainty: Tensor  # variance of the expected counts, because the model was estimated, (groups, k)

    @property
    def inflation(self) -> Tensor:
        """How many times the squared length is what chance alone makes it, because the model was estimated."""
        return 1 + self.uncertainty.sum(1) / self.square.clamp(min=1e-300)

    @property
    def ratio(self) -> Tensor:
        """The squared length over its expectation, (groups,)."""
        return self.squared / (self.square * self.inflation).clamp(min=1e-300)

    def dispersion(self, which: Tensor) -> tuple[float, float]:
        """Return the mean ratio of the chosen groups, weighted by their precision, and its standard error."""
        weights = self.square[which].square() / self.square_variance[which].clamp(min=1e-300)
        total = weights.sum().clamp(min=1e-300)
        return float(weights @ self.ratio[which] / total), float(total.rsqrt())


@register_check("fit")
def check_divergence(context: Context) -> Iterator[Finding]:
    """Yield a finding if a constant prediction explains held-out groups better than the model."""
    for held_out in HeldOut.find(context):
        s = held_out.observations
        evidence = s.aggregate.checked_evidence(held_out.log_probs, s.groups.segments, s.checked)
        gain = evidence.log_likelihood.double() - fit_null_model([s])[1][0]
        mean, error = float(s.mean(gain)), float(gain.std(correction=0) / len(gain) ** 0.5)
        if not (mean >= -MAX_LOSS_ERRORS * error and mean > -MAX_LOSS):
            yield Finding(
                "worse_than_constant",
                f"{len(gain):,} held-out groups are explained worse than by a constant prediction, the shares of the "
                f"classes: log-likelihood per group {mean:+.2g}, with a standard error of {error:.2g}; do not rely on "
                "the model; leave columns out, collect more groups, or add features that distinguish the classes",
            )


@register_check("fit")
def check_counts(context: Context) -> Iterator[Finding]:
    """Yield what the counts of held-out groups show against the model, or against the counts."""
    for held_out in HeldOut.find(context):
        s = held_out.observations
        if not has_counts(s) or s.groups.max_size == 1 or len(held_out.by_fold) < 2:
            continue
        deviations = compute_deviations(held_out)
        if s.aggregate.outcome == "class_counts":
            wrong = find_improbable_groups(held_out, deviations)
            yield from _find_wrong_counts(context, s, deviations, wrong)
            yield from _find_overdispersion(deviations, ~wrong)
        else:
            yield from _find_overdispersion(deviations, deviations.squared.isfinite(), "at least ")


@register_check("fit")
def check_subjects(context: Context) -> Iterator[Finding]:
    """Yield a finding if rows of a subject were in several folds."""
    if context.subjects is None or not context.folds:
        return
    folds = torch.cat(list(context.folds))
    subjects = context.subjects[torch.cat([s.groups.members for s in context.sets])]
    pairs = torch.stack([subjects, folds], 1)[folds >= 0].unique(dim=0)
    several = int((pairs[:, 0].unique(return_counts=True)[1] > 1).sum())
    if several:
        n = len(context.subjects.unique())
        yield Finding(
            "split_subjects",
            f"rows of {several:,} of {n:,} subjects are in several folds, because most groups mix subjects: held-out "
            "groups do not show how well rows of new subjects are predicted",
        )


@register_check("fit")
def check_predicted_classes(context: Context) -> Iterator[Finding]:
    """Yield the classes that are the most likely one of no row, although the observations contain them."""
    if context.sample_log_probs is None:
        return
    probs, k = context.sample_log_probs.exp(), len(context.classes)
    never = torch.bincount(probs.argmax(1), minlength=k) == 0
    for s in context.sets:
        if has_counts(s):
            never &= find_classes(s)
    if names := [repr(context.classes[n]) for n in never.nonzero().flatten().tolist()]:
        verb, them = ("is", "it") if len(names) == 1 else ("are", "them")
        share, shown = float(probs.mean(0)[never].sum()), list_some(names, MAX_LISTED, str)
        yield Finding(
            "never_predicted",
            f"{shown} {verb} never predicted: {share:.2%} of the rows are expected to be of {them}, but in each of "
            f"{len(probs):,} rows another class is more likely; rank rows by predict_proba, or choose a threshold for "
            "it, and judge the model by sensitivity and precision in place of accuracy",
        )


@register_check("fit")
def check_time(context: Context) -> Iterator[Finding]:
    """Yield a finding if the time limit ended training."""
    if context.time_limit is not None and context.seconds >= context.time_limit:
        yield Finding(
            "short_time",
            f"training ended at the limit of {context.time_limit:g} seconds, before held-out groups stopped improving "
            "or all models were tried; allow more time for a better result",
        )


@register_check("fit")
def check_estimate(context: Context) -> Iterator[Finding]:
    """Yield a finding if held-out groups are few, or the interval of the estimated accuracy is wide."""
    sets = [held_out.observations for held_out in HeldOut.find(context)]
    n = sum(len(s.groups) for s in sets)
    if context.interval is None or all(s.groups.max_size == 1 for s in sets):
        return
    low, high = context.interval
    if n <= FEW_TO_JUDGE or high - low > 2 * MAX_HALF_WIDTH:
        yield Finding(
            "rough_estimate",
            f"{n} held-out groups show the accuracy of predictions for new rows only roughly, {low:.0%} to {high:.0%}; "
            "label some rows to check it, or collect more groups",
        )


def compute_deviations(held_out: HeldOut) -> Deviations:
    """Compare observed counts with those expected of independent members."""
    s, groups, probs = held_out.observations, held_out.observations.groups, held_out.log_probs.double().exp()
    expected = groups.segments.sum(probs)
    total = probs.square().sum(1, keepdim=True)
    length = 1 - 2 * probs + total  # of the difference of one member, squared, if it is of a class
    # The variance of a squared sum of independent vectors, whose covariance is diag(p) - p p'.
    fourth = (probs * length.square()).sum(1)
    of_member = probs.square().sum(1) - 2 * probs.pow(3).sum(1) + total[:, 0].square()
    per_member = fourth - (1 - total[:, 0]).square() - 2 * of_member
    uncertainty = torch.zeros_like(expected)
    if len(held_out.by_fold) > 1:  # the jackknife, which leaves out a fold at a time
        of_folds = torch.stack([groups.segments.sum(fold.double().exp()) for fold in held_out.by_fold])
        uncertainty = (len(of_folds) - 1) * of_folds.var(0, correction=0)
    variance = groups.segments.sum(probs * (1 - probs))
    if s.aggregate.outcome == "class_counts":
        difference = s.checked.double() - expected
        squared = difference.square().sum(1)
    else:
        difference, squared = _expect_deviations(s, held_out.log_probs.double(), variance)
    return Deviations(
        difference=difference,
        squared=squared,
        variance=variance,
        square=groups.segments.sum(1 - total[:, 0]),
        square_variance=groups.segments.sum(per_member) + 2 * _sum_squared_covariances(probs, groups.segments),
        uncertainty=uncertainty,
    )


def _expect_deviations(s: Observations, log_probs: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Return the expected difference and its expected squared length, given what was published of the counts.

    Under the model, the expectation of the squared length is that of exact counts, and its variance is at most theirs.
    Derivatives of the log-likelihood by the log-odds of a class in a group are the expected difference, and the change
    of the variance; the second one is a difference quotient, for which approximate likelihoods are not precise enough;
    there, the middle of narrow intervals stands for the count, less the variance that rounding adds.
    """
    aggregate: Any = s.aggregate  # of published counts, which has a plan
    methods = aggregate.plan(s.groups, s.checked).methods
    exact = torch.tensor([method not in APPROXIMATE for method in methods])
    width = s.checked[..., HIGH] - s.checked[..., LOW] + 1
    difference = estimate(s.checked) - s.groups.segments.sum(log_probs.exp())
    narrow = ((width <= MAX_WIDTH * variance.sqrt()) & (s.checked[..., SCALE] == 0)).all(1)
    squared = (difference.square() - (width.square() - 1) / 12).sum(1).where(narrow, torch.nan)
    which = exact.nonzero().flatten()
    if len(which) == 0:
        return difference, squared
    members, segments = s.groups.segments.take(which)
    log_probs, variance, z = log_probs[members], variance[which], s.checked[which]

    def subtract(logits: Tensor) -> Tensor:
        return segments.sum(aggregate.checked_evidence(logits, segments, z).posterior - logits.exp())

    difference[which] = at_zero = subtract(log_probs)
    squared[which] = at_zero.square().sum(1)
    for place, column in enumerate(torch.eye(variance.shape[1], dtype=torch.float64)):
        step = STEP / variance[:, place].clamp(min=1).sqrt()  # small beside the standard deviation of the counts
        tilt = segments.expand(step)[:, None] * column
        up, down = (subtract((log_probs + sign * tilt).log_softmax(1))[:, place] for sign in (1, -1))
        squared[which] += (up - down) / (2 * step) + variance[:, place]
    return difference, squared


def _sum_squared_covariances(probs: Tensor, segments: Segments) -> Tensor:
    """Return the sum of the squared entries of the covariance matrix of the counts of each group, (groups,)."""
    k = probs.shape[1]
    covariances = probs.new_empty(len(segments))
    for size in segments.sizes.unique().tolist():
        which = (segments.sizes == size).nonzero().flatten()
        for part in which.split(max(1, NUMBERS_AT_ONCE // (k * max(k, size)))):
            of_group = probs[segments.take(part)[0]].view(len(part), size, k)
            covariance = torch.diag_embed(of_group.sum(1)) - of_group.mT @ of_group
            covariances[part] = covariance.square().sum((1, 2))
    return covariances


def find_improbable_groups(held_out: HeldOut, deviations: Deviations) -> Tensor:
    """Return which groups have counts that the model rules out, more than it does those of other groups, (groups,).

    Chernoff's bound on the probability of such a deviation, with the exponent divided by how many times the squares of
    an ordinary group exceed their expectation, and Bonferroni's correction.
    """
    from scipy.stats import chi2  # noqa: PLC0415 (slow to import)

    freedom = (2 * deviations.square.square() / deviations.square_variance.clamp(min=1e-300)).clamp(min=1).numpy()
    usual = max(1.0, float(np.median(deviations.ratio.numpy() * freedom / chi2.median(freedom))))
    factor = usual * deviations.inflation
    limit = log(2 * deviations.difference.numel() / CHANCE)
    far = deviations.difference.square() > 9 * factor[:, None] * deviations.variance  # others are within the bound
    wrong = torch.zeros(len(factor), dtype=torch.bool)
    candidates = far.any(1).nonzero().flatten()
    if len(candidates):
        members, segments = held_out.observations.groups.segments.take(candidates)
        probs = held_out.log_probs[members].double().exp()
        exponents = chernoff_exponents(probs, segments, deviations.difference[candidates])
        wrong[candidates] = (exponents / factor[candidates, None] > limit).any(1)
    return wrong


def chernoff_exponents(probs: Tensor, segments: Segments, difference: Tensor) -> Tensor:
    """Return the largest exponent of a bound exp(-exponent) on the probability of such deviations, (groups, k)."""
    best = torch.zeros_like(difference)
    sign = segments.expand(difference.sign())
    for tilt in TILTS.tolist():
        # The logarithm of the moment generating function of a member less its expectation.
        log_moments = torch.log1p(probs * torch.expm1(sign * tilt)) - sign * tilt * probs
        best = torch.maximum(best, tilt * difference.abs() - segments.sum(log_moments))
    return best


def _find_wrong_counts(context: Context, s: Observations, deviations: Deviations, wrong: Tensor) -> Iterator[Finding]:
    n, groups = int(wrong.sum()), s.groups
    if n == 0:
        return
    order = wrong.nonzero().flatten()
    order = order[deviations.ratio[order].argsort(descending=True, stable=True)][:MAX_NAMED]
    sentences = []
    for group in order.tolist():
        worst = int(deviations.difference[group].abs().argmax())
        seen, name = int(s.checked[group, worst]), context.classes[worst]
        expected = seen - float(deviations.difference[group, worst])
        error = float((deviations.variance + deviations.uncertainty)[group, worst] ** 0.5)
        sentences.append(
            f"group {groups.name(group)} has {seen:,} of class {name}, expected {expected:.1f} ± {error:.1f}"
        )
    more = f"; and {n - len(order):,} more" if n > len(order) else ""
    yield Finding(
        "suspicious_groups",
        f"{n:,} of {len(groups):,} held-out groups have counts that the model rules out (with a probability of at most "
        f"{CHANCE:.0%} that chance names any): {'; '.join(sentences)}{more}; check whether they were counted or joined "
        "wrongly",
    )


def _find_overdispersion(deviations: Deviations, which: Tensor, at_least: str = "") -> Iterator[Finding]:
    # Published counts hide a part of the variation: the ratio is a lower bound, as at_least states.
    which = which & (deviations.square > MIN_VARIANCE)
    if not bool(which.any()):
        return
    dispersion, error = deviations.dispersion(which)
    if dispersion > 1 + MAX_ERRORS * error:
        yield Finding(
            "overdispersion",
            f"held-out counts vary {at_least}{dispersion:.2g} times as much as those of independent members, where 1 ± "
            f"{error:.2g} is expected: members of a group have more in common than the features show, and "
            "probabilities of groups are too certain; add a feature for what they share, or rely on rankings only",
        )
