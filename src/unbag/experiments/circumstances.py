"""Where results come from: the machine, the versions, the state of the code."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch

from unbag.datasets import Dataset
from unbag.environment import commit, hardware, versions
from unbag.experiments.ordered import OrderedTable


def describe(device: torch.device) -> dict[str, Any]:
    """Return what every result is stored with."""
    return {"hardware": hardware(device), "versions": versions("scikit-learn"), "commit": commit()}


def content_digest(data: Dataset | OrderedTable) -> str:
    """Return a digest of the rows and labels of a data set, of which there may be several versions."""
    labels = data.values if isinstance(data, OrderedTable) else data.y
    content = hashlib.sha256()
    for array in (data.X, labels):
        content.update(f"{array.dtype} {array.shape}".encode())
        content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()[:12]
