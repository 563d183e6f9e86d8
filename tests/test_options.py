"""One model of options: the command line, files of settings and the estimator agree with it."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from unbag import AggregateClassifier
from unbag.aggregates import AGGREGATES
from unbag.cli import app
from unbag.fitting import HOOKS
from unbag.objectives.losses import LOSSES
from unbag.tables import TableError, make_plan, options, read_config
from unbag.tables.options import Plan, Source, Training, option_of, options_of, plain_type, words_of

OPTIONS = {**options_of(Source), **options_of(Plan), **options_of(Training)}
VALUES = {str: "x", int: 3, float: 0.5, bool: True, tuple: ["a", "b"], Path: "rows"}


def test_settings_of_training_are_parameters_of_the_estimator_with_the_same_defaults():
    parameters = inspect.signature(AggregateClassifier).parameters
    given = Training().parameters
    assert given.pop("random_state") == 0  # a run can be repeated, a fit in Python need not
    assert {name: parameters[name].default for name in given} == given
    others = {
        "aggregate",
        "n_classes",
        "classes",
        "sampling",
        "class_shares",
        "random_state",
        "verbose",
        "checkpoint",
        *HOOKS,
    }
    assert {*parameters} - {*given} == others  # no setting of training is missing


def test_help_names_all_aggregates_and_losses():
    assert tuple(AGGREGATES) == options.AGGREGATES
    assert tuple(LOSSES) == options.LOSSES


def test_every_option_is_one_of_the_command_line():
    commands = get_command(app).commands
    for command, names in (("fit", {*OPTIONS}), ("check", {*OPTIONS} - {*options_of(Training)})):
        shown = {one.name: one for one in commands[command].params}
        assert {*OPTIONS} & {*shown} == names
        for name in names:
            option = option_of(OPTIONS[name])
            assert shown[name].help.startswith(option.help)
            assert all(choice in shown[name].help for choice in option.choices)
            assert f"--{name.replace('_', '-')}" in shown[name].opts


@pytest.mark.parametrize("name", [name for name, hint in OPTIONS.items() if words_of(hint)])
def test_what_is_automatic_can_be_written(name):
    def complaint(value):
        return CliRunner().invoke(app, ["fit", "none.csv", "none.csv", f"--{name.replace('_', '-')}", value]).output

    for value in ("auto", "3"):
        assert "Invalid value" not in complaint(value)
    assert f"'soon' is neither of type {plain_type(OPTIONS[name]).__name__}" in complaint("soon")


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_read_from_a_file_and_checked(name, tmp_path):
    path = tmp_path / "fit.toml"
    kind = plain_type(OPTIONS[name])
    path.write_text(f"{name} = {json.dumps(VALUES[kind])}")
    assert read_config(path) == {name: str(tmp_path / VALUES[kind]) if kind is Path else VALUES[kind]}
    wrong = "[1]" if kind is not bool else "1"
    path.write_text(f"{name} = {wrong}")
    with pytest.raises(TableError, match=rf"fit\.toml: {name} must be of type .*, got "):
        read_config(path)


def test_a_plan_is_kept_as_json():
    options = {"instances": "people.csv", "groups": "wards.csv", "members": ["a", "b"], "epochs": 3, "learning_rate": 1}
    plan = make_plan({**options, "group_in_groups": "ward", "also": [{"file": "pairs.csv"}]})
    assert (plan.sources[0].group, plan.sources[0].members, plan.training.epochs) == ("ward", ("a", "b"), 3)
    again = Plan.from_dict(json.loads(json.dumps(plan.as_dict())))
    assert again.as_dict() == plan.as_dict()
    assert again.sources[0].members == ("a", "b")
