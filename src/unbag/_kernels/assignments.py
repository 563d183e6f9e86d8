"""Whether counts can be made at all, where members rule classes out: a flow from members to classes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def can_be_assigned(scores: Tensor, weights: Tensor | None, z: Tensor) -> Tensor:
    """Say of each group whether its members can be given possible classes so that the counts are z.

    Parameters
    ----------
    scores
        Log-probabilities, (groups, classes, members): ``-inf`` where a member cannot be of a class.
    weights
        1 for a member and 0 for padding, (groups, members); None where nothing is padded.
    z
        Counts, (groups, classes), adding up to the number of members.

    Examples
    --------
    >>> never = float("-inf")
    >>> scores = torch.tensor([[[0.0, 0.0, never], [never, 0.0, 0.0]]])  # the first and the last have no choice
    >>> can_be_assigned(scores, None, torch.tensor([[2, 1]]))
    tensor([True])
    >>> can_be_assigned(scores, None, torch.tensor([[3, 0]]))
    tensor([False])
    """
    possible = torch.ones(len(z), dtype=torch.bool, device=z.device)
    ruled_out = (scores.amin(2) == float("-inf")) & (z > 0)
    # Unless a class that occurs is ruled out for someone, any assignment will do.
    for group in ruled_out.any(1).nonzero().flatten().tolist():
        allowed = scores[group] > float("-inf")
        own = allowed if weights is None else allowed[:, weights[group] > 0]
        members = own.t().cpu().numpy()
        possible[group] = _flow(members, z[group].cpu().numpy().astype(np.int32)) == len(members)
    return possible


def _flow(allowed: np.ndarray, z: np.ndarray) -> int:
    """Return how many members, (members, classes), find a class; those with the same choice are one node."""
    from scipy.sparse import csr_array  # noqa: PLC0415 (rarely needed, and a quarter of a second)
    from scipy.sparse.csgraph import maximum_flow  # noqa: PLC0415

    choices, members = np.unique(allowed, axis=0, return_counts=True)
    n_choices, k = choices.shape
    source, sink = n_choices + k, n_choices + k + 1
    capacity = np.zeros((sink + 1, sink + 1), dtype=np.int32)
    capacity[source, :n_choices] = members
    capacity[:n_choices, n_choices:source] = np.where(choices, members[:, None], 0)
    capacity[n_choices:source, sink] = z
    return int(maximum_flow(csr_array(capacity), source, sink).flow_value)
