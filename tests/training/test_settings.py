"""Settings: which phase an epoch is in, and what is refused."""

import re
from itertools import product

import numpy as np
import pytest

from unbag.objectives.losses import LOSSES
from unbag.training import Settings

L, C, R = "likelihood", "current weights", "remembered weights"


@pytest.mark.parametrize(
    ("settings", "phases"),
    [
        (Settings(epochs=4), [C, C, C, C]),
        (Settings(epochs=4, warm_up=4), [L, L, L, L]),
        (Settings(epochs=4, warm_up=9, remember_from=0), [L, L, L, L]),
        (Settings(epochs=4, warm_up=2, remember_from=2), [L, L, R, R]),
        (Settings(epochs=4, warm_up=2, remember_from=0), [L, L, R, R]),
        (Settings(epochs=4, warm_up=1, remember_from=3), [L, C, C, R]),
        (Settings(epochs=4, remember_from=2), [C, C, R, R]),
        (Settings(epochs=4, remember_from=0), [R, R, R, R]),
        (Settings(epochs=4, remember_from=4), [C, C, C, C]),
    ],
)
def test_phases(settings, phases):
    assert [settings.phase(epoch) for epoch in range(4)] == phases
    assert settings.remembers == (R in phases)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *product(["epochs", "warm_up", "batch_size", "remember_from", "patience"], [-1, 1.5, True, "3", float("nan")]),
        *product(["epochs", "warm_up", "batch_size"], [None]),
    ],
)
def test_whole_numbers_are_asked_for(name, value):
    least = {"warm_up": 0, "remember_from": 0}.get(name, 1)
    with pytest.raises(
        ValueError, match=re.escape(f"{name} must be a whole number of at least {least}, got {value!r}")
    ):
        Settings(**{name: value})


def test_whole_numbers_of_numpy_are_taken():
    # A grid of values is often an array.
    settings = Settings(epochs=np.int64(3), patience=np.int32(2), learning_rate=np.float32(0.5))
    assert settings == Settings(epochs=3, patience=2, learning_rate=0.5)
    assert repr(settings) == repr(Settings(epochs=3, patience=2, learning_rate=0.5))


NOT_POSITIVE = [-0.1, float("nan"), float("inf"), "0.1", None, True]
REFUSED = {
    "learning_rate must be a positive number": ("learning_rate", [0, *NOT_POSITIVE]),
    "weight_decay must be a number that is not negative": ("weight_decay", NOT_POSITIVE),
    "precision must be 'float32' or 'bfloat16'": ("precision", ["float16", None, 16]),
    f"loss must be one of {', '.join(LOSSES)}, or a function from logits to losses;": (
        "loss",
        ["hinge", "", None, 3, ["mae"]],
    ),
    "score_from must be less than epochs, which is 200;": ("score_from", [200]),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_other_values_are_refused(rule):
    name, values = REFUSED[rule]
    for value in values:
        with pytest.raises(ValueError, match=rf"{re.escape(rule)},? got {re.escape(repr(value))}"):
            Settings(**{name: value})
