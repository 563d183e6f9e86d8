"""Counts of several classes with weights, in groups too large for exact states: belief propagation.

Each class has a factor, the weight of the number of members of that class, and each member a variable, its class. One
pass sends, from each factor to each member, the log-odds that the other members and the weight give to this class.
These messages are exact for independent members, because a factor is a problem of two classes, which
:mod:`unbag._kernels.weighted_counts` solves. Only the dependence between the factors of different classes is
approximated, which makes the result reliable where counts contradict the model and a normal distribution of the counts
is not: each factor respects its bounds exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from unbag._kernels.logspace import log_softmax, log_sum_others
from unbag._kernels.segments import Segments
from unbag._kernels.weighted_counts import infer_weighted_counts

DAMPING = 0.5
"""Share of the new messages in those of the next pass."""
MAX_PASSES = 150
TOLERANCE = 5e-3
"""Largest difference between the beliefs of a member and of the factors at which a group has converged."""
ANNEALED_SPAN = 8.0
"""Differences of log-probabilities from which messages of zero converge."""
ANNEALING_PASSES = 6
BOUND_TOLERANCE = 1e-3
"""Members by which expected counts may be outside of the bounds."""
MAX_SHIFT = 2.0
"""Longest step of log-probabilities on the way into the bounds."""
NEARLY_SURE = 1e-9
"""Beyond this distance from 0 and 1, the logarithm of the odds of a posterior has too few digits."""


class Messages(NamedTuple):
    """The state of belief propagation after a pass."""

    beliefs: Tensor  # (memberships, k), probabilities of the classes
    log_likelihood: Tensor  # (groups,), by the formula of Bethe
    messages: Tensor  # (memberships, k), log-odds that each factor sends for the next pass
    residual: Tensor  # (groups,), largest difference between the beliefs of members and of factors


def infer_counts_by_messages(log_probs: Tensor, segments: Segments, log_weights: Tensor) -> Messages:
    """Pass messages until members and factors agree, and return the last state.

    The log-weights are concave.
    """
    state = pass_messages(log_probs, segments, log_weights, _anneal(log_probs, segments, log_weights))
    final = Messages(*(part.clone() for part in state))
    which = torch.arange(len(segments), device=log_probs.device)
    messages, rows = state.messages, torch.arange(len(log_probs), device=log_probs.device)
    for _ in range(MAX_PASSES):
        moving = state.residual > TOLERANCE
        if not bool(moving.any()):
            break
        if not bool(moving.all()):
            inside, segments = segments.take(moving.nonzero().flatten())
            which, log_weights, rows = which[moving], log_weights[moving], rows[inside]
            log_probs, messages = log_probs[inside], messages[inside]
            sent = state.messages[inside]
        else:
            sent = state.messages
        messages = torch.lerp(messages, sent, DAMPING)
        state = pass_messages(log_probs, segments, log_weights, messages)
        for whole, part, place in zip(final, state, (rows, which, rows, which), strict=True):
            whole[place] = part
    return final


def pass_messages(log_probs: Tensor, segments: Segments, log_weights: Tensor, messages: Tensor) -> Messages:
    """Return the beliefs that messages lead to, and the messages of the next pass.

    Messages are the log-odds that the factor of each class sends to each member, (memberships, k).
    """
    n_classes = log_probs.shape[1]
    scores = log_probs + messages
    # What a factor receives excludes what it has sent.
    odds = (log_probs - log_sum_others(scores)).t().contiguous()  # (k, memberships)
    factors = _Factors(log_weights)
    by_class = Segments.from_sizes(segments.sizes.repeat(n_classes))
    flat = odds.flatten()
    totals, yes, tilt = infer_weighted_counts(logsigmoid(-flat), logsigmoid(flat), by_class, factors.bounds, factors)
    inner = (yes > NEARLY_SURE) & (yes < 1 - NEARLY_SURE)
    sent = torch.where(inner, yes.logit() - flat, by_class.expand(tilt)).view_as(odds).t()
    beliefs = scores.softmax(1)
    difference = (beliefs - yes.view_as(odds).t()).abs().amax(1)
    residual = difference.new_zeros(len(segments)).scatter_reduce_(0, segments.index, difference, "amax")
    edges = torch.logaddexp(logsigmoid(-odds), logsigmoid(odds) + messages.t()).sum(0)
    log_likelihood = totals.view(n_classes, -1).sum(0) + segments.sum(scores.logsumexp(1) - edges)
    return Messages(beliefs, log_likelihood, sent.contiguous(), residual)


class _Factors:
    """Log-weights of the counts of each class and group, one class after the other, with their bounds."""

    def __init__(self, log_weights: Tensor) -> None:
        self._table = log_weights.transpose(0, 1).flatten(0, 1)  # (k * groups, counts)
        possible = self._table > float("-inf")
        self._most = possible.shape[1] - 1
        low = possible.int().argmax(1)
        high = self._most - possible.flip(1).int().argmax(1)
        self.bounds = low.double(), high.double()

    def __call__(self, counts: Tensor) -> Tensor:
        outside = (counts < 0) | (counts > self._most)
        places = counts.nan_to_num(0.0).clamp(0, self._most).long()
        return self._table.gather(1, places).masked_fill(outside, float("-inf"))


def _anneal(log_probs: Tensor, segments: Segments, log_weights: Tensor) -> Tensor:
    """Return messages to start from: those of a flattened problem, which is sharpened in steps of a factor of two."""
    finite = log_probs > float("-inf")
    span = float(log_probs.masked_fill(~finite, 0.0).amin().neg()) if finite.any() else 0.0
    temperature = 1.0
    while span / temperature > ANNEALED_SPAN:
        temperature *= 2
    messages = torch.zeros_like(log_probs)
    while temperature > 1:
        flattened = log_softmax(log_probs / temperature)
        for _ in range(ANNEALING_PASSES):
            sent = pass_messages(flattened, segments, log_weights / temperature, messages).messages
            messages = torch.lerp(messages, sent, DAMPING)
        temperature /= 2
        messages = 2 * messages
    return messages


def move_into_bounds(posterior: Tensor, segments: Segments, log_weights: Tensor) -> Tensor:
    """Shift the log-probabilities of classes until the expected counts of each group are within the possible counts."""
    n_groups, n_classes = log_weights.shape[:2]
    low, high = (bound.view(n_classes, n_groups).t() for bound in _Factors(log_weights).bounds)
    for _ in range(MAX_PASSES):
        expected = segments.sum(posterior)
        outside = (expected < low - BOUND_TOLERANCE) | (expected > high + BOUND_TOLERANCE)
        if not bool(outside.any()):
            break
        # Newton's method for the shift of the log-probabilities of each class, as if it were the only one.
        variance = segments.sum(posterior * (1 - posterior)).clamp_min(1e-300)
        shift = ((expected.clamp(low, high) - expected) / variance).clamp(-MAX_SHIFT, MAX_SHIFT)
        posterior = log_softmax(posterior.log() + segments.expand(shift.masked_fill(~outside, 0.0))).exp()
    return posterior
