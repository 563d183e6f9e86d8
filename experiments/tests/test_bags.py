"""Bags, augmented as in the paper and honestly."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unbag_experiments.bags import Bags, copy_bags, prepare_bags, split_bags
from unbag_experiments.datasets import Dataset
from unbag_experiments.sampling import make_tasks

SIZES = np.array([1, 3, 2, 5] * 10)
PROTOCOLS = ("paper", "copies_together", "ten_fold")


def bags(name="musk1"):
    rng = np.random.default_rng(0)
    X = rng.normal(3, 20, (SIZES.sum(), 3)).astype(np.float32)
    X[:, 2] = 7
    return Dataset(
        name=name,
        X=X,
        y=np.arange(len(SIZES)) % 2,
        classes=("no", "yes"),
        bags=np.repeat(np.arange(len(SIZES)), SIZES),
        n_train=None,
        source="",
        licence="",
    )


def naive(made, bag):
    """Return the rows of a bag, by counting."""
    start = sum(made.sizes[:bag])
    return made.X[start : start + made.sizes[bag]]


@pytest.mark.parametrize(("name", "times"), [("musk1", 10), ("musk2", 10), ("fox", 5)])
@pytest.mark.parametrize("protocol", ["paper", "copies_together"])
def test_there_are_as_many_bags_as_in_the_paper(name, times, protocol):
    made = prepare_bags(bags(name), protocol)
    assert len(made.y) == len(made.sizes) == len(made.origins) == times * len(SIZES)
    assert len(made.X) == made.sizes.sum()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_originals_are_kept_and_copies_are_close_to_theirs(protocol):
    data = bags()
    made = prepare_bags(data, protocol)
    assert np.array_equal(made.X[: len(data.X)], data.X)
    assert np.array_equal(made.y, data.y[made.origins])
    moved = []
    for bag, origin in enumerate(made.origins):
        assert made.sizes[bag] == SIZES[origin]
        moved.append((naive(made, bag) - data.X[data.bags == origin]) / data.X.std(0).clip(1e-9))
    copies = np.concatenate([one for bag, one in enumerate(moved) if bag >= len(SIZES)] or [np.zeros((0, 3))])
    if protocol != "ten_fold":
        assert np.allclose(copies[:, :2].std(0), 0.01, rtol=0.1)
        assert (copies[:, 2] == 0).all()  # a constant column stays constant
    else:
        assert len(copies) == 0


def test_every_protocol_makes_the_same_bags_for_all_trials():
    assert np.array_equal(prepare_bags(bags(), "paper").X, prepare_bags(bags(), "paper").X)


def test_noise_can_be_set():
    data = bags()
    made = prepare_bags(data, "copies_together", noise=0.5)
    first = made.X[len(data.X) : 2 * len(data.X)] - data.X
    assert np.allclose((first / data.X.std(0).clip(1e-9))[:, :2].std(0), 0.5, rtol=0.2)


def test_rows_of_bags_come_one_bag_after_the_other():
    few = Bags(np.zeros((6, 1)), np.array([1, 3, 2]), np.zeros(3), np.arange(3))
    assert few.rows(np.array([2, 0, 1])).tolist() == [4, 5, 0, 1, 2, 3]
    assert copy_bags(few, np.array([0, 1, 2, 1]), 0.1, np.random.default_rng(0)).sizes.tolist() == [1, 3, 2, 3]


def test_the_papers_split_has_copies_on_both_sides_and_the_honest_ones_have_not():
    for protocol in PROTOCOLS:
        made = prepare_bags(bags(), protocol)
        for seed in range(3):
            split = split_bags(made, protocol, seed)
            shared = set(made.origins[split.train]) & set(made.origins[split.test])
            assert bool(shared) == (protocol == "paper")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tasks_of_bags(protocol):
    data = bags()
    made = prepare_bags(data, protocol)
    tasks = make_tasks(data, "multiple_instance", protocol, seeds=[0, 1, 2], n_groups=None, device=torch.device("cpu"))
    assert len({len(task.observations.groups) for task in tasks}) == 1  # so that they can be trained at once
    for seed, task in enumerate(tasks):
        split = split_bags(made, protocol, seed)
        groups = task.observations.groups
        for place, bag in enumerate(split.train):
            members = groups.members[groups.offsets[place] : groups.offsets[place + 1]]
            assert np.array_equal(task.X[members], naive(made, bag))
            assert bool(task.observations.checked[place]) == bool(made.y[bag])
        for side, judged in ((split.validation, task.validation), (split.test, task.test)):
            assert judged.truth.tolist() == made.y[side].tolist()
            for place, bag in enumerate(side):
                rows = judged.rows[judged.bags.offsets[place] : judged.bags.offsets[place + 1]]
                assert np.array_equal(task.X[rows], naive(made, bag))
        rows = [set(one.tolist()) for one in (task.train_rows, task.validation.rows, task.test.rows)]
        assert set(groups.members.tolist()) == rows[0]
        assert not rows[0] & rows[1]
        assert not rows[0] & rows[2]
        assert not rows[1] & rows[2]
        assert task.labels is None
        assert not task.permuted
