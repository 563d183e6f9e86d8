"""The progress bar of trials: shown in a terminal, silent elsewhere."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from unbag_experiments.progress import ProgressBar, summary

HISTORY = [{"epoch": epoch, "loss": [1.0], "score": [score]} for epoch, score in enumerate((-1.0, -0.5))]


def shown(console):
    with ProgressBar("digits", console) as bar:
        bar(HISTORY[:1], 2)
        bar(HISTORY, 2)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())


def test_a_bar_shows_epoch_loss_and_score_in_a_terminal():
    text = shown(Console(force_terminal=True, file=io.StringIO(), width=120))
    assert all(part in text for part in ("digits", "2/2", "loss 1, score -0.5"))


def test_a_bar_is_silent_elsewhere():
    assert shown(Console(file=io.StringIO())) == ""


@pytest.mark.parametrize(
    ("loss", "score", "expected"),
    [
        ([1.0, 2.0], None, "loss 1.5"),
        ([0.123456], [-0.98765], "loss 0.1235, score -0.9877"),
        ([1.0, 1.0], [float("nan"), -1.0], "loss 1, score -1"),
        ([1.0, 1.0], [[-2.0, -1.0], [0.0, 0.0]], "loss 1, score -1"),
        ([1.0], [float("nan")], "loss 1, score nan"),
    ],
)
def test_summary(loss, score, expected):
    assert summary([{"epoch": 0, "loss": loss, "score": score}]) == expected
