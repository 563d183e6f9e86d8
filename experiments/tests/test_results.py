"""Results on disk: lines that survive kills and each other, claims, and what is missing."""

from __future__ import annotations

import json
import logging
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from result_lines import trial

from unbag_experiments.cell_text import name_cell, tell_result
from unbag_experiments.plan import Cell, Work
from unbag_experiments.results import append, belongs, finished, missing_seeds, read
from unbag_experiments.work_claims import checkpoint_folder, claim, clear

CELL = Cell("similarity_uci", "pairwise_similarity", "vehicle", "uum")


def line(seed=0, accuracy=0.5, **changes):
    return trial(CELL, seed, accuracy, **changes)


def test_lines_come_back_from_a_file_for_each_table(tmp_path):
    append(tmp_path / "new", line())
    append(tmp_path / "new", line(table="mil", seed=3))
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == [".unfinished", "mil.jsonl", "similarity_uci.jsonl"]
    assert read(tmp_path / "new") == [line(table="mil", seed=3), line()]


def test_a_folder_that_does_not_exist_has_no_results(tmp_path):
    assert read(tmp_path / "none") == []


def test_a_broken_line_is_named_and_swallows_no_other(tmp_path, caplog):
    append(tmp_path, line(0))
    file = tmp_path / "similarity_uci.jsonl"
    with open(file, "a") as opened:
        opened.write(json.dumps(line(1))[:40])
    with caplog.at_level(logging.ERROR):
        assert read(tmp_path) == [line(0)]
    assert f"{file}, line 2, is not a finished trial" in caplog.text
    append(tmp_path, line(2))
    assert [one["seed"] for one in read(tmp_path)] == [0, 2]


@pytest.mark.parametrize("text", ["3", "[]", '"no"'])
def test_a_line_that_is_something_else_is_named(tmp_path, text, caplog):
    (tmp_path / "mil.jsonl").write_text(f"{text}\n")
    with caplog.at_level(logging.ERROR):
        assert read(tmp_path) == []
    assert "line 1" in caplog.text


def test_a_line_that_lacks_something_is_refused(tmp_path):
    (tmp_path / "mil.jsonl").write_text('{"table": "mil"}\n')
    with pytest.raises(ValueError, match=r"mil.jsonl, line 1, has no problem, dataset, .*; mend the line or remove it"):
        read(tmp_path)


def test_what_the_disk_does_not_take_leaves_the_file_as_it_was(tmp_path):
    append(tmp_path, line(0))
    before = (tmp_path / "similarity_uci.jsonl").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
    try:
        with pytest.raises(OSError, match="took 20 of"):
            append(tmp_path, line(1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "similarity_uci.jsonl").read_bytes() == before


def test_what_json_cannot_say_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        append(tmp_path, line(accuracy=float("nan")))
    assert not list(tmp_path.iterdir())


def test_two_writers_do_not_destroy_each_others_lines(tmp_path):
    def append_many(first):
        for seed in range(first, first + 50):
            append(tmp_path, line(seed, padding="x" * 5000))

    with ThreadPoolExecutor(2) as pool:  # each opens the file anew, as another process would
        list(pool.map(append_many, (0, 50)))
    assert sorted(one["seed"] for one in read(tmp_path)) == list(range(100))


@pytest.mark.parametrize("name", ["table", "problem", "dataset", "method", "protocol", "plan", "golden"])
def test_a_line_is_of_a_cell_by_names_plan_and_code(name):
    assert belongs(line(), CELL)
    assert not belongs(line(**{name: "other"}), CELL)


def test_a_plan_with_another_setting_is_another_plan():
    assert not belongs(line(), replace(CELL, epochs=3))
    sized = replace(CELL, n_groups=1000)
    assert not belongs(line(), sized)
    assert belongs(trial(sized), sized)


def test_missing_seeds_are_those_without_a_line():
    lines = [line(0), line(3, 0.75), line(3, 0.25), line(4, method="siamese")]
    assert missing_seeds(lines, CELL, range(5)) == [1, 2, 4]
    assert missing_seeds(lines, CELL, [1, 0]) == [1]
    assert finished(lines, CELL)[3]["by"]["labels"]["accuracy"] == 0.25


def test_work_is_claimed_once_and_free_again_after_that(tmp_path):
    work = Work(CELL, (0, 1))
    with claim(tmp_path, work.key) as mine, claim(tmp_path, work.key) as again:
        assert (mine, again) == (True, False)
        with claim(tmp_path, Work(Cell("mil", "multiple_instance", "fox", "uum"), (0,)).key) as other:
            assert other
    with claim(tmp_path, work.key) as later:
        assert later
    assert (tmp_path / ".unfinished" / ".gitignore").read_text() == "*\n"


def test_a_claim_ends_with_its_process(tmp_path):
    program = f"""
import os, pathlib
from unbag_experiments.work_claims import claim
with claim(pathlib.Path({str(tmp_path)!r}), {Work(CELL, (0,)).key!r}) as mine:
    print(mine, flush=True)
    os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-9, "True\n")
    with claim(tmp_path, Work(CELL, (0,)).key) as mine:
        assert mine


def test_trials_that_go_one_by_one_are_claimed_one_by_one(tmp_path):
    cell = Cell("similarity_benchmark", "pairwise_similarity", "cifar10", "uum", n_groups=120_000)
    with claim(tmp_path, Work(cell, (0,)).key) as first, claim(tmp_path, Work(cell, (1,)).key) as second:
        assert first
        assert second


def test_unlike_work_is_saved_in_unlike_places_and_cleared_together(tmp_path):
    works = [Work(CELL, (0, 1)), Work(CELL, (1,)), Work(Cell(*vars(CELL).values()), (0, 1))]
    folders = [checkpoint_folder(tmp_path, work) for work in works]
    assert folders[0] == folders[2] != folders[1]
    short = Work(Cell("similarity_uci", "pairwise_similarity", "vehicle", "uum", epochs=2), (0, 1))
    assert checkpoint_folder(tmp_path, short) not in folders
    folders[0].mkdir(parents=True)
    clear(tmp_path, works[1])
    assert not folders[0].exists()


def test_cells_and_results_in_words():
    assert name_cell(CELL) == "similarity_uci, vehicle, uum"
    sized = Cell("similarity_sizes", "pairwise_similarity", "cifar10", "uum", n_groups=10_000)
    assert name_cell(sized) == "similarity_sizes, cifar10, 10,000 groups, uum"
    assert name_cell(Cell("ordinal", "ordinal_rank", "digits", "uum")) == "ordinal, ordinal_rank, digits, uum"
    told = tell_result(CELL, [line(0, 0.70), line(1, 0.80)])
    assert told == "similarity_uci, vehicle, uum: 75.00 ± 7.07 in 2 trials; the paper: 78.71 ± 4.20"
    assert tell_result(sized, [trial(sized, accuracy=0.5)]).endswith("uum: 50.00 in 1 trial; the paper: 34.14")
    honest = Cell("mil", "multiple_instance", "fox", "uum", "ten_fold")
    assert tell_result(honest, [trial(honest)]).endswith("in 1 trial")
