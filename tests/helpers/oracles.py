"""What the observations mean, and their evidence by plain enumeration: loops, float64, nothing of unbag."""

import math
import operator
from collections.abc import Callable, Hashable, Sequence
from itertools import product

import torch

Labels = tuple[int, ...]
Definition = Callable[[Labels], Hashable]


def enumerate_group(g: Definition, logits: Sequence[Sequence[float]], z: Hashable) -> tuple[float, list[list[float]]]:
    """Log p(z | x) and p(y_i = j | z, x) of one group, with z = g(y_1, .., y_m); NaN where z is impossible."""
    log_probs = [log_softmax(row) for row in logits]
    n_classes = len(log_probs[0])
    fitting = [
        (labels, sum(row[label] for row, label in zip(log_probs, labels, strict=True)))
        for labels in product(range(n_classes), repeat=len(log_probs))
        if g(labels) == z
    ]
    log_likelihood = log_sum([log_prob for _, log_prob in fitting])
    if log_likelihood == -math.inf:
        return log_likelihood, [[math.nan] * n_classes for _ in log_probs]
    posterior = [[0.0] * n_classes for _ in log_probs]
    for labels, log_prob in fitting:
        for member, label in enumerate(labels):
            posterior[member][label] += math.exp(log_prob - log_likelihood)
    return log_likelihood, posterior


def enumerate_groups(g, logits, groups, z):
    """Return likelihoods and posteriors of all groups, in float64."""
    parts = zip(logits.double().split(groups.sizes.tolist()), z, strict=True)
    evidence = [enumerate_group(g, part.tolist(), value) for part, value in parts]
    log_likelihood = torch.tensor([total for total, _ in evidence], dtype=torch.float64)
    return log_likelihood, torch.tensor([row for _, rows in evidence for row in rows], dtype=torch.float64)


def log_softmax(row: Sequence[float]) -> list[float]:
    scale = log_sum(row)
    return [value - scale for value in row]


def log_sum(values: Sequence[float]) -> float:
    top = max(values, default=-math.inf)
    if top == -math.inf:
        return top
    return top + math.log(math.fsum(math.exp(value - top) for value in values))


def pairs(y: Labels) -> int:
    return int(y[0] == y[1])


def triplets(y: Labels) -> int:
    return int((y[0] != y[1]) < (y[0] != y[2]))


def any_positive(y: Labels) -> int:
    return int(any(label == 1 for label in y))


def rank(relation: str) -> Definition:
    compare = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}[relation]
    return lambda y: int(compare(y[0], y[1]))


def ordinal_triplet(y: Labels) -> int:
    return int(abs(y[0] - y[1]) < abs(y[0] - y[2]))


def counts(n_classes: int) -> Definition:
    return lambda y: tuple(y.count(label) for label in range(n_classes))


def count_of(label: int) -> Definition:
    return lambda y: y.count(label)


def at_least(count: int, label: int) -> Definition:
    return lambda y: int(y.count(label) >= count)


def majority(y: Labels) -> int:
    """Return the most frequent label; of several, the lowest."""
    return min(set(y), key=lambda label: (-y.count(label), label))


DEFINITIONS: dict[str, Definition] = {
    "PairwiseSimilarity()": pairs,
    "TripletComparison()": triplets,
    "MultipleInstance()": any_positive,
    "OrdinalRank('<')": rank("<"),
    "OrdinalRank('>')": rank(">"),
    "OrdinalRank('<=')": rank("<="),
    "OrdinalRank('>=')": rank(">="),
    "OrdinalTriplet()": ordinal_triplet,
    "LabelProportions() of 2 classes": counts(2),
    "LabelProportions() of 3 classes": counts(3),
    "CountOf(1)": count_of(1),
    "AtLeast(2, 1)": at_least(2, 1),
    "Majority()": majority,
}
