"""What is said of observations before training, and what is not."""

import re
from math import comb, log2

import numpy as np
import pytest
import torch
from findings import kinds, the, warned
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_blobs

from unbag import (
    AggregateClassifier,
    AtLeast,
    CountOf,
    Finding,
    FromFunction,
    Groups,
    LabelProportions,
    Majority,
    MultipleInstance,
    OrdinalRank,
    OrdinalTriplet,
    PairwiseSimilarity,
    TripletComparison,
    diagnose,
    target,
)

PAIRS = Groups.from_tuples([[0, 1], [1, 2], [2, 3], [0, 3]])
TRIPLETS = Groups.from_tuples([[0, 1, 2], [1, 2, 3], [2, 3, 0], [0, 3, 1]])
BAGS = Groups.from_sizes([3, 2, 4])


def drawn_at_random(size: int, n_groups: int, n_classes: int) -> tuple[Groups, torch.Tensor]:
    groups = Groups.from_sizes([size] * n_groups)
    generator = torch.Generator().manual_seed(size)
    labels = torch.randint(n_classes, (size * n_groups,), generator=generator)
    return groups, LabelProportions().observe(labels, groups, n_classes)


# Nothing to say.


@pytest.mark.parametrize(("size", "n_groups", "n_classes"), [(1, 60, 3), (6, 60, 10), (100, 20, 2), (300, 50, 4)])
def test_nothing_is_said_of_groups_drawn_at_random(size, n_groups, n_classes):
    groups, counts = drawn_at_random(size, n_groups, n_classes)
    assert diagnose(LabelProportions(), groups, counts, n_classes) == []
    assert diagnose(LabelProportions(), groups, counts / size, n_classes) == []


@pytest.mark.parametrize(
    ("aggregate", "groups", "z"),
    [
        (MultipleInstance(), BAGS, [1, 0, 1]),
        (OrdinalRank(), PAIRS, [1, 0, 1, 1]),
        (CountOf(1), BAGS, [1, 0, 2]),
        (Majority(), BAGS, [1, 0, 1]),
        (FromFunction(lambda labels: (min(labels), max(labels))), BAGS, [[0, 1], [0, 0], [1, 1]]),
    ],
)
def test_nothing_is_said_of_varied_observations(aggregate, groups, z):
    assert diagnose(aggregate, groups, z, 2) == []


def test_a_name_is_enough_for_an_aggregate():
    groups = Groups.from_sizes([3, 2])
    assert diagnose("multiple_instance", groups, [1, 1], 2) == diagnose(MultipleInstance(), groups, [1, 1], 2)
    with pytest.raises(ValueError, match=r"aggregate must be one of .*; got 'median'"):
        diagnose("median", groups, [1, 1], 2)


# Nothing to learn.


@pytest.mark.parametrize(
    ("aggregate", "groups", "z", "label"),
    [
        (MultipleInstance(), BAGS, [1, 1, 1], 1),
        (MultipleInstance(), BAGS, [0, 0, 0], 0),
        (PairwiseSimilarity(), PAIRS, [1] * 4, 0),
        (TripletComparison(), TRIPLETS, [0] * 4, 0),
        (OrdinalTriplet(), TRIPLETS, [0] * 4, 0),
        (OrdinalRank(), PAIRS, [0] * 4, 0),
        (OrdinalRank(">="), PAIRS, [1] * 4, 0),
        (LabelProportions(), BAGS, [[0, 3], [0, 2], [0, 4]], 1),
        (CountOf(1), BAGS, [3, 2, 4], 1),
        (AtLeast(2, label=0), BAGS, [True, True, True], 0),
    ],
)
def test_one_class_that_explains_everything_is_fatal(aggregate, groups, z, label):
    finding = diagnose(aggregate, groups, z, 2)[0]
    assert finding.kind == "one_class_explains_all"
    assert finding.fatal
    assert f"predicts class {label} for every row explains all {len(groups)} observations" in finding.message
    # A model that calls every row the same has indeed the largest likelihood there is.
    logits = torch.full((9, 2), float("-inf"))
    logits[:, label] = 0
    groups = Groups(groups.members, groups.offsets)
    assert aggregate.log_likelihood(logits, groups, z).tolist() == pytest.approx([0] * len(groups), abs=1e-15)


@pytest.mark.parametrize(
    ("aggregate", "size", "z"),
    [
        (LabelProportions(), 4, [[1, 3]]),
        (MultipleInstance(), 4, [1]),
        (PairwiseSimilarity(), 2, [0]),
        (CountOf(1), 4, [2]),
    ],
)
def test_a_single_group_is_fatal(aggregate, size, z):
    finding = diagnose(aggregate, Groups.from_sizes([size]), z, 2)[0]
    assert finding == Finding("single_group", finding.message, fatal=True)
    assert f"only 1 group, of {size} rows" in finding.message


@pytest.mark.parametrize(
    ("aggregate", "groups", "z"),
    [
        (PairwiseSimilarity(), PAIRS, [0] * 4),
        (TripletComparison(), TRIPLETS, [1] * 4),
        (OrdinalRank(), PAIRS, [1] * 4),
        (OrdinalTriplet(), TRIPLETS, [1] * 4),
        (CountOf(1), BAGS, [1] * 3),
    ],
)
def test_observations_that_agree_but_need_several_classes_are_not_fatal(aggregate, groups, z):
    finding = diagnose(aggregate, groups, z, 3)[0]
    assert finding.kind == "same_observations"
    assert not finding.fatal
    assert finding.message.startswith(f"all {len(z)} observations are {z[0]},")


# Little to learn.


def test_classes_that_rise_and_fall_together():
    groups = Groups.from_sizes([10] * 6)
    counts = [[2, 2, 3, 3], [1, 1, 4, 4], [4, 4, 1, 1]] * 2
    finding = the("few_observations", findings := diagnose(LabelProportions(), groups, counts, 4))
    assert "0 and 1 have equal counts in every group" in the("interchangeable_classes", findings).message
    assert "of 6 groups vary in 1 of the 3 directions that 4 classes need" in finding.message
    assert "the next correlation between group and class is 0.000" in finding.message


def test_fewer_groups_than_classes():
    groups, counts = drawn_at_random(200, 4, 6)
    (finding,) = diagnose(LabelProportions(), groups, counts, 6)
    assert "of 4 groups vary in 3 of the 5 directions that 6 classes need" in finding.message


@given(st.data())
def test_directions_are_the_rank_of_the_proportions(data):
    n_groups, n_classes = data.draw(st.integers(2, 5)), data.draw(st.integers(2, 4))
    row = st.lists(st.integers(0, 3), min_size=n_classes, max_size=n_classes).filter(any)
    counts = torch.tensor(data.draw(st.lists(row, min_size=n_groups, max_size=n_groups)))
    occurring = counts[:, counts.any(0)].double()
    rank = int(torch.linalg.matrix_rank(occurring / occurring.sum(1, keepdim=True)))
    found = kinds(diagnose(LabelProportions(), Groups.from_sizes(counts.sum(1)), counts, n_classes))
    several = occurring.shape[1] > 1
    assert ("one_class_explains_all" in found) is not several
    assert ("same_observations" in found) is (several and rank == 1)
    assert ("few_observations" in found) is (1 < rank < occurring.shape[1])


def test_repeated_groups_count_once():
    pairs = Groups.from_tuples([[0, 1], [1, 2], [0, 1], [0, 1]])
    finding = the("few_observations", diagnose(PairwiseSimilarity(), pairs, [1, 0, 1, 1], 3))
    assert finding.message == "2 different groups are too few to identify 3 classes; collect more"
    assert "few_observations" not in kinds(diagnose(PairwiseSimilarity(), pairs, [1, 0, 1, 1], 2))
    assert kinds(diagnose(Majority(), BAGS, [1, 0, 1], 2)) == []
    findings = diagnose(Majority(), BAGS, [1, 0, 1], 4)
    assert kinds(findings) == ["few_observations", "interchangeable_classes"]
    assert "do not change if 2 and 3 are interchanged" in findings[1].message


def test_large_groups_hold_little():
    groups, counts = drawn_at_random(2000, 20, 3)
    (finding,) = diagnose(LabelProportions(), groups, counts, 3)
    assert finding.kind == "little_information"
    assert "of 20 groups, of 2000 members on average, contain at most" in finding.message
    bits, label = map(
        float, re.findall(r"([\d.]+) bits per member, where a label contains ([\d.]+)", finding.message)[0]
    )
    assert bits == pytest.approx(log2(comb(2002, 2)) / 2000, rel=0.05)
    assert label == pytest.approx(log2(3), rel=0.05)


# Classes and rows that are left out.


def test_classes_that_never_occur_are_named():
    groups = Groups.from_sizes([3, 3, 3])
    (finding,) = diagnose(LabelProportions(), groups, [[1, 0, 2, 0], [2, 0, 1, 0], [3, 0, 0, 0]], 4)
    assert finding.kind == "missing_classes"
    assert "none of the 3 groups has a member of class 1, 3;" in finding.message
    assert "the 2 of 4 classes that occur" in finding.message


@pytest.mark.parametrize(("aggregate", "groups"), [(PairwiseSimilarity(), PAIRS), (TripletComparison(), TRIPLETS)])
def test_unnamed_classes(aggregate, groups):
    (finding,) = diagnose(aggregate, groups, [1, 0, 1, 0], 3)
    assert finding.kind == "unnamed_classes"
    assert not finding.fatal
    assert f"{type(aggregate).__name__} identifies which rows are alike, but not which of the 3" in finding.message
    assert "name_classes" in finding.message


def test_rows_in_no_group_are_counted():
    pairs = Groups.from_tuples([[0, 1], [1, 2], [2, 0]], n_rows=10)
    (finding,) = diagnose(OrdinalRank(), pairs, [1, 0, 1], 2)
    assert finding.kind == "rows_without_group"
    assert "contain 3 of 10 rows" in finding.message
    unknown = Groups.from_tuples([[0, 1], [1, 2], [2, 9]])
    assert diagnose(OrdinalRank(), unknown, [1, 0, 1], 2) == []


@pytest.mark.parametrize(("n_groups", "rough"), [(30, True), (60, False)])
def test_estimates_of_few_groups_are_rough(n_groups, rough):
    X, y = make_blobs(8 * n_groups, centers=[[0, 0], [9, 0]], random_state=0)
    ids = np.arange(8 * n_groups) // 8
    counts = [np.bincount(y[ids == group], minlength=2) for group in range(n_groups)]
    clf = AggregateClassifier(model="linear", random_state=0)
    assert ("held-out groups show the accuracy" in warned(clf, X, target(ids, counts))) == rough
    assert clf.estimated_accuracy_.high - clf.estimated_accuracy_.low < 0.02
    assert ("rough_estimate" in kinds(clf.diagnosis_)) == rough


def test_an_order_that_may_be_reversed():
    finding = the("unnamed_classes", diagnose(OrdinalTriplet(), TRIPLETS, [1, 0, 1, 0], 4))
    assert "does not identify whether the order of the 4 classes is reversed" in finding.message
    labels = torch.tensor([0, 3, 1, 1])
    seen = [OrdinalTriplet().observe(order, TRIPLETS, 4).tolist() for order in (labels, 3 - labels)]
    assert seen[0] == seen[1]
