"""Adam in pieces, against torch's."""

from __future__ import annotations

import pytest
import torch

from unbag.training.adam import PIECE, PiecewiseAdam


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("rate", [float, torch.tensor])
def test_steps_are_those_of_adam(weight_decay, rate):
    random = torch.Generator().manual_seed(0)
    shapes = [(3, PIECE + 5), (7,), (2, 3, 4, 5), (4,)]
    found = []
    for kind in (torch.optim.Adam, PiecewiseAdam):
        random.manual_seed(0)
        parameters = [torch.randn(shape, generator=random).requires_grad_() for shape in shapes]
        # One that does not lie in order, and one that is not used.
        parameters[2] = parameters[2].detach().contiguous(memory_format=torch.channels_last).requires_grad_()
        optimiser = kind(parameters, lr=rate(0.1), weight_decay=weight_decay, fused=True)
        for _ in range(4):
            optimiser.zero_grad()
            sum((parameter**2 * parameter.sin()).sum() for parameter in parameters[:3]).backward()
            optimiser.step()
        states = [tensor for parameter in parameters[:3] for tensor in optimiser.state[parameter].values()]
        found.append([*parameters, *states])
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)


def test_a_closure_is_called():
    parameter = torch.ones(2, requires_grad=True)
    optimiser = PiecewiseAdam([parameter], fused=True)

    def closure():
        optimiser.zero_grad()
        loss = parameter.square().sum()
        loss.backward()
        return loss

    assert optimiser.step(closure) == 2
    assert optimiser.step(closure) < 2
