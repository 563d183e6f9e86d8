"""Aggregates made of a fold or a function, against enumeration and at their limits."""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import at_least, count_of, enumerate_groups, majority

import unbag
from unbag import AtLeast, CountOf, FromFold, FromFunction, Groups, Majority

FOLDS: dict[str, tuple[FromFold, Any]] = {
    "count of": (CountOf(1), count_of(1)),
    "at least": (AtLeast(2, 1), at_least(2, 1)),
    "majority": (Majority(), majority),
    "sum": (FromFold(0, lambda total, label: total + label, lambda total: total), sum),
    "order matters": (
        FromFold((0, -1), lambda s, label: (s[0] + (label > s[1]), label), lambda s: s[0]),
        lambda y: sum(label > before for before, label in zip((-1, *y), y, strict=False)),
    ),
    "two numbers": (
        FromFold((9, -1), lambda s, label: (min(s[0], label), max(s[1], label)), lambda s: s),
        lambda y: (min(y), max(y)),
    ),
    "function": (FromFunction(lambda y: y[0] * y[-1]), lambda y: y[0] * y[-1]),
    "fraction": (FromFunction(lambda y: sum(y) / len(y)), lambda y: sum(y) / len(y)),
}
NEVER = -math.inf


@pytest.mark.parametrize("name", FOLDS)
@settings(max_examples=40)
@given(data=st.data())
def test_evidence_is_that_of_enumeration(name: str, data: st.DataObject) -> None:
    aggregate, g = FOLDS[name]
    k = data.draw(st.integers(2, 4), "classes")
    sizes = data.draw(st.lists(st.integers(1, 6 if k == 2 else 4), min_size=1, max_size=4), "sizes")
    scale = data.draw(st.sampled_from([0.5, 5.0, 50.0]))
    entry = st.floats(-scale, scale) | st.sampled_from([-1e4, 1e4, NEVER])
    row = st.lists(entry, min_size=k, max_size=k).filter(lambda entries: max(entries) > NEVER)
    rows = data.draw(st.lists(row, min_size=sum(sizes), max_size=sum(sizes)), "logits")
    labels = data.draw(st.lists(st.integers(0, k - 1), min_size=sum(sizes), max_size=sum(sizes)), "labels")
    groups = Groups.from_sizes(sizes)
    z = aggregate.observe(labels, groups, k)
    parts = torch.tensor(labels).split(sizes)
    assert z.tolist() == np.array([g(tuple(part.tolist())) for part in parts]).tolist()
    logits = torch.tensor(rows, dtype=torch.float64)
    found = aggregate.evidence(logits, groups, z)
    expected = enumerate_groups(g, logits, groups, [g(tuple(part.tolist())) for part in parts])
    torch.testing.assert_close(tuple(found), expected, rtol=1e-10, atol=1e-10, equal_nan=True)


@pytest.mark.parametrize(
    ("size", "extreme"),
    [(1, 200.0), (1, 1e4), (2, 200.0), (2, 1e4), (1000, 200.0), (1000, 1e4), (1000, 1.0), (10**4, 1e4)],
)
def test_at_least_one_is_multiple_instance_at_any_size(size: int, extreme: float) -> None:
    random = torch.Generator().manual_seed(0)
    groups = Groups.from_sizes([size, 3])
    logits = extreme * (torch.randint(2, (size + 3, 2), generator=random) * 2.0 - 1) - torch.tensor([0.0, 5.0])
    found = AtLeast(1, 1).evidence(logits, groups, [1, 0])
    expected = unbag.MultipleInstance().evidence(logits, groups, [1, 0])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [64, 1000])
def test_count_of_is_label_proportions_of_two_classes(size: int) -> None:
    random = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(3 * size, 2, generator=random, dtype=torch.float64)
    groups = Groups.from_sizes([size] * 3)
    ones = torch.tensor([size // 3, size // 2, 0])
    found = CountOf(1).evidence(logits, groups, ones)
    expected = unbag.LabelProportions().evidence(logits, groups, torch.stack([size - ones, ones], 1))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("k", [2, 5])
def test_count_of_is_the_fold_that_counts(k: int) -> None:
    random = torch.Generator().manual_seed(k)
    groups = Groups.from_sizes([1, 2, 30, 7, 30])
    logits = 5 * torch.randn(70, k, generator=random, dtype=torch.float64)
    logits[3, 1], logits[40, 0], logits[12, 1:] = float("-inf"), float("-inf"), float("-inf")
    fold = FromFold(0, lambda count, label: count + (label == 1), lambda count: count)
    for z in ([0, 2, 30, 0, 12], [1, 0, 0, 7, 25], [1, 1, 29, 3, 1]):
        found, expected = CountOf(1).evidence(logits, groups, z), fold.evidence(logits, groups, z)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9, equal_nan=True)


def test_count_of_takes_large_groups() -> None:
    size = 100_000  # a fold would have so many states
    groups, logits = Groups.from_sizes([size]), torch.zeros(size, 3)
    found = CountOf(1).evidence(logits, groups, [size // 3])
    share = torch.tensor(1 / 3, dtype=torch.float64)
    expected = torch.distributions.Binomial(size, share).log_prob(torch.tensor(size // 3).double())
    torch.testing.assert_close(found.log_likelihood.double(), expected[None], rtol=1e-5, atol=1e-5)
    assert found.posterior[:, 1].double().sum().item() == pytest.approx(size // 3, abs=0.01)


@pytest.mark.parametrize(
    ("z", "match"),
    [
        ([3, 0], r"to the size of the group; this does not hold for group 0 \(id 'a'\): z\[0\] is 3, .* has 2 members"),
        ([0, -1], r"this does not hold for group 1 \(id 'b'\): z\[1\] is -1"),
        ([0.5, 1.0], r"z\[0\] is 0.5"),
        ([float("nan"), 1.0], r"z\[0\] is nan"),
        ([1], r"one entry per group, shape \(2,\); got shape \(1,\)"),
    ],
)
def test_counts_that_cannot_be_are_refused(z: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        CountOf(1).log_likelihood(torch.zeros(4, 2), Groups.from_ids(["a", "a", "b", "b"]), z)
    with pytest.raises(TypeError, match=r"z must be whole numbers, got torch.complex64"):
        CountOf(1).log_likelihood(torch.zeros(4, 2), Groups.from_sizes([2, 2]), [1j, 0j])


def test_function_says_how_many_vectors_it_would_try() -> None:
    many = FromFunction(sum)
    with pytest.raises(ValueError, match=r"group 1 of 9 members and 10 classes has 10\^9 label vectors"):
        many.log_likelihood(torch.zeros(12, 10), Groups.from_sizes([3, 9]), [1, 1])
    with pytest.raises(ValueError, match="max_vectors=10"):
        FromFunction(sum, max_vectors=10).log_likelihood(torch.zeros(4, 2), Groups.from_sizes([4]), [1])


def test_fold_says_when_states_are_too_many() -> None:
    growing = FromFold((), lambda state, label: (*state, label), len, max_states=20)
    with pytest.raises(ValueError, match="more than max_states=20 states after 5 labels of 2 classes"):
        growing.log_likelihood(torch.zeros(6, 2), Groups.from_sizes([6]), [6])


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: CountOf(-1), "label must be a class number, 0 or more, got -1"),
        (lambda: CountOf(True), "label must be a class number"),
        (lambda: AtLeast(0, 1), "count must be a whole number of at least 1, got 0"),
        (lambda: AtLeast(1.5, 1), "count must be a whole number"),
        (lambda: AtLeast(1, "a"), "label must be a class number"),
    ],
)
def test_wrong_settings_are_refused(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


def test_class_that_is_not_there_is_refused() -> None:
    groups = Groups.from_sizes([2])
    with pytest.raises(ValueError, match=r"label of CountOf\(label=5\) must be one of the 2 classes"):
        CountOf(5).log_likelihood(torch.zeros(2, 2), groups, [0])
    with pytest.raises(ValueError, match=r"label of AtLeast\(count=1, label=3\) must be one of"):
        AtLeast(1, 3).observe([0, 1], groups, 2)


@pytest.mark.parametrize("finish", [lambda state: "many", lambda state: {state}])
def test_outcomes_must_be_numbers(finish: Any) -> None:
    odd = FromFold(0, lambda state, label: state + label, finish)
    with pytest.raises(TypeError, match="finish must return a number or a tuple of numbers, got"):
        odd.observe([0, 1], Groups.from_sizes([2]), 2)


def test_threads_may_share_a_fold():
    groups = Groups.from_sizes(range(1, 7))
    logits = torch.randn(len(groups.members), 3, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(3, (len(logits),), generator=torch.Generator().manual_seed(1))

    def found(fold):
        return fold.evidence(logits, groups, fold.observe(labels, groups, 3))

    def new():
        return FromFold((0, 0), count_two, lambda counts: counts)

    expected, shared = found(new()), new()
    with ThreadPoolExecutor(4) as threads:
        for one in threads.map(found, [shared] * 4):
            torch.testing.assert_close(one, expected, rtol=0, atol=0)


def count_two(counts, label):
    time.sleep(0)  # lets other threads go first
    return counts[0] + (label == 0), counts[1] + (label == 1)
