"""A checkpoint recognises its run by values, content of arrays, and names of functions."""

import subprocess
import sys
import threading
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import pytest
import torch
from torch import nn

from unbag import FromFold, Groups, LabelProportions
from unbag.training import Observations
from unbag.training.checkpoint import identify


def double(x):
    return 2 * x


@dataclass
class Scale:
    factor: float
    clock: float = field(default=0.0)
    _derived_attributes = ("clock",)

    @cached_property
    def square(self):
        return self.factor**2


def pairs(z):
    return Observations(LabelProportions(), Groups.from_sizes([2, 2]), torch.tensor(z), 2)


def linear(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Linear(2, 2)


SAME = {
    "functions": (double, double),
    "partial functions": (partial(double, x=1), partial(double, x=1)),
    "arrays": (np.arange(3), np.arange(6)[:3]),
    "tensors": (torch.arange(3), torch.arange(6)[:3]),
    "sets": ({"a", "b"}, {"b", "a"}),
    "observations": ([pairs([[1, 1], [2, 0]])], [pairs([[1, 1], [2, 0]])]),
    "models": (linear(0), linear(0)),
    "derived attributes": (Scale(2.0, 1.0), Scale(2.0, 3.0)),
}
DIFFERENT = {
    "functions": (double, identify),
    "arguments": (partial(double, x=1), partial(double, x=2)),
    "arrays": (np.arange(3), np.arange(3.0)),
    "shapes": (torch.zeros(2, 3), torch.zeros(3, 2)),
    "numbers": (1, 1.0),
    "observations": ([pairs([[1, 1], [2, 0]])], [pairs([[1, 1], [1, 1]])]),
    "weights": (linear(0), linear(1)),
    "modules": (nn.Sequential(nn.ReLU()), nn.Sequential(nn.Tanh())),
    "attributes": (Scale(2.0), Scale(3.0)),
    "folds": (FromFold(0, max, int), FromFold(1, max, int)),
}


@pytest.mark.parametrize("name", SAME)
def test_equal_values_are_the_same(name):
    first, second = SAME[name]
    assert identify(first, name) == identify(second, name)


@pytest.mark.parametrize("name", DIFFERENT)
def test_other_values_are_not(name):
    first, second = DIFFERENT[name]
    assert identify(first, name) != identify(second, name)


def test_what_was_computed_before_changes_nothing():
    value, seen = Scale(2.0), pairs([[1, 1], [2, 0]])
    before = identify([value, seen], "value")
    assert (value.square, len(seen.groups.segments)) == (4.0, 2)
    assert identify([value, seen], "value") == before


def nested():
    items = []
    items.append(items)
    return items


@pytest.mark.parametrize("value", [lambda x: x, partial(double, lambda x: x), threading.Lock(), nested()])
def test_other_objects_are_refused(value):
    with pytest.raises(TypeError, match=r"the score cannot be recognised when the run is resumed .* run_id"):
        identify(value, "score")


def test_functions_without_a_name_may_be_left_out():
    assert identify(lambda x: x, "score", skip_unknown=True) == identify(lambda x: 2, "score", skip_unknown=True)
    assert identify([1, lambda x: x], "s", skip_unknown=True) != identify([2, lambda x: x], "s", skip_unknown=True)


def test_identities_are_the_same_in_another_process():
    value = "[{'b', 'a', 'c'}, np.arange(3), torch.ones(2), nn.Linear, {'rate': 0.1}, 'x' + str(1), 'x1']"
    imports = "import numpy as np, torch; from torch import nn; from unbag.training.checkpoint import identify"
    done = subprocess.run(
        [sys.executable, "-c", f"{imports}; print(identify({value}, 'value'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == identify(eval(value), "value")
