"""Processes are started and watched: what goes wrong in one of them is said, and a killed one ends the others."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from unittest.mock import patch

import numpy as np
import pytest
import torch
from table_files import blobs, call

import unbag
from unbag.persistence.run_folder import _differences
from unbag.training import Checkpoint, launching
from unbag.training.launching import Launcher
from unbag.training.processes import ProcessLost

X = np.random.default_rng(0).normal(size=(60, 3))
GROUPS = unbag.Groups.from_sizes([1, 3, 5, 3] * 5)
COUNTS = unbag.LabelProportions().observe(X[:, 0] > 0, GROUPS, 2)


def mortal(best, history):
    """Kill a process after its second epoch, once: what happened is in the environment of all."""
    if len(history) == 2 and torch.distributed.is_initialized() and torch.distributed.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return False


def refusing(best, history):
    raise ValueError("no such rule")


def fit(**settings):
    fixed = {"model": "linear", "epochs": 4, "random_state": 0, "scaling": "standard", "batch_size": 6}
    return unbag.AggregateClassifier(**fixed, **settings).fit(X, COUNTS, GROUPS)


@pytest.fixture
def forked():
    """Start processes by fork, which has imported everything, and not by spawn."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    with patch.object(launching, "START_METHOD", "fork"):
        yield


def test_a_killed_process_ends_the_fit_and_it_goes_on_with_another_number(forked, tmp_path):
    start, sentence = time.monotonic(), "of 2 processes .*start the run again, with any number of processes"
    with patch.object(Checkpoint, "due", return_value=True), pytest.raises(ProcessLost, match=sentence):
        fit(devices=2, stopping=mortal, checkpoint=tmp_path)
    assert time.monotonic() - start < 60
    assert [*tmp_path.rglob("*.safetensors")]
    with patch("torch.distributed.get_rank", return_value=0):
        found = fit(devices=3, stopping=mortal, checkpoint=tmp_path)
    expected = fit()
    assert found.predict_proba(X) == pytest.approx(expected.predict_proba(X), abs=1e-6)
    assert len(found.history_) == len(expected.history_) == 4


def cut_off(processes):
    """Stop the second process, as if its machine could not be reached, for two seconds; the first has much to do."""
    if processes.first:
        time.sleep(100)
    elif os.fork() == 0:
        time.sleep(2)
        os.kill(os.getppid(), signal.SIGCONT)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGSTOP)


def test_a_process_that_does_not_answer_ends_the_others(forked, capfd):
    with patch.object(launching, "SILENCE", timedelta(seconds=1)), pytest.raises(ProcessLost, match="was ended"):
        Launcher(2).run(cut_off)
    assert "has not answered for 1 seconds; start the run again" in capfd.readouterr().err


def test_an_error_of_a_process_is_the_error_of_the_fit(forked):
    with pytest.raises(ValueError, match=r"^no such rule$"):
        fit(devices=2, stopping=refusing)


def test_what_cannot_be_handed_over_is_named():
    with pytest.raises(TypeError, match=r"(?s)devices=2 hands models.*define functions and classes at the top"):
        fit(devices=2, stopping=lambda best, history: False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"devices": 0}, 'devices must be a whole number of at least 1 or "auto", got 0'),
        ({"devices": True}, "devices must be a whole number"),
        ({"nodes": "two"}, "nodes must be a whole number of at least 1, got 'two'"),
        ({"devices": 2, "model": "trees"}, "model='trees' is fitted in one process: start no others"),
        ({"devices": 2, "nodes": 2}, "nodes=2 needs the variable MASTER_ADDR on each machine"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        unbag.AggregateClassifier(**{"model": "linear", **settings}).fit(X, COUNTS, GROUPS)


def test_without_fabric_it_is_said_what_to_install():
    with patch.dict(sys.modules, {"lightning_fabric": None}), pytest.raises(ImportError, match=r"unbag\[distributed\]"):
        fit(devices=2)


def test_a_run_goes_on_with_any_number_of_processes_but_not_with_other_settings():
    plan = {"training": {"devices": 2, "nodes": 1, "epochs": 3}}
    assert _differences(plan, {"training": {"devices": 5, "nodes": 2, "epochs": 3}}) is None
    assert "epochs" in _differences(plan, {"training": {"devices": 2, "nodes": 1, "epochs": 4}})


def test_only_the_first_of_several_processes_keeps_a_run(forked, tmp_path):
    blobs(tmp_path, n_groups=24)
    command = ["fit", tmp_path / "people.csv", tmp_path / "counts.csv", "--exclude", "label", "--epochs", 2]
    done = call(*command, "--model", "linear", "--devices", 2, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "run" / "model" / "model.json").exists()
    with patch.object(Launcher, "first", False):
        done = call(*command, "--model", "linear", "--out", tmp_path / "other")
    assert (done.exit_code, done.output) == (0, "")
    assert not (tmp_path / "other").exists()
