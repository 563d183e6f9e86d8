"""Weighted counts of several classes in one group, by a sum over the most probable count vectors.

Members are read one by one, and a state is the number of members of each class among those read so far, as in
:mod:`unbag._kernels.count_states`; only the most probable states are kept. Three steps make few states sufficient.
First, a common tilt per class moves the expected counts to the most probable ones. Second, states are compared by their
probability times that of the weights of the final counts, if the counts of the members to come were independent over
classes. Third, members are sorted so that a state needs few classes: those that occurred before and may occur again.

The sum is exact if all states with a share above ``NEGLIGIBLE`` are kept. Otherwise the most probable ones are kept,
and a systematic sample represents the others without bias (the optimal resampling of Fearnhead and Clifford, 2003).
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unbag._kernels.logspace import normalise

NEGLIGIBLE = 1e-9
"""Share of the states of a level below which a state is dropped."""
POSSIBLE = 1e-7
"""Tilted probability of a class below which a member is not of this class."""
MAX_TABLE = 2**24
"""Values of a table of the weights of final counts; groups with more uncertain members have too many paths."""
LINKED = 1e-3
"""Tilted probability of a class from which it determines the order of members."""


class PathSum(NamedTuple):
    """The result of one group."""

    log_total: Tensor  # scalar, log of the sum of weights times probabilities
    posterior: Tensor  # (members, k)
    sampled: float  # largest share of the states of a level that is represented by a sample


def sum_paths(
    log_probs: Tensor, log_weights: Tensor, tilt: Tensor, max_states: int, max_sampled: float
) -> PathSum | None:
    """Sum over the count vectors of a group; None if a sample would represent more than the share ``max_sampled``.

    The log-weights are (k, counts), and the tilt, (k,), shifts the expected counts to probable ones. At most
    ``max_states`` states of a level are kept.
    """
    log_sums, probs = normalise(log_probs + tilt)
    log_tilted = log_weights - tilt[:, None] * torch.arange(log_weights.shape[1]).to(log_probs)
    top = log_tilted.amax(1)
    log_scale = log_sums.sum() + top.sum()
    for threshold in (POSSIBLE, 0.0):
        possible = probs > threshold
        fixed = possible.sum(1) == 1
        n_fixed = possible[fixed].sum(0)  # (k,)
        uncertain = (~fixed).nonzero().flatten()
        if len(uncertain) ** 2 * len(tilt) > MAX_TABLE:
            return None
        counts = n_fixed[:, None] + torch.arange(len(uncertain) + 1, device=n_fixed.device)
        reachable = (log_tilted - top[:, None]).exp().gather(1, counts)
        order = uncertain[_sort_members(probs[uncertain])]
        result = _sum_states(probs[order], possible[order], reachable, max_states, max_sampled)
        if result is None or bool(result.log_total > float("-inf")):
            break
    if result is None:
        return None
    posterior = possible.to(probs.dtype)  # of fixed members
    posterior[order] = result.posterior
    log_total = result.log_total + log_scale + probs[fixed].amax(1).log().sum()
    return PathSum(log_total, posterior, result.sampled)


def _sort_members(probs: Tensor) -> Tensor:
    """Return an order of members in which few classes occurred before and may occur again."""
    from scipy.sparse import csr_array  # noqa: PLC0415 (slow to import)
    from scipy.sparse.csgraph import reverse_cuthill_mckee  # noqa: PLC0415

    linked = (probs > LINKED).cpu()
    together = csr_array((linked.T.int() @ linked.int()).numpy())
    k = probs.shape[1]
    place = torch.empty(k, dtype=torch.int64)
    place[torch.from_numpy(reverse_cuthill_mckee(together, symmetric_mode=True).astype(np.int64))] = torch.arange(k)
    first, last = torch.where(linked, place, k).amin(1), torch.where(linked, place, -1).amax(1)
    return (last * k + first).argsort(stable=True).to(probs.device)


class _Level(NamedTuple):
    """The paths that read a member."""

    before: Tensor  # (paths,), the state that a path continues
    label: Tensor  # (paths,), the class of the member
    after: Tensor  # (paths,), the state that it reaches
    factor: Tensor  # (paths,), probability of the label, times final weights of classes and the correction of samples
    forward: Tensor  # (states before,), sum over all paths to the state


def _sum_states(
    probs: Tensor, possible: Tensor, weights: Tensor, max_states: int, max_sampled: float
) -> PathSum | None:
    m, k = probs.shape
    device, classes = probs.device, torch.arange(k, device=probs.device)
    code = torch.randint(2**62, (k,), generator=torch.Generator().manual_seed(0)).to(device)  # identifies count vectors
    last = torch.where(possible, torch.arange(m, device=device)[:, None], -1).amax(0) if m else classes * 0 - 1
    ahead = _look_ahead(probs, weights)
    counts = torch.zeros(1, k, dtype=torch.int64, device=device)
    forward, log_scale, sampled = weights[last < 0, 0].prod()[None], probs.new_zeros(()), 0.0
    levels = []
    for t in range(m):
        labels, states = possible[t].nonzero().flatten(), torch.arange(len(counts), device=device)
        before, label = states.repeat_interleave(len(labels)), labels.repeat(len(counts))
        paths = torch.arange(len(before), device=device)
        reached = counts[before]
        reached[paths, label] += 1
        finished, active = classes[last == t], classes[last > t]
        factor = probs[t, label] * weights[finished, reached[:, finished]].prod(1)
        reached[:, finished] = 0
        _, after = (reached * code).sum(1).unique(return_inverse=True)
        total = probs.new_zeros(int(after.max()) + 1).index_add_(0, after, forward[before] * factor)
        counts = reached[torch.empty_like(after[: len(total)]).scatter_(0, after, paths)]
        share = total * ahead[t + 1][active, counts[:, active]].prod(1)
        kept, correction, lost = _select(share / share.sum(), max_states)
        sampled = max(sampled, lost)
        if sampled > max_sampled:
            return None
        place = torch.full_like(counts[:, 0], -1).index_copy_(0, kept, torch.arange(len(kept), device=device))
        stays = place[after] >= 0
        before, label, after = before[stays], label[stays], place[after[stays]]
        levels.append(_Level(before, label, after, factor[stays] * correction[after], forward))
        counts, forward = counts[kept], total[kept] * correction
        scale = forward.sum()
        forward, log_scale = forward / scale, log_scale + scale.log()
    posterior, backward = torch.zeros_like(probs), torch.ones_like(forward)
    for t, level in reversed(list(enumerate(levels))):
        message = level.factor * backward[level.after]
        posterior[t].index_add_(0, level.label, level.forward[level.before] * message)
        backward = torch.zeros_like(level.forward).index_add_(0, level.before, message)
        backward = backward / backward.max()
    log_total = (log_scale + forward.sum().log()).nan_to_num(nan=float("-inf"))
    return PathSum(log_total, posterior / posterior.sum(1, keepdim=True), sampled)


def _look_ahead(probs: Tensor, weights: Tensor) -> Tensor:
    """Return the expected weight of the final count of each class, given its count so far: (members + 1, k, counts)."""
    tables = [weights]
    for p in probs.flip(0)[:, :, None]:
        following = torch.nn.functional.pad(tables[-1][:, 1:], (0, 1))
        tables.append(tables[-1] * (1 - p) + following * p)
    return torch.stack(tables[::-1])


def _select(share: Tensor, max_states: int) -> tuple[Tensor, Tensor, float]:
    """Return the numbers of the states that are kept, their corrections, and the share that a sample represents.

    A state with a share of at least c is kept. Another is drawn with the probability ``share / c`` and multiplied by
    its inverse, where c is such that ``max_states`` are expected.
    """
    large = (share > NEGLIGIBLE).nonzero().flatten()
    share = share[large]
    if len(large) <= max_states:
        return large, torch.ones_like(share), 0.0
    ordered = share.sort(descending=True).values
    rest = ordered.sum() - ordered.cumsum(0) + ordered  # the share from each state on
    n_left = max_states - torch.arange(len(ordered), device=share.device)
    n_sure = int((ordered * n_left > rest).int().cumprod(0).sum())
    chance = (share * (max_states - n_sure) / rest[n_sure]).clamp_max(1.0)
    drawn = torch.where(chance < 1, chance, 0.0).cumsum(0).add(0.5).floor().diff(prepend=share.new_zeros(1)) > 0
    kept = drawn | (chance == 1)
    return large[kept], 1 / chance[kept], float(share[chance < 1].sum())
