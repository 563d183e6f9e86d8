"""One model of options: the command line, files of settings and the estimator agree with it."""

import inspect
import json
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from unbag import AggregateClassifier, CrossFitting, NetworkTraining
from unbag.aggregates import AGGREGATES
from unbag.cli import app
from unbag.cli.shared import FILE_OPTIONS, OPTIONS
from unbag.learners.architectures import MODELS
from unbag.objectives.losses import LOSSES
from unbag.tables import TableError, make_plan, options, read_config
from unbag.tables.options import NetworkOptions, Plan, Training, options_of

VALUES = {str: "x", int: 3, float: 0.5, bool: True, tuple: ["a", "b"], Path: "rows"}


def defaults(kind):
    return {name: p.default for name, p in inspect.signature(kind).parameters.items()}


def test_settings_have_the_names_and_defaults_of_the_estimator():
    parameters = Training(network=NetworkOptions()).parameters()
    assert parameters.pop("random_state") == 0  # runs are reproducible, fits in Python need not be
    validation, training = parameters.pop("validation"), parameters.pop("training")
    estimator = defaults(AggregateClassifier)
    assert {name: estimator[name] for name in parameters} == parameters
    assert validation.get_params() == defaults(CrossFitting)
    assert training.get_params() == defaults(NetworkTraining)
    data = {"aggregate", "n_classes", "classes", "class_shares", "sampling"}
    assert {*estimator} - {*parameters} == {*data, "training", "validation", "random_state", "verbose"}
    hooks = {"optimiser", "schedule", "stopping", "views", "checkpoint"}
    assert {*defaults(NetworkTraining)} - {*options_of(NetworkOptions)} == hooks


def test_settings_of_networks_select_training_by_algorithm_1():
    files = {"instances": "people.csv", "groups": "wards.csv"}
    assert make_plan({**files, "model": "mlp", "n_folds": 3}).training.parameters()["training"] is None
    training = make_plan({**files, "batch_size": 8}).training.parameters(Path("run"))["training"]
    assert (training.batch_size, training.epochs, training.checkpoint) == (8, 200, Path("run"))


def test_help_names_what_is_registered():
    assert tuple(AGGREGATES) == options.AGGREGATES
    assert tuple(LOSSES) == options.LOSSES
    assert {*options.MODELS} - {*MODELS} == {"auto", "trees"}


def test_every_option_is_one_of_the_command_line():
    commands = get_command(app).commands
    for command, expected in (("fit", OPTIONS), ("check", FILE_OPTIONS)):
        shown = {parameter.name: parameter for parameter in commands[command].params}
        assert {*OPTIONS} & {*shown} == {*expected}
        for name, option in expected.items():
            assert shown[name].help.startswith(option.help)
            assert all(choice in shown[name].help for choice in option.choices)
            assert f"--{name.replace('_', '-')}" in shown[name].opts


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.words])
def test_what_is_automatic_can_be_written(name):
    def complaint(value):
        return CliRunner().invoke(app, ["fit", "none.csv", "none.csv", f"--{name.replace('_', '-')}", value]).output

    for value in ("auto", "3"):
        assert "Invalid value" not in complaint(value)
    assert f"'soon' is neither of type {OPTIONS[name].type.__name__}" in complaint("soon")


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_read_from_a_file_and_validated(name, tmp_path):
    path = tmp_path / "fit.toml"
    kind = OPTIONS[name].type
    path.write_text(f"{name} = {json.dumps(VALUES[kind])}")
    assert read_config(path) == {name: str(tmp_path / VALUES[kind]) if kind is Path else VALUES[kind]}
    wrong = "[1]" if kind is not bool else "1"
    path.write_text(f"{name} = {wrong}")
    with pytest.raises(TableError, match=rf"fit\.toml: {name} must be of type .*, got "):
        read_config(path)


def test_removed_options_name_their_replacement():
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["fit", "people.csv", "wards.csv", "--ensemble"])
    assert result.exit_code == 2
    assert "--ensemble was removed: models of several folds and restarts are always averaged" in result.stderr


def test_a_plan_is_kept_as_json():
    options = {"instances": "people.csv", "groups": "wards.csv", "members": ["a", "b"], "epochs": 3, "learning_rate": 1}
    plan = make_plan({**options, "group_in_groups": "ward", "also": [{"file": "pairs.csv"}]})
    assert (plan.sources[0].group, plan.sources[0].members, plan.training.network.epochs) == ("ward", ("a", "b"), 3)
    again = Plan(**json.loads(json.dumps(plan.as_dict())))
    assert again.as_dict() == plan.as_dict()
    assert again.sources[0].members == ("a", "b")
