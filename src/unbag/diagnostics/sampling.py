"""Groups that were chosen by their answer: weights that undo the choice, and signs of it before and after a fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag._utils.findings import Finding
from unbag.aggregates import Aggregate
from unbag.data.groups import Groups
from unbag.diagnostics.constant import best_constant
from unbag.training import Observations

# How far from what is expected an answer must be as often, in standard errors, before something is said of it.
NOTICED, IMPOSSIBLE = 4.0, 6.0

# Classes are of like size, more or less, where at least this share of them would be as good in its place if all were
# equal: the inverse of the sum of squared shares, over the number of classes. Sizes by Zipf's law are.
LIKE_SIZE = 0.5
DISTRIBUTIONS = 300

# Odds of an answer that are so many times those that a model expects are more than a model that is a little off.
ODDS = 2.0

# A class with less than this part of an even share of the rows is not used.
UNUSED = 0.05
MOST_ROWS = 10_000


ADVICE = (
    "if groups were chosen by their answer, give sampling= the rates at which those with each answer were kept, or the "
    "share of 1 among random ones; sampling={0: 1, 1: 1} says that they were not"
)


def weights_by_answer(sampling: Any, z: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return weights of groups that are inverse to the rate at which groups with their answer were kept.

    A likelihood with these weights is, but for chance, that of groups which were chosen at random (inverse probability
    weighting). Their sum is that of the weights given, or the number of groups.

    Parameters
    ----------
    sampling
        A dict from answer to the rate at which groups with this answer were kept; rates are relative to each other. Or
        the share of 1 among random groups, where answers are 0 and 1.
    z
        The answers, one number per group.
    weights
        That groups have anyway.

    Examples
    --------
    >>> weights_by_answer({0: 0.25, 1: 1.0}, torch.tensor([0, 1, 1])).tolist()
    [2.0, 0.5, 0.5]
    >>> weights_by_answer(0.25, torch.tensor([0, 1, 1, 0])).tolist()
    [1.5, 0.5, 0.5, 1.5]
    """
    if z.ndim != 1:
        raise ValueError(f"sampling is by answer, for which z must be one number per group; got shape {tuple(z.shape)}")
    weights = torch.ones(len(z), dtype=torch.float64) if weights is None else weights
    answers = z.double()
    distinct = answers.unique().tolist()
    if isinstance(sampling, Mapping):
        rates = _read_rates(sampling)
        if missing := [f"{one:g}" for one in distinct if one not in rates]:
            raise ValueError(f"sampling must have a rate for each answer that occurs; there is none for {missing[0]}")
    else:
        if not _is_number(sampling) or not 0 < sampling < 1 or distinct != [0, 1]:
            raise ValueError(
                "sampling must be a dict from answer to the rate at which it was kept, or, of groups with the answers "
                "0 and 1, the share of 1 among random ones, a number between 0 and 1; got "
                f"{sampling!r} for groups with the answers {', '.join(f'{one:g}' for one in distinct[:5])}"
            )
        share = float(weights @ answers / weights.sum())
        rates = {0.0: (1 - share) / (1 - sampling), 1.0: share / sampling}
    of_answers = torch.tensor([rates[one] for one in distinct], dtype=torch.float64)
    inverse = weights / of_answers[torch.searchsorted(answers.unique(), answers)]
    return inverse * (weights.sum() / inverse.sum())


def says_random(sampling: Any) -> bool:
    """Whether rates are the same for all answers: groups were not chosen by them.

    Examples
    --------
    >>> says_random({0: 1, 1: 1}), says_random({0: 0.1, 1: 1}), says_random(None)
    (True, False, False)
    """
    return isinstance(sampling, Mapping) and len(set(_read_rates(sampling).values())) == 1


def find_unlikely_answers(one: Observations) -> Iterator[Finding]:
    """Say where answers are so frequent as they hardly are, or cannot be, in groups of rows drawn at random."""
    if not _compares(one):
        return
    k, kind = one.n_classes, one.aggregate.wording
    share, n = _share_of_yes(one)
    like = _expect_of_random(one.aggregate, _distributions(k))
    even, likely = float(like[0]), min(max(share, float(like.min())), float(like.max()))
    nearest = float(_expect_of_random(one.aggregate, torch.from_numpy(best_constant([one])[0])[None])[0])
    beyond = _errors(share, nearest, n) > IMPOSSIBLE
    if not beyond and _errors(share, likely, n) <= NOTICED:
        return
    sentence = (
        f"{share:.1%} of {len(one.groups):,} {kind.groups} have the answer 1, where rows drawn at random from {k} "
        f"classes of like size would have {even:.1%}"
    )
    # Where all answers are the same, no rate could mend it.
    if beyond:
        sentence += (
            f", and those from any classes whatever {'at least' if share < nearest else 'at most'} {nearest:.1%}"
        )
    yield Finding("unlikely_answers", f"{sentence}; {ADVICE}", fatal=beyond and 0 < share < 1)


def find_unexpected_answers(one: Observations, log_probs: Tensor) -> Iterator[Finding]:
    """Say where a model expects another share of answers, of groups of rows drawn at random, than was observed.

    Parameters
    ----------
    one
        What was observed.
    log_probs
        What the model says of some of its rows, ``(rows, classes)``.
    """
    if not _compares(one):
        return
    size, kind = int(one.aggregate.size or 0), one.aggregate.wording
    random = torch.Generator().manual_seed(0)
    tuples = torch.stack([torch.randperm(len(log_probs), generator=random) for _ in range(size)], 1)
    drawn = Groups.from_tuples(tuples)
    expected = float(one.aggregate.expect(log_probs[drawn.members], drawn).mean())
    share, n = _share_of_yes(one)
    odds = share * (1 - expected), expected * (1 - share)
    if _errors(share, expected, n) > NOTICED and max(odds) > ODDS * min(odds):
        yield Finding(
            "unexpected_answers",
            f"{share:.1%} of {len(one.groups):,} {kind.groups} have the answer 1, where the model expects it of "
            f"{expected:.1%} of those whose rows are drawn at random; {ADVICE}",
        )


def find_unused_classes(log_probs: Tensor, names: np.ndarray, shares: Tensor | None = None) -> Iterator[Finding]:
    """Say which classes a model hardly expects of any row.

    Parameters
    ----------
    log_probs
        What it says of rows, ``(rows, classes)``.
    names
        Of the classes.
    shares
        How many rows should be of each class, ``(classes,)``; unless given, all the same.
    """
    k = len(names)
    used = log_probs.exp().mean(0)
    due = torch.full((k,), 1 / k, dtype=torch.float64) if shares is None else shares
    if bool((unused := used < UNUSED * due).any()):
        which = [str(name) for name in names[unused.numpy()]]
        shown = ", ".join(which[:3]) + (f" and {len(which) - 3} more" if len(which) > 3 else "")
        rarest = int((used / due).argmin())
        known = "known" if shares is not None else "of classes of like size"
        yield Finding(
            "unused_classes",
            f"the model uses {k - int(unused.sum())} of {k} classes: it expects {shown} of hardly any row (class "
            f"{names[rarest]} of {used[rarest]:.2%}, where the share {known} is {due[rarest]:.1%}); try more restarts "
            "with n_restarts, give class_shares= or a few labelled rows; or groups were chosen by their answer, which "
            "sampling= undoes",
        )


def choose_rows(sets: Sequence[Observations]) -> Tensor | None:
    """Return some rows of groups, at random, where a fit is looked at for such signs; None where it is not.

    Only where a few rows are compared does nothing else tell how frequent classes are.
    """
    if not sets or not all(_compares(one) for one in sets):
        return None
    rows = torch.cat([one.groups.members for one in sets]).unique()
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:MOST_ROWS].to(rows.device)]


def _read_rates(sampling: Mapping[Any, Any]) -> dict[float, float]:
    for answer, rate in sampling.items():
        try:
            float(answer)
        except (TypeError, ValueError):
            raise ValueError(f"sampling must have answers, which are numbers, as its keys; got {answer!r}") from None
        if not _is_number(rate) or not rate > 0:
            raise ValueError(f"sampling must have positive rates; got {rate!r} for the answer {answer}")
    return {float(answer): float(rate) for answer, rate in sampling.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)


def _compares(one: Observations) -> bool:
    """Whether answers of yes and no are about a few rows."""
    return one.aggregate.size is not None and one.z.ndim == 1 and one.aggregate.is_binary(one.groups, one.n_classes)


def _share_of_yes(one: Observations) -> tuple[float, float]:
    """Return the share of the answer 1, by the weights of the groups, and of how many independent ones it is.

    Groups that have rows in common are not independent: there are as many as one of their places has different rows.
    """
    weights, n = one.weights, len(one.groups)
    share = float(weights @ one.z.double() / weights.sum())
    different = [len(place.unique()) for place in one.groups.members.view(n, -1).unbind(1)]
    return share, min(float(weights.sum() ** 2 / weights.square().sum()), *different)


def _errors(share: float, expected: float, n: float) -> float:
    """Return how many standard errors the share of an answer among n is from the one expected."""
    variance = max(share * (1 - share), expected * (1 - expected)) / n
    return 0.0 if share == expected else abs(share - expected) / max(variance, 1e-300) ** 0.5


def _expect_of_random(aggregate: Aggregate, shares: Tensor) -> Tensor:
    """Return the probability of the answer 1 where rows are of classes with these shares, ``(distributions, k)``."""
    size = int(aggregate.size or 0)
    groups = Groups.from_sizes([size] * len(shares))
    return aggregate.expect(shares.clamp_min(1e-12).log().repeat_interleave(size, 0), groups)


def _distributions(n_classes: int) -> Tensor:
    """Return shares of classes that are of like size, more or less, all the same first: ``(distributions, k)``."""
    random = torch.Generator().manual_seed(0)
    spread = torch.linspace(0, 4, DISTRIBUTIONS, dtype=torch.float64)[:, None]
    shares = (spread * torch.randn(DISTRIBUTIONS, n_classes, generator=random, dtype=torch.float64)).softmax(1)
    return shares[shares.square().sum(1) * n_classes * LIKE_SIZE <= 1 + 1e-9]
