"""``unbag bench``, with the benchmark itself replaced."""

from __future__ import annotations

import json
import os
import re
import sys
from types import ModuleType

import pytest
from typer.testing import CliRunner

import unbag
from unbag import cli

ROWS = [
    {
        "case": "pairs [128]",
        "unbag_ms": 0.25,
        "reference": "cross entropy",
        "reference_ms": 0.125,
        "ratio": 2.0,
        "target": "<= 6x",
        "met": True,
        "note": "on [quiet] machines",
    },
    {
        "case": "bags",
        "unbag_ms": 12.0,
        "reference": None,
        "reference_ms": None,
        "ratio": None,
        "target": 4,
        "met": False,
        "note": None,
    },
]


@pytest.fixture
def calls(monkeypatch):
    """Replace the benchmark and keep what it was called with."""
    seen = []

    def run(threads, quick, report):
        seen.append((threads, quick))
        report("timing [pairs]")
        return ROWS

    package, engine = ModuleType("unbag_experiments.benchmarks"), ModuleType("unbag_experiments.benchmarks.engine")
    package.engine, engine.run = engine, run
    monkeypatch.setitem(sys.modules, "unbag_experiments.benchmarks", package)
    monkeypatch.setitem(sys.modules, "unbag_experiments.benchmarks.engine", engine)
    return seen


def call(*arguments: str, width: int = 200):
    return CliRunner(env={"COLUMNS": str(width), "TERM": "dumb"}).invoke(cli.app, arguments)


def example_in(text: str) -> list[str]:
    return re.search(r"Example: unbag (.*\S)", text).group(1).split()


def test_help_gives_an_example_that_works(calls, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call("bench", "engine", "--help")
    assert result.exit_code == 0
    assert call(*example_in(result.stdout)).exit_code == 0
    assert calls == [(1, True)]
    assert [path.name for path in tmp_path.iterdir()] == ["engine.json"]


def test_the_table_goes_to_stdout_and_progress_to_stderr(calls):
    result = call("bench", "engine", "--threads", "2")
    assert calls == [(2, False)]
    assert result.exit_code == 0
    assert result.stderr == "timing [pairs]\n"
    assert "2 threads" in result.stdout
    words = [re.split(r"\s{2,}", line.strip()) for line in result.stdout.splitlines()]
    assert ["pairs [128]", "0.25", "0.125", "2", "<= 6x", "yes"] in words
    assert ["against cross entropy"] in words
    assert ["bags", "12", "4", "no"] in words
    assert words[-1] == ["pairs [128]: on [quiet] machines"]


def test_json_holds_the_rows_and_their_circumstances(calls, tmp_path):
    file = tmp_path / "engine.json"
    file.write_text("old")
    assert call("bench", "engine", "--json", str(file), "--quick").exit_code == 0
    written = json.loads(file.read_text())
    assert written["results"] == ROWS
    assert (written["threads"], written["quick"], written["versions"]["unbag"]) == (1, True, unbag.__version__)
    assert list(tmp_path.iterdir()) == [file]


def test_a_missing_folder_is_noticed_before_the_work(calls, tmp_path):
    result = call("bench", "engine", "--json", str(tmp_path / "missing" / "engine.json"))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert re.fullmatch(r"the folder \S+missing does not exist; create it, or name a file elsewhere\n", result.stderr)
    assert calls == []


def test_a_folder_in_place_of_a_file_is_noticed_before_the_work(calls, tmp_path):
    result = call("bench", "engine", "--json", str(tmp_path))
    assert (result.exit_code, calls) == (2, [])
    assert "is a folder; name a file in it" in result.stderr


def test_a_read_only_folder_is_noticed_before_the_work(calls, tmp_path, monkeypatch):
    # Whoever runs the tests may be allowed to write everywhere, so a read-only folder has to be pretended.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    result = call("bench", "engine", "--json", str(tmp_path / "engine.json"))
    assert (result.exit_code, calls) == (2, [])
    assert "is read-only; name a file elsewhere" in result.stderr


def test_an_interrupted_write_keeps_the_old_file(calls, tmp_path, monkeypatch):
    file = tmp_path / "engine.json"
    file.write_text("old")

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    result = call("bench", "engine", "--json", str(file))
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, "no space left on device")
    assert "cross entropy" in result.stdout  # the results were not lost with the file
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_text() == "old"


def test_an_error_is_a_sentence_and_a_traceback_only_on_request(calls, monkeypatch):
    def fail(**_):
        raise ValueError("[bags] of no size")

    monkeypatch.setattr(sys.modules["unbag_experiments.benchmarks.engine"], "run", fail)
    result = call("bench", "engine")
    assert result.exit_code == 2
    assert result.stderr == "[bags] of no size\nTo see where this comes from, run: unbag --debug ...\n"
    result = call("--debug", "bench", "engine")
    assert result.exit_code == 1
    assert result.stderr.startswith("Traceback")
    assert "ValueError: [bags] of no size" in result.stderr


def test_unknown_options_and_bad_values_exit_with_2(calls):
    assert call("bench", "engine", "--threads", "0").exit_code == 2
    assert call("bench", "motor").exit_code == 2
    assert calls == []
