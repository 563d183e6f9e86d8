"""Checks of a fitted model by held-out groups: worse than a constant, counts that vary too much, wrong counts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log

import torch
from scipy.stats import t
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from unbag._utils.findings import Finding, UnbagWarning
from unbag._utils.problems import list_some
from unbag.aggregates.observations import Observations
from unbag.aggregates.symmetry import has_counts
from unbag.diagnostics.observations import find_classes
from unbag.diagnostics.registry import Context, register_check
from unbag.learners.constant import fit_null_model
from unbag.noise import KINDS
from unbag.published import HIGH, LOW, MISSING, NOISE, SCALE, estimate

FEW_TO_JUDGE, MAX_HALF_WIDTH = 40, 0.1  # an estimate from so few groups, or with such an interval, is rough
CHANCE = 0.01  # that any group is named although all counts are right
# Probability that chance alone makes counts vary too much, the smallest such variation, and number of groups.
DISPERSION_CHANCE, MIN_DISPERSION, MIN_GROUPS = 1e-4, 1.1, 10
MAX_LOSS_ERRORS, MAX_LOSS = 3, 1.0  # groups may be explained so much worse than by a constant; losses are per group
MEDIAN_SQUARE = 0.455  # median of a squared normal number, in parts of its expectation
MAX_WIDTH = 3.0  # standard deviations of a count, in an interval whose middle stands for the count


class DivergenceWarning(UnbagWarning, ConvergenceWarning):  # type: ignore[misc]  # scikit-learn has no types
    """A fitted model that explains groups worse than one that predicts the same for every row."""


@dataclass(frozen=True, eq=False)
class Deviations:
    """Observed less expected counts, and their variance if members are independent given their features."""

    difference: Tensor  # (groups, k) like the others; of published values if these are known instead of counts
    variance: Tensor
    uncertainty: Tensor  # variance of the expected counts, because the model was estimated
    added: Tensor  # variance of published values given the counts; NaN where it is unknown

    @property
    def ratio(self) -> Tensor:
        """The squared length of the difference over its expectation, (groups,)."""
        return self.difference.square().sum(1) / (self.variance + self.uncertainty + self.added).sum(1).clamp(1e-300)

    def dispersion(self, which: Tensor) -> tuple[float, float]:
        """Return the mean ratio of the chosen groups, weighted by their precision, and its standard error.

        The error is that of the observed ratios: theoretical variances assume that members are independent.
        """
        ratio, of_counts = self.ratio[which], self.variance[which].sum(1)
        total = of_counts + self.added[which].sum(1)
        # The variance of a squared length is about that of a Poisson number, and of a squared normal number.
        weights = of_counts * total / (of_counts + 2 * total.square()).clamp(1e-300)
        weights /= weights.sum().clamp(1e-300)
        mean = weights @ ratio
        return float(mean), float((weights * (ratio - mean)).norm())


@register_check("fit")
def check_divergence(context: Context) -> Iterator[Finding]:
    """Yield a finding if a constant prediction explains held-out groups better than the model."""
    for s, log_probs, _ in find_held_out(context):
        evidence = s.aggregate.checked_evidence(log_probs, s.groups.segments, s.checked)
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
    for s, log_probs, by_fold in find_held_out(context):
        if not has_counts(s) or s.groups.max_size == 1 or len(by_fold) < 2:
            continue
        deviations = compute_deviations(s, log_probs, by_fold)
        known = deviations.added.isfinite().all(1) & (deviations.variance.sum(1) > 1e-9)  # else rounding errors prevail
        if s.aggregate.outcome == "class_counts":
            wrong = find_improbable_groups(s, deviations)
            yield from _name_groups(context, s, deviations, wrong)
            known &= ~wrong
        # Published counts hide a part of the variation.
        yield from _find_overdispersion(deviations, known, "" if s.aggregate.outcome == "class_counts" else "at least ")


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
        yield Finding(
            "never_predicted",
            f"{list_some(names, form=str)} {verb} never predicted: {float(probs.mean(0)[never].sum()):.2%} of the rows "
            f"are expected to be of {them}, but in each of {len(probs):,} rows another class is more likely; rank rows "
            "by predict_proba, or choose a threshold for it, and judge the model by sensitivity and precision in place "
            "of accuracy",
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
    sets = [s for s, *_ in find_held_out(context)]
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


def find_held_out(context: Context) -> Iterator[tuple[Observations, Tensor, list[Tensor]]]:
    """Yield the groups of each set whose members were all held out, with the log-probabilities of each membership.

    They are by models that have not seen the group, and by the models of each fold; the latter are empty without folds.
    """
    for s, log_probs, by_fold in zip(context.sets, context.log_probs, context.fold_log_probs, strict=False):
        n_unknown = s.groups.segments.sum((~log_probs.isfinite().all(1)).long())
        if len(which := (n_unknown == 0).nonzero().flatten()):
            members = s.groups.segments.take(which)[0]
            yield s.take(which), log_probs[members], [of_fold[members] for of_fold in by_fold]


def compute_deviations(s: Observations, log_probs: Tensor, by_fold: Sequence[Tensor]) -> Deviations:
    """Compare observed counts with those expected of independent members."""
    segments, probs = s.groups.segments, log_probs.double().exp()
    expected, variance = segments.sum(probs), segments.sum(probs * (1 - probs))
    uncertainty, added = torch.zeros_like(expected), torch.zeros_like(expected)
    if len(by_fold) > 1:  # the jackknife, which leaves out a fold at a time
        of_folds = torch.stack([segments.sum(fold.double().exp()) for fold in by_fold])
        uncertainty = (len(of_folds) - 1) * of_folds.var(0, correction=0)
    if s.aggregate.outcome == "class_counts":
        return Deviations(s.checked.double() - expected, variance, uncertainty, added)
    z = s.checked
    for kind in KINDS.values():
        of_kind = z[..., NOISE] == kind.code
        added[of_kind] = kind.variance(z[..., SCALE][of_kind])
    # Of a rounded value, as Sheppard's correction has it; a wider interval hides how far the count is from its middle.
    width = z[..., HIGH] - z[..., LOW] + 1
    narrow = width <= MAX_WIDTH * variance.sqrt()
    rounding = torch.where(narrow | (width <= 1), (width.square() - 1) / 12, torch.nan)
    added = torch.where(z[..., NOISE] > 0, added, rounding) + z[..., MISSING]
    return Deviations(estimate(z) - z[..., MISSING] - expected, variance, uncertainty, added)


def find_improbable_groups(s: Observations, deviations: Deviations) -> Tensor:
    """Return which groups have counts that the model rules out, more than it does those of other groups, (groups,).

    The exponent of a bound on the probability of such a deviation is divided by how many times the squares of an
    ordinary group exceed their expectation; Bonferroni's correction accounts for the number of counts.
    """
    usual = (deviations.ratio.median() / MEDIAN_SQUARE).clamp(min=1)
    factor = usual * (1 + deviations.uncertainty.sum(1) / deviations.variance.sum(1).clamp(min=1e-300))
    exponents = bound_exponents(deviations, s.groups.sizes)
    return (exponents / factor[:, None] > log(2 * exponents.numel() / CHANCE)).any(1)


def bound_exponents(deviations: Deviations, sizes: Tensor) -> Tensor:
    """Return the exponents of bounds ``exp(-exponent)`` on the probability of such deviations, (groups, k).

    Bennett's inequality is sharp for rare classes, and Hoeffding's for frequent ones.
    """
    difference, variance = deviations.difference.abs(), deviations.variance.clamp(min=1e-300)
    u = difference / variance
    return torch.maximum(variance * ((1 + u) * u.log1p() - u), 2 * difference.square() / sizes[:, None])


def _name_groups(context: Context, s: Observations, deviations: Deviations, wrong: Tensor) -> Iterator[Finding]:
    errors = (deviations.variance + deviations.uncertainty).sqrt()

    def describe(group: int) -> str:
        worst = int(deviations.difference[group].abs().argmax())
        seen = int(s.checked[group, worst])
        expected = f"{seen - float(deviations.difference[group, worst]):.1f} ± {float(errors[group, worst]):.1f}"
        return f"group {s.groups.name(group)} has {seen:,} of class {context.classes[worst]}, expected {expected}"

    order = (-deviations.ratio).argsort(stable=True)
    if names := order[wrong[order]].tolist():
        yield Finding(
            "suspicious_groups",
            f"{len(names):,} of {len(wrong):,} held-out groups have counts that the model rules out (chance names any "
            f"with a probability of at most {CHANCE:.0%}): {list_some(names, form=describe)}; check whether they were "
            "counted or joined wrongly",
        )


def _find_overdispersion(deviations: Deviations, which: Tensor, at_least: str) -> Iterator[Finding]:
    if (n := int(which.sum())) < MIN_GROUPS:
        return
    dispersion, error = deviations.dispersion(which)
    # The standard error grows with the variation itself, that of its logarithm does not.
    if dispersion > MIN_DISPERSION and log(dispersion) > t.isf(DISPERSION_CHANCE, n - 1) * error / dispersion:
        yield Finding(
            "overdispersion",
            f"held-out counts vary {at_least}{dispersion:.2g} ± {error:.2g} times as much as those of independent "
            "members: members of a group have more in common than the features show, and probabilities of groups are "
            "too certain; add a feature for what they share, or rely on rankings only",
        )
