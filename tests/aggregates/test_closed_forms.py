"""The five aggregates with closed forms against plain enumeration, and where enumeration does not reach."""

import math
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import DEFINITIONS, enumerate_groups
from torch import Tensor

import unbag
from unbag import Aggregate, Groups
from unbag.aggregates import base, comparisons

AGGREGATES: dict[str, Aggregate] = {
    "PairwiseSimilarity()": unbag.PairwiseSimilarity(),
    "TripletComparison()": unbag.TripletComparison(),
    "MultipleInstance()": unbag.MultipleInstance(),
    "OrdinalRank('<')": unbag.OrdinalRank("<"),
    "OrdinalRank('>')": unbag.OrdinalRank(">"),
    "OrdinalRank('<=')": unbag.OrdinalRank("<="),
    "OrdinalRank('>=')": unbag.OrdinalRank(">="),
    "OrdinalTriplet()": unbag.OrdinalTriplet(),
}
EXTREMES = [-1e4, -200.0, 200.0, 1e4]
NEVER = -math.inf

by_name = pytest.mark.parametrize("name", AGGREGATES)


def sizes_of(aggregate: Aggregate) -> st.SearchStrategy[int]:
    return st.integers(1, 6) if aggregate.size is None else st.just(aggregate.size)


def classes_of(aggregate: Aggregate) -> st.SearchStrategy[int]:
    return st.just(2) if isinstance(aggregate, unbag.MultipleInstance) else st.integers(2, 5)


@st.composite
def tables(draw: st.DrawFn, n_rows: int, n_classes: int) -> list[list[float]]:
    """Draw logits, one list per row: of one scale, with extremes and classes that are ruled out in between."""
    scale = draw(st.sampled_from([0.1, 1.0, 10.0, 50.0]))
    entry = st.floats(-scale, scale) | st.sampled_from([*EXTREMES, NEVER])
    row = st.lists(entry, min_size=n_classes, max_size=n_classes).filter(lambda entries: max(entries) > NEVER)
    return draw(st.lists(row, min_size=n_rows, max_size=n_rows))


@by_name
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_agrees_with_enumeration(name: str, data: st.DataObject) -> None:
    aggregate = AGGREGATES[name]
    sizes = data.draw(st.lists(sizes_of(aggregate), min_size=1, max_size=4), label="sizes")
    n_classes = data.draw(classes_of(aggregate), label="n_classes")
    rows = data.draw(tables(sum(sizes), n_classes), label="logits")
    z = data.draw(st.lists(st.integers(0, 1), min_size=len(sizes), max_size=len(sizes)), label="z")
    groups = Groups.from_sizes(sizes)
    logits = torch.tensor(rows, dtype=torch.float64, requires_grad=True)

    log_likelihood, posterior = aggregate.evidence(logits, groups, z)
    (slope,) = torch.autograd.grad(log_likelihood.sum(), logits)
    with ExitStack() as stack:  # as in a CUDA graph, which has no branches
        for module in (base, comparisons):
            stack.enter_context(patch.object(module, "is_tracing", return_value=True))
        traced = aggregate.evidence(logits.detach(), groups, z)

    expected_likelihood, expected_posterior = enumerate_groups(DEFINITIONS[name], logits, groups, z)
    for found in ((log_likelihood.detach(), posterior), traced):
        torch.testing.assert_close(found[0], expected_likelihood, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(found[1], expected_posterior, rtol=0, atol=1e-10, equal_nan=True)
    expected_slope = expected_posterior - logits.detach().softmax(-1)
    torch.testing.assert_close(slope, expected_slope, rtol=0, atol=1e-10, equal_nan=True)


def assert_finite(aggregate: Aggregate, logits: Tensor, groups: Groups, z: Any) -> None:
    logits = logits.clone().requires_grad_()
    log_likelihood, posterior = aggregate.evidence(logits, groups, z)
    (slope,) = torch.autograd.grad(log_likelihood.sum(), logits)
    assert log_likelihood.dtype == posterior.dtype == torch.float32
    for value in (log_likelihood, posterior, slope):
        assert bool(value.isfinite().all())
    assert bool(((posterior >= 0) & (posterior <= 1 + 1e-6)).all())
    torch.testing.assert_close(posterior.sum(1), torch.ones(len(posterior)), rtol=0, atol=1e-5)


low_precision = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
confidence = pytest.mark.parametrize("extreme", [200.0, 1e4])


@low_precision
@confidence
@pytest.mark.parametrize("size", [1, 2, 1_000, 100_000])
def test_bags_of_any_size_stay_finite(size: int, extreme: float, dtype: torch.dtype) -> None:
    """Bags that are surely negative, surely positive, mixed and tied, each observed as negative and as positive."""
    random = torch.Generator().manual_seed(size)
    negative = torch.tensor([extreme, -extreme]).expand(size, 2)
    one_positive = negative.clone()
    one_positive[size // 2] *= -1
    mixed = extreme * torch.randint(-1, 2, (size, 2), generator=random)
    kinds = [negative, -negative, one_positive, mixed, torch.zeros(size, 2)]
    logits = torch.cat([table for table in kinds for _ in range(2)]).to(dtype)
    assert_finite(unbag.MultipleInstance(), logits, Groups.from_sizes([size] * 10), [0, 1] * 5)


@low_precision
@confidence
def test_bags_of_unequal_sizes_stay_finite(extreme: float, dtype: torch.dtype) -> None:
    groups = Groups.from_sizes([1, 1, 2, 2, 1_000, 1_000])
    logits = extreme * torch.randint(-1, 2, (len(groups.members), 2), generator=torch.Generator().manual_seed(0))
    for table in (logits, logits.abs() * torch.tensor([1, -1]), logits.abs() * torch.tensor([-1, 1])):
        assert_finite(unbag.MultipleInstance(), table.to(dtype), groups, [0, 1] * 3)


@pytest.mark.parametrize("sizes", [[100_000], [100_000, 1]], ids=["one size", "two sizes"])
@pytest.mark.parametrize("z", [0, 1])
def test_large_bags_in_float32_agree_with_float64(sizes: list[int], z: int) -> None:
    """Members that are all alike, whose roundings would add up if they were added one after the other."""
    logits = torch.tensor([[0.0, 0.5 if z == 0 else -15.0]]).repeat(sum(sizes), 1)
    groups, observed = Groups.from_sizes(sizes), [z] * len(sizes)
    found = unbag.MultipleInstance().evidence(logits, groups, observed)
    expected = unbag.MultipleInstance().evidence(logits.double(), groups, observed)
    torch.testing.assert_close(found.log_likelihood.double(), expected.log_likelihood, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.posterior.double(), expected.posterior, rtol=0, atol=1e-6)


@by_name
@pytest.mark.parametrize("offset", [200.0, 1e4])
def test_offset_common_to_a_row_changes_nothing(name: str, offset: float) -> None:
    """Eighths stay exact in float32 with the offset added, so that any difference is an error of our own."""
    aggregate, random = AGGREGATES[name], torch.Generator().manual_seed(4)
    n_classes, size = (2, 5) if isinstance(aggregate, unbag.MultipleInstance) else (4, aggregate.size)
    assert size is not None
    groups = Groups.from_sizes([size] * 100)
    logits = torch.randint(-20, 20, (100 * size, n_classes), generator=random) / 8
    z = torch.randint(2, (100,), generator=random)

    found, expected = aggregate.evidence(logits + offset, groups, z), aggregate.evidence(logits, groups, z)

    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_bag_of_many_rare_positives_has_the_sum_of_their_chances() -> None:
    """A hundred thousand chances of e^-30 each are 1e5 e^-30 together, far below what 1 - p can show in float32."""
    logits = torch.tensor([[0.0, -30.0]]).repeat(100_000, 1)
    found = unbag.MultipleInstance().evidence(logits, Groups.from_sizes([100_000]), [1])
    assert found.log_likelihood.item() == pytest.approx(math.log(1e5) - 30, rel=1e-5)
    assert found.posterior[:, 1].sum().item() == pytest.approx(1, rel=1e-4)


@by_name
def test_inference_of_a_single_group_leaves_probabilities_as_they_are(name):
    aggregate = AGGREGATES[name]
    groups = Groups.from_sizes([aggregate.size or 3])
    log_probs = torch.randn(groups.max_size, 2, dtype=torch.float64).log_softmax(-1)
    before = log_probs.clone()
    aggregate.infer(log_probs, groups.segments, aggregate.check([1], groups, 2))
    torch.testing.assert_close(log_probs, before, rtol=0, atol=0)
