"""Linear layers with rectifiers between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn


class MLP(nn.Module):
    """A perceptron with hidden layers, one of 300 units unless told otherwise; images are read as flat rows.

    Parameters
    ----------
    n_features
        Columns of the table, or pixels of an image times its channels.
    n_classes
        Outputs.
    hidden
        Units of each hidden layer.

    Examples
    --------
    >>> import torch
    >>> MLP(4, 3, hidden=(20, 10))(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, n_features: int, n_classes: int, hidden: Sequence[int] = (300,)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for wide, narrow in pairwise((n_features, *hidden)):
            layers += [nn.Linear(wide, narrow), nn.ReLU()]
        self.hidden = nn.Sequential(*layers)
        self.output = nn.Linear((n_features, *hidden)[-1], n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of shape ``(n, n_classes)``."""
        return self.output(self.hidden(x.flatten(1)))
