"""What identifies the parts of a run, so that a checkpoint is only resumed by the run that wrote it.

Values and settings are compared by their content, arrays by a hash, and functions and classes by module and name.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property, partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Unidentifiable(TypeError):
    """An object has no name and no content by which it could be recognised when a run is resumed."""


def identify(value: Any, name: str, *, skip_unknown: bool = False) -> str:
    """Return a text that is the same in every process for equal values, and short enough for messages.

    Parameters
    ----------
    value
        Plain values, arrays, containers and modules, functions and classes that can be imported by their name, and
        objects of such classes. Attributes in ``_derived_attributes`` of a class are left out.
    name
        What messages call the value.
    skip_unknown
        Whether other objects are left out; by default, they are an error.

    Examples
    --------
    >>> identify({"rate": 0.1, "loss": np.ones}, "settings")
    '{"loss": "numpy.ones", "rate": 0.1}'
    """
    try:
        text = json.dumps(_describe(value, name, skip_unknown), sort_keys=True)
    except RecursionError as error:
        raise _refusal(name, "it is nested too deeply") from error
    return text if len(text) <= 300 else hashlib.sha256(text.encode()).hexdigest()


def _describe(value: Any, path: str, skip: bool) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes | bytearray):
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, Path | torch.device | torch.dtype | np.dtype):
        return str(value)
    if isinstance(value, Tensor):
        return _describe(_numbers(value, path), path, skip)
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.hasobject:
            return _describe(array.tolist(), path, skip)
        return [str(array.dtype), list(array.shape), hashlib.sha256(np.ascontiguousarray(array)).hexdigest()]
    if isinstance(value, list | tuple):
        return [_describe(entry, f"{path}[{place}]", skip) for place, entry in enumerate(value)]
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(_describe(entry, path, skip)) for entry in value)
    if isinstance(value, dict):
        return {str(key): _describe(entry, f"{path}.{key}", skip) for key, entry in value.items()}
    if isinstance(value, partial):
        return [_describe(part, path, skip) for part in (value.func, value.args, value.keywords)]
    if isinstance(value, MethodType):
        return [_describe(value.__self__, path, skip), value.__name__]
    if isinstance(value, type | FunctionType | BuiltinFunctionType) or callable(getattr(value, "__wrapped__", None)):
        module, qualified = getattr(value, "__module__", None), value.__qualname__
        if "<" in qualified:  # <lambda>, <locals>
            return _unknown(path, f"{qualified} is not defined at the top of a module", skip)
        return f"{module}.{qualified}"
    return _describe_object(value, path, skip)


def _describe_object(value: Any, path: str, skip: bool) -> Any:
    kind = type(value)
    described = _describe(kind, path, skip)
    if kind.__reduce__ is not object.__reduce__:
        return [described, _describe(value.__reduce__()[1:3], path, skip)]
    if not hasattr(value, "__dict__"):
        return _unknown(path, f"the content of a {kind.__module__}.{kind.__qualname__} is hidden", skip)
    derived = {name for base in kind.__mro__ for name in vars(base).get("_derived_attributes", ())}
    derived |= {n for base in kind.__mro__ for n, member in vars(base).items() if isinstance(member, cached_property)}
    state = {name: part for name, part in vars(value).items() if name not in derived}
    return [described, _describe(state, path, skip)]


def _numbers(tensor: Tensor, path: str) -> list[Any]:
    try:
        content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
    except (RuntimeError, NotImplementedError) as error:
        raise _refusal(path, f"it holds a tensor whose content cannot be read: {error}") from error
    return [str(tensor.dtype), list(tensor.shape), hashlib.sha256(content).hexdigest()]


def _unknown(path: str, reason: str, skip: bool) -> str:
    if not skip:
        raise _refusal(path, reason)
    return "unknown"


def _refusal(path: str, reason: str) -> Unidentifiable:
    return Unidentifiable(
        f"{path} cannot be recognised when the run is resumed from its checkpoint: {reason}; define it at the top of a "
        "module, give Checkpoint a run_id that changes whenever it does, or leave checkpoint= out"
    )
