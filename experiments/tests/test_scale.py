"""Measurements of large tables run, and a model of the cost finds what it was made from."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
import pytest
from table_files import call

from unbag.training import launching
from unbag_experiments.benchmarks import scale
from unbag_experiments.benchmarks.scale_cost import FITTED, Cost, Machine, _terms
from unbag_experiments.benchmarks.scale_files import Files, Shape

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "experiments" / "benchmarks" / "scale_page.py"


def test_files_agree_with_each_other(tmp_path):
    files = Files(Shape(600, columns=3, classes=3, group_size=20), tmp_path)
    table = pq.read_table(files.parts)
    assert np.array_equal(np.stack([table[f"x{n}"] for n in range(3)], 1), np.load(files.arrays))
    assert np.array_equal(table["group"], np.arange(600) // 20)
    counts = [np.bincount(own, minlength=3) for own in files.labels.view(-1, 20).numpy()]
    assert np.array_equal(files.observed.z, counts)
    assert len(list(files.parts.iterdir())) == 5
    before = files.groups.stat().st_mtime_ns
    assert Files(files.shape, tmp_path).groups.stat().st_mtime_ns == before


def test_the_command_measures_every_task_and_keeps_other_cases(tmp_path):
    file, given = tmp_path / "scale.json", ["--quick", "--folder", tmp_path, "--json", tmp_path / "scale.json"]
    with patch.object(launching, "START_METHOD", "fork"):
        done = call("bench", "scale", "--rows", 10_000, "--task", "read", "--task", "disaggregate", *given)
        assert done.exit_code == 0, done.output
        found = scale.run(rows=[2000], tasks=["train from memory", "predict"], quick=True, folder=tmp_path)
        found += scale.run(rows=[2000], processes=[2], tasks=["train from disk", "send"], quick=True, folder=tmp_path)
        assert call("bench", "scale", "--rows", 10_000, "--task", "read", *given).exit_code == 0
    kept = json.loads(file.read_text())["results"]
    assert [one["case"] for one in kept] == ["disaggregate, 10,000 rows, 1 process", "read, 10,000 rows, 1 process"]
    assert [one["processes"] for one in found] == [1, 1, 2, 2]
    assert all(one["unbag_ms"] > 0 and one["reference_ms"] > 0 for one in kept + found)
    assert Machine.measured(kept + found).network > 0
    with pytest.raises(ValueError, match=r"a task is one of read, .*got 'sleep'"):
        scale.run(tasks=["sleep"])


@pytest.mark.parametrize("task", FITTED)
def test_a_model_of_the_cost_is_found_again(task):
    machine, shapes = Machine(1e9, 1e-4, 1e8), [Shape(10**n) for n in (5, 6, 7)] + scale.OTHERS
    names = list(_terms(task, Shape(1), 1))
    made = Cost(task, {name: 1e-7 * (place + 1) for place, name in enumerate(names)})
    results = [
        {**vars(shape), "measured_rows": shape.rows, "task": task, "processes": n}
        | {"unbag_ms": 1e3 * made.seconds(shape, n, machine)}
        for shape in shapes
        for n in (1, 2)
    ]
    found = Cost.fit(task, results, machine)
    many = Shape(10**9, rows_of_step=64_000)
    assert found.seconds(many, 64, machine) == pytest.approx(made.seconds(many, 64, machine), rel=1e-3)
    assert made.seconds(many, 64, machine) < made.seconds(many, 1, machine)


def test_the_page_has_what_was_measured():
    page, text = runpy.run_path(str(PAGE)), (ROOT / "docs" / "scale.md").read_text("utf-8")
    results = json.loads(PAGE.with_name("scale.json").read_text("utf-8"))["results"]
    for table in ("measured", "projected"):
        assert "\n".join(page[table](results)) in text, "write it anew: python experiments/benchmarks/scale_page.py"
