"""Losses of predictions under each possible label.

Each loss takes logits of shape ``(n, k)`` and returns losses of the same shape: entry ``[i, j]`` is the loss of row
``i`` with label ``j``. For logits of ``-inf``, losses of the other classes and their gradients stay finite. In the
formulas, p is the softmax of the logits f.

Examples
--------
>>> logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
>>> cross_entropy(logits)
tensor([[0.6931, 1.2040, 1.6094]])
>>> mae(logits)
tensor([[1.0000, 1.4000, 1.6000]])
"""

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

Loss = Callable[[Tensor], Tensor]


def cross_entropy(logits: Tensor) -> Tensor:
    """Return ``-log p_j``."""
    return -logits.log_softmax(-1)


def logistic(logits: Tensor) -> Tensor:
    """Return the one-vs-rest logistic loss, ``softplus(-f_j) + sum_{v != j} softplus(f_v)``.

    For two classes with logits ``[0, f]`` this is the paper's logistic loss of ``f``, up to the constant log 2.
    """
    # torch's softplus is the identity above 20, with an error of 2e-9.
    if_positive, if_negative = -logsigmoid(logits), -logsigmoid(-logits)  # each (n, k)
    # Cumulative sums from both sides, because subtraction from the total would lose small terms.
    before = pad(if_negative[:, :-1], (1, 0)).cumsum(1)
    after = pad(if_negative[:, 1:], (0, 1)).flip(1).cumsum(1).flip(1)
    return if_positive + before + after


def mae(logits: Tensor) -> Tensor:
    """Return the sum of absolute differences of softmax and one-hot label, ``2 (1 - p_j)``."""
    return 2 * (1 - logits.softmax(-1))


def mse(logits: Tensor) -> Tensor:
    """Return the sum of squared differences of softmax and one-hot label, the Brier score."""
    probs = logits.softmax(-1)
    squares = probs.square()
    # A rounded sum of squares is at least each of them, so that losses are not negative.
    return (squares.sum(-1, keepdim=True) - squares) + (1 - probs).square()


def gce(logits: Tensor, q: float = 0.7) -> Tensor:
    """Return the generalised cross entropy ``(1 - p_j^q) / q``: near 0 the cross entropy, at 1 half of :func:`mae`.

    Robust to label noise; Zhang and Sabuncu, 2018.
    """
    _check("q", q, lambda q: 0 < q <= 1, "a number above 0 and up to 1", "for q = 0 use cross_entropy")
    return -torch.expm1(q * logits.log_softmax(-1)) / q


def focal(logits: Tensor, gamma: float = 2.0) -> Tensor:
    """Return ``-(1 - p_j)^gamma log p_j``, with less weight for correct predictions; Lin et al., 2017."""
    _check("gamma", gamma, lambda gamma: gamma >= 0, "a finite number of at least 0", "2 is the usual choice")
    log_probs = logits.log_softmax(-1)
    if gamma == 0:
        return -log_probs
    likely, ruled_out = log_probs > -0.5, log_probs == float("-inf")
    # log(1 - p), without cancellation. Masked entries are finite, because a NaN in a branch that torch.where does not
    # select, as of a product with -inf, would reach the gradient.
    unlikely = log_probs.masked_fill(likely, torch.finfo(log_probs.dtype).min)
    log_complement = torch.where(likely, unlikely.logsumexp(-1, keepdim=True), torch.log1p(-unlikely.exp()))
    focus = (gamma * log_complement).exp()
    return (-focus * log_probs.masked_fill(ruled_out, 0)).masked_fill(ruled_out, float("inf"))


def symmetric_cross_entropy(logits: Tensor, alpha: float = 0.1, beta: float = 1.0, log_zero: float = -4.0) -> Tensor:
    """Return ``alpha * cross entropy + beta * reverse cross entropy``; robust to label noise; Wang et al., 2019.

    With ``log_zero`` for the log of zero, the reverse cross entropy is ``-log_zero * (1 - p_j)``.
    """
    _check("alpha", alpha, lambda alpha: alpha > 0, "a finite number above 0", "for alpha = 0 use mae")
    _check("beta", beta, lambda beta: beta >= 0, "a finite number of at least 0", "1 is the usual choice")
    _check("log_zero", log_zero, lambda log_zero: log_zero < 0, "a finite number below 0", "-4 is the usual choice")
    log_probs = logits.log_softmax(-1)
    return beta * log_zero * torch.expm1(log_probs) - alpha * log_probs


LOSSES: dict[str, Loss] = {
    loss.__name__: loss for loss in (cross_entropy, logistic, mae, mse, gce, focal, symmetric_cross_entropy)
}
"""Losses by name."""


def find_loss(loss: Any) -> Loss:
    """Return a loss by name; a function is returned as it is."""
    if callable(loss):
        return loss
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ValueError(
            f"loss must be one of {', '.join(LOSSES)}, or a function from logits to losses; got {loss!r}; "
            "for other parameters use functools.partial, for example partial(unbag.losses.gce, q=0.5)"
        )
    return LOSSES[loss]


def _check(name: str, value: Any, is_valid: Callable[[Any], bool], expected: str, advice: str) -> None:
    if not (isinstance(value, Real) and math.isfinite(value) and is_valid(value)):
        raise ValueError(f"{name} must be {expected}, got {value!r}; {advice}")
