"""Small problems that the tests of the loop share."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import unbag
from unbag import Groups
from unbag.training import Observations, Trained

COLUMNS = 4


def table(n: int, k: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return rows, and labels that follow from them."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, COLUMNS, generator=generator)
    return X, (X @ torch.randn(COLUMNS, k, generator=generator)).argmax(1)


def observe(name: str, labels: Tensor, groups: Groups, k: int, weight: float = 1.0) -> Observations:
    """Return what an aggregate sees of groups with these labels."""
    aggregate = getattr(unbag, name)()
    return Observations(aggregate, groups, aggregate.observe(labels, groups, k), k, weight)


def drawn(n_rows: int, n_groups: int, size: int, seed: int = 0) -> Groups:
    """Return groups of equal size, drawn with replacement: rows are shared between groups, and some are in none."""
    generator = torch.Generator().manual_seed(seed)
    return Groups.from_tuples(torch.randint(n_rows, (n_groups, size), generator=generator), n_rows=n_rows)


def bags(labels: Tensor, seed: int = 0) -> Observations:
    """Return bags of one to five consecutive rows, and whether they hold any of class 1."""
    generator = torch.Generator().manual_seed(seed)
    sizes: list[int] = []
    while sum(sizes) < len(labels):
        sizes.append(min(int(torch.randint(1, 6, (), generator=generator)), len(labels) - sum(sizes)))
    return observe("MultipleInstance", labels, Groups.from_sizes(sizes), 2)


def network(k: int, *extra: Callable[[], nn.Module]) -> nn.Module:
    """Return a small network, with other parts after its hidden layer; smooth, so that small differences stay small."""
    return nn.Sequential(nn.Linear(COLUMNS, 6), *(make() for make in extra), nn.Tanh(), nn.Linear(6, k))


def pairs_problem(k: int = 3, n_groups: int = 20) -> tuple[Tensor, Observations]:
    """Return rows, and pairs of them that share rows."""
    X, labels = table(15, k)
    return X, observe("PairwiseSimilarity", labels, drawn(15, n_groups, 2), k)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and buffers of a model."""
    return {name: tensor.detach() for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def assert_close(model: nn.Module, other: nn.Module, tolerance: float = 1e-5) -> None:
    """Compare all weights."""
    torch.testing.assert_close(weights_of(model), weights_of(other), rtol=0, atol=tolerance)


def assert_identical(run: Trained, other: Trained) -> None:
    """Compare all that two runs leave behind, to the last bit; only the time they took may differ."""
    for model, same in zip(run.models, other.models, strict=True):
        mine, theirs = weights_of(model), weights_of(same)
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert without_seconds(run) == without_seconds(other)
    assert run.best_epoch == other.best_epoch
    assert run.best_score == other.best_score


def without_seconds(run: Trained) -> list[dict[str, Any]]:
    """Return the history without what no two runs share."""
    return [{name: value for name, value in entry.items() if name != "seconds"} for entry in run.history]
