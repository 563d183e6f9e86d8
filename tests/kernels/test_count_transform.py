"""Exact counts of larger groups: the transform against the lattice of count states, and the boxes it runs in."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from unbag import Groups, LabelProportions
from unbag._kernels import boxes as costs
from unbag._kernels import count_transform
from unbag._kernels.count_states import infer_weighted_states, weigh_exactly
from unbag._kernels.segments import Segments


def by_states(log_probs: Tensor, segments: Segments, z: Tensor) -> tuple[Tensor, Tensor]:
    """Walk through the count vectors, which neither tilts nor transforms."""
    columns = torch.arange(z.shape[1]).expand(len(z), -1)
    return infer_weighted_states(log_probs, segments, columns, weigh_exactly(z), tuple(z.amax(0).tolist()))


@st.composite
def problems(draw: st.DrawFn) -> tuple[Tensor, Segments, Tensor]:
    """Groups of several sizes, at logits from alike to confident, counted from the logits or against them."""
    k = draw(st.integers(3, 7))
    sizes = draw(st.lists(st.integers(1, 14), min_size=1, max_size=5))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    scale = draw(st.sampled_from([0.0, 0.3, 1.0, 3.0, 10.0, 100.0, 1e4]))
    log_probs = (scale * torch.randn(sum(sizes), k, generator=random, dtype=torch.float64)).log_softmax(1)
    labels = torch.randint(draw(st.integers(1, k)), (sum(sizes),), generator=random)
    if draw(st.booleans()):
        labels = torch.multinomial(log_probs.exp(), 1, generator=random).flatten()
    ruled_out = torch.rand(log_probs.shape, generator=random) < draw(st.sampled_from([0.0, 0.0, 0.3]))
    ruled_out[torch.arange(len(labels)), labels] = draw(st.booleans()) and len(sizes) > 3  # then often impossible
    ruled_out[:, 0] &= ~ruled_out.all(1)
    groups = Groups.from_sizes(sizes)
    z = LabelProportions().observe(labels, groups, k)
    return log_probs.masked_fill(ruled_out, -torch.inf), groups.segments, z


@settings(max_examples=60)
@given(problems(), st.sampled_from([1, 100, 2**16]), st.booleans())
def test_transform_is_the_sum_over_count_states(
    problem: tuple[Tensor, Segments, Tensor], chunk: int, alone: bool
) -> None:
    log_probs, segments, z = problem
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(count_transform, "CHUNK", chunk)
        patch.setattr(costs, "PER_LEVEL", 2**40)  # never by count states
        if alone:
            patch.setattr(costs, "PER_TRANSFORM", 0)
        log_total, posterior = count_transform.infer_counts_by_transform(log_probs, segments, z)
    expected_total, expected_posterior = by_states(log_probs, segments, z)
    torch.testing.assert_close(log_total, expected_total, rtol=1e-12, atol=1e-9)
    possible = segments.expand(expected_total) > -torch.inf
    torch.testing.assert_close(posterior[possible], expected_posterior[possible], rtol=0, atol=1e-9)


def test_what_the_transform_loses_is_found_by_count_states(monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(0)
    log_probs = torch.randn(40, 4, generator=random, dtype=torch.float64).log_softmax(1)
    segments, z = Segments.from_sizes([12, 16, 12]), torch.tensor([[3, 3, 3, 3], [1, 5, 5, 5], [0, 1, 1, 10]])
    monkeypatch.setattr(count_transform, "MIN_PROBABILITY", 1.0)
    monkeypatch.setattr(count_transform, "_invert", lambda probs, z, *_: (torch.zeros(len(z)).double(), probs))
    for found, expected in zip(
        count_transform.infer_counts_by_transform(log_probs, segments, z),
        by_states(log_probs, segments, z),
        strict=True,
    ):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("z", [[1] * 17, [2] * 8 + [1], [5] * 6, [40, 40, 40]], ids=str)
def test_members_who_are_all_alike_keep_their_digits(z: list[int]) -> None:
    """The probability of z is never smaller after tilting than it is here: m! / m^m prod_j z_j^z_j / z_j!."""
    counts = torch.tensor([z])
    size, k = sum(z), len(z)
    log_probs = torch.full((size, k), -math.log(k), dtype=torch.float64)
    log_total, posterior = count_transform.infer_counts_by_transform(log_probs, Segments.from_sizes([size]), counts)
    expected = math.lgamma(size + 1) - sum(math.lgamma(count + 1) for count in z) - size * math.log(k)
    assert float(log_total[0]) == pytest.approx(expected, abs=1e-9)
    torch.testing.assert_close(posterior, (counts.double() / size).expand(size, -1), rtol=0, atol=1e-9)
