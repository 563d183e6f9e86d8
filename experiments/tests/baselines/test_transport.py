"""The soft labels of ROT against a general optimiser, and what they add up to."""

from __future__ import annotations

import math

import plain_baselines as plain
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unbag import Groups, LabelProportions
from unbag_experiments.baselines.rot import ROT, transport


def drawn(sizes, k, seed=0, scale=1.0, dtype=torch.float64):
    """Return groups, counts and log-probabilities."""
    generator = torch.Generator().manual_seed(seed)
    groups = Groups.from_sizes(sizes)
    counts = LabelProportions().observe(torch.randint(k, (sum(sizes),), generator=generator), groups, k)
    logits = scale * torch.randn(sum(sizes), k, dtype=dtype, generator=generator)
    return groups, counts, logits.log_softmax(1)


@settings(max_examples=12)
@given(
    seed=st.integers(0, 2**20),
    sizes=st.sampled_from([[3, 3], [1, 3, 2]]),
    entropy=st.sampled_from([0.3, 1.0, 2.0]),
    strictness=st.sampled_from([0.2, 1.0, 5.0]),
)
def test_is_what_a_general_optimiser_finds(seed, sizes, entropy, strictness):
    groups, counts, log_probs = drawn(sizes, 3, seed)
    found = transport(log_probs, groups.segments, counts, entropy=entropy, strictness=strictness, iterations=400)
    for rows, own, labels in zip(log_probs.split(sizes), counts.tolist(), found.split(sizes), strict=True):
        expected = torch.from_numpy(plain.transport(rows.tolist(), own, entropy, strictness))
        torch.testing.assert_close(labels, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("sizes", [[4] * 5, [1, 6, 3, 2]], ids=["one size", "several"])
def test_strict_labels_have_the_counts_as_sums_of_columns(sizes):
    groups, counts, log_probs = drawn(sizes, 4)
    labels = transport(log_probs, groups.segments, counts, entropy=1.0, strictness=math.inf, iterations=500)
    torch.testing.assert_close(labels.sum(1), torch.ones(sum(sizes), dtype=torch.float64))
    sums = torch.stack([own.sum(0) for own in labels.split(sizes)])
    torch.testing.assert_close(sums, counts.double(), rtol=0, atol=1e-6)


def test_loose_labels_are_the_predictions_and_strict_ones_fit_the_counts_better():
    groups, counts, log_probs = drawn([4] * 5, 3)
    counts = counts.clamp_min(1)  # a class that is not there is ruled out however loose the rest
    gaps = []
    for strictness in (1e-9, 1.0, 100.0):
        labels = transport(log_probs, groups.segments, counts, entropy=1.0, strictness=strictness, iterations=500)
        gaps.append(float((labels.view(5, 4, 3).sum(1) - counts).abs().sum()))
        if strictness == 1e-9:
            torch.testing.assert_close(labels, log_probs.exp())
    assert gaps == sorted(gaps, reverse=True)


def test_a_class_that_is_not_there_gets_nothing_and_rows_always_sum_to_one():
    groups, counts, log_probs = drawn([6] * 50, 10, scale=1e4, dtype=torch.float32)
    labels = transport(log_probs, groups.segments, counts, entropy=1.0, strictness=10.0, iterations=50)
    torch.testing.assert_close(labels.sum(1), torch.ones(300))
    assert not bool(labels.view(50, 6, 10).sum(1)[counts == 0].any())


def test_the_default_number_of_iterations_is_enough_for_predictions_of_a_trained_model():
    groups, counts, log_probs = drawn([6] * 300, 10, scale=5.0)
    method = ROT()
    arguments = {"entropy": method.entropy, "strictness": method.strictness}
    found = transport(log_probs, groups.segments, counts, **arguments, iterations=method.iterations)
    converged = transport(log_probs, groups.segments, counts, **arguments, iterations=2000)
    assert float((found - converged).abs().max()) < 1e-3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"entropy": 0.0}, "entropy must be a positive number, got 0.0"),
        ({"strictness": -1.0}, "strictness must be a positive number, or inf; got -1.0"),
        ({"strictness": math.nan}, "strictness must be a positive number, or inf; got nan"),
        ({"mix": 1.5}, "mix must be a number from 0 to 1, got 1.5"),
        ({"iterations": 0}, "iterations must be a whole number of at least 1, got 0"),
        ({"iterations": True}, "iterations must be a whole number of at least 1, got True"),
    ],
)
def test_refuses_constants_without_meaning(wrong, message):
    with pytest.raises(ValueError, match=message):
        ROT(**wrong)
