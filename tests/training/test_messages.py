"""Plain values and tensors are written in a format that cannot run code."""

import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unbag.training.checkpoint import pack, unpack

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8"))
PLAIN = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text("ab:tensordict"), inner))


@settings(max_examples=30)
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


@pytest.mark.parametrize("value", [torch.nn.Linear(1, 1), {"a": {1}}, ValueError, len, b"raw"])
def test_other_objects_are_refused(value):
    with pytest.raises(TypeError, match="only plain values and tensors can be written, got an object of type"):
        pack([value])


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("a message has run code",)


def test_a_pickle_is_not_executed():
    with pytest.raises(Exception, match=r"(?i)utf-8|decode|delimiter|expecting|header|codec"):
        unpack(pickle.dumps(Bomb()))
