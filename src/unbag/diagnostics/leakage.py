"""Target leakage: columns that hold the observed labels, the group or its counts, instead of describing a row.

One detector serves arrays and the columns of files: it receives the values of a column as whole numbers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, lgamma, log
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import binom, chi2, f, norm, poisson
from torch import Tensor

from unbag._utils.findings import Finding
from unbag.aggregates.observations import Observations
from unbag.diagnostics.registry import Context, register_check
from unbag.published import HIGH, LOW, MISSING

CHANCE = 0.02  # expected number of unrelated columns of a table that are reported
MAX_VALUES = 64  # a column with more values is no coding of a few classes
MAX_TALLIES = 20_000_000
MIN_GAP = 3.0  # gaps between clusters of numbers are so many times as wide as the widest cluster
# A column holds the labels with errors if, with 95 % confidence, it has less than this part of the errors of an
# unrelated column: codes of two equally frequent classes that are right in 87.5 % of the rows. It varies at least
# MIN_MIXED as much within groups as labels do, and there are so many groups for each value.
MAX_ERROR, MIN_MIXED, GROUPS_PER_VALUE = 0.25, 0.5, 20
# A group property holds the most frequent classes only if one that determines nothing but the probabilities of the
# labels would match all of them with a smaller probability.
MAX_CERTAINTY = 0.05
MIN_BAGS = 10  # a measured number may decide a few bags, but not so many of either label
MIN_GROUPS = 10  # fewer groups show no relation to their shares
MIN_CORRELATION = 0.5  # squared, of the shares of a class with a column that holds them
MARGIN = 0.5  # part of the variation within groups that a property of rows has at least, by its rough slope
FIRST_ROWS, NUMBERS_AT_ONCE = 1000, 2**22


@dataclass(frozen=True, eq=False)
class Column:
    """The values of a column, one for each row."""

    codes: np.ndarray  # number of each value in their order, -1 where it is missing
    numbers: np.ndarray | None = None  # None for words
    words: np.ndarray | None = None  # of each code

    @classmethod
    def from_numbers(cls, numbers: np.ndarray) -> "Column":
        """Make a column of numbers, where each of a few narrow clusters counts as one value."""
        codes = np.full(len(numbers), -1)
        known = ~np.isnan(numbers)
        values, codes[known] = np.unique(numbers[known], return_inverse=True)
        if len(values) > 2:
            cluster = np.searchsorted(find_clusters(values), np.arange(len(values)), "right")
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


class Coding(NamedTuple):
    """Values of a column that stand for a class."""

    log_chance: float  # logarithm of the probability that an unrelated column has such values
    error: float  # estimated share of rows whose value contradicts the counts
    complete: bool  # whether values stand for every class, without errors


def find_coding(codes: np.ndarray, sizes: np.ndarray, low: np.ndarray, high: np.ndarray) -> Coding | None:
    """Find values that, counted in each group, are within the bounds of the count of a class, or nearly equal to it.

    Codes are those of the members, group by group; bounds are of shape ``(groups, classes)``. They are equal where
    counts are exact, and only exact counts can be nearly equal.

    Examples
    --------
    >>> counts = np.array([[0, 2], [2, 0], [2, 0]])
    >>> find_coding(np.array([0, 0, 1, 1, 1, 1]), np.array([2, 2, 2]), counts, counts).complete
    True
    """
    occurs = high.any(0)
    low, high = low[:, occurs].astype(float), high[:, occurs].astype(float)
    tallies = _tally(codes, sizes, max(min(len(sizes), MAX_VALUES), low.shape[1]))
    if tallies is None or low.shape[1] < 2:
        return None
    slopes, _, rank, _ = np.linalg.lstsq(tallies.astype(float), (low + high) / 2, rcond=None)  # (values, classes)
    if rank < len(slopes):  # values that always come together could stand for either class
        return None
    tallied, m = tallies @ (slopes > 0.5), sizes[:, None]  # (groups, classes)
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
            if _is_nearly(errors[j], MAX_ERROR * 2 * p * (1 - p) * sizes.sum()):
                found.append(Coding(log_chance, errors[j] / sizes.sum(), complete=False))
    return min(found, key=lambda coding: (coding.error > 0, coding.log_chance), default=None)


def find_answer(column: Column, s: Observations, n_columns: int) -> str | None:
    """Return how a column gives the observations of a set, if an unrelated one among so many hardly would."""
    codes, outcome = column.codes[s.groups.members.numpy()], s.aggregate.outcome
    if outcome not in ("class_counts", "published_counts"):
        # An array may have been screened for columns whose extremes decide bags: their best ones may.
        is_file = column.numbers is not None or column.words is not None
        found = _decides_bags(column, s, n_columns) if is_file and _are_bags(s) else None
        return found or _gives_answers(column, s, n_columns)
    low = high = s.checked.numpy()
    if outcome == "published_counts":
        missing = low[..., MISSING].sum(1, keepdims=True)  # these may be of any class
        low, high = low[..., LOW] - missing, high[..., HIGH]
    coding = find_coding(codes, s.groups.sizes.numpy(), low, high)
    if coding is None or (odds := describe_odds(coding.log_chance, n_columns)) is None:
        return _shows_majority(codes, s, n_columns) if low is high else None
    verb = "give" if low is high else "fit"
    if coding.error:
        verb = f"agree in {1 - coding.error:.1%} of the rows with"
    counts = "the counts of the classes" if coding.complete or s.n_classes == 2 else "the counts of a class"
    return f"its values, counted in each group, {verb} {counts} in all {len(s.groups):,} groups, {odds}"


def find_group_id(codes: np.ndarray, group: np.ndarray, n_columns: int) -> str | None:
    """Return how a column is like the id of a group, from the number of the group of each row, -1 for none."""
    inside = group >= 0
    codes, group = codes[inside], group[inside]
    if not is_constant_within(codes, group):
        return None
    sizes = np.unique(group, return_counts=True)[1]
    # Among all orders of these values, those that fill each group with one of them.
    log_chance = sum(lgamma(m + 1) for m in sizes.tolist()) + lgamma(len(sizes) + 1) - lgamma(sizes.sum() + 1)
    if len(np.unique(codes)) < len(sizes) or describe_odds(log_chance, n_columns) is None:
        return None  # groups that share values: the column describes them
    return f"it has one value in each of {len(sizes):,} groups, and another in every group, like its id"


def is_constant_within(codes: np.ndarray, group: np.ndarray) -> bool:
    """Return whether values are the same in all rows of each group; False if no group, or only one, has two rows."""
    if len(group) == 0 or len(np.unique(group)) in (1, len(group)):
        return False
    first = np.empty(group.max() + 1, dtype=codes.dtype)
    first[group] = codes
    return bool((codes == first[group]).all())


def describe_odds(log_chance: float, n_columns: int) -> str | None:
    """Return how rarely chance makes a column look like this, or None if it might do so with one of so many columns."""
    if log_chance + log(n_columns) >= log(CHANCE):
        return None
    seldom = f"once in {exp(-log_chance):,.0f} times" if log_chance > -log(1e9) else "less than once in 1e+09 times"
    return f"as chance does {seldom}"


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
            values, starts = part[s.groups.members.numpy()], s.groups.offsets.numpy()[:-1]
            top, low = np.fmax.reduceat(values, starts, 0), np.fmin.reduceat(values, starts, 0)
            suspicious |= (top == low).mean(0) > 0.5
            if _are_bags(s) and s.checked.ndim == 1 and 0 < int(s.checked.sum()) < len(starts):
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
                exact = np.unique(X[:, number], return_inverse=True)[1]
                if found := find_group_id(exact, of_row, X.shape[1]):
                    message = f"column {name} of X: {found}, so that a model can memorise the observations"
                    yield Finding("group_column", f"{message}; leave it out unless it is known of new rows")
            if found := find_answer(column, s, X.shape[1]):
                yield Finding("answer_column", f"column {name} of X holds the observed labels: {found}; leave it out")


@register_check("rows")
def check_share_columns(context: Context) -> Iterator[Finding]:
    """Yield columns that hold observed shares, or counts, of classes in each group, exactly or with noise.

    If labels are independent given the columns, the mean of a column in a group of m rows predicts the mean of any
    numbers of the classes with the variance of these numbers in the group, divided by m, less what differences between
    the rows of a group explain. A column that is closer to the numbers that suit it best, although it hardly varies
    within groups, was computed from the counts. Where groups were drawn to have similar shares, every column is that
    close; therefore the shares must also correlate with the column, and it must vary less within groups than a property
    of rows with this relation to the labels.
    """
    n_columns = context.table.shape[1]
    for s in context.sets:
        n, groups, counts = len(s.groups), s.groups, s.checked
        if s.aggregate.outcome != "class_counts" or bool((groups.sizes < 2).any()) or n < MIN_GROUPS + s.n_classes:
            continue
        counts, m, freedom = counts[:, counts.any(0)].double(), groups.sizes.double()[:, None], len(groups.members) - n
        shares = counts / m - counts.sum(0) / m.sum()  # (groups, classes)
        rank = max(1, int(torch.linalg.matrix_rank(shares)))
        fit = torch.linalg.pinv(m.sqrt() * shares) * m.T.sqrt()  # (classes, groups)
        log_limit = log(CHANCE / n_columns)
        scales = [torch.ones_like(m)] if groups.uniform_size is not None else [torch.ones_like(m), m]
        for columns in torch.arange(n_columns).split(max(1, NUMBERS_AT_ONCE // len(groups.members))):
            held: dict[int, float] = {}
            for scale in scales:  # of shares and counts
                values = context.table[:, columns][groups.members].double().nan_to_num() / groups.segments.expand(scale)
                means = groups.segments.sum(values) / m
                within = (values - groups.segments.expand(means)).square().sum(0) / freedom  # (columns,)
                centred = means - (m * means).sum(0) / m.sum()
                numbers = fit @ centred  # of the classes, (classes, columns)
                followed = shares @ numbers
                squares = (m * followed.square()).sum(0)
                correlation = (squares / (m * centred.square()).sum(0).clamp(1e-300)).clamp(0, 1 - 1e-15)  # squared
                # Of the number of a row in a group, and what the column explains of it.
                variance = (counts @ numbers.square() - (counts @ numbers).square() / m).sum(0) / freedom
                explained = correlation.square() * within
                scatter = (1 - correlation) * squares / (n - 1 - rank) / (variance - explained).clamp(1e-300)
                related = correlation / (1 - correlation) * (n - 1 - rank) / rank
                spread = within / (MARGIN * variance).clamp(1e-300)
                found = (explained < variance) & (correlation >= MIN_CORRELATION)
                for log_chance in (
                    f.logcdf(scatter.numpy(), n - 1 - rank, freedom),
                    f.logcdf(spread.numpy(), freedom, n - 1 - rank),
                    f.logsf(related.numpy(), rank, n - 1 - rank),
                ):
                    found &= torch.from_numpy(log_chance) < log_limit
                held |= {place: float(correlation[place]) for place in found.nonzero().flatten().tolist()}
            for place in sorted(held):
                yield Finding(
                    "share_column",
                    f"column {context.name_column(int(columns[place]))} of X follows the shares or counts of the "
                    f"classes in {n:,} groups (squared correlation {held[place]:.3f}) more closely than independent "
                    "labels permit, and hardly varies within groups: it was computed from the counts; leave it out",
                )


def _tally(codes: np.ndarray, sizes: np.ndarray, most: int) -> np.ndarray | None:
    """Return how often each value occurs in each group, ``(groups, values)``, or None if there are too many or one."""
    values, codes = np.unique(codes, return_inverse=True)
    n_groups, n_values = len(sizes), len(values)
    if not 2 <= n_values <= most or n_groups * n_values > MAX_TALLIES:
        return None
    which = np.repeat(np.arange(n_groups), sizes) * n_values + codes
    return np.bincount(which, minlength=n_groups * n_values).reshape(n_groups, n_values)


def _is_nearly(wrong: float, limit: float) -> bool:
    """Return whether so few errors show with 95 % confidence that fewer than a limit are expected."""
    return bool(poisson.cdf(wrong, limit) < 0.05)


def _log_orders(answers: Tensor) -> float:
    """Return the logarithm of the number of orders of observations."""
    counts = answers.unique(dim=0, return_counts=True)[1].tolist()
    return lgamma(len(answers) + 1) - sum(lgamma(count + 1) for count in counts)


def _are_bags(s: Observations) -> bool:
    return s.aggregate.size is None and s.aggregate.outcome == "yes_no"


def _shows_majority(codes: np.ndarray, s: Observations, n_columns: int) -> str | None:
    """Return how a column shows whether a class is the most frequent one of its group.

    A property of the group that determines the probabilities of its labels does so, too, if these are far apart.
    """
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
        odds = describe_odds(log(len(values) * k) - _log_orders(torch.from_numpy(shown)), n_columns)
        if shows.any() and odds is not None:
            return f"its values show in all {n:,} groups whether a class is the most frequent one, {odds}"
    return None


def _decides_bags(column: Column, s: Observations, n_columns: int) -> str | None:
    """Return how the largest or smallest number of a bag, or a word in it, decides the observation of every bag."""
    members, starts = s.groups.members.numpy(), s.groups.offsets.numpy()[:-1]
    answers = s.checked if s.checked.ndim == 1 else s.checked[:, 0].long()  # beside error rates
    yes, codes = answers.numpy().astype(bool), column.codes[members]
    values, n_yes, n_no = np.unique(codes), int(yes.sum()), int((~yes).sum())
    # Of all ways to label the bags, one fits; any word may decide.
    log_chance = log(2) - _log_orders(answers) + (log(len(values)) if column.numbers is None else 0)
    if len(values) < 2 or not (n_yes and n_no) or (odds := describe_odds(log_chance, n_columns)) is None:
        return None
    if column.numbers is None:
        candidates = [(codes == code).astype(float) for code in values[: len(yes)]]
    else:
        candidates = [column.numbers[members]] if min(n_yes, n_no) >= MIN_BAGS or len(values) == 2 else []
    for code, numbers in zip(values, candidates, strict=False):
        for sign, extreme, least, most in (
            (1, "maximum", "at least", "at most"),
            (-1, "minimum", "at most", "at least"),
        ):
            top = np.fmax.reduceat(sign * numbers, starts)  # (bags,); NaN if all are missing, which decides none
            low, high = top[yes].min(), top[~yes].max()
            if low > high and column.numbers is None:
                word = "a missing value" if code < 0 or column.words is None else repr(column.words[code])
                word = word if sign > 0 else f"a value other than {word}"
                return f"{word} is in all {n_yes:,} positive bags and in none of {n_no:,} negative ones, {odds}"
            if low > high:
                in_positive = f"its {extreme} is {least} {sign * low:g} in all {n_yes:,} positive bags"
                return f"{in_positive} and {most} {sign * high:g} in all {n_no:,} negative ones, {odds}"
    return None


def _gives_answers(column: Column, s: Observations, n_columns: int) -> str | None:
    """Return how the values, numbered as classes in either order, give all observations, or nearly all."""
    rows, n = np.unique(s.groups.members.numpy()), len(s.groups)
    values, codes = np.unique(column.codes[rows], return_inverse=True)
    if not 2 <= len(values) <= s.n_classes or values[0] < 0:
        return None

    def observe(classes: np.ndarray) -> Tensor:
        labels = torch.zeros(len(column.codes), dtype=torch.int64)
        labels[torch.from_numpy(rows)] = torch.from_numpy(classes)
        return s.aggregate.check(s.aggregate.observe(labels, s.groups, s.n_classes), s.groups, s.n_classes)

    def differ(seen: Tensor, other: Tensor) -> np.ndarray:
        return (seen != other).reshape(n, -1).any(1).numpy()

    random = np.random.default_rng(0)
    error = MAX_ERROR * (1 - np.square(np.bincount(codes) / len(codes)).sum())
    for classes in (codes, len(values) - 1 - codes):
        seen = observe(classes)
        wrong = differ(seen, s.checked)
        # Observations of the same few rows are not independent: there are only so many ways to fill the rows.
        log_chance = log(2) + max(-_log_orders(s.checked), -len(rows) * log(len(values)))
        if wrong.any():
            unrelated = differ(seen[torch.from_numpy(random.permutation(n))], s.checked).mean()
            log_chance = log(2) + float(binom.logcdf(wrong.sum(), n, unrelated))
            other = (classes + random.integers(1, len(values), len(rows))) % len(values)
            flipped = observe(np.where(random.random(len(rows)) < error, other, classes))
            if not _is_nearly(wrong.sum(), differ(seen, flipped).sum()):
                continue
        if odds := describe_odds(log_chance, n_columns):
            share = f"all {n:,}" if not wrong.any() else f"{1 - wrong.mean():.1%} of {n:,}"
            return f"its {len(values)} values, taken for classes, give {share} observations, {odds}"
    return None
