"""Feasibility of counts where members exclude classes, by a flow from members to classes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def can_be_assigned(scores: Tensor, weights: Tensor | None, z: Tensor) -> Tensor:
    """Return whether the members of each group can be assigned to possible classes with counts z.

    Scores, (groups, classes, members), are ``-inf`` where a member cannot be of a class.

    Examples
    --------
    >>> never = float("-inf")
    >>> scores = torch.tensor([[[0.0, 0.0, never], [never, 0.0, 0.0]]])  # the first and the last have no choice
    >>> can_be_assigned(scores, None, torch.tensor([[2, 1]])), can_be_assigned(scores, None, torch.tensor([[3, 0]]))
    (tensor([True]), tensor([False]))
    """
    feasible = torch.ones(len(z), dtype=torch.bool, device=z.device)
    excluded = (scores.amin(2) == float("-inf")) & (z > 0)
    # Any assignment is possible unless some member excludes a class that occurs.
    for group in excluded.any(1).nonzero().flatten().tolist():
        allowed = scores[group] > float("-inf")
        allowed = allowed if weights is None else allowed[:, weights[group] > 0]
        members = allowed.t().cpu().numpy()
        feasible[group] = _maximum_flow(members, z[group].cpu().numpy().astype(np.int32)) == len(members)
    return feasible


def _maximum_flow(allowed: np.ndarray, z: np.ndarray) -> int:
    """Return how many members, (members, classes), can be assigned; members with equal choices are one node."""
    from scipy.sparse import csr_array  # noqa: PLC0415 (rarely needed, takes a quarter of a second)
    from scipy.sparse.csgraph import maximum_flow  # noqa: PLC0415

    choices, members = np.unique(allowed, axis=0, return_counts=True)
    n_choices, k = choices.shape
    source, sink = n_choices + k, n_choices + k + 1
    capacity = np.zeros((sink + 1, sink + 1), dtype=np.int32)
    capacity[source, :n_choices] = members
    capacity[:n_choices, n_choices:source] = np.where(choices, members[:, None], 0)
    capacity[n_choices:source, sink] = z
    return int(maximum_flow(csr_array(capacity), source, sink).flow_value)
