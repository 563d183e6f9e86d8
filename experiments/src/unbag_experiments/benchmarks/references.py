"""Reference implementations that unbag is timed against: correct, and written in the plain way."""

from __future__ import annotations

from functools import cache
from itertools import permutations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid


def cross_entropy_with_gradient(logits: Tensor, labels: Tensor) -> Tensor:
    """Take the step of ordinary supervised training that unbag would replace: the loss and its gradient."""
    leaf = logits.detach().requires_grad_()
    cross_entropy(leaf, labels).backward()
    assert leaf.grad is not None
    return leaf.grad


def enumerate_counts(logits: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Sum over all distinct label vectors with the given counts, group by group, with index tables that are made once.

    ``logits`` are (groups, members, classes), ``counts`` (groups, classes).
    """
    log_probs = logits.log_softmax(-1)
    log_likelihood, posterior = [], torch.zeros_like(log_probs)
    member = torch.arange(logits.shape[1])
    for own, count, shares in zip(log_probs, counts.tolist(), posterior, strict=True):
        labels = _distinct_vectors(tuple(count))  # (vectors, members)
        scores = own[member, labels].sum(1)
        log_likelihood.append(scores.logsumexp(0))
        shares.scatter_add_(1, labels.t(), scores.softmax(0).expand(logits.shape[1], -1))
    return torch.stack(log_likelihood), posterior


def enumerate_counts_in_batches(logits: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Do the same with groups side by side that have the same counts up to the names of the classes."""
    log_probs = logits.log_softmax(-1)
    ordered, classes = counts.sort(dim=1, descending=True)
    log_likelihood = log_probs.new_empty(len(logits))
    posterior = torch.zeros_like(log_probs)
    kinds, kind_of_group = ordered.unique(dim=0, return_inverse=True)
    for number, kind in enumerate(kinds.tolist()):
        which = (kind_of_group == number).nonzero().flatten()
        vectors = _distinct_vectors(tuple(kind))  # (vectors, members)
        labels = classes[which][:, vectors]  # (groups, vectors, members)
        member = torch.arange(logits.shape[1]).expand_as(labels)
        scores = log_probs[which[:, None, None], member, labels].sum(2)  # (groups, vectors)
        log_likelihood[which] = scores.logsumexp(1)
        weights = scores.softmax(1)[:, None, :].expand(-1, logits.shape[1], -1)  # (groups, members, vectors)
        posterior[which] = torch.zeros_like(log_probs[which]).scatter_add_(2, labels.transpose(1, 2), weights)
    return log_likelihood, posterior


@cache
def _distinct_vectors(counts: tuple[int, ...]) -> Tensor:
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    return torch.tensor(sorted(set(permutations(labels))))


def recursion_with_autograd(odds: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Count the positives of each group member by member in log space, and differentiate for the posterior.

    ``odds`` are log-odds of positive, (groups, members), and ``z`` numbers of positives, (groups,).
    """
    yes = logsigmoid(odds).detach().requires_grad_()
    no = logsigmoid(-odds)
    impossible = torch.finfo(odds.dtype).min / 4
    first = odds.new_full((len(odds), 1), impossible)
    counted = odds.new_full((len(odds), odds.shape[1] + 1), impossible)
    counted[:, 0] = 0
    for member in range(odds.shape[1]):
        one_more = torch.cat([first, counted[:, :-1]], 1) + yes[:, member : member + 1]
        counted = torch.logaddexp(counted + no[:, member : member + 1], one_more)
    log_likelihood = counted.gather(1, z[:, None]).squeeze(1)
    (posterior,) = torch.autograd.grad(log_likelihood.sum(), yes)
    return log_likelihood.detach(), posterior
