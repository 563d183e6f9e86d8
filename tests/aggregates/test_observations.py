"""Sets of observations: what they refuse, and how they are split."""

import re

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from training_problems import bags, table

from unbag import Groups, LabelProportions, PairwiseSimilarity
from unbag.training import Observations

PAIRS = Groups.from_tuples([[0, 1], [2, 3], [1, 2]])


def named_bags(sizes):
    """Return counts of groups that can be told apart: every row has a class of its own."""
    n = sum(sizes)
    groups = Groups.from_ids([f"group {group}" for group, size in enumerate(sizes) for _ in range(size)])
    return Observations(LabelProportions(), groups, LabelProportions().observe(torch.arange(n), groups, n), n)


# ------------------------------------------------------------------------------------------------------ splits


@given(st.lists(st.integers(1, 5), min_size=2, max_size=12), st.floats(0.05, 0.95), st.integers(0, 99))
def test_a_split_never_cuts_a_group(sizes, share, seed):
    assume(0 < round(share * len(sizes)) < len(sizes))
    seen = named_bags(sizes)
    sides = seen.split(share, torch.Generator().manual_seed(seed))
    assert len(sides[1].groups) == round(share * len(sizes))
    found = {}
    for side in sides:
        for group in range(len(side.groups)):
            own = side.groups.take(torch.tensor([group]))
            assert own.ids[0] not in found
            found[own.ids[0]] = own.members.tolist()
            assert side.z[group].nonzero().flatten().tolist() == sorted(own.members.tolist())
            assert torch.equal(side.checked[group], side.z[group])
    for group, name in enumerate(seen.groups.ids):
        assert found[name] == seen.groups.take(torch.tensor([group])).members.tolist()


def test_a_split_follows_from_its_random_numbers():
    _, labels = table(200, 2)
    seen = bags(labels)
    splits = [seen.split(0.3, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    held_out = [held.groups.members.tolist() for _, held in splits]
    assert held_out[0] == held_out[1] != held_out[2]
    for side in splits[0]:  # the order of the groups is kept
        assert side.groups.members.tolist() == sorted(side.groups.members.tolist())


@pytest.mark.parametrize("share", [0, 1, -0.2, 1.5, float("nan")])
def test_impossible_shares_are_refused(share):
    with pytest.raises(ValueError, match=re.escape(f"share must be a number between 0 and 1, got {share}")):
        Observations(PairwiseSimilarity(), PAIRS, [1, 0, 1], 2).split(share, torch.Generator())


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_sides_without_groups_are_refused(share):
    with pytest.raises(
        ValueError, match=f"a share of {share} of 3 groups leaves one side empty; use more groups or another share"
    ):
        Observations(PairwiseSimilarity(), PAIRS, [1, 0, 1], 2).split(share, torch.Generator())


# ------------------------------------------------------------------------------------------------------- parts


@pytest.mark.parametrize("which", [[2, 0], [True, False, True]])
def test_taking_groups_takes_what_was_seen_of_them(which):
    seen = Observations(PairwiseSimilarity(), PAIRS, [1, 0, 0], 2)
    taken = seen.take(torch.tensor(which))
    order = [2, 0] if which == [2, 0] else [0, 2]
    assert taken.groups.to_tuples().tolist() == [PAIRS.to_tuples()[group].tolist() for group in order]
    assert taken.z.tolist() == [[1, 0, 0][group] for group in order]


def test_proportions_stay_proportions_of_their_groups():
    seen = Observations(LabelProportions(), Groups.from_sizes([2, 4]), [[0.5, 0.5], [0.25, 0.75]], 2)
    assert seen.checked.tolist() == [[1, 1], [1, 3]]
    assert seen.take(torch.tensor([1])).checked.tolist() == [[1, 3]]


# --------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize("weight", [0, -1.0, float("nan"), float("inf"), "2", None])
def test_impossible_weights_are_refused(weight):
    with pytest.raises(ValueError, match=re.escape(f"weight must be a positive number, got {weight!r}")):
        Observations(PairwiseSimilarity(), PAIRS, [1, 0, 1], 2, weight)
