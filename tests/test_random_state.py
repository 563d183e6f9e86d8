"""Random numbers of a run beside those of the rest of the process."""

import pytest
from torch import nn

from unbag._utils.random_state import first_seed, may_draw
from unbag.objectives import losses


class Own(nn.Module):
    def forward(self, x):
        return x


def hooked():
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda *_: None)
    return layer


def with_another_forward():
    layer = nn.Linear(2, 2)
    layer.forward = lambda x: x
    return layer


@pytest.mark.parametrize(
    "part",
    [
        nn.Dropout(0.1),
        nn.Sequential(nn.Linear(2, 2), nn.AlphaDropout()),
        nn.RReLU(),
        nn.GRU(2, 2, num_layers=2, dropout=0.1),
        nn.MultiheadAttention(4, 2, dropout=0.1),
        Own(),
        hooked(),
        with_another_forward(),
        nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2)),
        lambda scores: scores,
    ],
)
def test_what_may_draw(part):
    assert may_draw(nn.Linear(2, 2), part)


def test_what_draws_nothing():
    known = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.LayerNorm(2), nn.GRU(2, 2), nn.MultiheadAttention(4, 2))
    assert not may_draw(known, losses.cross_entropy, None)


@pytest.mark.parametrize("seed", [-1, 2**32, 2**64])
def test_seeds_outside_of_the_range_are_refused(seed):
    with pytest.raises(ValueError, match=rf"random_state must be a whole number from 0 to 4,294,967,295, got {seed}"):
        first_seed(seed)
