"""What a step minimises, against the public losses and automatic differentiation."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unbag
from unbag.risks import group_risks
from unbag.training.objectives import cross_entropy, differentiate, likelihood

AGGREGATES = {
    "pairs": (unbag.PairwiseSimilarity(), [2, 2, 2]),
    "triplets": (unbag.TripletComparison(), [3, 3]),
    "counts": (unbag.LabelProportions(), [4, 4]),
    "unequal counts": (unbag.LabelProportions(), [1, 4, 2]),
}


def drawn(kind, seed, scale=2.0):
    aggregate, sizes = AGGREGATES[kind]
    torch.manual_seed(seed)
    groups = unbag.Groups.from_sizes(sizes)
    n = sum(sizes)
    z = aggregate.check(aggregate.observe(torch.randint(3, (n,)), groups, 3), groups, 3)
    logits, known = scale * torch.randn(2, n, 3, dtype=torch.float64)
    return aggregate, groups, z, logits, known


def summed(found, groups):
    """Return the value of each group and the slope, with their scale."""
    values = found.values if len(found.values) == len(groups) else groups.segments.sum(found.values)
    return found.scale * values, found.scale * found.slope


def differentiated(values_of, logits):
    leaf = logits.clone().requires_grad_()
    values = values_of(leaf)
    values.sum().backward()
    return values.detach(), leaf.grad


@given(st.sampled_from(sorted(AGGREGATES)), st.integers(0, 100), st.sampled_from([0.1, 2.0, 50.0]))
def test_likelihood_is_that_of_the_public_loss(kind, seed, scale):
    aggregate, groups, z, logits, _ = drawn(kind, seed, scale)
    public = unbag.NegativeLogLikelihood(aggregate, reduction="none")
    expected = differentiated(lambda leaf: public(leaf, groups, z), logits)
    torch.testing.assert_close(
        summed(likelihood(aggregate, logits.log_softmax(1), groups.segments, z), groups), expected
    )


@given(st.sampled_from(sorted(AGGREGATES)), st.integers(0, 100), st.booleans(), st.sampled_from([0.1, 2.0, 50.0]))
def test_cross_entropy_is_that_of_the_public_loss(kind, seed, remembered, scale):
    aggregate, groups, z, logits, known = drawn(kind, seed, scale)
    known = known if remembered else logits
    weights = aggregate.posterior(known, groups, z)
    public = unbag.UnbiasedRisk(aggregate, reduction="none")
    expected = differentiated(lambda leaf: public(leaf, groups, z, weights=weights), logits)
    found = cross_entropy(aggregate, logits.log_softmax(1), known.log_softmax(1), groups.segments, z)
    torch.testing.assert_close(summed(found, groups), expected)


def test_a_class_that_is_ruled_out_costs_nothing():
    aggregate, groups, z, logits, _ = drawn("pairs", 0)
    logits[0, 2] = -math.inf
    log_probs = logits.log_softmax(1)
    values, slope, _ = cross_entropy(aggregate, log_probs, log_probs, groups.segments, z)
    assert values.isfinite().all()
    assert slope.isfinite().all()


@pytest.mark.parametrize("objective", [likelihood, lambda a, logits, *rest: cross_entropy(a, logits, logits, *rest)])
def test_the_slope_of_an_impossible_observation_is_nan_and_that_of_others_is_not(objective):
    groups = unbag.Groups.from_sizes([20, 20])
    logits = torch.zeros(40, 2)
    logits[:20, 1] = -math.inf
    aggregate = unbag.LabelProportions()
    z = aggregate.check([[10, 10], [10, 10]], groups, 2)
    slope = objective(aggregate, logits.log_softmax(1), groups.segments, z).slope
    assert slope[:20].isnan().all()
    assert slope[20:].isfinite().all()


def test_any_objective_has_its_slope():
    aggregate, groups, z, logits, known = drawn("unequal counts", 1)
    weights = aggregate.posterior(known, groups, z)
    for loss in (unbag.losses.mae, unbag.losses.gce):
        own = lambda outputs, loss=loss: group_risks(loss(outputs), weights, groups.segments)  # noqa: E731
        torch.testing.assert_close(summed(differentiate(own, logits), groups), differentiated(own, logits))
    assert not logits.requires_grad
