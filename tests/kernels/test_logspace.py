"""Sums of what is left beside a class keep their digits in single precision."""

import pytest
import torch

from unbag._kernels.logspace import log_complement, log_sum_others, sum_others


@pytest.mark.parametrize(
    "compute", [log_complement, log_sum_others, lambda log_probs: sum_others(log_probs.exp().t()).t().log()]
)
def test_what_is_left_beside_a_likely_class_has_all_its_digits(compute):
    """One minus a probability near one has lost as many digits as the probability has nines."""
    rest = torch.logspace(-12, -0.2, 300, dtype=torch.float64)
    probs = torch.stack([1 - rest, 0.75 * rest, 0.25 * rest], 1)
    exact = torch.stack([rest, 1 - 0.75 * rest, 1 - 0.25 * rest], 1).log()
    torch.testing.assert_close(compute(probs.log().float()).double(), exact, rtol=1e-6, atol=1e-6)
