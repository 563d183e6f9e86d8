"""The command line as a whole, and the commands that other packages add."""

import re
import runpy
import sys
from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

import unbag
from unbag import cli
from unbag._utils import plugins
from unbag.learners.architectures import build


def call(*arguments: str, width: int = 200):
    return CliRunner(env={"COLUMNS": str(width), "TERM": "dumb"}).invoke(cli.app, arguments)


def test_the_package_runs_as_a_module(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["python", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("unbag.cli", run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"unbag {unbag.__version__}\n"


def test_without_a_command_the_help_is_shown():
    assert "Example: unbag demo" in call().output


def test_commands_stand_in_panels_in_the_order_of_use():
    words = call("-h").stdout.split()
    place = words.index("Your")
    for name in ("Your", "data", "demo", "check", "fit", "report", "predict", "disaggregate", "protect"):
        place = words.index(name, place)


@pytest.mark.parametrize("command", ["", "fit", "predict", "protect", "demo"])
def test_help_shows_types_of_values_alone(command):
    shown = call(*command.split(), "-h").stdout
    assert "--help" in shown
    assert not re.search("<bool|<list", shown)


def test_what_predict_computes_on_is_no_setting_of_training():
    assert re.search(r"Where to compute.*--device.*--engine", call("predict", "-h").stdout, re.DOTALL)


def test_shells_complete_commands_and_choices(monkeypatch):
    for line, expected in (("unbag disagg", "disaggregate"), ("unbag fit --method ", "likelihood")):
        monkeypatch.setenv("_UNBAG_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        shown = CliRunner().invoke(cli.app, [], prog_name="unbag")
        assert expected in shown.stdout.split()


@pytest.fixture
def installed(monkeypatch):
    """Replace the entry points of installed packages."""
    found: list[EntryPoint] = []

    def entry_points(group, name=None):
        return [point for point in found if point.group == group and name in (None, point.name)]

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    plugins.names.cache_clear()
    yield found
    plugins.names.cache_clear()


plugin = typer.Typer(help="Say hello.")


@plugin.command()
def hello() -> None:
    """Say hello."""
    typer.echo("hello")


def test_packages_add_commands(installed, monkeypatch):
    monkeypatch.setitem(sys.modules, "greeting", sys.modules[__name__])
    installed.append(EntryPoint("greet", "greeting:plugin", plugins.COMMANDS))
    assert re.search("Plug-ins.*greet", call("-h").stdout, re.DOTALL)
    assert call("greet").stdout == "hello\n"


@pytest.mark.parametrize("command", ["reproduce", "bench"])
def test_a_command_of_a_package_that_is_not_installed_names_it(installed, command):
    result = call(command, "list", "--table", "mil")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"{plugins.how_to_install(f'unbag {command}')}\n"


def test_models_of_a_package_that_is_not_installed_name_it(installed):
    with pytest.raises(ValueError, match="model 'densenet' is part of the package unbag-experiments"):
        build("densenet", (3, 32, 32), 2)


@pytest.mark.parametrize("module", ["baselines", "benchmarks", "datasets", "experiments"])
def test_modules_that_moved_name_their_package(module):
    with pytest.raises(ModuleNotFoundError, match=rf"unbag\.{module} is part of the package unbag-experiments"):
        __import__(f"unbag.{module}")
    with pytest.raises(ModuleNotFoundError, match="and import unbag_experiments"):
        getattr(unbag, module)
