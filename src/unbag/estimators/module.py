"""A fitted classifier as one module of torch."""

import math
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unbag.data.scaling import Scaling
from unbag.ensemble import Mixture
from unbag.estimators.training_data import scale


class ClassifierModule(nn.Module):
    """Log-probabilities of the classes from rows: scaling, models, mixture and temperatures."""

    log_weights: Tensor
    sharpness: Tensor
    orders: Tensor  # (candidates, folds, classes), the output that each class is read from
    class_order: Tensor

    def __init__(self, scaling: Scaling, mixture: Mixture, class_order: np.ndarray) -> None:
        super().__init__()
        self.labels, self.scaling = mixture.labels, deepcopy(scaling).cpu()
        self.candidates = nn.ModuleList(
            nn.ModuleList(_to_module(model, candidate.name) for model in candidate.models)
            for candidate in mixture.candidates
        )
        self.register_buffer("log_weights", mixture.weights.log())
        self.register_buffer("sharpness", mixture.sharpness)
        self.register_buffer("orders", torch.from_numpy(np.array([c.orders for c in mixture.candidates])))
        self.register_buffer("class_order", torch.from_numpy(np.array(class_order)))

    def forward(self, x: Tensor) -> Tensor:
        """Return log-probabilities, shape ``(rows, classes)``, float32."""
        rows, outputs = scale(self.scaling, x), []
        for models, orders in zip(self.candidates, self.orders.unbind(), strict=True):
            assert isinstance(models, nn.ModuleList)
            folds = [
                self.labels.log_probs(model(rows))[:, order]
                for model, order in zip(models, orders.unbind(), strict=True)
            ]
            outputs.append(torch.stack(folds).logsumexp(0) - math.log(len(folds)))
        mixed = self.labels.mix(torch.stack(outputs), self.log_weights, self.sharpness)
        return mixed.log_softmax(1)[:, self.class_order]


def _to_module(model: Any, name: str) -> nn.Module:
    if not hasattr(model, "to_module"):
        raise ValueError(
            f"the fitted mixture contains {name!r}, which is no torch module; fit a network or a linear model "
            'instead, for example with model="mlp" or model="linear"'
        )
    return model.to_module()
