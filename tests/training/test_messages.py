"""Processes exchange plain values, tensors and errors in a format that cannot run code."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unbag.training.messages import pack, pack_error, unpack, unpack_error
from unbag.training.processes import ProcessLost

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8"))
PLAIN = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text("ab:tensordict"), inner))


@given(PLAIN)
def test_plain_values_come_back(value):
    assert unpack(pack(value)) == value


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.bool, torch.uint8, torch.int64])
def test_tensors_come_back(dtype):
    tensor = torch.arange(6).view(2, 3).to(dtype)
    received = unpack(pack({"tensor": [tensor, tensor.T, tensor[0, 0]], "empty": tensor[:0]}))
    torch.testing.assert_close(received["tensor"], [tensor, tensor.T, tensor[0, 0]], rtol=0, atol=0)
    assert received["empty"].shape == (0, 3)


def test_nan_and_infinity_come_back():
    nan, infinity = unpack(pack((math.nan, -math.inf)))
    assert math.isnan(nan)
    assert infinity == -math.inf


@pytest.mark.parametrize("value", [torch.nn.Linear(1, 1), {1: 2}, ValueError, len, b"raw"])
def test_other_objects_are_refused(value):
    with pytest.raises(TypeError, match="exchange plain values and tensors, got an object of type"):
        pack([value])


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("a message has run code",)


@pytest.mark.parametrize("read", [unpack, unpack_error])
def test_a_pickle_is_not_executed(read):
    with pytest.raises(Exception, match=r"(?i)utf-8|decode|delimiter|expecting|header|codec"):
        read(pickle.dumps(Bomb()))


class UserError(LookupError):
    def __init__(self, row, column):
        super().__init__(f"row {row}, column {column}")


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ValueError("no such rule"), ValueError, "no such rule"),
        (KeyError("a"), KeyError, "'a'"),
        (FileNotFoundError(2, "No such file", "x.csv"), FileNotFoundError, "[Errno 2] No such file"),
        (ProcessLost("gone"), ProcessLost, "gone"),
        (UserError(3, "b"), LookupError, "UserError: row 3, column b"),
        (torch.OutOfMemoryError("no memory"), RuntimeError, "OutOfMemoryError: no memory"),
        (UnicodeDecodeError("ascii", b"\xff", 0, 1, "bad"), UnicodeError, "UnicodeDecodeError: 'ascii' codec"),
        (ExceptionGroup("two", [ValueError("a")]), Exception, "ExceptionGroup: two"),
        (ValueError([1]), ValueError, "[1]"),
    ],
)
def test_errors_keep_the_nearest_known_class(error, kind, message):
    received = unpack_error(pack_error(error))
    assert type(received) is kind
    assert str(received).startswith(message)


def test_no_class_of_another_module_is_looked_up():
    classes = b'[["os", "system"], ["builtins", "exec"], ["unbag", "load"]]'
    described = b'{"classes": %b, "args": ["1"], "message": "m"}'
    assert repr(unpack_error(described % classes)) == "RuntimeError('system: m')"
