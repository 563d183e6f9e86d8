"""One fit of the table of published counts: rows, groups, what is published of them, learning, and judging."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag import Groups, LabelProportions, PublishedCounts, published
from unbag.noise import Laplace
from unbag.published import HIGH, LOW, estimate
from unbag.training import Observations, fit_scaling
from unbag_experiments.baselines.mean_proportion import METHOD as MEAN_PROPORTION
from unbag_experiments.fits.cells import measure
from unbag_experiments.fits.grouping import count, group, split
from unbag_experiments.fits.sets import Data
from unbag_experiments.published.plan import SENSITIVITY, Cell

ROWS = 4096
"""Training rows, at most."""
TEST_SHARE, MAX_DRAWN = 0.25, 5_120
"""Share of the rows for the test, and rows at most of which the training rows are the first of a permutation."""
FOLDS = 3
PENALTIES = (1000.0, 100.0, 10.0, 1.0)
"""Of squared weights of standardised columns, beside a sum over groups."""
OPTIMISER: dict[str, Any] = {
    "max_iter": 60,
    "history_size": 20,
    "line_search_fn": "strong_wolfe",
    "tolerance_grad": 1e-3,
    "tolerance_change": 1e-5,
}

Loss = Callable[[Observations, Tensor], Tensor]
"""From observations and the logits of all rows to one value per group."""


def run(cell: Cell, data: Data) -> dict[str, Any]:
    """Run a cell, and return what was measured."""
    start = time.monotonic()
    labels = data.y % 2 if data.n_classes == 10 else data.y
    n_training = min(len(labels) - round(TEST_SHARE * len(labels)), MAX_DRAWN)
    train_rows, test_rows = split(labels, cell.seed, n_training)
    train_rows = np.random.default_rng(cell.seed).permutation(train_rows)[:ROWS]
    X, y, k = data.X[train_rows], labels[train_rows], int(labels.max()) + 1
    ids = group(X, cell.size, cell.grouping, cell.seed)
    groups = Groups.from_ids(torch.from_numpy(ids))
    z = publish(torch.from_numpy(count(ids, y, k)), cell.published, cell.seed)
    scaling = fit_scaling(torch.from_numpy(X))
    rows, new_rows = (scaling(torch.from_numpy(one)).double() for one in (X, data.X[test_rows]))
    probs = predict(new_rows, learn(cell.method, rows, groups, z, cell.seed)).softmax(-1).numpy()
    return {
        "rows": {"train": len(X), "test": len(test_rows)},
        "groups": len(groups),
        **measure(probs, labels[test_rows]),
        "seconds": round(time.monotonic() - start, 2),
    }


def publish(counts: Tensor, how: str, seed: int = 0) -> Tensor:
    """Return statements of exact counts, (groups, classes), published in one of the ways of the plan.

    Where a single count of a group is suppressed, the least of the others is too: the size would give it away.

    Examples
    --------
    >>> publish(torch.tensor([[3, 13]]), "suppressed below 5")[..., :2].tolist()
    [[[0.0, 4.0], [0.0, inf]]]
    """
    if how == "exact":
        return published.exact(counts)
    if how == "rounded to 5":
        return published.rounded((counts / 5).round() * 5, to=5)
    if how == "suppressed below 5":
        few = counts < 5
        z = torch.where(few[..., None], published.between(0, 4), published.exact(counts))
        alone = (few.sum(1) == 1).nonzero().flatten()
        least_other = counts.masked_fill(few, counts.sum()).argmin(1)
        z[alone, least_other[alone]] = published.unknown()
        return z
    noise = Laplace.from_epsilon(float(how.removeprefix("epsilon ")), SENSITIVITY)
    return published.noisy(counts + noise.sample(tuple(counts.shape), torch.Generator().manual_seed(seed)), noise)


def repair(z: Tensor, sizes: Tensor) -> Tensor:
    """Return the possible counts that are nearest to checked statements, in squares: (groups, classes).

    The cost of one more of a class grows with its count, so that adding where it costs least ends at the nearest.

    Examples
    --------
    >>> z = PublishedCounts().check(published.noisy([[-2.0, 6.0]], Laplace(1.0)), Groups.from_sizes([5]), n_classes=2)
    >>> repair(z, torch.tensor([5]))
    tensor([[0, 5]])
    """
    wanted, counts = estimate(z), z[..., LOW].clone()
    for _ in range(int(sizes.max())):
        cost = (counts + 1 - wanted).square() - (counts - wanted).square()
        cheapest = cost.masked_fill(counts >= z[..., HIGH], float("inf")).argmin(1, keepdim=True)
        counts.scatter_add_(1, cheapest, (counts.sum(1, keepdim=True) < sizes[:, None]).double())
    return counts.long()


def nearest_shares(z: Tensor, sizes: Tensor) -> Tensor:
    """Return the shares of classes, at least 0 and one together, that are nearest to checked statements, in squares."""
    wanted = estimate(z) / sizes[:, None]
    ordered = wanted.sort(1, descending=True).values
    excess = (ordered.cumsum(1) - 1) / torch.arange(1, z.shape[1] + 1).to(z)  # of each, if the first ones are positive
    n_positive = (ordered > excess).sum(1, keepdim=True)
    return (wanted - excess.gather(1, n_positive - 1)).clamp_min(0.0)


def learn(method: str, X: Tensor, groups: Groups, z: Tensor, seed: int) -> Tensor:
    """Return the weights of a linear model, (columns + 1, classes), the last row of them for the bias.

    Minimised is a negative log-likelihood, of what was published or of repaired counts, or the match of shares, and a
    penalty times half the squares of the weights, by L-BFGS until nothing changes. Each method chooses its penalty by
    what it minimises, on groups that were left out; no label is looked at.
    """
    seen = Observations(PublishedCounts(), groups, z, z.shape[1])
    if method == "repair":
        seen = Observations(LabelProportions(), groups, repair(seen.checked, groups.sizes), z.shape[1])
    loss = divergence if method == "match" else negative_log_likelihood
    fold_of_group = torch.randperm(len(groups), generator=torch.Generator().manual_seed(seed)) % FOLDS
    losses = torch.zeros(len(PENALTIES), dtype=torch.float64)
    for fold in range(FOLDS):
        left_out = fold_of_group == fold
        rest, judged = seen.take(~left_out), seen.take(left_out)
        losses += torch.stack([loss(judged, predict(X, weights)).sum() for weights in _path(X, rest, loss, PENALTIES)])
    best = int(losses.argmin())
    return _path(X, seen, loss, PENALTIES[: best + 1])[-1]


def _path(X: Tensor, seen: Observations, loss: Loss, penalties: Sequence[float]) -> list[Tensor]:
    """Return the best weights under each penalty, from the strongest on; each begins where the one before ended."""
    weights = torch.zeros(X.shape[1] + 1, seen.n_classes, dtype=X.dtype, requires_grad=True)
    path = []
    for penalty in penalties:
        optimiser = torch.optim.LBFGS([weights], **OPTIMISER)

        def penalised(penalty: float = penalty, optimiser: torch.optim.LBFGS = optimiser) -> float:
            optimiser.zero_grad()
            value = loss(seen, predict(X, weights)).sum() + penalty / 2 * weights[:-1].square().sum()
            value.backward()
            return value.item()

        optimiser.step(penalised)
        path.append(weights.detach().clone())
    return path


def predict(X: Tensor, weights: Tensor) -> Tensor:
    """Return the logits of rows."""
    return X @ weights[:-1] + weights[-1]


def negative_log_likelihood(seen: Observations, logits: Tensor) -> Tensor:
    """Return that of each group."""
    return -seen.evidence(logits).log_likelihood


def divergence(seen: Observations, logits: Tensor) -> Tensor:
    """Return the divergence of the mean prediction of each group from its shares, times its size.

    Where counts are known, that is the negative log-likelihood of the shares, if members were drawn from their mean.
    """
    segments = seen.groups.segments
    counts = nearest_shares(seen.checked, segments.sizes) * segments.sizes[:, None]
    return segments.sizes * MEAN_PROPORTION.objective(logits[seen.groups.members], segments, counts)
