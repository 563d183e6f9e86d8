"""Progress: a bar in a terminal, nothing elsewhere, and a log."""

from __future__ import annotations

import io
import logging
import re
from functools import partial

import pytest
import torch
from rich.console import Console
from torch import nn
from training_problems import network, pairs_problem

from unbag.training import ProgressBar, Settings, held_out_likelihood, train
from unbag.training.progress import summary

SETTINGS = Settings(epochs=3, batch_size=10)


def terminal():
    return Console(force_terminal=True, file=io.StringIO(), width=120)


def shown_by(console):
    """Return what was written, without colours and movements."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())


def run(progress, *extra, seeds=(0,), settings=SETTINGS):
    X, seen = pairs_problem()
    score = held_out_likelihood(X, [seen])
    return train(partial(network, 3, *extra), X, [seen], settings, seeds=seeds, score=score, progress=progress)


def test_a_bar_shows_epoch_loss_and_score_in_a_terminal():
    console = terminal()
    trained = run(ProgressBar("digits", console))
    shown = shown_by(console)
    assert "digits" in shown
    assert "3/3" in shown
    assert summary(trained.history) in shown
    assert re.search(r"loss \d\.\d+, score -\d\.\d+", shown)
    assert re.search(r"\d:\d\d:\d\d", shown)  # time left


def test_a_bar_is_silent_elsewhere(capsys):
    console = Console(file=io.StringIO())
    run(ProgressBar(console=console))
    assert console.file.getvalue() == ""
    run(ProgressBar())  # standard error of the tests is no terminal
    assert capsys.readouterr() == ("", "")


def test_a_bar_is_gone_after_an_error():
    console = terminal()
    X, seen = pairs_problem()

    def broken(predict):
        raise LookupError("no score")

    with pytest.raises(LookupError, match="no score"):
        train(partial(network, 3), X, [seen], SETTINGS, score=broken, progress=ProgressBar(console=console))
    hidden, shown = (console.file.getvalue().rfind(code) for code in ("\x1b[?25l", "\x1b[?25h"))
    assert 0 <= hidden < shown  # the cursor is back


def test_a_bar_starts_anew_for_models_trained_one_after_the_other():
    console = terminal()
    run(ProgressBar(console=console), partial(nn.BatchNorm1d, 6), seeds=[0, 1])
    assert shown_by(console).count("3/3") >= 2


def test_without_progress_epochs_are_logged_and_nothing_is_printed(caplog, capsys):
    with caplog.at_level(logging.INFO, logger="unbag"):
        trained = run(None)
    assert [record.name for record in caplog.records] == ["unbag"] * 3
    assert [record.levelname for record in caplog.records] == ["INFO"] * 3
    assert [record.getMessage() for record in caplog.records] == [
        f"epoch {number} of 3, {summary(trained.history[:number])}" for number in (1, 2, 3)
    ]
    assert capsys.readouterr() == ("", "")


def test_a_bar_logs_too(caplog):
    with caplog.at_level(logging.INFO, logger="unbag"):
        run(ProgressBar(console=terminal()))
    assert len(caplog.records) == 3


@pytest.mark.parametrize(
    ("loss", "score", "said"),
    [
        ([1.0], None, "loss 1"),
        ([1.0, 2.0], None, "loss 1.5"),
        ([0.123456], [-0.98765], "loss 0.1235, score -0.9877, the best so far"),
        ([1.0, 1.0, 1.0], [-2.0, float("nan"), -1.0], "loss 1, score -1, the best so far"),
        ([1.0, 1.0], [float("nan"), -1.0], "loss 1, score -1, the best so far"),
        ([1.0, 1.0], [[-2.0, -1.0], [0.0, 0.0]], "loss 1, score -1, the best so far"),
        ([1.0], [float("nan")], "loss 1, score nan"),
    ],
)
def test_summary(loss, score, said):
    assert summary([{"epoch": 0, "loss": loss, "score": score}]) == said


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ([[-1.0], [-0.5]], "score -0.5, the best so far"),
        ([[-0.5], [-1.0]], "score -1, best -0.5 in epoch 1"),
        ([[-0.5], [-0.5], [-1.0]], "score -1, best -0.5 in epoch 2"),  # which was trained for longer
        ([None, [-0.5], [float("nan")]], "score nan, best -0.5 in epoch 2"),
    ],
)
def test_summary_of_several_epochs_names_the_best(scores, said):
    history = [{"epoch": epoch, "loss": [1.0], "score": score} for epoch, score in enumerate(scores)]
    assert summary(history) == f"loss 1, {said}"


def test_scores_of_any_precision_are_shown():
    console = terminal()
    X, seen = pairs_problem()
    scores = iter([0.5, 0.25, 0.125])
    train(
        partial(network, 3),
        X,
        [seen],
        SETTINGS,
        score=lambda predict: torch.tensor([next(scores)], dtype=torch.float16),
        progress=ProgressBar(console=console),
    )
    assert "score 0.125" in shown_by(console)
