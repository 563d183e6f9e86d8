"""Splits and groups: what is trained on, chosen by and judged on never overlaps, and the numbers are the paper's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unbag.aggregates.registry import AGGREGATES, find_aggregate, needs_arguments
from unbag_experiments import smoke
from unbag_experiments.datasets import Dataset
from unbag_experiments.ordered import OrderedTable
from unbag_experiments.ordered import load as load_ordered
from unbag_experiments.sampling import draw_groups, make_tasks, sort_groups, usual_n_groups
from unbag_experiments.splits import split_fold, split_official, split_together, split_whole

NAMES = [name for name, kind in AGGREGATES.items() if not needs_arguments(kind)]

CPU = torch.device("cpu")


def table(n=50, k=3, **changes):
    rng = np.random.default_rng(1)
    given = {
        "name": "made up",
        "X": rng.random((n, 4), np.float32),
        "y": rng.integers(0, k, n),
        "classes": tuple("abcdefghij"[:k]),
        "bags": None,
        "n_train": None,
        "source": "",
        "licence": "",
    }
    return Dataset(**{**given, **changes})


def images(n=40, n_train=30):
    return table(n, X=np.random.default_rng(2).integers(0, 256, (n, 1, 4, 4), dtype=np.uint8), n_train=n_train)


def assert_partition(sides, n):
    assert sorted(np.concatenate(sides).tolist()) == list(range(n))


@pytest.mark.parametrize(
    ("n", "sizes"),
    [
        (3175, [1905, 635, 635]),
        (5620, [3372, 1124, 1124]),
        (10992, [6594, 2199, 2199]),
        (9298, [5578, 1860, 1860]),
        (846, [507, 169, 170]),
        (920, [552, 184, 184]),
    ],
)
def test_pooled_sets_are_split_as_the_papers_table_of_data_sets_has_it(n, sizes):
    split = split_whole(n, np.random.default_rng(0))
    assert [len(side) for side in split] == sizes
    assert_partition(split, n)


@pytest.mark.parametrize(
    ("n", "n_train", "sizes"),
    [
        (70_000, 60_000, [45_000, 15_000, 10_000]),
        (60_000, 50_000, [37_500, 12_500, 10_000]),
        (99_289, 73_257, [54_942, 18_315, 26_032]),
    ],
)
def test_images_keep_their_official_test_part(n, n_train, sizes):
    split = split_official(n, n_train, np.random.default_rng(0))
    assert [len(side) for side in split] == sizes
    assert split.test.tolist() == list(range(n_train, n))
    assert_partition(split, n)


@given(
    origins=st.integers(5, 30).flatmap(
        lambda n: st.lists(st.integers(0, n - 1), max_size=40).map(lambda more: [*range(n), *more])
    )
)
def test_copies_stay_on_the_side_of_their_original(origins):
    origins = np.array(origins)
    split = split_together(origins, np.random.default_rng(0))
    assert_partition(split, len(origins))
    sides = [set(origins[side].tolist()) for side in split]
    assert not sides[0] & sides[1]
    assert not sides[0] & sides[2]
    assert not sides[1] & sides[2]


@pytest.mark.parametrize("n", [92, 102, 200, 40])
def test_folds_test_every_bag_once_and_train_on_equally_many(n):
    labels = np.random.default_rng(3).permutation(np.arange(n) % 5 < 2).astype(int)
    splits = [split_fold(labels, fold) for fold in range(10)]
    assert_partition([split.test for split in splits], n)
    assert len({len(split.train) for split in splits}) == 1
    for split in splits:
        assert_partition(split, n)
        assert abs(labels[split.test].mean() - labels.mean()) < 0.2


def test_ten_seeds_are_the_folds_of_one_cross_validation_and_the_next_ten_of_another():
    labels = np.arange(40) % 2
    for first in (0, 1000):
        tests = [split_fold(labels, seed).test for seed in range(first, first + 10)]
        assert sorted(np.concatenate(tests)) == list(range(40))
    assert not np.array_equal(split_fold(labels, 1000).test, split_fold(labels, 1010).test)
    assert not np.array_equal(split_fold(labels, 1000).test, split_fold(labels, 0).test)


def test_a_size_must_be_given_where_a_problem_leaves_it_open():
    with pytest.raises(ValueError, match="group_size must be given for label_proportions"):
        make_tasks(table(), "label_proportions", "paper", seeds=[0], device=CPU)


@pytest.mark.parametrize("problem", [name for name in NAMES if name != "multiple_instance"])
@pytest.mark.parametrize("data", [table(), images()], ids=["table", "images"])
def test_groups_hold_training_rows_and_what_is_observed_of_them_is_true(problem, data):
    for task in make_tasks(data, problem, "paper", seeds=[0, 1], n_groups=60, group_size=6, device=CPU):
        train, validation, test = (
            set(rows.tolist()) for rows in (task.train_rows, task.validation.rows, task.test.rows)
        )
        assert set(task.observations.groups.members.tolist()) <= train
        assert not train & validation
        assert not train & test
        assert not validation & test
        assert train | validation | test == set(range(len(data.X)))
        assert len(task.observations.groups) == 60
        assert task.observations.groups.uniform_size == (find_aggregate(problem).size or 6)
        seen = find_aggregate(problem).observe(torch.from_numpy(data.y), task.observations.groups, 3)
        assert torch.equal(task.observations.z, seen)
        assert torch.equal(task.validation.truth, torch.from_numpy(data.y)[task.validation.rows])
        assert torch.equal(task.test.truth, torch.from_numpy(data.y)[task.test.rows])
        assert task.validation.bags is None
        held_out = task.held_out
        assert set(held_out.groups.members.tolist()) <= validation
        assert len(held_out.groups) == round(60 * len(validation) / len(train))
        assert held_out.groups.uniform_size == task.observations.groups.uniform_size
        seen = find_aggregate(problem).observe(torch.from_numpy(data.y), held_out.groups, 3)
        assert torch.equal(held_out.z, seen)


def test_images_are_judged_on_the_official_test_part_and_tables_are_pooled():
    (task,) = make_tasks(images(), "pairwise_similarity", "paper", seeds=[0], n_groups=5, group_size=6, device=CPU)
    assert task.test.rows.tolist() == list(range(30, 40))
    pooled = table(n_train=30)
    (task,) = make_tasks(pooled, "pairwise_similarity", "paper", seeds=[0], n_groups=5, group_size=6, device=CPU)
    assert set(task.test.rows.tolist()) & set(range(30))


def test_a_trial_is_the_same_whichever_others_are_made_and_shares_its_table():
    first, second = make_tasks(
        table(), "label_proportions", "paper", seeds=[3, 4], n_groups=None, group_size=6, device=CPU
    )
    (again,) = make_tasks(table(), "label_proportions", "paper", seeds=[4], n_groups=None, group_size=6, device=CPU)
    assert first.X is second.X
    assert torch.equal(second.observations.groups.members, again.observations.groups.members)
    assert torch.equal(second.test.rows, again.test.rows)
    assert not torch.equal(first.test.rows, second.test.rows)
    assert len(first.observations.groups) == 25


def test_all_problems_of_a_trial_have_one_split():
    tasks = [
        make_tasks(table(), problem, "paper", seeds=[0], n_groups=9, group_size=6, device=CPU)[0]
        for problem in ("pairwise_similarity", "label_proportions")
    ]
    assert torch.equal(tasks[0].test.rows, tasks[1].test.rows)


def test_numbers_of_groups_follow_the_whole_set():
    assert usual_n_groups("triplet_comparison", 846, 3) == 1692
    assert usual_n_groups("ordinal_rank", 442, 2) == 884
    assert usual_n_groups("label_proportions", 9298, 6) == 4649
    assert usual_n_groups("label_proportions", 9299, 6) == 4649
    assert usual_n_groups("label_proportions", 9298, 64) == 435


def test_members_are_drawn_one_by_one_and_with_replacement():
    drawn = draw_groups(np.array([5, 6]), 4000, 2, np.random.default_rng(0))
    shares = [np.mean((drawn == pair).all(1)) for pair in ([5, 5], [5, 6], [6, 5], [6, 6])]
    assert np.allclose(shares, 0.25, atol=0.03)


def test_only_comparisons_leave_classes_unnamed():
    unnamed = {
        problem: make_tasks(table(), problem, "paper", seeds=[0], n_groups=4, group_size=6, device=CPU)[0].permuted
        for problem in NAMES
        if problem != "multiple_instance"
    }
    assert [problem for problem, is_so in unnamed.items() if is_so] == [
        "pairwise_similarity",
        "triplet_comparison",
    ]


def test_ordered_values_are_cut_by_training_rows_alone():
    values = np.arange(100.0)
    data = OrderedTable(np.zeros((100, 1), np.float32), values, cut_into=5)
    assert np.bincount(data.labels(np.arange(100))).tolist() == [20] * 5
    few = data.labels(np.arange(10))
    assert np.bincount(few[:10]).tolist() == [2] * 5
    assert (few[10:] == 4).all()
    (task,) = make_tasks(data, "ordinal_rank", "paper", seeds=[0], n_groups=None, group_size=6, device=CPU)
    assert task.labels.tolist() == data.labels(task.train_rows.numpy()).tolist()
    assert np.bincount(task.labels[task.train_rows]).tolist() == [12] * 5
    assert len(task.observations.groups) == 200
    assert not task.permuted


def test_ordered_sets_come_with_scikit_learn():
    assert load_ordered("diabetes").X.shape == (442, 10)
    assert load_ordered("digits").labels(np.arange(3))[:3].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="diabetes, digits"):
        load_ordered("wine")


def test_sorted_groups_are_alike_and_hold_every_row_equally_often():
    rng = np.random.default_rng(0)
    X = np.stack([rng.normal(size=400), 9 * rng.normal(size=400)], 1)
    rows = rng.permutation(400)[:320]
    found = sort_groups(X, rows, 40, 16, rng)  # two passes
    assert np.array_equal(np.unique(found, return_counts=True)[1], np.full(320, 2))
    assert set(found.ravel()) == set(rows)
    spread = X[found].std(1).mean(0) / X.std(0)
    assert spread[1] < 0.85  # of the column that varies most
    assert spread[0] > 0.9
    images = rng.integers(0, 256, (50, 1, 4, 4), dtype=np.uint8)
    images[:, 0, 0, 0] = 0
    bright = sort_groups(images, np.arange(50), 5, 10, rng)
    assert images[bright].mean((2, 3, 4)).std(1).mean() < images.mean((1, 2, 3)).std()
    assert sort_groups(X, rows[:3], 2, 8, rng).shape == (2, 8)


def test_of_one_class_the_last_is_positive():
    data = smoke.load("mnist")
    (task,) = make_tasks(data, "multiple_instance", "one_class", seeds=[2000], n_groups=30, group_size=4, device=CPU)
    assert task.n_classes == 2
    assert task.labels.tolist() == (data.y == 9).astype(int).tolist()
    members = task.observations.groups.members.view(30, 4)
    assert torch.equal(task.observations.checked.bool(), (task.labels[members] == 1).any(1))
