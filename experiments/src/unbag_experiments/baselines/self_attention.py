"""Self-attention pooling: the members of a bag look at each other before the bag is classified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from unbag._kernels.segments import Segments
from unbag_experiments.baselines.attention import Attention


class SelfAttentionNet(nn.Module):
    """From a row to a query, a key and a score: ``2 * attention + 1`` outputs.

    ``hidden`` are the units of the layers of the embedding, each with a rectifier.

    Examples
    --------
    >>> SelfAttentionNet(4, attention=8)(torch.zeros(3, 4)).shape
    torch.Size([3, 17])
    """

    def __init__(self, n_features: int, hidden: Sequence[int] = (256, 128, 64), attention: int = 64) -> None:
        super().__init__()
        widths = [n_features, *hidden]
        layers = [part for i, width in enumerate(hidden) for part in (nn.Linear(widths[i], width), nn.ReLU())]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], 2 * attention + 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs of shape ``(n, 2 * attention + 1)``."""
        outputs: Tensor = self.layers(x.flatten(1))
        return outputs


def attended_log_odds(outputs: Tensor, bags: Segments) -> Tensor:
    """Return ``(1/m) sum_i sum_j a_ij s_j`` of each bag, a row of a being the softmax of ``q_i . k_j / sqrt(width)``.

    ``outputs`` holds q, k and s of each membership, one after the other. A layer that is linear in what the members
    have looked up can as well be applied before: s is the score of what a member has to tell.

    Examples
    --------
    >>> outputs = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 3.0], [9.0, 9.0, 7.0]])
    >>> attended_log_odds(outputs, Segments.from_sizes([2, 1]))
    tensor([2., 7.])
    """
    size, width = bags.uniform_size, (outputs.shape[1] - 1) // 2
    inside = None
    if size is None:  # as many places in each bag as in the largest
        size = bags.max_size
        inside = torch.arange(size, device=outputs.device) < bags.sizes[:, None]  # (bags, places)
        padded = outputs.new_zeros(len(bags), size, outputs.shape[1])
        padded[inside] = outputs
        outputs = padded
    query, key, score = outputs.view(len(bags), size, -1).split([width, width, 1], 2)
    likeness = query @ key.mT / max(1, width) ** 0.5  # (bags, places, places)
    if inside is not None:
        likeness = likeness.masked_fill(~inside[:, None], -torch.inf)
    log_odds = (likeness.softmax(2) @ score).squeeze(2)
    return (log_odds if inside is None else log_odds * inside).sum(1) / bags.sizes


@dataclass(frozen=True)
class SelfAttention(Attention):
    """Pool a bag by one layer of self-attention and a mean, and classify it: logistic loss of its log-odds.

    What a transformer does with a set, in its smallest form: one head, one layer, nothing after it. Network, learning
    rate and weight decay are those of :class:`unbag_experiments.baselines.attention.Attention`.
    """

    name = "self_attention"
    title = "Self-attention pooling"
    source = (
        "Lee, Lee, Kim, Kosiorek, Choi and Teh, Set Transformer: A Framework for Attention-based Permutation-Invariant "
        "Neural Networks, ICML 2019; one layer of it"
    )
    named_only = True

    attention: int = 64

    def n_outputs(self, n_classes: int) -> int:
        """Return the width of query, key and score."""
        return 2 * self.attention + 1

    def make_model(self, model: str, shape: tuple[int, ...], n_classes: int) -> nn.Module:
        """Return a new network; the model of the experiment is not looked at."""
        return SelfAttentionNet(prod(shape), attention=self.attention)

    def log_odds(self, outputs: Tensor, bags: Segments) -> Tensor:
        """Return the log-odds of each bag being positive."""
        return attended_log_odds(outputs, bags)


METHOD = SelfAttention()
