"""Base class of methods that learn an embedding, and cluster it by k-means."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unbag_experiments.baselines.base import Judged, Method, Task
from unbag_experiments.baselines.clustering import k_means


@dataclass(frozen=True)
class Embedding(Method):
    """A method whose model maps rows to vectors; k-means on the vectors of what is judged makes classes of them.

    The classes have no names, so accuracy is that under the best renaming.

    Parameters
    ----------
    width
        Outputs of the model; None for as many as there are classes, so that the network is the same one, weight for
        weight, as that of the other methods. The paper gives no number.
    """

    width: int | None = None

    def __post_init__(self) -> None:
        if self.width is not None and (isinstance(self.width, bool) or not isinstance(self.width, int)):
            raise TypeError(f"width must be a whole number, or None for one output per class; got {self.width!r}")
        if self.width is not None and self.width < 2:
            raise ValueError(f"width must be at least 2, or None for one output per class; got {self.width}")

    def n_outputs(self, n_classes: int) -> int:
        """Return the width of the embedding."""
        return n_classes if self.width is None else self.width

    def embed(self, outputs: Tensor) -> Tensor:
        """Return the vectors that distances are measured between."""
        return outputs

    def predict(self, outputs: Tensor, judged: Judged, task: Task) -> Tensor:
        """Return the cluster of each row, by k-means with fixed random numbers."""
        vectors = self.embed(outputs)
        if not bool(vectors.isfinite().all()):  # a model that diverged tells no classes apart
            return torch.zeros(len(vectors), dtype=torch.int64, device=vectors.device)
        return k_means(vectors, task.n_classes)
