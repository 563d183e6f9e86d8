"""Losses against numbers worked out by hand, and what they do at the edges."""

import math
from functools import partial

import pytest
import torch

from unbag.objectives.losses import LOSSES, focal, gce, logistic, symmetric_cross_entropy

INF = float("inf")

# For probabilities 0.5, 0.3 and 0.2; the logistic loss, which is not of probabilities, for logits 0, 1 and -2.
BY_HAND = {
    "cross_entropy": [0.693147, 1.203973, 1.609438],
    # softplus of 0, 1, -1, 2, -2: 0.693147, 1.313262, 0.313262, 2.126928, 0.126928
    "logistic": [0.693147 + 1.313262 + 0.126928, 0.313262 + 0.693147 + 0.126928, 2.126928 + 0.693147 + 1.313262],
    "mae": [0.5 + 0.3 + 0.2, 0.5 + 0.7 + 0.2, 0.5 + 0.3 + 0.8],
    "mse": [0.25 + 0.09 + 0.04, 0.25 + 0.49 + 0.04, 0.25 + 0.09 + 0.64],
    "gce": [(1 - 0.615572) / 0.7, (1 - 0.430512) / 0.7, (1 - 0.324131) / 0.7],
    "focal": [0.25 * 0.693147, 0.49 * 1.203973, 0.64 * 1.609438],
    "symmetric_cross_entropy": [0.0693147 + 2.0, 0.1203973 + 2.8, 0.1609438 + 3.2],
}

# For logits 1e4, 0 and -1e4.
FAR_APART = {
    "cross_entropy": [0.0, 1e4, 2e4],
    "logistic": [0.693147, 1e4 + 0.693147, 2e4 + 0.693147],
    "mae": [0.0, 2.0, 2.0],
    "mse": [0.0, 2.0, 2.0],
    "gce": [0.0, 1 / 0.7, 1 / 0.7],
    "focal": [0.0, 1e4, 2e4],
    "symmetric_cross_entropy": [0.0, 1e3 + 4, 2e3 + 4],
}

EXTREME = [
    [1e4, 0.0, -1e4],
    [-1e4, -1e4, 1e4],
    [1e4, 1e4, 1e4],
    [-1e4, -1e4, -1e4],
    [200.0, -200.0, 0.0],
    [200.0, 200.0, -200.0],
    [0.0, 1e-8, -20.0],
]


def example_for(name):
    row = [0.0, 1.0, -2.0] if name == "logistic" else [math.log(0.5), math.log(0.3), math.log(0.2)]
    return torch.tensor([row], dtype=torch.float64)


def value_and_gradient(loss, rows, dtype=torch.float32):
    """Evaluate a loss, and differentiate the sum of its finite entries."""
    logits = torch.tensor(rows, dtype=dtype, requires_grad=True)
    losses = loss(logits)
    (gradient,) = torch.autograd.grad(losses.masked_fill(losses == INF, 0).sum(), logits)
    return losses.detach(), gradient


def test_every_loss_has_numbers_here():
    assert set(LOSSES) == set(BY_HAND) == set(FAR_APART)


@pytest.mark.parametrize("name", LOSSES)
def test_by_hand(name):
    losses = LOSSES[name](example_for(name))
    torch.testing.assert_close(losses, torch.tensor([BY_HAND[name]], dtype=torch.float64), rtol=0, atol=3e-6)
    losses, _ = value_and_gradient(LOSSES[name], [[1e4, 0.0, -1e4]])
    torch.testing.assert_close(losses, torch.tensor([FAR_APART[name]]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("loss", [*LOSSES.values(), *(partial(focal, gamma=gamma) for gamma in (0, 1e-3, 0.5, 5, 1e3))])
def test_extreme_logits_stay_finite(loss, dtype):
    losses, gradient = value_and_gradient(loss, EXTREME, dtype)
    assert losses.dtype == dtype
    assert losses.isfinite().all()
    assert gradient.isfinite().all()
    assert (losses >= 0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_float32_agrees_with_float64(name):
    rows = [[20.0, 0.0, -5.0], [12.0, 1.0, 11.0], [-3.0, 0.2, 0.1], [0.0, -40.0, -90.0]]
    single, double = (value_and_gradient(LOSSES[name], rows, dtype) for dtype in (torch.float32, torch.float64))
    for low, high in zip(single, double, strict=True):
        torch.testing.assert_close(low.double(), high, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("loss", [*LOSSES.values(), *(partial(focal, gamma=gamma) for gamma in (0, 0.3, 1, 3.5))])
def test_gradient(loss):
    torch.manual_seed(0)
    logits = (4 * torch.randn(6, 4, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(loss, logits)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("row", [[0.0, 1.0], [1e4, -1e4], [-1.5]])
def test_a_class_ruled_out_changes_nothing_for_the_others(name, row):
    width = len(row)
    losses, gradient = value_and_gradient(lambda logits: LOSSES[name](logits)[:, :width], [[*row, -INF, -INF]])
    expected, slope = value_and_gradient(LOSSES[name], [row])
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(gradient[:, :width], slope)
    assert (gradient[:, width:] == 0).all()


@pytest.mark.parametrize("name", ["cross_entropy", "logistic", "focal", "symmetric_cross_entropy"])
def test_a_class_ruled_out_costs_infinity(name):
    losses, gradient = value_and_gradient(LOSSES[name], [[0.0, -INF, 1.0], [-INF, 5.0, -INF]])
    assert (losses == INF).tolist() == [[False, True, False], [True, False, True]]
    assert gradient.isfinite().all()


def test_logistic_of_two_classes_is_the_one_of_the_paper():
    f = torch.tensor([-2.0, 0.0, 3.0], dtype=torch.float64)
    losses = logistic(torch.stack([torch.zeros_like(f), f], 1)) - math.log(2)
    # log(1 + e^f) for the negative class and log(1 + e^-f) for the positive one, f = -2, 0, 3
    by_hand = torch.tensor([[0.126928, 2.126928], [0.693147, 0.693147], [3.048587, 0.048587]], dtype=torch.float64)
    torch.testing.assert_close(losses, by_hand, rtol=0, atol=1e-6)


def test_logistic_keeps_small_terms():
    # softplus(-1e4) = 0 and twice softplus(-1) = 0.3132617; a total near 1e4 has a resolution of 1e-3.
    assert logistic(torch.tensor([[-1.0, 1e4, -1.0]]))[0, 1].item() == pytest.approx(0.6265234, abs=1e-6)
    # Where softplus is the identity
    losses = logistic(torch.tensor([[25.0, -INF]], dtype=torch.float64))
    assert losses[0, 0].item() == pytest.approx(math.exp(-25), rel=1e-9, abs=0)


HALVES, QUARTERS = (torch.tensor([p], dtype=torch.float64).log() for p in ([0.5, 0.5], [0.25, 0.75]))


@pytest.mark.parametrize(
    ("loss", "parameters", "logits", "expected"),
    [
        (gce, {"q": 0.5}, QUARTERS, [1.0, 0.267949]),
        (gce, {"q": 1}, QUARTERS, [0.75, 0.25]),  # half of mae
        (gce, {"q": 1e-9}, QUARTERS, [1.386294, 0.287682]),  # cross entropy
        (focal, {"gamma": 0}, QUARTERS, [1.386294, 0.287682]),
        # 2 * 0.693147 + 3 * 6 * 0.5
        (symmetric_cross_entropy, {"alpha": 2.0, "beta": 3.0, "log_zero": -6.0}, HALVES, [10.386294, 10.386294]),
    ],
)
def test_parameters(loss, parameters, logits, expected):
    assert loss(logits, **parameters)[0].tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("loss", "parameters", "message"),
    [
        (gce, {"q": 0}, "q must be a number above 0 and up to 1, got 0; for q = 0 use cross_entropy"),
        (gce, {"q": 1.5}, "q must be a number above 0 and up to 1, got 1.5"),
        (gce, {"q": float("nan")}, "q must be a number above 0 and up to 1, got nan"),
        (gce, {"q": "0.7"}, "q must be a number above 0 and up to 1, got '0.7'"),
        (focal, {"gamma": -1}, "gamma must be a finite number of at least 0, got -1"),
        (focal, {"gamma": INF}, "gamma must be a finite number of at least 0, got inf"),
        (symmetric_cross_entropy, {"alpha": 0}, "alpha must be a finite number above 0, got 0; for alpha = 0 use mae"),
        (symmetric_cross_entropy, {"beta": -0.5}, "beta must be a finite number of at least 0, got -0.5"),
        (symmetric_cross_entropy, {"log_zero": 0.0}, "log_zero must be a finite number below 0, got 0.0"),
        (symmetric_cross_entropy, {"log_zero": -INF}, "log_zero must be a finite number below 0, got -inf"),
    ],
)
def test_parameters_out_of_range(loss, parameters, message):
    with pytest.raises(ValueError, match=message):
        loss(torch.zeros(1, 2), **parameters)
