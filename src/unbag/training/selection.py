"""Which epoch and which replica are best: scores of held-out groups, or of labelled rows where there are some."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from unbag.training.observations import Observations

Predict = Callable[[Tensor], Tensor]
"""From rows to the logits of each replica: (n, ...) to (replicas, n, k)."""
Score = Callable[[Predict], Tensor]
"""From predictions to one number per replica, larger is better: (replicas,); of several criteria, one row for each."""


def held_out_likelihood(X: Tensor, observations: Sequence[Observations]) -> Score:
    """Score by the mean log-likelihood of groups that were not trained on, which needs no label of any instance.

    Sets of observations count by their weights.
    """
    rows, members = torch.cat([one.groups.members for one in observations]).unique(return_inverse=True)
    inputs = take_rows(X, rows)
    members_of_sets = members.split([len(one.groups.members) for one in observations])
    weights = sum(one.weight for one in observations)

    def score(predict: Predict) -> Tensor:
        logits = predict(inputs)
        total = torch.zeros(len(logits), dtype=torch.float64, device=logits.device)
        for one, members in zip(observations, members_of_sets, strict=True):
            for replica, own in enumerate(logits):
                of_members = own[members].float()
                if bool(of_members.log_softmax(-1).isnan().any()):  # a replica that diverged does not end the others
                    total[replica] = float("nan")
                    continue
                found = one.aggregate.checked_evidence(of_members, one.groups.segments, one.checked).log_likelihood
                total[replica] += one.weight * found.double().mean()
        return total / weights

    return score


def take_rows(X: Tensor, rows: Tensor) -> Tensor:
    """Return rows of a table by their numbers, which are sorted and distinct; the table itself where these are all."""
    return X if len(rows) == len(X) else X[rows]


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
