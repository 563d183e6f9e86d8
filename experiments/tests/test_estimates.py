"""How long trials will take: from lines where there are some, else from a few steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from result_lines import trial

from unbag_experiments import estimates
from unbag_experiments.datasets import Dataset
from unbag_experiments.estimates import estimate, seconds_of_a_trial
from unbag_experiments.plan import Cell, Work
from unbag_experiments.sampling import make_tasks
from unbag_experiments.trials import run_trials

CELL = Cell("similarity_uci", "pairwise_similarity", "vehicle", "uum")


def load(name):
    rng = np.random.default_rng(0)
    return Dataset(name, rng.random((200, 3), np.float32), np.arange(200) % 2, ("a", "b"), None, None, "", "")


def known(work, lines, **given):
    return estimate(work, lines, **{"hardware": "NVIDIA H200", "load": pytest.fail, "measure": False, **given})


def test_lines_of_the_same_cell_on_the_same_hardware_tell():
    lines = [
        trial(CELL, seconds=10.0),
        trial(CELL, 1001, seconds=20.0),
        trial(CELL, 1002, seconds=9e9, copied_from="x"),
    ]
    lines += [trial(CELL, 1003, seconds=9e9, hardware="another"), trial(replace(CELL, method="siamese"), seconds=9e9)]
    assert known([Work(CELL, (1004, 1005))], lines) == 30.0
    assert known([Work(CELL, (1004,)), Work(replace(CELL, dataset="usps"), (1000,))], lines) is None
    assert known([], []) == 0


def test_what_no_line_tells_is_measured_where_that_is_worth_it(monkeypatch):
    monkeypatch.setattr(estimates, "seconds_of_a_trial", lambda cell, data: 5.0 if data == "vehicle" else 0.0)
    assert known([Work(CELL, (1, 2, 3))], [], measure=True, load=str) == 15.0


@pytest.mark.parametrize("method", ["uum", "contrastive"])
def test_a_measured_estimate_is_of_the_right_size(method):
    cell = replace(CELL, method=method, epochs=20)
    told = seconds_of_a_trial(cell, load("vehicle"))
    (task,) = make_tasks(load("vehicle"), cell.problem, "paper", seeds=[0], device=torch.device("cpu"))
    (outcome,) = run_trials(cell, {0: task})
    assert told / 8 < outcome.seconds < told * 8
