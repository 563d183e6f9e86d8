"""Areas under curves and calibration errors, against their definitions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unbag_experiments.measures import BINS, area_under_curve, calibration_error, mean_area


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=12))
def test_the_area_is_the_share_of_pairs_in_order(drawn):
    ranks, positive = torch.tensor([one for one, _ in drawn]), torch.tensor([is_one for _, is_one in drawn])
    pairs = [(p, n) for p in ranks[positive].tolist() for n in ranks[~positive].tolist()]
    found = area_under_curve(ranks, positive)
    if not pairs:
        assert found is None
    else:
        assert found == pytest.approx(sum((p > n) + (p == n) / 2 for p, n in pairs) / len(pairs))


def test_of_several_classes_it_is_the_mean_of_each_against_the_rest():
    log_probs = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)).log_softmax(1)
    truth = torch.arange(30) % 3  # the last class does not occur
    areas = [area_under_curve(log_probs[:, one], truth == one) for one in range(3)]
    assert mean_area(log_probs, truth) == pytest.approx(sum(areas) / 3)
    two = log_probs[:, :2].log_softmax(1)
    assert mean_area(two, truth % 2) == pytest.approx(area_under_curve(two[:, 1], truth % 2 == 1))
    assert mean_area(two, torch.zeros(30)) is None


@given(st.integers(0, 2**16), st.integers(1, 40))
def test_the_calibration_error_is_that_of_bins(seed, n):
    generator = torch.Generator().manual_seed(seed)
    log_probs = (2 * torch.randn(n, 3, dtype=torch.float64, generator=generator)).log_softmax(1)
    truth = torch.randint(3, (n,), generator=generator)
    bins = [[] for _ in range(BINS)]
    for row, label in zip(log_probs.exp().tolist(), truth.tolist(), strict=True):
        bins[min(BINS - 1, int(max(row) * BINS))].append((max(row), row.index(max(row)) == label))
    expected = sum(abs(sum(right - sure for sure, right in one)) for one in bins) / n
    assert calibration_error(log_probs, truth) == pytest.approx(expected)
