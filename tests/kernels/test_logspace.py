"""Sums in log space keep their digits in single precision."""

from __future__ import annotations

import pytest
import torch

from unbag.kernels.logspace import log_complement, log_sum_others


@pytest.mark.parametrize("compute", [log_complement, log_sum_others])
@pytest.mark.parametrize("likely", [0.3, 0.7, 0.99, 1 - 1e-3, 1 - 1e-5, 1 - 1e-12])
def test_what_is_left_beside_a_likely_class_has_all_its_digits(compute, likely):
    """One minus a probability near one has lost as many digits as the probability has nines."""
    probs = torch.tensor([likely, 0.75 * (1 - likely), 0.25 * (1 - likely)], dtype=torch.float64)
    exact = torch.stack([probs[[1, 2]].sum(), probs[[0, 2]].sum(), probs[[0, 1]].sum()])
    torch.testing.assert_close(compute(probs.log().float()).double(), exact.log(), rtol=2e-6, atol=2e-6)
