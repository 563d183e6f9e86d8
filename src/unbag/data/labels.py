"""The distribution that a model predicts for the label of a row.

Everything that depends on the form of a label goes through this class: what a model's outputs mean, what an M-step
minimises, how predictions are mixed and calibrated.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Categorical:
    """A distribution over classes, parametrised by logits of shape ``(rows, classes)``."""

    n_classes: int

    @property
    def n_outputs(self) -> int:
        """Return the number of outputs that a model has for each row."""
        return self.n_classes

    def log_probs(self, outputs: Tensor) -> Tensor:
        """Return log-probabilities from logits."""
        return outputs.log_softmax(-1)

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the most likely label of each row."""
        return outputs.argmax(-1)

    def initial_outputs(self, n_rows: int) -> Tensor:
        """Return the outputs of a model that knows nothing, shape ``(rows, outputs)``."""
        return torch.zeros(n_rows, self.n_outputs)

    def risk(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the cross entropy of each row with weighted expected labels, shape ``(rows,)``."""
        return -(targets * outputs.log_softmax(1)).sum(1)

    def extrapolate(self, targets: Tensor, outputs: Tensor, overrelaxation: float) -> Tensor:
        """Move expected labels, ``(rows, classes)``, beyond the posterior, away from the prediction of the E-step.

        Expectation-maximisation is slow where groups are large, because the posterior of a row is then close to its
        current prediction. The extrapolation changes the speed and not the fixed point (Salakhutdinov and Roweis,
        2003), except where it has to be clamped, which biases small groups.
        """
        if overrelaxation == 0:
            return targets
        weight = targets.sum(1, keepdim=True)
        moved = (targets + overrelaxation * (targets - weight * outputs.softmax(1).to(targets))).clamp_min(0)
        return moved * (weight / moved.sum(1, keepdim=True).clamp_min(torch.finfo(moved.dtype).tiny))

    def mix(self, outputs: Tensor, log_weights: Tensor, sharpness: Tensor) -> Tensor:
        """Compute the log-probabilities of a mixture of models, whose logits are ``(models, rows, classes)``.

        ``log_weights`` and ``sharpness``, the inverse temperatures, have shape ``(models,)``.
        """
        tempered = (outputs * sharpness[:, None, None]).log_softmax(2)
        return (tempered + log_weights[:, None, None]).logsumexp(0)

    def temper(self, outputs: Tensor, sharpness: Tensor) -> Tensor:
        """Compute log-probabilities at several inverse temperatures, shape ``(temperatures, rows, classes)``."""
        return (outputs * sharpness[:, None, None]).log_softmax(-1)
