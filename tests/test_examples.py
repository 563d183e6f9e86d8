"""The examples run, and learn something within a few epochs."""

from __future__ import annotations

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_digits_learn_from_counts(capsys):
    accuracies = runpy.run_path(str(EXAMPLES / "digits.py"))["main"](epochs=8)
    assert list(accuracies) == ["by the unbiased risk", "by the likelihood", "from every label"]
    assert min(accuracies.values()) > 0.8  # where guessing is right one time in ten
    printed = capsys.readouterr().out
    assert "right after 8 epochs" in printed
    assert "from every label" in printed
