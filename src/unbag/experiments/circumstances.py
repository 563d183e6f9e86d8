"""Where results come from: the machine, the versions, the state of the code."""

from __future__ import annotations

from typing import Any

import torch

from unbag.environment import commit, hardware, versions


def describe(device: torch.device) -> dict[str, Any]:
    """Return what every result is stored with."""
    return {"hardware": hardware(device), "versions": versions("scikit-learn"), "commit": commit()}
