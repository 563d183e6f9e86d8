"""Add a kind of observation: as a fold over labels, and as a likelihood; check both, and fit a classifier.

A taster does not grade wines, but states how many grades lie between two of them. unbag has no class for that. Run it
with ``python examples/custom_aggregate.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

import unbag
from unbag._kernels.segments import Segments
from unbag.aggregates.base import check_labels
from unbag.testing import check_aggregate

# As a fold: read labels one by one, keep a state, and return the observation for the last state.
by_fold = unbag.FromFold(
    start=("nothing", 0),
    step=lambda state, label: ("first", label) if state[0] == "nothing" else ("apart", abs(state[1] - label)),
    finish=lambda state: state[1],
)
check_aggregate(by_fold, n_classes=4, sizes=(2,))
print("the fold agrees with enumeration")


class GradesApart(unbag.Aggregate):
    """The same as a likelihood: pairs, and how many grades lie between their labels."""

    size = 2

    def observe(self, labels: Any, groups: unbag.Groups, n_classes: int) -> Tensor:
        """Compute the statement of the taster from true grades."""
        first, second = check_labels(labels, groups, n_classes).view(-1, 2).unbind(1)
        return (first - second).abs()

    def check(self, z: Any, groups: unbag.Groups, n_classes: int) -> Tensor:
        """Return the observations as a tensor, or say what is wrong with them."""
        z = torch.as_tensor(z)
        if z.shape != (len(groups),) or z.dtype != torch.int64 or z.min() < 0 or z.max() >= n_classes:
            raise ValueError(f"z must be {len(groups)} whole numbers from 0 to {n_classes - 1}, got {z}")
        return z

    def log_prob(self, log_probs: Tensor, segments: Segments, z: Tensor) -> Tensor:
        """Add up, in log space, the label pairs that are so far apart; the posterior follows from the gradient."""
        first, second = log_probs.view(len(segments), 2, -1).unbind(1)
        joint = first[:, :, None] + second[:, None, :]  # (groups, k, k)
        grades = torch.arange(joint.shape[1])
        distance = (grades[:, None] - grades).abs()  # (k, k)
        fits = distance == z[:, None, None]
        return joint.masked_fill(~fits, float("-inf")).flatten(1).logsumexp(1)


check_aggregate(GradesApart(), n_classes=4, sizes=(2,))
print("the likelihood agrees with enumeration")

# 300 wines of four grades, and 1,500 pairs. True grades are used for answers and for evaluation.
rng = np.random.default_rng(0)
X = rng.normal(size=(300, 6))
y = np.digitize(X[:, 0] + 0.7 * X[:, 1], [-0.8, 0.0, 0.8])
pairs = unbag.Groups.from_tuples(rng.integers(0, 300, (1500, 2)))
apart = GradesApart().observe(y, pairs, n_classes=4)

logits = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
one, other = (aggregate.log_likelihood(logits, pairs, apart) for aggregate in (by_fold, GradesApart()))
print(f"the two differ by {(one - other).abs().max():.0e} at most")

clf = unbag.AggregateClassifier(GradesApart(), "linear", n_classes=4, random_state=0)
clf.fit(X, apart, groups=pairs)
few = np.concatenate([np.flatnonzero(y == grade)[:2] for grade in range(4)])
clf.name_classes(X[few], y[few])  # distances do not identify the direction
print(f"what distances leave open: {clf.symmetry_}; {clf.score(X, y):.0%} of the wines graded right")
