"""Statements about published counts: exact, in intervals, with noise; and members that were counted but have no row.

A statement is a likelihood function of the count of a class in a group: an interval, and possibly a value with noise.
It consists of six numbers in float64, :data:`FIELDS`:

=========== ==========================================================================
``low``     the smallest possible count
``high``    the largest; infinity if only the size of the group bounds it
``noise``   the :attr:`unbag.noise.Noise.code` of the noise of ``value``; 0 without noise
``value``   the published value, count plus noise
``scale``   the scale of the noise
``missing`` the expected number of members of this class that have no row
=========== ==========================================================================

A tensor of statements, (groups, classes, 6), is the ``z`` of :class:`unbag.PublishedCounts`. The functions of this
module create it from arrays of any shape; ``torch.where``, ``torch.stack`` and indexing combine statements.

Statements from a table of pandas or polars keep its index and the names of its columns, by which they are matched to
the groups and the classes; see :class:`Statements`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unbag.data.alignment import align, columns_of, match_columns, names_of_row, rows_with_names, split_columns
from unbag.data.groups import has_default_index, index_of
from unbag.noise import KINDS, Noise

FIELDS = ("low", "high", "noise", "value", "scale", "missing")
"""Entries of the last dimension of statements."""
LOW, HIGH, NOISE, VALUE, SCALE, MISSING = range(6)
WHOLE = 1e-6
"""Tolerance of whole numbers."""


class Statements(Tensor):
    """Statements with the index and the columns of their table.

    Copies, ``to``, ``cpu``, ``torch.where``, elementwise arithmetic, ``torch.cat`` of groups, and the selection of
    groups or classes with a slice, a list or a mask keep both. The result of any other operation is a plain tensor,
    whose rows and columns are in the order of the groups and the classes. To ignore the index, set it to None.
    """

    index: Any
    columns: Any

    def take_rows(self, rows: list[int]) -> Tensor:
        """Return the statements of selected groups, with the names of their columns."""
        return with_names(self.as_subclass(Tensor)[rows], None, self.columns)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Apply a function to plain tensors, and label its result if the function keeps rows and columns."""
        tables = [arg for arg in args if isinstance(arg, Statements)]
        with torch._C.DisableTorchFunctionSubclass():
            plain = [arg.as_subclass(Tensor) if isinstance(arg, Statements) else arg for arg in args]
            result = func(*plain, **(kwargs or {}))
        if func.__name__.strip("_") in _COPIES + _ARITHMETIC and all(result.shape == table.shape for table in tables):
            return _label(result, *tables)
        if func is Tensor.__getitem__:
            return _label_selection(result, args[0], args[1])
        if func in (torch.cat, torch.concat, torch.concatenate):
            return _label_joined(result, *args, **(kwargs or {}))
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Store the index and the columns with the values."""
        return with_names, (self.as_subclass(Tensor), self.index, self.columns)


_COPIES = ["where", "clone", "to", "cpu", "double", "deepcopy"]
_ARITHMETIC = ["add", "radd", "sub", "mul", "rmul", "div", "truediv"]


def _label_selection(result: Tensor, z: Statements, key: Any) -> Tensor:
    """Label selected groups and classes; any other selection has no names."""
    keys: list[Any] = [*key] if isinstance(key, tuple) else [key]
    if z.ndim != 3 or result.ndim != 3 or len(keys) > 2:
        return result
    if not all(np.ndim(part) < 2 and isinstance(part, slice | list | np.ndarray | Tensor) for part in keys):
        return result
    rows, columns = [*keys, slice(None)][:2]
    all_columns = isinstance(columns, slice) and columns == slice(None)
    # Columns without names are numbered; the numbers of some of them would be read as names.
    names = z.columns if all_columns or split_columns(z)[1] is not None else None
    return with_names(result, _take(z.index, rows), _take(names, columns))


def _take(labels: Any, key: Any) -> Any:
    """Return the labels that a slice, a list or a mask selects."""
    if labels is None:
        return None
    key = key.cpu().numpy() if isinstance(key, Tensor) else key if isinstance(key, slice) else np.asarray(key)
    places = np.arange(len(labels))[key]
    return labels[places] if hasattr(labels, "tolist") else [labels[place] for place in places]


def _label_joined(result: Tensor, tables: Sequence[Tensor], dim: int = 0, **_: Any) -> Tensor:
    """Label joined groups with the columns of their tables, which must be equal, and with their indexes."""
    labelled = [table for table in tables if isinstance(table, Statements)]
    if dim % result.ndim or not labelled:
        return result
    indexes: list[Any] = [getattr(table, "index", None) for table in tables]
    has_labels = all(index is not None for index in indexes) and not all(map(has_default_index, labelled))
    index = indexes[0].append(indexes[1:]) if has_labels else None
    return with_names(result, index, _common("columns", [table.columns for table in labelled]))


def _label(z: Tensor, *tables: Any) -> Tensor:
    """Label statements with the index and the columns of their tables, which must be equal."""
    tables = tuple(table for table in tables if columns_of(table) is not None or isinstance(table, Statements))
    if not tables:
        return z
    index = _common("index", [getattr(table, "index", None) for table in tables])
    return with_names(z, index, _common("columns", [columns_of(table) for table in tables]))


def _common(what: str, labels: Sequence[Any]) -> Any:
    """Return the first labels of tables, all of which must be equal, or None."""
    found = [values for values in labels if values is not None]
    for values in found:
        if [*values] != [*found[0]]:
            raise ValueError(f"tables must have the same {what} in the same order, got {[*found[0]]} and {[*values]}")
    return found[0] if found else None


def with_names(z: Tensor, index: Any, columns: Any) -> Tensor:
    """Label statements with the ids of the groups and the names of the classes, or None."""
    z = z.as_subclass(Statements)
    z.index, z.columns = index, columns
    return z


def exact(counts: Any) -> Tensor:
    """State exact counts.

    Examples
    --------
    >>> exact([3, 5])[..., :2].tolist()
    [[3.0, 3.0], [5.0, 5.0]]
    """
    return between(counts, counts)


def between(low: Any, high: Any = float("inf")) -> Tensor:
    """State inclusive bounds of counts; the default upper bound is the size of the group.

    Examples
    --------
    >>> suppressed, ten_or_more = between(1, 4), between(10)
    """
    tables = low, high
    low = _numbers(low)
    low, high = torch.broadcast_tensors(low, _numbers(high).to(low.device))
    _raise_if(low.isnan() | high.isnan(), "bounds must be numbers; for unknown counts use published.unknown", low, high)
    _raise_if(low > high, "the lower bound must not exceed the upper bound", low, high)
    return _label(torch.stack([low, high, *[torch.zeros_like(low)] * 4], -1), *tables)


def unknown(*shape: int) -> Tensor:
    """State unknown counts, between 0 and the size of the group."""
    return between(torch.zeros(shape, dtype=torch.float64))


def rounded(values: Any, to: float) -> Tensor:
    """State counts that were rounded to the nearest multiple of a number, with ties in either direction.

    Examples
    --------
    >>> rounded([0, 15], to=5)[..., :2].tolist()
    [[-2.0, 2.0], [13.0, 17.0]]
    """
    if not to > 0:
        raise ValueError(f"to must be a positive number, got {to!r}")
    table, values = values, _numbers(values)
    _raise_if(
        (values / to - (values / to).round()).abs() > WHOLE, f"rounded values must be multiples of {to:g}", values
    )
    return _label(between((values - to / 2 - WHOLE).ceil(), (values + to / 2 + WHOLE).floor()), table)


def rounded_share(shares: Any, sizes: Any, to: float) -> Tensor:
    """State counts by shares of a group that were rounded, for example to 0.001, a tenth of a percent.

    ``sizes`` is broadcast against ``shares``: (groups, 1) against (groups, classes). Two tables of pandas are matched
    by index, and by columns if ``sizes`` has several.
    """
    if not to > 0:
        raise ValueError(f"to must be a positive number, got {to!r}")
    table, shares = shares, _numbers(shares)
    sizes = _match_sizes(sizes, table, shares.ndim)
    shares, sizes = torch.broadcast_tensors(shares, sizes)
    _raise_if(
        ~((shares >= 0) & (shares <= 1 + to / 2)), "shares must be from 0 to 1; divide percentages by 100", shares
    )
    z = between(((shares - to / 2) * sizes - WHOLE).ceil(), ((shares + to / 2) * sizes + WHOLE).floor())
    return _label(z, table)


def noisy(values: Any, noise: Noise) -> Tensor:
    """State counts plus noise; values must not be rounded (with continuous noise) or clipped at zero.

    Examples
    --------
    >>> from unbag.noise import Laplace
    >>> statements = noisy([[3.2, 4.9]], Laplace(2.5))  # (1 group, 2 classes, 6)
    """
    value, scale = torch.broadcast_tensors(_numbers(values), noise.scale)
    _raise_if(~value.isfinite(), "published values must be finite numbers", value)
    if noise.is_integral:
        _raise_if((value - value.round()).abs() > WHOLE, f"values with {noise!r} must be whole numbers", value)
    z = unknown(*value.shape).to(value.device)
    z[..., NOISE], z[..., VALUE], z[..., SCALE] = noise.code, value, scale
    return _label(z, values)


def with_missing(z: Tensor, members: Any, shares: Any) -> Tensor:
    """Add members that were counted but have no row, whose classes have known shares.

    The number of ``members`` without a row, (groups,), is matched to the index of the statements ``z``, (groups,
    classes, 6), if it is a pandas column. The ``shares`` are the probability of each class among them, (classes,) or
    (groups, classes); a dict, a pandas column or a table is matched to the columns of ``z`` by name.
    """
    members, shares = _numbers(align(members, index_of(z), len(z), "members")), _match_shares(shares, z)
    _raise_if((members < 0) | (members != members.round()), "members must be whole numbers, 0 or more", members)
    wrong = (shares < 0).any(-1) | ((shares.sum(-1) - 1).abs() > WHOLE)
    _raise_if(wrong, "shares must be probabilities that add up to one", shares)
    z = z.clone()
    z[..., MISSING] = members[..., None] * shares / shares.sum(-1, keepdim=True)
    return z


def log_weight(z: Tensor, counts: Tensor) -> Tensor:
    """Return the log-likelihood of statements, (..., 6), for counts that broadcast against them.

    Examples
    --------
    >>> log_weight(between(1, 3), torch.arange(5))
    tensor([-inf, 0., 0., 0., -inf], dtype=torch.float64)
    """
    counts = counts.double()
    total = torch.zeros_like(counts).masked_fill((counts < z[..., LOW]) | (counts > z[..., HIGH]), float("-inf"))
    for kind in KINDS.values():
        selected = z[..., NOISE] == kind.code
        if bool(selected.any()):
            scale = torch.where(selected, z[..., SCALE], 1.0)
            total = total + torch.where(selected, kind.log_density(z[..., VALUE] - counts, scale), 0.0)
    return total


def estimate(z: Tensor) -> Tensor:
    """Return the centre of each statement, (..., 6): the value with noise, or the middle of the bounds.

    Examples
    --------
    >>> estimate(between([1, 3], [4, 3])).tolist()
    [2.5, 3.0]
    """
    return torch.where(z[..., NOISE] > 0, z[..., VALUE], (z[..., LOW] + z[..., HIGH]) / 2)


def describe_statement(statement: Sequence[float]) -> str:
    """Describe a statement in words.

    Examples
    --------
    >>> [describe_statement(s.tolist()) for s in (between(1, 4), between(6), rounded(0, to=5))]
    ['1 to 4', '6 or more', '0 to 2']
    """
    low, high, code, value, scale, missing = statement
    low = max(0.0, low)
    parts = [f"{low:g}" if low == high else f"{low:g} or more" if high == float("inf") else f"{low:g} to {high:g}"]
    if code:
        names = {kind.code: name for name, kind in KINDS.items()}
        parts.append(f"published as {value:g} with {names.get(int(code), f'noise {code:g}')}:{scale:g}")
    if missing:
        parts.append(f"{missing:g} missing")
    return ", ".join(parts)


def _match_sizes(sizes: Any, table: Any, n_dimensions: int) -> Tensor:
    """Return sizes in the order of the index and the columns of a table."""
    has_names = isinstance(sizes, Mapping) or index_of(sizes) is not None
    sizes, columns = split_columns(align(sizes, index_of(table), len(sizes) if has_names else 0, "sizes"), "sizes")
    numbers = _numbers(sizes)
    if has_names and numbers.ndim == 1 < n_dimensions:
        raise ValueError(
            "sizes must have shape (groups, 1) for shares of shape (groups, classes), but it is one column with an "
            "index; pass sizes.to_frame()"
        )
    if columns is None or len(columns) == 1 or (classes := split_columns(table, "shares")[1]) is None:
        return numbers
    return numbers[..., match_columns(columns, classes, "sizes")]


def _match_shares(shares: Any, z: Tensor) -> Tensor:
    """Return shares in the order of the index and the columns of statements."""
    classes = split_columns(z)[1] or range(z.shape[-2])
    if isinstance(shares, Mapping) or (index_of(shares) is not None and columns_of(shares) is None):
        names = names_of_row(shares)
        shares = [*shares.values()] if isinstance(shares, Mapping) else shares
    else:
        shares, names = split_columns(align(shares, index_of(z), len(z), "shares"), "shares")
    shares = _numbers(shares)
    return shares if names is None else shares[..., match_columns(names, classes, "shares")]


def _numbers(values: Any) -> Tensor:
    if isinstance(values, Tensor):
        return values.double()
    if rows_with_names(values) is not None:
        raise ValueError(
            "published counts with names must be a table; make one of rows with names by pandas.DataFrame(rows)"
        )
    return torch.from_numpy(np.array(values, dtype=np.float64))


def _raise_if(wrong: Tensor, expected: str, *values: Tensor) -> None:
    if bool(wrong.any()):
        place = tuple(wrong.nonzero()[0].tolist())
        actual = ", ".join(str(value[place].tolist()) for value in values)
        raise ValueError(f"{expected}; got {actual}{f' at {place}' if place else ''}")
