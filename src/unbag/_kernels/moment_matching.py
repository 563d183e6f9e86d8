"""A normal approximation of the distribution of counts by its first two moments: cheap, smooth, differentiable."""

import torch
from torch import Tensor

from unbag._kernels.segments import Segments

MIN_VARIANCE = 0.3
"""Added to the variance of each count: full-batch optimisation diverges where confident models have tiny variances."""


def normal_log_likelihood(
    logits: Tensor, segments: Segments, counts: Tensor, noise_variance: Tensor, known: Tensor | None = None
) -> Tensor:
    """Approximate the log-likelihood of the counts of each group, up to a constant, shape ``(groups,)``.

    Counts of k classes sum to the size of the group: the sum over classes is scaled to k - 1 degrees of freedom. The
    variance of the noise of the counts is broadcast to ``(groups, classes)``. Counts that are not
    ``known`` are ignored.
    """
    probs = logits.softmax(1)
    mean, variance = segments.sum(torch.stack([probs, probs * (1 - probs)], 1)).unbind(1)
    variance = variance + MIN_VARIANCE + noise_variance
    k = logits.shape[1]
    residuals = (counts.to(mean) - mean).square() / variance + torch.log(variance)
    if known is None:
        return -0.5 * (k - 1) / k * residuals.sum(1)
    return -0.5 * ((k - 1) / known.sum(1)).clamp(max=1) * (residuals * known).sum(1)
