"""Digests: what does or holds the same has the same one, in every process; all else has another, or is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache, partial
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from unbag import CountOf, FromFold, Groups
from unbag.training.identity import Unidentifiable, digest


def from_source(text, name="value"):
    """Return what some source makes, as another version of somebody's file would."""
    known = {"__name__": "somebodys_file", "torch": torch, "nn": nn}
    exec(text, known)  # a file of its own, without a file
    return known[name]


@dataclass
class Point:
    x: float
    y: float = 0.0


class Colour(Enum):
    RED = 1
    BLUE = 2


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return self.factor * x

    def other(self, x):
        return x


class Net(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        nn.init.ones_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)
        self.act = act

    def forward(self, x):
        return self.act(self.layer(x))


class Tilted(nn.Linear):
    def reset_parameters(self):
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x):
        return super().forward(x) + x


def net(weight=1.0, trainable=True):
    made = Net(functional.relu)
    nn.init.constant_(made.layer.bias, weight)
    return made.requires_grad_(trainable)


def adder(n):
    return lambda x: x + n


def fold(step):
    return FromFold(0, step, lambda state: state)


def cyclic(value):
    one = {"value": value}
    one["self"] = [one]
    return one


LOSS = "value = lambda s: {}"
READS = "factor = {}\nvalue = lambda x: factor * x"
CALLS = "def inner(x):\n    return x + {}\nvalue = lambda x: inner(x)"
NESTED = "def value(x):\n    def inner(y):\n        return y + {}\n    return inner(x)"
FORWARD = "class value(nn.Module):\n    def forward(self, x):\n        return {}"
INHERITS = "class Base:\n    def run(self):\n        return {}\nclass value(Base):\n    pass"
RECURSES = "def value(n):\n    return {} if n < 1 else value(n - 1)"

UNLIKE = {
    "numbers": (1, 1.0),
    "truth": (1, True),
    "zeros": (0.0, -0.0),
    "text and bytes": ("1", b"1"),
    "lists and tuples": ([1], (1,)),
    "nesting": ([[1], 2], [[1, 2]]),
    "order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "sets": ({1, 2}, {1, 3}),
    "enums": (Colour.RED, Colour.BLUE),
    "dataclasses": (Point(1), Point(2)),
    "dtypes": (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
    "shapes": (torch.zeros(2, 3), torch.zeros(3, 2)),
    "tensors": (torch.tensor([1, 2]), torch.tensor([2, 1])),
    "arrays": (np.arange(3), np.arange(3) + 1),
    "arrays of objects": (np.array([1, "a"], dtype=object), np.array([1, "b"], dtype=object)),
    "lambdas": (lambda s: -s.log_softmax(1), lambda s: 1 - s.softmax(1)),
    "constants": (from_source(LOSS.format("s + 1")), from_source(LOSS.format("s + 2"))),
    "attributes": (from_source(LOSS.format("s.min()")), from_source(LOSS.format("s.max()"))),
    "closures": (adder(1), adder(2)),
    "defaults": (from_source("value = lambda x, n=1: x * n"), from_source("value = lambda x, n=2: x * n")),
    "keyword defaults": (from_source("value = lambda x, *, n=1: x"), from_source("value = lambda x, *, n=2: x")),
    "globals": (from_source(READS.format(1)), from_source(READS.format(2))),
    "functions that are called": (from_source(CALLS.format(1)), from_source(CALLS.format(2))),
    "functions inside": (from_source(NESTED.format(1)), from_source(NESTED.format(2))),
    "recursion": (from_source(RECURSES.format(1)), from_source(RECURSES.format(2))),
    "partials": (partial(max, 1), partial(max, 2)),
    "keywords of partials": (partial(max, key=len), partial(max, key=abs)),
    "bound methods": (Scaled(1).other, Scaled(2).other),
    "methods": (Scaled(1).other, Scaled(1).__call__),
    "builtins": (torch.relu, torch.tanh),
    "methods of tensors": (torch.Tensor.relu, torch.Tensor.tanh),
    "functions of torch": (functional.relu, functional.elu),
    "callable objects": (Scaled(1), Scaled(2)),
    "classes": (from_source(FORWARD.format("x")), from_source(FORWARD.format("-x"))),
    "instances of classes": (from_source(FORWARD.format("x"))(), from_source(FORWARD.format("-x"))()),
    "base classes": (from_source(INHERITS.format(1)), from_source(INHERITS.format(2))),
    "modules": (nn.ReLU(), nn.Tanh()),
    "settings of modules": (nn.Dropout(0.1), nn.Dropout(0.2)),
    "weights": (net(1.0), net(2.0)),
    "weight norm": (weight_norm(Net(functional.relu).layer), weight_norm(Tilted(2, 2))),
    "frozen weights": (net(), net(trainable=False)),
    "activations": (Net(functional.relu), Net(functional.elu)),
    "functions that make modules": (lambda: Net(functional.relu), lambda: Net(functional.elu)),
    "folds": (fold(lambda state, label: state + label), fold(max)),
    "aggregates": (CountOf(0), CountOf(1)),
    "caches": (lru_cache(adder(1)), lru_cache(adder(2))),
    "cycles": (cyclic(1), cyclic(2)),
    "ufuncs": (np.add, np.subtract),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_what_differs_is_told_apart(name):
    first, second = UNLIKE[name]
    assert digest(first) == digest(first)
    assert digest(first) != digest(second)


def test_where_a_function_stands_and_what_it_is_called_says_nothing():
    moved = from_source("\n\n# moved\n\ndef other(s):\n\n    return -s\nvalue = other")
    assert digest(from_source("value = lambda s: -s")) == digest(moved)
    assert digest(adder(1)) == digest(adder(1))
    assert digest(cyclic(1)) == digest(cyclic(1))


def test_the_line_that_a_class_notes_of_itself_says_nothing():
    # From Python 3.13 on, every class body does what is written out here.
    text = "def value():\n    class Inner:\n        __firstlineno__ = {}\n        x = {}\n    return Inner"
    assert digest(from_source(text.format(501, 7))) == digest(from_source(text.format(502, 7)))
    assert digest(from_source(text.format(501, 7))) != digest(from_source(text.format(501, 8)))
    assert digest(from_source(text.format(501, 501))) != digest(from_source(text.format(502, 502)))


def reversing(factor):
    class Reversed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, slope):
            return -factor * slope

    return Reversed.apply


def test_functions_with_a_gradient_of_their_own_are_told_by_it():
    assert digest(reversing(1)) == digest(reversing(1)) != digest(reversing(2))


def test_what_a_function_does_not_read_says_nothing():
    assert digest(from_source("a = 1\nvalue = lambda x: x.a")) == digest(from_source("a = 2\nvalue = lambda x: x.a"))


def test_what_follows_from_the_rest_is_not_looked_at():
    even = fold(lambda state, label: (state + label) % 2)
    before = digest(even)
    groups = Groups.from_sizes([2, 3])
    known = digest(groups)
    even.check([0, 1], groups, 3)
    assert digest(even) == before
    assert groups.max_size == 3
    assert digest(groups) == known

    class Lazy:
        @cached_property
        def total(self):
            return 3

    lazy = Lazy()
    before = digest(lazy)
    assert lazy.total == 3
    assert digest(lazy) == before


def test_modules_of_ones_own_are_followed():
    def reading(constant):
        helpers = ModuleType("helpers_of_somebody")
        helpers.inner = SimpleNamespace(constant=constant)
        helpers.to_input_order = threading.Lock()
        known = {"__name__": "somebodys_file", "helpers": helpers}
        exec("value = lambda x: helpers.inner.constant * x\npassed = lambda: helpers", known)
        return known

    assert digest(reading(1)["value"]) == digest(reading(1)["value"]) != digest(reading(2)["value"])
    with pytest.raises(Unidentifiable, match="nobody knows what is read of the module helpers_of_somebody"):
        digest([reading(1)["helpers"]])


def test_imports_inside_functions_are_followed():
    text = "def value(x):\n    from torch.nn import functional as F\n    import {}\n    return F.relu(x)"
    assert digest(from_source(text.format("math"))) != digest(from_source(text.format("cmath")))
    with pytest.raises(Unidentifiable, match="no_such_module"):
        digest(from_source(text.format("no_such_module")))


LOCK = threading.Lock()


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (LOCK, r"the content of a _thread.lock is hidden"),
        ({"lock": LOCK}, r"the loss cannot be told"),
        (lambda x: LOCK and x, r"\(LOCK of <lambda>\).*the content of a _thread.lock is hidden"),
        ((x for x in [1]), "the content of a builtins.generator is hidden"),
        (lambda x: eval(x) + 1, "eval reads what no code names"),
        (torch.zeros(2, device="meta"), "a tensor whose content cannot be read"),
    ],
)
def test_what_cannot_be_told_apart_is_refused_with_advice(value, sentence):
    with pytest.raises(Unidentifiable, match=sentence) as refused:
        digest(value, "the loss")
    assert "or a dataclass, or leave checkpoint= out" in str(refused.value)


def test_endless_nesting_is_refused():
    deep = ()
    for _ in range(5000):
        deep = (deep,)
    with pytest.raises(Unidentifiable, match="nested too deeply"):
        digest(deep)


PROGRAM = """
import torch
from torch import nn
from unbag import FromFold
from unbag.training.identity import digest

words = {"one", "two", "three", "four"}
class Net(nn.Module):
    def forward(self, x):
        return x if str(x) in {"five", "six", "seven"} else words
torch.manual_seed(0)
print(digest([words, Net(), nn.Linear(2, 3), lambda x: words, FromFold(0, max, lambda s: s), object.__repr__]))
"""


def test_digests_are_the_same_in_another_process(capsys):
    exec(compile(PROGRAM, "program", "exec", dont_inherit=True), {"__name__": "__main__"})
    environment = {**os.environ, "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == capsys.readouterr().out
