"""The losses of the compared methods, of one group at a time: loops, float64, nothing of unbag."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from oracles import log_softmax
from scipy.optimize import minimize

Rows = Sequence[Sequence[float]]


def siamese(rows: Rows, z: bool, margin: float) -> float:
    log_odds = margin - sum(abs(a - b) for a, b in zip(*rows, strict=True))
    return softplus(-log_odds) if z else softplus(log_odds)


def contrastive(rows: Rows, z: bool, margin: float) -> float:
    distance = math.dist(*rows)
    return distance**2 / 2 if z else max(0.0, margin - distance) ** 2 / 2


def triplet(rows: Rows, z: bool, margin: float) -> float:
    anchor, near, far = ([value / math.hypot(*row) for value in row] for row in rows)
    return max(0.0, math.dist(anchor, near) ** 2 - math.dist(anchor, far) ** 2 + margin) if z else 0.0


def tuple_2_1(rows: Rows, z: bool, regulariser: float) -> float:
    anchor, near, far = rows
    length = sum(value**2 for row in rows for value in row) / 3
    return softplus(dot(anchor, far) - dot(anchor, near)) + regulariser * length if z else 0.0


def mean_proportion(rows: Rows, counts: Sequence[int]) -> float:
    predicted = [[math.exp(value) for value in log_softmax(row)] for row in rows]
    mean = [math.fsum(column) / len(rows) for column in zip(*predicted, strict=True)]
    shares = [count / len(rows) for count in counts]
    return sum(share * math.log(share / p) for share, p in zip(shares, mean, strict=True) if share)


def transport(rows: Rows, counts: Sequence[int], entropy: float, strictness: float) -> np.ndarray:
    """Soft labels by a general optimiser, over tables whose rows are a softmax."""
    log_probs, n = np.array([log_softmax(row) for row in rows]), np.array(counts, float)
    there = n > 0  # the divergence from a count of zero is finite for a column of zeros only

    def table(free: np.ndarray) -> np.ndarray:
        scores = np.exp(free.reshape(len(rows), -1))
        return scores / scores.sum(1, keepdims=True)

    def cost(free: np.ndarray) -> float:
        Q = table(free)
        sums = Q.sum(0)
        divergence = (sums * np.log(sums / n[there]) - sums + n[there]).sum()
        return (-(Q * log_probs[:, there]) + entropy * Q * np.log(Q)).sum() + strictness * divergence

    found = minimize(cost, np.zeros(len(rows) * there.sum()), method="BFGS", options={"gtol": 1e-7})
    Q = np.zeros(log_probs.shape)
    Q[:, there] = table(found.x)
    return Q


def cross_entropy(rows: Rows, counts: Sequence[int]) -> float:
    (row,) = rows
    return -log_softmax(row)[counts.index(1)]


def attention(rows: Rows, z: bool) -> float:
    top = max(logit for logit, _ in rows)
    weights = [math.exp(logit - top) for logit, _ in rows]
    log_odds = sum(weight * score for weight, (_, score) in zip(weights, rows, strict=True)) / sum(weights)
    return softplus(-log_odds) if z else softplus(log_odds)


def easy_llp(rows: Rows, weights: Sequence[float]) -> float:
    total = 0.0
    for row in rows:
        p = [math.exp(value) for value in log_softmax(row)]
        for j, weight in enumerate(weights):
            total += weight * sum((value - (place == j)) ** 2 for place, value in enumerate(p))
    return total / len(rows)


def mixbag(rows: Rows, targets: Sequence[float]) -> float:
    predicted = [[math.exp(value) for value in log_softmax(row)] for row in rows]
    mean = [math.fsum(column) / len(rows) for column in zip(*predicted, strict=True)]
    shares, widths = targets[: len(mean)], targets[len(mean) :]
    return -sum(
        q * math.log(p) for p, q, width in zip(mean, shares, widths, strict=True) if q and not abs(p - q) <= width
    )


def self_attention(rows: Rows, z: bool) -> float:
    width = (len(rows[0]) - 1) // 2
    found = []
    for row in rows:
        likeness = [dot(row[:width], other[width : 2 * width]) / max(1, width) ** 0.5 for other in rows]
        weights = [math.exp(value - max(likeness)) for value in likeness]
        found.append(sum(w * other[-1] for w, other in zip(weights, rows, strict=True)) / sum(weights))
    log_odds = math.fsum(found) / len(found)
    return softplus(-log_odds) if z else softplus(log_odds)


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
