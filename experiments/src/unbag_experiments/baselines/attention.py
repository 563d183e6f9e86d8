"""Attention-based multiple-instance learning: a bag is the weighted mean of its members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from unbag._kernels.segments import Segments
from unbag.training import Settings
from unbag_experiments.baselines.base import Judged, Method, Task, check_positive


class AttentionNet(nn.Module):
    """From a row to two outputs: the logit of its share of attention, and its score.

    With h the embedding of a row, the logit is ``w . tanh(V h)``, times ``sigmoid(U h)`` inside where gated. The
    classifier of a bag is linear in the pooled embedding, so its log-odds are the pooled scores of the members: ``c .
    (sum_i a_i h_i) + b = sum_i a_i (c . h_i + b)`` because shares sum to one. ``hidden`` and ``attention`` are units:
    of the layers of the embedding, each with a rectifier, and of the layer that attention is computed by.

    Examples
    --------
    >>> AttentionNet(4)(torch.zeros(3, 4)).shape
    torch.Size([3, 2])
    """

    def __init__(
        self, n_features: int, hidden: Sequence[int] = (256, 128, 64), attention: int = 64, *, gated: bool = False
    ) -> None:
        super().__init__()
        widths = [n_features, *hidden]
        layers = [part for i, width in enumerate(hidden) for part in (nn.Linear(widths[i], width), nn.ReLU())]
        self.embedding = nn.Sequential(*layers)
        self.content = nn.Linear(widths[-1], attention)
        self.gate = nn.Linear(widths[-1], attention) if gated else None
        self.attention = nn.Linear(attention, 1, bias=False)
        self.score = nn.Linear(widths[-1], 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs of shape ``(n, 2)``."""
        h = self.embedding(x.flatten(1))
        content = self.content(h).tanh()
        if self.gate is not None:
            content = content * self.gate(h).sigmoid()
        return torch.cat([self.attention(content), self.score(h)], 1)


def bag_log_odds(outputs: Tensor, bags: Segments) -> Tensor:
    """Return the log-odds of each bag being positive, from attention logits and scores: ``(memberships, 2)``.

    Examples
    --------
    >>> bag_log_odds(torch.tensor([[0.0, 1.0], [0.0, 3.0], [9.0, 7.0]]), Segments.from_sizes([2, 1]))
    tensor([2., 7.])
    """
    logit, score = outputs.unbind(1)
    share = (logit - bags.expand(bags.logsumexp(logit))).exp()
    return bags.sum(share * score)


@dataclass(frozen=True)
class Attention(Method):
    """Pool the embeddings of a bag by learned attention, and classify the bag: logistic loss of its log-odds.

    The network is its own, not that of the experiment: the three layers of 256, 128 and 64 units and the attention of
    64 units that the article uses on these data sets, without dropout, which would make replicas depend on each other.
    So are learning rate and weight decay: those of a linear model let such a network diverge.

    Parameters
    ----------
    gated
        With the article's gate.
    learning_rate, weight_decay
        Of Adam, in place of the experiment's. Chosen as common for networks of this size, not by any data.

    Examples
    --------
    >>> outputs = torch.tensor([[0.0, 1.0], [0.0, 3.0], [9.0, 7.0]])
    >>> Attention().objective(outputs, Segments.from_sizes([2, 1]), torch.tensor([False, True]))
    tensor([2.1269e+00, 9.1147e-04])
    """

    name = "attention"
    title = "Attention-based MIL"
    source = "Ilse, Tomczak and Welling, Attention-based Deep Multiple Instance Learning, ICML 2018"
    in_paper = False
    problems = ("multiple_instance",)

    gated: bool = False
    learning_rate: float = 5e-4
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        check_positive("learning_rate", self.learning_rate)

    def settings(self, given: Settings) -> Settings:
        """Return the settings of the experiment with the learning rate and weight decay of this method."""
        return replace(super().settings(given), learning_rate=self.learning_rate, weight_decay=self.weight_decay)

    def n_outputs(self, n_classes: int) -> int:
        """Return two: a logit of attention and a score."""
        return 2

    def make_model(self, model: str, shape: tuple[int, ...], n_classes: int) -> nn.Module:
        """Return a new network with attention; the model of the experiment is not looked at."""
        return AttentionNet(prod(shape), gated=self.gated)

    def log_odds(self, outputs: Tensor, bags: Segments) -> Tensor:
        """Return the log-odds of each bag being positive."""
        return bag_log_odds(outputs, bags)

    def objective(self, outputs: Tensor, groups: Segments, z: Tensor) -> Tensor:
        """Return the logistic loss of each bag."""
        log_odds = self.log_odds(outputs, groups)
        return -logsigmoid(torch.where(z, log_odds, -log_odds))

    def predict(self, outputs: Tensor, judged: Judged, task: Task) -> Tensor:
        """Return which bags are more likely positive than not."""
        return (self.rank_bags(outputs, judged, task) > 0).long()

    def class_log_probs(self, outputs: Tensor) -> Tensor:
        """Return log-probabilities of single rows, each a bag of one."""
        return torch.stack([logsigmoid(-outputs[:, -1]), logsigmoid(outputs[:, -1])], 1)

    def rank_bags(self, outputs: Tensor, judged: Judged, task: Task) -> Tensor:
        """Return the log-odds of each bag being positive; a single row is a bag of one."""
        return outputs[:, -1] if judged.bags is None else self.log_odds(outputs, judged.bags.segments)


METHOD = Attention()
