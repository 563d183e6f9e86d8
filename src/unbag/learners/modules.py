"""Parts of fitted models as modules of torch, which ``torch.export`` accepts: no operation depends on a value."""

from __future__ import annotations

from copy import copy

from torch import Tensor, nn

from unbag.data.row_source import fill_missing
from unbag.learners.features import FeatureMap


class FillMissing(nn.Module):
    """Replace missing values and append indicators; see :func:`unbag.data.row_source.fill_missing`."""

    columns: Tensor

    def __init__(self, columns: Tensor) -> None:
        super().__init__()
        self.register_buffer("columns", columns)

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows without missing values."""
        return fill_missing(x, self.columns)


class Features(nn.Module):
    """A feature map whose tensors are buffers, so that they are moved and saved with the module."""

    def __init__(self, features: FeatureMap) -> None:
        super().__init__()
        self._features, self._names = features, tuple(features.tensors())
        for name, tensor in features.tensors().items():
            self.register_buffer(name, tensor)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of rows."""
        features = copy(self._features)  # not a new map, which would validate values
        for name in self._names:
            object.__setattr__(features, name, getattr(self, name))
        return features(x)


def make_linear(weight: Tensor) -> nn.Linear:
    """Return a layer with weights of shape ``(inputs + 1, outputs)``, the intercepts in the last row."""
    layer = nn.Linear(len(weight) - 1, weight.shape[1], device="meta", dtype=weight.dtype)
    layer.load_state_dict({"weight": weight[:-1].T.contiguous(), "bias": weight[-1].clone()}, assign=True)
    return layer
