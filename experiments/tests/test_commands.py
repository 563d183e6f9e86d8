"""``unbag reproduce`` on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from unbag import cli
from unbag_experiments import commands, overview, render, runner, smoke
from unbag_experiments.datasets import Dataset
from unbag_experiments.plan import select
from unbag_experiments.results import read

VEHICLE = ("--table", "similarity_uci", "--dataset", "vehicle", "--method", "uum")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def tiny(monkeypatch):
    def load(name):
        rng = np.random.default_rng(0)
        return Dataset(name, rng.random((40, 3), np.float32), np.arange(40) % 2, ("a", "b"), None, None, "", "")

    monkeypatch.setattr(runner.datasets, "load", load)


def call(*arguments):
    return CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(cli.app, ["reproduce", *arguments])


def test_a_cell_is_run_and_shown_beside_the_paper(tiny, tmp_path):
    shown = call(*VEHICLE, "--trials", "2", "--epochs", "2", "--device", "cpu", "--results", "mine")
    assert shown.exit_code == 0, shown.output
    assert "similarity_uci, vehicle, uum: " in shown.stdout
    assert "in 2 trials; the paper: 78.71 ± 4.20" in shown.stdout
    assert "1 done" in shown.stdout
    assert len(read(tmp_path / "mine")) == 2
    again = call("run", *VEHICLE, "--trials", "2", "--epochs", "2", "--device", "cpu", "--results", "mine")
    assert "nothing is missing" in again.stdout


@pytest.mark.parametrize("name", ["list", "render", "smoke"])
def test_flags_of_old_say_where_they_went(name):
    shown = call("--table", "mil", f"--{name}")
    assert shown.exit_code == 2
    assert f"--{name} has become a command: unbag reproduce {name}" in shown.stderr


def test_help_lists_what_the_plan_lets_choose():
    for name in ("list", "run", "smoke"):
        for _ in range(2):  # the same again
            shown = " ".join(call(name, "-h").stdout.replace("│", " ").split())
            assert "Only this protocol: paper, copies_together, ten_fold, groups_of_16," in shown
            assert "Only this table: similarity_uci, triplet_uci" in shown


def test_short_runs_have_a_folder_of_their_own(tiny, tmp_path):
    assert call(*VEHICLE, "--trials", "1", "--epochs", "1", "--device", "cpu").exit_code == 0
    assert len(read(tmp_path / "results" / "epochs-1")) == 1
    assert read(tmp_path / "results") == []
    assert overview.folder_for(None, None) == overview.DEFAULT_FOLDER


def test_a_spent_budget_ends_well_and_says_what_is_missing(tiny):
    shown = call("--table", "similarity_uci", "--device", "cpu", "--budget", "2s")
    assert shown.exit_code == 0
    assert "25 still missing" in shown.stdout
    assert "the same command goes on with similarity_uci, msplice, log_likelihood" in shown.stdout


def test_failures_are_told_and_show_in_the_exit_code(monkeypatch):
    def missing(name):
        raise FileNotFoundError(f"no {name} here")

    monkeypatch.setattr(runner.datasets, "load", missing)
    shown = call(*VEHICLE, "--epochs", "1", "--device", "cpu")
    assert shown.exit_code == 1
    assert (
        "failed: similarity_uci, vehicle, uum: the data set vehicle cannot be loaded: no vehicle here" in shown.stdout
    )


def test_cells_are_listed_in_order_with_how_far_they_are(tiny):
    call(*VEHICLE, "--trials", "1", "--epochs", "1", "--device", "cpu")
    shown = call("list", "--table", "similarity_uci", "--epochs", "1").stdout.splitlines()
    assert len(shown) == 25
    assert shown[0] == "0/10  similarity_uci, msplice, log_likelihood"
    assert any(line.startswith("1/10  similarity_uci, vehicle, uum: ") for line in shown)
    assert len(call("list").stdout.splitlines()) == len(select())


def test_a_single_seed_is_run_and_the_time_is_told_beforehand(tiny):
    told = call(*VEHICLE, "--seed", "7", "--epochs", "1", "--device", "cpu", "--results", "again").stdout
    assert "1 trials of 1 cells are missing: time unknown" in told
    [line] = read(Path("again"))
    assert (line["seed"], line["beside"]) == (7, 1)


def test_a_number_of_groups_can_be_asked_for():
    shown = call("list", "--table", "similarity_sizes", "--groups", "30000", "--method", "uum").stdout
    assert shown == "0/5  similarity_sizes, cifar10, 30,000 groups, uum\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--table", "mli"), "table must be one of 'similarity_uci'"),
        (("--dataset", "mnits"), "dataset must be one of 'msplice'"),
        (("--method", "umu"), "method must be one of"),
        (("--device", "tpu"), "device must be cpu or cuda, got 'tpu'"),
        (("--budget", "9"), "budget must be"),
    ],
)
def test_wrong_options_are_refused(arguments, message):
    shown = call(*arguments)
    assert shown.exit_code == 2
    assert message in shown.stderr


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert commands.find_device(None) == torch.device("cpu")
    with pytest.raises(ValueError, match="torch finds no GPU"):
        commands.find_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert commands.find_device(None) == commands.find_device("cuda") == torch.device("cuda")


def test_rendering_is_left_to_its_module(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(render, "write", lambda *folders: asked.append([str(folder) for folder in folders]))
    assert call("render").exit_code == 0
    assert asked == [["results", "docs"]]


def test_all_cells_of_a_table_run_for_a_moment_and_leave_nothing(tmp_path):
    shown = call("smoke", "--table", "similarity_noinit")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines()[-1] == f"{len(select(tables=['similarity_noinit']))} done"
    assert not list(tmp_path.iterdir())


ASPECTS = [
    *(("table",), ("dataset",)),
    *(("method", "problem"), ("method", "model"), ("problem", "model"), ("problem", "protocol")),
]


def aspects(cell):
    """Return what makes a cell run other code, or on other data, than its neighbours."""
    return {(*names, *(getattr(cell, name) for name in names)) for names in ASPECTS}


def test_every_method_model_problem_protocol_table_and_data_set_runs_for_a_moment():
    """A few cells stand for all: each aspect that any cell has is tried once."""
    chosen, left = [], set().union(*map(aspects, select()))
    while left:
        chosen.append(max(select(), key=lambda cell: len(aspects(cell) & left)))
        left -= aspects(chosen[-1])
    summary = commands.run_smoke(chosen)
    assert not summary.failed
    assert {work.cell.key for work in summary.done} == {cell.key for cell in map(smoke.tiny, chosen)}
