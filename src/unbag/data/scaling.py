"""Feature scaling that is fitted on training rows and stored with the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from unbag._utils.checks import describe, format_indices
from unbag._utils.parts import join
from unbag.data.row_source import TakenRows

ScalingName = Literal["none", "standard", "table"]

ROWS_AT_ONCE = 1024

SMALLEST = torch.finfo(torch.float32).tiny
"""Standard deviation up to which a column is constant: float32 cannot divide by it."""
MAX_ROUNDING = 4 * torch.finfo(torch.float64).eps
"""Range of a column, relative to its values, that consists of rounding errors."""


class Scaling(nn.Module):
    """Rows to ``(x - shift) * factor``, the first part of a model: ``nn.Sequential(scaling, net)``.

    Shift and factor are buffers: they are saved and moved with the model, never trained, and replicas may have
    different ones. Differences are taken in the precision in which rows come; what comes out has that of the factor.

    Parameters
    ----------
    shift, factor
        One number for each column, shape ``(d,)``, or for each channel of images, ``(c, 1, 1)``.

    Examples
    --------
    >>> Scaling(torch.tensor([10.0, 0.0]), torch.tensor([1.0, 3.0]))(torch.tensor([[12.0, 2.0]]))
    tensor([[2., 6.]])
    """

    shift: Tensor
    factor: Tensor

    def __init__(self, shift: Tensor, factor: Tensor) -> None:
        super().__init__()
        self.register_buffer("shift", shift)
        self.register_buffer("factor", factor)

    def forward(self, x: Tensor) -> Tensor:
        """Return scaled rows."""
        # Not x * factor - shift * factor: far from zero that would lose what rows differ by.
        return (x - self.shift).mul_(self.factor).to(self.factor.dtype)


def fit_scaling(X: Tensor | TakenRows, scaling: ScalingName = "standard") -> Scaling:
    """Fit the scaling of a table or of images, of the rows that are trained on and no others.

    Parameters
    ----------
    X
        A table, ``(n, d)``, or images, ``(n, channels, height, width)`` or ``(n, height, width)``. NaN in a table is
        ignored. Or rows on disk that were checked.
    scaling
        ``"standard"`` gives each column, or each channel, mean 0 and standard deviation 1, and makes a constant column
        zero. ``"table"`` uses one mean and one standard deviation for all columns. ``"none"`` keeps rows unchanged.

    Examples
    --------
    >>> X = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    >>> fit_scaling(X)(X)
    tensor([[-1.,  0.],
            [ 1.,  0.]])
    >>> fit_scaling(X, "table").shift
    tensor([3.5000, 3.5000])
    """
    if scaling not in get_args(ScalingName):
        raise ValueError(f"scaling must be one of {', '.join(get_args(ScalingName))}; got {scaling!r}")
    if not isinstance(X, Tensor | TakenRows) or len(X.shape) < 2 or math.prod(X.shape) == 0:
        raise TypeError(f"X must be a tensor of at least one row and one column, got {describe(X)}")
    if isinstance(X, Tensor):
        check_finite(X.masked_fill(X.isnan(), 0) if X.ndim == 2 and bool(X.isnan().any()) else X)
    shape = scaling_shape(X.shape[1:])
    channels = shape[0]
    if scaling == "none":
        return Scaling(torch.zeros(shape, device=X.device), torch.ones(shape, device=X.device))
    mean, deviation = _moments(X, 1 if scaling == "table" else channels)
    # A column far from zero has to be centred in the precision of its values.
    shift, factor = mean.to(X.dtype if X.dtype == torch.float64 else torch.float32), (1 / deviation).float()
    return Scaling(shift.expand(channels).reshape(shape).clone(), factor.expand(channels).reshape(shape).clone())


def scaling_shape(row_shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of shift and factor for rows of some shape.

    Examples
    --------
    >>> scaling_shape((5,)), scaling_shape((28, 28)), scaling_shape((3, 32, 32))
    ((5,), (1, 1), (3, 1, 1))
    """
    channels = 1 if len(row_shape) == 2 else row_shape[0]
    return (channels,) + (1,) * (len(row_shape) - 1)


def check_finite(X: Tensor, names: Sequence[str] | None = None, *, missing: bool = False) -> None:
    """Refuse what a network in float32 cannot read, and name the columns of a table, or the images, that hold it.

    Parameters
    ----------
    X
        A table or images.
    names
        What the caller calls the columns, or the images.
    missing
        Whether the model reads NaN, and float64: then only infinity is refused.

    Examples
    --------
    >>> check_finite(torch.tensor([[1.0, float("nan")]]), names=["age", "height"])
    Traceback (most recent call last):
    ...
    ValueError: X holds NaN or infinity in column 1 (height); leave out or fill in what is missing
    """
    if missing:
        if bool((infinite := X.isinf()).any()):
            raise ValueError(f"X holds infinity in {_name_places(infinite, names)}; write NaN for what is missing")
        return
    bad = join((~part.float().isfinite() for part in X.split(ROWS_AT_ONCE)), len(X))  # without a second table of floats
    if not bool(bad.any()):
        return
    if bool((undefined := ~X.isfinite()).any()):
        places = _name_places(undefined, names)
        raise ValueError(f"X holds NaN or infinity in {places}; leave out or fill in what is missing")
    raise ValueError(f"X holds values too large for float32 in {_name_places(bad, names)}; measure in a larger unit")


def _name_places(bad: Tensor, names: Sequence[str] | None) -> str:
    """Name the columns of a table, or the images, that hold a flagged value."""
    kind, where = ("column", bad.any(0)) if bad.ndim == 2 else ("image", bad.flatten(1).any(1))
    return format_indices(kind, where, _namer(names))


def _namer(names: Sequence[str] | None) -> Callable[[int], str]:
    return str if names is None else lambda place: f"{place} ({names[place]})"


def _moments(X: Tensor | TakenRows, columns: int) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of each column of values; the deviation of a constant column is infinite."""
    mean, deviation, low, high = _mean_deviation_and_range(X, columns)
    # Dividing by a deviation that consists of rounding errors would make them as large as other columns.
    rounding = MAX_ROUNDING * torch.maximum(high.abs(), low.abs()).double()
    return mean, deviation.where(((high - low).double() > rounding) & (deviation > SMALLEST), math.inf)


def _mean_deviation_and_range(X: Tensor | TakenRows, columns: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    def parts() -> Iterator[Tensor]:  # so that there is no second table in float64, and no first of rows on disk
        return (part.reshape(len(part), columns, -1) for part in X.split(ROWS_AT_ONCE))

    n_parts = -(-X.shape[0] // ROWS_AT_ONCE)
    count, total, low, high = join((_summarise(part)[None] for part in parts()), n_parts).unbind(1)  # (parts, columns)
    count = count.sum(0).clamp_min(1)
    mean = total.sum(0) / count  # (columns,)
    squares = join(((part.double() - mean[:, None]).square().nansum((0, 2))[None] for part in parts()), n_parts)
    return mean, (squares.sum(0) / count).sqrt(), low.amin(0), high.amax(0)


def _summarise(values: Tensor) -> Tensor:
    """Return number, sum, minimum and maximum of the values of each column that are not NaN, shape ``(4, columns)``."""
    known = ~values.isnan()
    if bool(known.all()):
        count = torch.full((values.shape[1],), values.shape[0] * values.shape[2], device=values.device)
        return torch.stack([count, values.double().sum((0, 2)), values.amin((0, 2)), values.amax((0, 2))])
    low, high = (values.masked_fill(~known, limit) for limit in (math.inf, -math.inf))
    return torch.stack([known.sum((0, 2)), values.double().nansum((0, 2)), low.amin((0, 2)), high.amax((0, 2))])
