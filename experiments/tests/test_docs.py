"""The documents are true: the code of the README runs, and the commands in all documents exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from code_blocks import find_blocks, run_block

from unbag_experiments.cli import bench, reproduce

ROOT = Path(__file__).parents[2]
README = ROOT / "experiments" / "README.md"
PAGES = [README, ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = {name: typer.main.get_command(module.app) for name, module in (("bench", bench), ("reproduce", reproduce))}


@pytest.mark.parametrize("line", find_blocks(README))
def test_code_prints_what_the_readme_says(line, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    output, _ = run_block(README, line)
    assert capsys.readouterr().out == output


def check_command(command: str) -> None:
    """Refuse a command, or an option, that does not exist."""
    words = shlex.split(command, comments=True)[1:]
    found = COMMANDS[words.pop(0)]
    if words and not words[0].startswith("-"):
        found = found.commands[words.pop(0)]
    elif words:  # options right behind the name are those of run
        found = found.commands["run"]
    options = {name for parameter in found.params for name in parameter.opts}
    assert not [word for word in words if word.startswith("--") and word.split("=")[0] not in options], command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_exist(page):
    text = page.read_text("utf-8")
    for command in re.findall(
        r"^(?:\$ )?(unbag (?:bench|reproduce)\b.*)$|`(unbag (?:bench|reproduce)\b[^`]*)`", text, re.M
    ):
        check_command("".join(command))


def test_a_command_that_does_not_exist_is_noticed():
    with pytest.raises(KeyError, match="spaceship"):
        check_command("unbag bench spaceship")
    with pytest.raises(AssertionError, match="--fast"):
        check_command("unbag bench engine --fast")
