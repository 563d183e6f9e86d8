"""Which epoch and which replica are best: scores of held-out groups, or of labelled rows where there are some."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from unbag._utils.parts import join
from unbag.aggregates.observations import Observations
from unbag.data.row_source import Rows, gather_rows

ROWS_AT_ONCE = 65_536

SHARPENED = (1.0, 1.4)
"""By which logits are multiplied: most of what is still learning needs a temperature of 0.7 to 1."""

Predict = Callable[..., Tensor]
"""From rows to the logits of each replica: (n, ...) or, with ``own=True``, (replicas, n, ...) to (replicas, n, k)."""
Score = Callable[[Predict], Tensor]
"""From predictions to one number per replica, larger is better: (replicas,); of several criteria, one row for each."""


def held_out_likelihood(X: Rows, observations: Sequence[Observations]) -> Score:
    """Score by the mean log-likelihood of groups that were not trained on, which needs no label of any instance.

    Sets of observations count by their weights, and so do the groups of a set.
    """
    observations = [one.counting() for one in observations]
    rows, members = torch.cat([one.groups.members for one in observations]).unique(return_inverse=True)
    inputs = take_rows(X, rows) if isinstance(X, Tensor) else None
    members_of_sets = members.split([len(one.groups.members) for one in observations])

    def score(predict: Predict) -> Tensor:
        if inputs is None:  # rows on disk are read again each time
            logits = join((predict(gather_rows(X, part)) for part in rows.split(ROWS_AT_ONCE)), len(rows), 1)
        else:
            logits = predict(inputs)
        scores = [_mean_log_likelihood(own, observations, members_of_sets) for own in logits]
        return torch.tensor(scores, dtype=torch.float64, device=logits.device)

    return score


def out_of_fold_likelihood(X: Rows, held_out: Sequence[Sequence[Observations]]) -> Score:
    """Score each replica by the mean log-likelihood of groups that it was not trained on, its own ones.

    What is learned over folds gets a temperature in the end: a model whose logits only have to grow is as good already.
    So the score is the better one of its logits as they are and sharpened.

    Parameters
    ----------
    X
        All rows.
    held_out
        For each replica, one set or several.
    """
    rows = [torch.cat([one.groups.members for one in own]).unique() for own in held_out]
    # Replicas run on as many rows each; those that stand in for missing ones are not looked at.
    inputs = gather_rows(X, nn.utils.rnn.pad_sequence(rows, batch_first=True))
    members = [
        [torch.searchsorted(own, one.groups.members) for one in sets] for own, sets in zip(rows, held_out, strict=True)
    ]

    def score(predict: Predict) -> Tensor:
        logits = predict(inputs, own=True)
        scores = [
            [
                _mean_log_likelihood(factor * own, sets, places)
                for own, sets, places in zip(logits, held_out, members, strict=True)
            ]
            for factor in SHARPENED
        ]
        return torch.tensor(scores, dtype=torch.float64, device=logits.device).amax(0)

    return score


def _mean_log_likelihood(logits: Tensor, sets: Sequence[Observations], members: Sequence[Tensor]) -> float:
    """Return the mean log-likelihood per group; sets count by their weights, and a replica that diverged has NaN."""
    total = 0.0
    for one, own in zip(sets, members, strict=True):
        of_members = logits[own].float()
        if bool(of_members.log_softmax(-1).isnan().any()):  # a replica that diverged does not end the others
            return math.nan
        log_likelihood = one.aggregate.checked_evidence(of_members, one.groups.segments, one.checked).log_likelihood
        total += one.weight * float(one.mean(log_likelihood))
    return total / sum(one.weight for one in sets)


def take_rows(X: Rows, rows: Tensor) -> Tensor:
    """Return rows of a table by their numbers, which are sorted and distinct; the table itself where these are all."""
    return X if isinstance(X, Tensor) and len(rows) == len(X) else gather_rows(X, rows)


def labelled_accuracy(X: Tensor, y: Tensor, *, permuted: bool = False) -> Score:
    """Score by the share of labelled rows that are right, up to the names of the classes where these are unknown."""

    def score(predict: Predict) -> Tensor:
        guessed = predict(X).argmax(-1)  # (replicas, n)
        if not permuted:
            return (guessed == y).double().mean(1)
        return torch.tensor([permuted_accuracy(own, y) for own in guessed], dtype=torch.float64, device=y.device)

    return score


def permuted_accuracy(guessed: Tensor, y: Tensor) -> float:
    """Return the share of labels that are right under the best renaming of the classes.

    Examples
    --------
    >>> permuted_accuracy(torch.tensor([2, 2, 0, 1]), torch.tensor([0, 0, 1, 1]))
    0.75
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 (a tenth of a second, which a list can do without)

    k = int(max(guessed.max(), y.max())) + 1
    together = torch.bincount(guessed * k + y, minlength=k * k).view(k, k).cpu().numpy()
    rows, columns = linear_sum_assignment(-together)
    return float(together[rows, columns].sum() / len(y))
