"""Data that processes exchange: plain values and tensors as bytes that cannot run code when they are read."""

from __future__ import annotations

import builtins
import json
import sys
from contextlib import suppress
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

_HEAD = "unbag"


def pack(value: Any) -> bytes:
    """Encode a value of None, booleans, numbers, strings, lists, tuples, dicts with string keys, and tensors.

    Tensors become a file of safetensors, everything else JSON in its header. Tuples come back as lists.

    Examples
    --------
    >>> unpack(pack({"weight": torch.ones(2), "scores": (0.5, None)}))
    {'weight': tensor([1., 1.]), 'scores': [0.5, None]}
    >>> pack({1, 2})
    Traceback (most recent call last):
    ...
    TypeError: processes exchange plain values and tensors, got an object of type set
    """
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_encode(value, tensors))
    return safetensors.torch.save(tensors, {_HEAD: text})


def unpack(content: bytes) -> Any:
    """Decode what :func:`pack` has encoded; nothing in ``content`` is executed."""
    length = int.from_bytes(content[:8], "little")
    text = json.loads(content[8 : 8 + length])["__metadata__"][_HEAD]
    return _decode(json.loads(text), safetensors.torch.load(content))


def pack_error(error: Exception) -> bytes:
    """Encode an exception by the names of its classes, its arguments and its message."""
    names = [[kind.__module__, kind.__qualname__] for kind in type(error).__mro__]
    args = list(error.args) if all(isinstance(arg, str | int | float | None) for arg in error.args) else None
    return json.dumps({"classes": names, "args": args, "message": str(error)}).encode()


def unpack_error(content: bytes) -> Exception:
    """Return an exception of the first class that is a built-in one or one of this package.

    No module is imported for it. An exception of any other class becomes one of its nearest such base class, with the
    name of its own class in the message.
    """
    described = json.loads(content)
    name, message = described["classes"][0][1], described["message"]
    for number, (module, qualname) in enumerate(described["classes"]):
        if (kind := _find_exception(module, qualname)) is None:
            continue
        args = [f"{name}: {message}"] if number else described["args"] or [message]
        with suppress(TypeError):  # of a class that takes other arguments
            return kind(*args)
    return RuntimeError(f"{name}: {message}")


def _find_exception(module: str, name: str) -> type[Exception] | None:
    known = module == builtins.__name__ or module.partition(".")[0] == "unbag"
    kind = getattr(sys.modules.get(module), name, None) if known else None
    return kind if isinstance(kind, type) and issubclass(kind, Exception) else None


def _encode(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return a value that JSON can hold, with tensors moved to a dict and marked by ``{"tensor": name}``."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, list | tuple):
        return [_encode(entry, tensors) for entry in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _encode(entry, tensors) for key, entry in value.items()}}
    if isinstance(value, Tensor):
        tensors[name := str(len(tensors))] = value.detach().cpu().contiguous().clone()  # no memory in common
        return {"tensor": name}
    raise TypeError(f"processes exchange plain values and tensors, got an object of type {type(value).__name__}")


def _decode(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(entry, tensors) for entry in value]
    if isinstance(value, dict):
        if "tensor" in value:
            return tensors[value["tensor"]]
        return {key: _decode(entry, tensors) for key, entry in value["dict"].items()}
    return value


def broadcast(value: Any, device: str, *, first: bool) -> Any:
    """Return the value of the first process in all of them; ignored in the others."""
    content = torch.frombuffer(bytearray(pack(value)), dtype=torch.uint8).to(device) if first else torch.empty(0)
    length = torch.tensor([len(content)], device=device)
    torch.distributed.broadcast(length, 0)
    if not first:
        content = torch.empty(int(length), dtype=torch.uint8, device=device)
    torch.distributed.broadcast(content, 0)
    return unpack(content.cpu().numpy().tobytes())
