"""How well probabilities rank what is judged, and how far they are from frequencies."""

from __future__ import annotations

import torch
from torch import Tensor

BINS = 15
"""Of equal width, as is usual for the calibration error."""


def area_under_curve(ranks: Tensor, positive: Tensor) -> float | None:
    """Return the area under the ROC curve; None where all are of one class.

    Examples
    --------
    >>> area_under_curve(torch.tensor([0.1, 0.4, 0.4, 0.9]), torch.tensor([False, False, True, True]))
    0.875
    """
    n_positive = int(positive.sum())
    n_negative = len(positive) - n_positive
    if not n_positive or not n_negative:
        return None
    _, place, counts = ranks.unique(return_inverse=True, return_counts=True)
    ends = counts.cumsum(0).double()
    rank = (ends - (counts.double() - 1) / 2)[place]  # from 1; of equal ones, the mean
    above = float(rank[positive].sum()) - n_positive * (n_positive + 1) / 2
    return above / (n_positive * n_negative)


def mean_area(log_probs: Tensor, truth: Tensor) -> float | None:
    """Return the mean over classes of the area under the curve of each against the rest; of two classes, the second's.

    A class that is not among the truth, or all of it, is left out.
    """
    classes = range(log_probs.shape[1]) if log_probs.shape[1] > 2 else [1]
    areas = [area_under_curve(log_probs[:, one], truth == one) for one in classes]
    known = [area for area in areas if area is not None]
    return sum(known) / len(known) if known else None


def calibration_error(log_probs: Tensor, truth: Tensor) -> float:
    """Return the expected calibration error: the mean distance of confidence from accuracy, over bins of confidence.

    Examples
    --------
    >>> round(calibration_error(torch.tensor([[0.9, 0.1], [0.9, 0.1]]).log(), torch.tensor([0, 1])), 4)
    0.4
    """
    confidence, guessed = log_probs.double().exp().max(1)
    which = (confidence * BINS).long().clamp_max(BINS - 1)
    apart = torch.zeros(BINS, dtype=torch.float64, device=log_probs.device)
    apart.index_add_(0, which, (guessed == truth).double() - confidence)
    return float(apart.abs().sum()) / len(truth)


MEASURES = {"auc": mean_area, "calibration": calibration_error}
"""By the names that the plan calls them."""
