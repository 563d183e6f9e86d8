"""Two classes from a single output."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unbag._utils.checks import describe


class OneLogit(nn.Module):
    """Turn a model with one output f into a classifier of two classes with logits ``[0, f]``.

    The probability of class 1 is then the logistic function of f.

    Examples
    --------
    >>> one = OneLogit(nn.Identity())
    >>> one(torch.tensor([[3.0], [-1.0]]))
    tensor([[ 0.,  3.],
            [ 0., -1.]])
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of shape ``(n, 2)``."""
        f = self.net(x).reshape(x.shape[0], 1)  # (n, 1), also from a model that returns (n,)
        return torch.cat([torch.zeros_like(f), f], 1)


def n_outputs(net: nn.Module, input_shape: Sequence[int]) -> int:
    """Run a model on two rows of zeros and return how many outputs each row gets.

    Examples
    --------
    >>> n_outputs(nn.Linear(4, 3), (4,))
    3
    """
    weights = next((weight for weight in net.parameters() if weight.is_floating_point()), torch.empty(0))
    rows = torch.zeros(2, *input_shape, dtype=weights.dtype, device=weights.device)
    modes = [(part, part.training) for part in net.modules()]
    net.eval()  # so that running statistics are left alone
    try:
        with torch.no_grad():
            outputs = net(rows)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise ValueError(f"the model fails on rows of shape {tuple(input_shape)}: {error}") from error
    finally:
        for part, training in modes:
            part.training = training
    if not isinstance(outputs, Tensor) or outputs.ndim not in (1, 2) or len(outputs) != 2:
        raise ValueError(
            f"the model must return one row of logits for each row that it reads, here a tensor of shape (2, k); "
            f"got {describe(outputs)}"
        )
    return outputs[0].numel()
