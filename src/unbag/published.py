"""Counts as they are published: exact, in intervals, with noise; and members that were counted but have no row.

What was published of the count of a class in a group is a statement: a likelihood function of the true count. A
statement is an interval of counts, and possibly a value with noise, six numbers in float64, :data:`FIELDS`:

=========== ==========================================================================
``low``     the least count that is possible
``high``    the largest; infinity where nothing bounds it but the size of the group
``noise``   the :attr:`unbag.noise.Noise.code` of the noise of ``value``; 0 where there is none
``value``   the published value, count plus noise
``scale``   of the noise
``missing`` how many members of this class are expected among those that have no row
=========== ==========================================================================

A tensor of them, (groups, classes, 6), is the ``z`` of :class:`unbag.PublishedCounts`. Functions here make it, from
arrays of any shape; statements of different kinds are put together by ``torch.where``, ``torch.stack`` and indexing.

Statements that are made from a table of pandas or polars keep its index and the names of its columns, by which they are
matched to the groups and the classes; see :class:`Statements`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag.data.alignment import columns_of
from unbag.noise import KINDS, Noise

FIELDS = ("low", "high", "noise", "value", "scale", "missing")
"""What the last dimension of a statement holds."""
LOW, HIGH, NOISE, VALUE, SCALE, MISSING = range(6)
WHOLE = 1e-6
"""By how much a number that must be whole may be off."""


class Statements(Tensor):
    """Statements that know the index and the columns of the table that they were made from.

    ``clone``, ``to``, ``cpu`` and ``torch.where`` keep both; the result of any other operation is a plain tensor, whose
    rows and columns are in the order of the groups and the classes.
    """

    index: Any
    columns: Any

    def take_rows(self, rows: list[int]) -> Tensor:
        """Return the statements of some groups, with the names of their columns."""
        return with_names(self.as_subclass(Tensor)[rows], None, self.columns)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Apply a function to plain tensors, and label its result if the function keeps rows and columns."""
        labelled = [one for one in args if isinstance(one, Statements)]
        with torch._C.DisableTorchFunctionSubclass():
            plain = [one.as_subclass(Tensor) if isinstance(one, Statements) else one for one in args]
            result = func(*plain, **(kwargs or {}))
        return _label(result, *labelled) if func in _KEEP_NAMES else result


_KEEP_NAMES = (torch.where, Tensor.clone, Tensor.to, Tensor.cpu)


def _label(z: Tensor, *tables: Any) -> Tensor:
    """Give statements the index and the columns of the tables that they were made from, which must be the same."""
    tables = tuple(one for one in tables if columns_of(one) is not None)
    if not tables:
        return z
    for names in ("index", "columns"):
        found = [[*one] for table in tables if (one := getattr(table, names, None)) is not None]
        if any(one != found[0] for one in found):
            raise ValueError(f"tables must have the same {names} in the same order, got {found[0]} and {found[-1]}")
    return with_names(z, getattr(tables[0], "index", None), columns_of(tables[0]))


def with_names(z: Tensor, index: Any, columns: Any) -> Tensor:
    """Return statements with the ids of the groups and the names of the classes; None where they have none."""
    z = z.as_subclass(Statements)
    z.index, z.columns = index, columns
    return z


def exact(counts: Any) -> Tensor:
    """State counts that are known.

    Examples
    --------
    >>> exact([3, 5])[..., :2].tolist()
    [[3.0, 3.0], [5.0, 5.0]]
    """
    return between(counts, counts)


def between(low: Any, high: Any = float("inf")) -> Tensor:
    """State bounds of counts, both included; unless given, nothing but the size of the group bounds from above.

    Examples
    --------
    >>> suppressed, ten_or_more = between(1, 4), between(10)
    """
    tables = low, high
    low = _numbers(low)
    low, high = torch.broadcast_tensors(low, _numbers(high).to(low.device))
    _refuse(low.isnan() | high.isnan(), "bounds must be numbers; leave what is unknown to published.unknown", low, high)
    _refuse(low > high, "bounds must not be crossed, low first", low, high)
    return _label(torch.stack([low, high, *[torch.zeros_like(low)] * 4], -1), *tables)


def unknown(*shape: int) -> Tensor:
    """State nothing of counts: they are between 0 and the size of the group."""
    return between(torch.zeros(shape, dtype=torch.float64))


def rounded(values: Any, to: float) -> Tensor:
    """State counts that were rounded to the nearest multiple of a number; where two are as near, to either.

    Examples
    --------
    >>> rounded([0, 15], to=5)[..., :2].tolist()
    [[-2.0, 2.0], [13.0, 17.0]]
    """
    if not to > 0:
        raise ValueError(f"to must be a positive number, got {to!r}")
    table, values = values, _numbers(values)
    _refuse((values / to - (values / to).round()).abs() > WHOLE, f"rounded values must be multiples of {to:g}", values)
    return _label(between((values - to / 2 - WHOLE).ceil(), (values + to / 2 + WHOLE).floor()), table)


def rounded_share(shares: Any, sizes: Any, to: float) -> Tensor:
    """State counts by shares of a group that were rounded, for example to 0.001, a tenth of a percent.

    ``sizes`` is broadcast against ``shares``; for (groups, classes) it has shape (groups, 1).
    """
    if not to > 0:
        raise ValueError(f"to must be a positive number, got {to!r}")
    table = shares
    shares, sizes = torch.broadcast_tensors(_numbers(shares), _numbers(sizes))
    _refuse(~((shares >= 0) & (shares <= 1 + to / 2)), "shares must be from 0 to 1; divide percentages by 100", shares)
    z = between(((shares - to / 2) * sizes - WHOLE).ceil(), ((shares + to / 2) * sizes + WHOLE).floor())
    return _label(z, table)


def noisy(values: Any, noise: Noise) -> Tensor:
    """State values that are counts plus noise.

        Values must be as the noise left them: neither rounded, for a continuous noise, nor set to zero where negative.

    Examples
    --------
        >>> from unbag.noise import Laplace
        >>> statements = noisy([[3.2, 4.9]], Laplace(2.5))  # (1 group, 2 classes, 6)
    """
    value, scale = torch.broadcast_tensors(_numbers(values), noise.scale)
    _refuse(~value.isfinite(), "published values must be finite numbers", value)
    if noise.is_integral:
        _refuse((value - value.round()).abs() > WHOLE, f"{noise!r} leaves whole numbers", value)
    z = unknown(*value.shape).to(value.device)
    z[..., NOISE], z[..., VALUE], z[..., SCALE] = noise.code, value, scale
    return _label(z, values)


def with_missing(z: Tensor, members: Any, shares: Any) -> Tensor:
    """Add members that were counted but have no row, so that nothing but the shares of classes is known of them.

    Parameters
    ----------
    z
        Statements of the counts of all members, (groups, classes, 6).
    members
        How many of each group have no row, (groups,).
    shares
        The probability of each class for one of them, (classes,) or (groups, classes).
    """
    members, shares = _numbers(members), _numbers(shares)
    _refuse((members < 0) | (members != members.round()), "members must be whole numbers, 0 or more", members)
    off = (shares < 0).any(-1) | ((shares.sum(-1) - 1).abs() > WHOLE)
    _refuse(off, "shares must be probabilities that add up to one", shares)
    z = z.clone()
    z[..., MISSING] = members[..., None] * shares / shares.sum(-1, keepdim=True)
    return z


def log_weight(z: Tensor, counts: Tensor) -> Tensor:
    """Return the log-likelihood of statements, (..., 6), given counts that broadcast against them.

    Examples
    --------
    >>> log_weight(between(1, 3), torch.arange(5))
    tensor([-inf, 0., 0., 0., -inf], dtype=torch.float64)
    """
    counts = counts.double()
    total = torch.zeros_like(counts).masked_fill((counts < z[..., LOW]) | (counts > z[..., HIGH]), float("-inf"))
    for kind in KINDS.values():
        own = z[..., NOISE] == kind.code
        if bool(own.any()):
            scale = torch.where(own, z[..., SCALE], 1.0)
            total = total + torch.where(own, kind.log_density(z[..., VALUE] - counts, scale), 0.0)
    return total


def estimate(z: Tensor) -> Tensor:
    """Return the number that each statement, (..., 6), is around: the value with noise, or the middle of the bounds.

    Examples
    --------
    >>> estimate(between([1, 3], [4, 3])).tolist()
    [2.5, 3.0]
    """
    return torch.where(z[..., NOISE] > 0, z[..., VALUE], (z[..., LOW] + z[..., HIGH]) / 2)


def describe_statement(statement: Sequence[float]) -> str:
    """Say a statement in words.

    Examples
    --------
    >>> [describe_statement(one.tolist()) for one in (between(1, 4), between(6), rounded(0, to=5))]
    ['1 to 4', '6 or more', '0 to 2']
    """
    low, high, code, value, scale, missing = statement
    low = max(0.0, low)  # as all counts are
    parts = [f"{low:g}" if low == high else f"{low:g} or more" if high == float("inf") else f"{low:g} to {high:g}"]
    if code:
        names = {kind.code: name for name, kind in KINDS.items()}
        parts.append(f"published as {value:g} with {names.get(int(code), f'noise {code:g}')}:{scale:g}")
    if missing:
        parts.append(f"{missing:g} missing")
    return ", ".join(parts)


def _numbers(values: Any) -> Tensor:
    if isinstance(values, Tensor):
        return values.double()
    return torch.from_numpy(np.array(values, dtype=np.float64))


def _refuse(wrong: Tensor, expected: str, *values: Tensor) -> None:
    if bool(wrong.any()):
        place = tuple(wrong.nonzero()[0].tolist())
        came = ", ".join(str(one[place].tolist()) for one in values)
        raise ValueError(f"{expected}; got {came}{f' at {place}' if place else ''}")
