"""Plain values and tensors as bytes that cannot run code when they are read: for checkpoints and between processes."""

from __future__ import annotations

import json
from typing import Any

import safetensors.torch
from torch import Tensor

_KEY = "unbag"


def pack(value: Any) -> bytes:
    """Encode None, booleans, numbers, strings, tensors, and lists, tuples and dicts with string keys of these.

    Tensors become a file of safetensors, everything else JSON in its header. Tuples come back as lists.

    Examples
    --------
    >>> import torch
    >>> unpack(pack({"weight": torch.ones(2), "scores": (0.5, None)}))
    {'weight': tensor([1., 1.]), 'scores': [0.5, None]}
    """
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_encode(value, tensors))
    return safetensors.torch.save(tensors, {_KEY: text})


def unpack(content: bytes) -> Any:
    """Decode what :func:`pack` has encoded; nothing in ``content`` is executed."""
    length = int.from_bytes(content[:8], "little")
    text = json.loads(content[8 : 8 + length])["__metadata__"][_KEY]
    return _decode(json.loads(text), safetensors.torch.load(content))


def _encode(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return a value that JSON can hold, with tensors moved to a dict and marked by ``{"tensor": name}``."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, list | tuple):
        return [_encode(entry, tensors) for entry in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _encode(entry, tensors) for key, entry in value.items()}}
    if isinstance(value, Tensor):
        tensors[name := str(len(tensors))] = value.detach().cpu().contiguous().clone()  # safetensors: no shared memory
        return {"tensor": name}
    raise TypeError(f"only plain values and tensors can be written, got an object of type {type(value).__name__}")


def _decode(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(entry, tensors) for entry in value]
    if isinstance(value, dict):
        if "tensor" in value:
            return tensors[value["tensor"]]
        return {key: _decode(entry, tensors) for key, entry in value["dict"].items()}
    return value
