"""The runner: what is missing is run and saved, within a budget, beside other runs, and nothing twice."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from result_lines import trial

from unbag_experiments import golden, provenance, runner
from unbag_experiments.datasets import Dataset
from unbag_experiments.plan import Cell, Work
from unbag_experiments.results import append, belongs, read
from unbag_experiments.runner import end_of, parse_budget, reproduce, to_do
from unbag_experiments.work_claims import claim

CPU = torch.device("cpu")
CELLS = [
    Cell("similarity_uci", "pairwise_similarity", "vehicle", "uum", epochs=2),
    Cell("llp_uci", "label_proportions", "usps", "log_likelihood", epochs=2),
]


def load(name):
    rng = np.random.default_rng(0)
    return Dataset(name, rng.random((40, 3), np.float32), np.arange(40) % 2, ("a", "b"), None, None, "", "")


def accept(cell):
    """Take the code of trials as it is."""


def run(folder, cells=CELLS, **given):
    return reproduce(
        cells, folder, **{"device": CPU, "load": load, "trials": 2, "quiet": True, "check": accept, **given}
    )


def test_every_trial_is_saved_with_where_it_comes_from(tmp_path):
    reported = []
    summary = run(tmp_path, report=reported.append)
    assert [work.cell for work in summary.done] == CELLS == reported
    assert (summary.missing, summary.elsewhere, summary.failed, summary.out_of_time) == ((), (), {}, False)
    lines = read(tmp_path)
    assert [(line["table"], line["seed"], line["n_groups"]) for line in lines] == [
        ("llp_uci", 1000, 20),
        ("llp_uci", 1001, 20),
        ("similarity_uci", 1000, 80),
        ("similarity_uci", 1001, 80),
    ]
    for line, cell in zip(lines, [CELLS[1]] * 2 + [CELLS[0]] * 2, strict=True):
        assert set(line["by"]) == {"labels", "groups"}
        for found in line["by"].values():
            assert 0 <= found["accuracy"] <= 1
            assert found["choice"] in range(9)
            assert len(found["scores"]) == len(line["choices"]) == 9
        assert (line["plan"], line["golden"]) == (cell.digest, golden.digest(cell))
        assert line["data"] == provenance.content_digest(load(cell.dataset))
        assert line["rows"] == {"train": 24, "validation": 8, "test": 8}
        assert set(line) == {
            *(
                "table",
                "problem",
                "dataset",
                "method",
                "protocol",
                "n_groups",
                "seed",
                "by",
                "choices",
                "rows",
                "beside",
            ),
            *("plan", "golden", "data", "settings", "seconds", "hardware", "versions", "commit", "date"),
        }
        assert set(trial(cell)) <= set(line)  # lines that other tests make are like those that are written


def test_single_seeds_are_run_and_nothing_else(tmp_path):
    run(tmp_path, seeds=[7])
    assert [line["seed"] for line in read(tmp_path)] == [7, 7]
    assert run(tmp_path, seeds=[7]).done == ()
    assert [work.seeds for work in run(tmp_path, seeds=[7, 9]).done] == [(9,), (9,)]


def test_changed_code_is_refused(tmp_path, monkeypatch):
    kind = golden.kind(CELLS[0])
    changed = {**golden.known(), kind: [-5.0] * 9}
    monkeypatch.setattr(golden, "known", lambda: changed)
    golden._check.cache_clear()
    summary = run(tmp_path, check=golden.check)
    assert [work.cell for work in summary.failed] == [CELLS[0]]
    [reason] = summary.failed.values()
    assert f"the code of trials of {kind} has changed: a short run gives [" in reason
    assert {line["method"] for line in read(tmp_path)} == {"log_likelihood"}
    golden._check.cache_clear()


def test_nothing_is_run_twice_and_more_trials_are_added(tmp_path):
    run(tmp_path)
    again = run(tmp_path)
    assert again.done == again.missing == ()
    more = run(tmp_path, trials=3)
    assert [work.seeds for work in more.done] == [(1002,), (1002,)]
    assert len(read(tmp_path)) == 6


def test_results_of_other_epochs_do_not_count(tmp_path):
    run(tmp_path)
    assert len(run(tmp_path, [replace(CELLS[0], epochs=1)]).done) == 1


def test_checkpoints_are_gone_when_a_cell_is_done(tmp_path):
    run(tmp_path)
    assert not [path for path in (tmp_path / ".unfinished").iterdir() if path.is_dir()]


def test_work_of_another_run_is_left_alone(tmp_path):
    with claim(tmp_path, Work(CELLS[0], (0, 1)).key):
        summary = run(tmp_path)
    assert [work.cell for work in summary.elsewhere] == [CELLS[0]]
    assert [work.cell for work in summary.done] == [CELLS[1]]


def test_what_another_run_finished_meanwhile_is_not_done_again(tmp_path, monkeypatch):
    run(tmp_path)
    monkeypatch.setattr(runner, "to_do", lambda *given: [Work(CELLS[0], (1000, 1001))])
    run(tmp_path)
    assert len(read(tmp_path)) == 4


def test_a_budget_that_is_spent_saves_and_the_next_run_ends_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "TO_BEGIN", -1e9)
    summary = run(tmp_path / "cut", until=0.0)
    assert summary.out_of_time
    assert [work.cell for work in summary.missing] == CELLS
    assert read(tmp_path / "cut") == []
    assert list((tmp_path / "cut").glob(".unfinished/*/*/run 0/checkpoint.safetensors"))
    run(tmp_path / "cut")
    run(tmp_path / "whole")
    for one, other in zip(read(tmp_path / "cut"), read(tmp_path / "whole"), strict=True):
        for name in ("by", "choices", "settings", "seed"):
            assert one[name] == other[name]


def test_nothing_is_begun_that_cannot_get_anywhere(tmp_path):
    def refuse(name):
        raise AssertionError(name)

    summary = run(tmp_path, until=time.monotonic() + 5, load=refuse)
    assert summary.out_of_time
    assert len(summary.missing) == 2
    assert runner._to_begin(Work(CELLS[0], (0,)), torch.device("cuda")) == runner.TO_BEGIN
    dense = Cell("llp_benchmark", "label_proportions", "cifar10", "uum", n_groups=30_000)
    assert runner._to_begin(Work(dense, (0,)), torch.device("cuda")) == runner.TO_COMPILE
    assert runner._to_begin(Work(dense, (0,)), CPU) == runner.TO_BEGIN


def test_a_cell_that_fails_does_not_stop_the_others(tmp_path, monkeypatch, caplog):
    train = runner.run_trials

    def failing(cell, tasks, **given):
        if cell == CELLS[0]:
            raise RuntimeError("diverged")
        return train(cell, tasks, **given)

    monkeypatch.setattr(runner, "run_trials", failing)
    with caplog.at_level(logging.ERROR):
        summary = run(tmp_path)
    assert summary.failed == {Work(CELLS[0], (1000, 1001)): "RuntimeError: diverged"}
    assert "similarity_uci--pairwise_similarity--vehicle--uum--paper failed" in caplog.text
    assert [work.cell for work in summary.done] == [CELLS[1]]


def test_a_data_set_that_cannot_be_loaded_is_tried_once(tmp_path):
    tried = []

    def missing(name):
        tried.append(name)
        raise FileNotFoundError("no such file")

    other = replace(CELLS[0], method="log_likelihood")
    summary = run(tmp_path, [CELLS[0], other], load=missing)
    assert tried == ["vehicle"]
    assert list(summary.failed.values()) == ["the data set vehicle cannot be loaded: no such file"] * 2


def test_the_largest_size_takes_over_what_the_main_table_has(tmp_path):
    sized = Cell("similarity_sizes", "pairwise_similarity", "cifar10", "uum", n_groups=120_000)
    append(tmp_path, trial(sized.same_as, accuracy=0.5))
    summary = run(tmp_path, [sized], trials=1, load=pytest.fail)
    assert [work.cell for work in summary.done] == [sized]
    lines = {one["table"]: one for one in read(tmp_path)}
    assert lines["similarity_sizes"]["by"] == lines["similarity_benchmark"]["by"]
    assert lines["similarity_sizes"]["copied_from"] == "similarity_benchmark"
    assert belongs(lines["similarity_sizes"], sized)


def test_the_ceiling_of_triplets_is_copied_from_that_of_pairs(tmp_path):
    ceiling = Cell("triplet_uci", "triplet_comparison", "vehicle", "supervised")
    for seed in ceiling.seeds():
        append(tmp_path, trial(ceiling.same_as, seed))
    run(tmp_path, [ceiling], trials=None, load=pytest.fail)
    copies = [one for one in read(tmp_path) if one["table"] == "triplet_uci"]
    assert len(copies) == 10
    assert all(belongs(one, ceiling) and one["copied_from"] == "similarity_uci" for one in copies)


def test_trials_that_go_one_by_one_are_pieces_of_work():
    dense = Cell("llp_benchmark", "label_proportions", "cifar10", "uum", n_groups=30_000)
    assert [work.seeds for work in to_do([dense, CELLS[0]], [], 2)] == [(1000, 1001), (1000,), (1001,)]


def test_what_another_table_has_comes_first():
    small, largest = (
        Cell("similarity_sizes", "pairwise_similarity", "cifar10", "uum", n_groups=size) for size in (10_000, 120_000)
    )
    work = to_do([small, largest], [trial(largest.same_as)], 2)
    assert [(one.cell, one.seeds) for one in work] == [
        (largest, (1000,)), (small, (1000,)), (small, (1001,)), (largest, (1001,)),
    ]  # fmt: skip


def test_data_sets_are_found_by_name(monkeypatch):
    monkeypatch.setattr(runner.datasets, "load", lambda name: f"loaded {name}")
    assert runner.load("mnist") == "loaded mnist"
    assert runner.load("digits").n_classes == 10


@pytest.mark.parametrize("text", ["9", "m", "-3m", "0s", "9 minutes", "1h30m", ""])
def test_budgets_that_mean_nothing_are_refused(text):
    with pytest.raises(ValueError, match="such as 90s, 9m or"):
        parse_budget(text)


def test_a_run_stops_before_its_budget_is_spent():
    assert end_of("9m", 100.0) == 100 + 540 - 15
    assert end_of("50s", 100.0) == 140
