"""Log-likelihood and posterior of the groups under a fitted classifier, and which groups were held out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unbag.training import Observations

# Groups are looked at in parts of about so many members, as a step of training does.
MEMBERS_AT_ONCE = 65_536


@dataclass(frozen=True, eq=False)
class Judged:
    """A set of observations, with what the model and the trivial predictor make of it."""

    observations: Observations
    log_probs: Tensor  # (memberships, k), of the model, before it knows any observation
    log_likelihood: Tensor  # (groups,), of the model
    posterior: Tensor  # (memberships, k)
    trivial: Tensor  # (groups,), log-likelihood under the best constant prediction
    chosen: Tensor  # (judged groups,), the numbers of those that figures of quality are about
    held_out: bool  # whether these were kept from training
    folds: Tensor | None  # (groups,), by which fold each group was left out; None without folds


def judge(
    one: Observations, log_probs: Tensor, trivial: Tensor, held_out: Tensor | None, folds: Tensor | None = None
) -> Judged:
    """Compute likelihood and posterior of all groups, a part at a time."""
    scored = []
    with torch.no_grad():
        for which, entries, segments in one.groups.segments.runs(MEMBERS_AT_ONCE):
            scored.append(one.aggregate.checked_evidence(log_probs[entries], segments, one.checked[which]))
    return Judged(
        observations=one,
        log_probs=log_probs,
        log_likelihood=torch.cat([evidence.log_likelihood for evidence in scored]),
        posterior=torch.cat([evidence.posterior for evidence in scored]),
        trivial=trivial,
        chosen=one.weights.nonzero().flatten() if held_out is None else held_out,
        held_out=held_out is not None,
        folds=folds,
    )
