"""MixBag: more groups, mixed of parts of two, whose proportions are known within an interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unbag import Groups
from unbag._kernels.segments import Segments
from unbag.objectives.objective import sum_probabilities
from unbag.training import Observations
from unbag_experiments.baselines.base import Method, Task, check_positive
from unbag_experiments.baselines.targets import Targets, with_targets

SEED = 0
"""Of the draws: which groups are mixed, and which of their members."""


def mixed_proportions(first: Tensor, second: Tensor, n_first: Tensor, n_second: Tensor) -> tuple[Tensor, Tensor]:
    """Return the expected proportions of some members of one group together with some of another, and their deviation.

    Shares g and 1 - g of the mixture are from the two groups: ``g p + (1 - g) q``, with the variance of two binomial
    shares, ``g^2 p (1 - p) / n + (1 - g)^2 q (1 - q) / m``. All have one row per mixture, ``(groups, k)``.

    Examples
    --------
    >>> half, one = torch.tensor([[0.5, 0.5]]), torch.tensor([2])
    >>> mixed_proportions(half, torch.tensor([[1.0, 0.0]]), one, one)
    (tensor([[0.7500, 0.2500]]), tensor([[0.1768, 0.1768]]))
    """
    share = (n_first / (n_first + n_second))[:, None]
    variance = share.square() * first * (1 - first) / n_first[:, None]
    variance = variance + (1 - share).square() * second * (1 - second) / n_second[:, None]
    return share * first + (1 - share) * second, variance.sqrt()


@dataclass(frozen=True)
class MixBag(Method):
    """Match the mean prediction of groups with their proportions, also of groups that are mixed of two.

    Beside every group of m members there is one mixed: of two groups drawn at random, g m members of the one and the
    others of the other, g being drawn uniformly. The loss of a group is ``-sum_j q_j log p_j`` over the classes whose
    mean prediction p_j is outside of the interval of the proportion q_j; of groups as they came, the interval is the
    proportion itself. The article mixes anew in every step; here mixtures are drawn once.

    Parameters
    ----------
    deviations
        Half the width of the interval, in standard deviations; the article's interval holds 99 %.

    Examples
    --------
    >>> logits = torch.tensor([[0.9, 0.1], [0.9, 0.1]]).log()
    >>> near, far = torch.tensor([[0.8, 0.2, 0.2, 0.05]]), torch.tensor([[0.5, 0.5, 0.1, 0.1]])  # one class is inside
    >>> [float(METHOD.objective(logits, Segments.from_sizes([2]), z)) for z in (near, far)]  # doctest: +ELLIPSIS
    [0.460..., 1.203...]
    """

    name = "mixbag"
    title = "MixBag"
    source = (
        "Asanomi, Matsuo, Suehiro and Bise, MixBag: Bag-Level Data Augmentation for Learning from Label Proportions, "
        "ICCV 2023"
    )
    in_paper = False
    named_only = True
    problems = ("label_proportions",)

    deviations: float = 2.576

    def __post_init__(self) -> None:
        check_positive("deviations", self.deviations)

    def prepare(self, task: Task) -> Task:
        """Return the task with as many mixed groups as there are others; targets are proportions and half widths."""
        seen = task.observations
        groups, mixed = self._mix(seen)
        learned = Observations(Targets(), groups, torch.cat([_known(seen), mixed]), task.n_classes)
        return with_targets(task, learned, None if task.held_out is None else _known(task.held_out))

    def _mix(self, seen: Observations) -> tuple[Groups, Tensor]:
        """Return all groups, those that are mixed behind the others, and the targets of the mixed ones."""
        rng = np.random.default_rng(SEED)
        members = [rows.numpy() for rows in seen.groups.members.cpu().split(seen.groups.sizes.tolist())]
        mixed, pairs, numbers = [], [], []
        for own in members:
            pair = rng.integers(len(members), size=2)
            n_first = int(np.clip(round(rng.uniform() * len(own)), 1, max(1, len(own) - 1)))
            parts = [
                rng.permutation(members[group])[:n]
                for group, n in zip(pair, (n_first, max(1, len(own) - n_first)), strict=True)
            ]
            mixed.append(np.concatenate(parts))
            pairs.append(pair)
            numbers.append([len(part) for part in parts])
        device = seen.groups.device
        first, second = torch.from_numpy(np.array(pairs)).to(device).unbind(1)
        taken = torch.tensor(numbers, device=device)
        shares = seen.checked / seen.groups.sizes[:, None]
        q, deviation = mixed_proportions(shares[first], shares[second], *taken.unbind(1))
        sizes = torch.cat([seen.groups.sizes, taken.sum(1)])
        groups = Groups.from_offsets(
            torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]),
            torch.cat([seen.groups.members, torch.from_numpy(np.concatenate(mixed)).to(device)]),
        )
        return groups, torch.cat([q, self.deviations * deviation], 1)

    def objective(self, outputs: Tensor, groups: Segments, z: Tensor) -> Tensor:
        """Return the loss of each group."""
        q, width = z.to(outputs.dtype).chunk(2, 1)
        log_p = sum_probabilities(outputs.log_softmax(-1), groups) - groups.sizes[:, None].to(outputs.dtype).log()
        outside = (log_p.detach().exp() - q).abs() > width
        # A class that is not in a group costs nothing, even where its log-probability is without bounds.
        return -(q * log_p.masked_fill((q == 0) | ~outside, 0)).sum(1)


def _known(seen: Observations) -> Tensor:
    """Return proportions, and intervals without width."""
    shares = seen.checked / seen.groups.sizes[:, None]
    return torch.cat([shares, torch.zeros_like(shares)], 1)


METHOD = MixBag()
