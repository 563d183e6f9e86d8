"""The examples run, and learn something within a few epochs."""

from __future__ import annotations

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_digits_learn_from_counts(capsys):
    accuracies = runpy.run_path(str(EXAMPLES / "digits.py"))["main"](epochs=4)
    assert list(accuracies) == ["unbiased risk", "log-likelihood", "every label known"]
    assert min(accuracies.values()) > 0.8  # where guessing is right one time in ten
    printed = capsys.readouterr().out
    assert "unbiased risk: epoch 4 of 4" in printed
    assert "every label known" in printed
