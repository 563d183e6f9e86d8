"""Out-of-fold predictions: temperature, mixture and expected accuracy, against enumeration and made-up truths."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import unbag
from unbag.aggregates.class_shares import ClassShares
from unbag.out_of_fold import (
    LEAST_SHARE,
    PRIOR,
    estimate_accuracy,
    fit_mixture,
    fit_temperature,
    log_likelihoods,
    mean_log_likelihood,
    mix,
    temper,
)
from unbag.training import Observations


def made(
    n: int = 2000, size: int = 4, *, scale: float = 2.0, seed: int = 0
) -> tuple[Observations, torch.Tensor, torch.Tensor]:
    """Return counts of groups whose labels follow the true log-probabilities, these, and the labels."""
    generator = torch.Generator().manual_seed(seed)
    true = (scale * torch.randn(n, 3, generator=generator, dtype=torch.float64)).log_softmax(1)
    labels = torch.multinomial(true.exp(), 1, generator=generator)[:, 0]
    groups = unbag.Groups.from_sizes([size] * (n // size))
    aggregate = unbag.LabelProportions()
    return Observations(aggregate, groups, aggregate.observe(labels, groups, 3), 3), true, labels


@pytest.mark.parametrize("sharper", [0.4, 1.0, 2.5])
def test_the_temperature_undoes_predictions_that_are_too_certain_or_not_certain_enough(sharper):
    one, true, _ = made(4000)
    assert fit_temperature([one], [temper(true, 1 / sharper)]) == pytest.approx(sharper, rel=0.12)


def test_the_temperature_is_the_best_one():
    one, true, _ = made(200)
    found = fit_temperature([one], [true])
    best = mean_log_likelihood([one], [temper(true, found)])
    for other in torch.linspace(-3, 3, 61).exp().tolist():
        assert mean_log_likelihood([one], [temper(true, other)]) <= best + 1e-6


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_the_expected_accuracy_is_the_posterior_of_the_predicted_class(seed, size):
    one, true, _ = made(4 * size, size, seed=seed)
    expected = 0.0
    for group in range(4):
        own = true[group * size : (group + 1) * size].exp()
        total, right = 0.0, 0.0
        for labels in itertools.product(range(3), repeat=size):
            if torch.bincount(torch.tensor(labels), minlength=3).tolist() != one.z[group].tolist():
                continue
            chance = float(own[torch.arange(size), list(labels)].prod())
            total += chance
            right += chance * sum(int(own[i].argmax()) == label for i, label in enumerate(labels))
        expected += right / total
    assert estimate_accuracy([one], [true]).value == pytest.approx(expected / (4 * size), abs=1e-9)


def test_with_labels_of_single_rows_it_is_the_accuracy_and_its_interval_that_of_a_share():
    one, true, labels = made(400, 1)
    found = estimate_accuracy([one], [true])
    share = float((true.argmax(1) == labels).double().mean())
    assert found.value == pytest.approx(share, abs=1e-12)
    half = 1.96 * (share * (1 - share) / 399) ** 0.5
    assert (found.low, found.high) == pytest.approx((share - half, share + half), abs=1e-12)


def test_groups_that_are_all_explained_leave_room_for_doubt():
    one, _, _ = made(40)
    sure = torch.nn.functional.one_hot(one.z.argmax(1), 3).repeat_interleave(4, 0).double() * 1e3
    one = Observations(one.aggregate, one.groups, 4 * torch.nn.functional.one_hot(one.z.argmax(1), 3), 3)
    assert estimate_accuracy([one], [sure.log_softmax(1)]).low == 1
    found = estimate_accuracy([one], [sure.log_softmax(1)], 2)
    assert found.value == pytest.approx((40 + 2 / 3) / 42)
    assert found.low < 0.95 < found.high == 1


@pytest.mark.parametrize("seed", [0, 8])
def test_a_named_model_says_about_how_good_it_is(seed):
    pytest.importorskip("lightgbm")
    X, X_new, y, y_new = train_test_split(*load_breast_cancer(return_X_y=True), train_size=400, random_state=seed)
    groups = unbag.Groups.from_sizes([4] * 100)
    clf = unbag.AggregateClassifier(model="trees", validation_fraction=0.2, random_state=seed)
    clf.fit(X, unbag.LabelProportions().observe(y, groups, 2), groups=groups)
    said, true = clf.estimated_accuracy_, clf.score(X_new, y_new)
    assert said.value == pytest.approx(true, abs=0.05)
    assert said.low < true < said.high


@pytest.mark.parametrize(
    ("n", "size", "rough"),  # few groups, then a wide interval, then neither, then labels
    [(10, 2, False), (11, 2, True), (40, 2, True), (60, 2, True), (4000, 2, False), (20, 1, False)],
)
def test_few_left_out_groups_tell_roughly_how_good_a_model_is_or_not_at_all(n, size, rough):
    X = np.random.default_rng(0).normal(size=(n * size, 1))
    groups = unbag.Groups.from_sizes([size] * n)
    z = unbag.LabelProportions().observe((X[:, 0] > 0).astype(int), groups, 2)
    clf = unbag.AggregateClassifier(model="linear", n_folds=2, epochs=1, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf.fit(X, z, groups=groups)
    sentence = f"{n} left-out groups tell how often predictions for new rows are right within about ten points"
    assert any(sentence in str(one.message) for one in caught) == rough
    assert any(one.kind == "rough_estimate" for one in clf.diagnosis_) == rough
    said = clf.estimated_accuracy_
    assert (said is None) == (n == 10)
    if n > 40:
        assert (said.high - said.value > 0.02) == rough


def test_its_interval_holds_the_truth_for_predictions_as_certain_as_they_should_be():
    inside = 0
    for seed in range(40):
        one, true, labels = made(800, 8, seed=seed)
        found = estimate_accuracy([one], [true])
        # The chance of being right, given the counts, varies less than being right does.
        truth = float((true.argmax(1) == labels).double().mean())
        noise = 1.96 * (truth * (1 - truth) / 800) ** 0.5
        inside += found.low - noise <= truth <= found.high + noise
    assert inside >= 36


def test_a_mixture_leaves_out_what_does_not_help_and_mixes_what_does():
    one, true, _ = made(1200)
    noise = torch.randn(true.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    half = true.clone()
    half[::2] = noise[::2].log_softmax(1)
    other = true.clone()
    other[1::2] = noise[1::2].log_softmax(1)
    weights = fit_mixture([one], [[half], [other], [noise.log_softmax(1)]])
    assert weights[2] < 0.2
    assert min(weights[:2]) >= 0.3
    assert fit_mixture([one], [[noise.log_softmax(1)], [true]]) == pytest.approx([0, 1], abs=0.11)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([2, 5, 20]), st.sampled_from([1, 4]), st.floats(0.1, 3.0))
def test_weights_of_a_mixture_have_the_largest_likelihood_and_prior_together(seed, n_groups, size, weight):
    """Against all weights of a grid, of two sets that count differently; labels of single rows have no prior."""
    first, true, _ = made(size * n_groups, size, seed=seed)
    group_weights = torch.rand(n_groups, generator=torch.Generator().manual_seed(seed)) + 0.5
    second = Observations(first.aggregate, first.groups, first.z, 3, weight=weight, group_weights=group_weights)
    noise = torch.randn(true.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).log_softmax(1)
    sets, candidates = [first, second], [[true, noise], [noise, true]]

    def explain(w):
        likelihood = mean_log_likelihood(sets, [mix(own, [w, 1 - w]) for own in zip(*candidates, strict=True)])
        return 2 * n_groups * likelihood + (PRIOR if size > 1 else 0) * (math.log(w) + math.log(1 - w))

    grid = np.linspace(0.01, 0.99, 99)
    values = np.array([explain(w) for w in grid])
    found = fit_mixture(sets, candidates)[0]
    near = grid < LEAST_SHARE if found == 0 else grid > 1 - LEAST_SHARE  # where one of them hardly counts
    assert (explain(found) if 0 < found < 1 else values[near].max()) >= values.max() - 1e-4


def test_few_groups_leave_candidates_alike_and_many_tell_them_apart():
    def weight_of_the_better(n):
        one, true, _ = made(n)
        return fit_mixture([one], [[true], [(0.8 * true).log_softmax(1)]])[0]

    assert weight_of_the_better(8) == pytest.approx(0.5, abs=0.05)
    assert weight_of_the_better(24_000) > 0.8


def test_a_mixture_is_the_mean_of_probabilities():
    _, true, _ = made(80)
    flat = torch.zeros_like(true).log_softmax(1)
    torch.testing.assert_close(mix([true, flat], [0.25, 0.75]).exp(), 0.25 * true.exp() + 0.75 * flat.exp())


def test_sets_count_by_their_weights():
    one, true, _ = made(8)
    heavy = Observations(one.aggregate, one.groups, one.z.flip(0), 3, weight=3.0)
    first, second = (float(own.mean()) for own in log_likelihoods([one, heavy], [true, true]))
    assert mean_log_likelihood([one, heavy], [true, true]) == pytest.approx((first + 3 * second) / 4)
    first, second = (estimate_accuracy([own], [true]).value for own in (one, heavy))
    assert estimate_accuracy([one, heavy], [true, true]).value == pytest.approx((first + 3 * second) / 4)
    assert first != pytest.approx(second)


def test_known_shares_hardly_count_in_the_expected_accuracy():
    one, true, _ = made(2000)
    shares = ClassShares(torch.full((3,), 1 / 3, dtype=torch.float64), 0.0).as_observations(2000, 2000, seed=0)
    alone = estimate_accuracy([one], [true])
    both = estimate_accuracy([one, shares], [true, true[shares.groups.members]])
    assert len(shares.groups.members) >= 2000
    assert both.value == pytest.approx(alone.value, abs=0.002)
    assert (both.low, both.high) == pytest.approx((alone.low, alone.high), abs=0.002)
