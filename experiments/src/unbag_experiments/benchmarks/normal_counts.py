"""Measure the error of the normal approximation: ``python -m unbag_experiments.benchmarks.normal_counts``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from unbag import Groups
from unbag.aggregates import LabelProportions, PublishedCounts
from unbag.noise import read_noise
from unbag.published import between, exact, noisy, rounded

SHAPES = ((2, 200), (3, 32), (3, 64), (4, 24), (5, 14))  # classes and members
SCALES = (0.5, 1.0, 2.0, 4.0, 10.0, 100.0)
PUBLISHED = ("laplace:1", "laplace:5", "gaussian:2", "rounded", "suppressed")


def run(n_groups: int = 8) -> Iterator[dict[str, Any]]:
    """Compare the approximation with the exact sum on each cell of the grid."""
    for k, size in SHAPES:
        for scale in SCALES:
            for how in PUBLISHED:
                yield _compare(k, size, scale, how, n_groups)


def _compare(k: int, size: int, scale: float, how: str, n_groups: int) -> dict[str, Any]:
    random = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(n_groups * size, k, generator=random, dtype=torch.float64)
    groups = Groups.from_sizes([size] * n_groups)
    labels = torch.multinomial(logits.softmax(1), 1, generator=random).flatten()
    z = _publish(LabelProportions().observe(labels, groups, k), how, random)
    evidence = {method: PublishedCounts(method, 2**20).evidence(logits, groups, z) for method in ("exact", "normal")}
    error = (evidence["normal"].posterior - evidence["exact"].posterior).abs()
    of_likelihood = (evidence["normal"].log_likelihood - evidence["exact"].log_likelihood).abs()
    return {
        "classes": k,
        "members": size,
        "scale": scale,
        "published": how,
        "mean": float(error.mean()),
        "largest": float(error.max()),
        "log_likelihood": float(of_likelihood.mean()),
    }


def _publish(counts: Tensor, how: str, random: torch.Generator) -> Tensor:
    if how == "rounded":
        return rounded((counts / 5).round() * 5, to=5)
    if how == "suppressed":
        return torch.where((counts < 5)[..., None], between(0, 4), exact(counts))
    noise = read_noise(how)
    return noisy(counts + noise.sample(tuple(counts.shape), random), noise)


if __name__ == "__main__":
    for cell in run():
        json.dump(cell, sys.stdout)
        print(flush=True)
