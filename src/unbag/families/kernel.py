"""Kernel logistic regression of few labelled rows with many columns, such as the pooled columns of bags."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unbag.families.base import Fitted
from unbag.families.networks import Network
from unbag.models.rbf import RBF, gaussian_kernel
from unbag.out_of_fold import mean_log_likelihood
from unbag.training import Observations, Trained
from unbag.training.scaling import fit_scaling

MOST_ROWS = 256
"""Each row is the centre of a kernel."""
# Penalties among which left-out rows choose, and steps of Newton's method, which has converged long before.
RIDGES, STEPS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0), 12
# Of a row that is sure, by which can be divided.
LEAST_CURVATURE = 1e-6


def is_for_kernel(X: Tensor, observations: Sequence[Observations]) -> bool:
    """Whether these are labels of a few rows of two classes, with more columns than rows."""
    labels = len(observations) == 1 and observations[0].groups.max_size == 1 and observations[0].n_classes == 2
    few = X.ndim == 2 and len(observations[0].groups) <= min(MOST_ROWS, X.shape[1] - 1)
    return labels and few and observations[0].aggregate.outcome == "class_counts"


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
        """Fit the weights of the kernels under each penalty, and keep those that explain left-out rows best."""
        (one,), begun = used, time.perf_counter()
        rows = X[one.groups.members]
        scaling = fit_scaling(rows)
        centres = scaling(rows).double()
        width = 1 / centres.square().sum(1).mean().clamp_min(1e-12)
        kernel = gaussian_kernel(centres, centres, width)
        judges, found = held_out or used, []
        for ridge in RIDGES:
            net = RBF(centres.shape[1], 2, MOST_ROWS)
            weights, constant = fit_kernel(kernel, one.checked[:, 1].double(), one.weights.double(), ridge)
            with torch.no_grad():
                for part in net.parameters():
                    part.zero_()
                net.centres[: len(rows)], net.width[:] = centres, width
                net.output.weight[1, : len(rows)], net.output.bias[1] = weights, constant
            model = Network(scaling, net.eval())
            log_probs = [model.log_probs(X[own.groups.members]) for own in judges]
            found.append((mean_log_likelihood(judges, log_probs), model))
        score, model = max(found, key=lambda one: one[0])
        loss, seconds = -mean_log_likelihood(used, [model.log_probs(rows)]), time.perf_counter() - begun
        entry = {"epoch": 0, "phase": "likelihood", "loss": [loss], "score": [score], "seconds": seconds}
        return Fitted(Trained([model], [entry], [0], [score]), ["standard"], [score])


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
    found = torch.zeros(n + 1, dtype=kernel.dtype)
    for _ in range(STEPS):
        probs = logits.sigmoid()
        curvature = (probs * (1 - probs)).clamp_min(LEAST_CURVATURE)
        aims = torch.cat([logits + (labels - probs) / curvature, corner[0]])
        system = torch.cat([kernel + (ridge / (weights * curvature)).diag(), ones])
        found = torch.linalg.solve(torch.cat([system, torch.cat([ones.T, corner])], 1), aims)
        logits = kernel @ found[:n] + found[n]
    return found[:n], found[n]
