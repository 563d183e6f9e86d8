"""The code of the documentation runs, its links and commands exist."""

import json
import os
import re
import runpy
import shlex
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import typer
from code_blocks import find_blocks, run_block
from estimate_coverage import put_into_page, summarise
from typer.testing import CliRunner

from unbag.aggregates.registry import AGGREGATES
from unbag.cli import app
from unbag.diagnostics.registry import CHECKS
from unbag.learners.base import LEARNERS, MODELS
from unbag.noise import KINDS
from unbag.objectives.losses import LOSSES

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if "_build" not in page.parts]
NAMES = [page.relative_to(DOCS).as_posix() for page in PAGES]
NUMBER = re.compile(r"-?\d+\.\d+")
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")
SHELL_BLOCK = re.compile(r"^```(?:console|bash)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
COMMANDS = typer.main.get_command(app)
COMMAND_IN_TEXT = re.compile(r"`(unbag [a-z][^`]*)`")


def commands_of(page: Path) -> list[str]:
    """Return the commands of unbag on a page."""
    text = page.read_text(encoding="utf-8")
    lines = [line.removeprefix("$ ") for block in SHELL_BLOCK.findall(text) for line in block.splitlines()]
    return [line for line in lines if line.startswith("unbag ")] + COMMAND_IN_TEXT.findall(text)


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as MyST makes them."""
    headings = re.findall(r"^#{1,3} (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def check_command(command: str) -> None:
    """Raise an error for a command or an option that does not exist."""
    found = COMMANDS
    words = shlex.split(command, comments=True)[1:]
    if words[:1] in (["bench"], ["reproduce"]):  # commands of unbag-experiments, whose tests check them
        return
    while words and words[0] in getattr(found, "commands", {}):
        found = found.commands[words.pop(0)]
    # A group may stand alone; otherwise one of its commands must follow.
    assert not hasattr(found, "commands") or not words or words[0].startswith("-"), f"{command}: no such command"
    options = {name for parameter in found.params for name in parameter.opts} | {"--help"}
    for word in words:
        if word.startswith("--"):
            assert word.split("=")[0] in options, f"{command}: no option {word}"


def test_pages_are_short():
    lines = {name: page.read_text(encoding="utf-8").count("\n") for name, page in zip(NAMES, PAGES, strict=True)}
    assert not {name: n for name, n in lines.items() if n > 200}
    assert sum(lines.values()) <= 3500


def test_no_python_block_of_the_readme_is_overlooked():
    assert len(find_blocks(DOCS / README)) == (DOCS / README).read_text(encoding="utf-8").count("```py")


def test_every_page_is_in_a_table_of_contents():
    listed = {DOCS / "index.md"}
    for page in PAGES:
        for block in re.findall(r"^```{toctree}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S):
            for name in (line for line in block.splitlines() if line and not line.startswith(":")):
                listed.update(page.parent.glob(f"{name}.md"))
    assert set(PAGES) == listed


@pytest.fixture
def _registries():
    """Restore what a block registers."""
    registries = [(registry, registry.copy()) for registry in (AGGREGATES, CHECKS, KINDS, LEARNERS, LOSSES, MODELS)]
    yield
    for registry, content in registries:
        registry.clear()
        registry.update(content)


README = "../README.md"
SHARED = "which_page.md"  # its blocks are run one after the other with the same variables


@pytest.mark.usefixtures("_registries")
@pytest.mark.parametrize(
    ("name", "line"), [(name, line) for name in [README, *NAMES] if name != SHARED for line in find_blocks(DOCS / name)]
)
def test_code(name, line, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())  # what a block sets stays in it
    output, variables = run_block(DOCS / name, line)
    assert capsys.readouterr().out == output
    if name.startswith("gallery/"):
        stem = Path(name).stem
        runpy.run_path(str(DOCS / "pictures.py"))["draw_gallery"](stem, variables, tmp_path)
        assert (tmp_path / f"{stem}.svg").stat().st_size > 5000


def test_answers_to_questions(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    page, variables = DOCS / SHARED, {}
    first, *blocks = find_blocks(page).items()
    run_block(page, first[0], variables)
    for line, (code, output) in blocks:
        assert code.count("\n") == 3, line
        run_block(page, line, variables)
        assert capsys.readouterr().out == output, line
    questions = [part for part in page.read_text(encoding="utf-8").split("## ", 1)[1].split("\n\n") if "→" in part]
    assert len(questions) == len(blocks)


def test_the_table_of_estimates_is_that_of_the_lines():
    lines = [json.loads(line) for line in (DOCS / "results" / "coverage.jsonl").read_text().splitlines()]
    page = (DOCS / "trust.md").read_text(encoding="utf-8")
    assert put_into_page(summarise(lines), page) == page, "run tests/helpers/estimate_coverage.py with --page"


def test_measurements_are_those_of_the_files():
    measurements = runpy.run_path(str(DOCS / "measurements.py"))
    for page in measurements["PAGES"]:
        text = page.read_text(encoding="utf-8")
        assert measurements["render"](text) == text, "run python docs/measurements.py"


@pytest.mark.parametrize("name", NAMES)
def test_links(name):
    page = DOCS / name
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.is_file(), f"{name} links to {path}, which is not there"
        assert not anchor or anchor in anchors_of(found), f"{name} links to {target}, but there is no such heading"


@pytest.mark.parametrize("name", NAMES)
def test_commands_exist(name):
    for command in commands_of(DOCS / name):
        check_command(command)


def test_a_command_that_does_not_exist_is_an_error():
    with pytest.raises(AssertionError, match="no such command"):
        check_command("unbag spaceship")
    with pytest.raises(AssertionError, match="no option --fast"):
        check_command("unbag fit --fast")


def test_every_command_is_described():
    headings = anchors_of(DOCS / "command_line.md")
    missing = [name for name in COMMANDS.commands if f"unbag-{name}" not in headings]
    assert not missing


def are_close(first: str, second: str) -> bool:
    """Compare two SVG files up to rounding."""
    (words, numbers), (other_words, other_numbers) = (
        (NUMBER.sub("", text), np.array(NUMBER.findall(text), dtype=float)) for text in (first, second)
    )
    return words == other_words and np.allclose(numbers, other_numbers, atol=0.01)


def test_pictures(tmp_path):
    draw_all = runpy.run_path(str(DOCS / "pictures.py"))["draw_all"]
    draw_all(tmp_path)
    drawn = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    text = "".join(page.read_text(encoding="utf-8") for page in [*PAGES, DOCS.parent / "README.md"])
    kept = {path.name: path.read_bytes() for path in (DOCS / "_pictures").iterdir()}
    gallery = {page.with_suffix(".svg").name for page in (DOCS / "gallery").glob("*.md")} - {"index.svg"}
    assert set(re.findall(r"_pictures/(\w+\.svg)", text)) == {*drawn, *gallery} == set(kept)
    if f"Matplotlib v{matplotlib.__version__}".encode() in kept["loop.svg"]:  # versions draw differently
        assert all(are_close(kept[name].decode(), drawn[name].decode()) for name in drawn)
    assert not re.search(r"!\[\]\(", text)  # each has a description


def test_all_commands_of_the_example(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    page = DOCS / "start.md"
    run_block(page, min(find_blocks(page)))
    shown, *_ = SHELL_BLOCK.findall(page.read_text(encoding="utf-8"))
    for command in shown.splitlines():
        done = CliRunner().invoke(
            app, [*shlex.split(command)[1:], *(["--model", "linear"] if " fit " in command else [])]
        )
        assert done.exit_code == 0, f"{command}: {done.output}"
    assert (tmp_path / "predicted.csv").read_text(encoding="utf-8").count("\n") == 901
    assert (tmp_path / "labels.csv").read_text(encoding="utf-8").count("\n") == 901
    assert (tmp_path / "run" / "report.html").is_file()
