"""Tests and intervals, against plain arithmetic and printed tables."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from unbag_experiments.statistics import holm, interval, mark, paired_p, standard_error, welch

CRITICAL = {4: 2.77645, 5: 2.57058, 6: 2.44691, 9: 2.26216}  # two-sided 5 % points of Student's t, from a printed table
accuracies = st.floats(0, 100, allow_nan=False)
p_values = st.lists(st.floats(0, 1), min_size=1, max_size=6)


@given(st.lists(st.tuples(accuracies, accuracies), min_size=5, max_size=7), st.floats(0, 1))
def test_the_corrected_test_agrees_with_plain_arithmetic(pairs, overlap):
    differences = [ours - other for ours, other in pairs]
    spread = statistics.stdev(differences)
    assume(spread > 1e-6)
    t = statistics.mean(differences) / (spread * math.sqrt(1 / len(pairs) + overlap))
    critical = CRITICAL[len(pairs) - 1]
    assume(abs(abs(t) - critical) > 1e-3)
    ours, others = ({seed: pair[side] for seed, pair in enumerate(pairs)} for side in (0, 1))
    difference, p = paired_p(ours, others, overlap)
    assert difference == pytest.approx(statistics.mean(differences))
    expected = "level" if abs(t) < critical else "better" if t > 0 else "worse"
    assert mark(difference, p) == expected


def test_without_overlap_it_is_the_paired_t_test():
    rng = np.random.default_rng(0)
    first, second = rng.normal(90, 2, (2, 10))
    _, p = paired_p(dict(enumerate(first)), dict(enumerate(second)), 0.0)
    assert p == pytest.approx(stats.ttest_rel(first, second).pvalue)
    _, corrected = paired_p(dict(enumerate(first)), dict(enumerate(second)), 1 / 3)
    assert corrected > p


@given(st.dictionaries(st.integers(0, 9), accuracies), st.dictionaries(st.integers(0, 9), accuracies))
def test_five_common_seeds_are_needed_and_sides_can_be_exchanged(ours, others):
    common = ours.keys() & others.keys()
    found = paired_p(ours, others, 1 / 3)
    assert (found is None) == (len(common) < 5)
    assert found == paired_p({seed: ours[seed] for seed in common}, {seed: others[seed] for seed in common}, 1 / 3)
    if found is not None:
        back = paired_p(others, ours, 1 / 3)
        assert back == (pytest.approx(-found[0]), pytest.approx(found[1]))


def test_the_test_pairs():
    # Seeds differ much, methods little but always in the same way: only pairs show it.
    ours = {0: 60.2, 1: 70.1, 2: 80.3, 3: 90.2, 4: 50.1}
    others = {3: 89.0, 2: 79.0, 1: 69.0, 0: 59.0, 4: 49.0}
    assert mark(*paired_p(ours, others, 1 / 3)) == "better"
    assert mark(*paired_p(ours, dict(zip(others, sorted(others.values()), strict=True)), 1 / 3)) == "level"


@pytest.mark.parametrize(
    ("shift", "expected"), [(0.0, "level"), (0.1, "better"), (-0.1, "worse"), (1e-13, "level"), (-1e-13, "level")]
)
def test_equal_differences_leave_nothing_to_divide_by(shift, expected):
    others = {0: 97.1, 1: 97.3, 2: 10.7, 3: 33.3, 4: 5.0}
    assert mark(*paired_p({seed: value + shift for seed, value in others.items()}, others, 1 / 3)) == expected


@given(st.lists(accuracies, min_size=5, max_size=7), st.floats(0, 1))
def test_the_interval_is_that_of_the_corrected_error(values, overlap):
    low, high = interval(values, overlap)
    error = statistics.stdev(values) * math.sqrt(1 / len(values) + overlap)
    assert standard_error(values, overlap) == pytest.approx(error, abs=1e-9)
    assert (low + high) / 2 == pytest.approx(statistics.mean(values), abs=1e-9)
    assert (high - low) / 2 == pytest.approx(CRITICAL[len(values) - 1] * error, rel=1e-4, abs=1e-9)
    assert interval(values[:1], overlap) is None


@given(p_values)
def test_holm_rejects_what_step_by_step_rejection_rejects(found):
    corrected = holm(found)
    for level in (0.01, 0.05, 0.2):
        rejected = set()
        order = sorted(range(len(found)), key=found.__getitem__)
        for rank, place in enumerate(order):
            if (len(found) - rank) * found[place] > level:
                break
            rejected.add(place)
        assert {place for place, p in enumerate(corrected) if p <= level} == rejected
    assert all(one >= other for one, other in zip(corrected, found, strict=True))


def test_holm_does_not_look_at_the_order():
    for order in itertools.permutations([0.01, 0.02, 0.3]):
        assert dict(zip(order, holm(order), strict=True)) == {0.01: 0.03, 0.02: 0.04, 0.3: 0.3}


def test_the_papers_mean_is_met_by_welch():
    ours = [95.0, 95.5, 96.0, 95.2, 95.8]
    theirs = [93.0, 94.5, 93.5, 94.0, 93.2]
    p = stats.ttest_ind(ours, theirs, equal_var=False).pvalue
    assert p < 0.05
    assert welch(ours, statistics.mean(theirs), statistics.stdev(theirs)) == "better"
    assert welch(theirs, statistics.mean(ours), statistics.stdev(ours)) == "worse"
    assert welch(ours, 95.4, 0.5) == "level"
    for shift in np.arange(0, 3, 0.005):
        moved = [value + shift for value in theirs]
        p = stats.ttest_ind(ours, moved, equal_var=False).pvalue
        expected = "level" if p >= 0.05 else "better" if statistics.mean(ours) > statistics.mean(moved) else "worse"
        assert welch(ours, statistics.mean(moved), statistics.stdev(moved)) == expected
    assert welch(ours, 95.4, None) is None
    assert welch(ours[:1], 95.4, 0.5) is None
    assert welch([100.0, 100.0], 100.0, 0.0) == "level"
    assert welch([100.0, 100.0], 99.0, 0.0) == "better"
