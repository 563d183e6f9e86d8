"""Processes are started and watched: the error of one is reported, and a killed one ends the others."""

import os
import signal
import sys
import threading
from functools import partial
from unittest.mock import patch

import pytest
import torch
from table_files import blobs, call
from trained_together import difference, observed, summarise
from training_problems import network

import unbag
from unbag.persistence.run_folder import find_difference
from unbag.training import Checkpoint, Launcher, ProcessLost, Settings, train

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
launch = partial(Launcher, start_method="fork")  # everything is imported already


def mortal(best, history):
    """Kill the second process after its second epoch."""
    if len(history) == 2 and torch.distributed.is_initialized() and torch.distributed.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return False


def fit(folder=None, stopping=None, processes=None):
    X, seen, k = observed("label_proportions")
    checkpoint = None if folder is None else Checkpoint(folder, every=1, run_id="mortal or not")
    settings = Settings(epochs=4, batch_size=6, remember_from=1)
    rule = lambda best, history: stopping is not None and stopping(best, history)  # noqa: E731  # known by the run_id
    make = partial(network, k)
    return summarise(train(make, X, [seen], settings, checkpoint=checkpoint, stopping=rule, processes=processes))


@forks
def test_a_killed_process_ends_the_run_and_it_is_resumed_with_another_number(tmp_path):
    with pytest.raises(ProcessLost, match=r"one of 2 processes .* start the run again, with any number of processes"):
        launch(2).run(fit, tmp_path, mortal)
    assert [*tmp_path.glob("*.safetensors")]
    found, expected = launch(3).run(fit, tmp_path), fit()
    assert difference(found, expected) < 1e-6
    assert len(found["history"]) == len(expected["history"]) == 4


def wait(processes):
    if not processes.first:
        threading.Event().wait()
    processes.any(True)


@forks
def test_a_process_that_does_not_answer_ends_the_others():
    with pytest.raises(ProcessLost, match=r"start the run again"):
        launch(2, timeout=5.0).run(wait)


class UserError(LookupError):
    def __init__(self, row, column):
        super().__init__(f"row {row}, column {column}")


def refuse(error, processes):
    raise error


@forks
@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ValueError("no such rule"), ValueError, "no such rule"),
        (unbag.ImpossibleObservation("group 3"), unbag.ImpossibleObservation, "group 3"),
        (UserError(3, "b"), LookupError, "UserError: row 3, column b"),
    ],
)
def test_an_error_of_a_process_is_the_error_of_the_run(error, kind, message):
    with pytest.raises(kind) as raised:
        launch(2).run(refuse, error)
    assert (type(raised.value), str(raised.value)) == (kind, message)


def test_what_cannot_be_handed_over_is_named():
    with pytest.raises(TypeError, match=r"(?s)devices=2 hands models.*define functions and classes at the top"):
        Launcher(2).run(lambda processes: None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), 'devices must be a whole number of at least 1 or "auto", got 0'),
        ((True,), "devices must be a whole number"),
        ((1, "two"), "nodes must be a whole number of at least 1, got 'two'"),
        ((2, 1, "mps"), "several processes take device='cpu' or 'cuda', a GPU each; got 'mps'"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Launcher(*arguments)


def test_several_machines_need_an_address():
    with pytest.raises(ValueError, match="nodes=2 needs the variable MASTER_ADDR on each machine"):
        Launcher(2, 2).run(fit)


def test_without_fabric_it_is_said_what_to_install():
    with patch.dict(sys.modules, {"lightning_fabric": None}), pytest.raises(ImportError, match=r"unbag\[distributed\]"):
        Launcher(2).run(fit)


def test_a_run_goes_on_with_any_number_of_processes_but_not_with_other_settings():
    plan, more, longer = (
        {"training": {"network": {"devices": devices, "nodes": nodes, "epochs": epochs}}}
        for devices, nodes, epochs in ((2, 1, 3), (5, 2, 3), (2, 1, 4))
    )
    assert find_difference(plan, more) is None
    assert "epochs" in find_difference(plan, longer)


@pytest.mark.filterwarnings("ignore::unbag.UnbagWarning")
def test_a_classifier_is_fitted_by_several_processes_as_by_one():
    X, seen, k = observed("label_proportions")
    training = unbag.NetworkTraining(epochs=2)
    settings = {"training": training, "validation": unbag.CrossFitting(None), "n_classes": k, "random_state": 0}
    classifier = unbag.AggregateClassifier(model="linear", **settings)
    expected = classifier.fit(X.numpy(), seen.z, groups=seen.groups).predict_proba(X.numpy())
    classifier.set_params(training__devices=2).fit(X.numpy(), seen.z, groups=seen.groups)
    assert classifier.predict_proba(X.numpy()) == pytest.approx(expected, abs=1e-5)


def test_only_the_first_of_several_processes_keeps_a_run(tmp_path):
    blobs(tmp_path, n_groups=24)
    command = ["fit", tmp_path / "people.csv", tmp_path / "counts.csv", "--exclude", "label", "--epochs", 2]
    with patch.object(Launcher, "first", False):
        done = call(*command, "--model", "linear", "--out", tmp_path / "other")
    assert (done.exit_code, done.output) == (0, "")
    assert not (tmp_path / "other").exists()
