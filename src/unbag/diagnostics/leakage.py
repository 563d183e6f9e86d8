"""Target leakage: columns that hold the observed labels, the group or its counts, instead of describing a row.

One detector serves arrays and the columns of files: it receives the values of a column as whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, lgamma, log

import numpy as np
import torch
from torch import Tensor

from unbag._utils.findings import Finding
from unbag.aggregates.observations import Observations
from unbag.diagnostics.registry import Context, register_check
from unbag.published import HIGH, LOW, MISSING

CHANCE = 0.02
"""Expected number of unrelated columns of a table that are reported."""
MAX_VALUES = 64
"""A column with more values is no coding of a few classes."""
MAX_TALLIES = 20_000_000
MIN_GAP = 3.0
"""Numbers form clusters if the gaps between them are so many times as wide as the widest cluster."""
MAX_ERROR = 0.25
"""A column holds the labels with errors if, with 95 % confidence, it has less than this part of the errors of an
unrelated column: codes of two equally frequent classes that are right in 87.5 % of the rows."""
MIN_MIXED, GROUPS_PER_VALUE = 0.5, 20
"""Such a column varies at least this much within groups, and there are so many groups for each value."""
MAX_CERTAINTY = 0.05
"""A group property holds the most frequent classes only if one that determines nothing but the probabilities of the
labels would match all of them with a smaller probability."""
MIN_BAGS = 10
"""A measured number may decide a few bags, but not so many of either label."""
_EXTREMES = ((1, "maximum", "at least", "at most"), (-1, "minimum", "at most", "at least"))
MIN_GROUPS = 10
"""Fewer groups show no relation to their shares."""
MAX_WITHIN = 0.25
"""The variation of a column within groups explains at most this part of the labels if it holds the share of a class."""
MIN_CORRELATION = 0.5
"""Minimum squared correlation of the shares of a class with the means of a column that holds them."""
MARGIN = 0.5
"""Part of the variation within groups that a property of rows has at least, by its rough slope."""
FIRST_ROWS = 1000
NUMBERS_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class Column:
    """The values of a column, one for each row."""

    codes: np.ndarray  # number of each value in their order, -1 where it is missing
    numbers: np.ndarray | None = None  # None for words
    words: np.ndarray | None = None  # of each code

    @property
    def is_array(self) -> bool:
        """Return whether nothing but codes is known, as of the columns of an array, whose best ones may decide bags."""
        return self.numbers is None and self.words is None

    @classmethod
    def from_numbers(cls, numbers: np.ndarray) -> Column:
        """Make a column of numbers, where each of a few narrow clusters counts as one value."""
        codes = np.full(len(numbers), -1)
        known = ~np.isnan(numbers)
        values, codes[known] = np.unique(numbers[known], return_inverse=True)
        if len(values) > 2:
            cuts = find_clusters(values)
            cluster = np.searchsorted(cuts, np.arange(len(values)), "right")
            codes[known] = cluster[codes[known]]
        return cls(codes, numbers)


def find_clusters(values: np.ndarray) -> np.ndarray:
    """Return where clusters begin in sorted distinct values: at every value, unless narrow clusters are far apart.

    Examples
    --------
    >>> find_clusters(np.array([0.0, 0.01, 0.02, 1.0, 1.01, 2.0])).tolist()
    [3, 5]
    """
    gaps = np.diff(values)
    order = np.argsort(-gaps, kind="stable")[: MAX_VALUES + 1]
    ratio = gaps[order[:-1]] / np.maximum(gaps[order[1:]], 1e-300)
    for n in np.flatnonzero(ratio >= MIN_GAP).tolist():
        cuts = np.sort(order[: n + 1]) + 1
        bounds = np.concatenate([[0], cuts, [len(values)]])
        if gaps[order[n]] >= MIN_GAP * (values[bounds[1:] - 1] - values[bounds[:-1]]).max():
            return cuts
    return np.arange(1, len(values))


@dataclass(frozen=True, eq=False)
class Coding:
    """Values of a column that stand for a class."""

    log_chance: float
    """Logarithm of the probability that an unrelated column has such values."""
    error: float
    """Estimated share of rows whose value contradicts the counts."""
    complete: bool
    """Whether values stand for every class, without errors."""


def find_coding(codes: np.ndarray, sizes: np.ndarray, low: np.ndarray, high: np.ndarray) -> Coding | None:
    """Find values that, counted in each group, are within the bounds of the count of a class, or nearly equal to it.

    Parameters
    ----------
    codes
        Whole numbers for the values of the members, group by group.
    sizes
        Numbers of members, shape ``(groups,)``.
    low, high
        Bounds of the count of each class, shape ``(groups, classes)``; equal where counts are exact. Only exact counts
        can be nearly equal.

    Examples
    --------
    >>> counts = np.array([[0, 2], [2, 0], [2, 0]])
    >>> find_coding(np.array([0, 0, 1, 1, 1, 1]), np.array([2, 2, 2]), counts, counts).complete
    True
    """
    from scipy.stats import binom, chi2  # noqa: PLC0415 (slow to import)

    occurs = high.any(0)
    low, high = low[:, occurs].astype(float), high[:, occurs].astype(float)
    tallies = _tally(codes, sizes, max(min(len(sizes), MAX_VALUES), low.shape[1]))
    if tallies is None or low.shape[1] < 2:
        return None
    slopes, _, rank, _ = np.linalg.lstsq(tallies.astype(float), (low + high) / 2, rcond=None)  # (values, classes)
    if rank < len(slopes):  # values that always come together could stand for either class
        return None
    stands = slopes > 0.5
    tallied, m = tallies @ stands, sizes[:, None]  # (groups, classes)
    wrong = (np.maximum(np.maximum(low - tallied, tallied - high), 0) ** 2).sum(0)  # estimates of numbers of wrong rows
    # If errors are more frequent in one direction, they do not cancel in groups; the variation that the slopes leave
    # is as large as that of the wrong rows, if values differ within groups.
    left = ((low - tallies @ slopes) ** 2).sum(0) * len(m) / max(len(m) - len(slopes), 1)
    share = tallied.sum(0) / m.sum()
    mixed = (tallied * (m - tallied) / m).sum(0) > MIN_MIXED * share * (1 - share) * m.sum()
    errors = np.where(mixed & (len(m) >= GROUPS_PER_VALUE * len(slopes)), np.minimum(wrong, left), wrong)
    ways = log(2.0 ** len(slopes) - 2) + (log(low.shape[1]) if low.shape[1] > 2 else 0)
    found = []
    for j in np.flatnonzero((share > 0) & (share < 1)):
        if wrong[j] == 0:
            inside = binom.cdf(high[:, j], sizes, share[j]) - binom.cdf(low[:, j] - 1, sizes, share[j])
            found.append(Coding(float(np.log(inside.clip(1e-300)).sum()) + ways, 0.0, complete=not wrong.any()))
        elif (low == high).all():
            p = low[:, j].sum() / sizes.sum()
            unrelated = sizes * p * (1 - p) + (sizes * p - low[:, j]) ** 2
            freedom = unrelated.sum() ** 2 / (unrelated**2).sum()
            log_chance = float(chi2.logcdf(errors[j] / unrelated.sum() * freedom, freedom)) + ways
            if is_nearly(errors[j], MAX_ERROR * 2 * p * (1 - p) * sizes.sum()):
                found.append(Coding(log_chance, errors[j] / sizes.sum(), complete=False))
    return min(found, key=lambda coding: (coding.error > 0, coding.log_chance), default=None)


def is_nearly(wrong: float, limit: float) -> bool:
    """Return whether so few errors show with 95 % confidence that fewer than a limit are expected."""
    from scipy.stats import poisson  # noqa: PLC0415 (slow to import)

    return bool(poisson.cdf(wrong, limit) < 0.05)


def find_answer(column: Column, s: Observations, n_columns: int) -> str | None:
    """Return how a column gives the observations of a set, if an unrelated one among so many hardly would."""
    groups, codes = s.groups, column.codes
    members, n = groups.members.numpy(), len(groups)
    if s.aggregate.outcome in ("class_counts", "published_counts"):
        low = high = s.checked.numpy()
        if s.aggregate.outcome == "published_counts":
            missing = low[..., MISSING].sum(1, keepdims=True)  # these may be of any class
            low, high = low[..., LOW] - missing, high[..., HIGH]
        coding = find_coding(codes[members], groups.sizes.numpy(), low, high)
        if coding is None or not is_unlikely(coding.log_chance, n_columns):
            return find_majority(codes[members], s, n_columns) if low is high else None
        verb = "give" if low is high else "fit"
        if coding.error:
            verb = f"agree in {1 - coding.error:.1%} of the rows with"
        counts = "the counts of the classes" if coding.complete or s.n_classes == 2 else "the counts of a class"
        return (
            f"its values, counted in each group, {verb} {counts} in all {n:,} groups, as chance does "
            f"{format_odds(coding.log_chance)}"
        )
    of_bags = s.aggregate.size is None and s.aggregate.outcome == "yes_no"
    if of_bags and not column.is_array and (found := _decides_bags(column, s, n_columns)):
        return found
    return _gives_answers(column, s, n_columns)


def find_majority(codes: np.ndarray, s: Observations, n_columns: int) -> str | None:
    """Return how a column shows whether a class is the most frequent one of its group.

    A property of the group that determines the probabilities of its labels does so, too, if these are far apart.
    """
    from scipy.stats import norm  # noqa: PLC0415 (slow to import)

    if not is_constant_within(codes, s.groups.segments.index.numpy()):
        return None
    counts, value = s.checked.double().numpy(), codes[s.groups.offsets.numpy()[:-1]]  # of each group
    n, k = counts.shape
    others = np.stack([np.delete(counts, j, 1).max(1) for j in range(k)], 1)
    lead = counts - others  # of each class over the most frequent other one, (groups, classes)
    certainty = (norm.logcdf(np.abs(lead) / np.sqrt(counts + others).clip(1)) * (lead != 0)).sum(0)
    values = np.unique(value)
    for shown in (value == code for code in values[:MAX_VALUES]):
        shows = (lead[shown] >= 0).all(0) & (lead[~shown] <= 0).all(0) & (certainty < log(MAX_CERTAINTY))
        log_chance = log(len(values) * k) - log_orders(torch.from_numpy(shown))
        if shows.any() and is_unlikely(log_chance, n_columns):
            odds = format_odds(log_chance)
            return (
                f"its values show in all {n:,} groups whether a class is the most frequent one, as chance does {odds}"
            )
    return None


def find_group_id(column: Column, groups_of_rows: np.ndarray, n_columns: int) -> str | None:
    """Return how a column is like the id of a group, from the number of the group of each row, -1 for none."""
    inside = groups_of_rows >= 0
    codes, group = column.codes[inside], groups_of_rows[inside]
    if not is_constant_within(codes, group):
        return None
    sizes = np.unique(group, return_counts=True)[1]
    if len(np.unique(codes)) < len(sizes):
        return None  # groups share values: the column describes them
    # Among all orders of these values, those that fill each group with one of them.
    log_chance = sum(lgamma(m + 1) for m in sizes.tolist()) + lgamma(len(sizes) + 1) - lgamma(sizes.sum() + 1)
    if not is_unlikely(log_chance, n_columns):
        return None
    return f"it has one value in each of {len(sizes):,} groups, and another in every group, like its id"


def is_constant_within(codes: np.ndarray, group: np.ndarray) -> bool:
    """Return whether values are the same in all rows of each group; False if no group, or only one, has two rows."""
    if len(group) == 0 or len(np.unique(group)) in (1, len(group)):
        return False
    first = np.empty(group.max() + 1, dtype=codes.dtype)
    first[group] = codes
    return bool((codes == first[group]).all())


def is_unlikely(log_chance: float, n_columns: int) -> bool:
    """Return whether chance would not make any of so many columns look like this."""
    return log_chance + log(n_columns) < log(CHANCE)


def log_orders(answers: Tensor) -> float:
    """Return the logarithm of the number of orders of observations."""
    counts = answers.unique(dim=0, return_counts=True)[1].tolist()
    return lgamma(len(answers) + 1) - sum(lgamma(count + 1) for count in counts)


def format_odds(log_chance: float) -> str:
    """Write a small probability as "once in so many times"."""
    return f"once in {exp(-log_chance):,.0f} times" if log_chance > -log(1e9) else "less than once in 1e+09 times"


def screen_columns(X: np.ndarray, sets: list[Observations]) -> np.ndarray:
    """Return which columns of numbers may leak, (columns,).

    They have few values or clusters, are constant in most groups, or decide bags by their extremes.
    """
    kept = np.zeros(X.shape[1], dtype=bool)
    at_once = max(1, NUMBERS_AT_ONCE // max(len(X), 1))
    n_classes = max(s.n_classes for s in sets)
    most = max(n_classes, *(min(len(s.groups), MAX_VALUES) for s in sets))
    for first in range(0, X.shape[1], at_once):
        part = X[:, first : first + at_once]
        ordered = np.sort(part[:FIRST_ROWS], 0)
        steps = ordered[1:] - ordered[:-1]
        suspicious = ((steps > 0).sum(0) < most) & (ordered[0] != ordered[-1])
        # If narrow clusters are far apart, the steps between them make up most of the range.
        steps = np.nan_to_num(steps)
        suspicious |= -np.sort(-steps, 0)[: n_classes - 1].sum(0) > 0.5 * steps.sum(0)
        for s in sets:
            members, starts = s.groups.members.numpy(), s.groups.offsets.numpy()[:-1]
            values = part[members]
            top, low = np.fmax.reduceat(values, starts, 0), np.fmin.reduceat(values, starts, 0)
            suspicious |= (top == low).mean(0) > 0.5
            asked = s.aggregate.size is None and s.aggregate.outcome == "yes_no" and s.checked.ndim == 1
            if asked and 0 < int(s.checked.sum()) < len(starts):
                yes = s.checked.numpy().astype(bool)
                suspicious |= (top[yes].min(0) > top[~yes].max(0)) | (low[yes].max(0) < low[~yes].min(0))
        kept[first : first + at_once] = suspicious
    return kept


@register_check("rows")
def check_leaks(context: Context) -> Iterator[Finding]:
    """Yield columns of a table that are like the id of the group, or give the observations."""
    assert context.X is not None
    sets = [s for s in context.sets if s.groups.max_size > 1]
    if context.X.ndim != 2 or not sets:
        return
    X = context.X.numpy()
    varying = X.min(0) != X.max(0)  # also where values are missing; of sparse rows, an excerpt has few such columns
    for number in np.flatnonzero(screen_columns(X, sets) & varying).tolist():
        column, name = Column(Column.from_numbers(X[:, number]).codes), context.name_column(number)
        for s in sets:
            members = s.groups.members
            if len(members.unique()) == len(members) > len(s.groups) > 1:
                of_row = np.full(len(X), -1)
                of_row[members.numpy()] = s.groups.segments.index.numpy()
                exact = Column(np.unique(X[:, number], return_inverse=True)[1])
                if found := find_group_id(exact, of_row, X.shape[1]):
                    message = f"column {name} of X: {found}, so that a model can memorise the observations"
                    yield Finding("group_column", f"{message}; leave it out unless it is known of new rows")
            if found := find_answer(column, s, X.shape[1]):
                yield Finding("answer_column", f"column {name} of X holds the observed labels: {found}; leave it out")


@register_check("rows")
def check_share_columns(context: Context) -> Iterator[Finding]:
    """Yield columns that hold the observed share of a class in each group, exactly or with noise.

    If labels are independent given the columns, the mean of a column in a group of m rows predicts the share of a class
    with a variance of p (1 - p) / m, less what differences between the rows of a group explain. A column that is closer
    to the shares although it hardly varies within groups was computed from the counts. Where groups were drawn to have
    similar shares, every column is that close; therefore the shares must also correlate with the column, and it must
    vary less within groups than a property of rows with this relation to the labels.
    """
    from scipy.stats import f  # noqa: PLC0415 (slow to import)

    for s in context.sets:
        n, k, groups = len(s.groups), s.n_classes, s.groups
        if s.aggregate.outcome != "class_counts" or bool((groups.sizes < 2).any()) or n < MIN_GROUPS:
            continue
        m = groups.sizes.double()[:, None]
        shares = s.checked.double() / m  # (groups, classes)
        freedom = len(groups.members) - n
        variance = (m * shares * (1 - shares)).sum(0) / freedom  # of the label of a row in a group
        varying = (shares.amax(0) > shares.amin(0)).nonzero().flatten().tolist()
        log_limit = np.log(CHANCE / context.table.shape[1] / k)
        for columns in torch.arange(context.table.shape[1]).split(max(1, NUMBERS_AT_ONCE // len(groups.members))):
            values = context.table[:, columns][groups.members].double().nan_to_num()
            means = groups.segments.sum(values) / m
            within = (values - groups.segments.expand(means)).square().sum(0) / freedom
            centred = means - weighted_mean(means, m)
            reported = torch.zeros(len(columns), dtype=torch.bool)
            for label in varying:
                y = (shares - weighted_mean(shares, m))[:, [label]]
                slope = (m * centred * y).sum(0) / (m * centred.square()).sum(0).clamp(min=1e-300)
                residual = (m * (y - slope * centred).square()).sum(0)
                explained = slope.square() * within
                unexplained = (variance[label] - explained).clamp(min=1e-300)
                ratio = (residual / (n - 2) / unexplained).numpy()
                unlikely = torch.from_numpy(f.logcdf(ratio, n - 2, freedom)) < log_limit
                correlation = 1 - residual / (m * y.square()).sum().clamp(min=1e-300)
                held = unlikely & (explained < MAX_WITHIN * variance[label]) & (correlation >= MIN_CORRELATION)
                held &= ~reported
                # By chance, unrelated columns correlate; and a property of rows varies within groups as labels do.
                related = correlation / (1 - correlation).clamp(min=1e-15) * (n - 2)
                held &= torch.from_numpy(f.logsf(related.numpy(), 1, n - 2)) < log_limit
                gain = (m * centred * y).sum(0) / (m * y.square()).sum().clamp(min=1e-300)  # of the column
                expected = (MARGIN * gain.square() * variance[label]).clamp(min=1e-300)
                held &= torch.from_numpy(f.logcdf((within / expected).numpy(), freedom, n - 2)) < log_limit
                reported |= held
                for place in held.nonzero().flatten().tolist():
                    name, squared = context.name_column(int(columns[place])), f"{correlation[place]:.3f}"
                    yield Finding(
                        "share_column",
                        f"column {name} of X follows the share of class {context.classes[label]} in {n:,} groups "
                        f"(squared correlation {squared}) more closely than independent labels permit, and hardly "
                        "varies within groups: it was computed from the counts; leave it out",
                    )


def weighted_mean(values: Tensor, sizes: Tensor) -> Tensor:
    """Return means over groups, weighted by their sizes."""
    return (sizes * values).sum(0) / sizes.sum()


def _tally(codes: np.ndarray, sizes: np.ndarray, most: int) -> np.ndarray | None:
    """Return how often each value occurs in each group, ``(groups, values)``, or None if there are too many or one."""
    values, codes = np.unique(codes, return_inverse=True)
    n_groups, n_values = len(sizes), len(values)
    if not 2 <= n_values <= most or n_groups * n_values > MAX_TALLIES:
        return None
    which = np.repeat(np.arange(n_groups), sizes) * n_values + codes
    return np.bincount(which, minlength=n_groups * n_values).reshape(n_groups, n_values)


def _decides_bags(column: Column, s: Observations, n_columns: int) -> str | None:
    """Return how the largest or smallest number of a bag, or a word in it, decides the observation of every bag."""
    members, starts = s.groups.members.numpy(), s.groups.offsets.numpy()[:-1]
    answers = s.checked if s.checked.ndim == 1 else s.checked[:, 0].long()  # beside error rates
    yes, codes = answers.numpy().astype(bool), column.codes[members]
    values = np.unique(codes)
    log_chance = log(2) - log_orders(answers)  # of all ways to label the bags, one fits
    if column.numbers is None:
        log_chance += log(len(values))  # any word may decide
        candidates = [(codes == code).astype(float) for code in values[: len(yes)]]
    else:
        candidates = [column.numbers[members]] if min(yes.sum(), (~yes).sum()) >= MIN_BAGS or len(values) == 2 else []
    if len(values) < 2 or yes.all() or not yes.any() or not is_unlikely(log_chance, n_columns):
        return None
    for code, numbers in zip(values, candidates, strict=False):
        for sign, extreme, least, most in _EXTREMES:
            top = np.fmax.reduceat(sign * numbers, starts)  # (bags,); NaN if all are missing, which decides none
            low, high = top[yes].min(), top[~yes].max()
            if not low > high:
                continue
            if column.numbers is None:
                word = "a missing value" if code < 0 or column.words is None else repr(column.words[code])
                positive, negative = (f"{word} is", "is not") if sign > 0 else (f"{word} is not alone", "is alone")
            else:
                positive, negative = f"its {extreme} is {least} {sign * low:g}", f"{most} {sign * high:g}"
            return (
                f"{positive} in all {yes.sum():,} positive bags and {negative} in all {(~yes).sum():,} negative ones, "
                f"as chance does {format_odds(log_chance)}"
            )
    return None


def _gives_answers(column: Column, s: Observations, n_columns: int) -> str | None:
    """Return how the values, numbered as classes in either order, give all observations, or nearly all."""
    from scipy.stats import binom  # noqa: PLC0415 (slow to import)

    rows, n = np.unique(s.groups.members.numpy()), len(s.groups)
    values, codes = np.unique(column.codes[rows], return_inverse=True)
    if not 2 <= len(values) <= s.n_classes or values[0] < 0:
        return None
    labels, random = np.zeros(len(column.codes), dtype=np.int64), np.random.default_rng(0)
    error = MAX_ERROR * (1 - np.square(np.bincount(codes) / len(codes)).sum())
    for as_classes in (codes, len(values) - 1 - codes):
        labels[rows] = as_classes
        wrong = _differ(s, labels, s.checked)
        # Observations of the same few rows are not independent: there are only so many ways to fill the rows.
        log_chance = log(2) + max(-log_orders(s.checked), -len(rows) * log(len(values)))
        if wrong.any():
            seen = s.aggregate.check(_observe(s, labels), s.groups, s.n_classes)
            unrelated = float((seen[torch.from_numpy(random.permutation(n))] != s.checked).double().mean())
            log_chance = log(2) + float(binom.logcdf(wrong.sum(), n, unrelated))
            other = (labels + random.integers(1, len(values), len(labels))) % len(values)
            flipped = np.where(random.random(len(labels)) < error, other, labels)
            if not is_nearly(wrong.sum(), _differ(s, flipped, seen).sum()):
                continue
        if is_unlikely(log_chance, n_columns):
            share = f"all {n:,}" if not wrong.any() else f"{1 - wrong.mean():.1%} of {n:,}"
            return (
                f"its {len(values)} values, taken for classes, give {share} observations, as chance does "
                f"{format_odds(log_chance)}"
            )
    return None


def _observe(s: Observations, labels: np.ndarray) -> Tensor:
    return s.aggregate.observe(torch.from_numpy(labels), s.groups, s.n_classes)


def _differ(s: Observations, labels: np.ndarray, checked: Tensor) -> np.ndarray:
    """Return for which groups labels give another observation."""
    seen = s.aggregate.check(_observe(s, labels), s.groups, s.n_classes)
    return (seen != checked).reshape(len(seen), -1).any(1).numpy()
