"""Steps of many rows, run part by part: the same as at once, with few rows at a time."""

from functools import partial

import pytest
import torch
from torch import nn
from training_problems import assert_close, bags, drawn, network, observe, table

from unbag import FromFold, Groups
from unbag.training import Limits, Observations, Settings, train

SMALL = Limits(max_rows=5, part_rows=5)
SETTINGS = Settings(epochs=3, warm_up=1, remember_from=2, batch_size=4, learning_rate=0.01)
SIZES = [7, 3, 9, 1, 8, 12]
KINDS = {
    "LabelProportions": 3,
    "MultipleInstance": 2,
    "PairwiseSimilarity": 3,
    "TripletComparison": 3,
    "OrdinalRank": 3,
    "OrdinalTriplet": 3,
}


def problem(kind):
    k = KINDS[kind]
    X, labels = table(40, k)
    if kind == "MultipleInstance":
        return k, X, bags(labels)
    if kind == "LabelProportions":
        return k, X, observe(kind, labels, Groups.from_sizes(SIZES), k)
    size = 3 if "Tripl" in kind else 2
    return k, X, observe(kind, labels, drawn(40, 20, size), k)


class Watching(nn.Module):
    """Notes how many rows it is asked for while it learns."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def __deepcopy__(self, _):
        return Watching(self.seen)

    def forward(self, x):
        if self.training:
            self.seen.append(len(x))
        return x


def agree(make_model, X, sets, *, seeds=(0,), tolerance=1e-6, **how):
    """Compare training at once with training part by part; return how many rows models see at most in the latter."""
    seen = []

    def make():
        return nn.Sequential(Watching(seen), make_model())

    settings = how.pop("settings", SETTINGS)
    at_once = train(make, X, sets, settings, seeds=seeds, **how)
    seen.clear()
    in_parts = train(make, X, sets, settings, seeds=seeds, limits=SMALL, **how)
    for one, other in zip(at_once.models, in_parts.models, strict=True):
        assert_close(one, other, tolerance)
    for entry, other in zip(at_once.history, in_parts.history, strict=True):
        assert entry["loss"] == pytest.approx(other["loss"], abs=1e-5)
    return max(seen) * len(seeds)


@pytest.mark.parametrize("seeds", [[0], [0, 1]])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_observation(kind, seeds):
    k, X, seen = problem(kind)
    assert agree(partial(network, k), X, [seen], seeds=seeds) <= 5


def test_folds_objectives_losses_and_several_sets():
    X, labels = table(40, 3)
    largest = FromFold(0, max, lambda state: state)
    groups = Groups.from_sizes(SIZES)
    fold = Observations(largest, groups, largest.observe(labels, groups, 3), 3, weight=0.5)
    k, X, counts = problem("LabelProportions")
    settings = Settings(epochs=2, loss="mae", batch_size=4, learning_rate=0.01)
    assert agree(partial(network, k), X, [counts, fold], settings=settings) <= 5

    def squares(outputs, groups, _):
        return groups.sum(outputs.square().sum(1))

    assert agree(partial(network, k), X, [counts], objective=squares) <= 5


@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_dropout_draws_the_same_in_both_passes(seeds):
    """Parts draw other numbers than a whole; so compare with gradients of the very masks that the outputs had."""
    k, X, seen = problem("LabelProportions")
    masks = []

    class Noted(nn.Dropout):
        def forward(self, x):
            noted = super().forward(torch.ones_like(x))
            if self.training:
                masks.append(noted.detach())
            return x * noted

    settings = Settings(epochs=1, batch_size=100)
    train(partial(network, k, Noted), X, [seen], settings, seeds=seeds, limits=SMALL)
    first, second = masks[: len(masks) // 2], masks[len(masks) // 2 :]
    assert len(masks) >= 2 * 40 // 5
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))
    assert not torch.equal(first[0][:2], first[1][:2])
    masks.clear()
    train(partial(network, k, Noted), X, [seen], Settings(epochs=2, batch_size=100), seeds=seeds, limits=SMALL)
    of_second_epoch = masks[len(masks) // 2 :]
    assert not torch.equal(of_second_epoch[0], first[0])


def test_buffers_change_once_a_step():
    class Counting(nn.Module):
        """Counts its forward passes, and adds that to what it returns."""

        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            if self.training:
                self.count += 1
            return x + self.count

    X, labels = table(40, 3)
    seen = observe("LabelProportions", labels, Groups.from_sizes([20, 20]), 3)
    trained = train(partial(network, 3, Counting), X, [seen], Settings(epochs=3), limits=SMALL)
    assert trained.models[0][1].count == 3 * 40 // 5


def test_batch_norm_sees_all_rows_at_once():
    k, X, seen = problem("LabelProportions")
    normed = partial(network, k, partial(nn.BatchNorm1d, 6))
    assert agree(normed, X, [seen], tolerance=0) > 5
