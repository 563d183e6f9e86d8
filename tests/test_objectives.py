"""What a step minimises, against the public losses and automatic differentiation."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unbag
from unbag.objectives.objective import cross_entropy_risk, negative_log_likelihood, value_and_grad, weighted_risk

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
    """Return the value of each group and the gradient, with their scale."""
    values = found.values if len(found.values) == len(groups) else groups.segments.sum(found.values)
    return found.scale * values, found.scale * found.grad


def differentiated(values_of, logits):
    leaf = logits.clone().requires_grad_()
    values = values_of(leaf)
    values.sum().backward()
    return values.detach(), leaf.grad


@given(st.sampled_from(sorted(AGGREGATES)), st.integers(0, 100), st.booleans(), st.sampled_from([0.1, 2.0, 50.0]))
def test_objectives_are_the_public_losses(kind, seed, remembered, scale):
    aggregate, groups, z, logits, known = drawn(kind, seed, scale)
    weights = aggregate.posterior(known if remembered else logits, groups, z)
    log_probs, segments = logits.log_softmax(1), groups.segments
    likelihood = unbag.NegativeLogLikelihood(aggregate, reduction="none")
    risks = {
        loss: unbag.UnbiasedRisk(aggregate, loss, reduction="none")
        for loss in ("cross_entropy", "mae", lambda scores: -scores.log_softmax(-1))
    }
    mae = lambda outputs: weighted_risk(unbag.losses.mae(outputs), weights, segments)  # noqa: E731
    cross_entropy = cross_entropy_risk(log_probs, weights, segments)
    for found, public, given_weights in (
        (negative_log_likelihood(aggregate, log_probs, segments, z), likelihood, {}),
        *((cross_entropy, risk, {"weights": weights}) for name, risk in risks.items() if name != "mae"),
        (value_and_grad(mae, logits), risks["mae"], {"weights": weights}),
    ):
        expected = differentiated(lambda x, f=public, w=given_weights: f(x, groups, z, **w), logits)
        torch.testing.assert_close(summed(found, groups), expected)
    assert not logits.requires_grad


def test_a_class_that_is_ruled_out_costs_nothing():
    aggregate, groups, z, logits, _ = drawn("pairs", 0)
    logits[0, 2] = -math.inf
    log_probs = logits.log_softmax(1)
    _, weights = aggregate.e_step(log_probs, groups.segments, z)
    values, grad, _ = cross_entropy_risk(log_probs, weights, groups.segments)
    assert values.isfinite().all()
    assert grad.isfinite().all()


def risk_at(aggregate, log_probs, segments, z):
    return cross_entropy_risk(log_probs, aggregate.e_step(log_probs, segments, z)[1], segments)


@pytest.mark.parametrize("objective", [negative_log_likelihood, risk_at])
def test_the_gradient_of_an_impossible_observation_is_nan_and_that_of_others_is_not(objective):
    groups = unbag.Groups.from_sizes([20, 20])
    logits = torch.zeros(40, 2)
    logits[:20, 1] = -math.inf
    aggregate = unbag.LabelProportions()
    z = aggregate.check([[10, 10], [10, 10]], groups, 2)
    grad = objective(aggregate, logits.log_softmax(1), groups.segments, z).grad
    assert grad[:20].isnan().all()
    assert grad[20:].isfinite().all()
