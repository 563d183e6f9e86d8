"""What all observed groups together say of each row: the posterior of its class, added up over its groups."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from unbag.training import Observations


class RowEvidence:
    """Likelihood and posterior of the groups of several sets, by row.

    Sets count by their weights, whatever their number of groups, as they do in
    :func:`unbag.training.held_out_likelihood`; groups of a set count by theirs. A row counts once for each of its
    groups.

    Parameters
    ----------
    observations
        The sets, on the CPU.
    """

    def __init__(self, observations: Sequence[Observations]) -> None:
        self.sets = list(observations)
        self.rows, members = torch.cat([one.groups.members for one in self.sets]).unique(return_inverse=True)
        self.members = members.split([len(one.groups.members) for one in self.sets])
        own = [one.weights for one in self.sets]
        self.total = float(sum(weights.sum() for weights in own))
        """How many groups there are, each counted by its weight."""
        of_sets = sum(one.weight for one in self.sets)
        self.weights = [
            weights * (one.weight / of_sets * self.total / weights.sum())
            for one, weights in zip(self.sets, own, strict=True)
        ]
        self.row_weights = torch.zeros(len(self.rows), dtype=torch.float64)  # (rows,)
        """How much each row counts, over all its groups."""
        for one, places, weights in zip(self.sets, self.members, self.weights, strict=True):
            self.row_weights.index_add_(0, places, one.groups.segments.expand(weights))

    def infer(self, logits: Tensor) -> tuple[float, Tensor]:
        """Return the log-likelihood per group, and the posterior of each row times its weight.

        Parameters
        ----------
        logits
            Of ``rows``, ``(rows, classes)``, in the precision in which to compute.

        Returns
        -------
        tuple
            A number, and ``(rows, classes)`` in float64, whose rows add up to ``row_weights``.
        """
        posterior = torch.zeros(logits.shape, dtype=torch.float64)
        log_likelihood = 0.0
        for one, places, weights in zip(self.sets, self.members, self.weights, strict=True):
            segments = one.groups.segments
            with torch.no_grad():
                evidence = one.aggregate.checked_evidence(logits[places], segments, one.checked)
            posterior.index_add_(0, places, evidence.posterior.double() * segments.expand(weights)[:, None])
            log_likelihood += float(evidence.log_likelihood.double() @ weights)
        if not bool(posterior.isfinite().all()):
            raise ArithmeticError("a group has no posterior: the model rules out what was observed of it")
        return log_likelihood / self.total, posterior
