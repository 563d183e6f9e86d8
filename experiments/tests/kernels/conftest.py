"""Triton's interpreter, which stands in for a GPU, with its mistakes mended."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

if find_spec("triton") is None:
    collect_ignore_glob = ["test_*"]
else:
    from triton.runtime import interpreter


@pytest.fixture(autouse=True)
def _mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mend the interpreter: bounds of loops with new versions of numpy; rounding to bfloat16, and products in it."""
    patch = interpreter._patch_lang_tensor
    builder = interpreter.InterpreterBuilder
    cut = builder.create_fp_trunc

    def patch_tensor(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def dot(_: Any, a: Any, b: Any, d: Any, *__: Any) -> Any:
        return interpreter.TensorHandle(_floats(a) @ _floats(b) + d.data, d.dtype.scalar)

    def round_to(self: Any, source: Any, kind: Any) -> Any:
        if kind.scalar.name != "bf16":
            return cut(self, source, kind)
        bits = source.data.astype(np.float32).view(np.uint32)
        nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # to the nearest, as a GPU does
        return interpreter.TensorHandle(nearest.astype(np.uint16), kind.scalar)

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch_tensor)
    monkeypatch.setattr(builder, "create_dot", dot)
    monkeypatch.setattr(builder, "create_fp_trunc", round_to)


def _floats(handle: Any) -> Any:
    """Return numbers of the interpreter; those in bfloat16 are the upper halves of others."""
    if handle.dtype.scalar.name == "bf16":
        return (handle.data.astype(np.uint32) << 16).view(np.float32)
    return handle.data
