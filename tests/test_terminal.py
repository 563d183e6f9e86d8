"""Nothing that a file says makes a terminal do anything but show text."""

import io
import re
import unicodedata

import pytest
from table_files import PEOPLE, WARDS, call, write, write_parquet

from unbag._utils.problems import Problem, fail
from unbag._utils.terminal import JOINERS, Terminal, plain, visible

HOSTILE = {
    "ESC": "\x1b[31mred",
    "CSI of eight bits": "\x9b2J",
    "OSC": "\x1b]0;title\x07",
    "OSC of eight bits": "\x9d0;title\x9c",
    "a link": "\x1b]8;;http://example.org\x1b\\here\x1b]8;;\x1b\\",
    "BEL": "\a",
    "backspace": "ok\b\b",
    "carriage return": "good\rbad",
    "a line": "one\nerror  nothing is wrong",
    "a line of Unicode": "one\u2028two\u2029three\x85four",
    "right to left": "abc\u202efdp.exe\u202c",
    "isolates": "\u2066x\u2069\u200f",
    "invisible": "a\u200b\ufeffb\u00ad",
    "DEL": "\x7f",
    "tags": "\U000e0041",
    "half a character": "\udc80",
    "markup": "[red]x[/red]",
    "a link in markup": "[link=http://example.org]x[/link]",
    "markup that is not closed": "[/]\\",
    "emoji": ":bomb:",
}


def is_safe(text: str) -> bool:
    return all(
        unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for one in text if one not in f"\n{JOINERS}"
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_a_terminal_shows_text_and_obeys_nothing(name):
    text = HOSTILE[name]
    assert is_safe(visible(text))
    assert "\n" not in visible(text)
    assert is_safe(str(Problem("error", text, text, 1, text)))
    assert is_safe(str(fail(text, text)))
    for markup in (plain(text), f"[bold]{plain(text)}[/bold]"):
        out = io.StringIO()
        Terminal(file=out, width=200, highlight=False).print(markup)
        assert out.getvalue().rstrip("\\\n") == visible(text).rstrip("\\")  # rich doubles a backslash at the end
    out = io.StringIO()
    Terminal(file=out, width=200).print(text, markup=False)  # forgotten to make it safe
    assert is_safe(out.getvalue())


def test_letters_of_all_scripts_stay():
    for text in ("Zürich", "日本語", "\u0645\u06cc\u200c\u062e", "👩\u200d👧", "a\u00a0b", "\\x1b"):
        assert visible(text) == text


# A name may hold all of them; what is done to each is tested above. No file can hold half a character.
MARKUP = "".join(text for name, text in HOSTILE.items() if "markup" in name or name == "emoji")
CHARACTERS = "".join(text for text in HOSTILE.values() if text.isascii() and text not in MARKUP)
UNICODE = "".join(text for name, text in HOSTILE.items() if not text.isascii() and name != "half a character")


@pytest.mark.parametrize("text", [MARKUP, CHARACTERS, UNICODE], ids=["markup", "characters", "Unicode"])
def test_names_in_files_do_not_reach_the_terminal(text, tmp_path):
    people = {"id": [], "ward": [], "age": [], f"town{text}": []}
    for line in PEOPLE.splitlines()[1:]:
        for values, value in zip(people.values(), line.split(","), strict=True):
            values.append(value)
    people["age"] = [int(age) for age in people["age"]]
    people["ward"] = [f"{ward}{text}" for ward in people["ward"]]
    instances = write_parquet(tmp_path / "people.parquet", people)
    wards = {"ward": [f"w{n}{text}" for n in range(4)], f"ill{text}": [1, 0, 3, 2], f"well{text}": [2, 3, 0, 1]}
    groups = write_parquet(tmp_path / "wards.parquet", wards)
    missing = write_parquet(tmp_path / "missing.parquet", {**wards, "ward": [f"w{n}{text}" for n in range(1, 5)]})
    folder = tmp_path / re.sub(r"[/\0]", "", text)
    for command, code in (
        (["check", instances, groups], 0),
        (["check", instances, groups, "--json"], 0),
        (["check", instances, missing], 2),
        (["check", instances, groups, "--exclude", f"twon{text}"], 2),
        (["fit", instances, missing, "--out", tmp_path / "x"], 2),
        (["fit", instances, groups, "--out", folder, "--epochs", 1, "--model", "linear"], 0),
        (["predict", folder, instances, "--out", folder / f"{text.replace('/', '')}.csv"], 0),
        (["predict", folder, tmp_path / f"none{text}.csv", "--out", tmp_path / "p.csv"], 2),
        (["--debug", "fit", tmp_path / f"none{text}.csv", groups, "--out", tmp_path / "x"], 1),
    ):
        result = call(*command)
        assert result.exit_code == code, result.output
        assert is_safe(result.stdout), command
        assert is_safe(result.stderr), command
        if command[0] != "--debug":  # a traceback has many lines
            assert "\nerror  nothing is wrong" not in result.stdout + result.stderr


def test_values_of_a_csv_file_do_not_reach_the_terminal(tmp_path):
    people = write(tmp_path / "people.csv", PEOPLE)
    for groups in (
        WARDS.replace("w0,1", "w0,\x1b[2J1"),
        WARDS.replace("w2", "w\x1b[2J"),
        WARDS.replace("ill", "\x1b[2J").replace("w2,3", "w2,4"),
    ):
        result = call("fit", people, write(tmp_path / "wards.csv", groups), "--out", tmp_path / "run")
        assert result.exit_code == 2
        assert "\\x1b[2J" in result.stderr
        assert is_safe(result.stderr)
