"""Relaxed optimal transport: soft labels for the members of a group that fit its proportions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unbag._kernels.segments import Segments
from unbag.objectives.objective import proportion_divergence, sum_probabilities, weighted_risk
from unbag_experiments.baselines.base import Method, check_positive


def transport(
    log_probs: Tensor, groups: Segments, counts: Tensor, *, entropy: float, strictness: float, iterations: int
) -> Tensor:
    """Return soft labels of each membership that agree with predictions and counts as well as can be.

    They minimise ``-sum_ij Q_ij log p_ij + entropy * sum_ij Q_ij log Q_ij + strictness * sum_j KL(Q_.j || n_j)`` among
    tables Q whose rows sum to one, with ``Q_.j`` the sums of columns, n the counts, and ``KL(a || b) = a log(a / b) - a
    + b``. Found by Sinkhorn's iteration in log space: rows are scaled to sum to one, columns to the counts, or part of
    the way to them. ``log_probs``, which are finite, have one row per membership, ``counts`` one per group; for the
    others, see :class:`ROT`.
    """
    scores = log_probs / entropy
    target = counts.to(scores.dtype).log()  # (groups, k), -inf for a class that is not there
    share = 1 / (1 + entropy / strictness)  # of the way to the counts
    of_columns = torch.zeros_like(target)
    for _ in range(iterations):
        of_rows = (scores + groups.expand(of_columns)).logsumexp(1, keepdim=True)  # (memberships, 1)
        of_columns = share * (target - sum_probabilities(scores - of_rows, groups))
    return (scores + groups.expand(of_columns)).softmax(1)


@dataclass(frozen=True)
class ROT(Method):
    """Cross entropy with soft labels that optimal transport finds between the members of a group and its counts.

    The loss of a group is ``(1 - mix) * (1/m) sum_ij -Q_ij log p_ij + mix * KL(q || mean_i p_i)``: Q as in
    :func:`transport`, from the current predictions and without gradient, q the proportions of the group. The article
    describes both parts and their mixture. The paper does not say which constants it used; on validation rows of
    vehicle and optdigits, an entropy of 0.5 or 1, a strictness of 1, 10 or ``inf`` and a mix of 0 or 0.5 did equally
    well, within half a point.

    Parameters
    ----------
    entropy
        Weight of the entropy of Q. With 1, which is the default, and strict counts, Q is the predictions with rows and
        columns scaled to their sums, the nearest table to them of those that fit; towards 0 labels become hard.
    strictness
        Weight of the divergence of Q's column sums from the counts; ``inf`` holds them to the counts.
    mix
        Share of the divergence of proportions in the loss.
    iterations
        Of Sinkhorn's algorithm, always as many, so that a step never waits.

    Examples
    --------
    >>> outputs = torch.tensor([[0.8, 0.2], [0.5, 0.5]]).log()
    >>> ROT().objective(outputs, Segments.from_sizes([2]), torch.tensor([[1, 1]]))
    tensor([0.6785])
    """

    name = "rot"
    title = "ROT"
    source = (
        "Dulac-Arnold, Zeghidour, Cuturi, Beyer and Vert, Deep Multi-class Learning from Label Proportions, "
        "arXiv 1905.12909, 2019"
    )
    in_paper = True
    problems = ("label_proportions",)

    entropy: float = 1.0
    strictness: float = 10.0
    mix: float = 0.0
    iterations: int = 50

    def __post_init__(self) -> None:
        check_positive("entropy", self.entropy)
        if not self.strictness > 0:
            raise ValueError(f"strictness must be a positive number, or inf; got {self.strictness!r}")
        if not 0 <= self.mix <= 1:
            raise ValueError(f"mix must be a number from 0 to 1, got {self.mix!r}")
        if isinstance(self.iterations, bool) or not isinstance(self.iterations, int) or self.iterations < 1:
            raise ValueError(f"iterations must be a whole number of at least 1, got {self.iterations!r}")

    def objective(self, outputs: Tensor, groups: Segments, z: Tensor) -> Tensor:
        """Return the loss of each group."""
        log_probs = outputs.log_softmax(-1)
        labels = transport(
            log_probs.detach(), groups, z, entropy=self.entropy, strictness=self.strictness, iterations=self.iterations
        )
        loss = (1 - self.mix) * weighted_risk(-log_probs, labels, groups)
        return loss + self.mix * proportion_divergence(log_probs, groups, z) if self.mix else loss


METHOD = ROT()
