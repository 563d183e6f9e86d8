"""Folds: which groups are held out together, and which fold predicts each membership."""

import numpy as np
import pytest
import torch

from unbag import Groups, LabelProportions, PairwiseSimilarity, TripletComparison
from unbag.aggregates.class_shares import ClassShares
from unbag.data.labels import Categorical
from unbag.learners import Problem
from unbag.training import Observations


def make_problem(*sets, n_rows=60, subjects=None):
    labels = np.random.default_rng(0).integers(0, 2, n_rows)
    observed = [
        s if isinstance(s, Observations) else Observations(kind := s[0], s[1], kind.observe(labels, s[1], 2), 2)
        for s in sets
    ]
    return Problem.create(torch.arange(float(n_rows))[:, None], observed, Categorical(2), subjects)


def counts(sizes):
    return LabelProportions(), Groups.from_sizes(sizes)


def pairs(n, n_rows=60):
    rng = np.random.default_rng(1)
    return PairwiseSimilarity(), Groups.from_tuples([rng.choice(n_rows, 2, replace=False) for _ in range(n)])


def predicted(problem, splits):
    """Return how many folds predict each membership, and check that the rows are the right ones."""
    n = torch.zeros(len(problem.members), dtype=torch.int64)
    for split in splits:
        n[split.members] += 1
        assert torch.equal(split.held_out.X[split.rows], problem.X[problem.members[split.members]])
    return n


@pytest.mark.parametrize(
    ("sets", "n_folds"),
    [
        ([counts([5] * 12)], 4),
        ([counts([30, 10, 20])], 3),
        ([pairs(80)], 8),
        ([pairs(80), counts([5] * 12)], 4),
        ([counts([1] * 60)], 4),
    ],
)
def test_each_membership_is_predicted_by_a_model_that_did_not_see_its_group(sets, n_folds):
    problem = make_problem(*sets)
    splits = problem.split(n_folds, 0)
    assert len(splits) == n_folds
    assert (predicted(problem, splits) == 1).all()
    for split in splits:
        assert len(set(split.train.rows.tolist())) == len(split.train.rows)
        assert split.train.n_groups + split.held_out.n_groups == problem.n_groups


def test_rows_of_pairs_are_held_out_with_all_their_pairs():
    problem = make_problem(pairs(80))
    for split in problem.split(10, 0):
        held_out = problem.rows[problem.members[split.members]]
        assert not set(held_out.tolist()) & set(split.train.rows.tolist())
        assert split.train.n_groups > 0.6 * problem.n_groups


def test_crossed_groups_are_held_out_by_group_where_rows_would_leave_too_few():
    rng = np.random.default_rng(2)
    crossed = [(LabelProportions(), Groups.from_ids(rng.integers(0, 6, 60))) for _ in range(2)]
    problem = make_problem(*crossed)
    splits = problem.split(3, 0)
    assert (predicted(problem, splits) == 1).all()
    assert [split.train.n_groups for split in splits] == [8, 8, 8]


def test_rows_of_a_subject_are_held_out_together():
    subjects = torch.arange(60) // 10
    problem = make_problem(counts([5] * 12), subjects=subjects)
    for split in problem.split(3, 0):
        assert not set(subjects[split.train.rows].tolist()) & set(subjects[split.held_out.rows].tolist())
        assert split.held_out.subjects.max() == len(split.held_out.subjects.unique()) - 1


def test_known_class_shares_are_never_held_out():
    shares = ClassShares(torch.tensor([0.4, 0.6]), 0.0).as_observations(60, 12, 0)
    problem = make_problem(counts([5] * 12), shares)
    splits = problem.split(4, 0)
    of_counts, of_shares = problem.per_set(predicted(problem, splits))
    assert (of_counts == 1).all()
    assert not of_shares.any()
    assert all(len(split.train.sets) == 2 and len(split.held_out.sets) == 1 for split in splits)


def test_unrolled_groups_are_those_with_all_their_memberships():
    problem = make_problem(pairs(20), counts([5] * 12))
    flags = torch.ones(len(problem.members), dtype=torch.bool)
    flags[[3, 45]] = False  # of the second pair and of the second group
    judged = problem.unroll(flags)
    assert [len(s.groups) for s in judged.sets] == [19, 11]
    outputs = torch.randn(len(problem.rows), 2, generator=torch.Generator().manual_seed(0))
    kept = torch.ones(32, dtype=torch.bool).index_fill_(0, torch.tensor([1, 21]), False)
    torch.testing.assert_close(
        judged.log_likelihood(outputs[None, problem.members[judged.rows]])[0],
        problem.log_likelihood(outputs[None])[0, kept],
    )
    assert problem.unroll(torch.zeros_like(flags)) is None


def test_rows_of_pairs_and_groups_of_triplets_are_held_out():
    """Of triplets in eight folds, those with a held-out row would be a third."""
    rng = np.random.default_rng(0)
    for kind, size, low, high in ((PairwiseSimilarity(), 2, 0.2, 0.3), (TripletComparison(), 3, 0.1, 0.15)):
        groups = Groups.from_tuples([rng.choice(60, size, replace=False) for _ in range(900)])
        folds = make_problem((kind, groups)).assign_folds(8, 0)
        shares = [float(flags[0].double().mean()) for flags in folds.groups]
        assert low < min(shares) <= max(shares) < high


def test_rows_that_most_groups_connect_are_no_fold():
    chain = [[row, row + 1] for row in range(49)] + [[row, row + 1] for row in range(50, 60, 2)]
    problem = make_problem((PairwiseSimilarity(), Groups.from_tuples(chain)))
    assert torch.bincount(problem.assign_folds(4, 0).members).max() < 50
