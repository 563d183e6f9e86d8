"""How long trials will take, from lines of the same."""

from __future__ import annotations

from dataclasses import replace

from result_lines import trial

from unbag_experiments.estimates import estimate
from unbag_experiments.plan import Cell, Work

CELL = Cell("similarity_uci", "pairwise_similarity", "vehicle", "uum")


def known(work, lines):
    return estimate(work, lines, hardware="NVIDIA H200")


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
