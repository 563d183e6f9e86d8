"""Scaling of features, fitted to training rows and stored with the model."""

import math
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from unbag._utils.checks import describe, format_indices
from unbag._utils.parts import join
from unbag.data.row_source import RowSubset, SparseRows

ScalingName = Literal["none", "standard", "table"]

ROWS_AT_ONCE = 1024
LARGEST = float(np.finfo(np.float32).max)
LARGER_UNIT = "use a larger unit of measurement"
MIN_DEVIATION = torch.finfo(torch.float32).tiny
"""Standard deviation up to which a column is constant: float32 cannot divide by it."""
MAX_ROUNDING = 4 * torch.finfo(torch.float64).eps
"""Range of a column, relative to its values, that consists of rounding errors."""


class Scaling(nn.Module):
    """Scale rows to ``(x - shift) * factor``, the first part of a model: ``nn.Sequential(scaling, net)``.

    Shift and factor are buffers: they are saved and moved with the model, never trained, and may differ between
    replicas. Differences are computed in the precision of the rows, and returned in that of the factor.

    Parameters
    ----------
    shift, factor
        One number per column, shape ``(d,)``, or per channel of images, ``(c, 1, 1)``.
    """

    shift: Tensor
    factor: Tensor

    def __init__(self, shift: Tensor, factor: Tensor) -> None:
        super().__init__()
        self.register_buffer("shift", shift)
        self.register_buffer("factor", factor)

    def forward(self, x: Tensor) -> Tensor:
        """Return scaled rows."""
        # Not x * factor - shift * factor: far from zero that would lose the differences between rows.
        return (x - self.shift).mul_(self.factor).to(self.factor.dtype)


def fit_scaling(X: Tensor | SparseRows | RowSubset, scaling: ScalingName = "standard") -> Scaling:
    """Fit the scaling of a table or of images to training rows.

    Parameters
    ----------
    X
        A table, ``(n, d)``, or images, ``(n, channels, height, width)`` or ``(n, height, width)``, or rows on disk. NaN
        in a table is ignored. Columns of a sparse table are not centred if most of their values are zero.
    scaling
        ``"standard"`` gives each column, or each channel, mean 0 and standard deviation 1, and makes a constant column
        zero. ``"table"`` uses one mean and one standard deviation for all columns. ``"none"`` keeps rows unchanged.
    """
    if scaling not in get_args(ScalingName):
        raise ValueError(f"scaling must be one of {', '.join(get_args(ScalingName))}; got {scaling!r}")
    if not isinstance(X, Tensor | SparseRows | RowSubset) or len(X.shape) < 2 or math.prod(X.shape) == 0:
        raise TypeError(f"X must be a tensor of at least one row and one column, got {describe(X)}")
    if isinstance(X, Tensor):
        check_finite(X.masked_fill(X.isnan(), 0) if X.ndim == 2 and bool(X.isnan().any()) else X)
    elif isinstance(X, SparseRows):
        check_finite(X)
    shape = scaling_shape(X.shape[1:])
    channels = shape[0]
    if scaling == "none":
        return Scaling(torch.zeros(shape, device=X.device), torch.ones(shape, device=X.device))
    if isinstance(X, SparseRows):
        mean, deviation = _compute_sparse_moments(X, together=scaling == "table")
    else:
        mean, deviation = _compute_moments(X, 1 if scaling == "table" else channels)
    # A column far from zero has to be centred in the precision of its values.
    shift, factor = mean.to(X.dtype if X.dtype == torch.float64 else torch.float32), (1 / deviation).float()
    return Scaling(shift.expand(channels).reshape(shape).clone(), factor.expand(channels).reshape(shape).clone())


def scaling_shape(row_shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of shift and factor from the shape of a row."""
    channels = 1 if len(row_shape) == 2 else row_shape[0]
    return (channels,) + (1,) * (len(row_shape) - 1)


def check_finite(X: Tensor | SparseRows, names: Sequence[str] | None = None, *, missing: bool = False) -> None:
    """Raise an error that names the columns of a table, or the images, with values that float32 cannot represent.

    With ``missing``, for models that accept NaN and float64, only infinity is an error. NaN in sparse rows is none.
    """

    def list_places(bad: Tensor) -> str:
        kind, where = ("column", bad.any(0)) if bad.ndim == 2 else ("image", bad.flatten(1).any(1))
        return format_indices(kind, where, str if names is None else lambda place: f"{place} ({names[place]})")

    if isinstance(X, SparseRows):
        bad = X.flag_columns(lambda values: np.abs(values) > LARGEST)[None]  # NaN is missing
        found, advice = "infinity, or values too large for float32,", f"write NaN for missing values, or {LARGER_UNIT}"
    elif missing:
        bad, found, advice = X.isinf(), "infinity", "write NaN for missing values"
    else:
        # By parts, to avoid a second table of floats.
        bad = join((~part.float().isfinite() for part in X.split(ROWS_AT_ONCE)), len(X))
        found, advice = "values too large for float32", LARGER_UNIT
        if bool(bad.any()) and bool((undefined := ~X.isfinite()).any()):
            bad, found, advice = undefined, "NaN or infinity", "leave out or fill in missing values"
    if bool(bad.any()):
        raise ValueError(f"X contains {found} in {list_places(bad)}; {advice}")


def _compute_moments(X: Tensor | RowSubset, columns: int) -> tuple[Tensor, Tensor]:
    """Compute mean and standard deviation of each column in float64; infinite deviations mark constant columns."""

    def summarise(values: Tensor) -> Tensor:
        unknown = values.isnan()
        low, high = (values.masked_fill(unknown, limit) for limit in (math.inf, -math.inf))
        return torch.stack([(~unknown).sum((0, 2)), values.nansum((0, 2)), low.amin((0, 2)), high.amax((0, 2))])[None]

    def compute(statistic: Callable[[Tensor], Tensor]) -> Tensor:
        """Return a statistic of each part, which avoids a second table in float64 and a table of rows on disk."""
        parts = (part.reshape(len(part), columns, -1).double() for part in X.split(ROWS_AT_ONCE))
        return join(map(statistic, parts), -(-X.shape[0] // ROWS_AT_ONCE))

    count, total, low, high = compute(summarise).unbind(1)  # (parts, columns)
    n, low, high = count.sum(0).clamp_min(1), low.amin(0), high.amax(0)
    mean = total.sum(0) / n  # (columns,)
    squares = compute(lambda part: (part - mean[:, None]).square().nansum((0, 2))[None])
    deviation = (squares.sum(0) / n).sqrt()
    # Division by a deviation that consists of rounding errors would make them as large as other columns.
    rounding = MAX_ROUNDING * torch.maximum(high.abs(), low.abs())
    return mean, deviation.where((high - low > rounding) & (deviation > MIN_DEVIATION), math.inf)


def _compute_sparse_moments(X: SparseRows, *, together: bool) -> tuple[Tensor, Tensor]:
    """Compute shift and deviation of each column, or of all columns together, in float64.

    A column of numbers is centred if most of its values are stored; otherwise few of them would remain zero. The
    deviation of other columns is the root mean square of values that are not zero: 1 for indicators, so that a ridge
    penalty shrinks rare categories more than frequent ones.
    """
    n, mean, variance = X.moments(without_zeros=True)
    squares = variance + mean**2
    if together:
        deviation = np.full(X.shape[1], (n @ squares / max(n.sum(), 1)) ** 0.5)
        return torch.zeros(X.shape[1], dtype=torch.float64), torch.from_numpy(deviation)
    indicator = np.sqrt(variance) <= MAX_ROUNDING * np.abs(mean)
    centred = (np.bincount(X.matrix.indices, minlength=X.shape[1]) > len(X) / 2) & ~indicator
    _, mean, variance = X.moments()
    low, high = (limit(axis=0).toarray() for limit in (X.matrix.nanmin, X.matrix.nanmax))
    varying = (high - low > MAX_ROUNDING * np.maximum(np.abs(high), np.abs(low))) & ~np.isnan(high)
    deviation = np.sqrt(np.where(centred, variance, squares))
    deviation[~varying | (deviation <= MIN_DEVIATION)] = math.inf
    return torch.from_numpy(np.where(centred, mean, 0)), torch.from_numpy(deviation)
