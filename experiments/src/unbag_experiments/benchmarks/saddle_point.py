"""Measure the error of the saddle point: ``python -m unbag_experiments.benchmarks.saddle_point``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from unbag import Groups
from unbag.aggregates import LabelProportions

CLASSES = (3, 4, 5, 8, 10, 12, 15, 17)
SIZES = (11, 14, 17, 20, 24, 32, 48, 64, 96, 128)
SCALES = (0.5, 1.0, 2.0, 4.0, 10.0, 30.0, 100.0, 1e3, 1e4)
DRAWS = ("from the logits", "at random", "one of each")
# Exact sums of more states take too long for a grid.
MOST_STATES = 2**18


def run(n_groups: int = 4) -> Iterator[dict[str, Any]]:
    """Compare both on each cell of the grid for which the exact sum is affordable."""
    for k in CLASSES:
        for size in SIZES:
            for scale in SCALES:
                for draw in DRAWS:
                    cell = _compare(k, size, scale, draw, n_groups)
                    if cell is not None:
                        yield cell


def _compare(k: int, size: int, scale: float, draw: str, n_groups: int) -> dict[str, Any] | None:
    random = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(n_groups * size, k, generator=random, dtype=torch.float64)
    groups = Groups.from_sizes([size] * n_groups)
    if draw == "one of each" and size < k:
        return None
    z = LabelProportions().observe(_labels(logits, draw, size, random), groups, k)
    if float((z + 1.0).prod(1).max()) > MOST_STATES:
        return None
    exact = LabelProportions("exact", max_states=MOST_STATES).evidence(logits, groups, z)
    approximate = LabelProportions("saddle_point").evidence(logits, groups, z)
    error = (approximate.posterior - exact.posterior).abs()
    return {
        "classes": k,
        "members": size,
        "scale": scale,
        "draw": draw,
        "present": float((z > 0).double().sum(1).mean()),
        "mean": float(error.mean()),
        "largest": float(error.max()),
        "log_likelihood": float((approximate.log_likelihood - exact.log_likelihood).abs().mean()),
        "flipped": float((approximate.posterior.argmax(1) != exact.posterior.argmax(1)).double().mean()),
    }


def _labels(logits: Tensor, draw: str, size: int, random: torch.Generator) -> Tensor:
    n, k = logits.shape
    if draw == "from the logits":
        return torch.multinomial(logits.softmax(1), 1, generator=random).flatten()
    if draw == "at random":
        return torch.randint(k, (n,), generator=random)
    return (torch.arange(n) % size).clamp_max(k - 1)  # the last class takes the rest


if __name__ == "__main__":
    for cell in run():
        json.dump(cell, sys.stdout)
        print(flush=True)
