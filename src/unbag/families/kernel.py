"""Kernel logistic regression of few labelled rows with many columns, such as the pooled columns of bags."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unbag.data.scaling import fit_scaling
from unbag.families.base import MOST_LABELS, Fitted, judge
from unbag.families.networks import Network
from unbag.training import Observations
from unbag.training.architectures.rbf import RBF, gaussian_kernel

# Penalties among which left-out rows choose, and steps of Newton's method, which has converged long before.
RIDGES, STEPS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0), 12
# Of a row that is sure, by which can be divided.
LEAST_CURVATURE = 1e-6


@dataclass(frozen=True)
class KernelLogistic:
    """Logistic regression on Gaussian kernels around all rows, which ends as a network of these."""

    def fit(
        self,
        X: Tensor,
        used: Sequence[Observations],
        held_out: Sequence[Observations],
        seed: int,
        time_limit: float | None = None,
        *,
        goal: float | None = None,
    ) -> Fitted:
        """Fit the weights of the kernels under each penalty; left-out rows choose among these."""
        (one,), begun = used, time.perf_counter()
        rows = X[one.groups.members]
        scaling = fit_scaling(rows)
        centres = scaling(rows).double()
        width = 1 / centres.square().sum(1).mean().clamp_min(1e-12)
        kernel = gaussian_kernel(centres, centres, width)
        models = []
        for ridge in RIDGES:
            net = RBF(centres.shape[1], 2, MOST_LABELS)  # a kernel around each
            weights, constant = fit_kernel(kernel, one.checked[:, 1].double(), one.weights.double(), ridge)
            with torch.no_grad():
                for part in net.parameters():
                    part.zero_()
                net.centres[: len(rows)], net.width[:] = centres, width
                net.output.weight[1, : len(rows)], net.output.bias[1] = weights, constant
            models.append(Network(scaling, net.eval()))
        return judge(models, X, used, held_out, scaling="standard", begun=begun)


def fit_kernel(kernel: Tensor, labels: Tensor, weights: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Return the weights of kernels and a constant that minimise the weighted log loss with a penalty.

    The penalty is ``ridge / 2`` times the squared norm of the function, ``a' K a``: Newton's method on the dual.

    Parameters
    ----------
    kernel
        Between all rows, ``(n, n)``.
    labels, weights
        Of each row, 0 or 1, and how much it counts.
    ridge
        The penalty.
    """
    n = len(labels)
    logits = torch.zeros_like(labels)
    ones = torch.ones(1, n, dtype=kernel.dtype)
    corner = torch.zeros(1, 1, dtype=kernel.dtype)
    solution = torch.zeros(n + 1, dtype=kernel.dtype)
    for _ in range(STEPS):
        probs = logits.sigmoid()
        curvature = (probs * (1 - probs)).clamp_min(LEAST_CURVATURE)
        aims = torch.cat([logits + (labels - probs) / curvature, corner[0]])
        system = torch.cat([kernel + (ridge / (weights * curvature)).diag(), ones])
        solution = torch.linalg.solve(torch.cat([system, torch.cat([ones.T, corner])], 1), aims)
        logits = kernel @ solution[:n] + solution[n]
    return solution[:n], solution[n]
