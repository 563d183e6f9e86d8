"""What identifies the parts of a run, so that a checkpoint is only resumed by the run that wrote it."""

from __future__ import annotations

import hashlib
import io
import pickle
from functools import cached_property
from types import FunctionType
from typing import Any

import torch
from torch import Tensor


class Unidentifiable(TypeError):
    """An object has no name and no content by which it could be recognised when a run is resumed."""


def identify(value: Any, name: str, *, skip_unknown: bool = False) -> str:
    """Return a short text that is the same in every process for equal values.

    Values are compared as pickle writes them: objects by their attributes, arrays by their content, functions and
    classes by module and name. Nothing is ever unpickled.

    Parameters
    ----------
    value
        Value to identify. Attributes that its class lists in ``_derived_attributes`` are left out.
    name
        What messages call the value.
    skip_unknown
        Whether lambdas and functions inside others, which have no such name, are left out; by default, they are an
        error.

    Examples
    --------
    >>> identify(0.1, "rate"), identify(sum, "score") == identify(max, "score")
    ('0.1', False)
    """
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    try:
        content = _write(value, skip_unknown=skip_unknown)
    except (pickle.PicklingError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise Unidentifiable(
            f"the {name} cannot be recognised when the run is resumed from its checkpoint: {error}; define functions "
            "and classes at the top of a module, give Checkpoint a run_id that changes whenever they do, or leave "
            "checkpoint= out"
        ) from error
    return hashlib.sha256(content).hexdigest()[:16]


def _write(value: Any, *, skip_unknown: bool) -> bytes:
    file = io.BytesIO()
    pickler = _Pickler(file, protocol=4)
    pickler.skip_unknown = skip_unknown
    pickler.fast = True  # which objects are the same, and not only equal, differs between processes
    pickler.dump(value)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    """Write arrays as hashes, sets in order, and objects without what follows from their other attributes."""

    skip_unknown = False

    def persistent_id(self, obj: Any) -> Any:
        """Return what is written in place of tensors, sets, and functions that may be left out."""
        if isinstance(obj, Tensor):
            content = obj.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
            return str(obj.dtype), tuple(obj.shape), hashlib.sha256(content.data).digest()
        if isinstance(obj, set | frozenset):
            return sorted(_write(entry, skip_unknown=self.skip_unknown) for entry in obj)
        is_unknown = isinstance(obj, FunctionType) and "<" in obj.__qualname__  # <lambda>, <locals>
        return "unknown" if is_unknown and self.skip_unknown else None

    def reducer_override(self, obj: Any) -> Any:
        """Return how objects with derived attributes are written."""
        kind = type(obj)
        derived = {name for base in kind.__mro__ for name in vars(base).get("_derived_attributes", ())}
        derived |= {n for base in kind.__mro__ for n, one in vars(base).items() if isinstance(one, cached_property)}
        if not derived or any(
            "__reduce__" in vars(base) or "__reduce_ex__" in vars(base) for base in kind.__mro__[:-1]
        ):
            return NotImplemented
        return type, (kind,), {name: part for name, part in vars(obj).items() if name not in derived}
